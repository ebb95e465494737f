"""Whether this build of Penstock is slower than another one: every workload, both builds and torch in turn. See README.md.

    run_all.py --against BUILD [--build BUILD] [--workloads A,B] [--no-torch] [--minutes N] [--write]

A BUILD is a folder with bin/penstock, such as build/release. Exit code 1 if a workload is slower.
"""
import argparse
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "vs-torch-pipelining"), str(HERE / "smollm2")]
import measure as smollm2
from figures import Ratio, ratio
from programs import Amount, Penstock, torch_pipeline
from workloads import USUAL, WORKLOADS, Workload

PAIRS = 5
LEAST_RATIO = 0.97  # of the speeds of this build and the other one
HEADING = "## The last table\n"
SMOLLM2_STEPS = 2
# Steps of each start, so that all take two to four seconds; the warm-up is of the same length for all.
STEPS = {"mlp-b128": 25, "mlp-b32": 50, "resnet50": 6, "gpt": 3}
WARM_UP = 2

Times = list[float]
#: Starts a program, by the folder of its cache, and returns the milliseconds of its steps.
Start = Callable[[str], Times]


@dataclass(frozen=True)
class Contest:
    """A workload, and how its programs are started."""

    title: str
    this: Start
    other: Start
    torch: Start | None


@dataclass(frozen=True)
class Round:
    """Pairs of one workload: for each, the median of this build's steps and of the other's, in ms."""

    this: Times
    other: Times

    @property
    def speed(self) -> Ratio:
        """Of this build, relative to the other, within each pair."""
        return ratio(self.other, self.this)

    @property
    def is_slower(self) -> bool:
        return self.speed.middle < LEAST_RATIO


def verdict(rounds: list[Round]) -> str:
    """'equal', 'slower' or 'unclear', if the rounds decide; 'again' if one more is needed.

    Unclear: both rounds are slower, but not every pair is. On a machine that others use, a build is so beside itself.
    """
    if not rounds[-1].is_slower:
        return "equal"
    if len(rounds) == 1:
        return "again"
    return "slower" if all(of.speed.high < 1 for of in rounds) else "unclear"


def take_round(contest: Contest) -> tuple[Round, Times]:
    """Pairs of starts, the order of which alternates, and with every second pair torch.

    The builds share their cache: a build that is compared with itself runs one choice of `auto`.
    """
    medians: dict[str, Times] = {"this": [], "other": [], "torch": []}
    with tempfile.TemporaryDirectory() as cache:
        for pair in range(PAIRS):
            starts = [("this", contest.this), ("other", contest.other)]
            for name, start in starts if pair % 2 == 0 else reversed(starts):
                medians[name].append(statistics.median(start(cache)))
            if contest.torch and pair % 2 == 0:
                medians["torch"].append(statistics.median(contest.torch(cache)))
    return Round(medians["this"], medians["other"]), medians["torch"]


def of_build(binary: Path, workload: Workload) -> Start:
    program = Penstock(str(binary), ()).step(workload, "auto")
    amount = Amount(STEPS[workload.name], WARM_UP)
    return lambda cache: program.run(amount, cache)[0].step_ms


def fastest_torch(workload: Workload, binary: Path, folder: Path) -> Start:
    """torch's best schedule by a few steps of each."""
    from compare import fastest_schedules

    start = folder / f"{workload.name}.safetensors"
    Penstock(str(binary), ()).save_start(workload, start)
    program = torch_pipeline(workload, start, fastest_schedules(workload, start, Amount(2, 1), 1))
    amount = Amount(max(3, STEPS[workload.name] // 2), WARM_UP)
    return lambda _: program.run(amount)[0].step_ms


def smollm2_contest(this: Path, other: Path, has_torch: bool) -> Contest:
    if not smollm2.MODEL.is_dir():
        raise FileNotFoundError(f"no {smollm2.MODEL}: tools/fetch_smollm2.py makes it")
    peer = [smollm2.PYTHON, "-W", "ignore", smollm2.__file__, "torch-pipeline", "--steps", SMOLLM2_STEPS]

    def of(binary: Path) -> Start:
        return lambda _: smollm2.times_of(smollm2.penstock_steps("threads", SMOLLM2_STEPS, "fp32", binary))

    return Contest("SmolLM2-135M, fine-tuning on 4 x 128 tokens, m = 4, 1f1b", of(this), of(other),
                   (lambda _: smollm2.times_of(peer)) if has_torch and smollm2.PYTHON.exists() else None)


def contest_of(name: str, this: Path, other: Path, folder: Path, has_torch: bool) -> Contest:
    """Throws FileNotFoundError, with the reason, if the workload cannot be run here."""
    if name == "smollm2":
        return smollm2_contest(this, other, has_torch)
    workload = WORKLOADS[name]
    return Contest(f"{workload.title}, batch {workload.batch_size}, m = {workload.micro_batches}",
                   of_build(this, workload), of_build(other, workload),
                   fastest_torch(workload, this, folder) if has_torch else None)


def row(title: str, rounds: list[Round], torch: Times, outcome: str) -> str:
    last = rounds[-1]
    beside = f"{statistics.median(torch):.1f} | {ratio(torch, rounds[0].this[::2])}" if torch else "- | -"
    return (f"| {title} | {statistics.median(last.this):.1f} | {statistics.median(last.other):.1f} | {last.speed} | "
            f"{beside} | {outcome}{', by the second round' if len(rounds) > 1 else ''} |")


def heading(this: Path, other: Path) -> str:
    def first_line(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, cwd=HERE)
        return done.stdout.strip().split("\n")[0]

    processor = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                      if line.startswith("model name")), "an unknown processor")
    commit = first_line("git", "describe", "--always", "--dirty")
    return (f"{processor}, {time.strftime('%Y-%m-%d')}, commit {commit}: `run_all.py --against {other.parents[1]}` "
            f"with `{this.parents[1]}`. Medians of {PAIRS} pairs; a ratio above 1 is for this build.\n\n"
            "| workload | this build, ms | the other, ms | the other / this | torch, ms | torch / this | |\n"
            "| --- | ---: | ---: | --- | ---: | --- | --- |")


def compare(flags: argparse.Namespace) -> tuple[list[str], bool]:
    """The lines of the table, and whether no workload is slower."""
    end = time.monotonic() + 60 * flags.minutes
    lines, good, longest = [], True, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name in flags.workloads:
            begin = time.monotonic()
            if begin + longest > end:
                lines.append(f"| {name} | | | | | | not measured: {flags.minutes:g} minutes are not enough |")
                continue
            try:
                contest = contest_of(name, flags.build, flags.against, Path(folder), flags.torch)
            except FileNotFoundError as error:
                lines.append(f"| {name} | | | | | | skipped: {error} |")
                continue
            first, torch = take_round(contest)
            rounds = [first]
            if verdict(rounds) == "again":
                print(f"{name}: {first.speed}, below {LEAST_RATIO}: once more", file=sys.stderr, flush=True)
                rounds.append(take_round(Contest(contest.title, contest.this, contest.other, None))[0])
            outcome = verdict(rounds)
            good = good and outcome != "slower"
            lines.append(row(contest.title, rounds, torch, outcome))
            print(lines[-1], file=sys.stderr, flush=True)
            longest = max(longest, time.monotonic() - begin)
    return lines, good


def parse() -> argparse.Namespace:
    known = [*USUAL, "smollm2"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--against", required=True, metavar="BUILD", help="the other build")
    parser.add_argument("--build", default=str(HERE.parent / "build" / "release"), metavar="BUILD", help="this build")
    parser.add_argument("--workloads", default=",".join(known), help=f"some of {','.join(known)} (default: all)")
    parser.add_argument("--no-torch", dest="torch", action="store_false", help="only the two builds")
    parser.add_argument("--minutes", type=float, default=20, help="workloads that would begin too late are left out")
    parser.add_argument("--write", action="store_true", help="the table into benchmarks/README.md")
    flags = parser.parse_args()
    flags.workloads = flags.workloads.split(",")
    for name in flags.workloads:
        if name not in known:
            parser.error(f"no workload {name}: there are {', '.join(known)}")
    flags.build, flags.against = (Path(build).resolve() / "bin" / "penstock" for build in (flags.build, flags.against))
    for binary in (flags.build, flags.against):
        if not binary.is_file():
            parser.error(f"there is no program {binary}: pass a folder with bin/penstock")
    flags.torch = flags.torch and importlib.util.find_spec("torch") is not None
    return flags


def main() -> int:
    flags = parse()
    lines, good = compare(flags)
    table = "\n".join([heading(flags.build, flags.against), *lines])
    print(table)
    if flags.write:
        page = HERE / "README.md"
        page.write_text(page.read_text().split(HEADING)[0] + f"{HEADING}\n{table}\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
