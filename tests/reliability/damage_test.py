"""Bits that change and files that end too early in a checkpoint of a training: `checkpoint verify` names the file and
the tensor, and a training resumes from the checkpoint before.

Usage: damage_test.py PENSTOCK DATA [MPIRUN] [--flips N] [--ends N]

N random bits (default: 60) and N random lengths (30). The long form is --flips 1000 --ends 1000.
"""

import json
import os
import random
import shutil
import subprocess

import training_runs
from training_runs import TrainingRuns, newest_of

FLIPS, ENDS = 60, 30


class Damage(TrainingRuns):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = os.path.join(cls.folder, "run")

    def training(self, *flags):
        """In convolutions and batch normalisation there are tensors of several types and sizes."""
        return ["train", "--data", os.path.join(training_runs.DATA, "cifar10"), "--model", "resnet18", "--stem",
                "cifar",
                "--width", "4", "--optimizer", "adamw", "--stages", "2", "--batch-size", "32", "--log-every", "0",
                *flags]

    def setUp(self):
        if os.path.isdir(self.run_folder):
            return
        self.finished(*self.training("--steps", "2", "--checkpoint", self.run_folder, "--checkpoint-every", "1steps"))
        Damage.newest = os.path.join(self.run_folder, newest_of(self.run_folder))
        Damage.files = {name: self.read(name) for name in sorted(os.listdir(self.newest))}
        with open(os.path.join(self.newest, "manifest.json")) as file:
            Damage.manifest = json.load(file)

    def read(self, name):
        with open(os.path.join(self.newest, name), "rb") as file:
            return file.read()

    def write(self, name, data):
        with open(os.path.join(self.newest, name), "wb") as file:
            file.write(data)

    def flip(self, draw, name):
        data, at = bytearray(self.files[name]), draw.randrange(len(self.files[name]))
        data[at] ^= 1 << draw.randrange(8)
        self.write(name, data)
        return at

    def tensor_at(self, name, at):
        """The tensor that has the byte `at` of a file; none where it belongs to no tensor."""
        if not name.endswith(".safetensors"):
            return None
        begin = 8 + int.from_bytes(self.files[name][:8], "little")
        header = json.loads(self.files[name][8:begin])
        return next((tensor for tensor, entry in header.items() if tensor != "__metadata__"
                     and begin + entry["data_offsets"][0] <= at < begin + entry["data_offsets"][1]), None)

    def is_detected(self, name, tensor):
        done = subprocess.run([training_runs.PENSTOCK, "checkpoint", "verify", self.run_folder], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn(f"'{self.newest}/{name}'", done.stderr)
        if tensor:
            self.assertIn(f"tensor '{tensor}' is damaged", done.stderr)

    def test_a_changed_bit_is_detected(self):
        draw = random.Random(1)
        names = list(self.files)
        in_tensors = 0
        for number in range(FLIPS):
            name = draw.choice(names)
            at = self.flip(draw, name)
            tensor = self.tensor_at(name, at)
            in_tensors += tensor is not None
            with self.subTest(number=number, name=name, at=at):
                self.is_detected(name, tensor)
            self.write(name, self.files[name])
        print(f"{FLIPS} bits in {len(names)} files are detected, {in_tensors} of them with their tensor", flush=True)

    def test_a_training_resumes_from_the_checkpoint_before(self):
        draw = random.Random(3)
        for name in self.files:
            self.flip(draw, name)
            damaged = self.fresh("damaged")
            shutil.copytree(self.run_folder, damaged)
            self.write(name, self.files[name])
            with self.subTest(name=name):
                run = self.finished("train", "--resume", damaged, "--steps", "3", "--log-every", "1")
                self.assertIn(f"'{os.path.join(damaged, os.path.basename(self.newest), name)}'", run.errors())
                self.assertIn("step: 1,", run.output())
                self.assertNotIn("step: 0,", run.output())

    def test_a_missing_end_is_detected(self):
        draw = random.Random(2)
        names = list(self.files)
        for number in range(ENDS):
            name = names[number % len(names)]
            length = draw.randrange(len(self.files[name]))
            with self.subTest(name=name, length=length):
                self.write(name, self.files[name][:length])
                self.is_detected(name, None)
            self.write(name, self.files[name])
        print(f"{ENDS} missing ends are detected", flush=True)


if __name__ == "__main__":
    FLIPS, ENDS = training_runs.read_arguments(flips=FLIPS, ends=ENDS)
    training_runs.main()
