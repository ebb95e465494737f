#!/usr/bin/env python3
"""Files that claim or expand to far more than they hold: refused by the real program, in one line, and in little memory.

Usage: bombs_test.py PENSTOCK SEAL_PROGRAM [runtime]; `runtime` also tests the verbs that need LibTorch. Prints the
memory and the time of each refusal.
"""
import gzip
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from program_runs import InFolder

PENSTOCK = SEAL = ""
WITH_RUNTIME = False
MEGABYTE = 1 << 20
# Beyond what the same program takes for a file that does not exist.
MOST_BYTES = 64 * MEGABYTE
# Far more than a refusal takes, even on a busy machine.
WATCHDOG_S = 60
ADDRESS_SPACE = 1 << 30
LONG_JSON = 100_000_000


def measured(arguments, address_space=None):
    """Runs the program. Returns its exit code, its errors, its peak of memory in bytes, and its processor time."""
    def limit():
        if address_space:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([PENSTOCK, *arguments], stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limit,
                                   env={**os.environ, "OMP_NUM_THREADS": "1"})
        killer = subprocess.Popen(["sh", "-c", f"sleep {WATCHDOG_S}; kill -9 {process.pid}"], start_new_session=True)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            os.killpg(killer.pid, 9)
            killer.wait()
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        text = errors.read().decode()
    return process.returncode, text, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime


def write_safetensors(path, header, data=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)


def idx(*shape):
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


def of_runtime(test):
    """A test of verbs that need LibTorch."""
    def run(self):
        if not WITH_RUNTIME:
            self.skipTest("this build has no LibTorch")
        test(self)
    return run


class Bombs(InFolder):
    def write(self, name, *parts):
        with open(self.path(name), "wb") as file:
            for part in parts:
                file.write(part if isinstance(part, bytes) else part.encode())
        return self.path(name)

    def refused(self, *arguments, usual=None, code=2):
        """The one line with which the program refuses, within MOST_BYTES. `usual` is an invocation of the same verb
        that fails at once."""
        base = measured(usual)[2] if usual else 0
        exit_code, text, peak, seconds = measured(arguments, None if usual else ADDRESS_SPACE)
        print(f"{(peak - base) / MEGABYTE:6.1f} MB {seconds:6.2f} s  {' '.join(arguments)[:60]}: {text.strip()[-110:]}")
        self.assertEqual(exit_code, code, text)
        self.assertTrue(text.startswith("penstock: "), text)
        self.assertEqual(text.count("\n"), 1, text)
        self.assertLess(peak - base, MOST_BYTES, text)
        return text

    # Schedules

    def test_schedule_of_a_billion_micro_batches(self):
        schedule = self.write("a.sched", "penstock schedule 1\nname\nranks 1\nstages 1\nmicro_batches 1000000000\n"
                              "rank_of_stage 0\nrank 0: 0F0 0B0\n")
        self.assertIn("micro-batches", self.refused_schedule("check", schedule))
        for verb in ("show", "convert"):
            code, text, peak, _ = measured(["schedule", verb, schedule], ADDRESS_SPACE)
            self.assertIn(code, (0, 2), text)
            self.assertLess(peak, MOST_BYTES)

    def refused_schedule(self, verb, path):
        """A schedule is refused with its grid, in several lines."""
        code, text, peak, _ = measured(["schedule", verb, path], ADDRESS_SPACE)
        self.assertEqual(code, 2, text)
        self.assertLess(peak, MOST_BYTES, text)
        return text

    def test_schedules_that_promise_more_than_they_hold(self):
        begin = "penstock schedule 1\nname\nranks 2000000000\nstages 65536\nmicro_batches 2000000000\n"
        self.assertIn("expected a space and the rank of stage",
                      self.refused("schedule", "show", self.write("b.sched", begin, "rank_of_stage 0\nrank 0:\n")))
        stages = "rank_of_stage" + " 0" * 65535 + " 0\n"
        begin = begin.replace("65536", "65535").replace("ranks 2000000000", "ranks 1")
        self.refused_schedule("check", self.write("c.sched", begin, stages.replace(" 0\n", "\n"), "rank 0: 0F0\n"))
        self.assertIn("more than the", self.refused("schedule", "show", self.sparse("d.sched", 1 << 40)))
        self.assertIn("more than the", self.refused("schedule", "show", "--schedule", "/dev/zero"))

    def sparse(self, name, size):
        with open(self.path(name), "wb") as file:
            file.truncate(size)
        return self.path(name)

    # JSON

    def test_long_json(self):
        """100 MB of JSON as each of the JSON files."""
        path = self.write("long.json", b"[" + b"0," * (LONG_JSON // 2) + b"0]")
        for arguments in (["simulate", "1f1b", "--stages", "2", "--micro-batches", "2", "--cost-file", path],
                          ["plan", "--costs", path]):
            self.assertIn("more than the", self.refused(*arguments))
        # A trace of another form takes no more than its text.
        code, text, peak, _ = measured(["trace", "report", path], ADDRESS_SPACE)
        self.assertEqual((code, text.count("\n")), (2, 1), text)
        self.assertIn("not a JSON object", text)
        self.assertLess(peak, LONG_JSON + MOST_BYTES)

    def test_json_takes_a_multiple_of_its_size_at_most(self):
        """The most expensive forms: small objects and lists, and members with short names."""
        size = 8 * MEGABYTE
        forms = {form: b'"layers":[' + one * (size // len(one)) + b"0]"
                 for form, one in (("objects", b'{"":0},'), ("lists", b"[],"), ("numbers", b"0,"))}
        forms["members"] = b'"link":{' + b",".join(b'"%x":0' % number for number in range(size // 9)) + b"}"
        for form, content in forms.items():
            path = self.write("a.json", b'{"penstock_layer_costs":1,', content, b"}")
            code, _, peak, _ = measured(["plan", "--costs", path])
            print(f"{peak / size:6.1f} times the size of JSON with {form}")
            self.assertEqual(code, 2)
            self.assertLess(peak, 30 * size + MOST_BYTES)

    def test_deep_json(self):
        deep = self.write("deep.json", b'{"a":' * 1_000_000)
        for arguments in (["plan", "--costs", deep], ["trace", "report", deep]):
            self.assertIn("nests deeper", self.refused(*arguments))

    # Checkpoints

    def checkpoint(self, body):
        folder = self.path("step-00000001")
        os.makedirs(folder, exist_ok=True)
        with open(self.path("body"), "wb") as file:
            file.write(body.encode())
        with open(os.path.join(folder, "manifest.json"), "wb") as out, open(self.path("body")) as text:
            subprocess.run([SEAL], stdin=text, stdout=out, check=True)
        return folder

    def manifest(self, files):
        return ('"format": "penstock checkpoint", "version": 1, "written_by": "", "step": 1, "data": {"epoch": 0, '
                '"step_in_epoch": 1, "seed": 0}, "seed": 0, "bits": {"micro_batches": 1, "replicas": 1, "threads": 1, '
                '"kernels": "", "precision": "", "grouping": ""}, "states": {}, "files": [' + files + "]}\n")

    def test_manifest_of_a_million_files(self):
        one = '{"name": "%d", "kind": "text", "bytes": 1, "xxh3_128": "' + "0" * 32 + '"}'
        folder = self.checkpoint(self.manifest(",\n".join(one % number for number in range(1_000_000))))
        self.assertIn("more than the", self.refused("checkpoint", "verify", folder))

    def test_manifest_with_a_tensor_of_2_62_elements(self):
        tensor = '{"name": "a", "dtype": "F32", "shape": [4611686018427387904], "xxh3_128": "%s"}' % ("0" * 32)
        folder = self.checkpoint(self.manifest(
            '{"name": "m.safetensors", "kind": "model", "bytes": 8, "owner": 0, "xxh3_128": "%s", "tensors": [%s]}' %
            ("0" * 32, tensor)))
        self.assertIn("does not fit into the file's 8 bytes", self.refused("checkpoint", "verify", folder))

    def test_manifest_of_100_megabytes(self):
        folder = self.path("step-00000001")
        os.makedirs(folder)
        self.write("step-00000001/manifest.json", b'{"checksum": "' + b"0" * 32 + b'",\n', b"0," * (LONG_JSON // 2))
        self.assertIn("more than the", self.refused("checkpoint", "verify", folder))

    # Settings, through the runtime program

    @of_runtime
    def test_settings_of_50_000_keys_within_keys(self):
        settings = "a" + ".a" * 50_000 + "=1"
        usual = ["train", "--config", self.path("none")]
        self.assertIn("run.toml:1: more than 5000 dots",
                      self.refused("train", "--config", self.write("run.toml", settings), usual=usual))
        seal = subprocess.run([SEAL], input=settings.encode(), stdout=subprocess.PIPE, check=True).stdout
        checksum = json.loads(seal.splitlines()[0].rstrip(b",") + b"}")["checksum"]
        checkpoint = self.checkpoint(self.manifest(
            '{"name": "train.toml", "kind": "text", "bytes": %d, "xxh3_128": "%s"}' % (len(settings), checksum)))
        self.write("step-00000001/train.toml", settings)
        self.assertIn("train.toml:1: more than 5000 dots", self.refused("train", "--resume", checkpoint, usual=usual))

    # Weights, through the runtime program: what LibTorch itself takes is subtracted.

    def weights_refused(self, path):
        return self.refused("infer", "--weights", path, usual=["infer", "--weights", self.path("none")])

    @of_runtime
    def test_tensor_of_2_62_elements(self):
        path = self.path("w.safetensors")
        write_safetensors(path, {"a": {"dtype": "F32", "shape": [1 << 62], "data_offsets": [0, 4]}}, bytes(4))
        self.assertIn("claims more elements than there can be", self.weights_refused(path))
        write_safetensors(path, {"a": {"dtype": "U8", "shape": [1 << 62], "data_offsets": [0, 1 << 62]}}, bytes(4))
        self.assertIn("promises 4611686018427387904 bytes of data and holds 4", self.weights_refused(path))

    @of_runtime
    def test_header_of_100_megabytes(self):
        path = self.path("w.safetensors")
        for filling in (b" " * (LONG_JSON - 8), b'"' + b"a," * (LONG_JSON // 2 - 8),
                        b'"' + b"\\u00e4" * (LONG_JSON // 8),
                        b'"a":[' + b"[" * (LONG_JSON - 16), b'"":' + b"1" * (LONG_JSON - 16)):
            write_safetensors(path, b"{" + filling)
            self.weights_refused(path)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", 1 << 62) + b"{}")
        self.assertIn("claims a header of 4611686018427387904 bytes", self.weights_refused(path))

    @of_runtime
    def test_a_million_tensors(self):
        path = self.path("w.safetensors")
        one = '"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
        write_safetensors(path, ("{" + ",".join(one % number for number in range(1_000_000)) + "}").encode())
        self.assertIn("more than 250000 tensors", self.weights_refused(path))

    # Data sets

    def data_refused(self, **files):
        for name, content in files.items():
            self.write(name.replace("_", "-"), content)
        train = ["train", "--steps", "1", "--data"]
        return self.refused(*train, self.folder, usual=[*train, self.path("none")])

    @of_runtime
    def test_gzip_bombs(self):
        labels = gzip.compress(idx(1) + b"\0")
        bomb = gzip.compress(idx(1, 28, 28) + bytes(1 << 30), 9)
        self.assertIn("784 bytes and holds more", self.data_refused(
            train_images_idx3_ubyte=bomb, train_labels_idx1_ubyte=labels))

    @of_runtime
    def test_images_that_are_not_there(self):
        for shape in ((1 << 31, 1 << 31, 1), (200 << 20, 1, 1)):
            for content in (idx(*shape), gzip.compress(idx(*shape))):
                self.data_refused(train_images_idx3_ubyte=content, train_labels_idx1_ubyte=idx(1) + b"\0")


if __name__ == "__main__":
    PENSTOCK, SEAL = (os.path.abspath(path) for path in sys.argv[1:3])
    WITH_RUNTIME = "runtime" in sys.argv[3:]
    unittest.main(argv=sys.argv[:1], verbosity=1)
