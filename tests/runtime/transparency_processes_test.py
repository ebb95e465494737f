"""The small job as threads and as processes: the same text.

usage: transparency_processes_test.py PROGRAM LAUNCHER [PROCESSES,...]     default: 2,3,4
"""
import subprocess
import sys

program, launcher = sys.argv[1:3]
sizes = [int(size) for size in (sys.argv[3:] or ["2,3,4"])[0].split(",")]
LAUNCH = [launcher, "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"]


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


for schedule, stages, replicas, micro_batches in [
    ("1f1b", 2, 1, 4), ("gpipe", 3, 1, 3), ("1f1b", 4, 1, 7), ("1f1b", 2, 2, 2), ("1f1b", 1, 3, 2),
]:
    if stages * replicas not in sizes:
        continue
    job = [program, "small", schedule, str(stages), str(replicas), str(micro_batches)]
    threads = output(job)
    processes = output(LAUNCH + ["-n", str(stages * replicas)] + job)
    if threads.count("loss ") != 5 or threads.count("\n") != 15:
        sys.exit(f"{job}: unexpected output\n{threads[:500]}")
    if threads != processes:
        sys.exit(f"{job}: threads and processes differ")
    print(f"{schedule}, {stages} stages, {replicas} replicas, {micro_batches} micro-batches: equal")

for stages, replicas in [(1, 2), (1, 3), (2, 2)]:
    if stages * replicas not in sizes:
        continue
    job = [program, "zero", str(stages), str(replicas)]
    threads = output(job)
    if threads.count("\n") != 2 or threads != output(LAUNCH + ["-n", str(stages * replicas)] + job):
        sys.exit(f"{job}: threads and processes differ\n{threads[:500]}")
    print(f"zero, {stages} stages, {replicas} replicas: equal")

if 2 in sizes:
    output(LAUNCH + ["-n", "2", program, "steady", "2"])
