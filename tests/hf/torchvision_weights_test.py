"""Weight files of torchvision's ResNets and Vision Transformers: `penstock infer` computes torchvision's logits.

Usage: torchvision_weights_test.py PENSTOCK DATA; see program_runs.py. Skipped without the packages that the test
hf.packages installs.
"""

import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", name) for name in ("cli", "support")]
import program_runs
import torch_python
from program_runs import ProgramRuns

PYTHON = torch_python.required("torch torchvision safetensors")
FLAGS = {"resnet50": ["--image-size", "224"], "vit-b16": ["--image-size", "224"]}


class TorchvisionWeights(ProgramRuns):
    def logits(self, name, *flags):
        self.output_of("infer", "--model", name, "--weights", name + ".safetensors", "--classes", "1000", "--rows", "2",
                       "--json", "out.json", *FLAGS.get(name, []), *flags)
        return json.loads(self.read("out.json"))["outputs"][0]["values"]

    def test_logits_are_torchvisions(self):
        subprocess.run([PYTHON, os.path.join(HERE, "torchvision_models.py"), self.folder], check=True)
        for name, wanted in json.loads(self.read("logits.json")).items():
            largest = max(abs(value) for row in wanted for value in row)
            for flags in ([], ["--stages", "2"]) if name in ("resnet18", "vit-b16") else ([],):
                for row, wanted_row in zip(self.logits(name, *flags), wanted, strict=True):
                    difference = max(abs(a - b) for a, b in zip(row, wanted_row, strict=True))
                    self.assertLess(difference, 1e-5 * largest, (name, flags))
        self.assert_refused(["infer", "--weights", "resnet18.safetensors", "--classes", "1000", "--model"],
                            (["resnet34"], "the network has 'layer1.block2.conv1.weight' of shape [64, 64, 3, 3], "
                                           "but resnet18.safetensors has no tensor of that name"),
                            (["resnet18", "--width", "32"], "'fc.weight' has shape [1000, 256] in the network and "
                                                            "[1000, 512] in resnet18.safetensors"))


if __name__ == "__main__":
    program_runs.main()
