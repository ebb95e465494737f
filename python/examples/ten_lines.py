"""A schedule written in Python, executed by torch over two processes; the losses are those of a plain loop.

    python python/examples/ten_lines.py [FILE]     writes the schedule to FILE, for `penstock train --schedule FILE`
"""
import os
import sys
import tempfile

import torch
import torch.distributed
import torch.multiprocessing

import penstock as ps
import penstock.torch

RANKS, MICRO_BATCHES = 2, 4


def mine():
    """Of what is ready: gradients first, then the forward pass of the deepest stage, and W when nothing else is."""
    def key(operation, stage, i):
        return "IFW".index(operation), -stage, i

    return ps.policy(key, ranks=RANKS, micro_batches=MICRO_BATCHES, rank_of_stage=[0, 1, 1, 0], splits_backward=True,
                     name="mine").check()


def layers():
    torch.manual_seed(0)
    return [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()) for _ in range(4)]


def loss_of(output, target):
    return ((output - target) ** 2).mean()


def run(rank, meeting):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    x, y = torch.randn(32, 16), torch.randn(32, 16)
    stages, losses = layers(), []
    optimizer = torch.optim.SGD([p for stage in stages for p in stage.parameters()], lr=0.1)
    runtime = ps.torch.runtime(mine(), stages, loss_of)
    for _ in range(3):
        arguments = (x,) if rank == 0 else ()
        found = []
        runtime.step(*arguments, target=y, losses=found) if rank == 0 else runtime.step()
        losses += found
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:  # it has the last stage
        plain = torch.nn.Sequential(*layers())
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        expected = []
        for _ in range(3):
            step = [loss_of(plain(a), b) for a, b in zip(x.chunk(MICRO_BATCHES), y.chunk(MICRO_BATCHES))]
            (sum(step) / MICRO_BATCHES).backward()
            expected += step
            optimizer.step()
            optimizer.zero_grad()
        difference = (torch.stack(losses) - torch.stack(expected)).abs().max().item()
        print(f"{len(losses)} losses of 3 steps, the last {losses[-1].item():.6f}; largest difference {difference:g}")
        assert difference < 1e-6
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    print(mine(), flush=True)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            file.write(mine().to_text())
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(run, (os.path.join(folder, "meeting"),), RANKS, start_method="spawn")
