#!/usr/bin/env python3
"""Names in checkpoints that lead out of their directory: refused, and nothing outside of it is opened for writing.

Usage: paths_test.py PENSTOCK SEAL_PROGRAM CHECKPOINTS, with a folder of small checkpoints.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from program_runs import InFolder, can_trace

PENSTOCK = SEAL = CHECKPOINTS = ""
NEWEST = "step-00000005"
NAMES = ["../outside", "/etc/hostname", "..", ".", "", "a/b", ".hidden", "a" * 10_000, "a\nb", "a\x00b", "a\x1b[31m",
         "ä", "train.toml/", "manifest.json"]


class Paths(InFolder):
    def setUp(self):
        super().setUp()
        self.run_folder = self.path("run")
        shutil.copytree(CHECKPOINTS, self.run_folder)
        self.newest = os.path.join(self.run_folder, NEWEST)

    def run_program(self, *arguments):
        done = subprocess.run([PENSTOCK, *arguments], cwd=self.folder, capture_output=True, timeout=60)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def assert_refused(self, *arguments, text=""):
        code, _, err = self.run_program(*arguments)
        self.assertEqual(code, 2, err)
        self.assertTrue(err.startswith("penstock: "), err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertNotRegex(err[:-1], r"[\x00-\x1f]")
        self.assertIn(text, err)

    def change_manifest(self, change):
        """Writes the manifest with `change` applied to it, and its right checksum."""
        path = os.path.join(self.newest, "manifest.json")
        with open(path) as file:
            manifest = json.load(file)
        del manifest["checksum"]
        change(manifest)
        body = json.dumps(manifest)[1:].encode()
        with open(path, "wb") as file:
            file.write(subprocess.run([SEAL], input=body, capture_output=True, check=True).stdout)

    def test_a_changed_manifest_is_otherwise_valid(self):
        self.change_manifest(lambda manifest: None)
        self.assertEqual(self.run_program("checkpoint", "verify", self.newest)[0], 0)

    def test_names_in_the_manifest(self):
        for name in NAMES:
            for position in (0, -1):
                shutil.rmtree(self.newest)
                shutil.copytree(os.path.join(CHECKPOINTS, NEWEST), self.newest)
                self.change_manifest(lambda manifest: manifest["files"][position].update(name=name))
                for verb in ("show", "verify", "export"):
                    output = ["--output", "w.safetensors"] if verb == "export" else []
                    self.assert_refused("checkpoint", verb, self.newest, *output, text="names a file")
                self.assertFalse(os.path.exists(self.path("w.safetensors")), name)

    def test_names_in_the_index(self):
        """The index of a checkpoint is compared with its manifest; changed, its checksum does not match."""
        path = os.path.join(self.newest, "model.safetensors.index.json")
        with open(path) as file:
            index = json.load(file)
        for name in NAMES:
            index["weight_map"][next(iter(index["weight_map"]))] = name
            with open(path, "w") as file:
                json.dump(index, file)
            self.assert_refused("checkpoint", "verify", self.newest, text="is damaged")

    def test_symbolic_links(self):
        for name in sorted(os.listdir(self.newest)):
            outside = self.path("outside")
            path = os.path.join(self.newest, name)
            os.rename(path, outside)
            os.symlink(outside, path)
            self.assert_refused("checkpoint", "verify", self.newest, text="symbolic link")
            os.remove(path)
            os.rename(outside, path)
        self.assertEqual(self.run_program("checkpoint", "verify", self.newest)[0], 0)

    def test_a_pipe_in_place_of_a_file(self):
        for name in sorted(os.listdir(self.newest)):
            path = os.path.join(self.newest, name)
            os.rename(path, path + ".kept")
            os.mkfifo(path)
            self.assert_refused("checkpoint", "verify", self.newest, text="not a regular file")
            os.remove(path)
            os.rename(path + ".kept", path)

    def test_names_of_tensors_stay_on_one_line(self):
        def rename(manifest):
            manifest["files"][0]["tensors"][0]["name"] = "a\nb\x1b[31m"
        self.change_manifest(rename)
        self.assert_refused("checkpoint", "verify", self.newest, text="has other tensors than")

    def test_only_the_output_is_opened_for_writing(self):
        if not can_trace():
            self.skipTest("processes cannot be traced here")
        output = self.path("w.safetensors")
        for arguments in (["show", self.run_folder], ["verify", self.run_folder],
                          ["export", self.newest, "--output", output]):
            subprocess.run(["strace", "-f", "-qq", "-y", "-s", "4096", "-e", "trace=open,openat,creat,mkdir,rename,"
                            "renameat,renameat2,unlink,unlinkat,link,symlink,truncate", "-o", self.path("calls"),
                            PENSTOCK, "checkpoint", *arguments], cwd=self.folder, check=True, capture_output=True,
                           timeout=60)
            lines = self.read("calls").splitlines()
            writing = [line for line in lines if re.search(r"O_WRONLY|O_RDWR|O_CREAT", line) or
                       not re.search(r"\bopen(at)?\(", line)]
            writing = [line for line in writing if "/dev/null" not in line]
            if arguments[0] != "export":
                self.assertEqual(writing, [])
            self.assertFalse([line for line in writing if f'"{output}' not in line], writing)
            self.assertTrue([line for line in lines if self.newest in line])


if __name__ == "__main__":
    PENSTOCK, SEAL, CHECKPOINTS = (os.path.abspath(path) for path in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1])
