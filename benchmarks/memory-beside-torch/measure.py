"""Activation bytes of a micro-batch, and peaks of processes, beside torch.distributed.pipelining. See README.md.

    measure.py [--workloads A,B]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "vs-torch-pipelining"
sys.path[:0] = [str(PEERS), str(HERE.parent / "smollm2")]
import measure as smollm2
from workloads import WORKLOADS

PENSTOCK = str(smollm2.PENSTOCK)
TORCH_NAMES = {"1f1b": "1F1B", "zb-v": "ZBVZeroBubble"}
IN_FLIGHT = {"1f1b": (2, 1)}  # micro-batches, by rank; of zb-v both ranks hold parts of several
STEPS = ["--steps", "2", "--warm-up", "1"]
MEGABYTE = 1e6


@dataclass(frozen=True)
class Finished:
    told: dict
    peak: int  # bytes, of the largest process


def run(*command: object) -> Finished:
    """Runs a program that prints a line of JSON."""
    words = [str(word) for word in command]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(words, stdout=output, stderr=errors, env={**os.environ, "OMP_NUM_THREADS": "1"})
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            sys.exit(f"{' '.join(words)}\nended with {process.returncode}:\n{errors.read()[-3000:]}")
        output.seek(0)
        told = json.loads(next(line for line in output if line.startswith(("{", "["))))
    return Finished(told if isinstance(told, dict) else {}, 1024 * usage.ru_maxrss)


def penstock(workload: str, schedule: str, *flags: str) -> Finished:
    streamed = ["--weight-gradients", "stream", *flags]
    if workload == "smollm2":
        return run(*smollm2.penstock_steps("threads", 2, "fp32"), *streamed)
    return run(PENSTOCK, "bench", "step", *WORKLOADS[workload].flags(), "--stages", 2, "--partition", "time",
               "--schedule", schedule, *streamed, *STEPS, "--json", "-")


def torch_pipeline(workload: str, schedule: str) -> list[int]:
    """The bytes that graphs hold at most, by rank."""
    if workload == "smollm2":
        return run(smollm2.PYTHON, "-W", "ignore", smollm2.__file__, "torch-pipeline", "--steps", 2,
                   "--memory").told["saved_bytes"]
    return run(sys.executable, "-W", "ignore", PEERS / "torch_rank.py", workload, "--schedules",
               TORCH_NAMES[schedule], *STEPS, "--memory").told["saved_bytes"]


def plain_loop(workload: str) -> int:
    if workload == "smollm2":
        return run(smollm2.PYTHON, "-W", "ignore", smollm2.__file__, "plain-loop", "--steps", 2).peak
    return run(sys.executable, PEERS / "plain_loop.py", workload, *STEPS).peak


def compared(peaks: list[int], schedule: str) -> float:
    """Of 1F1B the bytes of one micro-batch in the whole network; otherwise the sum of what the ranks hold."""
    counts = IN_FLIGHT.get(schedule, (1,) * len(peaks))
    return sum(peak / count for peak, count in zip(peaks, counts))


def figures(peaks: list[int], schedule: str) -> str:
    return f"{', '.join(f'{peak / MEGABYTE:.1f}' for peak in peaks)} | {compared(peaks, schedule) / MEGABYTE:.1f}"


def main() -> None:
    known = ["gpt", "resnet50", "mlp-b128", "smollm2"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workloads", default=",".join(known), help=f"some of {','.join(known)} (default: all)")
    flags = parser.parse_args()
    print("| workload | schedule | program | MB by rank | compared, MB | torch / it |\n"
          "| --- | --- | --- | --- | ---: | ---: |")
    peaks: dict[str, list[int]] = {}
    for workload in flags.workloads.split(","):
        for schedule in ["1f1b"] if workload == "smollm2" else ["1f1b", "zb-v"]:
            peer = torch_pipeline(workload, schedule)
            print(f"| {workload} | {schedule} | torch | {figures(peer, schedule)} | 1.00 |", flush=True)
            own = penstock(workload, schedule, "--memory").told["activation_bytes_measured"]
            print(f"| {workload} | {schedule} | Penstock | {figures(own, schedule)} | "
                  f"{compared(peer, schedule) / compared(own, schedule):.2f} |", flush=True)
        peaks[workload] = [penstock(workload, "1f1b").peak, plain_loop(workload)]
    print("\n| workload | Penstock, 2 threads, 1f1b: peak MB | plain loop: peak MB | ratio |\n"
          "| --- | ---: | ---: | ---: |")
    for workload, (own, plain) in peaks.items():
        print(f"| {workload} | {own / MEGABYTE:.0f} | {plain / MEGABYTE:.0f} | {own / plain:.2f} |")


if __name__ == "__main__":
    main()
