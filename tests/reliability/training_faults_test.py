"""Calls of the system that fail while a training saves: the former checkpoint stays, the error is named, and a training
that continues has the bits of one without failures.

Usage: training_faults_test.py FAULTY_CALLS PENSTOCK DATA [MPIRUN] [--all] [--gloo GLOO_RUN]

FAULTY_CALLS is the library of faulty_calls.cc. A training saves after steps 3 and 6, with threads and as two processes.
Of its calls that concern the folder of checkpoints, --all lets each meet every fault; the short form a few, one each.
"""
import os
import shutil
import subprocess
import unittest.mock

import training_runs
from training_runs import TrainingRuns, contents, transports

LIBRARY, ALL, GLOO_RUN = "", False, ""
ERRORS = {"ENOSPC": 28, "EIO": 5, "EDQUOT": 122}
UNNOTICED = {"EINTR": 4, "a short write": "short"}
FAULTS = {"death": "kill", **ERRORS, **UNNOTICED}


class TrainingFaults(TrainingRuns):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expected = None

    def training(self, run, *flags):
        return self.arguments("--steps", "6", "--checkpoint", run, "--checkpoint-every", "3steps", "--deadline", "3",
                              *flags)

    def undisturbed(self):
        if TrainingFaults.expected is None:
            self.finished(*self.training(self.fresh("undisturbed")))
            TrainingFaults.expected = contents(self.path("undisturbed"))
        return TrainingFaults.expected

    def with_fault(self, ranks, *, at=0, action="", rank=None, call="", end=""):
        """A training in a new folder, with a fault; `rank` is that of the process concerned. `at` counts all calls, or
        those named `call` whose path has that end."""
        run = self.fresh("run")
        environment = {"LD_PRELOAD": LIBRARY, "FAULTY_FOLDER": run, "FAULTY_AT": str(at), "FAULTY_DO": action,
                       "FAULTY_CALL": call, "FAULTY_END": end,
                       "FAULTY_LOG": self.path("calls.log"), **({"FAULTY_RANK": str(rank)} if ranks else {})}
        if os.path.exists(self.path("calls.log")):
            os.remove(self.path("calls.log"))
        return self.start(*self.training(run), ranks=ranks, environment=environment)

    def calls_of(self, ranks, rank):
        """The names of the calls of a process in their order."""
        training = self.with_fault(ranks, rank=rank)
        self.assertEqual(training.wait(), 0, training.text())
        with open(self.path("calls.log")) as log:
            return [line.split()[1] for line in log]

    def places(self):
        """(ranks, rank, number of the call, its name, fault) of all cases."""
        for ranks in transports(None, 2):
            for rank in range(ranks or 1):
                calls = self.calls_of(ranks, rank)
                self.assertGreater(len(calls), 30 if ranks else 90)
                faults = list(FAULTS)
                for at in range(1, len(calls) + 1) if ALL else range(11, len(calls), 31 if ranks else 12):
                    for fault in faults if ALL else [faults[at % len(faults)]]:
                        if fault != "a short write" or calls[at - 1] == "write":
                            yield ranks, rank, at, calls[at - 1], fault

    def test_a_fault_while_saving_loses_nothing(self):
        tried = 0
        for ranks, rank, at, call, fault in self.places():
            with self.subTest(ranks=ranks, rank=rank, at=at, call=call, fault=fault):
                training = self.with_fault(ranks, at=at, action=str(FAULTS[fault]), rank=rank)
                code = training.wait(60)
                # What is done about old checkpoints, and the reading of them, does not fail the new one.
                if fault in UNNOTICED or (fault in ERRORS and code == 0):
                    self.goes_unnoticed(training, fault, code)
                else:
                    self.leaves_the_former_checkpoint(training, fault, code, ranks)
                    if fault in ("death", "ENOSPC"):
                        self.goes_on()
                tried += 1
        print(f"{tried} faults", flush=True)

    def goes_unnoticed(self, training, fault, code):
        self.assertEqual((code, training.complaints()), (0, []), training.text())
        self.assertEqual(contents(self.path("run")), self.undisturbed())
        if fault in UNNOTICED:
            self.assertNotIn("warning", training.errors())

    def leaves_the_former_checkpoint(self, training, fault, code, ranks):
        run = self.path("run")
        self.assertGreaterEqual(self.verified(run), training.durable())
        if fault == "death":
            return self.assertNotEqual(code, 0, training.text())
        self.assertEqual(code, 1, training.text())
        complaints = training.complaints()
        if not ranks:  # processes that the failed one ends may have time to say why
            self.assertEqual(len(complaints), 1, training.text())
        self.assertRegex(complaints[0], rf"'{run}[^']*' .*\(errno {ERRORS[fault]}\)")
        left = os.listdir(run) if os.path.isdir(run) else []
        self.assertFalse([entry for entry in left if entry.startswith(".tmp-")], training.text())

    def goes_on(self):
        run = self.path("run")
        self.finished(*self.training(run, "--resume", "auto"))
        self.assertEqual(contents(run), self.undisturbed())
        self.assertEqual(sorted(os.listdir(run)), [".lock", "step-00000003", "step-00000006"])

    def test_a_disk_that_does_not_respond_is_named(self):
        """At a file, and at the directory that the program's thread waits for; also where another rank waits."""
        for launcher in [None, *filter(None, [training_runs.MPIRUN, GLOO_RUN])]:
            for rank in (0, 1) if launcher else (0,):
                with unittest.mock.patch.object(training_runs, "MPIRUN", launcher or training_runs.MPIRUN):
                    ranks = 2 if launcher else None
                    # Several threads write: which of their calls is the nth differs from run to run.
                    hung = [("fsync", ".safetensors", 1)]
                    if rank == 0:
                        hung.append(("mkdir", "", self.calls_of(ranks, rank).count("mkdir")))
                    for call, end, at in hung:
                        with self.subTest(launcher=launcher, rank=rank, call=call):
                            training = self.with_fault(ranks, at=at, action="hang", rank=rank, call=call, end=end)
                            self.assertNotEqual(training.wait(60), 0, training.text())
                            self.assertRegex(training.complaints()[0], rf"'{self.path('run')}/\.tmp-[36]-\w+(/.*)?': "
                                             rf"{call} has not returned for 3 s \(the deadline\)")
                            training.close()

    def test_a_full_disk_leaves_the_former_checkpoint(self):
        disk = self.fresh("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=480k", "tmpfs", disk], capture_output=True).returncode:
            self.skipTest("no file system can be mounted here")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        for ranks in transports(None, 2):
            run = os.path.join(disk, "run")
            shutil.rmtree(run, ignore_errors=True)
            training = self.start(*self.training(run), "--checkpoint-keep", "5", "--steps", "30", ranks=ranks)
            self.assertEqual(training.wait(), 1, training.text())
            complaints = training.complaints()
            self.assertEqual(len(complaints), 1 if not ranks else len(complaints), training.text())
            self.assertRegex(complaints[0], rf"^'{run}/\.tmp-\d+-\w+/[^']+' cannot be \w+.*: No space left on device "
                                            r"\(errno 28\)(, after \d+ of its \d+ bytes)?")
            newest = self.verified(run)
            self.assertGreaterEqual(newest, 3)
            self.assertEqual(newest, training.durable())
            os.makedirs(self.fresh("moved"))
            moved = shutil.copytree(run, os.path.join(self.path("moved"), "run"))
            self.finished("train", "--resume", moved, "--steps", "30", "--data", self.data)
            self.finished(*self.training(self.fresh("whole")), "--steps", "30")
            self.assertEqual(contents(moved), contents(self.path("whole")))


if __name__ == "__main__":
    LIBRARY, ALL, GLOO_RUN = training_runs.read_arguments("library", all=False, gloo="")
    training_runs.main()
