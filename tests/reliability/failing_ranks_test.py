"""A rank that dies or stalls at any place ends the whole job in time, is named, and leaves nothing behind; one that is
slow does not.

Usage: failing_ranks_test.py FAILING_RANK_PROGRAM FAULTY_CALLS PENSTOCK DATA [MPIRUN]
           [--places N] [--bound SECONDS] [--runs N] [--at-once N]

Every failure is tried at N random places (default: 1), with threads where only the thread fails, and as two processes
(and three, for more than one place); the long form is --places 100 --bound 2 --runs 1000 --at-once 3. The bound is the
time from the failure to the end of the last rank: after a death it is SECONDS, after a stall the deadline and
SECONDS. The default is long, because a machine that also has other work says nothing about times. N jobs run at once
(default: 1): a job mostly waits. N runs (default: 2) beside busy processes, stopped for half the deadline, must not end
early, and have the bits of an undisturbed one.
"""
import concurrent.futures
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import time

import training_runs
from training_runs import TrainingRuns, contents, of_mpi, processes_of_session, transports

PROGRAM = LIBRARY = ""
PLACES, BOUND_S, RUNS, AT_ONCE = 1, 30.0, 2, 1
DEADLINE_S = 3.0
LONGEST_S, POLL_S = 120, 0.02
DEATHS, STALLS = ["kill", "segv", "exit", "throw"], ["stop", "loop"]


def seconds_to_the_end(test, run, ranks, stalls):
    """Waits for the job of `ranks` processes; None: of threads. Returns the time from the failure to the end of its last
    rank. mpirun itself ends up to two seconds later."""
    until = time.monotonic() + LONGEST_S
    while ranks and not run.ranks() and run.process.poll() is None:
        time.sleep(POLL_S)
    while ranks and run.ranks() and time.monotonic() < until:
        time.sleep(POLL_S)
    if not ranks:
        run.wait(LONGEST_S)
    end = time.monotonic()
    code = run.wait(LONGEST_S)
    while processes_of_session(run.process.pid) and time.monotonic() < end + LONGEST_S:
        time.sleep(POLL_S)
    failed = re.search(r"fails at (\d+)", run.errors())
    test.assertTrue(failed, run.text())
    seconds = end - int(failed[1]) / 1e9
    test.assertLess(seconds, BOUND_S + (DEADLINE_S if stalls else 0), run.text())
    test.assertNotEqual(code, 0, run.text())
    test.assertEqual(run.leftovers(), [], run.text())
    return seconds


def try_all(test, attempt, cases):
    """The longest of the times that `attempt` returns for each case, some of them at once; problems fail the test, each
    with its case."""
    loops = any("loop" in case for case in cases)  # such a job takes a core
    with concurrent.futures.ThreadPoolExecutor(min(AT_ONCE, os.cpu_count()) if loops else AT_ONCE) as pool:
        attempts = [(case, pool.submit(attempt, *case)) for case in cases]
    longest = 0
    for case, tried in attempts:
        if problem := tried.exception():
            print(f"{case}: {problem}", flush=True)  # the others may take an hour
        with test.subTest(case=case):
            longest = max(longest, tried.result())
    return longest


class FailingRanks(TrainingRuns):
    def job(self, failure, rank, place, ranks, threads=2):
        return self.start(failure, rank, place, ranks or threads, DEADLINE_S, ranks=ranks, program=PROGRAM)

    def places_of(self, ranks):
        """How many places every rank has."""
        run = self.job("none", 0, 0, ranks)
        self.assertEqual(run.wait(), 0, run.text())
        return int(re.search(r"(\d+) places", run.output())[1])

    def test_a_rank_that_fails_ends_all(self):
        draw = random.Random(1)
        for ranks in transports(None, 2) if PLACES == 1 else transports(None, 2, 3):
            count = self.places_of(ranks)
            self.assertGreater(count, 100)
            for failure in ["throw", "loop"] if ranks is None else DEATHS + STALLS:
                longest = try_all(self, self.try_place, [
                    (failure, draw.randrange(ranks or 2), draw.randint(1, count), ranks) for _ in range(PLACES)])
                print(f"{ranks or 'threads'}: {failure} at {PLACES} places: all gone within {longest:.2f} s",
                      flush=True)

    def try_place(self, failure, rank, place, ranks):
        run = self.job(failure, rank, place, ranks)
        seconds = seconds_to_the_end(self, run, ranks, failure in STALLS)
        self.is_named(run, failure, rank, ranks)
        run.close()
        return seconds

    def is_named(self, run, failure, rank, ranks):
        said = re.findall(r"^said: (.*)$", run.errors(), re.MULTILINE)
        instruction = rf"{rank}(F|B|STEP)\d*"
        if failure == "throw":
            self.assertRegex(said[0],
                             rf"^rank {rank} \(stage {rank}\) failed at {instruction} of step \d+: the layer broke")
        elif failure in STALLS:
            # A rank that stops before it has sent anything is known by its number alone.
            self.assertRegex(said[0],
                             rf"waits for (.* )?rank {rank},? which .*(at {instruction}|heard of|never answered)")
        elif failure == "exit":
            self.assertRegex(said[0], rf"rank {rank} ended its process by exit\(\) while its world was open \(at \S+\)")
        else:
            last = rf"(heard of )?at {rank}\S+ in step \d+|heard of in step \d+|at (start|finish)"
            self.assertRegex(said[0],
                             rf"rank {rank} has died: its process \d+ has ended(, last ({last}))?; rank \d was at "
                             r"(\S+ in step \d+|start|finish)")


class FailingSaves(TrainingRuns):
    def training(self, run, *flags):
        return self.arguments("--steps", "6", "--checkpoint", run, "--checkpoint-every", "3steps", "--deadline",
                              str(DEADLINE_S), *flags)

    def saving(self, folder, rank, action="", at=0):
        """A training of two processes in a new folder, of which one fails at a call of a save."""
        return self.start(*self.training(folder), ranks=2,
                          environment={"LD_PRELOAD": LIBRARY, "FAULTY_FOLDER": folder, "FAULTY_LOG": folder + ".log",
                                       "FAULTY_RANK": str(rank), "FAULTY_DO": action, "FAULTY_AT": str(at)})

    def calls_of(self, rank):
        folder = self.path(f"calls{rank}")
        run = self.saving(folder, rank)
        self.assertEqual(run.wait(), 0, run.text())
        with open(folder + ".log") as lines:
            return [line.split()[1] for line in lines]

    @of_mpi
    def test_a_rank_that_fails_during_a_save_ends_all(self):
        draw = random.Random(2)
        self.finished(*self.training(self.fresh("undisturbed")))
        for rank in (0, 1):
            calls = self.calls_of(rank)
            places = sorted(draw.sample(range(1, len(calls) + 1), min(PLACES, len(calls))))
            for action in ("kill", "stop"):
                longest = try_all(self, self.try_place, [(rank, action, at, calls[at - 1]) for at in places])
                print(f"{action} of rank {rank} at {len(places)} of {len(calls)} calls of saves: all gone within "
                      f"{longest:.2f} s", flush=True)

    def try_place(self, rank, action, at, _call):
        folder = self.path(f"{action}{rank}-{at}")
        run = self.saving(folder, rank, action, at)
        seconds = seconds_to_the_end(self, run, 2, action == "stop")
        self.assertRegex(run.errors(), rf"rank {rank}\b")
        self.assertGreaterEqual(self.verified(folder), run.durable())
        run.close()
        self.finished(*self.training(folder, "--resume", "auto"), ranks=2).close()
        self.assertEqual(contents(folder), contents(self.path("undisturbed")))
        shutil.rmtree(folder)
        return seconds


class SlowRanks(TrainingRuns):
    def training(self, run):
        return self.arguments("--steps", "300", "--checkpoint", run, "--deadline", str(DEADLINE_S))

    def pause(self, number):
        """A training, one process of which is stopped for half the deadline."""
        draw = random.Random(number)
        folder = self.fresh(f"run{number}")
        run = self.start(*self.training(folder), ranks=2)
        while len(ranks := run.ranks()) < 2 and run.process.poll() is None:
            time.sleep(0.02)
        time.sleep(draw.uniform(0, 1.5))
        with contextlib.suppress(ProcessLookupError, KeyError):
            stopped = ranks[draw.randrange(2)]
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(DEADLINE_S / 2)
            os.kill(stopped, signal.SIGCONT)
        code, text = run.wait(), run.text()
        run.close()
        if code != 0:
            return f"run {number} ended with {code}: {text}"
        equal = contents(folder) == self.expected
        shutil.rmtree(folder)
        return "" if equal else f"run {number} has other bits"

    @of_mpi
    def test_a_rank_that_is_slow_is_no_failure(self):
        self.finished(*self.training(self.fresh("undisturbed")))
        self.expected = contents(self.path("undisturbed"))
        # They end with this process, however that ends.
        busy = [subprocess.Popen(["sh", "-c", "while kill -0 $PPID; do :; done"], stderr=subprocess.DEVNULL)
                for _ in range(os.cpu_count())]
        try:
            with concurrent.futures.ThreadPoolExecutor(2 if RUNS < 100 else 4) as pool:
                problems = []
                for problem in filter(None, pool.map(self.pause, range(RUNS))):
                    print(problem, flush=True)  # the others may take an hour
                    problems.append(problem)
        finally:
            for process in busy:
                process.kill()
                process.wait()
        self.assertEqual(problems, [])
        print(f"{RUNS} runs with a pause: no failure, 0 bits differ", flush=True)


if __name__ == "__main__":
    PROGRAM, LIBRARY, PLACES, BOUND_S, RUNS, AT_ONCE = training_runs.read_arguments(
        "program", "library", places=PLACES, bound=BOUND_S, runs=RUNS, at_once=AT_ONCE)
    training_runs.main()
