"""A schedule written in Python and one of a plan, executed by torch over two processes: the losses are a plain loop's.

    python python/tests/torch_bridge.py     (with torch and penstock installed)
"""
import os
import tempfile

import torch
import torch.distributed
import torch.multiprocessing

import penstock as ps
import penstock.torch

RANKS, MICRO_BATCHES, ROWS, WIDTH = 2, 4, 8, 16


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


def chosen_plan():
    costs = ps.torch.measure(blocks(8), torch.randn(ROWS, WIDTH), samples=ROWS * MICRO_BATCHES, ranks=RANKS, repeats=3)
    return ps.plan(costs, weight_gradients="stream")


def run(rank, meeting, plan_text):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    x, y = torch.randn(MICRO_BATCHES * ROWS, WIDTH), torch.randn(MICRO_BATCHES * ROWS, WIDTH)
    plan = ps.Plan.from_text(plan_text)
    for name, schedule in [("two-and-two", ps.schedule("two-and-two", ranks=RANKS, micro_batches=MICRO_BATCHES)),
                           ("zb-v", ps.schedule("zb-v", ranks=RANKS, micro_batches=MICRO_BATCHES)),
                           ("plan", plan.schedule)]:
        layers = blocks(8)
        bounds = [8 * s // schedule.stages for s in range(schedule.stages + 1)]
        if name == "plan":
            bounds = [0]
            for stage in plan.stages:
                bounds.append(bounds[-1] + len(stage))
        stages = [torch.nn.Sequential(*layers[a:b]) for a, b in zip(bounds, bounds[1:])]
        runtime = ps.torch.runtime(schedule.check(), stages, mean_square)
        losses = []
        has_loss = schedule.rank_of_stage[-1] == rank
        arguments = (x,) if schedule.rank_of_stage[0] == rank else ()
        runtime.step(*arguments, target=y if has_loss else None, losses=losses if has_loss else None)
        if has_loss:
            plain = torch.nn.Sequential(*blocks(8))
            expected = [mean_square(plain(a), b) for a, b in zip(x.chunk(MICRO_BATCHES), y.chunk(MICRO_BATCHES))]
            assert torch.equal(torch.stack(losses), torch.stack(expected)), name
            print(f"{name}: equal losses", flush=True)
    torch.distributed.destroy_process_group()


def main():
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        arguments = (os.path.join(folder, "meeting"), chosen_plan().best.to_text())
        torch.multiprocessing.start_processes(run, arguments, RANKS, start_method="spawn")


if __name__ == "__main__":
    main()
