#!/usr/bin/env python3
"""Values of the environment, home folders and passwords of URLs reach no output and no file of a job.

Usage: secrets_test.py PENSTOCK DATA [MPIRUN]; see tests/cli/program_runs.py.
"""
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import program_runs
from program_runs import ENVIRONMENT, ProgramRuns, has_gloo, of_mpi

SECRET = "xyzzy42"
URL = f"https://user:{SECRET}@host/data"
# As sed would print it too: SECRET as UTF-16 or base64 is not looked for, because nothing here encodes text.


class Secrets(ProgramRuns):
    def setUp(self):
        super().setUp()
        # Folders whose names are secrets, as that of a user may be.
        self.home = os.path.join(self.folder, "home-" + SECRET)
        self.data = os.path.join(self.home, "data-" + SECRET)
        os.mkdir(self.home)
        self.work = os.path.join(self.folder, "work")
        os.mkdir(self.work)
        self.environment = {**ENVIRONMENT, "SECRET_TOKEN": SECRET, "HOME": self.home, "PENSTOCK_DATA": self.data,
                            "OMP_NUM_THREADS": SECRET, "PENSTOCK_UNKNOWN": SECRET}
        del self.environment["XDG_CACHE_HOME"]

    def run_in_work(self, *arguments, ranks=None, code=0):
        done = subprocess.run(self.command(arguments, ranks), cwd=self.work, env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=program_runs.WATCHDOG_S)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotIn(SECRET, done.stdout)
        self.assertNotIn(SECRET, done.stderr)
        return done.stdout + done.stderr

    def assert_no_file_holds_it(self, *roots):
        found = []
        for root in roots:
            for folder, _, names in os.walk(root):
                for name in names:
                    with open(os.path.join(folder, name), "rb") as file:
                        if SECRET.encode() in file.read() or SECRET in name:
                            found.append(os.path.join(folder, name))
        self.assertEqual(found, [])

    def outputs(self):
        """A training with all its outputs."""
        return self.train("--stages", "2", "--steps", "3", "--json", "steps.jsonl", "--trace", "trace.json",
                          "--tensorboard", "tb", "--save-weights", "w.safetensors", "--dump", "dump")

    def test_a_training_with_all_its_outputs(self):
        self.run_in_work(*self.outputs(), "--schedule", "auto", "--micro-batches", "2", "--checkpoint", "run")
        for name in ("steps.jsonl", "trace.json", "w.safetensors", "tb", "run/step-00000003"):
            self.assertTrue(os.path.exists(os.path.join(self.work, name)), name)
        cached = os.path.join(self.home, ".cache", "penstock")
        self.assertTrue(os.listdir(cached), "nothing was measured")
        self.assert_no_file_holds_it(self.work, cached)
        self.run_in_work("trace", "report", "trace.json", "--json", "report.json")
        self.run_in_work("infer", "--weights", "w.safetensors")
        self.run_in_work("train", "--resume", "run", "--steps", "5")
        self.assert_no_file_holds_it(self.work)

    @of_mpi
    def test_a_job_of_processes(self):
        self.run_in_work(*self.outputs(), ranks=2)
        self.assert_no_file_holds_it(self.work)

    def test_a_launched_job(self):
        if not has_gloo():
            self.skipTest("this build has no Gloo")
        self.run_in_work("launch", "-n", "2", "--log-dir", "logs", "--", *self.outputs())
        self.assert_no_file_holds_it(self.work)

    def test_the_program_below_the_home_folder(self):
        """The program's own path is known from no argument."""
        inside = os.path.join(self.home, "prefix")
        os.symlink(os.path.dirname(os.path.dirname(program_runs.PROGRAM)), inside)
        self.addCleanup(os.remove, inside)
        for arguments in (["--help"], ["doctor"], ["train", "--data", "nowhere"]):
            done = subprocess.run([os.path.join(inside, "bin", "penstock"), *arguments], cwd=self.work, text=True,
                                  env=self.environment, capture_output=True, timeout=program_runs.WATCHDOG_S)
            self.assertNotIn(SECRET, done.stdout + done.stderr)

    def test_folders_of_the_environment_are_named_by_their_variable(self):
        self.assertIn("no MNIST in '$PENSTOCK_DATA'", self.run_in_work("train", "--steps", "1", code=2))
        os.mkdir(self.data)
        shutil.copy(os.path.join(self.small_set, "train-labels-idx1-ubyte"), self.data)
        with open(os.path.join(self.data, "train-images-idx3-ubyte"), "w") as file:
            file.write("nothing")
        self.assertIn("'$PENSTOCK_DATA/train-images-idx3-ubyte' is not an IDX file",
                      self.run_in_work("train", "--steps", "1", code=2))
        self.assertIn("'~/none.safetensors'",
                      self.run_in_work("infer", "--weights", os.path.join(self.home, "none.safetensors"), code=2))

    def test_passwords_of_urls(self):
        for arguments in (["train", "--data", URL], ["train", "--data", URL, "--print-config"],
                          ["infer", "--model", "gpt", "--data", URL]):
            self.assertIn("this is a URL", self.run_in_work(*arguments, code=2))
        for arguments in (["infer", "--weights", URL], ["train", "--config", URL], ["train", "--plan", URL],
                          ["checkpoint", "show", URL], ["schedule", "show", URL + "/a.sched"], ["plan", "--costs", URL],
                          ["train", "--data", self.small_set, "--json", URL], ["trace", "report", URL]):
            self.assertIn("https://***@host/data", self.run_in_work(*arguments, code=2), arguments)
        self.assert_no_file_holds_it(self.work)

    def test_doctor_shows_no_values(self):
        out = self.run_in_work("doctor")
        self.assertTrue(re.search(r"OMP_NUM_THREADS says: \(no number\)", out), out)


if __name__ == "__main__":
    program_runs.main()
