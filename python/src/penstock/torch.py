"""The bridge to torch.distributed.pipelining: measured costs, and schedules that torch executes. Needs torch."""
from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from penstock._planning import ConfigError, Plan, Schedule


class Costs(dict[str, Any]):
    """The contents of a cost file (docs/cost_file.md), in ms; `plan` takes it."""

    #: The relative spread of each layer's times: half of the range between the quartiles, over the median.
    spread: dict[str, float]


def measure(blocks: Union[torch.nn.Sequential, Iterable[torch.nn.Module]], sample: torch.Tensor, *, samples: int,
            ranks: int = 2, repeats: int = 7, bytes_per_ms: float = 1e6, latency_ms: float = 0.02,
            optimizer_values: int = 2) -> Costs:
    """Times forward, I, W and B of each block, and the bytes that it holds and passes on.

    Parameters
    ----------
    blocks
        The layers of the network in order; each takes the output of the one before.
    sample
        The input of one micro-batch.
    samples
        Of a whole step; m is this over the samples of `sample`.
    repeats
        Of each time, of which the median counts.
    bytes_per_ms, latency_ms
        Of a message between ranks.
    optimizer_values
        Numbers that the optimiser keeps for each parameter: 2 for Adam.

    Raises
    ------
    ConfigError
        For no blocks, and for `samples` that `sample` does not divide.
    """
    modules = list(blocks)
    size = sample.shape[0]
    if not modules:
        raise ConfigError("measure no blocks: pass at least one")
    if samples % size != 0:
        raise ConfigError(f"samples = {samples}, but a micro-batch has {size}: pass a multiple of {size}")
    layers, spread = [], {}
    x = sample
    for index, module in enumerate(modules):
        times, output, held = _times(module, x, repeats)
        name = f"block{index}"
        parameters = sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad)
        frozen = sum(p.numel() * p.element_size() for p in module.parameters() if not p.requires_grad)
        layers.append({"name": name, **{key: statistics.median(values) for key, values in times.items()},
                       "activation_bytes": held, "parameter_bytes": frozen + parameters * (2 + optimizer_values),
                       "boundary_bytes": output.numel() * output.element_size()})
        spread[name] = max(map(_spread, times.values()))
        x = output
    costs = Costs({"penstock_layer_costs": 1, "time_unit": "ms", "ranks": ranks, "samples": samples,
                   "micro_batch_size": size, "link": {"bytes_per_unit": bytes_per_ms, "latency": latency_ms},
                   "weight_share": 1, "layers": layers})
    costs.spread = spread
    return costs


def _spread(values: list[float]) -> float:
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / middle if middle > 0 else 0.0


def _times(module: torch.nn.Module, x: torch.Tensor,
           repeats: int) -> tuple[dict[str, list[float]], torch.Tensor, int]:
    """Times in ms, the output for one micro-batch, and the bytes that its graph keeps beside the parameters."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    times: dict[str, list[float]] = {"forward": [], "input_grad": [], "weight_grad": [], "backward": []}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = work()
        times[name].append(1e3 * (time.perf_counter() - begin))
        return result

    output = x
    for repeat in range(repeats + 1):
        if repeat == 1:  # the first is a warm-up
            for values in times.values():
                values.clear()
        given = x.detach()
        if given.is_floating_point():
            given.requires_grad_()
        inputs = [given] if given.requires_grad else []
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output = timed("forward", lambda: module(given))
        gradient = torch.ones_like(output)

        def backward(of: Sequence[torch.Tensor], retain: bool, result: torch.Tensor = output,
                     seed: torch.Tensor = gradient) -> Any:
            return torch.autograd.grad(result, of, seed, retain_graph=retain, allow_unused=True) if of else ()

        timed("input_grad", lambda: backward(inputs, True))
        timed("weight_grad", lambda: backward(parameters, True))
        timed("backward", lambda: backward([*inputs, *parameters], False))
    return times, output.detach(), sum(kept.values())


def runtime(source: Union[Plan, Schedule], stages: Sequence[Union[PipelineStage, torch.nn.Module]],
            loss_fn: Optional[Callable[..., torch.Tensor]] = None, *, rank: Optional[int] = None,
            device: Union[str, torch.device] = "cpu", **options: Any) -> _PipelineScheduleRuntime:
    """A loaded runtime of torch.distributed.pipelining that executes this rank's part of a schedule.

    Parameters
    ----------
    source
        The schedule, or the plan that contains it.
    stages
        This rank's stages: torch's own, or the modules of ALL stages in order, of which those of this rank are taken.
    loss_fn, options
        Of torch's runtime.
    rank
        Without: torch.distributed.get_rank().

    Raises
    ------
    ConfigError
        For another number of modules than the schedule has stages.
    ScheduleError
        For a schedule that torch cannot express.
    """
    made = source.schedule if isinstance(source, Plan) else source
    text = made.to_torch_csv()
    mine = torch.distributed.get_rank() if rank is None else rank
    own: list[PipelineStage] = [stage for stage in stages if isinstance(stage, PipelineStage)]
    if not own:
        modules = [stage for stage in stages if isinstance(stage, torch.nn.Module)]
        if len(modules) != made.stages:
            raise ConfigError(f"{len(modules)} modules for a schedule of {made.stages} stages: pass one for each stage")
        own = [PipelineStage(module, stage, made.stages, torch.device(device))
               for stage, module in enumerate(modules) if made.rank_of_stage[stage] == mine]
    loaded = _PipelineScheduleRuntime(own, made.micro_batches, loss_fn=loss_fn, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.csv"
        path.write_text(text, newline="")
        loaded._load_csv(str(path), format="compute_only")
    return loaded
