"""Predictions for ranks that share the cores of one machine."""
from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import Any

from penstock._planning import ConfigError, Plan


def shared_makespan(plan: Plan, costs: Mapping[str, Any], *, cores: int, busy: int) -> float:
    """The step of a plan whose p ranks are processes on fewer cores.

    Of the ranks that have something to compute, each gets the same share of the cores; a rank that waits for a message
    uses none. Messages take no core.

    Parameters
    ----------
    costs
        What `penstock.torch.measure` returned, from which the plan was made.
    cores
        Of the machine.
    busy
        The processes that computed at the same time when `costs` were measured.
    """
    if cores < 1 or busy < 1:
        raise ConfigError(f"cores = {cores}, busy = {busy}: both are at least 1")
    made, p = plan.schedule, plan.schedule.ranks
    alone = min(1.0, cores / busy)  # of the measured time, what an instruction takes on a core of its own
    overhead = costs.get("word_overhead", 0.0)
    layers = {layer["name"]: layer for layer in costs["layers"]}
    times = {operation: [alone * (overhead + sum(layers[name][key] for name in stage)) for stage in plan.stages]
             for operation, key in (("F", "forward"), ("I", "input_grad"), ("W", "weight_grad"), ("B", "backward"))}
    if not costs.get("first_stage_splits", True):
        times["I"][0], times["W"][0] = alone * overhead, times["B"][0]
    link, owner = costs["link"], made.rank_of_stage
    orders = [[_parsed(text) for text in order] for order in made.orders]
    ends: dict[tuple[bool, int, int], float] = {}  # of F, and of the I or B whose gradient goes on

    def ready(operation: str, stage: int, i: int) -> float:
        """When the inputs are there; infinity if that is unknown yet."""
        other = stage - 1 if operation == "F" else stage + 1
        if operation == "W" or not 0 <= other < made.stages:
            return 0.0
        end = ends.get((operation == "F", other, i), inf)
        if owner[stage] == owner[other]:
            return end
        size = layers[plan.stages[min(stage, other)][-1]]["boundary_bytes"]
        return end + float(link["latency"] + (size / link["bytes_per_unit"] if link["bytes_per_unit"] else 0))

    now, positions, left = 0.0, [0] * p, [inf] * p  # left: of the running instruction, or inf
    while any(position < len(order) for position, order in zip(positions, orders)):
        arrivals = []
        for rank, order in enumerate(orders):
            if left[rank] == inf and positions[rank] < len(order):
                operation, stage, i = order[positions[rank]]
                if (at := ready(operation, stage, i)) <= now:
                    left[rank] = times[operation][stage]
                else:
                    arrivals.append(at)
        running = [rank for rank in range(p) if left[rank] < inf]
        speed = min(1.0, cores / max(1, len(running)))
        step = min([left[rank] / speed for rank in running] + [at - now for at in arrivals])
        if step == inf:
            raise ConfigError("this plan deadlocks: its instructions wait for each other")
        now += step
        for rank in running:
            left[rank] -= step * speed
            if left[rank] <= 1e-9:
                operation, stage, i = orders[rank][positions[rank]]
                if operation != "W":
                    ends[operation == "F", stage, i] = now
                positions[rank] += 1
                left[rank] = inf
    return now


def _parsed(text: str) -> tuple[str, int, int]:
    stage, operation, i = re.split("([FBIW])", text)
    return operation, int(stage), int(i)
