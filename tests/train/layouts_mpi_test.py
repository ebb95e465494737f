"""Samples along dimension 1, a whole input and hooks that receive outputs: processes and replicas equal threads.

    layouts_mpi_test.py PROGRAM MPIRUN
"""

import re
import subprocess
import sys


def lines(ranks=None):
    start = [sys.argv[2], "-n", str(ranks), "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"]
    done = subprocess.run((start if ranks else []) + [sys.argv[1]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def numbers(told):
    return [float(number) for line in told if not line.startswith("saw") for number in re.findall(r"\d+\.?\d*", line)]


def rows(told):
    return [line for line in told if line.startswith("saw")]


threads = lines()
assert len(threads) == 15, threads
assert lines(2) == threads, "two processes differ from two threads"
replicas = lines(4)
assert len(numbers(threads)) == len(numbers(replicas))
assert all(abs(a - b) < 1e-4 for a, b in zip(numbers(threads), numbers(replicas))), (threads, replicas)
assert rows(threads) == sorted(["saw 0 0 8", "saw 1 0 8", "saw 2 0 6"] * 2), rows(threads)
assert rows(replicas) == sorted(["saw 0 0 4", "saw 0 4 8", "saw 1 0 4", "saw 1 4 8", "saw 2 0 3", "saw 2 3 6"] * 2)
