"""Batches of processes: equal ones give the results of threads; different ones are detected and named."""
import subprocess
import sys

program, launcher = sys.argv[1:3]
LAUNCH = [launcher, "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"]


def run(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def processes(case, stages, replicas, *more):
    return run(LAUNCH + ["-n", str(stages * replicas), program, case, str(stages), str(replicas), *more])


def fail(done, what):
    sys.exit(f"{what}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")


# Statistics are replica 0's in evaluation, and messages without headers carry the same bits.
for case in ["same", "norm", "boundary", "half"]:
    for replicas in [1, 3]:
        threads = run([program, case, "2", str(replicas)])
        done = processes(case, 2, replicas)
        if (case == "half") != ("skipped" in threads.stdout):
            fail(threads, f"{case}: updates left out")
        if threads.returncode or done.returncode or threads.stdout != done.stdout or "loss " not in done.stdout:
            fail(done, f"{case}, {replicas} replicas: threads and processes differ\n{threads.stdout}{threads.stderr}")

# Every process reports which two ranks differ, and in what.
for case, replicas, fragments in [
    ("targets", 1, ["training step 1", "the targets are Long [12] #", "on rank 0 and Long [12] #", "on rank 1"]),
    ("targets", 2, ["training step 1", "the targets are", "on rank 0 and", "on rank 1"]),
    ("inputs", 1, ["training step 1", "the rows of input 0 are Float [12, 6] #", "on rank 0 and Float", "on rank 1"]),
    ("inputs", 2, ["training step 1", "the rows of input 0 are Float [6, 6] #", "on rank 0 and Float", "on rank 2"]),
    ("size", 1, ["Long [12] #", "Long [11] #"]),
]:
    done = processes(case, 2, replicas)
    lines = [line for line in done.stderr.splitlines() if line.startswith("ConfigError: ")]
    if done.returncode != 2 or len(lines) != 2 * replicas or len(set(lines)) != 1 or "loss " in done.stdout:
        fail(done, f"{case}, {replicas} replicas: no ConfigError on every process")
    for fragment in fragments + ["seed what draws", "compare_batches = 0"]:
        if fragment not in lines[0]:
            sys.exit(f"'{fragment}' is not in: {lines[0]}")

# Steps 1 to 3 and every n-th are compared; 0 compares none.
for every, finds in [("100", False), ("2", True), ("0", False)]:
    done = processes("later", 2, 1, every)
    if (done.returncode == 2) != finds or ("training step 5" in done.stderr) != finds:
        fail(done, f"every {every}")
if processes("targets", 2, 1, "0").returncode != 0:
    sys.exit("compare_batches = 0 compares")
