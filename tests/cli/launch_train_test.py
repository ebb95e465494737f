"""Trainings under `penstock launch` that are disturbed, go on, and compute the bits of one that was not.

Usage: launch_train_test.py PENSTOCK DATA [MPIRUN|gloo], with what starts the ranks: mpirun, or launch itself for Gloo
"""

import glob
import os
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
import program_runs
from program_runs import ENVIRONMENT, WATCHDOG_S, ProgramRuns, main, of_mpi as of_processes

# Of 52 steps: some seconds, and the first checkpoint after a small part of them. Messages of Gloo take longer.
EPOCHS = {"mpi": "40", "gloo": "20"}


def transport():
    return "gloo" if program_runs.MPIRUN == "gloo" else "mpi"


def over_gloo():
    return transport() == "gloo"


class LaunchTrain(ProgramRuns):
    def training(self, *flags):
        return self.train("--schedule", "1f1b", "--micro-batches", "4", "--epochs", EPOCHS[transport()],
                          "--log-every", "0", "--eval-every", "0", "--save-weights",
                          self.path("weights.safetensors"), *flags)

    def weights(self):
        with open(self.path("weights.safetensors"), "rb") as file:
            return file.read()

    undisturbed_weights = None

    def undisturbed(self):
        """The weights of a training by threads, which is the same for all tests."""
        if self.undisturbed_weights is None:
            self.output_of(*self.training("--stages", "2"))
            LaunchTrain.undisturbed_weights = self.weights()
            os.remove(self.path("weights.safetensors"))
        return self.undisturbed_weights

    def launch(self, *arguments):
        run = subprocess.Popen([program_runs.PROGRAM, "launch", "--transport", transport(), *arguments],
                               cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, env=ENVIRONMENT)
        self.addCleanup(self.end, run)
        return run

    def end(self, run):
        run.kill()  # all others die with it
        run.wait()
        run.stderr.close()

    def wait_until(self, run, condition):
        until = time.monotonic() + WATCHDOG_S
        while not condition():
            self.assertIsNone(run.poll(), "the job has ended")
            self.assertLess(time.monotonic(), until, "nothing happens")
            time.sleep(0.005)

    def newest_step(self):
        return max([int(path.rsplit("step-", 1)[1].split("-")[0]) for path in glob.glob(self.path("run/step-*"))],
                   default=0)

    def wait_for_checkpoint(self, run):
        """A checkpoint that is newer than those of now."""
        before = self.newest_step()
        self.wait_until(run, lambda: self.newest_step() > before)

    def processes(self, run):
        """The launcher, and the ranks' own processes by their number."""
        def children(pid):
            try:
                with open(f"/proc/{pid}/task/{pid}/children") as file:
                    return [int(child) for child in file.read().split()]
            except (FileNotFoundError, ProcessLookupError):
                return []

        def rank_of(pid):
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = dict(one.split(b"=", 1) for one in file.read().split(b"\0") if b"=" in one)
                return int(variables[b"RANK" if over_gloo() else b"OMPI_COMM_WORLD_RANK"])

        launcher = children(run.pid)[0]
        return launcher, {rank_of(rank): rank for keeper in children(launcher) for rank in children(keeper)}

    def finish(self, run):
        _, err = run.communicate(timeout=WATCHDOG_S)
        return run.returncode, err

    def assert_nothing_left(self):
        """Of the files that the jobs' journals name."""
        named = []
        for journal in glob.glob(self.path("log_output/*/launch.log")):
            with open(journal) as file:
                named += [line.rstrip("\n").split(": ", 1)[1] for line in file if line.startswith("host ")]
        self.assertEqual(named == [], over_gloo())
        for line in named:
            path = line.removeprefix("session ").removeprefix("shared memory ")
            self.assertEqual(glob.glob(glob.escape(path) + "*"), [], line)

    @of_processes
    def test_ranks_that_die_and_stall(self):
        wanted = self.undisturbed()
        run = self.launch("-n", "2", "--restarts", "10", "--", *self.training(
            "--stages", "2", "--checkpoint", "run", "--checkpoint-every", "50steps", "--deadline", "3"))
        self.wait_for_checkpoint(run)
        os.kill(self.processes(run)[1][1], signal.SIGKILL)  # a rank dies
        self.wait_for_checkpoint(run)
        os.kill(self.processes(run)[0], signal.SIGKILL)  # its launcher dies
        self.wait_for_checkpoint(run)
        os.kill(self.processes(run)[1][0], signal.SIGSTOP)  # a rank stalls
        code, err = self.finish(run)
        self.assertEqual(code, 0, err)
        for attempt, cause, left in ((2, r"rank 1 of 2: signal 9 \(Killed\)", 9),
                                     (3, r"the launcher ended with signal 9 \(Killed\)", 8),
                                     (4, r"rank 1 of 2: exit code 1", 7)):
            self.assertRegex(err, rf"attempt {attempt} goes on from step \d+ \(run/step-\d+\) after {cause}[^;]*; {left}"
                                  " restarts left")
        self.assertEqual(sorted(os.listdir(self.path("log_output"))), ["1", "2", "3", "4"])
        self.assert_nothing_left()
        self.assertEqual(self.weights(), wanted)

    @of_processes
    def test_three_ranks_and_then_two(self):
        wanted = self.undisturbed()
        self.write("hosts", "#!/bin/sh\n[ -e lost ] && echo localhost:2 || echo localhost:3\n")
        os.chmod(self.path("hosts"), 0o755)
        run = self.launch("--elastic", "1:3", "--host-discovery", self.path("hosts"), "--restarts", "1", "--",
                          *self.training("--checkpoint", "run", "--checkpoint-every", "50steps"))
        self.wait_for_checkpoint(run)
        self.write("lost", "")
        ranks = self.processes(run)[1]
        self.assertEqual(sorted(ranks), [0, 1, 2])
        os.kill(ranks[2], signal.SIGKILL)
        code, err = self.finish(run)
        self.assertEqual(code, 0, err)
        self.assertIn("elastic: 3 pipeline ranks, 1 replica; 3 slots\n", err)
        self.assertIn("elastic: 2 pipeline ranks, 1 replica; 2 slots\n", err)
        self.assertRegex(err, r"attempt 2 goes on from step \d+ .* after rank 2 of 3: signal 9 \(Killed\); 0 restarts")
        self.assertEqual(self.weights(), wanted)

    @of_processes
    def test_polite_stops(self):
        if over_gloo():
            self.skipTest("does not depend on what starts the ranks: cli.launch_restarts")
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
        self.assertEqual(self.weights(), wanted)


if __name__ == "__main__":
    main()
