"""Saves and loads the state of the benchmark's networks with torch.save and torch.distributed.checkpoint.

Usage: torch_save.py mlp|resnet50 sgd|momentum|adamw FOLDER [ROUNDS]

The state has the tensors that Penstock's checkpoint has: parameters, buffers and the optimiser's. torch.save is also
timed with an fsync of its file, because without one a power failure may lose it.
"""
import os
import shutil
import statistics
import sys
import time

import torch
import torch.distributed.checkpoint as dcp

workload, optimizer, folder = sys.argv[1:4]
rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 15
torch.set_num_threads(2)


def shapes():
    if workload == "mlp":
        widths = [784] + [1024] * 8 + [10]
        return [shape for a, b in zip(widths, widths[1:]) for shape in ((b, a), (b,))], []
    parameters, buffers = [(64, 3, 7, 7), (64,), (64,)], [(64,), (64,), ()]
    inside = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            for o, i, k in ((width, inside, 1), (width, width, 3), (width * 4, width, 1)):
                parameters += [(o, i, k, k), (o,), (o,)]
                buffers += [(o,), (o,), ()]
            if block == 0:
                parameters += [(width * 4, inside, 1, 1), (width * 4,), (width * 4,)]
                buffers += [(width * 4,), (width * 4,), ()]
            inside = width * 4
    return parameters + [(10, inside), (10,)], buffers


parameters, buffers = shapes()
state = {f"parameter{i}": torch.randn(shape) for i, shape in enumerate(parameters)}
state.update({f"buffer{i}": torch.randn(shape) for i, shape in enumerate(buffers)})
for slot in {"sgd": (), "momentum": ("momentum",), "adamw": ("exp_avg", "exp_avg_sq")}[optimizer]:
    state.update({f"parameter{i}/{slot}": torch.randn(shape) for i, shape in enumerate(parameters)})
total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())

shutil.rmtree(folder, ignore_errors=True)
os.makedirs(folder)
times, memory = {}, {}


def kibibytes(entry):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(entry + ":"))


def timed(name, work):
    """Notes the time of `work`, and by how much it needs more memory than what was used before."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # VmHWM begins anew
    before = kibibytes("VmRSS")
    begin = time.perf_counter()
    work()
    times.setdefault(name, []).append((time.perf_counter() - begin) * 1e3)
    memory.setdefault(name, []).append((kibibytes("VmHWM") - before) * 1024 / 1e6)


def save_durably(path):
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


for number in range(rounds):
    path = os.path.join(folder, f"{number}")
    timed("torch.save", lambda: torch.save(state, path + ".pt"))
    timed("torch.save and fsync", lambda: save_durably(path + ".durable.pt"))
    timed("torch.load", lambda: torch.load(path + ".pt"))
    timed("DCP save", lambda: dcp.save(state, checkpoint_id=path + ".dcp", no_dist=True))
    timed("DCP load", lambda: dcp.load(state, checkpoint_id=path + ".dcp", no_dist=True))
    for name in os.listdir(folder):
        whole = os.path.join(folder, name)
        shutil.rmtree(whole) if os.path.isdir(whole) else os.remove(whole)
print(f"{workload}, {optimizer}: {total / 1e6:.1f} MB, torch {torch.__version__}")
for name, found in times.items():
    print(f"{name}: {statistics.median(found):.1f} ms (median of {len(found)}), at most {max(memory[name]):.1f} MB more")
