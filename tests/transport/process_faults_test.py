"""Real processes: what happens when a rank stops, dies, leaves early, or is slow.

usage: process_faults_test.py PROGRAM LAUNCHER [unittest arguments]     LAUNCHER: mpirun or tests/support/gloo_run.py
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LAUNCHER = sys.argv[1:3]
IS_GLOO = LAUNCHER.endswith("gloo_run.py")
FLAGS = ["--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader", "--mca", "mpi_yield_when_idle", "1"]


class Job:
    """Runs `name` on `ranks` processes. A job that hangs fails the test, with its output so far."""

    def __init__(self, name, ranks):
        with tempfile.TemporaryDirectory() as directory:
            run = subprocess.run(
                [LAUNCHER, "-n", str(ranks), *FLAGS, PROGRAM, name, directory],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
            self.code, self.output = run.returncode, run.stdout
            self.notes = {int(file.suffix[1:]): file.read_text() for file in pathlib.Path(directory).glob("rank.*")}


class ProcessFaults(unittest.TestCase):
    def test_all_waiting_ranks_name_a_stopped_rank_which_may_continue(self):
        job = Job("stop", 3)
        self.assertEqual(job.code, 0, job.output)
        self.assertRegex(job.notes[1], r"^rank 1 waits for 1RECV_F5 from rank 0, which has not responded for "
                         r"\d\.\d s, last at 0F5 \(no sign of life for 1 s\)$|^rank 1 waits for 1RECV_F5 from rank 0, "
                         r"which has never answered \(no sign of life for 1 s\)$")
        # Rank 1 may have failed a moment before rank 2: then it no longer waits.
        self.assertRegex(job.notes[2], r"^rank 2 waits for 2RECV_F5 from rank 1, which is at start since \d\.\d s"
                         r"(, waiting for rank 0, which .*)? \(no sign of life for 1 s\)$")

    def test_a_live_rank_may_take_any_time_even_at_the_end_of_a_chain(self):
        job = Job("slow", 4)
        self.assertEqual(job.code, 0, job.output)
        self.assertEqual(job.notes, {1: "got 7", 2: "got 7", 3: "got 7"})

    def test_a_stall_limit_detects_a_live_rank_without_progress(self):
        job = Job("stall", 3)
        self.assertRegex(job.notes[1],
                         r"^rank 1 waits for 1RECV_F5 from rank 0, which is at 0F5 in step 12 since \d\.\d s "
                         r"\(no progress for 1 s, the stall limit\)$")

    def test_a_rank_that_sent_a_message_is_not_reported_as_never_answering(self):
        job = Job("heard", 2)
        self.assertRegex(job.notes[1], r"^rank 1 waits for 1RECV_F5 from rank 0, which has not responded for \d\.\d s, "
                         r"last heard of at 0SEND_F0 in step 5012 \(no sign of life for 1 s\)$")

    def test_a_wait_for_a_rank_that_left_fails(self):
        job = Job("left", 2)
        self.assertEqual(job.notes[1],
                         "rank 1 waits for 1RECV_F5 from rank 0, which has left the world, and sends nothing "
                         "any more")

    def test_a_killed_rank_ends_the_job(self):
        job = Job("kill", 3)
        self.assertNotEqual(job.code, 0)
        # mpirun ends the others a second later: until then they can say what they know.
        died = r"rank 0 has died: its process \d+ has ended, last heard of at 2SEND_B3 in step 5012; rank [12] was at "
        if IS_GLOO:
            died += r"|rank 0 has died or cannot be reached: .*, last heard of at 2SEND_B3 in step 5012; rank [12] was at "
            self.assertEqual(len(job.notes), 2, job.output)
        self.assertRegex(" ".join(job.notes.values()), died)

    def test_a_finished_rank_waits_for_the_others_as_long_as_they_live(self):
        job = Job("early_end", 3)
        self.assertEqual(job.code, 0, job.output)
        self.assertEqual(job.notes, {rank: "ended" for rank in range(3)})

    def test_a_rank_that_stops_before_the_end_does_not_hold_the_others(self):
        for case in "stopped_end", "stopped_end_with_a_long_message":
            with self.subTest(case):
                job = Job(case, 2)
                self.assertEqual(job.notes.get(1), "ended", job.output)
                reason = "all work is done here, but rank 0, which .*answer"
                # What Gloo has received when a connection breaks may be lost with it.
                if IS_GLOO:
                    reason += "|rank 1 has died or cannot be reached"
                self.assertRegex(job.notes.get(0, ""), reason)

    def test_a_tag_used_twice_ends_the_world(self):
        job = Job("twice", 2)
        for rank in range(2):
            self.assertRegex(job.notes.get(rank, ""), "rank 0 sent two messages with one tag to rank 1", job.output)

    @unittest.skipUnless(IS_GLOO, "MPI writes to its connections in its own way")
    def test_a_closed_connection_does_not_end_a_rank_without_a_word(self):
        job = Job("closed_connection", 2)
        self.assertEqual(job.code, 0, job.output)
        self.assertEqual(job.notes, {0: "goes on", 1: "goes on"}, job.output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
