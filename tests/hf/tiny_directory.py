"""What directory_test.py compares with: models of transformers in Hugging Face directories.

Usage, by a Python with torch, transformers and peft: tiny_directory.py FOLDER

Writes FOLDER/tiny (shards), a Llama with a token for each byte, tiny-bf16, and gpt2; tokens.bin; perplexity.json, of
windows of 32 tokens of tokens.bin; and adapter, which PEFT made for tiny; then prints "made". Then for each line of
standard input, a JSON list of a function below and its arguments, prints what it returns.
"""

import array
import json
import math
import os
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCABULARY, CONTEXT = 256, 32


def perplexity_of_tokens(model, tokens, context):
    loss = 0.0
    with torch.no_grad():
        for begin in range(0, len(tokens) - 1, context):
            window = tokens[begin:begin + context + 1]
            loss += torch.nn.functional.cross_entropy(model(window[None, :-1]).logits[0], window[1:],
                                                      reduction="sum").item()
    return math.exp(loss / (len(tokens) - 1))


def make(folder):
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.3)).eval()
    model.save_pretrained(os.path.join(folder, "tiny"), max_shard_size="40KB")
    tokens = torch.randint(0, VOCABULARY, (1001,))
    with open(os.path.join(folder, "tokens.bin"), "wb") as file:
        array.array("H", tokens.tolist()).tofile(file)
    with open(os.path.join(folder, "perplexity.json"), "w") as file:
        json.dump(perplexity_of_tokens(model, tokens, CONTEXT), file)
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({character: number for number, character in enumerate(characters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(os.path.join(folder, "tiny", "tokenizer.json"))
    for name, text in (("tokenizer_config.json", '{"model_max_length": 64}'),
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
    """Of each model for the tokens of `penstock infer --rows 2 --context 32`. A model is a directory, or
    DIRECTORY+ADAPTER, which PEFT loads."""
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


def continuation(directory, prompt, tokens):
    """Of a text, greedy."""
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    tokenizer = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    done = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False)
    return tokenizer.decode(done[0, ids.shape[1]:].tolist())


def perplexity(directory, text, context):
    """Of a text and the token at its end."""
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    ids = Tokenizer.from_file(os.path.join(directory, "tokenizer.json")).encode(text).ids
    return perplexity_of_tokens(model, torch.tensor([*ids, model.config.eos_token_id]), context)


if __name__ == "__main__":
    make(sys.argv[1])
    print("made", flush=True)
    for line in sys.stdin:
        function, *arguments = json.loads(line)
        print(json.dumps({f.__name__: f for f in (logits, continuation, perplexity)}[function](*arguments)), flush=True)
