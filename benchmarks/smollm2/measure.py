"""SmolLM2: steps of fine-tuning, and generation, beside torch and transformers. See README.md.

    measure.py fine-tune [--precision fp32|bf16] [--runs N] [--steps N]
    measure.py generate [--runs N]

Every program is started anew in each run, one after the other; a ratio is within one run.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "build" / "hf" / "SmolLM2-135M-Instruct"
PYTHON = ROOT / "build" / "hf" / "venv" / "bin" / "python"
PENSTOCK = ROOT / "build" / "release" / "bin" / "penstock"
SAMPLES, LENGTH, VOCABULARY, WIDTH = 4, 128, 49152, 576
RANKS, MICRO_BATCHES, RATE = 2, 4, 1e-5
BLOCKS_OF_FIRST_STAGE = 19  # of 30; 18 and 20 take torch longer
WARM_UP = 2
LAUNCH = {"threads": [], "MPI": ["mpirun", "-n", RANKS, "--oversubscribe", "--bind-to", "none", "--mca", "btl",
                                 "self,vader"]}
NEW_TOKENS = 64
PROMPT = ("The history of the city begins long before the first walls were built, when people came down from the hills "
          "to trade salt, wool and copper at the crossing of the river. Over the years the market grew, and with it "
          "the number of houses, workshops and temples that stood along the two main roads. In the year {} a "
          "traveller wrote that")
PROMPTS = [PROMPT.format(1000 + 37 * i) for i in range(8)]


def load_model():
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    import torch

    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)


def batch():
    import torch

    torch.manual_seed(0)
    tokens = torch.randint(0, VOCABULARY, (SAMPLES, LENGTH + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def share_of_loss(logits, targets):
    import torch

    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()) / MICRO_BATCHES


def timed_steps(step, steps):
    """Milliseconds of each step after the warm-up."""
    times = []
    for _ in range(WARM_UP + steps):
        begin = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - begin))
    return times[WARM_UP:]


def plain_loop(steps, precision):
    import torch

    torch.set_num_threads(RANKS)
    model = load_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0, fused=True)
    inputs, targets = batch()

    def step():
        optimizer.zero_grad()
        for x, y in zip(inputs.split(1), targets.split(1)):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                loss = share_of_loss(model(x, use_cache=False).logits, y)
            loss.backward()
        optimizer.step()

    print(json.dumps(timed_steps(step, steps)))


def torch_rank(rank, meeting, steps, precision, memory):
    import torch
    import torch.distributed
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    class Stage(torch.nn.Module):
        """The embedding and the first blocks, or the other blocks, the norm and the head."""

        def __init__(self, model):
            super().__init__()
            base, first = model.model, rank == 0
            split = BLOCKS_OF_FIRST_STAGE
            self.embedding = base.embed_tokens if first else None
            self.blocks = torch.nn.ModuleList(base.layers[:split] if first else base.layers[split:])
            self.rotary = base.rotary_emb
            self.head = None if first else torch.nn.Sequential(base.norm, model.lm_head)
            self.tied = model.lm_head.weight

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                x = self.embedding(x) if self.embedding else x
                positions = torch.arange(x.shape[1])[None]
                turns = self.rotary(x, positions)
                for block in self.blocks:
                    x = block(x, attention_mask=None, position_ids=positions, position_embeddings=turns,
                              use_cache=False)
                return self.head(x) if self.head else x

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    module = Stage(load_model().train())
    inputs, targets = batch()
    between = torch.zeros(1, LENGTH, WIDTH).requires_grad_()
    logits = torch.zeros(1, LENGTH, VOCABULARY, dtype=getattr(torch, {"fp32": "float32", "bf16": "bfloat16"}[precision]))
    values = [inputs[:1], between, logits.requires_grad_()]
    stage = PipelineStage(module, rank, RANKS, torch.device("cpu"), input_args=(values[rank],),
                          output_args=(values[rank + 1],))
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=share_of_loss, scale_grads=False)
    optimizer = torch.optim.AdamW(module.parameters(), RATE, weight_decay=0, fused=True)

    def step():
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=[], return_outputs=False)
        torch.distributed.all_reduce(module.tied.grad)  # torch leaves the sum of a tied weight to its user
        optimizer.step()

    if memory:
        sys.path.append(str(ROOT / "benchmarks" / "vs-torch-pipelining"))
        from saved_bytes import SavedBytes

        saved = SavedBytes([*module.parameters(), *module.buffers()])
        with saved:
            timed_steps(step, steps)
        peaks = [None] * RANKS
        torch.distributed.all_gather_object(peaks, saved.peak)
        told = {"saved_bytes": peaks}
    else:
        told = timed_steps(step, steps)
    if rank == 0:
        print(json.dumps(told))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def torch_pipeline(steps, precision, memory):
    import torch.multiprocessing

    os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(torch_rank, (os.path.join(folder, "meeting"), steps, precision, memory),
                                              RANKS, start_method="spawn")


def transformers_generate():
    import torch
    from transformers import AutoTokenizer

    torch.set_num_threads(RANKS)
    tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
    model = load_model()
    inputs = tokenizer(PROMPTS, return_tensors="pt", padding=True)
    with torch.inference_mode():
        for length in (2, NEW_TOKENS):  # the first is a warm-up
            begin = time.perf_counter()
            model.generate(**inputs, max_new_tokens=length, min_new_tokens=length, do_sample=False)
            seconds = time.perf_counter() - begin
    print(json.dumps([1e3 * seconds]))


def penstock_steps(transport, steps, precision, program=PENSTOCK):
    command = [program, "bench", "step", "--model", f"hf:{MODEL}", "--context", LENGTH, "--batch-size", SAMPLES,
               "--micro-batches", MICRO_BATCHES, "--stages", RANKS, "--schedule", "1f1b", "--partition", "time",
               "--optimizer", "adamw", "--lr", RATE, "--precision", precision, "--steps", steps, "--warm-up", WARM_UP,
               "--json", "-"]
    return LAUNCH[transport] + command


def penstock_generate(transport):
    prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    command = [PENSTOCK, "generate", "--model", f"hf:{MODEL}", *prompts, "--tokens", NEW_TOKENS, "--greedy", "--stages",
               RANKS, "--json", "-"]
    return LAUNCH[transport] + command


def times_of(command):
    """Milliseconds that the program prints."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith(("{", "["))))
    if isinstance(told, list):
        return told
    return told["step_ms"] if "step_ms" in told else [1e3 * told["seconds"]]


def compare(programs, runs, base):
    """Medians of each program over all runs, and the median of the ratios of `base` to it within each run."""
    medians = {name: [] for name in programs}
    for _ in range(runs):
        for name, command in programs.items():
            medians[name].append(statistics.median(times_of(command)))
    print(f"| program | median ms | {base} / it |\n| --- | --- | --- |")
    for name, times in medians.items():
        ratios = sorted(one / own for one, own in zip(medians[base], times))
        print(f"| {name} | {statistics.median(times):.0f} | {statistics.median(ratios):.2f} "
              f"({ratios[0]:.2f} to {ratios[-1]:.2f}) |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", choices=["fine-tune", "generate", "plain-loop", "torch-pipeline", "transformers"])
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--memory", action="store_true", help="of torch-pipeline: the bytes that graphs hold, not times")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    flags = parser.parse_args()
    if flags.what == "plain-loop":
        return plain_loop(flags.steps, flags.precision)
    if flags.what == "torch-pipeline":
        return torch_pipeline(flags.steps, flags.precision, flags.memory)
    if flags.what == "transformers":
        return transformers_generate()
    peer = [PYTHON, "-W", "ignore", os.path.abspath(__file__)]
    if flags.what == "generate":
        programs = {f"Penstock, {transport}": penstock_generate(transport) for transport in LAUNCH}
        return compare({**programs, "transformers": [*peer, "transformers"]}, flags.runs, "transformers")
    programs = {f"Penstock, {transport}": penstock_steps(transport, flags.steps, flags.precision)
                for transport in LAUNCH}
    amount = ["--steps", flags.steps, "--precision", flags.precision]
    programs["torch, 1F1B"] = [*peer, "torch-pipeline", *amount]
    programs["plain loop, 2 threads"] = [*peer, "plain-loop", *amount]
    return compare(programs, flags.runs, "torch, 1F1B")


if __name__ == "__main__":
    main()
