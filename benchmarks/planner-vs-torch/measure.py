#!/usr/bin/env python3
"""Predicted and measured steps of torch.distributed.pipelining: 12 transformer blocks, five schedules.

usage: measure.py [--ranks P] [--rounds N] [--micro-batches M] [--json FILE]

Needs torch and penstock. Each round measures the costs of the blocks in place before it runs one step of each schedule,
so that both see the same machine. Other programs and other virtual machines make times longer and never shorter: the
figures are lower quartiles, of steps as of measurements of all layers. Other programs' use of the cores is noted for
each step.
"""
import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing

import penstock as ps
import penstock.torch
from penstock.sharing import shared_makespan

BLOCKS, WIDTH, HEADS, TOKENS, ROWS = 12, 256, 4, 64, 4
SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"]


def blocks():
    torch.manual_seed(0)
    return [torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(BLOCKS)]


def mean_square(output, target):
    return ((output - target) ** 2).mean()


def link(rank):
    """Latency and bandwidth of a message between ranks 0 and 1, in ms: half of a round trip."""
    def trip(values):
        buffer, times = torch.zeros(values), []
        for _ in range(20):
            begin = time.perf_counter()
            for sender in (0, 1):
                (torch.distributed.send if rank == sender else torch.distributed.recv)(buffer, 1 - rank)
            times.append(500 * (time.perf_counter() - begin))
        return statistics.median(times)

    latency, long = trip(1), trip(1 << 20)
    return latency, (4 << 20) / max(long - latency, 1e-6)


class OtherPrograms:
    """The share of all cores that programs other than these processes used since the last call."""

    def __init__(self):
        self._last = self._now()

    @staticmethod
    def _now():
        with open("/proc/stat") as file:
            used = [int(field) for field in file.readline().split()[1:9]]
        machine = (sum(used) - used[3] - used[4]) / os.sysconf("SC_CLK_TCK")  # without idle and iowait
        own = torch.tensor(sum(os.times()[:4]), dtype=torch.float64)
        torch.distributed.all_reduce(own)
        return machine - float(own), time.perf_counter()

    def share(self):
        (before, begin), self._last = self._last, self._now()
        return max(0.0, (self._last[0] - before) / (self._last[1] - begin) / os.cpu_count())


def quartile(times):
    return sorted(times)[len(times) // 4]


def overhead(rank, p, latency):
    """The time of an instruction of torch's runtime beside its layers, in ms: of a step with next to none."""
    m, times = 8, []
    runtime = ps.torch.runtime(ps.schedule("1f1b", ranks=p, micro_batches=m),
                               [torch.nn.Linear(8, 8) for _ in range(p)], mean_square)
    batch = torch.randn(m, 8)
    for _ in range(12):
        torch.distributed.barrier()
        begin = time.perf_counter()
        runtime.step(*((batch,) if rank == 0 else ()), **({"target": batch, "losses": []} if rank == p - 1 else {}))
        torch.distributed.barrier()
        times.append(1e3 * (time.perf_counter() - begin))
    return max(0.0, statistics.median(times[2:]) / (2 * (m + p - 1)) - latency)


def lower_half(measured, p):
    """The medians of the faster half of the measurements; the spread as penstock.torch.measure defines it."""
    faster = sorted(measured, key=lambda one: sum(layer["forward"] + layer["backward"] for layer in one["layers"]))
    faster = faster[:(len(faster) + 1) // 2]
    costs, spreads = dict(measured[0], layers=[]), []
    for i, layer in enumerate(measured[0]["layers"]):
        low, middle, high = statistics.quantiles([one["layers"][i]["backward"] for one in faster], n=4)
        spreads.append((high - low) / 2 / middle)
        costs["layers"].append({key: value if isinstance(value, (str, int)) else
                                statistics.median(one["layers"][i][key] for one in faster)
                                for key, value in layer.items()})
    costs["spread"] = statistics.median(spreads) / (BLOCKS / p) ** 0.5
    return costs


def work(rank, meeting, arguments, results):
    torch.set_num_threads(1)
    p, m = arguments.ranks, arguments.micro_batches
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=p)
    sample, target = torch.randn(ROWS, TOKENS, WIDTH), torch.randn(m * ROWS, TOKENS, WIDTH)
    batch = torch.randn(m * ROWS, TOKENS, WIDTH)
    latency, bandwidth = link(rank) if rank < 2 else (0, 1)
    per_instruction = overhead(rank, p, latency)
    layers = blocks()

    def measured(repeats):
        return ps.torch.measure(layers, sample, samples=m * ROWS, ranks=p, repeats=repeats, busy=p,
                                latency_ms=latency, bytes_per_ms=bandwidth, overhead_ms=per_instruction)

    torch.distributed.barrier()
    first = [measured(5) if rank == 0 else None]
    torch.distributed.broadcast_object_list(first)
    plans = {name: ps.plan(first[0], schedules=[name], target="torch").best for name in SCHEDULES}
    runtimes = {name: ps.torch.runtime(plan, layers, mean_square) for name, plan in plans.items()}

    def step(name):
        owner = plans[name].schedule.rank_of_stage
        torch.distributed.barrier()
        begin = time.perf_counter()
        runtimes[name].step(*((batch,) if owner[0] == rank else ()),
                            **({"target": target, "losses": []} if owner[-1] == rank else {}))
        own = torch.tensor([-begin, time.perf_counter()], dtype=torch.float64)
        torch.distributed.all_reduce(own, torch.distributed.ReduceOp.MAX)  # one clock for all processes of a host
        return 1e3 * float(own.sum())

    steps, shares = {name: [] for name in SCHEDULES}, {name: [] for name in SCHEDULES}
    costs = []
    for name in SCHEDULES:  # warms up
        step(name)
    others = OtherPrograms()
    for _ in range(arguments.rounds):
        for name in SCHEDULES:
            if rank == 0:
                costs.append(measured(1))
            others.share()
            steps[name].append(step(name))
            shares[name].append(others.share())
    if rank == 0:
        results.put({"steps": steps, "shares": shares, "costs": lower_half(costs, p), "all_costs": costs,
                     "plans": {name: plan.to_text() for name, plan in plans.items()}})
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def report(found, p, cores):
    costs, rows = found["costs"], []
    for name in SCHEDULES:
        plan = ps.Plan.from_text(found["plans"][name])
        predicted = shared_makespan(plan, costs, cores=cores, busy=p)
        measured = quartile(found["steps"][name])
        rows.append({"schedule": name, "predicted_ms": predicted, "measured_ms": measured,
                     "median_ms": statistics.median(found["steps"][name]), "error": predicted / measured - 1,
                     "chunks": max(plan.schedule.chunks), "partition": plan.partition})
    # As the planner does: the simplest of those within the spread of the costs.
    limit = min(row["predicted_ms"] for row in rows) * (1 + costs["spread"])
    chosen = min(rows, key=lambda row: (row["predicted_ms"] > limit, row["chunks"], row["predicted_ms"]))
    best = min(row["measured_ms"] for row in rows)
    shares = [share for of_schedule in found["shares"].values() for share in of_schedule]
    print(f"{p} processes on {cores} cores, {len(found['steps']['1f1b'])} rounds; other programs used "
          f"{statistics.median(shares):.0%} of the cores in the median step, {max(shares):.0%} in the worst; "
          f"spread of the costs {costs['spread']:.1%}")
    print("| schedule | predicted, ms | measured, ms | error | against the best |\n| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        mark = " (chosen)" if row is chosen else ""
        print(f"| {row['schedule']}{mark} | {row['predicted_ms']:.0f} | {row['measured_ms']:.0f} | {row['error']:+.1%} "
              f"| {row['measured_ms'] / best - 1:+.1%} |")
    return {"ranks": p, "cores": cores, "rows": rows, "chosen_over_best": chosen["measured_ms"] / best - 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        world = torch.multiprocessing.start_processes(
            work, (os.path.join(folder, "meeting"), arguments, results), arguments.ranks, start_method="spawn",
            join=False)
        found = results.get()
        while not world.join():
            pass
    figures = report(found, arguments.ranks, len(os.sched_getaffinity(0)))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({**figures, **found}, file, indent=1)


if __name__ == "__main__":
    main()
