#!/usr/bin/env python3
"""Nothing is left of a job that was killed: no process, and nothing in /dev/shm and the folder of temporary files.

Usage: leftovers_test.py PENSTOCK DATA [MPIRUN]; see tests/cli/program_runs.py. It runs with a /dev/shm of its own, in
which no other job works, and ends with 77, which means skipped, where none can be had.
"""
import os
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import program_runs
from program_runs import ENVIRONMENT, ProgramRuns, of_mpi, still_running

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from network_test import descendants


OWN_SHM = "PENSTOCK_TEST_HAS_ITS_OWN_SHM"


def enter_own_shared_memory():
    """Starts this program again in a namespace where /dev/shm is empty."""
    if os.environ.get(OWN_SHM):
        return
    mount = "mount -t tmpfs tmpfs /dev/shm"
    try:
        possible = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode == 0
    except FileNotFoundError:
        possible = False
    if not possible:
        print("skipped: no namespace of its own can be made here")
        sys.exit(77)
    os.environ[OWN_SHM] = "1"
    os.execvp("unshare", ["unshare", "-rm", "sh", "-c", mount + ' && exec "$@"', "sh", sys.executable, *sys.argv])


class Leftovers(ProgramRuns):
    def setUp(self):
        super().setUp()
        self.temporary = tempfile.mkdtemp(dir="/tmp")  # a short path, as Open MPI's sockets need it
        self.addCleanup(subprocess.run, ["rm", "-rf", self.temporary])

    def killed(self, command, sent, to_rank):
        """Starts a job, sends a signal to it, or to one of its ranks, once it trains, and waits for its end."""
        self.assertEqual(os.listdir("/dev/shm"), [])
        run = subprocess.Popen(command, cwd=self.folder, env={**ENVIRONMENT, "TMPDIR": self.temporary}, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            for line in run.stdout:  # until it trains
                if "loss" in line:
                    break
            below = descendants(run.pid)
            names = {pid: os.path.basename(os.readlink(f"/proc/{pid}/exe")) for pid in below}
            ranks = [pid for pid, name in names.items() if name == "penstock-runtime"]
            os.kill(ranks[-1] if to_rank else run.pid, sent)
            run.stdout.read()
            code = run.wait(program_runs.WATCHDOG_S)
        finally:
            for pid in [run.pid, *descendants(run.pid)] if run.poll() is None else []:
                os.kill(pid, signal.SIGKILL)
            run.wait()
            run.stdout.close()
        self.assertNotEqual(code, 0)
        self.assertEqual(still_running([run.pid, *below]), [])
        self.assertEqual(os.listdir("/dev/shm"), [])
        left = [os.path.join(folder, name) for folder, _, names in os.walk(self.temporary) for name in names]
        self.assertEqual(left, [])
        return code

    def endless(self):
        return self.train("--stages", "2", "--steps", "1000000", "--log-every", "1")

    def test_threads(self):
        for sent in (signal.SIGKILL, signal.SIGSEGV):
            self.assertEqual(self.killed(self.command(self.endless()), sent, to_rank=False), -sent)

    @of_mpi
    def test_a_rank_of_mpirun_that_is_killed(self):
        for sent in (signal.SIGKILL, signal.SIGSEGV):
            self.killed(self.command(self.endless(), 2), sent, to_rank=True)

    @of_mpi
    def test_mpirun_that_is_told_to_end(self):
        self.killed(self.command(self.endless(), 2), signal.SIGTERM, to_rank=False)


if __name__ == "__main__":
    enter_own_shared_memory()
    program_runs.main()
