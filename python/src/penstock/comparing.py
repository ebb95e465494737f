"""Several schedules side by side."""
from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock import _planning
from penstock._planning import ConfigError, Schedule, Simulation, StageCosts
from penstock.schedules import Wave, schedule

if TYPE_CHECKING:
    import pandas

Source = Schedule | str | Wave
Row = dict[str, Any]


class Tabular:
    """What is shown as a table."""

    def rows(self) -> Rows:
        """One dictionary for each row of the table."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        import pandas

        return pandas.DataFrame(list(self.rows()))

    def _cells(self) -> list[list[str]]:
        rows = self.rows()
        return [list(row) for row in rows[:1]] + [[_text(name, value) for name, value in row.items()] for row in rows]

    def __str__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells)]
        return "\n".join("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                                   for i, (cell, width) in enumerate(zip(line, widths))) for line in cells)

    def _repr_html_(self) -> str:
        lines = ["".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line)
                 for tag, line in zip(["th"] + ["td"] * len(self.rows()), self._cells())]
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


class Rows(tuple[Row, ...], Tabular):
    """Rows of one table."""

    def rows(self) -> Rows:
        return self


def _text(name: str, value: object) -> str:
    form = {"bubble": ".1%", "peak_activations": ".1f"}.get(name, "g" if isinstance(value, float) else "")
    return "-" if value is None else f"{value:{form}}" if form else str(value)


@dataclass(frozen=True)
class Comparison(Tabular):
    """Schedules and their simulated steps, in the order in which they were given."""

    schedules: tuple[Schedule, ...]
    simulations: tuple[Simulation, ...]
    costs: tuple[StageCosts | None, ...]

    def rows(self) -> Rows:
        """One dictionary for each schedule."""
        return Rows(_row(*one) for one in zip(self.schedules, self.simulations, self.costs))

    def _repr_html_(self) -> str:
        pictures = "".join(f"<div>{one.svg(costs)}</div>" for one, costs in zip(self.schedules, self.costs))
        return super()._repr_html_() + pictures

    def html(self) -> str:
        """A page with the table and the pictures, complete in itself."""
        return f"<!doctype html><meta charset=\"utf-8\"><title>schedules</title>{self._repr_html_()}"


class Sweep(Rows):
    """A row for each schedule, shape and costs."""


def _row(made: Schedule, simulated: Simulation, costs: StageCosts | None) -> Row:
    return {"schedule": made.name, "ranks": made.ranks, "chunks": max(made.chunks), "micro_batches": made.micro_batches,
            "makespan": simulated.makespan, "bubble": simulated.bubble,
            "peak_activations": max(simulated.peak_activations), "messages": _planning.figures(made, costs)[1]}


def _made(source: Source, ranks: int | None, micro_batches: int | None, costs: StageCosts | None,
          costs_per: str) -> tuple[Schedule, Simulation, StageCosts | None]:
    if costs_per not in ("stage", "rank"):
        raise ConfigError(f"costs_per = '{costs_per}': pass 'stage' or 'rank'")
    if not isinstance(source, Schedule):
        if micro_batches is None:
            raise ConfigError(f"compare {source!r} for how many micro-batches? Pass micro_batches=")
        source = schedule(source, ranks=ranks, micro_batches=micro_batches,
                          costs=None if costs_per == "rank" else costs)
    if costs_per == "rank":
        costs = (costs or StageCosts()).divided(max(source.chunks))
    return source.check(), source.simulate(costs), costs


def compare(sources: Sequence[Source], *, ranks: int | None = None, micro_batches: int | None = None,
            costs: StageCosts | None = None, costs_per: str = "stage") -> Comparison:
    """Simulates schedules with the same costs.

    Parameters
    ----------
    sources
        Schedules, or what `schedule` takes for the given `ranks` and `micro_batches`.
    costs_per
        'stage': the costs are those of each stage; 'rank': of all v stages of a rank together, so that schedules of
        different v do the same work.

    Examples
    --------
    >>> print(compare(["gpipe", "1f1b", "zb-h1"], ranks=4, micro_batches=8))
    schedule  ranks  chunks  micro_batches  makespan  bubble  peak_activations  messages
    gpipe         4       1              8        33   27.3%               8.0        48
    1f1b          4       1              8        33   27.3%               4.0        48
    zb-h1         4       1              8        27   11.1%               4.0        48
    """
    made = [_made(source, ranks, micro_batches, costs, costs_per) for source in sources]
    return Comparison(*zip(*made)) if made else Comparison((), (), ())


def sweep(sources: Sequence[Source], *, ranks: Sequence[int], micro_batches: Sequence[int],
          costs: StageCosts | Mapping[str, StageCosts] | None = None, costs_per: str = "stage") -> Sweep:
    """Simulates schedules for all combinations of p, m and costs.

    Parameters
    ----------
    costs
        Costs, or several by name: each row then says which.

    Examples
    --------
    >>> print(sweep(["1f1b", "zb-h1"], ranks=[2, 4], micro_batches=[8]))
    schedule  ranks  chunks  micro_batches  makespan  bubble  peak_activations  messages
    1f1b          2       1              8        27   11.1%               2.0        16
    1f1b          4       1              8        33   27.3%               4.0        48
    zb-h1         2       1              8        25    4.0%               2.0        16
    zb-h1         4       1              8        27   11.1%               4.0        48
    """
    named: Iterable[tuple[str | None, StageCosts | None]] = (
        costs.items() if isinstance(costs, Mapping) else [(None, costs)])
    return Sweep(_row(*_made(source, p, m, given, costs_per)) | ({} if name is None else {"costs": name})
                 for source in sources for p in ranks for m in micro_batches for name, given in named)
