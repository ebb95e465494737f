"""The scripts that run an example under `penstock launch`: every process's log has the losses.

Usage: run_examples_test.py BUILD SOURCE
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = SOURCE = ""
WATCHDOG_S = 240


class RunExamples(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def run_script(self, name, *arguments, **variables):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("OMPI_", "PMI", "SLURM_", "PENSTOCK_"))}
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1",
                           **{"BUILD": BUILD, **variables})
        done = subprocess.run([os.path.join(SOURCE, "examples", name), *arguments], cwd=self.folder, env=environment,
                              capture_output=True, text=True, timeout=WATCHDOG_S)
        return done.returncode, done.stdout, done.stderr

    def read(self, *names):
        with open(os.path.join(self.folder, *names)) as file:
            return file.read()

    def test_every_rank_s_log_has_the_losses(self):
        if not os.path.exists(os.path.join(SOURCE, "data", "mnist")):
            self.skipTest("no MNIST here")
        for way in ("--loop", "--trainer"):
            code, out, err = self.run_script("run_mnist_annotated.sh", "4", way, "--steps", "21")
            self.assertEqual(code, 0, err)
            attempt = "1" if way == "--loop" else "2"
            logs = [self.read("log_output", attempt, f"rank.{rank}", "stdout") for rank in range(4)]
            self.assertRegex(logs[0],
                             r"^epoch: 0 step: 0, loss is \d.*\nepoch: 0 step: 10, .*\nepoch: 0 step: 20, .*\n$")
            self.assertEqual(logs, [out] * 4)

    def test_every_worker_s_log_has_its_output(self):
        code, _, err = self.run_script("run_tied_inference.sh", "4", "broadcast")
        self.assertEqual(code, 0, err)
        for worker in range(4):
            self.assertIn("logits of shape [8, 32]", self.read("pipeline_inference_logs", f"worker_{worker}.log"))

    def test_a_build_that_is_not_there(self):
        for name in ("run_mnist_annotated.sh", "run_mnist_benchmark.sh", "run_tied_inference.sh"):
            code, _, err = self.run_script(name, BUILD=os.path.join(self.folder, "none"))
            self.assertEqual(code, 2)
            self.assertIn("run scripts/build.sh first", err)


if __name__ == "__main__":
    BUILD, SOURCE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1], verbosity=2)
