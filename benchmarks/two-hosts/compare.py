"""1F1B of Penstock and of torch.distributed.pipelining on two hosts, and the step that a plan predicts. See README.md.

    compare.py [--workloads A,B] [--rates R,S] [--rounds N] [--steps N] [--warm-up N] [--penstock PROGRAM]

Runs with a Python that imports torch.
"""
import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks" / "vs-torch-pipelining"), str(ROOT / "tests" / "reliability")]
from figures import drift
from two_hosts import TwoHosts, enter_own_network, why_not
from workloads import WORKLOADS, Workload

TORCH_RANK = ROOT / "benchmarks" / "vs-torch-pipelining" / "torch_rank.py"
BINARY = ROOT / "build" / "release" / "bin" / "penstock"


@dataclass
class Point:
    """All rounds of one workload at one rate."""
    workload: Workload
    rate: str
    predicted_ms: list[float] = field(default_factory=list)
    penstock_ms: list[list[float]] = field(default_factory=list)
    torch_ms: list[list[float]] = field(default_factory=list)
    drifts: list[float] = field(default_factory=list)

    def row(self) -> str:
        ours, theirs = ([statistics.median(steps) for steps in rounds] for rounds in (self.penstock_ms, self.torch_ms))
        errors = [1 - predicted / measured for predicted, measured in zip(self.predicted_ms, ours, strict=True)]
        ratios = [torch / penstock for torch, penstock in zip(theirs, ours, strict=True)]
        return (f"| {self.workload.name} | {self.rate} | {statistics.median(self.predicted_ms):.1f} | "
                f"{statistics.median(ours):.1f} | {statistics.median(errors):+.1%} ({min(errors):+.1%} to "
                f"{max(errors):+.1%}) | {statistics.median(theirs):.1f} | {statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f}) | {max(self.drifts):.1e} |")


HEADING = ("| workload | rate | predicted ms | Penstock ms | error | torch ms | torch / Penstock | losses drift by |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- |")


def run(hosts: TwoHosts, commands: list[list[str]]) -> str:
    """Runs a command on each host, and returns what they print."""
    with tempfile.TemporaryDirectory() as cache:
        return hosts.run(commands, {"XDG_CACHE_HOME": cache})


def result_in(text: str) -> dict:
    (line,) = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(line)


def measure(point: Point, hosts: TwoHosts, folder: Path, flags: argparse.Namespace) -> None:
    """One round: a profile with a plan, steps of the plan, steps of torch."""
    workload, amount = point.workload, ["--steps", str(flags.steps), "--warm-up", str(flags.warm_up)]
    plan, start, meeting = folder / "1f1b.plan", folder / "start.safetensors", folder / "meeting"
    penstock = [flags.penstock, "bench", "step", *workload.flags()]
    if not point.penstock_ms:
        subprocess.run([*penstock, "--steps", "1", "--warm-up", "0", "--save-start", str(start)], check=True,
                       capture_output=True)
    profile = [flags.penstock, "plan", "--profile", *workload.network, "--batch-size", str(workload.batch_size),
               "--micro-batches", str(workload.micro_batches), "--stages", "2", "--schedules", "1f1b", "--costs-file",
               str(folder / "costs"), "--output", str(plan)]
    run(hosts, [profile, profile])
    point.predicted_ms.append(json.loads(plan.read_text())["prediction"]["makespan"])
    without_m = [*workload.network, "--batch-size", str(workload.batch_size), "--lr", str(workload.learning_rate)]
    steps = [flags.penstock, "bench", "step", *without_m, "--plan", str(plan), *amount, "--json", "-"]
    ours = result_in(run(hosts, [steps, steps]))
    meeting.unlink(missing_ok=True)
    theirs = result_in(run(hosts, [[sys.executable, str(TORCH_RANK), workload.name, "--schedules", "1F1B",
                                    "--micro-batches", str(workload.micro_batches), "--start", str(start), *amount,
                                    "--rank", str(rank), "--meeting", str(meeting)] for rank in (0, 1)]))
    point.penstock_ms.append(ours["step_ms"])
    point.torch_ms.append(theirs["step_ms"])
    point.drifts.append(drift(ours["losses"], theirs["losses"]))
    link = json.loads((folder / "costs").read_text())["link"]
    print(f"  {workload.name}, {point.rate}: link {link['bytes_per_unit'] * 8e-3:.1f} Mbit/s, {link['latency']:.3f} ms;"
          f" predicted {point.predicted_ms[-1]:.1f}, Penstock {statistics.median(ours['step_ms']):.1f}, torch "
          f"{statistics.median(theirs['step_ms']):.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workloads", default="mlp-b128,gpt", help=f"some of {','.join(WORKLOADS)}")
    parser.add_argument("--rates", default="1gbit,100mbit", help="as tc writes them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--penstock", default=str(BINARY))
    flags = parser.parse_args()
    if reason := why_not():
        raise SystemExit(reason)
    points = [Point(WORKLOADS[name], rate) for name in flags.workloads.split(",") for rate in flags.rates.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        for point in points:
            with contextlib.closing(TwoHosts(point.rate)) as hosts:
                for _ in range(flags.rounds):
                    measure(point, hosts, Path(folder), flags)
    print("", HEADING, *(point.row() for point in points), sep="\n")


if __name__ == "__main__":
    enter_own_network()
    main()
