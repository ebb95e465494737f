"""The outputs of `penstock bench step` for other programs: the start file and the losses.

Usage: bench_verb_test.py PENSTOCK DATA [MPIRUN]; see program_runs.py.
"""

import json
import re
import struct
import sys

sys.dont_write_bytecode = True
import program_runs
from program_runs import ProgramRuns, of_mpi

MLP = ["--hidden", "16x2", "--batch-size", "8", "--micro-batches", "2"]
RESNET = ["--model", "resnet18", "--width", "2", "--batch-size", "4", "--micro-batches", "2", "--image-size", "32"]
GPT = ["--model", "gpt", "--layers", "1", "--width", "8", "--heads", "2", "--context", "4", "--batch-size", "4",
       "--micro-batches", "2"]


class BenchVerb(ProgramRuns):
    def bench(self, *flags, ranks=None):
        return json.loads(self.output_of("bench", "step", "--steps", "3", "--warm-up", "2", *flags, "--json", "-",
                                         ranks=ranks))

    def start(self, *flags, ranks=None):
        """The tensors of a start file: name -> (type, shape, bytes)."""
        self.bench(*flags, "--save-start", "start.safetensors", ranks=ranks)
        content = self.read_bytes("start.safetensors")
        end = 8 + struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:end])
        header.pop("__metadata__", None)
        return {name: (place["dtype"], place["shape"], content[end + place["data_offsets"][0]:
                                                               end + place["data_offsets"][1]])
                for name, place in header.items()}

    def shapes(self, *flags):
        return {name: place[:2] for name, place in self.start(*flags).items()}

    def test_a_start_file_has_weights_and_batch(self):
        self.assertEqual(self.shapes(*MLP), {
            "layer1.weight": ("F32", [16, 784]), "layer1.bias": ("F32", [16]),
            "layer2.weight": ("F32", [16, 16]), "layer2.bias": ("F32", [16]),
            "layer3.weight": ("F32", [10, 16]), "layer3.bias": ("F32", [10]),
            "batch.inputs": ("F32", [8, 1, 28, 28]), "batch.targets": ("I64", [8])})
        tokens = self.shapes(*GPT)
        self.assertEqual((tokens["batch.inputs"], tokens["batch.targets"]), (("I64", [4, 4]), ("I64", [4, 4])))

    def test_a_start_file_is_of_before_the_first_step(self):
        for name, (_, _, content) in self.start(*RESNET).items():
            if name.endswith(("running_mean", "num_batches_tracked")):
                self.assertEqual(content, bytes(len(content)), name)
        slow, fast = self.start(*MLP, "--lr", "0.001"), self.start(*MLP, "--lr", "1")
        self.assertEqual(slow, fast)

    def test_a_start_file_is_the_same_for_every_layout(self):
        alone = self.start(*RESNET)
        self.assertEqual(self.start(*RESNET, "--stages", "2"), alone)
        self.assertEqual(self.start(*RESNET, "--stages", "2", "--schedule", "zb-v", "--partition", "time"), alone)

    @of_mpi
    def test_processes_save_what_threads_save(self):
        self.assertEqual(self.start(*RESNET, "--stages", "2", ranks=2), self.start(*RESNET))

    def test_a_loss_for_every_step(self):
        result = self.bench(*MLP)
        self.assertEqual((len(result["losses"]), len(result["step_ms"])), (2 + 3, 3))
        self.assertEqual(min(result["step_ms"]), result["min_ms"])
        # The same batch in every step, so the loss falls.
        self.assertEqual(sorted(result["losses"], reverse=True), result["losses"])
        self.assertEqual(self.bench(*MLP, "--stages", "2")["losses"], result["losses"])
        self.assertEqual(self.bench(*MLP, "--warm-up", "0")["losses"], result["losses"][:3])

    @of_mpi
    def test_processes_have_the_same_losses(self):
        self.assertEqual(self.bench(*MLP, "--stages", "2", ranks=2)["losses"], self.bench(*MLP)["losses"])

    def memory(self, *flags, ranks=None):
        """The predicted peaks of micro-batches and bytes by rank, after a check against the measured ones."""
        result = self.bench(*flags, "--stages", "2", "--memory", ranks=ranks)
        for what in ("activations", "activation_bytes"):
            self.assertEqual(len(result[f"{what}_measured"]), 2)
            self.assertEqual(result[f"{what}_measured"], result[f"{what}_predicted"])
        for before, peak in zip(result["process_bytes_before"], result["process_bytes_peak"]):
            self.assertLessEqual(0, before)
            self.assertLess(0, peak)
        return result["activations_measured"], result["activation_bytes_measured"]

    def test_memory_is_predicted(self):
        live, kept = self.memory(*GPT)
        self.assertEqual(live, [2, 1])
        self.assertLess(sum(self.memory(*GPT, "--recompute")[1]), sum(kept))
        self.assertNotIn("activation_bytes_measured", self.bench(*GPT))
        self.assertIn("ask for at least 2", self.complaint_of("bench", "step", *MLP, "--memory", "--steps", "1",
                                                              "--warm-up", "0"))

    def test_replicas_share_the_optimisers_state(self):
        job = ["--hidden", "64x3", "--batch-size", "8", "--stages", "2", "--replicas", "2", "--optimizer", "adamw"]
        for clip in ([], ["--clip-norm", "0.1"]):
            own, shared = (self.bench(*job, *clip, "--memory", "--zero", zero) for zero in "01")
            self.assertEqual(own["losses"], shared["losses"])
            for all_of, half in zip(own["optimizer_bytes"], shared["optimizer_bytes"]):
                self.assertTrue(0.4 * all_of < half < 0.6 * all_of, (all_of, half))
        for what, *flags in (("there is 1", "--replicas", "1"), ("sgd, adam or adamw", "--optimizer", "rmsprop"),
                             ("on each of 2 replicas", "--batch-size", "1")):
            job_with = {**dict(zip(job[::2], job[1::2])), **dict(zip(flags[::2], flags[1::2])), "--zero": "1"}
            self.assertIn(what, self.complaint_of("bench", "step", *sum(map(list, job_with.items()), [])))

    def test_a_memory_limit_in_bytes_is_kept(self):
        gpipe = ["--schedule", "gpipe"]
        refused = self.complaint_of("bench", "step", *GPT, "--stages", "2", *gpipe, "--memory-limit", "1kB")
        self.assertIn("a memory limit of 1000B per rank is less than the", refused)
        needed = re.search(r"set a limit of (\S+) or more", refused)[1]
        held = self.memory(*GPT, *gpipe, "--memory-limit", needed)[1]
        self.assertLessEqual(max(held), self.bytes_in(needed))
        half = f"{self.bytes_in(needed) // 2}B"
        self.assertLessEqual(max(self.memory(*GPT, "--schedule", "zb-auto", "--memory-limit", half)[1]),
                             self.bytes_in(half))

    @staticmethod
    def bytes_in(text):
        number, unit = re.fullmatch(r"(\d+)(\w*?)B", text).groups()
        return int(number) * {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}[unit]

    @of_mpi
    def test_processes_hold_what_threads_hold(self):
        for flags in ([], ["--schedule", "zb-h1"], ["--schedule", "zb-v"],
                      ["--schedule", "zb-auto", "--memory-limit", "1GiB"]):
            self.assertEqual(self.memory(*GPT, *flags, ranks=2), self.memory(*GPT, *flags))

    def test_what_is_measured_by_default(self):
        result = self.bench(*GPT)
        self.assertEqual([result[name] for name in ("lr", "dropout", "head", "vocabulary")], [1e-3, 0, "own", 65])
        self.assertIn("head.weight", self.start(*GPT))
        self.assertEqual(self.bench(*GPT, "--head", "tied")["head"], "tied")
        self.assertNotIn("head.weight", self.start(*GPT, "--head", "tied"))
        for verb in (["train"], ["infer"]):  # these have the defaults of train
            told = " ".join(self.output_of(*verb, "--help").split())
            self.assertIn("in training (default: gpt 0.1, mlp 0)", told)
            self.assertIn("or own (default: tied)", told)

    def test_invalid_arguments(self):
        self.assert_refused(["bench", "step", *MLP], (["--head", "own"], "--head is for gpt, not for --model mlp"),
                            (["--save-start", "no/start.safetensors"], "there is no such folder"))


if __name__ == "__main__":
    program_runs.main()
