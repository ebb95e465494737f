"""What a whole step adds to the times of its layers, fitted to measured steps."""
from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock import _planning
from penstock._planning import ConfigError, Fit, MeasuredStep
from penstock.planning import Source, read

Measured = str | os.PathLike[str] | Iterable[MeasuredStep | Mapping[str, Any]]


def fit(costs: Source | None, measured: Measured, *,
        terms: Sequence[str] = ("slowdown", "send_share", "per_step"), overlap: bool = False) -> Fit:
    """Fits the terms of a step to measured steps, and says how well: `penstock fit`.

    Raises DataError for rows that cannot be read, with the line, and ConfigError for unknown terms and without steps.

    Parameters
    ----------
    costs
        The costs of the layers, as for `plan`; None if all steps are MeasuredStep, which have costs of their own.
    measured
        The path of a CSV file with the columns schedule, ranks, micro_batches, measured (and chunks, partition,
        weight_gradients), or its rows as dictionaries, or MeasuredStep objects.
    terms
        Which terms may differ from 0: 'slowdown', 'send_share', 'per_step'.
    overlap
        Whether a rank began its next step when its own work was done, without a barrier.


    Examples
    --------
    >>> import penstock as ps
    >>> steps = [ps.MeasuredStep(ps.schedule("1f1b", ranks=2, micro_batches=m), ps.StageCosts(), 3.3 * (m + 1) + 2)
    ...          for m in (4, 8, 16)]
    >>> fitted = fit(None, steps, terms=["slowdown", "per_step"])
    >>> round(fitted.terms.slowdown, 3), round(fitted.terms.per_step, 3)
    (0.1, 2.0)
    """
    rows = [] if isinstance(measured, (str, os.PathLike)) else list(measured)
    steps = [row for row in rows if isinstance(row, MeasuredStep)]
    others = [row for row in rows if not isinstance(row, MeasuredStep)]
    if steps and others:
        raise ConfigError(f"{len(steps)} MeasuredSteps and {len(others)} dictionaries: pass one kind of both")
    if not steps:
        if costs is None:
            raise ConfigError("measured steps without costs: pass the costs of the layers, or MeasuredStep objects")
        text = Path(measured).read_text() if isinstance(measured, (str, os.PathLike)) else _table(others)
        steps = _planning.measured_steps(read(costs), text)
        for step in steps:
            step.overlaps = overlap
    return _planning.fit(steps, ",".join(terms))


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(column for row in rows for column in row)))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
