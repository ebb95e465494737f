"""Penstock beside torch.distributed.pipelining and a plain loop, on this machine. See README.md.

    compare.py [--workloads A,B] [--transports A,B] [--penstock PROGRAM] [--before PROGRAM] [--penstock-schedule S]
               [--penstock-flags "..."] [--quick]
    compare.py --grid [--workloads A,B] [--micro-batches M,N] [...]

Runs with a Python that imports torch. Exit code 1 where losses differ by more than they may.
"""
import argparse
import json
import shlex
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

sys.dont_write_bytecode = True
from figures import Runs, loss_lines, table
from grid import GRID_WORKLOADS, run_grid
from programs import HERE, LAUNCH, Amount, Penstock, Program, plain_loop, torch_pipeline
from workloads import USUAL, WORKLOADS, Workload

TORCH_SCHEDULES = ["GPipe", "1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"]
BINARY = HERE.parents[1] / "build" / "release" / "bin" / "penstock"


def amount_of(flags: argparse.Namespace) -> Amount:
    """What a program does each time that it is started."""
    return Amount(-(-flags.steps // flags.rounds), flags.warm_up)


def fastest_schedules(workload: Workload, start: Path, amount: Amount, keep: int) -> list[str]:
    """Of torch's, by a few steps of each; prints what they took."""
    medians: dict[str, float] = {}
    for result in torch_pipeline(workload, start, TORCH_SCHEDULES).run(amount):
        if result.skipped:
            print(f"  torch, {result.name}: skipped: {result.skipped}", flush=True)
        else:
            medians[result.name] = statistics.median(result.step_ms)
            print(f"  torch, {result.name}: {medians[result.name]:.1f} ms in a few steps", flush=True)
    return sorted(medians, key=medians.__getitem__)[:keep]


def programs_of(workload: Workload, start: Path, penstock: Penstock, flags: argparse.Namespace) -> list[Program]:
    chosen = fastest_schedules(workload, start, Amount(flags.probe_steps, flags.warm_up), flags.keep)
    count = workload.micro_batches
    builds = [penstock]
    if flags.before:
        builds.append(replace(penstock, binary=flags.before, name="Penstock before"))
    ours = [build.step(workload, flags.penstock_schedule, transport)
            for build in builds for transport in flags.transports]
    return [*ours, *(torch_pipeline(workload, start, [name]) for name in chosen),
            *(plain_loop(workload, start, threads, m) for threads in (2, 1) for m in (count, 1))]


def compare(workload: Workload, penstock: Penstock, folder: Path, flags: argparse.Namespace) -> tuple[list[Runs], bool]:
    print(f"\n## {workload.title}, batch {workload.batch_size}, m = {workload.micro_batches}\n", flush=True)
    start = folder / f"{workload.name}.safetensors"
    penstock.save_start(workload, start)
    programs = programs_of(workload, start, penstock, flags)
    all_runs = [Runs(program.name, program.sees_micro_batches, program.is_torch) for program in programs]
    amount = amount_of(flags)
    for _ in range(flags.runs):
        for runs in all_runs:
            runs.step_ms.append([])
        for _ in range(flags.rounds):
            for program, runs in zip(programs, all_runs, strict=True):
                (result,) = program.run(amount)
                runs.step_ms[-1] += result.step_ms
                runs.losses = runs.losses or result.losses
                if result.settings:
                    runs.settings.add(", ".join(f"{key} {value}" for key, value in result.settings.items()))
    print("\n" + table(all_runs) + "\n")
    for runs in all_runs:
        for settings in sorted(runs.settings):
            print(f"{runs.name}: {settings}")
    reference = next(runs for runs in all_runs if runs.name == f"plain loop, 1 thread, m = {workload.micro_batches}")
    lines, good = loss_lines(workload, all_runs, reference)
    print(f"losses beside those of '{reference.name}' (allowed: first step {workload.first_tolerance:.0e}, drift "
          f"{workload.drift_tolerance:.0e}):", *lines, sep="\n", flush=True)
    return all_runs, good


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workloads", help=f"some of {','.join(WORKLOADS)} (default: all but deep; grid: "
                                            f"{','.join(GRID_WORKLOADS)})")
    parser.add_argument("--penstock", default=str(BINARY), help="the program")
    parser.add_argument("--before", help="another build of the program, to be measured in the same run")
    parser.add_argument("--penstock-schedule", default="auto", help="of the comparison; the grid has its own two")
    parser.add_argument("--penstock-flags",
                        help="further flags of penstock bench step (default: none with --penstock-schedule auto, "
                             "otherwise --weight-gradients fused --partition time --kernels tuned)")
    parser.add_argument("--transports", default="threads,mpi", help=f"some of {','.join(LAUNCH)}; not of the grid, "
                                                                    "which has threads")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="repetitions of each program in a run (default: 2)")
    parser.add_argument("--steps", type=int, help="timed steps of each program in a run (default: 20; grid: 10)")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before them in each repetition")
    parser.add_argument("--probe-steps", type=int, default=6, help="timed steps to choose among torch's schedules")
    parser.add_argument("--keep", type=int, default=2, help="torch's schedules that stay after that")
    parser.add_argument("--grid", action="store_true", help="same schedules on both sides, 24 points")
    parser.add_argument("--micro-batches", default="2,4,8,16", help="of the grid")
    parser.add_argument("--quick", action="store_true", help="one run of few steps: whether it works, not how fast")
    parser.add_argument("--json", help="write all steps and losses to this file")
    flags = parser.parse_args()
    if flags.quick:
        flags.runs, flags.rounds, flags.steps, flags.warm_up, flags.probe_steps = 1, 1, 3, 2, 2
    flags.rounds = flags.rounds or 2
    flags.steps = flags.steps or (10 if flags.grid else 20)
    if flags.penstock_flags is None:
        tuned_by_itself = flags.penstock_schedule == "auto" and not flags.grid
        flags.penstock_flags = "" if tuned_by_itself else "--weight-gradients fused --partition time --kernels tuned"
    usual = GRID_WORKLOADS if flags.grid else USUAL
    flags.workloads = flags.workloads.split(",") if flags.workloads else list(usual)
    flags.transports = flags.transports.split(",")
    for what, names, known in (("workload", flags.workloads, WORKLOADS), ("transport", flags.transports, LAUNCH)):
        for name in names:
            if name not in known:
                parser.error(f"no {what} {name}: there are {', '.join(known)}")
    return flags


def main() -> int:
    flags = parse()
    penstock = Penstock(flags.penstock, tuple(shlex.split(flags.penstock_flags)))
    begin = time.monotonic()
    good = True
    raw: dict[str, list[dict]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if flags.grid:
            counts = [int(count) for count in flags.micro_batches.split(",")]
            good = run_grid(penstock, Path(folder), flags.workloads, counts, flags.rounds, amount_of(flags))
        else:
            for name in flags.workloads:
                runs, near = compare(WORKLOADS[name], penstock, Path(folder), flags)
                good = good and near
                raw[name] = [{**asdict(each), "settings": sorted(each.settings)} for each in runs]
    if flags.json:
        Path(flags.json).write_text(json.dumps(raw) + "\n")
    print(f"\nin {(time.monotonic() - begin) / 60:.0f} minutes")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
