#!/usr/bin/env python3
"""Replicas: the share of a step spent on their gradients, and steps beside DistributedDataParallel.

    compare.py share PROGRAM... [--launch "mpirun -n 8 ..."] [--rounds N]    d = 4, p = 2, several builds interleaved
    compare.py ddp PROGRAM [--python PYTHON] [--rounds N]                    d = 4, p = 1, one host
    compare.py hosts PROGRAM... [--rate RATE] [--python PYTHON] [--rounds N] d = 2, p = 1, a host each

PROGRAM is a penstock, PYTHON one with torch. Prints tables in Markdown.
"""
import argparse
import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "reliability"))
from two_hosts import TwoHosts, enter_own_network, why_not

REPLICAS = 4
WIDTHS = [784] + 8 * [1024] + [10]
MLP = ["--hidden", "1024x8", "--batch-size", "128", "--threads", "1", "--json", "-"]
ONE_STAGE = ["--stages", "1", "--micro-batches", "1", "--steps", "10", "--warm-up", "2"]
DDP = str(Path(__file__).with_name("ddp.py"))
VARIANTS = {"": [], "--zero 1": ["--zero", "1"]}


def run(command, **how):
    done = subprocess.run(command, capture_output=True, text=True, **how)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done


def bench(program, flags, launch=()):
    """Median ms of a step, and the share of all ranks' time in REDUCE and NORM (column sync) and in STEP (update)."""
    done = run([*launch, program, "bench", "step", *MLP, "--replicas", str(REPLICAS), *flags])
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    lines = [line.split() for line in done.stderr.splitlines()]
    head = next(words for words in lines if words[:2] == ["rank", "stages"])
    shares = next([w for w in words if w != "%"] for words in lines if words[:1] == ["all"])
    of = dict(zip(head[2:], shares[-len(head[2:]):]))
    return result["median_ms"], float(of["sync"]), float(of["update"])


def volume(stages, zero):
    """Messages between replicas and MB that all ranks send in a step."""
    numbers = sum(a * b + b for a, b in zip(WIDTHS, WIDTHS[1:]))
    phases = 2  # parts of gradients to those who sum them; then sums, or with --zero 1 updated parameters
    return phases * stages * REPLICAS * (REPLICAS - 1), phases * (REPLICAS - 1) * numbers * 4 / 1e6


def share(arguments):
    launch = shlex.split(arguments.launch)
    flags = ["--stages", "2", "--micro-batches", "4", "--steps", "10", "--warm-up", "2"]
    found = {}
    for _ in range(arguments.rounds):
        for program in arguments.programs:
            for name, more in VARIANTS.items():
                if more and program != arguments.programs[-1]:
                    continue
                found.setdefault((program, name), []).append(bench(program, flags + more, launch))
    print("| program | ms | reduction, % | update, % | messages | MB |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    for (program, name), all_of in found.items():
        ms, sync, update = (statistics.median(each) for each in zip(*all_of))
        messages, megabytes = volume(2, name)
        print(f"| {program} {name} | {ms:.0f} | {sync:.1f} | {update:.1f} | {messages} | {megabytes:.0f} |")


def ddp(arguments):
    """Processes of torchrun have one thread of OpenMP, as ranks have."""
    torchrun = [arguments.python, "-m", "torch.distributed.run", "--nproc-per-node", str(REPLICAS)]
    mpirun = ["mpirun", "-n", str(REPLICAS), "--oversubscribe", "--bind-to", "none"]
    times = {"DistributedDataParallel, Gloo": [], "threads": [], "MPI": [], "Gloo": []}
    for _ in range(arguments.rounds):
        torch = run([*torchrun, DDP], env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout.split()
        times["DistributedDataParallel, Gloo"].append(float(torch[-1]))
        for name, launch in (("threads", ()), ("MPI", mpirun), ("Gloo", [*torchrun, "--no-python"])):
            times[name].append(bench(arguments.programs[0], ONE_STAGE, launch)[0])
    print_times(times)


def hosts(arguments):
    if reason := why_not():
        sys.exit(reason)
    times = {"DistributedDataParallel": [], **{program: [] for program in arguments.programs}}
    with contextlib.closing(TwoHosts(arguments.rate)) as both:
        for _ in range(arguments.rounds):
            said = both.run([[arguments.python, DDP]] * 2, {"OMP_NUM_THREADS": "1"})
            times["DistributedDataParallel"].append(float(said.split()[-1]))
            for program in arguments.programs:
                said = both.run([[program, "bench", "step", *MLP, "--replicas", "2", *ONE_STAGE]] * 2, {})
                result = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
                times[program].append(result["median_ms"])
    print_times(times)


def print_times(times):
    print("| program | ms per step |\n| --- | ---: |")
    for name, all_of in times.items():
        print(f"| {name} | {statistics.median(all_of):.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["share", "ddp", "hosts"])
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    parser.add_argument("--launch", default="")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rate", default="1gbit", help="of the wire, as tc writes it")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    {"share": share, "ddp": ddp, "hosts": hosts}[arguments.what](arguments)


if __name__ == "__main__":
    enter_own_network()
    main()
