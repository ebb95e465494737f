"""A job of which one random rank is killed again and again loses little time, and no bit.

Usage: goodput_test.py PENSTOCK DATA MPIRUN [--steps N] [--every N[s|steps]] [--periods SECONDS,...] [--runs N]
                       [--required SHARE,...]

`penstock launch --restarts 1000` trains N steps (default: 4000) as two processes, with a checkpoint every N (default:
1000steps), undisturbed, and then with a kill -9 of a random rank every SECONDS (default: 0), for each of the periods,
interleaved, N times each (default: 1). A kill waits for a checkpoint since the one before, because a job that gets nowhere
is given up. Goodput is the undisturbed time over the disturbed one, the median over rounds; at least the SHARE of the
period is required (default: 0). The checkpoint at the end must have the bits of the undisturbed training. The short
form says nothing about time. The long one trains for about ten minutes with each period:
--steps 150000 --every 1s --periods 15,60 --runs 3 --required 0.9,0.97.
"""

import os
import random
import signal
import statistics
import time

import training_runs
from training_runs import TrainingRuns, contents, newest_of, of_mpi, processes_of_session, step_of

STEPS, EVERY, PERIODS_S, RUNS, REQUIRED = 4000, "1000steps", "0", 1, "0"


def ranks_of(session):
    """The processes of the ranks of `penstock launch`: those that train."""
    found = []
    for process in processes_of_session(session):
        try:
            with open(f"/proc/{process}/comm") as file:
                if file.read().startswith("penstock-runtim"):
                    found.append(process)
        except OSError:
            pass
    return found


class Goodput(TrainingRuns):
    samples = 2000

    def train(self, name, period=None):
        """Trains to the end. Returns the time, the number of kills, and the longest time between two polls."""
        draw = random.Random(name)
        folder = self.fresh(name)
        begin = time.monotonic()
        run = self.start("launch", "-n", "2", "--restarts", "1000", "--log-dir", self.fresh("logs"), "--tee", "none",
                         "--", "train", "--data", self.data, "--hidden", "256,256", "--optimizer", "sgd", "--momentum",
                         "0.9", "--stages", "2", "--batch-size", "32", "--steps", STEPS, "--epochs", STEPS,
                         "--log-every", "0", "--checkpoint", folder, "--checkpoint-every", EVERY, "--deadline", "10",
                         environment={"PATH": os.path.dirname(training_runs.MPIRUN) + ":" + os.environ["PATH"]})
        killed, next_kill, newest, pause = 0, begin + (period or 0), newest_of(folder), 0.0
        looked = begin
        while run.process.poll() is None:
            time.sleep(0.01)
            pause, looked = max(pause, time.monotonic() - looked), time.monotonic()
            if period is None or time.monotonic() < next_kill or newest_of(folder) == newest:
                continue
            ranks, newest = ranks_of(run.process.pid), newest_of(folder)
            if ranks and step_of(newest) < STEPS:
                os.kill(draw.choice(ranks), signal.SIGKILL)
                killed += 1
            next_kill = max(next_kill + period, time.monotonic())
        seconds = time.monotonic() - begin
        self.assertEqual(run.wait(), 0, run.text())
        self.assertEqual(run.leftovers(), [])
        run.close()
        return seconds, killed, pause

    @of_mpi
    def test_kills_cost_little_time_and_no_bit(self):
        required = dict(zip(map(float, PERIODS_S.split(",")), map(float, REQUIRED.split(",")), strict=True))
        goodput = {period: [] for period in required}
        for round_number in range(RUNS):
            calm, _, _ = self.train("undisturbed")
            for period in required:
                name = f"round{round_number}.{period}"
                seconds, killed, pause = self.train(name, period)
                if not killed and pause > 1:
                    self.skipTest(f"the machine left this test no time for {pause:.1f} s")
                self.assertGreater(killed, 0)
                self.assertEqual(contents(self.path(name)), contents(self.path("undisturbed")))
                goodput[period].append(calm / seconds)
                print(f"{STEPS} steps: {calm:.1f} s undisturbed, {seconds:.1f} s with {killed} kills, one each "
                      f"{seconds / killed:.1f} s: goodput {calm / seconds:.3f}, {(seconds - calm) / killed:.2f} s per "
                      "kill; 0 bits differ", flush=True)
        for period, share in required.items():
            self.assertGreaterEqual(statistics.median(goodput[period]), share, f"one kill every {period} s")


if __name__ == "__main__":
    STEPS, EVERY, PERIODS_S, RUNS, REQUIRED = training_runs.read_arguments(steps=STEPS, every=EVERY, periods=PERIODS_S,
                                                                           runs=RUNS, required=REQUIRED)
    training_runs.main()
