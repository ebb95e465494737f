"""What directory_test.py compares with: a tiny Llama and GPT-2 of transformers in Hugging Face directories.

Usage, by a Python with torch, transformers and peft: tiny_directory.py FOLDER

Writes FOLDER/tiny (shards), tiny-bf16 and gpt2, tokens.bin, perplexity.json, of windows of 32 tokens of tokens.bin, and
adapter, which PEFT made for tiny; then prints "made". Then for each line of standard input, a JSON list of models,
prints a list of their logits for the tokens of `penstock infer --rows 2 --context 32`. A model is a directory, or
DIRECTORY+ADAPTER, which PEFT loads.
"""

import array
import json
import math
import os
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

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
    model = model.to(torch.float32)
    model.name_or_path = os.path.join(folder, "tiny")
    lora = LoraConfig(r=3, lora_alpha=5, target_modules=["k_proj", "down_proj"], init_lora_weights=False)
    get_peft_model(model, lora).save_pretrained(os.path.join(folder, "adapter"))
    GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.3, resid_pdrop=0,
        embd_pdrop=0, attn_pdrop=0)).save_pretrained(os.path.join(folder, "gpt2"))


def logits(models):
    torch.manual_seed(0)
    tokens = torch.randint(0, VOCABULARY, (2, CONTEXT + 1))
    all_logits = []
    for directory, _, adapter in (model.partition("+") for model in models):
        model = AutoModelForCausalLM.from_pretrained(directory).eval()
        assert model.dtype == torch.float32, model.dtype
        if adapter:
            model = PeftModel.from_pretrained(model, adapter).eval()
        with torch.no_grad():
            all_logits.append(model(tokens[:, :-1]).logits.tolist())
    return all_logits


if __name__ == "__main__":
    make(sys.argv[1])
    print("made", flush=True)
    for line in sys.stdin:
        print(json.dumps(logits(json.loads(line))), flush=True)
