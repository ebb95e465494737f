"""torch and Penstock with the same schedule, over workloads and numbers of micro-batches."""
import statistics
from dataclasses import dataclass
from pathlib import Path

from figures import drift
from programs import Amount, Penstock, Program, torch_pipeline
from workloads import WORKLOADS

GRID_WORKLOADS = ("mlp-b128", "resnet50", "gpt")
SCHEDULES = {"GPipe": "gpipe", "1F1B": "1f1b"}


@dataclass
class Point:
    workload: str
    micro_batches: int
    schedule: str
    torch_ms: list[float]
    penstock_ms: list[float]

    def ratio_of_medians(self) -> float:
        return statistics.median(self.torch_ms) / statistics.median(self.penstock_ms)

    def ratio_of_minima(self) -> float:
        return min(self.torch_ms) / min(self.penstock_ms)

    def row(self) -> str:
        torch_median, our_median = statistics.median(self.torch_ms), statistics.median(self.penstock_ms)
        return (f"| {self.workload} | {self.micro_batches} | {self.schedule} | {torch_median:.1f} | {our_median:.1f} | "
                f"{self.ratio_of_medians():.2f} | {self.ratio_of_minima():.2f} |")


HEADING = ("| workload | m | schedule | torch, median ms | Penstock, median ms | ratio of medians | of minima |\n"
           "| --- | --- | --- | --- | --- | --- | --- |")


def alternate(programs: tuple[Program, Program], rounds: int, amount: Amount) -> tuple[list[list[float]], float]:
    """Steps of each program, and how far their losses drift apart."""
    step_ms: list[list[float]] = [[], []]
    losses: list[list[float]] = [[], []]
    for _ in range(rounds):
        for which, program in enumerate(programs):
            (result,) = program.run(amount)
            if result.skipped:
                raise SystemExit(f"{program.name}: {result.skipped}")
            step_ms[which] += result.step_ms
            losses[which] = result.losses
    return step_ms, drift(losses[1], losses[0])


def run_grid(penstock: Penstock, folder: Path, names: list[str], counts: list[int], rounds: int,
             amount: Amount) -> bool:
    """Prints a row for each point as it is known. False where losses differ by more than the workload allows."""
    points: list[Point] = []
    good = True
    print(HEADING, flush=True)
    for name in names:
        start = folder / f"{name}.safetensors"
        penstock.save_start(WORKLOADS[name], start)
        for count in counts:
            workload = WORKLOADS[name].with_micro_batches(count)
            for torch_schedule, our_schedule in SCHEDULES.items():
                programs = (torch_pipeline(workload, start, [torch_schedule]), penstock.step(workload, our_schedule))
                (theirs, ours), difference = alternate(programs, rounds, amount)
                points.append(Point(name, count, our_schedule, theirs, ours))
                print(points[-1].row(), flush=True)
                if not difference <= workload.drift_tolerance:
                    good = False
                    print(f"losses drift by {difference:.1e}, more than {workload.drift_tolerance:.0e}", flush=True)
    medians = min(points, key=Point.ratio_of_medians)
    minima = min(points, key=Point.ratio_of_minima)
    print(f"\n{len(points)} points; smallest ratio of medians {medians.ratio_of_medians():.2f} ({medians.workload}, "
          f"m = {medians.micro_batches}, {medians.schedule}), of minima {minima.ratio_of_minima():.2f} "
          f"({minima.workload}, m = {minima.micro_batches}, {minima.schedule})")
    return good
