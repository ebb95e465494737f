"""What is asked of the program: costs, plans, steps."""
import json
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from workloads import Workload

# A driver that is halted for a while, and continued, shall not find its ranks given up.
DEADLINE = ("--deadline", "36000")


@dataclass(frozen=True)
class Foretold:
    """A plan of one schedule, as the planner makes it from the costs."""
    plan_file: Path
    schedule: str
    chunks: int
    weight_gradients: str
    cut: str
    step_ms: float
    words: str  # all that the ranks obey: equal for plans that differ in nothing but the schedule's name


@dataclass(frozen=True)
class Amount:
    """Of a program that takes steps."""
    steps: int
    warm_up: int

    def flags(self) -> list[str]:
        return ["--steps", str(self.steps), "--warm-up", str(self.warm_up)]


class Penstock:
    def __init__(self, binary: str) -> None:
        self._binary = binary

    def profile(self, workload: Workload, costs: Path, steps: int) -> None:
        """Measures the layers, and writes what they cost to `costs`."""
        self._run("plan", "--profile", *workload.network_flags(), *workload.pipeline_flags(), *DEADLINE,
                  "--steps", str(steps), "--costs-file", str(costs))

    def foretell(self, costs: Path, plan_file: Path, schedule: str = "", weight_gradients: str = "auto") -> Foretold:
        """The fastest plan for `schedule`; for all schedules where none is given. Needs no measurement."""
        some = ["--schedules", schedule] if schedule else []
        told = json.loads(self._run("plan", "--costs", str(costs), *some, "--weight-gradients", weight_gradients,
                                    "--output", str(plan_file), "--json", "-"))
        chosen = told["chosen"]
        plan = json.loads(plan_file.read_text())
        words = [line for line in plan["schedule"] if not line.startswith("name ")]
        return Foretold(plan_file, chosen["schedule"], chosen["chunks"], chosen["weight_gradients"], chosen["cut"],
                        chosen["makespan"], json.dumps([words, plan["stages"]]))

    def plan_ms(self, workload: Workload, plan_file: Path, amount: Amount) -> float:
        """The median step of a pipeline that obeys the plan."""
        return self._step_ms(workload, ["--plan", str(plan_file)], amount)

    def control_ms(self, workload: Workload, amount: Amount) -> float:
        """The median step of a pipeline that owes nothing to any measured cost: it tells what the machine does."""
        words = ["--schedule", "gpipe", "--weight-gradients", "fused", "--cut", "parameters"]
        return self._step_ms(workload, [*workload.pipeline_flags(), *words], amount)

    def _step_ms(self, workload: Workload, flags: list[str], amount: Amount) -> float:
        told = json.loads(self._run("bench", "step", *workload.network_flags(), *flags, *DEADLINE, *amount.flags(),
                                    "--json", "-"))
        return statistics.median(told["step_ms"])

    def _run(self, *words: str) -> str:
        command = [self._binary, *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
        return done.stdout
