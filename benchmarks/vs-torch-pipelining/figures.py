"""From the steps of several runs to a table: medians, minima, ratios and how much they differ between runs."""
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from workloads import Workload


@dataclass
class Runs:
    """All that one program did in one workload."""
    name: str
    sees_micro_batches: bool
    is_torch: bool
    step_ms: list[list[float]] = field(default_factory=list)  # of each run, its rounds together
    losses: list[float] = field(default_factory=list)         # of the first round
    settings: set[str] = field(default_factory=set)           # what it chose, in all rounds

    def medians(self) -> list[float]:
        return [statistics.median(steps) for steps in self.step_ms]

    def minima(self) -> list[float]:
        return [min(steps) for steps in self.step_ms]


@dataclass(frozen=True)
class Ratio:
    """Of times, one for each run."""
    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(slow: list[float], fast: list[float]) -> Ratio:
    each = [a / b for a, b in zip(slow, fast, strict=True)]
    return Ratio(statistics.median(each), min(each), max(each))


def best_torch(programs: list[Runs], figure: Callable[[Runs], list[float]]) -> list[float]:
    """The fastest of torch's schedules in each run."""
    return [min(times) for times in zip(*(figure(runs) for runs in programs if runs.is_torch), strict=True)]


def table(programs: list[Runs]) -> str:
    """As Markdown; a ratio above 1 is a program faster than torch's best schedule in the same run."""
    lines = ["| program | median ms | min ms | torch's best / it, medians | minima |",
             "| --- | --- | --- | --- | --- |"]
    torch_medians, torch_minima = best_torch(programs, Runs.medians), best_torch(programs, Runs.minima)
    for runs in sorted(programs, key=lambda runs: statistics.median(runs.medians())):
        lines.append(f"| {runs.name} | {statistics.median(runs.medians()):.1f} | {min(runs.minima()):.1f} | "
                     f"{ratio(torch_medians, runs.medians())} | {ratio(torch_minima, runs.minima())} |")
    return "\n".join(lines)


def first_difference(losses: list[float], reference: list[float]) -> float:
    """Of the first step, relative: the forward pass alone."""
    return abs(losses[0] - reference[0]) / abs(reference[0])


def drift(losses: list[float], reference: list[float]) -> float:
    """The largest difference of any step, as a share of what training moved the loss: gradients that are wrong by a
    factor show up as a number near 1, however slowly the loss moves. Infinite where a loss is not a number."""
    moved = max(abs(loss - reference[0]) for loss in reference)
    differences = [abs(a - b) for a, b in zip(losses, reference)]
    return max(x if x == x else float("inf") for x in differences) / moved if moved > 0 else float("inf")


def loss_lines(workload: Workload, programs: list[Runs], reference: Runs) -> tuple[list[str], bool]:
    """How far each curve is from the reference, for people, and whether all are near enough."""
    lines, good = [], True
    for runs in programs:
        if runs is reference:
            continue
        if workload.has_batch_norm and not runs.sees_micro_batches:
            lines.append(f"  {runs.name}: not compared, its BatchNorm sees the whole batch")
            continue
        first, whole = first_difference(runs.losses, reference.losses), drift(runs.losses, reference.losses)
        near = first <= workload.first_tolerance and whole <= workload.drift_tolerance
        good = good and near
        lines.append(f"  {runs.name}: first step {first:.1e}, drift over {len(runs.losses)} steps {whole:.1e}"
                     f"{'' if near else '  TOO FAR'}")
    return lines, good
