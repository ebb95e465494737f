#!/usr/bin/env python3
"""What each schedule holds per rank, predicted and measured, and what its step takes beside 1F1B's.

    measure.py PENSTOCK [--rounds N] [--steps N]

PENSTOCK is the program. Prints tables in Markdown. Ends with 1 where bytes or micro-batches differ from what was
predicted, or a rank holds more than the V schedules' authors promise.
"""
import argparse
import json
import statistics
import subprocess
import sys

RANKS = 4
MICRO_BATCHES = 8
NETWORK = ["--model", "gpt", "--layers", "8", "--width", "128", "--heads", "4", "--context", "64",
           "--batch-size", "32", "--micro-batches", str(MICRO_BATCHES), "--stages", str(RANKS),
           "--transport", "threads"]
SCHEDULES = ["gpipe", "1f1b", "zb-h1", "zb-v", "v-half", "v-min"]
# Most live micro-batches of a rank, of the p that 1F1B holds (Pipeline Parallelism with Controllable Memory, 2024).
BOUNDS = {"v-half": lambda p: (p + 2) // 2, "v-min": lambda p: (p + 4) // 3}


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


class Case:
    """One schedule in one mode: a line of the table."""

    def __init__(self, schedule, weight_gradients, recompute):
        self.schedule, self.weight_gradients, self.recompute = schedule, weight_gradients, recompute
        self.flags = [*NETWORK, "--schedule", schedule, "--weight-gradients", weight_gradients,
                      *(["--recompute"] if recompute else [])]
        self.memory, self.step_ms = {}, []

    def bench(self, program, *flags):
        return output_of([program, "bench", "step", *self.flags, *flags, "--json", "-"])

    def measure_memory(self, program):
        self.memory = self.bench(program, "--memory", "--steps", "2", "--warm-up", "1")

    def measure_time(self, program, steps):
        self.step_ms += self.bench(program, "--steps", str(steps), "--warm-up", "1")["step_ms"]

    def is_as_predicted(self):
        return all(self.memory[f"{what}_measured"] == self.memory[f"{what}_predicted"]
                   for what in ("activations", "activation_bytes"))

    def chunks(self):
        return self.memory["chunks"]

    def live(self):
        """Micro-batches of a whole rank: a chunk's counts as a part."""
        return max(self.memory["activations_measured"]) / self.chunks()

    def mebibytes(self):
        return [count / 2**20 for count in self.memory["activation_bytes_measured"]]

    def growth(self):
        """MiB of the whole process, from before the first step to the peak."""
        return (self.memory["process_bytes_peak"][0] - self.memory["process_bytes_before"][0]) / 2**20


def steps_table(cases):
    plain = next(case for case in cases
                 if (case.schedule, case.weight_gradients, case.recompute) == ("1f1b", "stream", False))
    for case in cases:
        name = f"{case.schedule}, {case.weight_gradients}{', recomputed' if case.recompute else ''}"
        ranks = " ".join(f"{count:.2f}" for count in case.mebibytes())
        yield (f"| {name} | {case.live():g} | {ranks} | {'yes' if case.is_as_predicted() else 'NO'} | "
               f"{max(case.mebibytes()) / max(plain.mebibytes()):.2f} | "
               f"{statistics.median(case.step_ms) / statistics.median(plain.step_ms):.2f} | {case.growth():.0f} |")


def bounds_table(program, cases):
    """Lines, and whether all bounds are met."""
    lines, all_met = [], True
    for schedule, bound in BOUNDS.items():
        measured = max(case.live() for case in cases if case.schedule == schedule and case.weight_gradients == "stream")
        found = [(RANKS, "measured", measured)]
        for p in (RANKS, 16):
            simulation = output_of([program, "simulate", "--schedule", schedule, "--stages", str(p),
                                    "--micro-batches", str(4 * p), "--json", "-"])
            found.append((p, "simulated", max(simulation["peak_contexts"]) * p / simulation["stages"]))
        for p, how, most in found:
            all_met &= most <= bound(p)
            lines.append(f"| {schedule} | {p} | {how} | {most:g} | {bound(p)} | {p} |")
    return lines, all_met


def main():
    instructions = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    instructions.add_argument("program")
    instructions.add_argument("--rounds", type=int, default=2)
    instructions.add_argument("--steps", type=int, default=3, help="per round")
    flags = instructions.parse_args()

    cases = [Case(schedule, mode, recompute) for recompute in (False, True) for mode in ("stream", "fused")
             for schedule in SCHEDULES]
    for case in cases:
        case.measure_memory(flags.program)
    for _ in range(flags.rounds):
        for case in cases:
            case.measure_time(flags.program, flags.steps)

    print("| schedule | live | MiB of activations, by rank | as predicted | most, to 1F1B's | step, to 1F1B's "
          "| process grows by MiB |\n| --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join(steps_table(cases)))
    lines, all_met = bounds_table(flags.program, cases)
    print("\n| schedule | p | how | most live | bound | 1F1B |\n| --- | --- | --- | --- | --- | --- |")
    print("\n".join(lines))
    print("\nRecompute, beside the same without (stream): schedule, bytes of the fullest rank, step time")
    for schedule in SCHEDULES:
        kept, again = (next(case for case in cases if (case.schedule, case.weight_gradients, case.recompute)
                            == (schedule, "stream", recompute)) for recompute in (False, True))
        print(f"  {schedule:8} {max(again.mebibytes()) / max(kept.mebibytes()):.2f} "
              f"{statistics.median(again.step_ms) / statistics.median(kept.step_ms):.2f}")
    sys.exit(0 if all_met and all(case.is_as_predicted() for case in cases) else 1)


if __name__ == "__main__":
    main()
