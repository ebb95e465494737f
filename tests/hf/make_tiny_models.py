"""Writes tiny random models of every architecture with transformers, and what they compute.

usage: make_tiny_models.py TINY_CONFIGS_H FOLDER

For each configuration of tiny_configs.h: FOLDER/NAME with config.json and model.safetensors as save_pretrained writes
them, and expected.safetensors: tokens [5, 17], the logits of the first 16 columns, and the losses of 20 steps of AdamW
over these rows in micro-batches of 2, 2 and 1 rows, by a plain loop.
"""
import json
import os
import re
import sys

import torch
import torch.nn.functional as functional
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, logging

STEPS, MICRO_BATCHES = 20, 3
MODEL_TYPES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "Qwen2ForCausalLM": "qwen2",
               "Qwen3ForCausalLM": "qwen3", "Gemma3ForCausalLM": "gemma3_text", "GPT2LMHeadModel": "gpt2",
               "GPTNeoXForCausalLM": "gpt_neox"}


def configurations(header):
    with open(header) as file:
        text = file.read()
    sizes = re.search(r'sizes =\s*R"\((.*?)\)"', text, re.S).group(1)
    for name, shared, rest in re.findall(r'\{"(\w+)",\s*("\{" \+ sizes \+ )?R"\((.*?)\)"\}', text, re.S):
        yield name, json.loads(("{" + sizes if shared else "") + rest)


def losses_of(model, tokens):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for part in tokens.tensor_split(MICRO_BATCHES):
            logits = model(input_ids=part[:, :-1]).logits
            loss = functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum")
            (loss / tokens[:, 1:].numel()).backward()
            total += loss.item()
        losses.append(total / tokens[:, 1:].numel())
        optimizer.step()
    return losses


def main(header, folder):
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    for number, (name, values) in enumerate(configurations(header)):
        torch.manual_seed(number)
        directory = os.path.join(folder, name)
        config = AutoConfig.for_model(MODEL_TYPES[values["architectures"][0]], **values)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():  # norms, biases and small weights that are all alike would hide mistakes
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(directory)
        if number % 2 == 0:  # the values as older versions wrote them
            with open(os.path.join(directory, "config.json"), "w") as file:
                json.dump(values, file)
        tokens = torch.randint(0, values["vocab_size"], (5, 17))
        model.eval()
        with torch.no_grad():
            logits = model(input_ids=tokens[:, :-1]).logits
        expected = {"tokens": tokens, "logits": logits, "losses": torch.tensor(losses_of(model, tokens), dtype=torch.float64)}
        save_file(expected, os.path.join(directory, "expected.safetensors"))


if __name__ == "__main__":
    main(*sys.argv[1:])
