"""Costs of layers, measured as torch.distributed.pipelining computes them."""
from __future__ import annotations

import contextlib
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch.distributed.pipelining._backward import stage_backward, stage_backward_input, stage_backward_weight

from penstock._planning import ConfigError
from penstock.torch.decoders import layers as decoder_layers


def measure(blocks: torch.nn.Module | Iterable[torch.nn.Module], sample: torch.Tensor, *, samples: int,
            ranks: int = 2, repeats: int = 7, busy: int = 1, bytes_per_ms: float = 1e6, latency_ms: float = 0.02,
            overhead_ms: float = 0.0, optimizer_values: int = 2) -> dict[str, Any]:
    """Times forward, I, W and B of each layer in its place, and the bytes that it holds and passes on.

    The layers of a rank (of `ranks` equal parts) run one after the other, forward and then backward, so that each finds
    the caches as a stage leaves them. I, W and B are torch.distributed.pipelining's own functions. As in torch, the
    first stage has no I: its W is the whole backward pass. The result is a cost file (docs/cost_file.md) in ms. Its
    `spread` is that of the repeated times of a layer, over the root of the layers of a rank. Raises ConfigError for no
    blocks, for `samples` that `sample` does not divide, and for a model that is not a list of layers.

    Parameters
    ----------
    blocks
        The layers of the network in order, each of which takes the output of the one before; or a decoder of
        transformers, whose layers are its embedding, its blocks, and its last norm with the head.
    sample
        The input of one micro-batch.
    samples
        Of a whole step; m is this over the samples of `sample`.
    repeats
        Of each time, of which the median counts.
    busy
        Processes that compute at the same time: the ranks that share this machine, which slow each other down.
    bytes_per_ms, latency_ms
        Of a message between ranks.
    overhead_ms
        Of each F, B, I and W beside its layers: torch's runtime prepares it and posts its messages.
    optimizer_values
        Numbers that the optimiser keeps for each parameter: 2 for Adam.
    """
    is_decoder = isinstance(blocks, torch.nn.Module) and not isinstance(blocks, (torch.nn.Sequential,
                                                                                 torch.nn.ModuleList))
    modules = decoder_layers(blocks, sample) if is_decoder else list(blocks)  # type: ignore[arg-type]
    size = sample.shape[0]
    if not modules:
        raise ConfigError("measure no blocks: pass at least one")
    if samples % size != 0:
        raise ConfigError(f"samples = {samples}, but a micro-batch has {size}: pass a multiple of {size}")
    names = [f"block{i - is_decoder}" for i in range(len(modules))]
    if is_decoder:
        names[0], names[-1] = "embedding", "head"
    times: list[dict[str, list[float]]] = []
    rows: list[dict[str, Any]] = []
    x = sample
    for rank in range(ranks):
        chain = _Chain(modules[len(modules) * rank // ranks:len(modules) * (rank + 1) // ranks], x)
        with chain.gradients_kept(), _others(busy - 1, chain.run):
            chain.run()
            chain.forget_times()  # of a warm-up
            for _ in range(repeats):
                x = chain.run()
        rows += [_row(names[len(rows) + i], chain, i, optimizer_values) for i in range(len(chain.modules))]
        times += chain.times
    spread = statistics.median(max(map(_spread, of_layer.values())) for of_layer in times)
    return {"penstock_layer_costs": 1, "time_unit": "ms", "ranks": ranks, "samples": samples,
            "micro_batch_size": size, "link": {"bytes_per_unit": bytes_per_ms, "latency": latency_ms},
            "weight_share": 1, "word_overhead": overhead_ms, "first_stage_splits": False,
            "spread": min(1.0, spread / (len(modules) / ranks) ** 0.5), "layers": rows}


def _row(name: str, chain: _Chain, i: int, optimizer_values: int) -> dict[str, Any]:
    def size(trained: bool) -> int:
        return sum(p.numel() * p.element_size() for p in chain.modules[i].parameters() if p.requires_grad == trained)

    return {"name": name, **{key: statistics.median(values) for key, values in chain.times[i].items()},
            "activation_bytes": chain.held_bytes[i], "boundary_bytes": chain.boundary_bytes[i],
            "parameter_bytes": size(False) + size(True) * (2 + optimizer_values)}


def _spread(values: list[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / middle if middle > 0 else 0.0


class _Chain:
    """Layers that one rank computes, for one micro-batch, with the times of each in ms."""

    def __init__(self, modules: list[torch.nn.Module], sample: torch.Tensor) -> None:
        self.modules = modules
        self._sample = sample
        self.times: list[dict[str, list[float]]] = [{} for _ in modules]
        self.held_bytes = [0] * len(modules)
        self.boundary_bytes = [0] * len(modules)

    def forget_times(self) -> None:
        for times in self.times:
            times.clear()

    def run(self) -> torch.Tensor:
        """Forward and B; then forward, I of all layers, and W of all layers. Returns the output."""
        if not self.modules:
            return self._sample
        inputs, outputs, gradient = self._forward()
        for i in reversed(range(len(outputs))):
            (gradient,) = self._timed(i, "backward", self._backward(inputs[i], outputs[i], gradient))
        inputs, outputs, gradient = self._forward()
        requires_grad = outputs[-1].requires_grad
        weight_gradients: list[Callable[[], Any]] = []
        for i in reversed(range(len(outputs))):
            weights = list(self.modules[i].parameters())
            if inputs[i].requires_grad:
                split = partial(stage_backward_input, [outputs[i]], [gradient], [inputs[i]], iter(weights))
                (gradient,), groups = self._timed(i, "input_grad", split)
                weight_gradients.append(partial(stage_backward_weight, iter(weights), groups))
            else:  # the input of the network, or of what has no parameters before it: no I
                self.times[i].setdefault("input_grad", []).append(0.0)
                weight_gradients.append(self._backward(inputs[i], outputs[i], gradient))
        for i, work in zip(reversed(range(len(outputs))), weight_gradients):
            self._timed(i, "weight_grad", work)
        return outputs[-1].detach().requires_grad_(requires_grad)

    @staticmethod
    def _backward(x: torch.Tensor, output: torch.Tensor, gradient: Any) -> Callable[[], Any]:
        if not output.requires_grad:
            return lambda: (None,)
        return partial(stage_backward, (output,), (gradient,), (x,))

    def _forward(self) -> tuple[list[torch.Tensor], list[torch.Tensor], Any]:
        """The input and the output of each layer, and a gradient of the last output."""
        inputs, outputs = [], []
        x = self._sample
        for i, module in enumerate(self.modules):
            inputs.append(x.detach().requires_grad_(x.requires_grad))
            with self._counted(i, module):
                output = self._timed(i, "forward", lambda: module(inputs[-1]))
            x = output
            self.boundary_bytes[i] = output.numel() * output.element_size()
            outputs.append(output.clone() if output._is_view() else output)  # I detaches it, which a view refuses
        return inputs, outputs, torch.ones_like(outputs[-1])

    @contextlib.contextmanager
    def _counted(self, i: int, module: torch.nn.Module) -> Iterator[None]:
        """Counts the bytes that the graph keeps beside the parameters, in the first pass only: hooks take time."""
        if self.held_bytes[i] > 0:
            yield
            return
        own = {p.untyped_storage().data_ptr() for p in module.parameters()}
        kept: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield
        self.held_bytes[i] = sum(kept.values())

    def _timed(self, i: int, name: str, work: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = work()
        self.times[i].setdefault(name, []).append(1e3 * (time.perf_counter() - begin))
        return result

    @contextlib.contextmanager
    def gradients_kept(self) -> Iterator[None]:
        """Gives the parameters the gradients back that they had before."""
        before = [(p, p.grad) for module in self.modules for p in module.parameters()]
        for parameter, _ in before:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient in before:
                parameter.grad = gradient


@contextlib.contextmanager
def _others(count: int, work: Callable[[], Any]) -> Iterator[None]:
    """While it is open, `count` forked processes repeat `work`."""
    children, parent = [], os.getpid()
    for _ in range(count):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                while os.getppid() == parent:
                    work()
            os._exit(0)
        children.append(child)
    try:
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
