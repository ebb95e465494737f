"""Processes that the program has joined itself: worlds of parts of them, side by side, have the bits of threads.

    joined_processes_test.py PROGRAM LAUNCHER mpi|store
"""

import subprocess
import sys

program, launcher, by = sys.argv[1:]


def run(*arguments):
    start = [launcher, "-n", "4", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"]
    return subprocess.run([*start, program, by, *arguments], capture_output=True, text=True, timeout=120)


done = run()
assert done.returncode == 0, done.stderr
assert done.stdout == "pairs and all: 0 bits differ\n", done.stdout

missing = run("missing")
assert missing.returncode != 0
who = "a process of the given communicator has not made this world" if by == "mpi" else "rank 1 has not joined"
assert "the world is incomplete after 0.5 s (the start deadline): " in missing.stderr, missing.stderr
assert who in missing.stderr, missing.stderr
