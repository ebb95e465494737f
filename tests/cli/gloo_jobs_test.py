#!/usr/bin/env python3
"""Processes that Gloo joins: the results of threads, under torchrun too, and one message for each mistake.

Usage: gloo_jobs_test.py PENSTOCK DATA. The parts with torchrun, and with a store that outlives a job as torchrun's
does, are skipped where no Python can import torch.
"""
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import gloo_run
import program_runs
from program_runs import ENVIRONMENT, ProgramRuns
from torch_python import NONE, torch_python

GLOO_RUN = os.path.join(ROOT, "tests", "support", "gloo_run.py")
STEPS = ["--steps", "6", "--log-every", "1"]
JOB = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
INCOMPLETE = "the world is incomplete after 1 s (the start deadline): "
START_ALL = " not joined: start all ranks, or set a longer start deadline"
FREE_PORT = "start rank 0, or take a port of its host that is free for all ranks"


# Stores that outlive the processes of a job, as the one of torchrun's agent does: one for each test, in one process,
# because torch takes seconds to import. It prints their ports.
STORES = """
import sys, torch.distributed
stores = [torch.distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False) for _ in range(9)]
print(*(store.port for store in stores), flush=True)
sys.stdin.read()
"""


def without(name):
    return {key: value for key, value in JOB.items() if key != name}


class GlooJobsBase(ProgramRuns):
    def start_rank(self, rank, size, port, *flags, **environment):
        """A process of a job of two pipeline ranks, or of `size` of them if these are more."""
        arguments = self.train(*STEPS, "--stages", str(max(size, 2)), *flags)
        job = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        run = subprocess.Popen([program_runs.PROGRAM, *arguments], cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**ENVIRONMENT, **job, **environment})
        self.addCleanup(self.end, run)
        return run

    def ends_of(self, runs):
        """The exit code, the output and the error messages of each."""
        results = [None] * len(runs)

        def wait(number):
            out, err = runs[number].communicate(timeout=program_runs.WATCHDOG_S)
            # All lines, so that none of c10d's is overlooked.
            lines = [line for line in err.splitlines() if not line.startswith("penstock: info: ")]
            results[number] = runs[number].returncode, out, lines

        waits = [threading.Thread(target=wait, args=(number,)) for number in range(len(runs))]
        for each in waits:
            each.start()
        for each in waits:
            each.join()
        return results

    def expect_refusals(self, runs, *messages):
        """Each process ends with exit code 2 and one line."""
        self.assertEqual(self.ends_of(runs), [(2, "", ["penstock: " + message]) for message in messages])


class GlooJobs(GlooJobsBase):
    def losses_and_weights(self, flags, command=None, ranks=None, environment=None):
        """The printed losses, and the bytes of the written weights."""
        arguments = self.train(*STEPS, *flags, "--save-weights", "weights.safetensors")
        if command:
            done = subprocess.run([*command, program_runs.PROGRAM, *arguments], cwd=self.folder, text=True,
                                  timeout=program_runs.WATCHDOG_S, capture_output=True, env=ENVIRONMENT)
            code, out, err = done.returncode, done.stdout, done.stderr
        else:
            code, out, err = self.run_program(*arguments, ranks=ranks, environment=environment)
        self.assertEqual(code, 0, err)
        return out, self.read_bytes("weights.safetensors")

    def test_processes_compute_what_threads_do(self):
        for flags, ranks in ((["--stages", "2", "--schedule", "1f1b", "--micro-batches", "5"], 2),
                             (["--stages", "3", "--schedule", "zb-h1", "--micro-batches", "3"], 3),
                             (["--stages", "2", "--replicas", "2", "--optimizer", "adamw", "--lr", "0.01"], 4)):
            with self.subTest(flags=flags):
                threads = self.losses_and_weights(flags)
                self.assertEqual(threads[0].count("loss is"), 6)
                self.assertEqual(self.losses_and_weights(flags, ranks=ranks), threads)

    def test_the_only_process_of_a_launcher_is_a_thread(self):
        by_hand = self.losses_and_weights(["--stages", "1"])
        for variables in ({"RANK": "0", "WORLD_SIZE": "1"}, {"PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "1"}):
            with self.subTest(variables=variables):
                flags = ["--stages", "1", "--transport", "gloo"]
                self.assertEqual(self.losses_and_weights(flags, environment=variables), by_hand)
        launched = self.output_of("launch", "-n", "1", "--",
                                  *self.train(*STEPS, "--stages", "1", "--transport", "gloo"))
        self.assertEqual(launched.count("loss is"), 6)

    def test_ranks_within_a_job_of_mpi(self):
        """As if mpiexec had started one process, and within it torchrun or launch two; or three processes, and gloo is
        asked for."""
        flags = ["--stages", "2", "--micro-batches", "4"]
        threads = self.losses_and_weights(flags)
        one, three = {"PMI_RANK": "0", "PMI_SIZE": "1"}, {"PMI_RANK": "0", "PMI_SIZE": "3"}
        self.assertEqual(self.losses_and_weights(flags, ranks=2, environment=one), threads)
        self.assertEqual(self.losses_and_weights([*flags, "--transport", "gloo"], ranks=2, environment=three), threads)
        code, out, err = self.run_program("launch", "-n", "2", "--", *self.train(*STEPS, *flags), environment=one)
        self.assertEqual((code, out.count("loss is")), (0, 6), err)

    def test_launch_names_itself_where_the_count_is_wrong(self):
        code, _, err = self.run_program("launch", "-n", "3", "--", *self.train("--stages", "2"))
        self.assertEqual(code, 2, err)
        self.assertIn("3 processes do not divide into 2 pipeline ranks: start a multiple of 2 (penstock launch -n 2)",
                      err)

    def test_stages_auto(self):
        flags = ["--stages", "auto", "--micro-batches", "4"]
        for replicas, processes in ((1, 1), (1, 3), (2, 4)):
            with self.subTest(replicas=replicas, processes=processes):
                layout = ["--micro-batches", "4", "--replicas", str(replicas)]
                wanted = self.losses_and_weights([*layout, "--stages", str(processes // replicas)])
                found = self.losses_and_weights([*layout, "--stages", "auto"], ranks=processes)
                self.assertEqual(found, wanted)
        self.assertEqual(self.losses_and_weights(flags), self.losses_and_weights(["--micro-batches", "4"]))
        self.assertEqual(self.complaint_of(*self.train(*flags, "--replicas", "2"),
                                           environment=JOB | {"WORLD_SIZE": "3"}),
                         "--stages auto: 3 processes do not divide into 2 replicas: start a multiple of 2 (torchrun "
                         "--nproc-per-node 2)")

    def test_under_torchrun(self):
        python = torch_python()
        if not python:
            self.skipTest(NONE.format("torch"))
        flags = ["--stages", "2", "--micro-batches", "4"]
        launcher = [python, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2"]
        self.assertEqual(self.losses_and_weights(flags, command=launcher), self.losses_and_weights(flags))

    def test_a_resumed_job_continues_over_another_transport(self):
        flags = ["--stages", "2", "--micro-batches", "4"]
        undisturbed = self.losses_and_weights(flags)[1]
        self.output_of(*self.train("--steps", "3", *flags, "--checkpoint", "saved", "--checkpoint-every", "3steps"),
                       ranks=2)
        self.output_of(*self.train(*STEPS, *flags, "--resume", "saved", "--save-weights", "weights.safetensors"))
        self.assertEqual(self.read_bytes("weights.safetensors"), undisturbed)

    def complaint_in(self, environment, *flags):
        return self.complaint_of(*self.train(*STEPS, "--stages", "2", *flags), environment=environment)

    def test_mistakes(self):
        three = "3 processes do not divide into 2 pipeline ranks: start a multiple of 2 (torchrun --nproc-per-node 2)"
        for environment, flags, text in (
                ({}, ["--transport", "gloo"],
                 "the transport gloo joins processes, and this is the only one: start them "
                 "with torchrun (torchrun --no-python --nproc-per-node 2 ...)"),
                (without("MASTER_ADDR"), [], "the environment has no MASTER_ADDR"),
                (JOB | {"MASTER_PORT": "70000"}, [],
                 "the environment's MASTER_PORT is not a port: take a number from 1"),
                (JOB | {"WORLD_SIZE": "3"}, [], three),
                # A world of one process around them says nothing.
                (JOB | {"WORLD_SIZE": "3", "PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "1"}, [], three),
                (JOB | {"WORLD_SIZE": "1"}, ["--transport", "gloo"], "1 process does not divide into 2 pipeline ranks: "
                                                                     "start a multiple of 2 (torchrun"),
                ({"RANK": "1"}, [], "the environment has RANK = 1 but no WORLD_SIZE"),
                (JOB | {"PMI_RANK": "0", "PMI_SIZE": "3"}, [],
                 "mpiexec (PMI_SIZE = 3) says rank 0 of 3, torchrun (WORLD_SIZE = 2) says rank 0 of 2"),
                (JOB, ["--transport", "threads"],
                 "this is process 0 of 2 started by torchrun (WORLD_SIZE = 2), but the "
                 "transport is threads: 2 whole jobs would run side by side"),
                (JOB, ["--transport", "mpi"],
                 "this is process 0 of 2 started by torchrun (WORLD_SIZE = 2), and MPI joins "
                 "only processes that mpirun or srun has started: use the gloo transport")):
            with self.subTest(text=text):
                self.assertIn(text, self.complaint_in(environment, *flags))

    def test_processes_of_different_builds(self):
        mixed, digest, other = self.program_of_two_builds()
        code, out, err = self.run_program(*self.train(*STEPS, "--stages", "3"), ranks=3, program=mixed)
        self.assertEqual((code, out), (2, ""), err)
        message = (rf"rank 1 runs penstock [0-9.]+ \({other}\) with LibTorch .*, and rank 0 runs penstock [0-9.]+ "
                   rf"\({digest}\) with LibTorch .*: install the same build on all hosts")
        for line, prefix in zip(sorted(self.sayings(err)), (r"\[rank 1\] ", r"\[rank 2\] ", ""), strict=True):
            self.assertRegex(line, f"^{prefix}{message}$")

    def refusal_in(self, environment, *flags):
        return self.complaint_of(*self.train(*STEPS, "--stages", "2", "--start-deadline", "1", *flags),
                                 environment=environment)

    def test_a_rank_that_never_joins_is_named(self):
        port = str(gloo_run.free_port())
        self.assertEqual(self.refusal_in(JOB | {"MASTER_PORT": port}), INCOMPLETE + "rank 1 has" + START_ALL)
        self.assertEqual(self.refusal_in(JOB | {"MASTER_PORT": port, "RANK": "1"}),
                         f"[rank 1] {INCOMPLETE}rank 1 does not reach the store at 127.0.0.1:{port} (MASTER_ADDR and "
                         "MASTER_PORT), which rank 0 opens: " + FREE_PORT)

    def test_a_signal_during_the_start_ends_a_process_at_once(self):
        for flags in (["--checkpoint", "run"], ["--save-weights", "weights.safetensors"]):
            with self.subTest(flags=flags):
                port = gloo_run.free_port()
                run = self.start_rank(0, 2, port, *flags)
                while True:
                    self.assertIsNone(run.poll(), "it ended before it waited for rank 1")
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                        break
                run.send_signal(signal.SIGTERM)
                self.assertEqual(self.ends_of([run]), [(-signal.SIGTERM, "", [])])

    def test_every_process_that_has_joined_names_those_that_have_not(self):
        port = gloo_run.free_port()
        missing = INCOMPLETE.replace("1 s", "5 s") + "rank 1 and rank 3 have" + START_ALL
        self.expect_refusals([self.start_rank(rank, 4, port, "--start-deadline", "5") for rank in (0, 2)],
                             missing, "[rank 2] " + missing)

    def test_different_world_sizes(self):
        for first, second in ((2, 4), (4, 2)):
            with self.subTest(first=first):
                port = gloo_run.free_port()
                message = (f"rank 1 was started with WORLD_SIZE={second}, rank 0 with {first}: start all ranks with "
                           "the same number")
                self.expect_refusals([self.start_rank(rank, size, port, "--start-deadline", "5")
                                      for rank, size in enumerate((first, second))], message, "[rank 1] " + message)

    def test_a_rank_that_was_started_twice(self):
        port = gloo_run.free_port()
        # Rank 0, which holds the store, is more patient.
        runs = [self.start_rank(rank, 3, port, "--start-deadline", deadline)
                for rank, deadline in ((0, "9"), (1, "5"), (1, "5"))]
        missing = INCOMPLETE.replace("1 s", "5 s") + "rank 2 has" + START_ALL
        first, *twins = self.ends_of(runs)
        self.assertEqual(first, (2, "", ["penstock: " + missing.replace("5 s", "9 s")]))
        twice = (INCOMPLETE.replace("1 s", "5 s") + "rank 1 was started twice, as process {} and as process {}: start "
                 "each process with a rank of its own")
        pids = [run.pid for run in runs[1:]]
        self.assertIn(sorted(lines[0] for _, _, lines in twins),
                      [sorted("penstock: [rank 1] " + said for said in (missing, twice.format(*order)))
                       for order in (pids, pids[::-1])])

    def test_addresses_that_cannot_be(self):
        # No server of names has to be asked for this one.
        self.assertRegex(self.refusal_in(JOB | {"MASTER_ADDR": "host..a"}),
                         "^" + re.escape(INCOMPLETE) + r"rank 0 does not reach the store at host\.\.a:1 .*: the name has "
                         r"no address \(.*\); set MASTER_ADDR to the name or address of the host of rank 0$")
        self.assertEqual(self.complaint_in(JOB | {"GLOO_SOCKET_IFNAME": "lo,nope0"}),
                         "GLOO_SOCKET_IFNAME=nope0: this host has no such network interface; take one that `ip link` "
                         "shows, or unset it")

    def test_another_program_at_the_port_of_the_store(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            expected = (f"[rank 1] {INCOMPLETE}rank 1 does not reach the store at 127.0.0.1:{port} (MASTER_ADDR and "
                        "MASTER_PORT), which rank 0 opens: " + FREE_PORT)
            # It waits for a request, as HTTP does.
            self.assertEqual(self.refusal_in(JOB | {"MASTER_PORT": str(port), "RANK": "1"}), expected)

            def speak():
                with contextlib.suppress(OSError):
                    while True:
                        connection, _ = other.accept()
                        with connection:
                            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

            speaker = threading.Thread(target=speak)
            speaker.start()
            try:
                self.assertEqual(self.refusal_in(JOB | {"MASTER_PORT": str(port), "RANK": "1"}), expected)
            finally:
                other.shutdown(socket.SHUT_RDWR)
                speaker.join()

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            port = taken.getsockname()[1]
            code, out, err = self.run_program(*self.train(*STEPS, "--stages", "2"),
                                              environment=JOB | {"MASTER_PORT": str(port)})
            self.assertEqual((code, out), (1, ""), err)
            self.assertRegex(err, rf"^penstock: rank 0 cannot open the store at 127.0.0.1:{port} .*: Address already "
                             r"in use\n$")


class OneStoreForSeveralStarts(GlooJobsBase):
    """A store that torchrun's agent holds keeps what former starts have written."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        python = torch_python()
        if not python:
            raise unittest.SkipTest(NONE.format("torch"))
        stores = subprocess.Popen([python, "-c", STORES], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        cls.addClassCleanup(stores.communicate)
        cls.ports = list(map(int, stores.stdout.readline().split()))

    def setUp(self):
        super().setUp()
        self.port = self.ports.pop()

    def rank(self, rank, size, *flags, **environment):
        return self.start_rank(rank, size, self.port, *flags, TORCHELASTIC_USE_AGENT_STORE="True", **environment)

    def expect_training(self, runs):
        ends = self.ends_of(runs)
        self.assertEqual([(code, lines) for code, _, lines in ends], [(0, [])] * len(runs))
        self.assertEqual(ends[0][1].count("loss is"), 6)

    def running_job(self):
        """The processes of a job that trains without an end."""
        runs = [self.rank(rank, 2, "--steps", "1000000") for rank in range(2)]
        self.assertIn("loss is", runs[0].stdout.readline())
        return runs

    def test_restarts(self):
        # The counts of torchrun's agents may stay, and differ between hosts.
        for counts in (("0", "0"), ("0", "0"), ("0", "1"), ("1", "0")):
            with self.subTest(counts=counts):
                self.expect_training([self.rank(rank, 2, TORCHELASTIC_RESTART_COUNT=counts[rank]) for rank in range(2)])
        for size in (3, 2):
            self.expect_training([self.rank(rank, size) for rank in range(size)])
        for run in self.running_job():
            run.kill()
            run.wait()
        self.expect_training([self.rank(rank, 2) for rank in range(2)])

    def test_a_rank_may_be_started_again_before_rank_0_has_ended(self):
        former = self.running_job()
        former[1].kill()
        former[1].wait()
        member = self.rank(1, 2)
        self.assertEqual(former[0].wait(timeout=program_runs.WATCHDOG_S), 1)
        self.expect_training([self.rank(0, 2), member])

    def test_a_start_that_failed_leaves_nothing(self):
        for rank in (1, 0):
            with self.subTest(rank=rank):
                message = f"{INCOMPLETE}rank {1 - rank} has{START_ALL}"
                self.expect_refusals([self.rank(rank, 2, "--start-deadline", "1")], "[rank 1] " * rank + message)
        self.expect_training([self.rank(rank, 2) for rank in range(2)])

    def test_a_rank_that_was_started_twice_while_the_job_runs(self):
        self.running_job()
        self.expect_refusals([self.rank(1, 2, "--start-deadline", "1")],
                             f"[rank 1] {INCOMPLETE}rank 0 has{START_ALL}; if the job that has met in this store before "
                             "still runs, rank 1 was started twice")
        self.expect_refusals([self.rank(0, 2, "--start-deadline", "1")], f"{INCOMPLETE}rank 1 has{START_ALL}")


if __name__ == "__main__":
    program_runs.PROGRAM, program_runs.DATA = map(os.path.abspath, sys.argv[1:3])
    program_runs.MPIRUN = GLOO_RUN
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
