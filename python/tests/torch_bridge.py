"""Schedules of Python, of generators and of a plan, executed by torch: the losses are a plain loop's.

    python python/tests/torch_bridge.py [RANKS]     (with torch and penstock installed)

Each process also records a trace; the account of them must know all of the step's time.
"""
import os
import sys
import tempfile

import torch
import torch.distributed
import torch.multiprocessing

import penstock as ps
import penstock.torch

RANKS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
MICRO_BATCHES, ROWS, WIDTH = 2 * RANKS, 8, 16


def blocks(count):
    torch.manual_seed(0)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(count)]


def mean_square(output, target):
    return ((output - target) ** 2).mean()


@ps.generator("two-and-two")
def two_and_two(p, m):
    """Two forward passes, then their two backward passes."""
    for rank in range(p):
        for i in range(0, m, 2):
            group = range(i, min(i + 2, m))
            yield from ((rank, f"{rank}F{k}") for k in group)
            yield from ((rank, f"{rank}B{k}") for k in group)


NAMES = ["two-and-two", "interleaved", "zb-v", "dualpipe-v", "plan"]


def chosen_plan():
    costs = ps.torch.measure(blocks(16), torch.randn(ROWS, WIDTH), samples=ROWS * MICRO_BATCHES, ranks=RANKS, repeats=3)
    return ps.plan(costs, weight_gradients="stream")


def run(rank, folder, plan_text):
    meeting = os.path.join(folder, "meeting")
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    x, y = torch.randn(MICRO_BATCHES * ROWS, WIDTH), torch.randn(MICRO_BATCHES * ROWS, WIDTH)
    plan = ps.Plan.from_text(plan_text)
    for name in NAMES:
        schedule = plan.schedule if name == "plan" else ps.schedule(name, ranks=RANKS, micro_batches=MICRO_BATCHES)
        layers = blocks(16)
        bounds = [16 * s // schedule.stages for s in range(schedule.stages + 1)]
        cut = [torch.nn.Sequential(*layers[a:b]) for a, b in zip(bounds, bounds[1:])]
        runtime = ps.torch.runtime(plan if name == "plan" else schedule.check(),
                                   layers if name == "plan" else cut, mean_square)
        optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], lr=0)
        losses = []
        has_loss = schedule.rank_of_stage[-1] == rank
        arguments = (x,) if schedule.rank_of_stage[0] == rank else ()

        def step():
            runtime.step(*arguments, target=y if has_loss else None, losses=losses if has_loss else None)
            optimizer.step()

        step()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            step()
            step()
        profile.export_chrome_trace(os.path.join(folder, f"{name}{rank}.json.gz"))
        if has_loss:
            plain = torch.nn.Sequential(*blocks(16))
            expected = [mean_square(plain(a), b) for a, b in zip(x.chunk(MICRO_BATCHES), y.chunk(MICRO_BATCHES))]
            assert torch.equal(torch.stack(losses[-MICRO_BATCHES:]), torch.stack(expected)), name
            print(f"{name}: equal losses", flush=True)
    torch.distributed.destroy_process_group()


def main():
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        best = chosen_plan().best
        torch.multiprocessing.start_processes(run, (folder, best.to_text()), RANKS, start_method="spawn")
        for name in NAMES:
            found = ps.torch.account([os.path.join(folder, f"{name}{rank}.json.gz") for rank in range(RANKS)])
            for rank in found.ranks:
                parts = sum(value for key, value in rank.items() if key != "total")
                assert rank["compute"] > 0 and abs(parts - rank["total"]) < 1e-6 * rank["total"], (name, rank)
            assert 0 < found.bubble < 1 and found.steps == 1  # of two, the first is left out
        print(found)


if __name__ == "__main__":
    main()
