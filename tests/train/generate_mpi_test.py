"""Inference and generation as threads and as processes: equal numbers and texts on every process."""
import collections
import re
import subprocess
import sys

program, mpirun = sys.argv[1:3]
LAUNCH = [mpirun, "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"]


def lines_by_rank(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    lines = collections.defaultdict(list)
    for line in done.stdout.splitlines():
        rank, text = re.fullmatch(r"rank (\d+), (.*)", line).groups()
        lines[int(rank)].append(text)
    return lines


for stages, replicas, micro_batches in [(1, 1, 2), (2, 1, 2), (4, 1, 2), (2, 2, 3), (1, 3, 2)]:
    job = [program, str(stages), str(replicas), str(micro_batches)]
    threads = lines_by_rank(job)
    if list(threads) != [0] or len(threads[0]) != 9:
        sys.exit(f"{job}: unexpected output\n{threads}")
    if stages == 1 and replicas == 1:
        alone = threads[0]
    elif replicas == 1 and threads[0] != alone:
        sys.exit(f"{job}: another text than on one stage")
    processes = lines_by_rank(LAUNCH + ["-n", str(stages * replicas)] + job)
    if sorted(processes) != list(range(stages * replicas)):
        sys.exit(f"{job}: output of processes {sorted(processes)}")
    for rank, lines in processes.items():
        for own, expected in zip(lines, threads[0], strict=True):
            if rank // replicas < stages - 1 and own.split(":")[0] in ("share", "each"):
                first = (stages - 1) * replicas
                ranks = f"{first} to {first + replicas - 1}" if replicas > 1 else f"{first}"
                if f"nothing: the outputs are not on this process: the last stage is on rank {ranks}" not in own:
                    sys.exit(f"{job}, rank {rank}: {own}")
            elif own != expected:
                sys.exit(f"{job}, rank {rank} differs from threads:\n{own[:300]}\n{expected[:300]}")
    print(f"{stages} stages, {replicas} replicas, {micro_batches} micro-batches: equal on every process")
