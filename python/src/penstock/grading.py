"""Grades schedules that students write."""
from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from penstock._planning import Schedule, ScheduleError, StageCosts


@dataclass(frozen=True)
class Grade:
    """A schedule beside the expected one. Of an invalid one there is an error, and neither bubble nor activations."""

    is_valid: bool
    error: str
    is_equal: bool                            # every rank has the same order
    first_difference: tuple[int, int] | None  # (rank, position): of the first wrong instruction
    bubble: float | None
    expected_bubble: float
    peak_activations: float | None
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


def grade(given: Schedule, expected: Schedule, *, costs: StageCosts | None = None) -> Grade:
    """Compares a schedule with the expected one: bubble, peak memory, and the first instruction that differs.

    Examples
    --------
    >>> from penstock import schedule
    >>> print(grade(schedule("gpipe", ranks=2, micro_batches=4), schedule("1f1b", ranks=2, micro_batches=4)))
    bubble 20.0% (expected 20.0%), live activations 4 (expected 2); the first difference is instruction 2 of rank 0
    """
    wanted = expected.check().simulate(costs)
    wanted_peak = max(wanted.peak_activations)
    orders = zip_longest(given.orders, expected.orders, fillvalue=[""])  # a rank that one of them lacks
    difference = next(((rank, at) for rank, both in enumerate(orders)
                       for at, (mine, theirs) in enumerate(zip_longest(*both)) if mine != theirs), None)
    try:
        simulated = given.check().simulate(costs)
    except ScheduleError as error:
        place = None if error.rank is None or error.position is None else (error.rank, error.position)
        return Grade(False, str(error), False, place or difference, None, wanted.bubble, None, wanted_peak)
    return Grade(True, "", difference is None, difference, simulated.bubble, wanted.bubble,
                 max(simulated.peak_activations), wanted_peak)
