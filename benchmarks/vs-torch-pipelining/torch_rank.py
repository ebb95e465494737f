"""A training step through torch.distributed.pipelining: two processes, gloo, one thread each.

    torch_rank.py WORKLOAD [--schedules A,B] [--micro-batches M] [--steps N] [--warm-up N] [--start FILE] [--memory]
    torch_rank.py ... --rank R --meeting FILE    one of the two processes, on a host of its own

Prints a line for each schedule, from the rank that has the loss. Nothing but the schedule itself keeps the ranks in
step; losses are read after the last step. With --memory the line has the bytes that the graphs of each rank hold at
most, and steps take longer.
"""
import argparse
import contextlib
import itertools
import os
import sys
import tempfile
import warnings

sys.dont_write_bytecode = True
import torch
import torch.distributed
import torch.multiprocessing
from torch.distributed.pipelining import PipelineStage, schedules

from models import Unit, load, mean_cross_entropy
from saved_bytes import SavedBytes
from stage_partition import balanced, measure
from start_file import Start, read_start
from steps import Result, StepClock
from workloads import WORKLOADS, Workload, random_start

RANKS = 2

# Where the stages are: one each, in a loop of two, in a V.
PLACES = {
    "GPipe": (0, 1),
    "1F1B": (0, 1),
    "LoopedBFS": (0, 1, 0, 1),
    "Interleaved1F1B": (0, 1, 0, 1),
    "InterleavedZeroBubble": (0, 1, 0, 1),
    "ZBVZeroBubble": (0, 1, 1, 0),
    "DualPipeV": (0, 1, 1, 0),
}


def agreed_partition(workload: Workload, start: Start, places: tuple[int, ...]) -> list[int]:
    """Measured on rank 0, taken by all."""
    partition = torch.zeros(len(places) - 1, dtype=torch.int64)
    if torch.distributed.get_rank() == 0:
        units = workload.build()
        load(units, start.state)
        count = workload.micro_batches
        costs = measure(units, start.inputs.tensor_split(count)[0], start.targets.tensor_split(count)[0])
        partition = torch.tensor(balanced(costs, places))
    torch.distributed.broadcast(partition, 0)
    return partition.tolist()


def boundaries(units: list[Unit], bounds: list[int], inputs: torch.Tensor) -> list[torch.Tensor]:
    """What goes into each stage, and out of the last, for one micro-batch: torch need not find out."""
    values, x = [inputs], inputs
    for begin, end in itertools.pairwise(bounds):
        for unit in units[begin:end]:
            x = unit.module(x)
        x = x.detach().requires_grad_()
        values.append(x)
    return values


def of_all_ranks(count: int) -> list[int]:
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(RANKS)]
    torch.distributed.all_gather(counts, torch.tensor([count]))
    return [int(one) for one in counts]


def train(schedule_name: str, workload: Workload, start: Start, amount: tuple[int, int], memory: bool) -> Result:
    steps, warm_up = amount
    rank = torch.distributed.get_rank()
    places = PLACES[schedule_name]
    count = workload.micro_batches
    units = workload.build()
    bounds = [0, *agreed_partition(workload, start, places), len(units)]
    values = boundaries(units, bounds, start.inputs.tensor_split(count)[0])
    load(units, start.state)
    mine = [stage for stage in range(len(places)) if places[stage] == rank]
    modules = [torch.nn.Sequential(*(unit.module for unit in units[bounds[stage]:bounds[stage + 1]])) for stage in mine]
    stages = [PipelineStage(module, stage, len(places), torch.device("cpu"), input_args=values[stage],
                            output_args=values[stage + 1]) for module, stage in zip(modules, mine)]
    optimizer = torch.optim.SGD([p for module in modules for p in module.parameters()], workload.learning_rate)

    # A share of the mean here saves torch's pass over all gradients that divides them by the micro-batches.
    def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return mean_cross_entropy(output, target) / count

    schedule_class = schedules.get_schedule_class(schedule_name)
    only = stages[0] if len(places) == RANKS else stages
    try:
        schedule = schedule_class(only, count, loss_fn=loss_fn, scale_grads=False)
    except ValueError as error:
        return Result(schedule_name, skipped=str(error))
    inputs = [start.inputs] if 0 in mine else []
    has_loss = len(places) - 1 in mine
    losses = []
    saved = SavedBytes(value for module in modules for value in module.state_dict(keep_vars=True).values())
    clock = StepClock(warm_up)
    for step in range(warm_up + steps):
        optimizer.zero_grad()
        with saved if memory else contextlib.nullcontext():
            if has_loss:
                parts: list[torch.Tensor] = []
                schedule.step(*inputs, target=start.targets, losses=parts, return_outputs=False)
                losses.append([part.detach() for part in parts])
            else:
                schedule.step(*inputs)
        optimizer.step()
        clock.end_of_step(step)
    return Result(schedule_name, clock.step_ms, [sum(part.item() for part in parts) for parts in losses],
                  saved_bytes=of_all_ranks(saved.peak) if memory else [])


def run_rank(rank: int, flags: argparse.Namespace, meeting: str) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    workload = WORKLOADS[flags.workload]
    workload = workload.with_micro_batches(flags.micro_batches or workload.micro_batches)
    start = read_start(flags.start) if flags.start else random_start(workload)
    for name in flags.schedules.split(","):
        result = train(name, workload, start, (flags.steps, flags.warm_up), flags.memory)
        last_stage = PLACES[name][-1]
        if rank == last_stage:
            result.print()
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--schedules", default="GPipe,1F1B,Interleaved1F1B,InterleavedZeroBubble,ZBVZeroBubble")
    parser.add_argument("--micro-batches", type=int)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--start")
    parser.add_argument("--memory", action="store_true", help="count the bytes that graphs hold")
    parser.add_argument("--rank", type=int, choices=range(RANKS))
    parser.add_argument("--meeting", help="a new file that both hosts see")
    flags = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if flags.rank is not None:
        run_rank(flags.rank, flags, flags.meeting)
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(run_rank, (flags, os.path.join(folder, "meeting")), RANKS,
                                              start_method="fork")


if __name__ == "__main__":
    main()
