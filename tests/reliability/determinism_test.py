#!/usr/bin/env python3
"""One job gives one SHA-256 of its weights, whatever the schedule, the partition, the transport and the machine's load.

Usage: determinism_test.py [--runs N] PENSTOCK DATA [MPIRUN]

Trains an MLP with dropout N times (12), each time in the next layout, while other programs load all cores for random
times. The long form is --runs 20 or more.
"""
import hashlib
import os
import subprocess
import sys

import training_runs
from training_runs import TrainingRuns, transports

RUNS = 12
JOB = ["--hidden", "48x5", "--dropout", "0.2", "--optimizer", "adamw", "--lr", "0.002", "--batch-size", "32",
       "--micro-batches", "6", "--steps", "40", "--seed", "3", "--log-every", "0"]
LAYOUTS = [["--stages", "1"], ["--stages", "2", "--schedule", "gpipe"], ["--stages", "3", "--schedule", "1f1b"],
           ["--stages", "2", "--schedule", "zb-v"], ["--stages", "4", "--schedule", "zb-h1", "--partition", "uniform"],
           ["--stages", "2", "--schedule", "interleaved", "--chunks", "2"]]

# Computes and sleeps in turns of random length.
LOAD = """
import random, time
while True:
    end = time.monotonic() + random.expovariate(100)
    while time.monotonic() < end:
        pass
    time.sleep(random.expovariate(200))
"""


class Determinism(TrainingRuns):
    def test_one_job_has_one_result(self):
        for _ in range(2 * os.cpu_count()):
            load = subprocess.Popen([sys.executable, "-c", LOAD])
            self.addCleanup(load.wait)
            self.addCleanup(load.kill)
        found = {}
        for number in range(RUNS):
            layout = LAYOUTS[number % len(LAYOUTS)]
            ways = transports("threads", "mpi")
            way = ways[(number // len(LAYOUTS)) % len(ways)] if layout[1] != "1" else "threads"
            ranks = int(layout[1]) if way == "mpi" else None
            weights = self.path("weights.safetensors")
            self.finished("train", "--data", self.data, *JOB, *layout, "--save-weights", weights, ranks=ranks).close()
            with open(weights, "rb") as file:
                found.setdefault(hashlib.sha256(file.read()).hexdigest(), []).append(" ".join([way, *layout]))
        self.assertEqual(len(found), 1, found)
        print(f"{RUNS} runs, SHA-256 {next(iter(found))}")


if __name__ == "__main__":
    RUNS, = training_runs.read_arguments(runs=RUNS)
    training_runs.main()
