"""A job of which one random rank is killed again and again loses little time, and no bit.

Usage: goodput_test.py PENSTOCK DATA [--steps N] [--every N[s|steps]] [--periods SECONDS,...] [--runs N]
                       [--required SHARE,...]

`penstock launch --restarts 1000` trains N steps (default: 1000) as two processes, with a checkpoint every N (default:
250steps), undisturbed, and then with a kill -9 of a random rank every SECONDS (default: 0), for each of the periods,
interleaved, N times each (default: 1). A kill waits for a checkpoint since the one before, because a job that gets nowhere
is given up. The checkpoint at the end must have the bits of the undisturbed training.

Goodput is N over the steps that an undisturbed job would have done in the same time: for each life of the job, from one
kill to the next, its duration times the steps per second between its second checkpoint and its last one. So the speed
is that of the same minutes, however it changes during a run. The median over rounds must be at least the SHARE of the
period (default: 0). The undisturbed time over the disturbed one is printed beside it; it also contains the change of
the machine's speed between two runs. The short form says nothing about time: its lives have no two checkpoints between
which nothing happens. The long one trains for about ten minutes with each period:
--steps 150000 --every 1s --periods 15,60 --runs 3 --required 0.9,0.97.
"""

import os
import random
import signal
import statistics
import time

import training_runs
from training_runs import TrainingRuns, contents, is_rank, newest_of, processes_of_session, step_of

STEPS, EVERY, PERIODS_S, RUNS, REQUIRED = 1000, "250steps", "0", 1, "0"


class Life:
    """A job from its start or a kill to the next kill or its end."""

    def __init__(self):
        self.begin = self.end = time.monotonic()
        self.checkpoints = []  # when each was seen first, and its step

    def rate(self):
        """Steps per second while nothing happened; none if that is unknown. Another rank may have completed the
        first checkpoint after the kill, and the second one is the first with all steps from this life."""
        steady = self.checkpoints[1:]
        if len(steady) < 2:
            return None
        (begin, first), (end, last) = steady[0], steady[-1]
        return (last - first) / (end - begin)


def undisturbed_steps(lives):
    """The steps that would have been done without the kills. A life that is too short to have a rate gets the median
    one. None if no life has one."""
    rates = [rate for life in lives if (rate := life.rate())]
    if not rates:
        return None
    usual = statistics.median(rates)
    return sum((life.end - life.begin) * (life.rate() or usual) for life in lives)


class Goodput(TrainingRuns):
    samples = 2000

    def train(self, name, period=None):
        """Trains to the end. Returns the lives, and the longest time between two polls."""
        draw = random.Random(name)
        folder = self.fresh(name)
        begin = time.monotonic()
        run = self.start("launch", "-n", "2", "--restarts", "1000", "--log-dir", self.fresh("logs"), "--tee", "none",
                         "--", "train", "--data", self.data, "--hidden", "256,256", "--optimizer", "sgd", "--momentum",
                         "0.9", "--stages", "2", "--batch-size", "32", "--steps", STEPS, "--epochs", STEPS,
                         "--log-every", "0", "--checkpoint", folder, "--checkpoint-every", EVERY, "--deadline", "10")
        lives, next_kill, newest, newest_at_kill, pause = [Life()], begin + (period or 0), None, None, 0.0
        looked = begin
        while run.process.poll() is None:
            time.sleep(0.01)
            pause, looked = max(pause, time.monotonic() - looked), time.monotonic()
            if (found := newest_of(folder)) != newest:
                newest = found
                lives[-1].checkpoints.append((looked, step_of(newest)))
            if period is None or looked < next_kill or newest == newest_at_kill:
                continue
            ranks, newest_at_kill = list(filter(is_rank, processes_of_session(run.process.pid))), newest
            if ranks and step_of(newest) < STEPS:
                os.kill(draw.choice(ranks), signal.SIGKILL)
                lives[-1].end = time.monotonic()
                lives.append(Life())
            next_kill = max(next_kill + period, time.monotonic())
        lives[-1].end = time.monotonic()
        self.assertEqual(run.wait(), 0, run.text())
        self.assertEqual(run.leftovers(), [])
        run.close()
        return lives, pause

    def test_kills_cost_little_time_and_no_bit(self):
        required = dict(zip(map(float, PERIODS_S.split(",")), map(float, REQUIRED.split(",")), strict=True))
        goodput = {period: [] for period in required}
        for turn in range(RUNS):
            calm, _ = self.train("undisturbed")
            calm_seconds = calm[0].end - calm[0].begin
            for period in required:
                name = f"turn{turn}.{period}"
                lives, pause = self.train(name, period)
                seconds, killed = lives[-1].end - lives[0].begin, len(lives) - 1
                if not killed and pause > 1:
                    self.skipTest(f"the machine left this test no time for {pause:.1f} s")
                self.assertGreater(killed, 0)
                self.assertEqual(contents(self.path(name)), contents(self.path("undisturbed")))
                undisturbed = undisturbed_steps(lives)
                goodput[period].append(STEPS / undisturbed if undisturbed else 0)
                print(f"{STEPS} steps: {seconds:.1f} s with {killed} kills, one each {seconds / killed:.1f} s: goodput "
                      f"{goodput[period][-1]:.3f}, {(1 - goodput[period][-1]) * seconds / killed:.2f} s per kill; "
                      f"{calm_seconds:.1f} s undisturbed, {calm_seconds / seconds:.3f} of them; 0 bits differ",
                      flush=True)
        for period, share in required.items():
            self.assertGreaterEqual(statistics.median(goodput[period]), share, f"one kill every {period} s")


if __name__ == "__main__":
    STEPS, EVERY, PERIODS_S, RUNS, REQUIRED = training_runs.read_arguments(steps=STEPS, every=EVERY, periods=PERIODS_S,
                                                                           runs=RUNS, required=REQUIRED)
    training_runs.main()
