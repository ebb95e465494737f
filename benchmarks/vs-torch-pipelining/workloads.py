"""What is compared: four networks with their batches, once as flags of `penstock bench step`, once as torch modules."""
from dataclasses import dataclass, replace

import torch

import models
from models import GptShape
from start_file import Start

GPT = GptShape(layers=8, width=256, heads=4, context=128, vocabulary=65)


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    network: tuple[str, ...]  # flags of `penstock bench step`
    build: models.Build
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


MLP_FLAGS = ("--model", "mlp", "--hidden", "1024x8")

WORKLOADS = {workload.name: workload for workload in (
    Workload("mlp-b128", "MLP 784, 8 x 1024, 10", MLP_FLAGS, lambda: models.mlp([1024] * 8), 128, 8, 1e-6, 1e-2),
    Workload("mlp-b32", "MLP 784, 8 x 1024, 10", MLP_FLAGS, lambda: models.mlp([1024] * 8), 32, 2, 1e-6, 1e-2),
    Workload("resnet50", "ResNet-50, 32 x 32", ("--model", "resnet50", "--image-size", "32"), models.resnet50, 64, 4,
             1e-5, 5e-2, has_batch_norm=True, learning_rate=1e-5),
    Workload("gpt", "GPT, 8 layers of 256, context 128",
             ("--model", "gpt", "--layers", "8", "--width", "256", "--heads", "4", "--context", "128"),
             lambda: models.gpt(GPT), 32, 8, 1e-6, 1e-2),
)}


def random_start(workload: Workload) -> Start:
    """Where no start file is given: weights as torch makes them, and a batch of the right shapes."""
    torch.manual_seed(0)
    units = workload.build()
    state = {unit.prefix + name: value.clone() for unit in units for name, value in unit.module.state_dict().items()}
    samples = workload.batch_size
    if workload.name == "gpt":
        tokens = torch.randint(0, GPT.vocabulary, (samples, GPT.context + 1))
        return Start(state, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    shape = (3, 32, 32) if workload.name == "resnet50" else (1, 28, 28)
    return Start(state, torch.randn(samples, *shape), torch.randint(0, 10, (samples,)))
