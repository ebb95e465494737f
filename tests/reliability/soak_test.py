"""What a process takes does not grow: resident memory, open files, threads, files in shared memory.

Usage: soak_test.py SOAK_PROGRAM PENSTOCK DATA [MPIRUN] [--steps N] [--pipelines N]

A training takes N steps (default: 6,000) with a checkpoint every 50; one process makes N pipelines (default: 50), which
train, save and are destroyed. The long form is --steps 20000 --pipelines 500. The last tenth of the time is compared
with the second one; what belongs to one checkpoint or one epoch has a limit of its own.
"""
import contextlib
import os
import re
import statistics
import time

import training_runs
from training_runs import TrainingRuns, transports

PROGRAM, STEPS, PIPELINES = "", 6000, 50

# Of memory: 1 %. A short run has less time to reach its level.
GROWTH, GROWTH_OF_SHORT_RUN = 1.01, 1.03

STAGES = 2
# Threads that come and go in a training, and how many of each a process may have: what writes a checkpoint, one thread
# and one for each stage, and what reads ahead in an epoch, of which the next begins before the last has ended.
SHORT_LIVED = {"checkpoint": 1 + STAGES, "data": 2}

# Of the checkpoints: the lock, a directory, and the files of one: manifest, index and settings, and two for each stage.
FILES_OF_CHECKPOINTS = 5 + 2 * STAGES


def texts_of(paths, read):
    """What `read` returns for each of the paths that still exist."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield read(path)


def content_of(path):
    with open(path) as file:
        return file.read().strip()


def resources_of(process, checkpoints):
    """Resident KiB, open files, threads, mapped files in shared memory; then those that come and go: open and mapped
    files in the folder `checkpoints`, and the names of SHORT_LIVED threads."""
    folder = f"/proc/{process}"
    resident = int(content_of(f"{folder}/statm").split()[1]) * os.sysconf("SC_PAGESIZE") // 1024
    shared = [line for line in content_of(f"{folder}/maps").splitlines() if "vader" in line or "/dev/shm/" in line]
    mapped = [line for line in shared if checkpoints in line]
    files = list(texts_of((f"{folder}/fd/{name}" for name in os.listdir(f"{folder}/fd")), os.readlink))
    threads = list(texts_of((f"{folder}/task/{name}/comm" for name in os.listdir(f"{folder}/task")), content_of))
    opened = [file for file in files if file.startswith(checkpoints)]
    short_lived = [name for name in threads if name in SHORT_LIVED]
    return (resident, len(files) - len(opened), len(threads) - len(short_lived), len(shared) - len(mapped), opened,
            mapped, short_lived)


class Soak(TrainingRuns):
    def is_constant(self, what, samples, is_long):
        """`samples` of resources_of(), in their order."""
        self.assertGreater(len(samples), 20)
        tenth = len(samples) // 10
        memory = [sample[0] for sample in samples]
        before, after = max(memory[tenth:2 * tenth]), max(memory[-tenth:])
        print(f"{what}: resident {memory[0]} KiB at the begin, {before} after a tenth, {after} at the end "
              f"({100 * (after / before - 1):+.2f} %); files, threads, shared memory: {samples[tenth][1:4]}, "
              f"{samples[-1][1:4]}", flush=True)
        self.assertLessEqual(after, before * (GROWTH if is_long else GROWTH_OF_SHORT_RUN))
        for number, name in ((1, "open files"), (2, "threads"), (3, "shared memory")):
            # A thread has its name a moment after its begin, and the last sample may see the process end.
            counts = [sample[number] for sample in samples]
            self.assertLessEqual(statistics.median_low(counts[-tenth:]),
                                 statistics.median_low(counts[tenth:2 * tenth]), name)

    def test_a_long_training_takes_no_more(self):
        for ranks in transports(None, STAGES):
            with self.subTest(ranks=ranks):
                self.train(ranks)

    def train(self, ranks):
        run = self.start("train", "--data", self.data, "--hidden", "8", "--stages", STAGES, "--batch-size", "8",
                         "--micro-batches", "2", "--optimizer", "adam", "--steps", STEPS, "--log-every", "0",
                         "--checkpoint", self.fresh("run"), "--checkpoint-every", "50steps", ranks=ranks)
        samples, step, processes = {}, -1, {}
        while run.process.poll() is None:
            if run.durable() > step:
                step, processes = run.durable(), processes or run.ranks()
                for rank, process in processes.items():
                    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                        samples.setdefault(rank, []).append(resources_of(process, self.path("run")))
            time.sleep(0.02)
        self.assertEqual(run.wait(), 0, run.text())
        self.assertEqual(sorted(samples), list(range(ranks or 1)))
        for rank, of_rank in samples.items():
            for *_, opened, mapped, threads in of_rank:
                self.assertLessEqual(len(opened), FILES_OF_CHECKPOINTS, opened)
                self.assertLessEqual(len(mapped), FILES_OF_CHECKPOINTS, mapped)
                for name, limit in SHORT_LIVED.items():
                    self.assertLessEqual(threads.count(name), limit, name)
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
