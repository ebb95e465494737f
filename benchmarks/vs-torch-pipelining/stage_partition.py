"""Where a network is partitioned into stages: measured times of its units, balanced over the ranks."""
import itertools
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from models import Unit, mean_cross_entropy


def measure(units: list[Unit], inputs: Tensor, targets: Tensor, repeats: int = 5) -> list[float]:
    """Least seconds of forward and backward of each unit, for one micro-batch."""
    least = [float("inf")] * len(units)
    for _ in range(repeats):
        x = inputs
        values, outputs, seconds = [], [], []
        for unit in units:
            x = x.detach()
            if x.is_floating_point() and values:
                x.requires_grad_()
            values.append(x)
            begin = time.perf_counter()
            x = unit.module(x)
            seconds.append(time.perf_counter() - begin)
            outputs.append(x)
        loss = mean_cross_entropy(x, targets)
        (gradient,) = torch.autograd.grad(loss, x, retain_graph=True)
        for i in reversed(range(len(units))):
            begin = time.perf_counter()
            outputs[i].backward(gradient)
            seconds[i] += time.perf_counter() - begin
            gradient = values[i].grad
        least = [min(pair) for pair in zip(least, seconds)]
        for unit in units:
            unit.module.zero_grad()
    return least


def balanced(costs: list[float], rank_of_stage: Sequence[int]) -> list[int]:
    """First units of stages 1, 2, ...: the heaviest rank is lightest, and among such partitions the heaviest stage."""
    stages = len(rank_of_stage)

    def weights(partition: tuple[int, ...]) -> tuple[float, float]:
        bounds = [0, *partition, len(costs)]
        of_stage = [sum(costs[bounds[s]:bounds[s + 1]]) for s in range(stages)]
        of_rank = [0.0] * (max(rank_of_stage) + 1)
        for stage, rank in enumerate(rank_of_stage):
            of_rank[rank] += of_stage[stage]
        # A step takes about as long as the heaviest rank; a little of each stage is warm-up.
        return max(of_rank) + 0.1 * max(of_stage), max(of_stage)

    return list(min(itertools.combinations(range(1, len(costs)), stages - 1), key=weights))
