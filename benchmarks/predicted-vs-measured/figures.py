"""From what was foretold and measured to errors and tables.

A visit is one start of the program for one point, between two starts of the control. The machine's speed changes
meanwhile, for reasons outside of it. The control, the same program every time, tells by how much: `drift` is what it
took around the visit, as a multiple of what it took around the profile. So there are two errors: of the step as it was
foretold, and of the step as it was foretold times the drift.
"""
import statistics
from collections import defaultdict
from dataclasses import dataclass, field

from penstock import Foretold

MEDIAN_BAR = 0.05
WORST_BAR = 0.10


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def signed(share: float) -> str:
    return f"{100 * share:+.1f} %"


@dataclass(frozen=True)
class Visit:
    step_ms: float     # the median step
    control_ms: float  # mean of the control's medians just before and just after


@dataclass
class Point:
    foretold: Foretold
    visits: list[Visit] = field(default_factory=list)

    def name(self) -> str:
        return f"{self.foretold.schedule} {self.foretold.weight_gradients}"

    def measured_ms(self) -> float:
        return statistics.median(visit.step_ms for visit in self.visits)

    def in_controls(self) -> float:
        """The step as a multiple of the control's: what points are compared by."""
        return statistics.median(visit.step_ms / visit.control_ms for visit in self.visits)

    def error(self) -> float:
        """Above 0 where the step is shorter than foretold."""
        return self.foretold.step_ms / self.measured_ms() - 1

    def scaled_error(self, control_then: float) -> float:
        """The same, with the step foretold for the machine as it is: `control_then` is the control's around the
        profile."""
        return self.foretold.step_ms / (self.in_controls() * control_then) - 1

    def row(self, control_then: float) -> str:
        told = self.foretold
        return (f"| {told.schedule} | {told.chunks} | {told.weight_gradients} | {told.cut} | {told.step_ms:.1f} | "
                f"{self.measured_ms():.1f} | {signed(self.error())} | "
                f"{signed(self.scaled_error(control_then))} |")


HEADING = ("| schedule | v | W | cut | foretold ms | measured ms | error | error, scaled by the control |\n"
           "| --- | ---: | --- | --- | ---: | ---: | ---: | ---: |")


def table(points: list[Point], control_then: float) -> str:
    """As Markdown, the fastest first."""
    return "\n".join([HEADING, *(point.row(control_then) for point in sorted(points, key=Point.in_controls))])


def bar_line(label: str, errors: dict[str, float]) -> str:
    """Both bars, and whether these errors keep them."""
    median = statistics.median(abs(error) for error in errors.values())
    name, worst = max(errors.items(), key=lambda item: abs(item[1]))

    def kept(value: float, bar: float) -> str:
        return f"{'kept' if value <= bar else 'MISSED'}, at most {percent(bar)}"

    return (f"error, {label}: median {percent(median)} ({kept(median, MEDIAN_BAR)}), worst {signed(worst)} of {name} "
            f"({kept(abs(worst), WORST_BAR)}), {len(errors)} points")


def twins_line(points: list[Point]) -> str:
    """Points of one list of words and one cut do the same: what their times differ by, no planner can foretell."""
    groups = defaultdict(list)
    for point in points:
        groups[point.foretold.words].append(point)
    twins = [group for group in groups.values() if len(group) > 1]
    if not twins:
        return "groups of twins: none"

    def spread(times: list[float]) -> float:
        return max(times) / min(times) - 1

    plain = max(spread([point.measured_ms() for point in group]) for group in twins)
    scaled = max(spread([point.in_controls() for point in group]) for group in twins)
    sizes = ", ".join(str(len(group)) for group in twins)
    return (f"groups of twins, by size: {sizes}; times in a group differ by up to {percent(plain)}, scaled by the "
            f"control by up to {percent(scaled)}")
