"""Writes tiny random models of every architecture with transformers, and what they compute.

usage: make_tiny_models.py TINY_CONFIGS_H FOLDER

For each configuration of tiny_configs.h: FOLDER/NAME with config.json and model.safetensors as save_pretrained writes
them, and expected.safetensors: tokens [5, 17]; logits of the first 16 columns, and losses of 20 steps of AdamW over these
rows in micro-batches of 2, 2 and 1 rows, by a plain loop; bf16_logits and bf16_losses, the same under autocast;
generated [3, PROMPT + 64], greedy continuations of the first prompt_length tokens of 3 of the rows.
"""
import contextlib
import copy
import json
import os
import re
import sys

import torch
import torch.nn.functional as functional
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, logging

STEPS, MICRO_BATCHES = 20, 3
PROMPT, GENERATED, ROWS = 7, 64, 3
LEAST_GAP = 1e-4  # between the two largest logits, relative to the largest: rounding must not choose a token
MODEL_TYPES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "Qwen2ForCausalLM": "qwen2",
               "Qwen3ForCausalLM": "qwen3", "Gemma3ForCausalLM": "gemma3_text", "GPT2LMHeadModel": "gpt2",
               "GPTNeoXForCausalLM": "gpt_neox"}


def configurations(header):
    with open(header) as file:
        text = file.read()
    sizes = re.search(r'sizes =\s*R"\((.*?)\)"', text, re.S).group(1)
    for name, shared, rest in re.findall(r'\{"(\w+)",\s*("\{" \+ sizes \+ )?R"\((.*?)\)"\}', text, re.S):
        yield name, json.loads(("{" + sizes if shared else "") + rest)


def losses_of(model, tokens, precision):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for part in tokens.tensor_split(MICRO_BATCHES):
            with precision():
                logits = model(input_ids=part[:, :-1]).logits
            loss = functional.cross_entropy(logits.float().flatten(0, 1), part[:, 1:].flatten(), reduction="sum")
            (loss / tokens[:, 1:].numel()).backward()
            total += loss.item()
        losses.append(total / tokens[:, 1:].numel())
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64)


def generated_by(model, prompts):
    # In place of the model's own, whose end token would end a sequence.
    model.generation_config = GenerationConfig(do_sample=False, max_new_tokens=GENERATED, pad_token_id=0)
    done = model.generate(prompts, attention_mask=torch.ones_like(prompts), return_dict_in_generate=True,
                          output_scores=True)
    first, second = torch.stack(done.scores).topk(2).values.unbind(-1)
    clear = ((first - second) / first.abs()).amin(0) > LEAST_GAP
    assert clear.sum() >= ROWS, model.config
    return done.sequences[clear][:ROWS]


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def main(header, folder):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
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
        expected = {"tokens": tokens, "prompt_length": torch.tensor(PROMPT)}
        with torch.no_grad():
            expected["generated"] = generated_by(model.eval(), tokens[:, :PROMPT])
            for prefix, precision in (("", contextlib.nullcontext), ("bf16_", autocast)):
                with precision():
                    expected[prefix + "logits"] = model(input_ids=tokens[:, :-1]).logits.float()
        for prefix, precision in (("", contextlib.nullcontext), ("bf16_", autocast)):
            expected[prefix + "losses"] = losses_of(copy.deepcopy(model), tokens, precision)
        save_file(expected, os.path.join(directory, "expected.safetensors"))


if __name__ == "__main__":
    main(*sys.argv[1:])
