"""Grades schedules that students write."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from penstock._planning import Schedule, ScheduleError, StageCosts


@dataclass(frozen=True)
class Grade:
    """A schedule beside the expected one."""

    is_valid: bool
    error: str                      # of an invalid schedule
    is_equal: bool                  # every rank has the same order
    first_difference: Optional[tuple[int, int]]  # (rank, position): of the first wrong instruction
    bubble: Optional[float]         # none: invalid
    expected_bubble: float
    peak_activations: Optional[float]
    expected_peak_activations: float

    def __str__(self) -> str:
        if not self.is_valid:
            return f"invalid: {self.error}"
        text = (f"bubble {self.bubble:.1%} (expected {self.expected_bubble:.1%}), live activations "
                f"{self.peak_activations:g} (expected {self.expected_peak_activations:g})")
        if self.first_difference:
            rank, position = self.first_difference
            text += f"; the first difference is instruction {position} of rank {rank}"
        return text


def grade(given: Schedule, expected: Schedule, *, costs: Optional[StageCosts] = None) -> Grade:
    """Compares a schedule with the expected one: bubble, peak memory, and the first instruction that differs.

    Examples
    --------
    >>> from penstock import schedule
    >>> print(grade(schedule("gpipe", ranks=2, micro_batches=4), schedule("1f1b", ranks=2, micro_batches=4)))
    bubble 20.0% (expected 20.0%), live activations 4 (expected 2); the first difference is instruction 2 of rank 0
    """
    wanted = expected.check().simulate(costs)
    difference = None
    for rank, orders in enumerate(zip(given.orders, expected.orders)):
        if orders[0] != orders[1]:
            pairs = enumerate(zip(*orders))
            shorter = min(map(len, orders))
            difference = (rank, next((at for at, (mine, theirs) in pairs if mine != theirs), shorter))
            break
    if difference is None and given.ranks != expected.ranks:
        difference = (min(given.ranks, expected.ranks), 0)
    try:
        simulated = given.check().simulate(costs)
    except ScheduleError as error:
        place = None if error.rank is None or error.position is None else (error.rank, error.position)
        return Grade(False, str(error), False, place or difference, None, wanted.bubble, None,
                     max(wanted.peak_activations))
    return Grade(True, "", difference is None, difference, simulated.bubble, wanted.bubble,
                 max(simulated.peak_activations), max(wanted.peak_activations))
