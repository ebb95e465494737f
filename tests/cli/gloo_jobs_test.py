#!/usr/bin/env python3
"""Processes that Gloo joins: the results of threads, under torchrun too, and one message for each mistake.

Usage: gloo_jobs_test.py PENSTOCK DATA. The part with torchrun is skipped where no Python can import torch.
"""
import os
import socket
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import gloo_run
import program_runs
from program_runs import ENVIRONMENT, ProgramRuns

GLOO_RUN = os.path.join(ROOT, "tests", "support", "gloo_run.py")
STEPS = ["--steps", "6", "--log-every", "1"]
JOB = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def without(name):
    return {key: value for key, value in JOB.items() if key != name}


def python_with_torch():
    for python in ("python3", os.path.join(ROOT, "build", "venv", "bin", "python")):
        try:
            if subprocess.run([python, "-c", "import torch.distributed.run"], capture_output=True).returncode == 0:
                return python
        except FileNotFoundError:
            pass
    return None


class GlooJobs(ProgramRuns):
    def losses_and_weights(self, flags, command=None, ranks=None):
        """The printed losses, and the bytes of the written weights."""
        arguments = self.train(*STEPS, *flags, "--save-weights", "weights.safetensors")
        if command:
            done = subprocess.run([*command, program_runs.PROGRAM, *arguments], cwd=self.folder, text=True,
                                  timeout=program_runs.WATCHDOG_S, capture_output=True, env=ENVIRONMENT)
            self.assertEqual(done.returncode, 0, done.stderr)
            out = done.stdout
        else:
            out = self.output_of(*arguments, ranks=ranks)
        with open(self.path("weights.safetensors"), "rb") as file:
            return out, file.read()

    def test_processes_compute_what_threads_do(self):
        for flags, ranks in ((["--stages", "2", "--schedule", "1f1b", "--micro-batches", "5"], 2),
                             (["--stages", "3", "--schedule", "zb-h1", "--micro-batches", "3"], 3),
                             (["--stages", "2", "--replicas", "2", "--optimizer", "adamw", "--lr", "0.01"], 4)):
            with self.subTest(flags=flags):
                threads = self.losses_and_weights(flags)
                self.assertEqual(threads[0].count("loss is"), 6)
                self.assertEqual(self.losses_and_weights(flags, ranks=ranks), threads)

    def test_launch_starts_what_the_settings_of_a_verb_name(self):
        self.write("run.toml", 'transport = "gloo"\nstages = 2\n')
        steps = ["train", "--config", "run.toml", *self.train("--checkpoint", "run", "--steps", "2")[1:]]
        launched = ("launch", "-n", "2", "--tee", "none", "--")
        self.output_of(*launched, *steps)
        for settings in (steps, ["train", "--resume", "run"]):
            self.assertIn(" launch-local -n 2 ", self.output_of("launch", "-n", "2", "--dry-run", "--", *settings))

    def test_under_torchrun(self):
        python = python_with_torch()
        if not python:
            self.skipTest("no Python can import torch")
        flags = ["--stages", "2", "--micro-batches", "4"]
        launcher = [python, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2"]
        self.assertEqual(self.losses_and_weights(flags, command=launcher), self.losses_and_weights(flags))

    def test_a_resumed_job_continues_over_another_transport(self):
        flags = ["--stages", "2", "--micro-batches", "4"]
        undisturbed = self.losses_and_weights(flags)[1]
        self.output_of(*self.train("--steps", "3", *flags, "--checkpoint", "saved", "--checkpoint-every", "3steps"), ranks=2)
        self.output_of(*self.train(*STEPS, *flags, "--resume", "saved", "--save-weights", "weights.safetensors"))
        with open(self.path("weights.safetensors"), "rb") as file:
            self.assertEqual(file.read(), undisturbed)

    def complaint_in(self, environment, *flags):
        return self.complaint_of(*self.train(*STEPS, "--stages", "2", *flags), environment=environment)

    def test_mistakes(self):
        for environment, flags, message in (
                ({}, ["--transport", "gloo"],
                 "the transport gloo joins processes, and this is the only one: start them with torchrun (torchrun "
                 "--no-python --nproc-per-node 2 ...), or use threads"),
                (without("MASTER_ADDR"), [],
                 "the environment has no MASTER_ADDR, which says where processes of the transport gloo meet: start them "
                 "with torchrun, or set MASTER_ADDR to a host's address and MASTER_PORT to a free port there, for all of "
                 "them alike"),
                (JOB | {"MASTER_PORT": "70000"}, [],
                 "the environment's MASTER_PORT is not a port: take a number from 1 to 65535"),
                (JOB | {"WORLD_SIZE": "3"}, [],
                 "3 processes do not divide into 2 pipeline ranks: start a multiple of 2 (mpirun -n 2)"),
                (JOB, ["--transport", "threads"],
                 "this is process 0 of 2 started by torchrun (WORLD_SIZE = 2), but the transport is threads: 2 whole jobs "
                 "would run side by side; use the gloo transport or start one process"),
                (JOB, ["--transport", "mpi"],
                 "this is process 0 of 2 started by torchrun (WORLD_SIZE = 2), and MPI joins only processes that mpirun or "
                 "srun has started: use the gloo transport, or start them with mpirun")):
            with self.subTest(message=message):
                self.assertEqual(self.complaint_in(environment, *flags), message)

    def test_processes_of_different_builds(self):
        mixed, digest, other = self.program_of_two_builds()
        code, out, err = self.run_program(*self.train(*STEPS, "--stages", "3"), ranks=3, program=mixed)
        self.assertEqual((code, out), (2, ""), err)
        one, two = rf"penstock [0-9.]+ \({digest}\) with LibTorch .*", rf"penstock [0-9.]+ \({other}\) with LibTorch .*"
        for line, (prefix, own, who, others) in zip(sorted(self.sayings(err)), (
                (r"\[rank 1\] rank 1", two, "rank 0", one), (r"\[rank 2\] rank 2", one, "rank 1", two),
                ("rank 0", one, "rank 1", two)), strict=True):
            self.assertRegex(line, f"^{prefix} runs {own}, and {who} runs {others}: install the same build on all hosts$")

    def failure_in(self, environment):
        code, out, err = self.run_program(*self.train(*STEPS, "--stages", "2", "--start-deadline", "1"),
                                          environment=environment)
        self.assertEqual((code, out), (1, ""), err)
        said = self.sayings(err)
        self.assertEqual(len(said), 1, err)
        return said[0]

    def test_a_rank_that_never_comes_is_named(self):
        port = str(gloo_run.free_port())
        self.assertEqual(self.failure_in(JOB | {"MASTER_PORT": port}),
                         "the world is incomplete after 1 s (the start deadline, at the rendezvous): rank 1 has not come")
        self.assertEqual(self.failure_in(JOB | {"MASTER_PORT": port, "RANK": "1"}),
                         "[rank 1] the world is incomplete after 1 s (the start deadline, at the rendezvous): rank 1 does "
                         f"not reach the store at 127.0.0.1:{port} (MASTER_ADDR and MASTER_PORT), which rank 0 opens")

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.assertRegex(self.failure_in(JOB | {"MASTER_PORT": str(port)}),
                             rf"rank 0 cannot open the store at 127.0.0.1:{port} .*: Address already in use")


if __name__ == "__main__":
    program_runs.PROGRAM, program_runs.DATA = map(os.path.abspath, sys.argv[1:3])
    program_runs.MPIRUN = GLOO_RUN
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
