"""Predictions beside published figures: `python -m penstock.published [TABLE] [--json | --markdown]`.

Without a table: all of them, with the median and the worst error of each. `TABLES` has their names. What a table fits,
on which other rows, and what it does not model is said with it.
"""
from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache

from penstock._planning import ConfigError
from penstock.published import rows as _rows
from penstock.published import scaling, zero_bubble
from penstock.published.rows import DATA, Row, Table

__all__ = ["Row", "TABLES", "Table", "main", "markdown", "table"]

TABLES: dict[str, Callable[[], tuple[Row, ...]]] = {**zero_bubble.TABLES, **scaling.TABLES}


@lru_cache(maxsize=None)
def table(name: str) -> Table:
    """A table by its name. Raises ConfigError, with a suggestion, for an unknown one."""
    if name not in TABLES:
        close = difflib.get_close_matches(name.lower(), TABLES, 1, 0.0)
        raise ConfigError(f"no published table is called '{name}': did you mean '{close[0]}'? The tables are "
                          + ", ".join(TABLES))
    return Table(name, TABLES[name](), **DATA["tables"][name])


def _list(tables: Sequence[Table]) -> list[str]:
    """A line for each table, and what is without a prediction."""
    return ["| table | rows | median error | worst | of |", "| --- | ---: | ---: | ---: | --- |",
            *(f"| [{one.name}](#{one.name}) | {len(one)} | {one.median:.1%} | {one.worst:.1%} | {one.title} |"
              for one in tables), "", "Figures of the file without a prediction:", "",
            *(f"- {what}: {why}." for what, why in DATA["without_prediction"].items())]


def _section(one: Table) -> list[str]:
    terms = (", ".join(f"{name} {value:.3g}" for name, value in row.fitted.items()) for row in one if row.fitted)
    groups = "; ".join(dict.fromkeys(terms))
    return [f"## {one.name}", "", f"{one.title}.", "", f"Fitted: {one.fitted}", "",
            f"Not modelled: {one.not_modelled}", "",
            *(f"- Without a prediction: {row}" for row in one.left_out), *[""] * bool(one.left_out),
            "| configuration | published | predicted | error |", "| --- | ---: | ---: | ---: |",
            *(f"| {row.configuration} | {row.published:.4g} | {row.predicted:.4g} | {row.error:+.1%} |" for row in one),
            *(["", f"Terms, in the order of the rows: {groups}."] if groups else [])]


def markdown() -> str:
    """The page python/docs/validation.md."""
    tables = [table(name) for name in TABLES]
    lines = ["# Predictions beside published figures", "",
             "Do Penstock's predictions hold for runs of others? Each prediction stands beside a published figure, and "
             "is fitted without the row beside it. `python -m penstock.published --markdown` writes this "
             "page from `data/published/published-numbers.csv`, which has the sources. An error is predicted / "
             "published - 1, and for bubble rates the difference.", "", *_list(tables)]
    return "\n".join([*lines, *(line for one in tables for line in ("", *_section(one))), ""])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m penstock.published",
                                     description="predictions beside published figures")
    parser.add_argument("table", nargs="?", default="all", help="one of: all, " + ", ".join(TABLES))
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    parser.add_argument("--markdown", action="store_true", help="the page with all tables")
    parser.add_argument("--numbers", metavar="FILE", help="figures in place of the package's, with the same columns")
    flags = parser.parse_args(arguments)
    _rows.NUMBERS = flags.numbers
    try:
        chosen = [table(name) for name in (TABLES if flags.table == "all" else [flags.table])]
    except (ConfigError, OSError) as error:
        parser.error(str(error))
    if flags.json:
        listed = {one.name: [{**asdict(row), "not_modelled": one.not_modelled} for row in one.rows] for one in chosen}
        print(json.dumps(listed if flags.table == "all" else listed[flags.table], indent=1))
    elif flags.markdown:
        print(markdown(), end="")
    else:
        print("\n".join(_list(chosen) if flags.table == "all" else _section(chosen[0])))
