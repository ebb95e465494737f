"""The planner: which schedule, partition and number of micro-batches a step should have."""
from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

from penstock import _planning
from penstock._planning import Candidate, ConfigError, Plan

if TYPE_CHECKING:
    import pandas

Costs = Union[str, "os.PathLike[str]", Mapping[str, Any]]


class Candidates(tuple[Candidate, ...]):
    """What the planner tried: those that fit, the shortest step first; then the others."""

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each candidate."""
        return [{"schedule": one.schedule, "chunks": one.chunks, "micro_batches": one.micro_batches,
                 "weight_gradients": one.weight_gradients, "memory_limit": one.memory_limit, "fits": one.fits,
                 "makespan": one.makespan, "bubble": one.bubble, "most_bytes": max(one.memory_bytes)} for one in self]

    def to_pandas(self) -> "pandas.DataFrame":
        import pandas

        return pandas.DataFrame(self.rows())


class Planned:
    """What the planner chose (`best`), and what else it tried."""

    def __init__(self, planned: _planning.Planned) -> None:
        self._planned = planned
        self.candidates = Candidates(planned.candidates)

    @property
    def best(self) -> Plan:
        return self._planned.best

    @property
    def left_out(self) -> list[str]:
        """Schedules that could not be tried, and the reasons."""
        return self._planned.left_out

    @property
    def explanation(self) -> str:
        """One paragraph for people."""
        return self._planned.explanation

    def __str__(self) -> str:
        return str(self._planned)

    def _repr_svg_(self) -> str:
        return self.best.schedule.svg()


def plan(costs: Costs, *, ranks: Optional[int] = None, micro_batches: Sequence[int] = (), schedules: Sequence[str] = (),
         weight_gradients: str = "auto", memory_limit: Union[float, str, None] = None,
         target: Optional[str] = None) -> Planned:
    """Chooses the schedule with the shortest predicted step.

    Parameters
    ----------
    costs
        The costs of the layers: the path of a cost file (docs/cost_file.md), or its contents as a dictionary.
    ranks, micro_batches
        p, and the m's to try, in place of the file's.
    schedules
        Names of generators; without: all that train.
    weight_gradients
        'stream', 'fused', or 'auto': both are tried.
    memory_limit
        Of the activations per rank: 1.5 times 1F1B's, or bytes, as '512MiB'.
    target
        'torch': only what torch.distributed.pipelining executes, which has no W over several micro-batches.

    Raises
    ------
    DataError
        For a cost file that cannot be read; names the member and its possible values.
    ConfigError, ScheduleError
        If nothing can be planned, or nothing fits; names the smallest limit that would.
    """
    if target not in (None, "torch"):
        raise ConfigError(f"target = '{target}': pass 'torch', or nothing for Penstock")
    if target == "torch":
        if weight_gradients not in ("auto", "stream"):
            raise ConfigError(f"target = 'torch' with weight_gradients = '{weight_gradients}': torch has 'stream' only")
        weight_gradients = "stream"
    text = json.dumps(dict(costs)) if isinstance(costs, Mapping) else Path(costs).read_text()
    return Planned(_planning.plan(text, ranks, list(micro_batches), list(schedules), weight_gradients, memory_limit))
