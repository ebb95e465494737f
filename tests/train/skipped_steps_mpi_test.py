"""Batches with a NaN are left out by processes as by threads, and a training that returns to its checkpoints ends with the
bits of one that does without those batches.

    skipped_steps_mpi_test.py PROGRAM MPIRUN
"""

import subprocess
import sys
import tempfile

PROGRAM, MPIRUN = sys.argv[1:]


def lines(mode, ranks=None):
    start = [MPIRUN, "-n", str(ranks), "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run((start if ranks else []) + [PROGRAM, mode, folder + "/run"], capture_output=True,
                              text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    if mode == "rollback":
        for step in (0, 6):
            assert f"training has returned to the checkpoint of step {step}\n" in done.stderr, done.stderr
    return done.stdout.splitlines()


def steps(*numbers):
    return [f"step {number}" for number in numbers]


skipped = lines("skip")
assert skipped[:-1] == (steps(0) + ["step 1 left out, 1 so far"] + steps(2, 3, 4, 5,
                                                                         6) + ["step 7 left out, 2 so far"] +
                        steps(8, 9, 10, 11)), skipped
returned = lines("rollback")
assert returned[:-1] == (steps(0) + ["step 1 left out, 1 so far"] + steps(0, 2, 3, 4, 5, 6) +
                         ["step 7 left out, 2 so far"] + steps(6, 8, 9, 10, 11)), returned
assert returned[-1] == skipped[-1], "the final weights differ"
assert lines("skip", 2) == skipped, "two processes differ from two threads"
assert lines("rollback", 2) == returned, "two processes differ from two threads"
replicas = lines("rollback", 4)
assert replicas[:-1] == returned[:-1], replicas
assert replicas[-1] == lines("skip", 4)[-1], "the final weights differ"
