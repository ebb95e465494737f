"""Real processes: a failure on one of them ends all, in time and with its cause; what can go on goes on.

usage: process_failures_test.py PROGRAM LAUNCHER [unittest arguments]
"""
import contextlib
import os
import signal
import subprocess
import sys
import time
import unittest

PROGRAM, LAUNCHER = sys.argv[1:3]
IS_GLOO = LAUNCHER.endswith("gloo_run.py")
FLAGS = ["--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader", "--mca", "mpi_yield_when_idle", "1"]


class Job:
    """Runs a case to its end. A job that hangs fails the test, with its output so far."""

    def __init__(self, name, ranks=2):
        begin = time.monotonic()
        run = subprocess.run([LAUNCHER, "-n", str(ranks), *FLAGS, PROGRAM, name], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=120)
        self.seconds = time.monotonic() - begin
        self.code, self.output = run.returncode, run.stdout
        self.said = [line.removeprefix("said: ") for line in self.output.splitlines() if line.startswith("said: ")]


def children_of(run):
    """The ranks of a job that starts: processes that run PROGRAM."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            if parent != run.pid:
                continue
            with open(f"/proc/{entry}/environ") as file:
                variables = dict(each.split("=", 1) for each in file.read().split("\0") if "=" in each)
            found[int(variables["RANK" if IS_GLOO else "OMPI_COMM_WORLD_RANK"])] = int(entry)
        except (OSError, KeyError):
            pass
    return found


def end_of(pids):
    """Whether all of them end soon: the launcher has killed them."""
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def start(case):
    """A job of three ranks, and their processes."""
    run = subprocess.Popen([LAUNCHER, "-n", "3", *FLAGS, PROGRAM, case], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
    ranks = {}
    while len(ranks) < 3 and run.poll() is None:
        ranks = children_of(run)
    return run, ranks


def tell(pid, signal_number):
    """Sends a signal to a process, which may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal_number)


class ProcessFailures(unittest.TestCase):
    def test_an_exception_on_one_main_thread_ends_all_and_is_named(self):
        job = Job("hook")
        self.assertNotEqual(job.code, 0)
        self.assertIn(job.said[0], ("rank 1 failed: the hook broke", "the hook broke"), job.output)
        self.assertLess(job.seconds, 30, job.output)  # far less than the deadline

    def test_an_exception_that_leaves_the_world_ends_all(self):
        job = Job("unwind")
        self.assertNotEqual(job.code, 0)
        self.assertIn("the hook broke", job.said, job.output)
        self.assertLess(job.seconds, 30, job.output)

    def test_other_processes_end_where_the_failed_one_lives_on(self):
        for case, reason in (("caught", "rank 1 failed: the hook broke"),
                             ("scope", "rank 1 left its pipeline through an exception, which it reports itself")):
            with self.subTest(case=case):
                job = Job(case)
                self.assertNotEqual(job.code, 0)
                self.assertEqual(len(job.said), 1, job.output)
                self.assertIn(reason, job.said[0])

    def test_exit_during_a_step_ends_all(self):
        job = Job("exit")
        self.assertNotEqual(job.code, 0)
        self.assertLess(job.seconds, 30, job.output)

    def test_a_process_that_leaves_early_is_named(self):
        job = Job("early")
        self.assertNotEqual(job.code, 0)
        self.assertIn("rank 1, which has left the world, and sends nothing any more", job.said[0], job.output)
        self.assertLess(job.seconds, 30, job.output)

    def test_a_last_step_that_fails_ends_the_job_with_its_cause(self):
        cause = r"rank 1 \(stage 1\) failed at 1{}0 of step 5: the layer broke"
        for case, instruction in (("last", "F"), ("last_backward", "B"), ("last_finish", "F")):
            with self.subTest(case=case):
                job = Job(case)
                self.assertNotEqual(job.code, 0, job.output)
                self.assertRegex(job.output, cause.format(instruction))

    def test_a_pause_of_several_deadlines_is_no_failure(self):
        job = Job("pause")
        self.assertEqual((job.code, job.output), (0, "all steps are done\n"))

    def test_a_wrong_width_ends_one_step_alone(self):
        job = Job("width")
        self.assertEqual((job.code, job.output), (0, "all goes on\n"))

    def test_an_invalid_loss_is_named_as_under_threads(self):
        threads = subprocess.run([PROGRAM, "invalid"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 timeout=120)
        self.assertEqual(threads.returncode, 0, threads.stdout)
        self.assertIn("the loss of training step 1 is nan in micro-batch 3 (stage 1): the output of '", threads.stdout)
        self.assertIn("' (stage 0), which stage 1 receives, is not finite", threads.stdout)
        job = Job("invalid")
        self.assertEqual((job.code, job.output), (0, threads.stdout))

    def test_successive_worlds_after_a_failure_and_concurrent_worlds(self):
        job = Job("worlds")
        self.assertEqual((job.code, job.output), (0, "four worlds more\n"))

    def test_a_wait_of_a_checkpoint_that_fails_ends_all(self):
        job = Job("half_saved")
        self.assertNotEqual(job.code, 0, job.output)
        self.assertRegex(job.said[0],
                         "rank 1 waits for the name of the checkpoint's directory from rank 0, .*no progress for")
        self.assertLess(job.seconds, 30, job.output)

    def test_a_process_that_is_stopped_before_the_world_is_complete_ends_all(self):
        # From before the program runs to after its world is complete.
        outputs = []
        for delay in (0.0, 0.1, 0.3, 0.6, 1.0):
            with self.subTest(delay=delay):
                run, ranks = start("start")
                time.sleep(delay)
                os.kill(ranks[1], signal.SIGSTOP)
                begin = time.monotonic()
                output, _ = run.communicate(timeout=60)
                self.assertNotEqual(run.returncode, 0, output)
                self.assertRegex(output, r"said: .*rank 1\b.*(stopped|has not joined|no sign of life)")
                self.assertLess(time.monotonic() - begin, 20, output)
                self.assertTrue(end_of(ranks.values()), output)
                outputs.append(output)
        self.assertRegex("".join(outputs),
                         r"said: the world is incomplete after 2 s \(the start deadline\): rank 1 has "
                         "not joined: start all ranks, or set a longer start deadline")

    def test_a_start_may_be_stopped_for_longer_than_its_deadline(self):
        # As by Ctrl-Z: all ranks, rank 1 first, so that the others already wait for it.
        for delay in (0.3, 0.7):
            with self.subTest(delay=delay):
                run, ranks = start("paused_start")
                time.sleep(delay)
                for rank in (1, 0, 2):
                    tell(ranks[rank], signal.SIGSTOP)
                    time.sleep(0.1)
                time.sleep(3)
                for pid in ranks.values():
                    tell(pid, signal.SIGCONT)
                output, _ = run.communicate(timeout=60)
                self.assertEqual(run.returncode, 0, output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
