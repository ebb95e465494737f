"""Decoders of Hugging Face's transformers as a list of layers."""
from __future__ import annotations

from typing import Any

import torch

from penstock._planning import ConfigError


class Embedding(torch.nn.Module):
    """What a decoder computes before its first block: the sum of its embeddings of tokens and of positions."""

    def __init__(self, tokens: torch.nn.Module, rest: list[torch.nn.Module]) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = torch.nn.ModuleList(one for one in rest if isinstance(one, torch.nn.Embedding))
        self.then = torch.nn.Sequential(*(one for one in rest if not isinstance(one, torch.nn.Embedding)))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for positions in self.positions:
            x = x + positions(torch.arange(ids.shape[1], device=ids.device))
        return self.then(x)  # type: ignore[no-any-return]


class Block(torch.nn.Module):
    """A block with what the model passes to each of them beside the hidden state: masks and encoded positions."""

    def __init__(self, block: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__()
        self.block = block
        self.positional = positional
        self.named = named

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = self.block(x, *self.positional, **self.named)
        return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]


def layers(model: torch.nn.Module, sample: torch.Tensor) -> list[torch.nn.Module]:
    """The layers of a decoder in order: its embedding, its blocks, and its last norm with the head.

    They share the model's parameters, and take micro-batches of the shape of `sample`.

    Raises ConfigError if the model is more than its embedding, blocks, norm and head, one after the other.

    Parameters
    ----------
    model
        LlamaForCausalLM, GPT2LMHeadModel, GPTNeoXForCausalLM, or another decoder of this form.
    sample
        The ids of the tokens of one micro-batch.
    """
    blocks, parent = _blocks(model)
    tokens, head = model.get_input_embeddings(), model.get_output_embeddings()  # type: ignore[operator]
    others = [one for name, one in parent.named_children() if one not in (blocks, tokens) and "rot" not in name]
    before = [one for one in others if not _is_norm(one)]
    made: list[torch.nn.Module] = [Embedding(tokens, before)]

    def note(block: torch.nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        made.append(Block(block, given[1:], {name: value for name, value in named.items() if name != "hidden_states"}))

    handles = [block.register_forward_pre_hook(note, with_kwargs=True) for block in blocks]
    mode = model.training
    model.eval()
    with torch.no_grad():
        expected = model(sample, use_cache=False).logits
    for handle in handles:
        handle.remove()
    made.append(torch.nn.Sequential(*(one for one in others if _is_norm(one)), head))
    try:
        with torch.no_grad():
            x = torch.nn.Sequential(*made)(sample)
        is_same = x.shape == expected.shape and torch.allclose(x, expected, rtol=1e-3, atol=1e-4)
    except (TypeError, RuntimeError):
        is_same = False
    for layer in [model, *made]:
        layer.train(mode)
    if not is_same:
        raise ConfigError(f"{type(model).__name__} is more than an embedding, blocks, a norm and a head: the logits of "
                          "these layers differ from its own; pass a list of blocks that together are the model")
    return made


def _is_norm(module: torch.nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def _blocks(model: torch.nn.Module) -> tuple[torch.nn.ModuleList, torch.nn.Module]:
    """The longest list of modules, and the module that contains it."""
    found = [(child, parent) for parent in model.modules() for child in parent.children()
             if isinstance(child, torch.nn.ModuleList)]
    if not found or not hasattr(model, "get_output_embeddings"):
        raise ConfigError(f"{type(model).__name__} has no list of blocks: pass torch.nn.Sequential, a list of blocks, "
                          "or a decoder such as LlamaForCausalLM")
    return max(found, key=lambda one: len(one[0]))
