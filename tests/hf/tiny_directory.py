"""What directory_test.py compares with: a tiny Llama of transformers in a Hugging Face directory.

Usage, by a Python with torch and transformers:
  tiny_directory.py make FOLDER      writes FOLDER/tiny (shards) and tiny-bf16, tokens.bin, and perplexity.json, of
                                     windows of 32 tokens of tokens.bin
  tiny_directory.py logits FOLDER    prints the logits of the model in FOLDER for the tokens of `penstock infer --rows 2
                                     --context 32`
"""

import array
import json
import math
import os
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

VOCABULARY, CONTEXT = 256, 32


def make(folder):
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.3)).eval()
    model.save_pretrained(os.path.join(folder, "tiny"), max_shard_size="40KB")
    tokens = torch.randint(0, VOCABULARY, (1001,))
    with open(os.path.join(folder, "tokens.bin"), "wb") as file:
        array.array("H", tokens.tolist()).tofile(file)
    losses = 0.0
    with torch.no_grad():
        for begin in range(0, len(tokens) - 1, CONTEXT):
            window = tokens[begin:begin + CONTEXT + 1]
            losses += torch.nn.functional.cross_entropy(model(window[None, :-1]).logits[0], window[1:],
                                                        reduction="sum").item()
    with open(os.path.join(folder, "perplexity.json"), "w") as file:
        json.dump(math.exp(losses / (len(tokens) - 1)), file)
    for name, text in (("tokenizer.json", "{}"), ("tokenizer_config.json", '{"model_max_length": 64}'),
                       ("chat_template.jinja", "{{ messages }}\n")):
        with open(os.path.join(folder, "tiny", name), "w") as file:
            file.write(text)
    model.to(torch.bfloat16).save_pretrained(os.path.join(folder, "tiny-bf16"))


def logits(folder):
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    torch.manual_seed(0)
    tokens = torch.randint(0, VOCABULARY, (2, CONTEXT + 1))
    with torch.no_grad():
        json.dump({"dtype": str(model.dtype), "logits": model(tokens[:, :-1]).logits.tolist()}, sys.stdout)


if __name__ == "__main__":
    {"make": make, "logits": logits}[sys.argv[1]](sys.argv[2])
