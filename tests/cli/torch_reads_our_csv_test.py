"""The CSV output of `penstock schedule convert` is loaded, validated and simulated by torch.

Usage: torch_reads_our_csv_test.py PENSTOCK. Skipped (exit code 77) where no Python imports torch, which must be 2.13 or
later (tests/support/torch_python.py).
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import torch_python

PROGRAM = ""

SHAPES = [(1, 3), (2, 4), (3, 5), (4, 2), (4, 8)]  # p, m


def convert(name, p, m, v, form, path):
    """False when the schedule does not take v chunks."""
    arguments = ["schedule", "convert", "--schedule", name, "--stages", str(p), "--micro-batches", str(m), "--chunks",
             str(v), "--format", form, "--output", path]
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode == 2 and "chunk" in done.stderr:
        return False
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(arguments)}: {done.stderr}")
    return True


def known_names():
    done = subprocess.run([PROGRAM, "schedule", "show", "none of them"], capture_output=True, text=True, timeout=60)
    return done.stderr.strip().split("There are ")[1].split(", ")


def orders_without_gaps(orders):
    return {rank: [argument for argument in order if argument is not None] for rank, order in orders.items()}


class TorchReadsOurCsv(unittest.TestCase):
    def setUp(self):
        from torch.distributed.pipelining import PipelineStage, schedules
        self.schedules = schedules
        self.stage = mock.create_autospec(PipelineStage, instance=True)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "order.csv")

    def load(self, p, m, v, form):
        """Loads with torch's parser and validation (_load_csv calls _validate_schedule): a list per rank."""
        self.stage.configure_mock(group_rank=0, group_size=p, submod=None, num_stages=p * v)
        runtime = self.schedules._PipelineScheduleRuntime([self.stage] * v, m)
        runtime._load_csv(self.path, format=form)
        return runtime.pipeline_order if form == "compute_only" else runtime.pipeline_order_with_comms

    def check(self, name, p, m, v):
        schedules = self.schedules
        if not convert(name, p, m, v, "csv", self.path):
            return 0
        if "OVERLAP_F_B" in pathlib.Path(self.path).read_text():
            return 0  # torch has no simulation of pairs
        orders = self.load(p, m, v, "compute_only")
        compute = orders_without_gaps(orders)
        stages = schedules._validate_schedule(compute, p, p * v, m)
        self.assertEqual(set(stages), set(range(p * v)))
        # torch's simulation consumes the lists, so it gets copies.
        lowered = schedules._add_send_recv(orders_without_gaps(orders), stages.get, p * v)
        schedules._simulate_comms_compute(lowered, stages.get, p * v)

        self.assertTrue(convert(name, p, m, v, "csv-comms", self.path))
        with_messages = self.load(p, m, v, "compute_comms")
        stripped = {rank: [argument for argument in order if argument.is_compute_op] for rank,
                    order in with_messages.items()}
        self.assertEqual(stripped, compute)
        schedules._simulate_comms_compute(with_messages, stages.get, p * v)
        return 1

    def test_every_schedule(self):
        checked = {}
        for name in known_names():
            if name in ("forward-only", "chimera"):
                continue  # torch validates schedules that train, with one copy of each stage
            for v in (1, 2):
                for p, m in SHAPES:
                    with self.subTest(schedule=name, p=p, m=m, v=v):
                        checked[name] = checked.get(name, 0) + self.check(name, p, m, v)
        print(checked)
        self.assertGreaterEqual(checked["1f1b"], len(SHAPES))
        self.assertGreaterEqual(checked["interleaved"], len(SHAPES))

    def test_a_wrong_order_is_refused(self):
        self.assertTrue(convert("1f1b", 2, 2, 1, "csv", self.path))
        text = pathlib.Path(self.path).read_text()
        pathlib.Path(self.path).write_text(text.replace("1B0", "1B1", 1))
        with self.assertRaises(AssertionError):
            self.load(2, 2, 1, "compute_only")


if __name__ == "__main__":
    torch_python.run_with("torch")
    PROGRAM = sys.argv.pop(1)
    unittest.main()
