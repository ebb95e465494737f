"""The event file of `penstock train --tensorboard` contains the numbers of the JSON lines: read by a minimal reader
and, if TensorBoard is installed, by its EventAccumulator.

    tensorboard_test.py PENSTOCK DATA [MPIRUN]

TensorBoard is looked for in $TENSORBOARD_PYTHON, in this Python and in build/venv; nothing installs it, for it brings
100 MB of packages along.
"""

import glob
import json
import os
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import program_runs  # noqa: E402
from program_runs import ProgramRuns, TEST_SAMPLES, of_mpi  # noqa: E402

# Tags, and the fields of the JSON lines that they repeat.
OF_STEPS = {"train/loss": "loss", "train/learning_rate": "lr", "train/gradient_norm": "grad_norm",
            "throughput/samples_per_second": "samples_per_s", "throughput/bubble": "bubble",
            "memory/peak_activations": "peak_activations", "memory/peak_resident_bytes": "peak_resident_bytes"}
OF_TESTS = {"test/loss": "test_loss", "test/accuracy": "test_accuracy"}


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def records(data):
    """All complete records; a truncated one at the end is ignored."""
    at = 0
    while at + 12 <= len(data):
        head = data[at:at + 8]
        length, = struct.unpack("<Q", head)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(head), "checksum of a length"
        event = data[at + 12:at + 12 + length]
        at += 16 + length
        if at > len(data):
            return
        assert struct.unpack_from("<I", data, at - 4)[0] == masked(event), "checksum of an event"
        yield event


def fields(message):
    """(number, value) of a protocol buffer's fields: int, 8 or 4 bytes, or bytes."""
    def varint(at):
        number = shift = 0
        while True:
            byte = message[at]
            number |= (byte & 0x7f) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return number, at
    at = 0
    while at < len(message):
        key, at = varint(at)
        kind = key & 7
        if kind == 0:
            value, at = varint(at)
        else:
            size, at = varint(at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = message[at:at + size], at + size
        yield key >> 3, value


def scalars(data):
    """{tag: [(step, value)]} and the versions that the file names."""
    found, versions = {}, []
    for event in records(data):
        parts = dict(fields(event))
        if 3 in parts:
            versions.append(parts[3])
        for _, value in fields(parts.get(5, b"")):
            of_value = dict(fields(value))
            found.setdefault(of_value[1].decode(), []).append((parts[2], struct.unpack("<f", of_value[2])[0]))
    return found, versions


def as_fp32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def expected_scalars(lines):
    found, step = {}, 0
    for line in lines:
        step += "loss" in line
        for tag, field in {**OF_STEPS, **OF_TESTS}.items():
            if field in line:
                found.setdefault(tag, []).append((step, as_fp32(line[field])))
    return found


READ_BY_TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0}).Reload()
print(json.dumps({tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""


class TensorBoard(ProgramRuns):
    def job(self, ranks=None):
        self.output_of(*self.train("--batch-size", "200", "--epochs", "2", "--clip-norm", "1", "--stages", "2",
                                   "--micro-batches", "2", "--json", "lines.json", "--tensorboard", "runs/one"),
                       ranks=ranks)
        files = glob.glob(self.path("runs/one/events.out.tfevents.*"))
        self.assertEqual(len(files), 1)
        with open(files[0], "rb") as file:
            data = file.read()
        return data, expected_scalars([json.loads(line) for line in self.read("lines.json").splitlines()])

    def check(self, found, expected):
        self.assertEqual(set(found), set(OF_STEPS) | set(OF_TESTS))
        for tag, points in expected.items():
            self.assertEqual([tuple(point) for point in found[tag]], points, tag)
        self.assertEqual(len(expected["train/loss"]), 18)
        self.assertEqual([step for step, _ in expected["test/loss"]], [9, 18])

    def test_it_holds_the_numbers_of_the_json_lines(self):
        data, expected = self.job()
        found, versions = scalars(data)
        self.assertEqual(versions, [b"brain.Event:2"])
        self.check(found, expected)

    def test_complete_records_of_a_truncated_file_are_read(self):
        data, _ = self.job()
        whole = list(records(data))
        for end in range(0, len(data), 97):
            some = list(records(data[:end]))
            self.assertEqual(some, whole[:len(some)])

    @of_mpi
    def test_only_the_main_process_writes(self):
        data, expected = self.job(ranks=2)
        self.check(scalars(data)[0], expected)

    def test_tensorboard_reads_it(self):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        for python in [os.environ.get("TENSORBOARD_PYTHON") or sys.executable, sys.executable,
                       os.path.join(root, "build", "venv", "bin", "python")]:
            if os.path.exists(python) and subprocess.run([python, "-c", "import tensorboard"],
                                                         capture_output=True).returncode == 0:
                break
        else:
            self.skipTest("no TensorBoard: pip install tensorboard, or set TENSORBOARD_PYTHON to a Python that has it")
        _, expected = self.job()
        told = subprocess.run([python, "-c", READ_BY_TENSORBOARD, self.path("runs/one")], capture_output=True,
                              text=True)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.check(json.loads(told.stdout), expected)

    def test_a_directory_that_cannot_be_made(self):
        self.write("here", "a file")
        code, _, err = self.run_program(*self.train("--steps", "1", "--tensorboard", "here/run"))
        self.assertEqual(code, 2)
        self.assertRegex(err, "event file here/run/.*cannot be made.*pass a directory")


class EvaluationOfShortRuns(ProgramRuns):
    def test_steps_leave_an_explicit_eval_every_alone(self):
        steps = self.train("--steps", "3", "--batch-size", "200")
        self.assertNotIn("test:", self.output_of(*steps))
        told = self.output_of(*steps, "--eval-every", "1")
        self.assertRegex(told.splitlines()[-1], r"^epoch: 0 test: loss 2\.\d+, accuracy 0\.\d+$")
        self.assertNotIn("test:", self.output_of(*steps, "--eval-every", "0"))
        # 9 steps per epoch: evaluated after the second epoch and after the last step.
        told = self.output_of(*self.train("--steps", "23", "--batch-size", "200", "--eval-every", "2"))
        self.assertEqual([line[:13] for line in told.splitlines() if "test:" in line], ["epoch: 1 test",
                                                                                        "epoch: 2 test"])


if __name__ == "__main__":
    program_runs.main()
