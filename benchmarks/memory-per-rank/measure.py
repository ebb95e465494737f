#!/usr/bin/env python3
"""The memory of each rank that fine-tunes a language model, beside what it needs; and a model that does not fit.

    measure.py PENSTOCK MODEL ranks [--stages P,...] [--launcher mpirun|launch] [--steps N]
    measure.py PENSTOCK MODEL fit [--steps N]

PENSTOCK is the program, MODEL a Hugging Face directory of a Llama. To be run by a Python with torch and transformers.
Prints tables in Markdown. `fit` needs the right to make control groups of memory (version 1). Ends with 1 if a rank of
three takes more than BOUND of its need, or if `fit` does not fail and fit as it should.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEXT = HERE.parents[1] / "data" / "text" / "tinyshakespeare.txt"
BATCH, CONTEXT, MICRO_BATCHES, RATE = 4, 128, 4, 1e-5
BOUND = 1.15
MARK = "PENSTOCK_MEMORY_RUN"
RANKS = ("OMPI_COMM_WORLD_RANK", "RANK")
GROUPS = Path("/sys/fs/cgroup/memory")
MEGABYTE = 1e6


class Sampler:
    """Reads the memory of the processes of one run, some hundred times a second, in a thread of its own."""

    def __init__(self, mark, executable):
        self.mark, self.executable = f"{MARK}={mark}".encode(), executable
        self.known, self.peaks = {}, {}  # by process: an open file and the rank; by rank: the largest values
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.sample)
        self.thread.start()

    def stop(self):
        self.is_over.set()
        self.thread.join()
        return [self.peaks[rank] for rank in sorted(self.peaks)]

    def find(self):
        for process in os.listdir("/proc"):
            if not process.isdigit() or process in self.known:
                continue
            try:
                if not os.path.basename(os.readlink(f"/proc/{process}/exe")).startswith(self.executable):
                    continue
                variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                if self.mark not in variables:
                    continue
                ranks = [value.split(b"=")[1] for value in variables if value.split(b"=")[0].decode() in RANKS]
                self.known[process] = os.open(f"/proc/{process}/status", os.O_RDONLY), int(ranks[0]) if ranks else 0
            except (OSError, IndexError):
                pass  # it has ended

    def sample(self):
        look = 0
        while not self.is_over.is_set():
            if time.monotonic() > look:
                self.find()
                look = time.monotonic() + 0.1
            for file, rank in self.known.values():
                try:
                    text = os.pread(file, 8192, 0).decode()
                except OSError:
                    continue
                peak = self.peaks.setdefault(rank, {})
                for name, amount in re.findall(r"(RssAnon|RssShmem|VmHWM):\s+(\d+) kB", text):
                    peak[name] = max(peak.get(name, 0), int(amount) * 1024)
            time.sleep(0.002)


class Run:
    """A finished program: its output and the peaks of its ranks."""

    def __init__(self, command, executable="penstock-runtime", threads=1):
        mark = uuid.uuid4().hex
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **{MARK: mark})
        sampler = Sampler(mark, executable)
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        self.peaks = sampler.stop()
        self.code, self.output, self.errors, self.command = done.returncode, done.stdout, done.stderr, command

    def checked(self):
        if self.code != 0 or not self.peaks:
            sys.exit(f"{' '.join(map(str, self.command))}: exit {self.code}\n{self.errors}")
        return self

    def anonymous(self):
        return [peak["RssAnon"] for peak in self.peaks]


class Job:
    """The flags that all runs of a table share."""

    def __init__(self, flags, folder):
        self.program, self.model, self.steps, self.launcher = flags.program, flags.model, flags.steps, flags.launcher
        self.tokens, self.losses = Path(folder) / "text.tokens", Path(folder) / "losses.jsonl"
        Run([self.program, "tokenize", "--model", f"hf:{self.model}", "--output", self.tokens, TEXT])

    def launched(self, stages):
        if self.launcher == "launch":
            return [self.program, "launch", "-n", str(stages), "--"]
        return ["mpirun", "-n", str(stages), "--oversubscribe", "--bind-to", "none"]

    def run(self, stages, *command, group=None):
        inside = [sys.executable, __file__, "inside", group] if group else []
        return Run([*self.launched(stages), *inside, self.program, *command],
                   threads=max(1, os.cpu_count() // stages))

    def flags(self, stages):
        return ["--model", f"hf:{self.model}", "--stages", str(stages), "--schedule", "1f1b", "--context", str(CONTEXT),
                "--batch-size", str(BATCH), "--micro-batches", str(MICRO_BATCHES), "--optimizer", "adamw",
                "--lr", str(RATE)]

    def train(self, stages, group=None):
        self.losses.unlink(missing_ok=True)
        return self.run(stages, "train", *self.flags(stages), "--data", self.tokens, "--steps", str(self.steps),
                        "--json", self.losses, group=group)

    def losses_of_last(self):
        lines = [json.loads(line) for line in self.losses.read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line]

    def baseline(self, stages):
        """What a process takes that has loaded LibTorch and joined, and trains almost nothing."""
        return self.run(stages, "bench", "step", "--hidden", "1x3", "--stages", str(stages), "--batch-size", "4",
                        "--steps", "1", "--warm-up", "0").checked().anonymous()

    def activations(self, stages):
        """The most that the graph holds on each rank, and the line that says what else the rank needs."""
        run = self.run(stages, "bench", "step", *self.flags(stages), "--memory", "--steps", "2", "--warm-up", "1",
                       "--json", "-").checked()
        held = re.findall(r"rank \d+ (\d+) MB", run.errors)
        return json.loads(run.output)["activation_bytes_measured"], [int(amount) * MEGABYTE for amount in held]


def plain(job, trains):
    """The peak of a plain PyTorch process, which trains or only imports what it needs."""
    command = [sys.executable, __file__, "plain", job.model, str(job.steps if trains else 0), job.tokens]
    return Run(command, executable="python", threads=os.cpu_count()).checked()


def megabytes(amount):
    return f"{amount / MEGABYTE:.0f}"


def ranks_table(job, all_stages):
    worst = 0
    print("| p | rank | weights, gradients, AdamW | activations | peak | peak / need |\n| --- | --- | --- | --- | --- "
          "| --- |")
    for stages in all_stages:
        activations, states = job.activations(stages)
        without = job.baseline(stages)
        peaks = job.train(stages).checked().anonymous()
        for rank in range(stages):
            taken, need = peaks[rank] - without[rank], states[rank] + activations[rank]
            print(f"| {stages} | {rank} | {megabytes(states[rank])} | {megabytes(activations[rank])} | "
                  f"{megabytes(taken)} | {taken / need:.2f} |", flush=True)
            worst = max(worst, taken / need if stages == 3 else 0)
        print(f"p = {stages}: a process without a model takes {', '.join(map(megabytes, without))} MB", file=sys.stderr)
    taken = plain(job, True).anonymous()[0] - plain(job, False).anonymous()[0]
    print(f"\nPlain PyTorch (transformers): {megabytes(taken)} MB in one process.")
    return worst <= BOUND


def unreclaimable(run):
    """The peak of the fullest rank: what a control group counts and cannot take back without swap."""
    return max(peak["RssAnon"] + peak["RssShmem"] for peak in run.peaks)


def make_groups(limit, ranks):
    own = next(line.split(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines()
               if line.split(":")[1] == "memory")
    group = GROUPS / own.lstrip("/") / f"penstock-{uuid.uuid4().hex[:8]}"
    for rank in range(ranks):
        of_rank = group / str(rank)
        of_rank.mkdir(parents=True)
        (of_rank / "memory.limit_in_bytes").write_text(str(limit))
    return group


def remove_groups(group):
    for of_rank in [*group.glob("*/"), group]:
        of_rank.rmdir()


def in_groups(job, stages, limit):
    group = make_groups(limit, stages)
    try:
        return job.train(stages, group=str(group))
    finally:
        time.sleep(1)  # the kernel removes killed processes from their group a little later
        remove_groups(group)


def fits(job):
    alone, shared = job.train(1).checked(), job.train(3).checked()
    expected = job.losses_of_last()
    one, three = unreclaimable(alone), unreclaimable(shared)
    limit = (one + three) // 2 // 4096 * 4096
    print(f"Peaks: {megabytes(one)} MB with p = 1, {megabytes(three)} MB with p = 3; limit: {megabytes(limit)} MB for "
          f"each process.\n")
    failed = in_groups(job, 1, limit)
    print(f"p = 1: exit code {failed.code}\n{failed.errors.strip()}\n")
    trained = in_groups(job, 3, limit)
    same = trained.code == 0 and job.losses_of_last() == expected
    print(f"p = 3: exit code {trained.code}, the losses of {len(expected)} steps are "
          f"{'equal' if same else 'NOT EQUAL'} to those without a limit\n{trained.errors.strip()}")
    return failed.code != 0 and same


def run_inside(group, command):
    """Moves this process into its rank's group, and becomes the program."""
    rank = next(os.environ[name] for name in RANKS if name in os.environ)
    (Path(group) / rank / "cgroup.procs").write_text(str(os.getpid()))
    os.execv(command[0], command)


def train_plainly(model, steps, tokens):
    import torch
    import transformers
    if steps == 0:
        return
    # The tokens do not matter for memory: they are read as they are.
    numbers = torch.frombuffer(bytearray(Path(tokens).read_bytes()[-2 * BATCH * (CONTEXT + 1):]), dtype=torch.uint16)
    windows = numbers.to(torch.int64).view(BATCH, CONTEXT + 1)
    network = transformers.LlamaForCausalLM.from_pretrained(model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        for part in windows.chunk(MICRO_BATCHES):
            logits = network(part[:, :-1]).logits
            (torch.nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()) / MICRO_BATCHES).backward()
        optimizer.step()


def main():
    if sys.argv[1] == "inside":
        return run_inside(sys.argv[2], sys.argv[3:])
    if sys.argv[1] == "plain":
        return train_plainly(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    instructions = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    instructions.add_argument("program")
    instructions.add_argument("model")
    instructions.add_argument("what", choices=["ranks", "fit"])
    instructions.add_argument("--stages", default="1,2,3,4")
    instructions.add_argument("--launcher", default="mpirun", choices=["mpirun", "launch"])
    instructions.add_argument("--steps", type=int, default=4)
    flags = instructions.parse_args()
    flags.program = os.path.abspath(flags.program)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(flags, folder)
        if flags.what == "fit":
            sys.exit(0 if fits(job) else 1)
        sys.exit(0 if ranks_table(job, [int(p) for p in flags.stages.split(",")]) else 1)


if __name__ == "__main__":
    main()
