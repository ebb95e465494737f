"""The networks of `penstock bench step` in plain torch: the same layers, names and arithmetic.

A network is a list of units, run one after the other; a pipeline partitions between them. A unit's prefix and its parameters'
names together are the names of the start file.
"""
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass
class Unit:
    prefix: str
    module: nn.Module


# MLP


class LinearRelu(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(super().forward(x.flatten(1)), inplace=True)


def mlp(hidden: list[int], inputs: int = 784, classes: int = 10) -> list[Unit]:
    widths = [inputs, *hidden]
    units = [Unit(f"layer{i + 1}.", LinearRelu(widths[i], widths[i + 1])) for i in range(len(hidden))]
    return [*units, Unit(f"layer{len(widths)}.", nn.Linear(widths[-1], classes))]


# ResNet-50, version 1.5: a Bottleneck halves in its 3x3


def convolution(channels_in: int, channels_out: int, size: int = 1, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, size, stride, (size - 1) // 2, bias=False)


class Stem(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(3, 64, 7, 2), nn.BatchNorm2d(64)

    def forward(self, x: Tensor) -> Tensor:
        return functional.max_pool2d(functional.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)


class Bottleneck(nn.Module):
    def __init__(self, channels_in: int, inside: int, stride: int) -> None:
        super().__init__()
        out = 4 * inside
        self.conv1, self.bn1 = convolution(channels_in, inside), nn.BatchNorm2d(inside)
        self.conv2, self.bn2 = convolution(inside, inside, 3, stride), nn.BatchNorm2d(inside)
        self.conv3, self.bn3 = convolution(inside, out), nn.BatchNorm2d(out)
        self.has_shortcut = channels_in != out or stride != 1
        if self.has_shortcut:
            self.shortcut, self.shortcut_bn = convolution(channels_in, out, 1, stride), nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        inner = functional.relu(self.bn2(self.conv2(inner)), inplace=True)
        inner = self.bn3(self.conv3(inner))
        return functional.relu(inner + (self.shortcut_bn(self.shortcut(x)) if self.has_shortcut else x), inplace=True)


class MeanLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mean((2, 3)))


def resnet50(classes: int = 10) -> list[Unit]:
    units = [Unit("head.", Stem())]
    channels = 64
    for number, blocks in enumerate((3, 4, 6, 3)):
        inside = 64 << number
        for block in range(blocks):
            halves = number > 0 and block == 0
            units.append(Unit(f"layer{number + 1}.block{block}.", Bottleneck(channels, inside, 2 if halves else 1)))
            channels = 4 * inside
    return [*units, Unit("fc.", MeanLinear(channels, classes))]


# GPT, without dropout, with a head of its own


@dataclass(frozen=True)
class GptShape:
    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int


class Embeddings(nn.Module):
    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.position_embedding = nn.Embedding(shape.context, shape.width)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.size(1), device=tokens.device).unsqueeze(0)
        return self.token_embedding(tokens) + self.position_embedding(positions)


class Attention(nn.Module):
    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm = nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.projection = nn.Linear(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        queries, keys, values = (part.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
                                 for part in self.qkv(self.norm(x)).split(width, 2))
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return x + self.projection(mixed.transpose(1, 2).reshape(rows, length, width))


class FeedForward(nn.Module):
    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(functional.gelu(self.up(self.norm(x)), approximate="tanh"))


class Head(nn.Module):
    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))


def gpt(shape: GptShape) -> list[Unit]:
    units = [Unit("", Embeddings(shape))]
    for block in range(shape.layers):
        units.append(Unit(f"block{block}.attention.", Attention(shape)))
        units.append(Unit(f"block{block}.feed_forward.", FeedForward(shape)))
    return [*units, Unit("", Head(shape))]


# All of them


def mean_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Over all samples, or tokens, of a batch."""
    return functional.cross_entropy(output.flatten(0, -2), target.flatten())


def load(units: list[Unit], state: dict[str, Tensor]) -> None:
    """Every value of `state` must have its place, and every place its value, of the same shape and type."""
    left = dict(state)
    for unit in units:
        for name, place in unit.module.state_dict(keep_vars=False).items():
            full = unit.prefix + name
            if full not in left:
                raise SystemExit(f"the start file has no {full}: save it with the flags of this workload")
            value = left.pop(full)
            if value.shape != place.shape or value.dtype != place.dtype:
                raise SystemExit(f"{full} is {value.dtype} {list(value.shape)} in the start file, but "
                                 f"{place.dtype} {list(place.shape)} here")
            place.copy_(value)
    if left:
        raise SystemExit(f"the start file has {sorted(left)}, which this network has not")
