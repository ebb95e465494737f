"""Schedules and plans that torch.distributed.pipelining executes."""
from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from penstock._planning import ConfigError, Plan, Schedule, ScheduleError


def cut(plan: Plan, layers: Sequence[torch.nn.Module]) -> list[torch.nn.Module]:
    """The modules of all stages of a plan, from the layers that were measured.

    Raises ConfigError for another number of layers than the plan has, and for a plan that recomputes some.
    """
    if plan.recompute:
        raise ConfigError(f"the plan recomputes {', '.join(plan.recompute)}, which torch's stages do not do by "
                          "themselves: plan without recompute=True")
    planned = sum(map(len, plan.stages))
    if len(layers) != planned:
        raise ConfigError(f"{len(layers)} layers for a plan of {planned}: pass the layers that were measured, in order")
    rest = iter(layers)
    return [torch.nn.Sequential(*islice(rest, len(stage))) for stage in plan.stages]


def runtime(source: Plan | Schedule, stages: Sequence[PipelineStage | torch.nn.Module],
            loss_fn: Callable[..., torch.Tensor] | None = None, *, rank: int | None = None,
            device: str | torch.device = "cpu", **options: Any) -> _PipelineScheduleRuntime:
    """A loaded runtime of torch.distributed.pipelining that executes this rank's part of a schedule.

    Any number of stages per rank works, and any placement: torch takes it from the instructions.

    Raises ConfigError for other numbers of modules and processes than the schedule has stages and ranks, and for stages
    of different ranks that share a parameter, whose gradients torch does not sum; ScheduleError for a schedule that
    torch cannot express.

    Parameters
    ----------
    source
        The schedule, or the plan that contains it.
    stages
        This rank's stages: torch's own, or the modules of ALL stages in order, of which those of this rank are taken.
        For a plan also its layers, as they were measured.
    loss_fn, options
        Of torch's runtime. With replicas, `group` is the process group of this replica's pipeline.
    rank
        Without: torch.distributed.get_rank().
    """
    made = source.schedule if isinstance(source, Plan) else source
    text = made.to_torch_csv()
    group = options.pop("group", None)
    mine = torch.distributed.get_rank(group) if rank is None else rank
    own: list[PipelineStage] = [stage for stage in stages if isinstance(stage, PipelineStage)]
    if not own:
        modules = [stage for stage in stages if isinstance(stage, torch.nn.Module)]
        if isinstance(source, Plan) and len(modules) == sum(map(len, source.stages)):
            modules = cut(source, modules)
        if len(modules) != made.stages:
            raise ConfigError(f"{len(modules)} modules for a schedule of {made.stages} stages: pass one for each stage")
        _refuse_ties(made, modules)
        own = [PipelineStage(module, stage, made.stages, torch.device(device), group=group)
               for stage, module in enumerate(modules) if made.rank_of_stage[stage] == mine]
    if not own:
        raise ScheduleError(f"rank {mine} has no stage in a schedule of {made.ranks} ranks: start {made.ranks} "
                            "processes")
    if own[0].group_size != made.ranks:
        raise ConfigError(f"a schedule of {made.ranks} ranks in a process group of {own[0].group_size}: start "
                          f"{made.ranks} processes, or plan with ranks={own[0].group_size}")
    loaded = _PipelineScheduleRuntime(own, made.micro_batches, loss_fn=loss_fn, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.csv"
        path.write_text(text, newline="")
        loaded._load_csv(str(path), format="compute_only")
    return loaded


def _refuse_ties(made: Schedule, modules: Sequence[torch.nn.Module]) -> None:
    stage_of: dict[int, int] = {}
    for stage, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            other = stage_of.setdefault(id(parameter), stage)
            if made.rank_of_stage[other] != made.rank_of_stage[stage]:
                raise ConfigError(f"stage {stage} shares {name} with stage {other} of another rank, and torch does not "
                                  "sum its gradients: untie it (tie_word_embeddings=False), or give one rank both")
