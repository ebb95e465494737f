"""What is compared: networks with their batches, once as flags of `penstock bench step`, once as torch modules.

Imports torch only to build modules: run_all.py compares builds of Penstock without it.
"""
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models import Unit
    from start_file import Start

CONTEXT, VOCABULARY = 128, 65  # of the GPT


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    network: tuple[str, ...]  # flags of `penstock bench step`
    build: "Callable[[], list[Unit]]"
    batch_size: int
    micro_batches: int
    # How far the losses of two programs may be apart: figures.py says how that is counted, README.md why so far.
    first_tolerance: float
    drift_tolerance: float
    has_batch_norm: bool = False
    learning_rate: float = 1e-3

    def flags(self) -> list[str]:
        return [*self.network, "--batch-size", str(self.batch_size), "--micro-batches", str(self.micro_batches),
                "--lr", str(self.learning_rate)]

    def with_micro_batches(self, count: int) -> "Workload":
        return replace(self, micro_batches=count)


def mlp() -> "list[Unit]":
    import models

    return models.mlp([1024] * 8)


def resnet50() -> "list[Unit]":
    import models

    return models.resnet50()


def gpt() -> "list[Unit]":
    import models

    return models.gpt(models.GptShape(layers=8, width=256, heads=4, context=CONTEXT, vocabulary=VOCABULARY))


def deep() -> "list[Unit]":
    import models

    return models.mlp([64] * 200)


MLP_FLAGS = ("--model", "mlp", "--hidden", "1024x8")

WORKLOADS = {workload.name: workload for workload in (
    Workload("mlp-b128", "MLP 784, 8 x 1024, 10", MLP_FLAGS, mlp, 128, 8, 1e-6, 1e-2),
    Workload("mlp-b32", "MLP 784, 8 x 1024, 10", MLP_FLAGS, mlp, 32, 2, 1e-6, 1e-2),
    Workload("resnet50", "ResNet-50, 32 x 32", ("--model", "resnet50", "--image-size", "32"), resnet50, 64, 4,
             1e-5, 5e-2, has_batch_norm=True, learning_rate=1e-5),
    Workload("gpt", "GPT, 8 layers of 256, context 128",
             ("--model", "gpt", "--layers", "8", "--width", "256", "--heads", "4", "--context", "128"),
             gpt, 32, 8, 1e-6, 1e-2),
    Workload("deep", "MLP 784, 200 x 64, 10", ("--model", "mlp", "--hidden", "64x200"), deep, 512, 32, 1e-6, 1e-2),
)}
#: Those of the tables. "deep", which measures the time between small layers, is asked for by name.
USUAL = tuple(name for name in WORKLOADS if name != "deep")


def random_start(workload: Workload) -> "Start":
    """Where no start file is given: weights as torch makes them, and a batch of the right shapes."""
    import torch

    from start_file import Start

    torch.manual_seed(0)
    units = workload.build()
    state = {unit.prefix + name: value.clone() for unit in units for name, value in unit.module.state_dict().items()}
    samples = workload.batch_size
    if workload.name == "gpt":
        tokens = torch.randint(0, VOCABULARY, (samples, CONTEXT + 1))
        return Start(state, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    shape = (3, 32, 32) if workload.name == "resnet50" else (1, 28, 28)
    return Start(state, torch.randn(samples, *shape), torch.randint(0, 10, (samples,)))
