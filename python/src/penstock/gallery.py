"""A page with a picture of every schedule: `python -m penstock.gallery > gallery.html`."""
from __future__ import annotations

import html
import sys

from penstock.comparing import compare
from penstock.schedules import generators

STYLE = ("body{font:15px/1.4 sans-serif;max-width:76em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}"
         "th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}"
         "th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}h2{margin:1.6em 0 .2em}")


def gallery(*, ranks: int = 4, micro_batches: int = 8) -> str:
    """The text of the page: each generator with its picture, and all of them in a table.

    Costs are per rank, so that schedules with several stages per rank do the same work.
    """
    known = generators()
    made = compare(list(known), ranks=ranks, micro_batches=micro_batches, costs_per="rank")
    parts = [f"<h2>{html.escape(one.name)}</h2><p>{html.escape(known[name])}</p>{one.svg(costs)}"
             for name, one, costs in zip(known, made.schedules, made.costs)]
    title = f"Schedules for {ranks} ranks and {micro_batches} micro-batches"
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
            f"<h1>{title}</h1>{made.rows()._repr_html_()}{''.join(parts)}</html>\n")


if __name__ == "__main__":
    sys.stdout.write(gallery())
