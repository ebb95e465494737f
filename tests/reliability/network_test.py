#!/usr/bin/env python3
"""The network of a job: none with threads; with processes on one host, none of the ranks listens.

Usage: network_test.py PENSTOCK DATA [MPIRUN]. Parts are skipped without strace, unshare, or mpirun.
"""
import contextlib
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import program_runs
from program_runs import ENVIRONMENT, ProgramRuns, can_run, can_trace, has_gloo, of_mpi

LISTENING = "0A"
LOOPBACK = "0100007F"  # 127.0.0.1, as the system writes it


def descendants(pid):
    """All processes below `pid`."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(child) for child in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return children + [below for child in children for below in descendants(child)]


def sockets_of(pid):
    """The numbers of the sockets that a process has open."""
    numbers = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{entry}")):
                numbers.add(found[1])
    return numbers


def listening():
    """The sockets of this machine that listen to TCP: {number: address}."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(table) as file:
            rows = [line.split() for line in file.readlines()[1:]]
            found.update({row[9]: row[1] for row in rows if row[3] == LISTENING})
    return found


class Network(ProgramRuns):
    def done(self, *command):
        """The output of a command that ends with exit code 0."""
        done = subprocess.run(command, cwd=self.folder, env=ENVIRONMENT, capture_output=True, text=True,
                              timeout=program_runs.WATCHDOG_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_threads_open_no_network_socket(self):
        if not can_trace():
            self.skipTest("processes cannot be traced here")
        for verb in (self.train("--stages", "2", "--steps", "3", "--save-weights", "w.safetensors"),
                     ["infer", "--model", "mlp", "--stages", "2"], ["doctor"],
                     ["simulate", "1f1b", "--stages", "2", "--micro-batches", "4"]):
            self.done("strace", "-f", "-qq", "-e", "trace=%network", "-o", self.path("calls"), *self.command(verb))
            self.assertNotIn("AF_INET", self.read("calls"))

    def test_threads_train_without_a_network(self):
        if not can_run("unshare", "-rn", "true"):
            self.skipTest("no namespace of its own can be made here")
        self.assertIn("loss", self.done("unshare", "-rn", *self.command(self.train("--stages", "2", "--steps", "3"))))

    def listeners_of(self, command):
        """The addresses on which each rank of a job listens while it trains."""
        run = subprocess.Popen(command, cwd=self.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(self.end_all, run)
        for line in run.stdout:  # until the job trains
            if "loss" in line:
                break
        self.assertIsNone(run.poll(), "the job ended")
        open_now = listening()
        ranks = []
        for pid in [run.pid, *descendants(run.pid)]:
            with contextlib.suppress(FileNotFoundError):
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "penstock-runtime":
                    ranks.append([open_now[number] for number in sockets_of(pid) if number in open_now])
        return ranks

    def end_all(self, run):
        for pid in [*descendants(run.pid), run.pid] if run.poll() is None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        run.wait()
        run.stdout.close()

    def endless(self):
        return self.train("--stages", "2", "--steps", "1000000", "--log-every", "1")

    @of_mpi
    def test_ranks_of_one_host_listen_nowhere(self):
        self.assertEqual(self.listeners_of(self.over_mpi()), [[], []])

    def over_mpi(self, *flags):
        return [program_runs.MPIRUN, "-n", "2", "--oversubscribe", "--bind-to", "none", *flags, program_runs.PROGRAM,
                *self.endless()]

    def test_ranks_over_gloo_listen_to_their_host_alone(self):
        if not has_gloo():
            self.skipTest("this build has no Gloo")
        ranks = self.listeners_of([program_runs.PROGRAM, "launch", "-n", "2", "--", *self.endless()])
        if not listening():
            self.skipTest("listening sockets cannot be seen here")
        # Each rank for the other one, and rank 0 for the store.
        self.assertEqual([bool(rank) for rank in ranks], [True, True])
        addresses = [address.split(":")[0] for rank in ranks for address in rank]
        self.assertEqual(set(addresses), {LOOPBACK}, ranks)

    @of_mpi
    def test_listeners_are_seen(self):
        """With Open MPI's own choice of transports each rank listens, which the test above would see."""
        ranks = self.listeners_of(self.over_mpi("--mca", "btl", "self,vader,tcp"))
        if not listening():
            self.skipTest("listening sockets cannot be seen here")
        self.assertTrue(any(ranks), ranks)


if __name__ == "__main__":
    program_runs.main()
