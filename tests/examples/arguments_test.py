"""Examples parse their arguments as `penstock` does, and find their data from any folder.

    arguments_test.py PROGRAM...
"""
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[1:]}
del sys.argv[1:]

# Invalid arguments of each example and the error message.
MISUSE = {
    "char_gpt": [(["abc"], "STEPS abc: pass a whole number"), (["0"], "STEPS: 0 is too small: give 1 or more"),
                 (["99999999999999999999"], "is too large for a 64-bit number")],
    "mnist_annotated": [(["--stpes", "3"], "unknown flag '--stpes': did you mean '--steps'?"),
                        (["--steps", "3x"], "--steps 3x: pass a whole number"),
                        (["--steps", "-3"], "--steps: -3 is too small: give 0 or more"),
                        (["steps"], "unexpected argument 'steps'")],
    "mnist_benchmark": [(["0"], "STEPS: 0 is too small: give 1 or more"),
                        (["many"], "STEPS many: pass a whole number")],
    "own_schedule": [(["nowhere.sched"], "nowhere.sched"), (["a", "b"], "unexpected argument 'b'")],
    "resnet_annotated": [(["32", "5", "hot"], "RATE hot: pass a number"), (["0"], "IMAGE_SIZE: 0 is too small")],
    "resnet_trainer": [(["--autoagument"], "unknown flag '--autoagument': did you mean '--autoaugment'?"),
                       (["0"], "CHUNKS: 0 is too small"), (["1", "-1"], "EPOCHS: -1 is too small")],
    "tied_inference": [(["brodcast"], "CHOICE: brodcast not in {broadcast,table}")],
    "masked_transformer": [(["0"], "EPOCHS: 0 is too small")],
    "resumable": [(["--stage", "2"], "unknown flag '--stage'"), (["--steps", "-1"], "-1")],
    "siamese": [(["--epochs"], "unknown flag '--epochs'")],
    "vae": [(["few"], "EPOCHS few: pass a whole number")],
    "unet_skip": [(["4.5"], "STEPS 4.5: pass a whole number")],
}


class ExampleArguments(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name  # a folder without data

    def run_program(self, name, *arguments, **environment):
        variables = {key: value for key, value in os.environ.items() if key != "PENSTOCK_DATA"}
        run = subprocess.run([PROGRAMS[name], *arguments], cwd=self.folder, env={**variables, **environment},
                             capture_output=True, text=True, timeout=100, check=False)
        return run.returncode, run.stdout, run.stderr

    def test_help(self):
        for name in MISUSE:
            code, out, err = self.run_program(name, "--help")
            self.assertEqual((code, err), (0, ""), name)
            self.assertIn(f"Usage: {name} [OPTIONS]", out)

    def test_misuse_is_reported_in_one_line(self):
        for name, cases in MISUSE.items():
            for arguments, message in cases:
                code, out, err = self.run_program(name, *arguments)
                self.assertEqual((code, out), (2, ""), (name, arguments, err))
                self.assertIn(message, err)
                self.assertEqual(err.count("\n"), 1, err)

    def test_the_first_program_takes_no_arguments(self):
        self.assertEqual(self.run_program("1_mnist_mlp", "--epochs", "3"),
                         (2, "", "usage: 1_mnist_mlp   (it takes no arguments)\n"))

    def test_under_mpirun_one_process_reports(self):
        self.assertEqual(self.run_program("unet_skip", "x", OMPI_COMM_WORLD_RANK="1"), (2, "", ""))

    def test_data_is_found_from_any_folder(self):
        code, out, err = self.run_program("mnist_annotated", "--steps", "1")
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"^epoch: 0 step: 0, loss is 9\.")
        code, out, err = self.run_program("own_schedule")
        self.assertEqual(code, 0, err)

    def test_data_that_is_missing(self):
        for name, wanted in (("mnist_annotated", 2), ("1_mnist_mlp", 1)):
            code, _, err = self.run_program(name, PENSTOCK_DATA=self.folder)
            self.assertEqual(code, wanted, (name, err))
            self.assertIn(f"no MNIST in '{self.folder}' or its folder mnist", err)


if __name__ == "__main__":
    unittest.main()
