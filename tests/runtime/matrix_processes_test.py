"""Every schedule as threads and as processes: bitwise the same losses and parameters.

usage: matrix_processes_test.py PROGRAM LAUNCHER JOB [PROCESSES,...]     default: 2,3,4
"""
import subprocess
import sys

program, launcher, job = sys.argv[1:4]
sizes = (sys.argv[4:] or ["2,3,4"])[0].split(",")
LAUNCH = [launcher, "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"]


def lines(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout.splitlines()


def by_size(case_lines):
    """(micro-batches, precision, mode) -> the different results; a single one where all schedules agree."""
    results = {}
    for line in case_lines:
        name, result = line.split(":")
        words = name.split()
        key = (words[words.index("m") + 1], "bf16" if "bf16" in words else "fp32", words[-1])
        results.setdefault(key, set()).add(result)
    return results


alone = by_size(lines([program, job, "1"]))
cases = 0
for stages in sizes:
    processes = lines(LAUNCH + ["-n", stages, program, job, stages])
    for key, results in by_size(processes).items():
        if results != alone[key]:
            sys.exit(f"{stages} processes, m = {', '.join(key)}: {len(results)} different results, one rank gives "
                     f"{alone[key]}")
    cases += len(processes)
    print(f"{stages} processes: {len(processes)} cases equal one rank")
if cases < 20 * len(sizes):
    sys.exit(f"only {cases} cases were run")
