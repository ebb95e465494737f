"""A training that is killed again and again, at any time, ends with the bits of one that is not.

Usage: kill_loop_test.py PENSTOCK DATA [MPIRUN] [--kills N]

Starts a training that saves every few steps, kills all its processes with SIGKILL after a random time, checks all
checkpoints, and starts it again with --resume auto: alternately with threads and, with MPIRUN, with two processes. After
each kill the newest checkpoint is at least the last that was reported as durable. When the training reaches its end,
the checkpoint there is compared with that of a training without interruption: all tensors by their checksums, the
position in the data and all states. Then the next training begins, until N kills are done (default: 10).
"""

import random
import shutil

import training_runs
from training_runs import TrainingRuns, contents

KILLS = 10
STEPS = 1200


class KillLoop(TrainingRuns):
    def start_training(self, run, mpi):
        return self.start("train", "--data", training_runs.DATA + "/mnist", "--hidden", "48,32", "--optimizer", "sgd",
                          "--momentum", "0.9", "--stages", "2", "--batch-size", "32", "--steps", str(STEPS),
                          "--log-every", "0", "--checkpoint", run, "--checkpoint-every", "5steps", "--resume", "auto",
                          ranks=2 if mpi else None)

    def test_loses_nothing(self):
        draw = random.Random(1)
        self.assertEqual(self.start_training(self.path("undisturbed"), False).wait(), 0)
        expected = contents(self.path("undisturbed"))
        kills = number = finished = 0
        run, durable = self.path("run0"), -1
        while kills < KILLS or not finished:
            training = self.start_training(run, bool(training_runs.MPIRUN) and number % 2 == 1)
            number += 1
            # Long enough to begin, mostly too short to end.
            code = training.end_within(draw.uniform(0.2, 3) if kills < KILLS else training_runs.WATCHDOG_S)
            text = training.text()
            durable = max(durable, training.durable())
            training.close()
            self.assertGreaterEqual(self.verified(run), durable, text)
            if code is None:
                kills += 1
                continue
            self.assertEqual(code, 0, text)
            self.assertEqual(contents(run), expected)
            finished += 1
            shutil.rmtree(run)
            run, durable = self.path(f"run{finished}"), -1
        print(f"{kills} kills, {finished} trainings reached their end with 0 bits that differ", flush=True)


if __name__ == "__main__":
    [KILLS] = training_runs.read_arguments(kills=KILLS)
    training_runs.main()
