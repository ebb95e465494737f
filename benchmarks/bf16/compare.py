#!/usr/bin/env python3
"""bf16 beside fp32: what a step takes, and where a training ends.

    compare.py PENSTOCK steps [--rounds N] [--only NAME]
    compare.py PENSTOCK convergence --data FOLDER [--only NAME]

PENSTOCK is the program, FOLDER holds mnist, cifar10 and text (scripts/fetch_data.sh). Prints tables in Markdown.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

PRECISIONS = ["fp32", "bf16"]
SETTINGS = ["--stages", "2", "--partition", "time", "--schedule", "1f1b", "--weight-gradients", "fused", "--kernels",
            "tuned"]

# name: flags of `bench step`
STEPS = {
    "MLP 1024x8, batch 128, m 8": ["--hidden", "1024x8", "--batch-size", "128", "--micro-batches", "8"],
    "ResNet-50, 32x32, batch 64, m 4": ["--model", "resnet50", "--image-size", "32", "--batch-size", "64",
                                        "--micro-batches", "4"],
    "GPT 8 x 256, context 128, batch 32, m 8": ["--model", "gpt", "--layers", "8", "--width", "256", "--heads", "4",
                                                "--context", "128", "--batch-size", "32", "--micro-batches", "8"],
    "MLP 4096x4, batch 1024, m 4": ["--hidden", "4096x4", "--batch-size", "1024", "--micro-batches", "4"],
}
# Times as fast in bf16, if the processor multiplies bf16 itself.
GOALS = {"MLP 4096x4, batch 1024, m 4": 3.0, "ResNet-50, 32x32, batch 64, m 4": 1.5,
         "GPT 8 x 256, context 128, batch 32, m 8": 2.0}

# name: folder of its data, flags of `train`
TRAININGS = {
    "MNIST, MLP": ("mnist", ["--hidden", "256,256", "--batch-size", "64", "--epochs", "1", "--lr", "0.05",
                             "--momentum", "0.9"]),
    "CIFAR-10, ResNet-18": ("cifar10", ["--model", "resnet18", "--dataset", "cifar10", "--width", "8", "--stem", "cifar",
                                        "--batch-size", "32", "--epochs", "1", "--lr", "0.05", "--momentum", "0.9"]),
    "characters, GPT": ("text", ["--model", "gpt", "--layers", "2", "--width", "64", "--heads", "4", "--context", "32",
                                 "--batch-size", "16", "--steps", "200", "--optimizer", "adamw", "--lr", "0.003",
                                 "--dropout", "0"]),
}
SEEDS = ["1", "2"]
LAST = 20  # steps whose mean loss is the last loss


def lines_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def processor():
    """Its name, and what it has for bf16."""
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    has = set(fields.get("flags", "").split())
    return fields.get("model name", "unknown"), {flag: flag in has for flag in ("avx512f", "avx512_bf16", "amx_bf16")}


def print_processor():
    name, has = processor()
    print(f"{name}: " + ", ".join(f"{flag} {'yes' if there else 'no'}" for flag, there in has.items()) + "\n")


def steps(program, flags):
    print_processor()
    multiplies = any(processor()[1][name] for name in ("avx512_bf16", "amx_bf16"))
    print("| workload | fp32, ms | bf16, ms | times as fast in bf16 | goal |\n| --- | --- | --- | --- | --- |")
    for name, instructions in STEPS.items():
        if flags.only and flags.only not in name:
            continue
        times = {precision: [] for precision in PRECISIONS}
        for _ in range(flags.rounds):
            for precision in PRECISIONS:
                command = [program, "bench", "step", *instructions, *SETTINGS, "--precision", precision, "--steps", "4",
                           "--warm-up", "1", "--deadline", "600", "--json", "-"]
                times[precision] += lines_of(command)[0]["step_ms"]
        median = {precision: statistics.median(each) for precision, each in times.items()}
        ratio, goal = median["fp32"] / median["bf16"], GOALS.get(name)
        outcome = "-" if goal is None or not multiplies else f"{goal:g}: {'met' if ratio >= goal else 'missed'}"
        print(f"| {name} | {median['fp32']:.0f} | {median['bf16']:.0f} | {ratio:.2f} | {outcome} |", flush=True)


def convergence(program, flags):
    print_processor()
    print("| training | precision | seed | last loss | test loss | test accuracy |\n"
          "| --- | --- | --- | --- | --- | --- |")
    for name, (folder, instructions) in TRAININGS.items():
        if flags.only and flags.only not in name:
            continue
        for seed in SEEDS:
            for precision in PRECISIONS:
                lines = lines_of([program, "train", *instructions, "--data", str(Path(flags.data) / folder), "--stages", "2",
                                  "--micro-batches", "2", "--transport", "threads", "--precision", precision, "--seed",
                                  seed, "--deadline", "600", "--json", "-"])
                losses = [line["loss"] for line in lines if "loss" in line]
                test = next((line for line in reversed(lines) if "test_loss" in line), {})
                accuracy = f"{100 * test['test_accuracy']:.1f} %" if "test_accuracy" in test else "-"
                test_loss = f"{test['test_loss']:.4f}" if test else "-"
                print(f"| {name} | {precision} | {seed} | {statistics.fmean(losses[-LAST:]):.4f} | {test_loss} | "
                      f"{accuracy} |", flush=True)


def main():
    instructions = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    instructions.add_argument("program")
    instructions.add_argument("question", choices=["steps", "convergence"])
    instructions.add_argument("--rounds", type=int, default=1)
    instructions.add_argument("--data", default="data")
    instructions.add_argument("--only", default="", help="a part of one name")
    flags = instructions.parse_args()
    {"steps": steps, "convergence": convergence}[flags.question](flags.program, flags)


if __name__ == "__main__":
    main()
