#!/usr/bin/env python3
"""Runs the fuzzers of all parsers one after another, and prints a table of inputs, seconds and findings.

Usage: run_all.py BUILD [--inputs N] [--seconds S] [--only NAME,...] [--state DIR]

BUILD is the build folder of the preset `fuzz`. Each fuzzer runs until it has tried N inputs (10,000,000 by default) or
S seconds have passed (no limit by default), with at most 256 MiB of memory and 1 s for each input. DIR (by default
BUILD/fuzzing) keeps the inputs that reach new code and those that fail, so that a later call goes on where an earlier
one ended; its counts are added up. Ends with 1 if there are findings: DIR/NAME/found has them.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
DICTIONARIES = os.path.join(os.path.dirname(CORPUS), "dictionaries")
# Of the processor's time for one input.
SLOW_S = 1

# Each input is drawn with the same probability among those that reach new code: weights by the rarity of what an input
# reaches (entropic) take up to half of the time.
LIMITS = ["-rss_limit_mb=256", f"-timeout={SLOW_S}", "-print_final_stats=1", "-verbosity=0", "-entropic=0"]

# The longest input in bytes. Time grows with the length, and what a parser does can be reached by short files: a table
# with two rows, a job of two ranks. So it is the length of a file of the corpus that uses each part of its format once
# or twice, and half as much again; longer files of the corpus are cut here, and replayed whole by the tests. What only
# long files do, tests/reliability/bombs_test.py tries.
LONGEST = {"checkpoint": 400, "cifar10": 8, "config": 256, "idx": 160, "kernel_selection": 192,
           "layer_costs": 560,
           "manifest": 720, "plan": 700, "safetensors": 240, "schedule": 256, "stage_costs": 240, "token_file": 1040,
           "tokenizer": 1200, "torch_csv": 256,
           "trace": 2048, "tuning_record": 1200, "vocabulary": 128}

# Freed memory that the sanitizer keeps for a while counts as used. Inputs are small, so 4 MiB last for several of them.
# Stacks of allocations are not recorded: a finding is run once more to see them.
SANITIZER = {"ASAN_OPTIONS": "quarantine_size_mb=4:malloc_context_size=0:max_malloc_fill_size=0"}


def fuzzers(build):
    """The names of the fuzzers of a build."""
    return sorted(name.removeprefix("fuzz_") for name in os.listdir(os.path.join(build, "bin"))
                  if name.startswith("fuzz_"))


def is_slow(program, path):
    """Whether an input takes too much of the processor's time. The fuzzer's own limit counts that of other programs."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (SLOW_S, SLOW_S))

    return subprocess.run([program, "-timeout=0", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          env={**os.environ, **SANITIZER}, preexec_fn=limit).returncode != 0


def has_finding(program, found):
    """Whether a run that failed found something. Removes inputs that the fuzzer took for slow, and that are not."""
    names = os.listdir(found)
    for name in names:
        path = os.path.join(found, name)
        if name.startswith(("timeout-", "slow-unit-")) and not is_slow(program, path):
            os.remove(path)
    return not names or bool(os.listdir(found))


def run(build, name, folder, arguments):
    """Runs one fuzzer once. Returns the number of inputs, the seconds, and whether it found something."""
    reached, found = os.path.join(folder, "reached"), os.path.join(folder, "found", "")
    program = os.path.join(build, "bin", "fuzz_" + name)
    os.makedirs(reached, exist_ok=True)
    os.makedirs(found, exist_ok=True)
    dictionary = os.path.join(DICTIONARIES, name)
    if os.path.exists(dictionary):
        arguments = [*arguments, "-dict=" + dictionary]
    begin = time.monotonic()
    with open(os.path.join(folder, "log"), "ab") as log:
        done = subprocess.run([program, *LIMITS, f"-max_len={LONGEST[name]}", *arguments, "-artifact_prefix=" + found,
                               reached, os.path.join(CORPUS, name)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **SANITIZER})
        log.write(done.stderr)
    inputs = re.search(rb"number_of_executed_units:\s*(\d+)", done.stderr)
    failed = done.returncode != 0 and has_finding(program, found)
    return int(inputs[1]) if inputs else 0, time.monotonic() - begin, failed


def read_totals(state):
    try:
        with open(os.path.join(state, "totals.json")) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def write_totals(state, totals):
    path = os.path.join(state, "totals.json")
    with open(path + ".new", "w") as file:
        json.dump(totals, file, indent=1)
    os.rename(path + ".new", path)


def table(totals, names):
    rows = [f"{'parser':<18} {'inputs':>12} {'seconds':>8} {'findings':>8}"]
    for name in names:
        one = totals.get(name, {"inputs": 0, "seconds": 0, "findings": 0})
        rows.append(f"{name:<18} {one['inputs']:>12,} {one['seconds']:>8.0f} {one['findings']:>8}")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--state")
    wanted = parser.parse_args()
    state = wanted.state or os.path.join(wanted.build, "fuzzing")
    os.makedirs(state, exist_ok=True)
    names = [name for name in fuzzers(wanted.build) if not wanted.only or name in wanted.only.split(",")]
    totals = read_totals(state)
    # Short rounds over all of them, so that an interrupted run has tried each.
    round_inputs = max(1, wanted.inputs // 10)
    end = {name: wanted.seconds for name in names}
    unfinished = list(names)
    while unfinished:
        for name in list(unfinished):
            total = totals.setdefault(name, {"inputs": 0, "seconds": 0, "findings": 0})
            left = wanted.inputs - total["inputs"]
            if left <= 0 or (wanted.seconds and end[name] < 1):
                unfinished.remove(name)
                continue
            arguments = [f"-runs={min(left, round_inputs)}"]
            if wanted.seconds:
                arguments.append(f"-max_total_time={end[name]}")
            inputs, seconds, failed = run(wanted.build, name, os.path.join(state, name), arguments)
            end[name] -= max(1, round(seconds))
            total["inputs"] += inputs
            total["seconds"] += seconds
            total["findings"] += failed
            write_totals(state, totals)
            if failed or inputs == 0:
                unfinished.remove(name)
    print(table(totals, names))
    return 1 if any(totals[name]["findings"] for name in names if name in totals) else 0


if __name__ == "__main__":
    sys.exit(main())
