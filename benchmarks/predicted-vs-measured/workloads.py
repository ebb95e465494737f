"""The networks whose steps are foretold, as flags of `penstock`."""
from dataclasses import dataclass

RANKS = 2


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    network: tuple[str, ...]
    batch_size: int
    micro_batches: int
    learning_rate: float = 1e-3

    def network_flags(self) -> list[str]:
        """What a plan does not say."""
        return [*self.network, "--batch-size", str(self.batch_size), "--lr", str(self.learning_rate),
                "--kernels", "tuned"]

    def pipeline_flags(self) -> list[str]:
        """What a plan says too."""
        return ["--stages", str(RANKS), "--micro-batches", str(self.micro_batches)]


WORKLOADS = {workload.name: workload for workload in (
    Workload("mlp", "MLP 784, 8 x 1024, 10", ("--model", "mlp", "--hidden", "1024x8"), 128, 8),
    Workload("resnet50", "ResNet-50, 32 x 32", ("--model", "resnet50", "--image-size", "32"), 64, 4, 1e-5),
    Workload("gpt", "GPT, 8 layers of 256, context 128",
             ("--model", "gpt", "--layers", "8", "--width", "256", "--heads", "4", "--context", "128", "--dropout", "0",
              "--head", "own"), 32, 8),
)}

SCHEDULES = ("sequential", "gpipe", "1f1b", "1f1b-early", "interleaved", "looped-bfs", "zb-h1", "zb-h2", "zb-auto",
             "zb-v", "v-half", "v-min", "dualpipe-v")
QUICK_SCHEDULES = ("sequential", "gpipe", "1f1b", "zb-h1", "interleaved", "zb-v")
WEIGHT_GRADIENTS = ("stream", "fused")
