"""The verb `checkpoint`: standard output, standard error, exit code. It needs no LibTorch.

Usage: checkpoint_verb_test.py PENSTOCK CHECKPOINTS, with the program and a folder with checkpoints of steps 3 and 5.
"""

import json
import os
import shutil
import stat
import struct
import sys
import unittest

sys.dont_write_bytecode = True
import program_runs
from program_runs import VerbRuns

CHECKPOINTS = ""


def tensors_of(path):
    """The bytes of each tensor of a .safetensors file."""
    with open(path, "rb") as file:
        whole = file.read()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:8 + length])
    header.pop("__metadata__", None)
    data = whole[8 + length:]
    return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}


class CheckpointVerb(VerbRuns):
    def setUp(self):
        super().setUp()
        self.checkpoints = self.path("run")
        shutil.copytree(CHECKPOINTS, self.checkpoints)

    def run_program(self, *arguments, **how):
        return super().run_program("checkpoint", *arguments, **how)

    def complaint_of(self, *arguments):
        """The one line of standard error; standard output lists checkpoints."""
        code, _, err = self.run_program(*arguments)
        self.assertEqual(code, 2, err)
        self.assertTrue(err.startswith("penstock: ") and err.count("\n") == 1, err)
        return err[len("penstock: "):-1]

    def damage(self, path):
        super().damage("run", path)

    def test_show_lists_and_describes(self):
        out = self.output_of("show", "run")
        self.assertRegex(out, r"^step-00000005: 8 tensors, 1\.3 kB\nstep-00000003: 8 tensors, 1\.3 kB\n\n")
        self.assertIn("5 steps done, of which 5 in epoch 0; seed 18446744073709551615, of the data 7\n", out)
        self.assertIn("4 micro-batches, 1 replica, 1 thread per rank, kernels fixed, precision fp32", out)
        self.assertIn("state hook.early_stop: best 0.25 name 'loss' waited 2\n", out)
        self.assertRegex(out, r"\n +1 +optimizer +1 +136 +optimizer-00002-of-00002.safetensors\n")
        for one in ("run/step-00000003", "run/step-00000003/"):
            self.assertTrue(self.output_of("show", one).startswith(one + ": 8 tensors"))
        self.damage("step-00000005/manifest.json")
        out = self.output_of("show", "run")
        self.assertTrue(out.startswith("step-00000005: damaged: 'run/step-00000005/manifest.json' is damaged"), out)
        self.assertIn("3 steps done", out)

    def test_show_tells_damage_from_what_cannot_be_read(self):
        manifest = os.path.join(self.checkpoints, "step-00000005/manifest.json")
        os.remove(manifest)
        os.mknod(manifest, stat.S_IFSOCK | 0o600)  # which the system refuses to open, for root, too
        out = self.output_of("show", "run")
        self.assertRegex(out, r"^step-00000005: not readable: cannot open 'run/step-00000005/manifest\.json'")
        self.assertIn("\nstep-00000003: 8 tensors", out)

    def test_show_ends_with_2_if_none_is_complete(self):
        for step in (3, 5):
            self.damage(f"step-0000000{step}/manifest.json")
        code, out, err = self.run_program("show", "run")
        self.assertEqual((code, err), (2, "penstock: run: there is no complete checkpoint\n"))
        self.assertEqual([line[:23] for line in out.splitlines()],
                         ["step-00000005: damaged:", "step-00000003: damaged:"])
        self.assertIn("'run/step-00000003/manifest.json' is damaged", self.complaint_of("show", "run/step-00000003"))

    def test_verify_names_file_and_tensor(self):
        self.assertEqual(self.output_of("verify", "run"),
                         "step-00000005: complete, 8 tensors, 1.3 kB\nstep-00000003: complete, 8 tensors, 1.3 kB\n")
        self.damage("step-00000005/model-00002-of-00002.safetensors")
        self.assertRegex(self.complaint_of("verify", "run"),
                         r"^'run/step-00000005/model-00002-of-00002.safetensors', tensor 'layer1.weight' is damaged: "
                         r"its checksum is \w{32}, and was \w{32} when it was written$")
        self.assertEqual(self.output_of("verify", "run/step-00000003"),
                         "step-00000003: complete, 8 tensors, 1.3 kB\n")
        self.damage("step-00000005/optimizer-00001-of-00002.safetensors")
        self.assertTrue(self.complaint_of("verify", "run/step-00000005").endswith(" (and 1 more)"))
        os.remove(os.path.join(self.checkpoints, "step-00000005/manifest.json"))
        self.assertEqual(self.complaint_of("verify", "run"),
                         "'run/step-00000005' is not a complete checkpoint: it has no manifest.json")

    def test_export_writes_one_file_or_several(self):
        self.assertEqual(self.output_of("export", "run", "--output", "all.safetensors"), "all.safetensors\n")
        everything = tensors_of(os.path.join(self.folder, "all.safetensors"))
        self.assertEqual(sorted(everything), sorted(f"layer{i}.{name}" for i in (0, 1)
                                                    for name in ("bias", "count", "weight")))
        self.assertEqual(everything["layer0.count"], struct.pack("<q", 5))
        self.output_of("export", "run/step-00000003", "--output", "old.safetensors")
        self.assertEqual(tensors_of(os.path.join(self.folder, "old.safetensors"))["layer0.count"],
                         struct.pack("<q", 3))
        out = self.output_of("export", "run", "--output", "part.safetensors", "--max-shard-size", "80")
        self.assertEqual(out.split(), ["part-00001-of-00002.safetensors", "part-00002-of-00002.safetensors",
                                       "part.safetensors.index.json"])
        with open(os.path.join(self.folder, "part.safetensors.index.json")) as file:
            index = json.load(file)
        self.assertEqual(index["metadata"]["total_size"], 144)
        for name, part in index["weight_map"].items():
            self.assertEqual(tensors_of(os.path.join(self.folder, part))[name], everything[name])

    def test_export_takes_the_newest_complete_one_and_compares_checksums(self):
        self.damage("step-00000005/model-00001-of-00002.safetensors")
        for flags in ([], ["--max-shard-size", "80"]):
            self.assertIn("tensor 'layer0.weight' is damaged",
                          self.complaint_of("export", "run/step-00000005", "--output", "all.safetensors", *flags))
            self.assertEqual(os.listdir(self.folder), ["run"])
        for skipped in ("'run/step-00000005/model-00001-of-00002.safetensors', tensor 'layer0.weight' is damaged",
                        "cannot open 'run/step-00000005/train.toml'"):
            code, out, err = self.run_program("export", "run", "--output", "all.safetensors")
            self.assertEqual((code, out), (0, "all.safetensors\n"), err)
            self.assertTrue(err.startswith("penstock: skipped: " + skipped) and err.count("\n") == 1, err)
            self.assertEqual(tensors_of(os.path.join(self.folder, "all.safetensors"))["layer0.count"],
                             struct.pack("<q", 3))
            os.remove(os.path.join(self.folder, "all.safetensors"))
            if skipped[0] == "'":
                os.remove(os.path.join(self.checkpoints, "step-00000005/train.toml"))
        self.damage("step-00000003/optimizer-00001-of-00002.safetensors")
        code, _, err = self.run_program("export", "run", "--output", "all.safetensors")
        self.assertEqual((code, err.splitlines()[-1]), (2, "penstock: run: there is no complete checkpoint"))
        self.assertEqual(os.listdir(self.folder), ["run"])

    def test_export_into_a_checkpoint_is_refused(self):
        before = self.output_of("verify", "run")
        for step in (3, 5):
            output = f"run/step-0000000{step}/model-00001-of-00002.safetensors"
            self.assertEqual(self.complaint_of("export", "run", "--output", output),
                             output + ": lies in the directory of a checkpoint, whose files must stay as they are: "
                                      "name a file in another folder")
        self.assertEqual(self.output_of("verify", "run"), before)
        self.output_of("export", "run", "--output", "run/all.safetensors")

    def test_sizes_of_shards(self):
        def files(size):
            out = self.output_of("export", "run", "--output", "all.safetensors", "--max-shard-size", size)
            return len(out.split())

        for size, count in (("80", 3), ("80B", 3), ("0.08kB", 3), ("0.08KB", 3), ("0.08k", 3), ("64b", 4), ("1KiB", 1),
                            ("500MB", 1), ("2GB", 1), ("2g", 1), ("1.5GB", 1)):
            self.assertEqual(files(size), count, size)
        self.assert_refused(["export", "run", "--output", "x.safetensors", "--max-shard-size"],
                            *(([size], f"--max-shard-size {size}: pass a positive number of bytes, such as 500MB")
                              for size in ("-1", "0", "0.5B", "many", "-1GB", "1.5XB", "B", "inf", "9e99GB", "",
                                           "2 3")))

    def test_errors_are_one_line(self):
        self.assertIn("the folder of checkpoints 'none' cannot be read", self.complaint_of("show", "none"))
        os.mkdir(os.path.join(self.folder, "empty"))
        for verb in (["show"], ["verify"], ["export", "--output", "x.safetensors"]):
            self.assertEqual(self.complaint_of(*verb, "empty"), "empty: there is no checkpoint")
        self.assertIn("ends with .safetensors", self.complaint_of("export", "run", "--output", "x.bin"))
        self.assertIn("no such folder", self.complaint_of("export", "run", "--output", "no/x.safetensors"))
        self.assertIn("which verb?", self.complaint_of())


if __name__ == "__main__":
    program_runs.PROGRAM, CHECKPOINTS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
