#!/usr/bin/env python3
"""Plans for unequal hosts beside every other partition, measured; and a slow host that joins.

    measure.py PENSTOCK [--settings N,...] [--steps N] [--within SHARE] [--joins]

PENSTOCK is the program; to be run by a Python with the package penstock, as root. Hosts are network namespaces that a
bridge joins, each with a data rate and a share of a processor (cpu control groups, version 1). For each setting, the planner
chooses the order of the hosts and the partition of a perceptron with 1F1B; then every partition that is predicted to
take at most `--within` more than it is measured in that order. With --joins, the plan for all hosts but the slowest
one beside the plan for all, which may leave it out. Prints tables in Markdown.
"""
import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import penstock as ps

GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 4000  # short beside a step: a host of a quarter computes for 1 of 4 ms
WIDTHS = {"even": [1024] * 9, "narrowing": [1792, 1536, 1280, 1024, 1024, 768, 768, 512, 512]}
#           shares of a processor, data rate, network, micro-batches
SETTINGS = [((1, .5, .25), "1gbit", "even", 8), ((1, .5, .25), "100mbit", "even", 8),
            ((1, .5, .25), "1gbit", "narrowing", 8), ((1, .5, .25), "100mbit", "narrowing", 8),
            ((1, .5, .25), "1gbit", "even", 16), ((1, .5, .25), "1gbit", "even", 4),
            ((1, .5), "1gbit", "even", 8), ((1, .5), "100mbit", "narrowing", 8),
            ((1, .25), "1gbit", "narrowing", 8), ((.5, .5, .25), "1gbit", "even", 8)]
BATCH = 256


class Hosts:
    """Network namespaces with addresses 10.78.0.1 and up."""

    def __init__(self, shares, rate):
        self.holders, self.groups = [], []
        self.hub = self._holder()
        self._run(self.hub, "ip", "link", "add", "hub", "type", "bridge")
        self._run(self.hub, "ip", "link", "set", "hub", "up")
        for number, share in enumerate(shares):
            holder = self._holder()
            self.holders.append(holder)
            wire, port = f"w{number}", f"p{number}"
            self._run(self.hub, "ip", "link", "add", port, "type", "veth", "peer", "name", wire)
            self._run(self.hub, "ip", "link", "set", wire, "netns", str(holder.pid))
            self._run(self.hub, "ip", "link", "set", port, "master", "hub", "up")
            self._run(holder, "ip", "address", "add", f"10.78.0.{number + 1}/24", "dev", wire)
            self._run(holder, "ip", "link", "set", "lo", "up")
            self._run(holder, "ip", "link", "set", wire, "up")
            megabits = {"1gbit": 1000, "100mbit": 100}[rate]
            self._run(holder, "tc", "qdisc", "add", "dev", wire, "root", "tbf", "rate", rate, "burst",
                      str(megabits * 125), "latency", "200ms")
            group = GROUPS / f"penstock-host-{os.getpid()}-{number}"
            group.mkdir()
            self.groups.append(group)
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD_US)))
            (group / "cpu.shares").write_text("262144")  # before other work of the machine

    @staticmethod
    def _holder():
        holder = subprocess.Popen(["unshare", "--net", "--uts", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True, bufsize=1)
        holder.stdin.write("ready\n")
        holder.stdout.readline()
        return holder

    @staticmethod
    def _run(holder, *command):
        subprocess.run(["nsenter", "--target", str(holder.pid), "--net", "--uts", *command], check=True)

    def start(self, number, command, environment):
        group = self.groups[number] / "cgroup.procs"
        return subprocess.Popen(["nsenter", "--target", str(self.holders[number].pid), "--net", "--uts", *command],
                                env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, preexec_fn=lambda: group.write_text(str(os.getpid())))

    def close(self):
        for holder in [*self.holders, self.hub]:
            holder.stdin.close()
            holder.wait()
        for group in self.groups:
            while left := (group / "cgroup.procs").read_text().split():  # of runs that failed
                for process in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
                time.sleep(0.01)
            group.rmdir()


def network(widths, micro_batches):
    return ["--hidden", ",".join(map(str, widths[1:])), "--batch-size", str(BATCH), "--micro-batches",
            str(micro_batches)]


def profiled(program, widths, micro_batches, path):
    """The costs of layers while two ranks compute, on this machine without shares."""
    subprocess.run([program, "plan", "--profile", *network(widths, micro_batches), "--stages", "2", "--kernels", "fixed",
                    "--schedules", "1f1b", "--costs-file", path], check=True, capture_output=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})
    return json.loads(Path(path).read_text())


def cluster_of(shares, rate):
    gigabytes = {"1gbit": 0.125, "100mbit": 0.0125}[rate]
    return {"penstock_cluster": 1, "time_unit": "ms", "kinds": {f"share{share}": {"speed": share} for share in shares},
            "nodes": [{"name": f"h{i}", "kind": f"share{share}"} for i, share in enumerate(shares)],
            "links": {"between": {"GB_per_s": gigabytes, "latency": 0.2}}}


def measured(program, hosts, order, widths, micro_batches, partition, steps):
    """The median step in ms."""
    ranks = len(order)
    with tempfile.NamedTemporaryFile() as result:
        runs = []
        for rank, host in enumerate(order):
            flags = ["--partition", ",".join(partition)] if ranks > 1 else []
            command = [program, "bench", "step", *network(widths, micro_batches), "--stages", str(ranks), "--schedule",
                       "1f1b", "--weight-gradients", "stream", "--kernels", "fixed", "--steps", str(steps), "--warm-up",
                       "2", *flags]
            if rank == 0:
                command += ["--json", result.name]
            environment = {"OMP_NUM_THREADS": "1", "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": "29500",
                           "MASTER_ADDR": f"10.78.0.{order[0] + 1}"} if ranks > 1 else {"OMP_NUM_THREADS": "1"}
            runs.append(hosts.start(host, command, environment))
        for run in runs:
            out, err = run.communicate(timeout=300)
            if run.returncode != 0:
                raise SystemExit(f"{run.args}: {err[-800:]}{out[-300:]}")
        return json.loads(Path(result.name).read_text())["median_ms"]


class Predictions:
    def __init__(self, costs, cluster, order, micro_batches):
        self.layers, self.micro_batches = costs["layers"], micro_batches
        self.size = costs["samples"] / micro_batches / costs["micro_batch_size"]
        self.cluster = {**cluster, "nodes": [cluster["nodes"][host] for host in order]}
        self.ranks = len(order)

    def step(self, begins):
        """Of a partition, by the numbers of the first layers of its stages."""
        ends = [*begins[1:], len(self.layers)]
        stages = [self.layers[begin:end] for begin, end in zip(begins, ends)]

        def sums(member):
            return [sum(layer.get(member, layer["input_grad"] + layer["weight_grad"]) for layer in stage) * self.size
                    for stage in stages]

        costs = ps.StageCosts(forward=sums("forward"), input_grad=sums("input_grad"), weight_grad=sums("weight_grad"),
                              backward=sums("backward"))
        made = ps.schedule("1f1b", ranks=self.ranks, micro_batches=self.micro_batches)
        largest = max([self.layers[begin - 1]["boundary_bytes"] for begin in begins[1:]], default=0) * self.size
        return made.simulate(ps.on_cluster(costs, made, self.cluster, message_bytes=largest)).makespan

    def partitions(self):
        """Layers with parameters begin stages; activations stay with the layer before them."""
        possible = [i for i, layer in enumerate(self.layers) if i and layer["parameter_bytes"]]
        return [[0, *begins] for begins in itertools.combinations(possible, self.ranks - 1)]


def planned_for(costs, shares, rate, micro_batches, ranks):
    return ps.plan({**costs, "ranks": len(shares)}, cluster=cluster_of(shares, rate), ranks=ranks, replicas=1,
                   micro_batches=[micro_batches], schedules=["1f1b"], weight_gradients="stream").best


def order_of(plan):
    return [int(device[1:].split(":")[0]) for device in plan.devices]


def joins(program, number, steps):
    """A row: the step without the slowest host of a setting, and with it."""
    shares, rate, name, m = SETTINGS[number]
    with tempfile.TemporaryDirectory() as folder:
        costs = profiled(program, WIDTHS[name], m, f"{folder}/costs")
    plans = [planned_for(costs, some, rate, m, None) for some in (shares[:-1], shares)]
    with contextlib.closing(Hosts(shares, rate)) as hosts:
        def time_of(plan):
            return measured(program, hosts, order_of(plan), WIDTHS[name], m, [stage[0] for stage in plan.stages[1:]],
                            steps)
        times = [[time_of(plan) for plan in plans] for _ in range(3)]
    before, after = (min(column) for column in zip(*times))
    print(f"| {' : '.join(map(str, shares))} | {rate} | {name} | {m} | {' '.join(plans[0].devices)} | "
          f"{' '.join(plans[1].devices)} | {plans[1].makespan / plans[0].makespan:.3f} | {after / before:.3f} |",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock")
    parser.add_argument("--settings", default=",".join(map(str, range(len(SETTINGS)))))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--within", type=float, default=0.25)
    parser.add_argument("--joins", action="store_true")
    flags = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: exit(1))
    if flags.joins:
        print("| shares | rate | network | m | hosts before | hosts after | predicted after over before | measured |\n|"
              + " --- |" * 8)
        for number in map(int, flags.settings.split(",")):
            joins(flags.penstock, number, flags.steps)
        return
    print("| shares | rate | network | m | order, planned stages | predicted ms | measured ms | best of | its ms | "
          "planned over best | predicted over measured |\n|" + " --- |" * 11)
    for number in map(int, flags.settings.split(",")):
        shares, rate, name, m = SETTINGS[number]
        with tempfile.TemporaryDirectory() as folder:
            costs = profiled(flags.penstock, WIDTHS[name], m, f"{folder}/costs")
        planned = planned_for(costs, shares, rate, m, len(shares))
        order = order_of(planned)
        predictions = Predictions(costs, cluster_of(shares, rate), order, m)
        names = [layer["name"] for layer in costs["layers"]]
        chosen = [names.index(stage[0]) for stage in planned.stages]
        limit = (1 + flags.within) * planned.makespan
        rivals = [begins for begins in predictions.partitions() if predictions.step(begins) <= limit]
        with contextlib.closing(Hosts(shares, rate)) as hosts:
            def times(begins):
                return measured(flags.penstock, hosts, order, WIDTHS[name], m, [names[i] for i in begins[1:]],
                                flags.steps)
            steps = {tuple(begins): times(begins) for begins in [chosen, *rivals]}
            best = min(steps, key=steps.get)
            # The planned one and the best are measured again, by turns.
            pairs = [(times(chosen), times(list(best))) for _ in range(2)]
        mine = min(steps[tuple(chosen)], *(one for one, _ in pairs))
        other = min(steps[best], *(one for _, one in pairs))
        stages = " + ".join(str(len(stage)) for stage in planned.stages)
        print(f"| {' : '.join(map(str, shares))} | {rate} | {name} | {m} | {' '.join(planned.devices)}, {stages} | "
              f"{planned.makespan:.1f} | {mine:.1f} | {len(steps)} | {other:.1f} | {mine / other:.3f} | "
              f"{planned.makespan / mine:.3f} |", flush=True)


if __name__ == "__main__":
    main()
