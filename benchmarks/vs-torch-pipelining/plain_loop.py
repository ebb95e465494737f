"""A training step as one writes it for one process: micro-batches one after the other, or the whole batch at once.

    plain_loop.py WORKLOAD [--threads N] [--micro-batches M] [--steps N] [--warm-up N] [--start FILE]
"""
import argparse
import sys

sys.dont_write_bytecode = True
import torch

from models import load, mean_cross_entropy
from start_file import Start, read_start
from steps import Result, StepClock
from workloads import WORKLOADS, Workload, random_start


def train(workload: Workload, start: Start, steps: int, warm_up: int) -> Result:
    units = workload.build()
    load(units, start.state)
    network = torch.nn.Sequential(*(unit.module for unit in units))
    optimizer = torch.optim.SGD(network.parameters(), workload.learning_rate)
    count = workload.micro_batches
    inputs, targets = start.inputs.tensor_split(count), start.targets.tensor_split(count)
    losses = []
    clock = StepClock(warm_up)
    for step in range(warm_up + steps):
        optimizer.zero_grad()
        loss = torch.zeros(())
        for x, y in zip(inputs, targets):
            part = mean_cross_entropy(network(x), y) / count
            part.backward()
            loss += part.detach()
        optimizer.step()
        losses.append(loss)
        clock.end_of_step(step)
    return Result("", clock.step_ms, [loss.item() for loss in losses])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--micro-batches", type=int)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--start")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    workload = WORKLOADS[flags.workload]
    workload = workload.with_micro_batches(flags.micro_batches or workload.micro_batches)
    start = read_start(flags.start) if flags.start else random_start(workload)
    result = train(workload, start, flags.steps, flags.warm_up)
    threads = "1 thread" if flags.threads == 1 else f"{flags.threads} threads"
    result.name = f"plain loop, {threads}, m = {workload.micro_batches}"
    result.print()


if __name__ == "__main__":
    main()
