"""What a process takes does not grow: resident memory, open files, threads, files in shared memory.

Usage: soak_test.py SOAK_PROGRAM PENSTOCK DATA [MPIRUN] [--steps N] [--pipelines N]

A training takes N steps (default: 2,000) with a checkpoint every 50; one process makes N pipelines (default: 50), which
train, save and are destroyed. The long form is --steps 20000 --pipelines 500. The last tenth of the time is compared
with the second one.
"""
import contextlib
import os
import re
import time

import training_runs
from training_runs import TrainingRuns, transports

PROGRAM, STEPS, PIPELINES = "", 2000, 50

# Of memory: 1 %. A short run has less time to reach its level.
GROWTH, GROWTH_OF_SHORT_RUN = 1.01, 1.03


def resources_of(process):
    """Resident KiB, open files, threads, mapped files in shared memory."""
    with open(f"/proc/{process}/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024
    with open(f"/proc/{process}/maps") as file:
        shared = sum("vader" in line or "/dev/shm/" in line for line in file)
    return resident, len(os.listdir(f"/proc/{process}/fd")), len(os.listdir(f"/proc/{process}/task")), shared


class Soak(TrainingRuns):
    def is_constant(self, what, samples, is_long):
        """`samples` of resources_of(), in their order."""
        self.assertGreater(len(samples), 20)
        tenth = len(samples) // 10
        memory = [sample[0] for sample in samples]
        before, after = max(memory[tenth:2 * tenth]), max(memory[-tenth:])
        print(f"{what}: resident {memory[0]} KiB at the begin, {before} after a tenth, {after} at the end "
              f"({100 * (after / before - 1):+.2f} %); files, threads, shared memory: {samples[tenth][1:]}, "
              f"{samples[-1][1:]}", flush=True)
        self.assertLessEqual(after, before * (GROWTH if is_long else GROWTH_OF_SHORT_RUN))
        for number, name in ((1, "open files"), (2, "threads"), (3, "shared memory")):
            # The smallest, because a checkpoint that is being written has files and threads of its own.
            counts = [sample[number] for sample in samples]
            self.assertLessEqual(min(counts[-tenth:]), min(counts[tenth:2 * tenth]), name)

    def test_a_long_training_takes_no_more(self):
        for ranks in transports(None, 2):
            with self.subTest(ranks=ranks):
                self.train(ranks)

    def train(self, ranks):
        run = self.start("train", "--data", self.data, "--hidden", "8", "--stages", "2", "--batch-size", "8",
                         "--micro-batches", "2", "--optimizer", "adam", "--steps", STEPS, "--log-every", "0",
                         "--checkpoint", self.fresh("run"), "--checkpoint-every", "50steps", ranks=ranks)
        samples, step, processes = {}, -1, {}
        while run.process.poll() is None:
            if run.durable() > step:
                step, processes = run.durable(), processes or run.ranks()
                for rank, process in processes.items():
                    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                        samples.setdefault(rank, []).append(resources_of(process))
            time.sleep(0.02)
        self.assertEqual(run.wait(), 0, run.text())
        self.assertEqual(sorted(samples), list(range(ranks or 1)))
        for rank, of_rank in samples.items():
            self.is_constant(f"{STEPS} steps, {'rank ' + str(rank) if ranks else 'threads'}", of_rank, STEPS >= 20000)
        self.assertEqual(run.leftovers(), [])

    def test_many_pipelines_take_no_more(self):
        run = self.start(self.path("saves"), PIPELINES, program=PROGRAM)
        self.assertEqual(run.wait(1200), 0, run.text())
        samples = [tuple(map(int, line)) for line in
                   re.findall(r"resident (\d+) files (\d+) threads (\d+) shared (\d+)", run.output())]
        self.assertEqual(len(samples), PIPELINES)
        self.is_constant(f"{PIPELINES} pipelines", samples, PIPELINES >= 500)
        self.assertEqual(run.leftovers(), [])


if __name__ == "__main__":
    PROGRAM, STEPS, PIPELINES = training_runs.read_arguments("program", steps=STEPS, pipelines=PIPELINES)
    training_runs.main()
