"""Trainings under `penstock launch` that are disturbed, go on, and compute the bits of one that was not.

Usage: launch_train_test.py PENSTOCK DATA
"""

import glob
import os
import re
import signal
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
import program_runs
from program_runs import ENVIRONMENT, WATCHDOG_S, ProgramRuns, main

EPOCHS = "20"  # of 52 steps: some seconds, and the first checkpoint after a small part of them


class LaunchTrain(ProgramRuns):
    def training(self, *flags):
        return self.train("--schedule", "1f1b", "--micro-batches", "4", "--epochs", EPOCHS,
                          "--log-every", "0", "--eval-every", "0", "--save-weights",
                          self.path("weights.safetensors"), *flags)

    undisturbed_weights = None

    def undisturbed(self):
        """The weights of a training by threads, which is the same for all tests."""
        if self.undisturbed_weights is None:
            self.output_of(*self.training("--stages", "2"))
            LaunchTrain.undisturbed_weights = self.read_bytes("weights.safetensors")
            os.remove(self.path("weights.safetensors"))
        return self.undisturbed_weights

    def launch(self, *arguments):
        run = subprocess.Popen([program_runs.PROGRAM, "launch", *arguments],
                               cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, env=ENVIRONMENT)
        self.addCleanup(self.end, run)
        return run

    def newest_step(self):
        return max([int(path.rsplit("step-", 1)[1].split("-")[0]) for path in glob.glob(self.path("run/step-*"))],
                   default=0)

    def wait_for_checkpoint(self, run):
        """A checkpoint that is newer than those of now."""
        before = self.newest_step()
        self.wait_until(run, lambda: self.newest_step() > before)

    def ranks(self, run):
        """The processes of the ranks by their number."""
        found = {}
        with open(f"/proc/{run.pid}/task/{run.pid}/children") as file:
            for pid in file.read().split():
                with open(f"/proc/{pid}/environ") as variables:
                    found[int(re.search("(?:^|\0)RANK=([0-9]+)", variables.read())[1])] = int(pid)
        return found

    def finish(self, run):
        _, err = run.communicate(timeout=WATCHDOG_S)
        return run.returncode, err

    def test_ranks_that_die_and_stall(self):
        wanted = self.undisturbed()
        run = self.launch("-n", "2", "--restarts", "10", "--", *self.training(
            "--stages", "2", "--checkpoint", "run", "--checkpoint-every", "50steps", "--deadline", "3"))
        self.wait_for_checkpoint(run)
        os.kill(self.ranks(run)[1], signal.SIGKILL)  # a rank dies
        self.wait_for_checkpoint(run)
        os.kill(self.ranks(run)[0], signal.SIGSTOP)  # a rank stalls
        code, err = self.finish(run)
        self.assertEqual(code, 0, err)
        for attempt, cause, left in ((2, r"rank 1 of 2: signal 9 \(Killed\)", 9),
                                     (3, r"rank 1 of 2: exit code 1", 8)):
            self.assertRegex(err,
                             rf"attempt {attempt} goes on from step \d+ \(run/step-\d+\) after {cause}[^;]*; {left}"
                             " restarts left")
        self.assertEqual(sorted(os.listdir(self.path("log_output"))), ["1", "2", "3"])
        self.assertEqual(self.read_bytes("weights.safetensors"), wanted)

    def test_polite_stops(self):
        wanted = self.undisturbed()
        command = ("-n", "2", "--restarts", "3", "--", *self.training(
            "--stages", "2", "--checkpoint", "run", "--checkpoint-every", "50steps", "--resume", "auto"))
        for sent in (signal.SIGTERM, signal.SIGUSR1):
            run = self.launch(*command)
            self.wait_for_checkpoint(run)
            before = self.newest_step()
            run.send_signal(sent)
            code, err = self.finish(run)
            self.assertEqual(code, 128 + sent, err)
            self.assertNotIn("failed first", err)
            self.assertGreater(self.newest_step(), before)
            self.assertFalse(os.path.exists(self.path("weights.safetensors")))
        run = self.launch(*command)
        code, err = self.finish(run)
        self.assertEqual(code, 0, err)
        self.assertEqual(self.read_bytes("weights.safetensors"), wanted)


if __name__ == "__main__":
    main()
