"""Predictions beside published figures: `python -m penstock.published [TABLE] [--json | --markdown]`.

Without a table: all of them, with the median and the worst error of each. `TABLES` has their names. What a table fits,
on which other rows, and what it does not model is said with it.
"""
from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Optional

from penstock._planning import ConfigError
from penstock.published import rows as _rows
from penstock.published import scaling, zero_bubble
from penstock.published.rows import Row, Table

__all__ = ["Row", "TABLES", "Table", "main", "markdown", "table"]

TABLES = {**zero_bubble.TABLES, **scaling.TABLES}

# Of the file of figures, what no table predicts.
WITHOUT_PREDICTION = {
    "marin (PR #8739, issues #7024 and #6532)": "mixtures of experts on JAX: neither times nor the work of a token "
                                                "are stated",
    "DualPipe README": "formulas, which tests of the schedules compare",
    "llama.cpp PR #18626": "inference over RPC servers: the time of a message is not stated",
    "controllable memory, Table 3": "the best of a grid whose configurations are not stated",
    "PipeOffload, OptPipe, Chimera, Fugaku-LLM": "claims without the configuration of a run",
}


@lru_cache(maxsize=None)
def table(name: str) -> Table:
    """A table by its name. Raises ConfigError, with a suggestion, for an unknown one."""
    if name not in TABLES:
        close = difflib.get_close_matches(name.lower(), TABLES, 1, 0.0)
        raise ConfigError(f"no published table is called '{name}': did you mean '{close[0]}'? The tables are "
                          + ", ".join(TABLES))
    return TABLES[name]()


def _terms(fitted: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in fitted.items())


def _text(one: Table) -> str:
    lines = [f"{one.title} ({one.name})"]
    lines += [f"{row.configuration:72} published {row.published:8.4g}  predicted {row.predicted:8.4g}  "
              f"error {row.error:+8.2%}  {_terms(row.fitted)}".rstrip() for row in one.rows]
    lines += [f"Fitted: {one.fitted}", f"Not modelled: {one.not_modelled}"]
    lines += [f"Left out: {row}" for row in one.left_out]
    return "\n".join([*lines, f"{len(one.rows)} rows: median error {one.median:.2%}, worst {one.worst:.2%}"])


def _summary() -> str:
    lines = [f"{'table':20} {'rows':>5} {'median':>8} {'worst':>8}  of"]
    for name in TABLES:
        one = table(name)
        lines.append(f"{name:20} {len(one.rows):5} {one.median:8.2%} {one.worst:8.2%}  {one.title}")
    return "\n".join([*lines, *(f"without a prediction: {what}: {why}" for what, why in WITHOUT_PREDICTION.items())])


def markdown() -> str:
    """The page python/docs/validation.md."""
    lines = ["# Predictions beside published figures", "",
             "Do Penstock's predictions hold for runs of others? Each prediction stands beside a published figure, and "
             "is fitted without the row beside it. `python -m penstock.published --markdown` writes this "
             "page from `data/published/published-numbers.csv`, which has the sources. An error is predicted / "
             "published - 1, and for bubble rates the difference.", "",
             "| table | rows | median error | worst | of |", "| --- | ---: | ---: | ---: | --- |"]
    tables = [table(name) for name in TABLES]
    lines += [f"| [{one.name}](#{one.name}) | {len(one.rows)} | {one.median:.1%} | {one.worst:.1%} | {one.title} |"
              for one in tables]
    lines += ["", "Figures of the file without a prediction:", ""]
    lines += [f"- {what}: {why}." for what, why in WITHOUT_PREDICTION.items()]
    for one in tables:
        lines += ["", f"## {one.name}", "", f"{one.title}.", "", f"Fitted: {one.fitted}", "",
                  f"Not modelled: {one.not_modelled}", ""]
        lines += [f"- Without a prediction: {row}" for row in one.left_out] + [""] * bool(one.left_out)
        lines += ["| configuration | published | predicted | error |", "| --- | ---: | ---: | ---: |"]
        lines += [f"| {row.configuration} | {row.published:.4g} | {row.predicted:.4g} | {row.error:+.1%} |"
                  for row in one.rows]
        groups = list(dict.fromkeys(_terms(row.fitted) for row in one.rows if row.fitted))
        lines += ["", "Terms, in the order of the rows: " + "; ".join(groups) + "."] if groups else []
    return "\n".join(lines) + "\n"


def main(arguments: Optional[Sequence[str]] = None) -> None:
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
        print(_summary() if flags.table == "all" else _text(chosen[0]))
