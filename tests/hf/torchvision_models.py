"""Writes the weights of networks of torchvision, and their logits, for torchvision_weights_test.py.

Usage: torchvision_models.py FOLDER, by a Python with torch, torchvision and safetensors. Writes NAME.safetensors and
logits.json, {NAME: [[...], ...]}, of the images that `penstock infer --rows 2` makes.
"""

import json
import os
import re
import sys
from unittest import mock

import torch
from safetensors.torch import save_file


def import_models():
    """torchvision.models, also if its operators are compiled for another torch, and without its image reader."""
    for name in ("PIL", "PIL.Image"):
        sys.modules.setdefault(name, mock.MagicMock(__version__="10.0"))
    library = torch.library.Library("torchvision", "FRAGMENT")
    while True:
        try:
            import torchvision.models
            return torchvision.models
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if not missing:
                raise
            library.define(missing[1] + "() -> ()")
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]


def randomise(network):
    """Values as after a training: no running statistics of 0 and 1, no head of zeros."""
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2)
            elif value.is_floating_point() and (value.dim() < 2 or not value.any()):
                value.add_(0.1 * torch.randn_like(value))
    return network.eval()


def main(folder):
    models = import_models()
    torch.manual_seed(1)
    networks = {"resnet18": (32, models.resnet18()), "resnet34": (32, models.resnet34()),
                "resnet50": (224, models.resnet50()), "resnet101": (32, models.resnet101()),
                "vit-b16": (224, models.vit_b_16())}
    logits = {}
    for name, (side, network) in networks.items():
        randomise(network)
        save_file({key: value.contiguous() for key, value in network.state_dict().items()},
                  os.path.join(folder, name + ".safetensors"))
        torch.manual_seed(0)
        with torch.no_grad():
            logits[name] = network(torch.randn(2, 3, side, side)).tolist()
    with open(os.path.join(folder, "logits.json"), "w") as file:
        json.dump(logits, file)


if __name__ == "__main__":
    main(sys.argv[1])
