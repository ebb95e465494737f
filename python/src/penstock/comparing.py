"""Several schedules side by side."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Union

from penstock import _planning
from penstock._planning import Schedule, Simulation, StageCosts
from penstock.schedules import Wave, schedule

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Comparison:
    """Schedules and their simulated steps, in the order in which they were given."""

    schedules: tuple[Schedule, ...]
    simulations: tuple[Simulation, ...]
    messages: tuple[int, ...]  # of all ranks in a step
    costs: Optional[StageCosts] = None

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each schedule."""
        return [{"schedule": one.name, "ranks": one.ranks, "chunks": max(one.chunks),
                 "micro_batches": one.micro_batches, "makespan": simulated.makespan, "bubble": simulated.bubble,
                 "peak_activations": max(simulated.peak_activations), "messages": messages}
                for one, simulated, messages in zip(self.schedules, self.simulations, self.messages)]

    def to_pandas(self) -> "pandas.DataFrame":
        import pandas

        return pandas.DataFrame(self.rows())

    def __str__(self) -> str:
        return _as_table(self.rows())

    def _repr_html_(self) -> str:
        pictures = "".join(f"<h4>{one.name}</h4>{one.svg(self.costs)}" for one in self.schedules)
        return f"<pre>{self}</pre>{pictures}"


def compare(sources: Sequence[Union[Schedule, str, Wave]], *, ranks: Optional[int] = None,
            micro_batches: Optional[int] = None, costs: Optional[StageCosts] = None) -> Comparison:
    """Simulates schedules with the same costs.

    Parameters
    ----------
    sources
        Schedules, or what `schedule` takes for the given `ranks` and `micro_batches`.

    Examples
    --------
    >>> print(compare(["gpipe", "1f1b", "zb-h1"], ranks=4, micro_batches=8))
    schedule  ranks  chunks  micro_batches  makespan  bubble  peak_activations  messages
    gpipe         4       1              8        33   27.3%               8.0        48
    1f1b          4       1              8        33   27.3%               4.0        48
    zb-h1         4       1              8        27   11.1%               4.0        48
    """
    made = []
    for source in sources:
        if not isinstance(source, Schedule):
            if micro_batches is None:
                raise _planning.ConfigError(f"compare {source!r} for how many micro-batches? Pass micro_batches=")
            source = schedule(source, ranks=ranks, micro_batches=micro_batches, costs=costs)
        made.append(source.check())
    return Comparison(tuple(made), tuple(one.simulate(costs) for one in made),
                      tuple(_planning.figures(one, costs)[1] for one in made), costs)


def _as_table(rows: list[dict[str, Any]]) -> str:
    def text(name: str, value: object) -> str:
        if name == "bubble":
            return f"{value:.1%}"
        if name == "peak_activations":
            return f"{value:.1f}"
        return f"{value:g}" if isinstance(value, float) else str(value)

    lines = [list(rows[0])] if rows else []
    lines += [[text(name, value) for name, value in row.items()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(line, widths))) for line in lines)
