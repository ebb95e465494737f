"""Weight files: saved and continued by `train`, evaluated by `evaluate`, run by `infer`; the network is taken from
the file.

Usage: weights_test.py PENSTOCK DATA [MPIRUN]; see program_runs.py.
"""

import json
import os
import re
import signal
import struct
import sys
import zipfile

sys.dont_write_bytecode = True
import program_runs
from program_runs import TEST_SAMPLES, TRAIN_SAMPLES, ProgramRuns

SMALL_GPT = ["--model", "gpt", "--layers", "2", "--width", "16", "--heads", "2", "--context", "16"]
TEXT = "the quick brown fox jumps over the lazy dog, and the dog sleeps on; " * 12


class Weights(ProgramRuns):
    def save(self, *flags):
        """Trains an epoch of `--hidden 32,16`; returns the test result from the last line of its JSON."""
        self.output_of(*self.train("--log-every", "0", "--stages", "2", "--save-weights", "w.safetensors", "--json",
                                   "steps.jsonl", *flags))
        return json.loads(self.read("steps.jsonl").splitlines()[-1])

    def evaluated(self, *flags, ranks=None):
        self.output_of("evaluate", "--weights", "w.safetensors", "--json", "out.json", *flags, ranks=ranks)
        return json.loads(self.read("out.json"))

    def metadata(self, **changes):
        """Of the saved file, in which it is written anew with `changes`."""
        content = self.read_bytes("w.safetensors")
        length, = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + length])
        header["__metadata__"].update(changes)
        text = json.dumps(header).encode()
        with open(self.path("w.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + content[8 + length:])
        return header["__metadata__"]

    def test_evaluation_equals_that_of_training(self):
        trained = self.save("--lr", "0.1")
        self.assertEqual(self.metadata()["penstock.weights"], "1")
        data = ["--data", self.small_set]
        wanted = {name: trained[name] for name in ("test_loss", "test_accuracy", "test_samples")}
        self.assertEqual(wanted["test_samples"], TEST_SAMPLES)
        for layout in ([], ["--stages", "2"], ["--stages", "2", "--schedule", "zb-v"]):
            self.assertEqual(self.evaluated(*data, *layout), wanted, layout)
        if program_runs.MPIRUN:
            self.assertEqual(self.evaluated(*data, "--stages", "2", ranks=2), wanted)
        # A forward pass takes every setting of the pipeline, what is measured included, but no training schedule.
        self.assertEqual(self.evaluated(*data, "--stages", "2", "--partition", "time"), wanted)
        self.assert_refused(["evaluate", "--weights", "w.safetensors", *data],
                            (["--schedule", "auto"], "--schedule auto measures training steps"),
                            (["--memory-limit", "1GiB"], "--memory-limit 1GiB limits training steps"))
        told = self.output_of("evaluate", "--weights", "w.safetensors", *data)
        self.assertRegex(told, rf"^test: loss is \S+, accuracy is \S+, over {TEST_SAMPLES} samples\n$")

    def test_training_goes_on_from_a_file(self):
        """Every step uses the whole set, so the second loss is that of the weights after the first step."""
        whole = ["--batch-size", str(TRAIN_SAMPLES), "--no-shuffle", "--lr", "0.1", "--log-every", "1"]
        both = self.output_of(*self.train(*whole, "--steps", "2")).splitlines()
        self.output_of(*self.train(*whole, "--steps", "1", "--save-weights", "w.safetensors"))
        # The widths of the hidden layers are in the file.
        go_on = ["train", "--data", self.small_set, "--weights", "w.safetensors", *whole, "--steps", "1"]
        for layout in ([], ["--stages", "2"]):
            loss = self.output_of(*go_on, *layout).split("loss is ")[1].strip()
            self.assertEqual(loss, both[1].split("loss is ")[1])

    def test_an_interrupted_training_saves_its_weights(self):
        for by, ranks in ((signal.SIGINT, None), (signal.SIGUSR1, 2)):
            if ranks and not program_runs.MPIRUN:
                continue
            run = self.start(*self.train("--stages", "2", "--steps", "1000000000", "--log-every", "1", "--save-weights",
                                         "w.safetensors"), ranks=ranks)
            self.assertEqual(run.stdout.readline()[:16], "epoch: 0 step: 0")
            run.send_signal(by)
            _, err = run.communicate()
            ended = re.search(rf"ended before its goal, after step (\d+): signal {by.value}; its weights are in "
                              r"w\.safetensors", err)
            self.assertIsNotNone(ended, err)
            self.assertEqual(run.returncode, 128 + by.value)
            interrupted = self.read_bytes("w.safetensors")
            self.output_of(*self.train("--stages", "2", "--steps", ended[1], "--save-weights", "w.safetensors"))
            self.assertEqual(self.read_bytes("w.safetensors"), interrupted)

    def test_weights_that_an_interrupted_training_cannot_save(self):
        for ranks in (None, 2) if program_runs.MPIRUN else (None,):
            os.makedirs(self.path("out"))
            run = self.start(*self.train("--stages", "2", "--steps", "1000000000", "--log-every", "1", "--save-weights",
                                         "out/w.safetensors"), ranks=ranks)
            run.stdout.readline()
            os.rmdir(self.path("out"))
            run.send_signal(signal.SIGUSR1)
            _, err = run.communicate()
            self.assertIn(run.returncode, (1, 2), err)  # that of the failure, in all processes
            self.assertIn("out/w.safetensors", err)
            self.assertNotIn("ended before its goal", err)

    def test_a_file_and_a_flag_that_disagree(self):
        self.save("--steps", "1")
        on_data = ["--data", self.small_set, "--weights", "w.safetensors"]
        for verb in (["train", "--steps", "1"], ["evaluate"]):
            self.assert_refused([*verb, *on_data],
                                (["--hidden", "8"], "w.safetensors holds the weights of a network with "
                                                    "--hidden 32,16, but --hidden 8 is given"),
                                (["--model", "gpt"], "with --model mlp, but --model gpt is given"))
        self.assert_refused(["infer", "--weights", "w.safetensors"],
                            (["--classes", "12"], "with --classes 10, but --classes 12 is given"))
        self.output_of("infer", "--weights", "w.safetensors", "--hidden", "32,16", "--model", "mlp")
        self.assert_refused(["evaluate"], ([], "--weights is required"))

    def test_a_part_of_a_checkpoint_is_refused_with_the_fix(self):
        self.output_of(*self.train("--steps", "1", "--stages", "2", "--checkpoint", "run"))
        checkpoint = os.path.join("run", "step-00000001")
        for path, what, folder in (
                (f"{checkpoint}/model-00001-of-00002.safetensors", "is one of 2 files", checkpoint),
                (f"{checkpoint}/model.safetensors.index.json", "is the index of several files", checkpoint),
                (checkpoint, "is a folder", checkpoint), ("run", "is a folder", "run")):
            fix = f"penstock checkpoint export {folder} --output w.safetensors"
            for verb in (["infer"], ["evaluate", "--data", self.small_set]):
                self.assertEqual(self.complaint_of(*verb, "--weights", path),
                                 f"{path}: {what}, and --weights takes one .safetensors file with all weights: write "
                                 "it by " + fix.replace("w.safetensors", "FILE.safetensors"))
            self.output_of(*fix.split()[1:])
            self.output_of("infer", "--weights", "w.safetensors")

    def test_metadata_that_is_not_of_this_program_or_these_tensors(self):
        self.save("--steps", "1")
        for version, network, complaint in (
                ("2", '{"model":"mlp"}', "w.safetensors: its penstock.weights is 2, and this Penstock reads 1"),
                ("1", '{"model":', "its penstock.network describes no network"),
                ("1", '{"model":"mlp","hidden":"x"}', "its penstock.network has no valid 'hidden'"),
                ("1", '{"model":"mlp","hidden":[1e300]}', "its penstock.network has no valid 'hidden'"),
                *(("1", json.dumps(sizes), complaint) for sizes, complaint in (
                    ({"model": "mlp", "hidden": [1000000, 1000000]}, "describes a network of at least 1.00"),
                    ({"model": "mlp", "hidden": [1] * 1000}, "describes 1000 layers, and it has 6 tensors"),
                    ({"model": "gpt", "layers": 10 ** 12, "width": 4}, "describes a network of at least "),
                    ({"model": "gpt", "layers": 100, "width": 4, "context": 4}, "describes 100 layers"),
                    ({"model": "gpt", "layers": 1, "width": 1, "context": 10 ** 9}, "describes a network of at least "),
                    ({"model": "resnet18", "width": 100000}, "describes a network of at least "),
                    ({"model": "resnet50", "width": 1 << 62}, "describes a network of at least "),
                    ({"model": "unet", "width": 1, "image_size": 100000},
                     "describes images of 100000 pixels a side")))):
            self.metadata(**{"penstock.weights": version, "penstock.network": network})
            self.assert_refused(["infer", "--weights", "w.safetensors"], ([], complaint))

    def test_files_of_torch_are_refused_with_their_conversion(self):
        with zipfile.ZipFile(self.path("w.pt"), "w") as archive:
            archive.writestr("w/data.pkl", b"\x80\x02}q\x00.")
        with open(self.path("w.pt"), "r+b") as file:  # torch writes version 0, and flags
            file.seek(4)
            file.write(b"\0\0\x08\x08")
        with open(self.path("old.pt"), "wb") as file:
            file.write(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.")
        for name in ("w.pt", "old.pt"):
            told = self.complaint_of("infer", "--weights", name)
            for text in (f"'{name}' is a file of torch.save, which is not read", "PyTorch 2.10 or later",
                         "safetensors.torch.save_file(torch.load('FILE.pt', weights_only=True), 'FILE.safetensors')"):
                self.assertIn(text, told)

    def test_infer_reads_the_model_from_the_file(self):
        self.write("some.txt", TEXT)
        self.output_of("train", "--data", "some.txt", *SMALL_GPT, "--batch-size", "8", "--micro-batches", "2",
                       "--steps", "2", "--log-every", "0", "--save-weights", "w.safetensors")
        out = self.output_of("infer", "--weights", "w.safetensors", "--generate", "5", "--prompt", "the ", "--stages",
                             "2")
        self.assertTrue(out.startswith("prompt 0\nthe "), out)
        told = self.evaluated("--data", "some.txt", "--batch-size", "8")
        self.assertEqual(sorted(told), ["test_accuracy", "test_loss", "test_samples"])
        self.write("other.txt", TEXT.upper())
        self.assert_refused(["evaluate", "--weights", "w.safetensors", "--data"],
                            (["other.txt"], "was saved from a model of"))


if __name__ == "__main__":
    program_runs.main()
