"""Weights of checkpoints and exports in Python: by safetensors.torch.load_file and by the index.

Usage: python_reads_weights_test.py PENSTOCK DATA. Skipped (exit code 77) where no Python imports torch and safetensors
(tests/support/torch_python.py).
"""

import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import program_runs
import torch_python
from program_runs import ProgramRuns

HIDDEN = ["--hidden", "32,16"]
NORMALIZE = ["--normalize", "none"]


def by_files(checkpoint):
    """The parameters and buffers of a checkpoint."""
    state = {}
    for name in sorted(os.listdir(checkpoint)):
        if name.startswith("model-"):
            state.update(load_file(os.path.join(checkpoint, name)))
    return state


def by_index(folder):
    """The tensors of a folder, as loaders of Hugging Face's models find them."""
    with open(os.path.join(folder, "model.safetensors.index.json")) as file:
        files = json.load(file)["weight_map"]
    return {name: load_file(os.path.join(folder, of))[name] for name, of in files.items()}


class PythonReadsWeights(ProgramRuns):
    def assert_equal_tensors(self, one, other):
        self.assertEqual(sorted(one), sorted(other))
        for name, tensor in one.items():
            self.assertEqual(tensor.dtype, other[name].dtype, name)
            self.assertTrue(torch.equal(tensor, other[name]), name)

    def mlp_state(self):
        """The weights of a trained MLP: the newest checkpoint's."""
        self.output_of(*self.train("--stages", "2", "--epochs", "1", "--momentum", "0.9", *NORMALIZE,
                                   "--checkpoint", "run", "--checkpoint-every", "25"))
        newest = self.path("run", sorted(os.listdir(self.path("run")))[-1])
        return newest, by_files(newest)

    def test_a_checkpoint_its_exports_and_saved_weights_are_the_same_tensors(self):
        newest, state = self.mlp_state()
        self.assertEqual(sum(name.endswith(".weight") for name in state), 3)
        self.output_of("checkpoint", "export", newest, "--output", "one.safetensors")
        self.assert_equal_tensors(load_file(self.path("one.safetensors")), state)
        os.mkdir(self.path("shards"))
        self.output_of("checkpoint", "export", newest, "--output", "shards/model.safetensors",
                       "--max-shard-size", "40KB")
        self.assertGreater(len(os.listdir(self.path("shards"))), 2)
        self.assert_equal_tensors(by_index(self.path("shards")), state)
        for name in os.listdir(newest):  # of the optimiser, too
            if name.endswith(".safetensors"):
                load_file(os.path.join(newest, name))

    def test_running_statistics_keep_their_types(self):
        self.output_of("train", "--model", "resnet18", "--width", "2", "--dataset", "cifar10", "--data",
                       os.path.join(DATA, "cifar10"), "--steps", "4", "--batch-size", "8", "--micro-batches", "2",
                       "--stages", "2", "--checkpoint", "run", "--checkpoint-every", "2")
        state = by_files(self.path("run", sorted(os.listdir(self.path("run")))[-1]))
        counts = [tensor for name, tensor in state.items() if name.endswith("num_batches_tracked")]
        self.assertGreater(len(counts), 10)
        for count in counts:
            self.assertEqual((count.dtype, count.dim(), int(count)), (torch.int64, 0, 8))

    def loss_in_python(self, state):
        """Of the test set, by plain PyTorch."""
        def content(name, head):
            with open(os.path.join(self.small_set, name), "rb") as file:
                return torch.frombuffer(bytearray(file.read()[head:]), dtype=torch.uint8)

        labels = content("t10k-labels-idx1-ubyte", 8).long()
        values = content("t10k-images-idx3-ubyte", 16).reshape(len(labels), -1).float() / 255
        layers = [name.removesuffix(".weight") for name in state if name.endswith(".weight")]
        layers.sort(key=lambda layer: -state[layer + ".weight"].shape[1])  # 784, 32, 16 inputs
        for layer in layers:
            values = torch.nn.functional.linear(values, state[layer + ".weight"], state[layer + ".bias"])
            values = values if layer == layers[-1] else torch.relu(values)
        return float(torch.nn.functional.cross_entropy(values, labels))

    def evaluated(self, weights):
        self.output_of("evaluate", "--weights", weights, "--data", self.small_set, *HIDDEN, *NORMALIZE, "--json",
                       "out.json")
        return json.loads(self.read("out.json"))["test_loss"]

    def test_a_network_in_python_has_the_same_loss(self):
        newest, state = self.mlp_state()
        self.output_of("checkpoint", "export", newest, "--output", "one.safetensors")
        self.assertAlmostEqual(self.evaluated("one.safetensors"), self.loss_in_python(state), 5)


if __name__ == "__main__":
    torch_python.run_with("torch safetensors")
    import torch
    from safetensors.torch import load_file
    program_runs.PROGRAM, DATA = sys.argv[1:3]
    program_runs.DATA = os.path.join(DATA, "mnist")
    del sys.argv[1:3]
    program_runs.unittest.main()
