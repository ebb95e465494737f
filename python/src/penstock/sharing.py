"""Predictions for ranks that share the cores of one machine."""
from __future__ import annotations

from collections.abc import Mapping
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

    def sums(key: str) -> list[float]:
        return [alone * (overhead + sum(layers[name][key] for name in stage)) for stage in plan.stages]

    times = {"F": sums("forward"), "I": sums("input_grad"), "W": sums("weight_grad"), "B": sums("backward")}
    if not costs.get("first_stage_splits", True):
        times["I"][0], times["W"][0] = alone * overhead, times["B"][0]
    link, owner, last = costs["link"], made.rank_of_stage, made.stages - 1

    def message(stage: int, other: int) -> float:
        """The time from an end on `other` to a start on `stage`."""
        if owner[stage] == owner[other]:
            return 0.0
        size = layers[plan.stages[min(stage, other)][-1]]["boundary_bytes"]
        return float(link["latency"] + (size / link["bytes_per_unit"] if link["bytes_per_unit"] else 0))

    orders = [[_parsed(text) for text in order] for order in made.orders]
    ends: dict[tuple[str, int, int], float] = {}

    def ready(operation: str, stage: int, i: int) -> float:
        """When the inputs are there; infinity if that is unknown yet."""
        if operation == "W":
            return 0.0  # after the I of the same rank
        if operation == "F":
            return 0.0 if stage == 0 else ends.get(("F", stage - 1, i), float("inf")) + message(stage, stage - 1)
        return 0.0 if stage == last else ends.get(("G", stage + 1, i), float("inf")) + message(stage, stage + 1)

    now, positions, left = 0.0, [0] * p, [-1.0] * p  # left: of the running instruction, or -1
    while any(position < len(order) for position, order in zip(positions, orders)):
        arrivals = []
        for rank, order in enumerate(orders):
            if left[rank] < 0 and positions[rank] < len(order):
                operation, stage, i = order[positions[rank]]
                at = ready(operation, stage, i)
                if at <= now:
                    left[rank] = times[operation][stage]
                else:
                    arrivals.append(at)
        running = [rank for rank in range(p) if left[rank] >= 0]
        speed = min(1.0, cores / len(running)) if running else 1.0
        step = min([left[rank] / speed for rank in running] + [at - now for at in arrivals])
        if step == float("inf"):
            raise ConfigError("this plan deadlocks: its instructions wait for each other")
        now += step
        for rank in running:
            left[rank] -= step * speed
            if left[rank] <= 1e-9:
                operation, stage, i = orders[rank][positions[rank]]
                ends["F" if operation == "F" else "W" if operation == "W" else "G", stage, i] = now
                positions[rank] += 1
                left[rank] = -1.0
    return now


def _parsed(text: str) -> tuple[str, int, int]:
    at = next(at for at, letter in enumerate(text) if letter.isalpha())
    return text[at], int(text[:at]), int(text[at + 1:])
