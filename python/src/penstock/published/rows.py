"""Published figures, and predictions beside them."""
from __future__ import annotations

import csv
import json
import os
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Optional, Union

from penstock._planning import DataError

#: What the tables say about themselves, and properties of models and devices: data/published/tables.json.
DATA: dict[str, Any] = json.loads((files("penstock") / "tables.json").read_text(encoding="utf-8"))
NUMBERS: Union[str, "os.PathLike[str]", None] = None  # another file of figures in place of the package's


@dataclass(frozen=True)
class Row:
    """A published figure and the prediction."""

    configuration: str
    published: float
    predicted: float
    error: float  # predicted / published - 1; of rates, the difference
    fitted: dict[str, float]  # terms that other rows of the table decided


def row(configuration: str, published: float, predicted: float, fitted: Mapping[str, float]) -> Row:
    return Row(configuration, published, predicted, predicted / published - 1, dict(fitted))


@dataclass(frozen=True)
class Table:
    """Predictions for the figures of a publication."""

    name: str
    rows: tuple[Row, ...]
    title: str
    fitted: str  # what is fitted, and on what
    not_modelled: str
    left_out: Sequence[str] = ()  # rows of the table without a prediction, and why

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def errors(self) -> list[float]:
        return [abs(row.error) for row in self.rows]

    @property
    def median(self) -> float:
        return statistics.median(self.errors)

    @property
    def worst(self) -> float:
        return max(self.errors)


@dataclass(frozen=True)
class Figure:
    """A line of the file of published figures."""

    id: str
    setting: str
    value: str
    numbers: Mapping[str, float]  # of the columns p, v, m, d, t and of times that are given

    def number(self, pattern: str, default: Optional[float] = None) -> float:
        """The first group of `pattern` in the setting."""
        match = re.search(pattern, self.setting)
        if match is None and default is None:
            raise DataError(f"'{self.setting}' of {self.id} has nothing like {pattern}")
        return float(match[1]) if match else float(default or 0)

    def count(self, column: str, default: Optional[int] = None) -> int:
        return int(self.numbers[column] if default is None else self.numbers.get(column, default))


def figures(source: str, tables: Sequence[str]) -> Iterator[Figure]:
    """The figures of some tables of a source."""
    path = Path(NUMBERS) if NUMBERS is not None else files("penstock") / "published-numbers.csv"
    for line in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        if source in line["source"] and line["id"] in tables:
            numbers = {key: float(line[key]) for key in ("p", "v", "m", "d", "t", "f_ms", "b_ms", "w_ms", "comm_ms")
                       if re.fullmatch(r"[0-9.]+", line[key])}
            yield Figure(line["id"], line["setting"], line["value"], numbers)


@dataclass(frozen=True)
class Case:
    """A figure, work / time, whose time is a sum of unknown terms times known shares."""

    configuration: str
    published: float
    shares: Mapping[str, float]
    work: float = 1.0
    group: str = ""  # left out together with the rows of the same group; without: by itself


def leave_one_out(cases: Sequence[Case]) -> tuple[Row, ...]:
    """Each group predicted with the terms that the other groups decide."""
    rows: list[Row] = []
    groups = [case.group or case.configuration for case in cases]
    for group in dict.fromkeys(groups):
        others = [case for case, its in zip(cases, groups) if its != group]
        terms = linear_fit([case.shares for case in others], [case.work / case.published for case in others])
        rows += [row(case.configuration, case.published,
                     case.work / sum(share * terms.get(name, 0.0) for name, share in case.shares.items()), terms)
                 for case, its in zip(cases, groups) if its == group]
    return tuple(rows)


def linear_fit(shares: Sequence[Mapping[str, float]], times: Sequence[float]) -> dict[str, float]:
    """The terms that predict times as sums of terms times shares, with the least squares of relative errors.

    Terms are not negative: the one that would be most negative is left out, and the others are fitted again.
    """
    names = list(dict.fromkeys(name for of_one in shares for name in of_one))
    while True:
        rows = [[sum(a.get(i, 0.0) * a.get(k, 0.0) / t ** 2 for a, t in zip(shares, times)) for k in names]
                + [sum(a.get(i, 0.0) / t for a, t in zip(shares, times))] for i in names]
        solution = _solved(rows)
        if not names or min(solution) >= 0:
            return dict(zip(names, solution))
        names.pop(solution.index(min(solution)))


def _solved(rows: list[list[float]]) -> list[float]:
    """Gauss-Jordan elimination; a column without information gets 0."""
    size = len(rows)
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        if rows[i][i] == 0:
            continue
        for k in (k for k in range(size) if k != i):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    return [row[size] / row[i] if row[i] else 0.0 for i, row in enumerate(rows)]
