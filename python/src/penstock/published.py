"""Predictions beside published figures: `python -m penstock.published TABLE [--json]`.

zero-bubble-4
    The measured samples per second and GPU of the Zero Bubble paper (arXiv 2401.10241, Table 4), from the times of its
    Table 9. Two terms are fitted on three of its models and used for the fourth: `slowdown`, by which F, I and W take
    longer in a whole step than alone, and `send_share`, the number of message times for which a message also occupies
    the rank that sends it.
zero-bubble-5
    The bubble rates that the paper computed (Table 5), from the same times, with nothing fitted.
"""
from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Optional

from penstock._planning import ConfigError, Schedule, StageCosts
from penstock.schedules import schedule


@dataclass(frozen=True)
class Row:
    """A published figure and the prediction."""

    configuration: str
    published: float
    predicted: float
    error: float            # predicted / published - 1; of bubble rates, the difference
    fitted: dict[str, float]  # terms that other rows of the table decided


@dataclass(frozen=True)
class _Cell:
    setting: str
    model: str
    method: str
    micro_batch: int
    layers: int
    ranks: int
    micro_batches: int
    forward: float
    input_grad: float
    weight_grad: float
    message: float
    value: float


_GENERATORS = {"1F1B": ("1f1b", None), "1F1B-I": ("interleaved", None), "ZB-H1": ("zb-h1", None),
               "ZB-H2": ("zb-h2", None), "ZB-1p": ("zb-auto", 1.0), "ZB-2p": ("zb-auto", 2.0)}


def _cells(table: str, metric: str) -> Iterator[_Cell]:
    text = (files("penstock") / "published.csv").read_text()
    for row in csv.DictReader(text.splitlines()):
        if "Zero Bubble" not in row["source"] or row["id"] != table or not row["metric"].startswith(metric):
            continue
        match = re.match(r"(\S+) L(\d+) .*b(\d+) (\S+)", row["setting"])
        if match is None or match[4] not in _GENERATORS:
            continue
        yield _Cell(row["setting"], match[1], match[4], int(match[3]), int(match[2]), int(row["p"]), int(row["m"]),
                    *(float(row[key]) for key in ("f_ms", "b_ms", "w_ms", "comm_ms", "value")))


@lru_cache(maxsize=None)
def _made(cell: _Cell) -> Schedule:
    name, limit = _GENERATORS[cell.method]
    chunks = -(-(cell.layers + 2) // cell.ranks) if name == "interleaved" else None
    costs = StageCosts(forward=cell.forward, input_grad=cell.input_grad, weight_grad=cell.weight_grad,
                       message=cell.message)
    return schedule(name, ranks=cell.ranks, micro_batches=cell.micro_batches, chunks=chunks, costs=costs,
                    memory_limit=limit)


def _step(cell: _Cell, slowdown: float = 0.0, send_share: float = 0.0) -> tuple[float, float]:
    """The span of a step in ms, and its bubble."""
    made = _made(cell)
    chunks = max(made.chunks)
    places = made.rank_of_stage
    blocked = send_share * cell.message

    def leaves(stage: int, other: int) -> float:
        return blocked if 0 <= other < made.stages and places[other] != places[stage] else 0.0

    factor = (1 + slowdown) / chunks
    stages = range(made.stages)
    costs = StageCosts(forward=[cell.forward * factor + leaves(s, s + 1) for s in stages],
                       input_grad=[cell.input_grad * factor + leaves(s, s - 1) for s in stages],
                       weight_grad=[cell.weight_grad * factor for _ in stages], message=cell.message)
    simulated = made.simulate(costs)
    return simulated.span, simulated.bubble_span


@lru_cache(maxsize=None)
def _samples_per_second(cell: _Cell, slowdown: float, send_share: float) -> float:
    return 1e3 * cell.micro_batches * cell.micro_batch / _step(cell, slowdown, send_share)[0] / cell.ranks


def _fit(cells: list[_Cell]) -> dict[str, float]:
    """The two terms with the least largest error: on a grid, which is refined around its best point."""

    def largest_error(terms: tuple[float, float]) -> float:
        return max(abs(_samples_per_second(cell, *terms) / cell.value - 1) for cell in cells)

    points = 6
    slowdown, share = (0.0, 0.12), (0.0, 2.4)
    best = (0.0, 0.0)
    for _ in range(4):
        grid = [(slowdown[0] + i * (slowdown[1] - slowdown[0]) / points, share[0] + k * (share[1] - share[0]) / points)
                for i in range(points + 1) for k in range(points + 1)]
        best = min(grid, key=largest_error)
        widths = [(slowdown[1] - slowdown[0]) / points, (share[1] - share[0]) / points]
        slowdown, share = ((max(0.0, at - width), at + width) for at, width in zip(best, widths))
    return {"slowdown": best[0], "send_share": best[1]}


def zero_bubble_4() -> list[Row]:
    """Table 4: each model predicted with terms that the other models decided."""
    cells = list(_cells("Table 4", "measured samples/s"))
    terms = {model: _fit([cell for cell in cells if cell.model != model]) for model in {one.model for one in cells}}
    rows = []
    for cell in cells:
        predicted = _samples_per_second(cell, **terms[cell.model])
        rows.append(Row(cell.setting + f", m = {cell.micro_batches}", cell.value, predicted,
                        predicted / cell.value - 1, terms[cell.model]))
    return rows


def zero_bubble_5() -> list[Row]:
    """Table 5: bubble rates, nothing fitted."""
    rows = []
    for cell in _cells("Table 5", "bubble rate"):
        predicted = _step(cell)[1]
        rows.append(Row(cell.setting + f", m = {cell.micro_batches}", cell.value, predicted, predicted - cell.value,
                        {}))
    return rows


TABLES = {"zero-bubble-4": zero_bubble_4, "zero-bubble-5": zero_bubble_5}


def table(name: str) -> list[Row]:
    """The rows of a table. Raises ConfigError for an unknown name."""
    if name not in TABLES:
        raise ConfigError(f"no published table is called '{name}': there are {', '.join(TABLES)}")
    return TABLES[name]()


def main(arguments: Optional[list[str]] = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m penstock.published",
                                     description="predictions beside published figures")
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    flags = parser.parse_args(arguments)
    rows = table(flags.table)
    if flags.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    for row in rows:
        print(f"{row.configuration:58} published {row.published:8.4g}  predicted {row.predicted:8.4g}  "
              f"error {row.error:+.2%}")
    errors = [abs(row.error) for row in rows]
    print(f"{len(rows)} rows: median error {statistics.median(errors):.2%}, worst {max(errors):.2%}")


if __name__ == "__main__":
    main()
