"""The programs that are compared, each a command that takes some steps and ends."""
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from steps import Result
from workloads import Workload

HERE = Path(__file__).resolve().parent
# How two ranks are started, by the transport between them.
LAUNCH = {
    "threads": [],
    "mpi": ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"],
    "gloo": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2"],
}
LONGEST_S = 1800
# Of a Penstock step, where it tells them: what its flags, or `auto`, came to.
SETTINGS = ("schedule", "chunks", "weight_gradients", "cut", "kernels")


@dataclass(frozen=True)
class Amount:
    steps: int
    warm_up: int

    def flags(self) -> list[str]:
        return ["--steps", str(self.steps), "--warm-up", str(self.warm_up)]


@dataclass(frozen=True)
class Program:
    name: str
    command: list[str]
    sees_micro_batches: bool = True  # so that BatchNorm's statistics are those of micro-batches
    is_torch: bool = False           # torch.distributed.pipelining
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, amount: Amount, cache: str | None = None) -> list[Result]:
        """A result for each line that the program prints. Ends the comparison where the program fails.

        Without `cache`, the folder of `auto`'s choices, `auto` measures and chooses in every run.
        """
        command = [*self.command, *amount.flags()]
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S,
                                  env={**os.environ, "XDG_CACHE_HOME": cache or empty, **self.environment})
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
        return [self._result(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]

    def _result(self, told: dict) -> Result:
        settings = {key: str(told[key]) for key in SETTINGS if key in told}
        return Result(told.get("name", self.name), told["step_ms"], told["losses"], told.get("skipped", ""), settings)


def torch_pipeline(workload: Workload, start: Path, schedules: list[str]) -> Program:
    command = [sys.executable, str(HERE / "torch_rank.py"), workload.name, "--schedules", ",".join(schedules),
               "--micro-batches", str(workload.micro_batches), "--start", str(start)]
    return Program(f"torch, {' '.join(schedules)}", command, is_torch=True)


def plain_loop(workload: Workload, start: Path, threads: int, micro_batches: int) -> Program:
    command = [sys.executable, str(HERE / "plain_loop.py"), workload.name, "--threads", str(threads),
               "--micro-batches", str(micro_batches), "--start", str(start)]
    name = f"plain loop, {threads} thread{'s' if threads > 1 else ''}, m = {micro_batches}"
    return Program(name, command, sees_micro_batches=micro_batches == workload.micro_batches)


@dataclass(frozen=True)
class Penstock:
    binary: str
    flags: tuple[str, ...]  # beyond the workload's and the schedule
    name: str = "Penstock"  # in tables

    def step(self, workload: Workload, schedule: str, transport: str = "threads") -> Program:
        command = [*LAUNCH[transport], self.binary, "bench", "step", *workload.flags(), "--stages", "2", "--schedule",
                   schedule, *self.flags, "--json", "-"]
        environment = {}
        if transport == "mpi" and os.geteuid() == 0:
            environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return Program(f"{self.name}, {transport}, {schedule}", command, environment=environment)

    def save_start(self, workload: Workload, file: Path) -> None:
        command = [self.binary, "bench", "step", *workload.flags(), "--save-start", str(file)]
        Program("start file", command).run(Amount(steps=1, warm_up=0))
