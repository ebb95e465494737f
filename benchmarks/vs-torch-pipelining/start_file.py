"""Reads the file that `penstock bench step --save-start` writes: weights, buffers and the batch, as safetensors."""
import json
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

TYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}


@dataclass
class Start:
    state: dict[str, Tensor]
    inputs: Tensor
    targets: Tensor


def read_start(path: str) -> Start:
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    tensors = {}
    for name, place in header.items():
        begin, end = place["data_offsets"]
        tensors[name] = torch.frombuffer(data[begin:end], dtype=TYPES[place["dtype"]]).reshape(place["shape"])
    return Start(inputs=tensors.pop("batch.inputs"), targets=tensors.pop("batch.targets"), state=tensors)
