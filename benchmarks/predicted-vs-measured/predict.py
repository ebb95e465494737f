"""Steps as the planner foretells them, beside steps as they are, on this machine. See README.md.

    predict.py [--workloads A,B] [--penstock PROGRAM] [--schedules A,B] [--rounds N] [--quick] [--json FILE]
"""
import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.dont_write_bytecode = True
from figures import Point, Visit, bar_line, percent, signed, table, twins_line
from penstock import Amount, Penstock
from workloads import QUICK_SCHEDULES, SCHEDULES, WEIGHT_GRADIENTS, WORKLOADS, Workload

CHOICE_BAR = 0.03
BINARY = Path(__file__).resolve().parents[2] / "build" / "release" / "bin" / "penstock"


@dataclass
class Grid:
    """All that was found out about one workload."""
    workload: Workload
    controls_then: list[float] = field(default_factory=list)  # medians around the profile, ms
    points: list[Point] = field(default_factory=list)
    auto: Point | None = None
    duel: dict[str, list[float]] = field(default_factory=dict)  # of auto's choice and of the best point, turn about

    def control_then(self) -> float:
        return statistics.median(self.controls_then)


def with_controls(workload: Workload, penstock: Penstock, points: list[Point], amount: Amount) -> Iterator[Point]:
    """Each point once, a control before the first and after each."""
    before = penstock.control_ms(workload, amount)
    for point in points:
        step_ms = penstock.plan_ms(workload, point.foretold.plan_file, amount)
        after = penstock.control_ms(workload, amount)
        point.visits.append(Visit(step_ms, (before + after) / 2))
        before = after
        yield point


def profile(grid: Grid, penstock: Penstock, folder: Path, flags: argparse.Namespace) -> None:
    """The costs, and all plans that follow from them."""
    amount = Amount(flags.steps, flags.warm_up)
    costs = folder / f"{grid.workload.name}.costs"
    for _ in range(flags.profile_controls):
        grid.controls_then.append(penstock.control_ms(grid.workload, amount))
    penstock.profile(grid.workload, costs, flags.profile_steps)
    for _ in range(flags.profile_controls):
        grid.controls_then.append(penstock.control_ms(grid.workload, amount))
    for schedule in flags.schedules.split(","):
        for weights in WEIGHT_GRADIENTS:
            plan_file = folder / f"{grid.workload.name}.{schedule}.{weights}.plan"
            grid.points.append(Point(penstock.foretell(costs, plan_file, schedule, weights)))
    grid.auto = Point(penstock.foretell(costs, folder / f"{grid.workload.name}.auto.plan"))


def measure(grid: Grid, penstock: Penstock, flags: argparse.Namespace) -> None:
    """Every point in every round, forth and back in turn so that nobody always comes late."""
    amount = Amount(flags.steps, flags.warm_up)
    for round_number in range(flags.rounds):
        points = [*grid.points, grid.auto]
        if round_number % 2:
            points.reverse()
        for point in with_controls(grid.workload, penstock, points, amount):
            visit = point.visits[-1]
            role = "auto: " if point is grid.auto else ""
            print(f"  round {round_number}: {role}{point.name()}: foretold {point.foretold.step_ms:.1f}, "
                  f"measured {visit.step_ms:.1f} ms, control {visit.control_ms:.1f}", file=sys.stderr, flush=True)


def fight(grid: Grid, penstock: Penstock, flags: argparse.Namespace) -> None:
    """What auto chose against the best of the grid, turn about: the best of many noisy figures looks better than it is,
    and so both are measured afresh."""
    best = min(grid.points, key=Point.in_controls)
    if best.foretold.words == grid.auto.foretold.words:
        return
    amount = Amount(flags.steps, flags.warm_up)
    grid.duel = {"auto": [], best.name(): []}
    for _ in range(flags.turns):
        for name, point in (("auto", grid.auto), (best.name(), best)):
            grid.duel[name].append(penstock.plan_ms(grid.workload, point.foretold.plan_file, amount))


def auto_line(grid: Grid) -> str:
    chosen = f"auto chooses {grid.auto.name()}, v = {grid.auto.foretold.chunks}"
    if not grid.duel:
        return f"{chosen}: the same words as the best of the grid"
    (_, own), (name, best) = grid.duel.items()
    ratios = [a / b for a, b in zip(own, best, strict=True)]
    return (f"{chosen}: {signed(statistics.median(ratios) - 1)} beside the best of the grid, {name} (medians "
            f"{statistics.median(own):.1f} and {statistics.median(best):.1f} ms; by turns "
            f"{', '.join(signed(ratio - 1) for ratio in ratios)}; aim: at most {percent(CHOICE_BAR)})")


def report(grid: Grid) -> None:
    workload, then = grid.workload, grid.control_then()
    nows = [visit.control_ms for point in grid.points for visit in point.visits]
    print(f"\n## {workload.title}, batch {workload.batch_size}, m = {workload.micro_batches}\n")
    print(table(grid.points, then) + "\n")
    print(bar_line("as it is", {point.name(): point.error() for point in grid.points}))
    print(bar_line("scaled by the control", {point.name(): point.scaled_error(then) for point in grid.points}))
    print(f"the control took {then:.1f} ms around the profile, {min(nows):.1f} to {max(nows):.1f} ms around the points")
    print(twins_line(grid.points))
    print(auto_line(grid), flush=True)


def report_all(grids: list[Grid]) -> None:
    plain, scaled = {}, {}
    for grid in grids:
        for point in grid.points:
            name = f"{grid.workload.name} {point.name()}"
            plain[name], scaled[name] = point.error(), point.scaled_error(grid.control_then())
    print("\n## All workloads\n")
    print(bar_line("as it is", plain))
    print(bar_line("scaled by the control", scaled), flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workloads", help="some of " + ",".join(WORKLOADS), default=",".join(WORKLOADS))
    parser.add_argument("--penstock", default=str(BINARY), help="the program")
    parser.add_argument("--schedules", help="of the grid, each with weight gradients stream and fused")
    parser.add_argument("--rounds", type=int, default=3, help="visits of each point")
    parser.add_argument("--steps", type=int, default=20, help="timed steps of a visit")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before them")
    parser.add_argument("--profile-steps", type=int, default=4, help="of plan --profile, which has 4 of its own")
    parser.add_argument("--profile-controls", type=int, default=2, help="controls before the profile, and after it")
    parser.add_argument("--turns", type=int, default=5, help="of auto's choice and the best point against each other")
    parser.add_argument("--quick", action="store_true", help="few schedules and steps: whether it works, not how well")
    parser.add_argument("--json", help="write all that was measured to this file, as it comes")
    flags = parser.parse_args()
    if flags.quick:
        flags.rounds, flags.steps, flags.warm_up, flags.profile_controls, flags.turns = 1, 5, 2, 1, 1
    flags.schedules = flags.schedules or ",".join(QUICK_SCHEDULES if flags.quick else SCHEDULES)
    for kind, given, known in (("workload", flags.workloads, WORKLOADS), ("schedule", flags.schedules, SCHEDULES)):
        for name in given.split(","):
            if name not in known:
                parser.error(f"no {kind} {name}: there are {', '.join(known)}")
    return flags


def main() -> int:
    flags = parse()
    penstock = Penstock(flags.penstock)
    begin = time.monotonic()
    grids = []
    with tempfile.TemporaryDirectory() as folder:
        for name in flags.workloads.split(","):
            grid = Grid(WORKLOADS[name])
            grids.append(grid)
            profile(grid, penstock, Path(folder), flags)
            measure(grid, penstock, flags)
            fight(grid, penstock, flags)
            report(grid)
            if flags.json:
                Path(flags.json).write_text(json.dumps([asdict(each) for each in grids], default=str) + "\n")
    if len(grids) > 1:
        report_all(grids)
    print(f"\nin {(time.monotonic() - begin) / 60:.0f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
