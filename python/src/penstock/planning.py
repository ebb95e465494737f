"""The planner: which schedule, partition and number of micro-batches a step should have."""
from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import _planning
from penstock._planning import Candidate, Plan, PlanConstraints, Schedule, StageCosts
from penstock.comparing import Rows, Tabular

shown = 12  # candidates in a notebook
Source = str | os.PathLike[str] | Mapping[str, Any]


class Candidates(tuple[Candidate, ...], Tabular):
    """What the planner tried: those that fit, the shortest step first; then the others."""

    def rows(self) -> Rows:
        """One dictionary for each candidate."""
        return Rows({"schedule": one.schedule, "ranks": one.ranks, "replicas": one.replicas, "chunks": one.chunks,
                     "micro_batches": one.micro_batches, "stages": one.stages, "devices": one.devices,
                     "recomputed": one.recomputed, "partition": one.partition_kind,
                     "weight_gradients": one.weight_gradients, "memory_limit": one.memory_limit, "fits": one.fits,
                     "makespan": one.makespan, "bubble": one.bubble, "most_bytes": max(one.memory_bytes)}
                    for one in self)


class Planned:
    """What the planner chose (`best`), and what else it tried."""

    def __init__(self, planned: _planning.Planned, costs: str, constraints: PlanConstraints) -> None:
        self._planned, self._costs, self._constraints = planned, costs, constraints
        self.candidates = Candidates(planned.candidates)
        self.best: Plan = planned.best
        self.left_out: list[str] = planned.left_out  #: schedules that could not be tried, and the reasons
        self.explanation: str = planned.explanation  #: one paragraph for people

    @property
    def stage_costs(self) -> StageCosts:
        """The costs of the stages of `best`, with which its schedule is simulated and drawn."""
        return _planning.stage_costs(self.best, self._costs, self._constraints)

    def __str__(self) -> str:
        return str(self._planned)

    def svg(self, *, critical_path: bool = False) -> str:
        """A picture of the best plan, with the times of its stages."""
        return self.best.schedule.svg(self.stage_costs, critical_path=critical_path)

    def html(self) -> str:
        """A page of the best plan with zoom, complete in itself."""
        return self.best.schedule.html(self.stage_costs)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        names = ("schedule", "ranks", "replicas", "chunks", "micro_batches", "weight_gradients", "makespan", "bubble")
        best = Rows({name: row[name] for name in names} for row in self.candidates.rows()[:shown])
        return f"<p>{html.escape(self.explanation)}</p>{best._repr_html_()}<div>{self.svg()}</div>"


@dataclass(frozen=True)
class Scaling(Tabular):
    """What more devices are worth: a plan for each number of devices, for the same samples per step."""

    points: tuple[_planning.ScalePoint, ...]

    def rows(self) -> Rows:
        """One dictionary for each number of devices."""
        return Rows({"devices": one.devices, "ranks": one.chosen.ranks, "replicas": one.chosen.replicas,
                     "schedule": one.chosen.schedule, "chunks": one.chosen.chunks,
                     "micro_batches": one.chosen.micro_batches, "step": one.step,
                     "samples_per_unit": one.samples_per_unit, "efficiency": one.efficiency} for one in self.points)

    def __str__(self) -> str:
        return _planning.scaling_table(list(self.points))


def read(source: Source) -> str:
    """The text of a file, or of a dictionary with its contents."""
    return json.dumps(dict(source)) if isinstance(source, Mapping) else Path(source).read_text()


def plan(costs: Source, *, ranks: int | Sequence[int] | None = None, micro_batches: Sequence[int] = (),
         schedules: Sequence[str | Schedule] = (), weight_gradients: str = "auto",
         memory_limit: float | str | None = None, target: str | None = None, cluster: Source | None = None,
         replicas: int | Sequence[int] | None = None, recompute: bool = False, overlap_reduction: bool = False,
         shard_optimizer: bool = False, time_limit: float | None = None) -> Planned:
    """Chooses the schedule with the shortest predicted step.

    Raises CostError for costs or a cluster that cannot be read, with the member and its possible values, and
    ConfigError or ScheduleError if nothing fits, with the smallest limit that would.

    Parameters
    ----------
    costs
        The costs of the layers: the path of a cost file (docs/cost_file.md), or its contents as a dictionary.
    ranks, micro_batches
        The p's and m's to try, in place of the file's.
    schedules
        Names of generators, and schedules; without: all generators that train.
    weight_gradients
        'stream', 'fused', or 'auto': both are tried.
    memory_limit
        Of the activations per rank: 1.5 times 1F1B's, or bytes, as '512MiB'.
    target
        'torch': only what torch.distributed.pipelining executes, which has no W over several micro-batches.
    cluster
        The devices and links (docs/cost_file.md), as a path or a dictionary. Then the planner chooses the ranks, the
        replicas and the devices as well, for the samples of the cost file in all.
    replicas
        With a cluster: the d's to try.
    recompute, overlap_reduction, shard_optimizer
        Whether blocks may be recomputed if memory is short; whether replicas sum gradients while their ranks compute;
        whether each replica has its share of the optimiser's state.
    time_limit
        Seconds after which the best plan so far is returned; without: 7 with a cluster, else none.
    """
    constraints = PlanConstraints(
        ranks=ranks, schedules=schedules, weight_gradients=weight_gradients, memory_limit=memory_limit, target=target,
        cluster=None if cluster is None else read(cluster), replicas=replicas, recompute=recompute,
        overlap_reduction=overlap_reduction, shard_optimizer=shard_optimizer, time_limit=time_limit)
    text = read(costs)
    return Planned(_planning.plan(text, micro_batches, constraints), text, constraints)


def scaling(costs: Source, cluster: Source, devices: Sequence[int], *, micro_batches: Sequence[int] = (),
            **options: Any) -> Scaling:
    """Plans for the first of a cluster's devices, once for each number in `devices`. `options` are those of plan().

    Raises ConfigError for more devices than the cluster has, and like plan().
    """
    constraints = PlanConstraints(cluster=read(cluster), **options)
    return Scaling(tuple(_planning.scaling_curve(read(costs), micro_batches, constraints, devices)))


def on_cluster(costs: StageCosts, schedule: Schedule, cluster: Source, *, message_bytes: float = 0.0,
               time_unit: str = "ms", replicas: int = 1, gradient_bytes: float = 0.0) -> StageCosts:
    """The costs of a schedule's stages on the first devices of a cluster, rank r with its replicas after rank r - 1.

    Raises ConfigError for a cluster with fewer devices than ranks.

    Parameters
    ----------
    costs
        Times on a device of speed 1, in `time_unit`.
    message_bytes, gradient_bytes
        The size of a value between two stages, and of a stage's gradients, which its replicas sum.
    """
    return _planning.placed_costs(costs, schedule, read(cluster), time_unit, message_bytes, replicas, gradient_bytes)
