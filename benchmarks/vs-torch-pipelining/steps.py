"""What a program of this comparison prints: one JSON object a line."""
import json
import time
from dataclasses import asdict, dataclass, field


@dataclass
class Result:
    name: str
    step_ms: list[float] = field(default_factory=list)  # of the steps that count
    losses: list[float] = field(default_factory=list)   # of all steps, from the first
    skipped: str = ""                                   # why there are none
    settings: dict[str, str] = field(default_factory=dict)  # what the program chose by itself
    saved_bytes: list[int] = field(default_factory=list)    # of each rank at most, if they were counted

    def print(self) -> None:
        print(json.dumps(asdict(self)), flush=True)


class StepClock:
    """Milliseconds between the ends of steps, without those of the warm-up."""

    def __init__(self, warm_up: int) -> None:
        self._warm_up = warm_up
        self._last = time.perf_counter()
        self.step_ms: list[float] = []

    def end_of_step(self, step: int) -> None:
        now = time.perf_counter()
        if step >= self._warm_up:
            self.step_ms.append(1e3 * (now - self._last))
        self._last = now
