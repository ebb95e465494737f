"""Throughput of large systems, whose times per layer are not published.

The time of a micro-batch on a stage is a sum of amounts of work (operations, bytes) times unknown times per amount,
which are the fitted terms: few, the same for a whole table, decided by rows of other models. What the pipeline makes
of it is simulated: `shape` is a step over the time of one micro-batch on one rank.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from penstock._planning import StageCosts
from penstock.published.rows import Case, Figure, Row, Table, figures, leave_one_out
from penstock.schedules import schedule

TERA = 1e12


@lru_cache(maxsize=None)
def shape(name: str, ranks: int, micro_batches: int, chunks: int = 1, backward: float = 2.0) -> float:
    """A step, in times of F and B of one micro-batch on a whole rank; `backward` is B over F."""
    made = schedule("interleaved" if name == "1f1b" and chunks > 1 else name, ranks=ranks, micro_batches=micro_batches,
                    chunks=chunks if name == "1f1b" else None)
    unit = 1 / (1 + backward) / max(made.chunks)
    costs = StageCosts(forward=unit, input_grad=backward / 2 * unit, weight_grad=backward / 2 * unit)
    return made.simulate(costs).makespan


# Of Megatron-LM's examples/sc21/run_table_1.sh: samples in a micro-batch, and layers of a chunk. A model that is not in
# it gets micro-batches of one sample and one chunk.
MEGATRON = {"1.7B": (16, 0), "3.6B": (16, 0), "7.5B": (16, 0), "18.4B": (8, 0), "39.1B": (4, 0), "76.1B": (2, 5),
            "145.6B": (2, 5), "310.1B": (1, 3), "529.6B": (1, 1)}
GPT_SHAPES = {"174.6B": (96, 12288, 96), "529.6B": (105, 20480, 128)}  # layers, hidden, heads, if a row lacks them
SEQUENCE, VOCABULARY = 2048, 51200


def _megatron_cases() -> Iterator[Case]:
    for figure in figures("2104.04473", ["Table 1", "Table 2"]):
        if "ZeRO" in figure.setting:
            continue
        name = figure.setting.split()[1]
        known = GPT_SHAPES.get(name, (0, 0, 0))
        layers, hidden, heads = (figure.number(rf" {key}(\d+)", default or None)
                                 for key, default in zip(("L", "h", "a"), known))
        p, d, t = (int(figure.numbers[key]) for key in ("p", "d", "t"))
        script_size, chunk = MEGATRON.get(name, (1, 0)) if figure.id == "Table 1" else (1, 0)
        size = figure.number(r"micro-batch (\d+)", script_size)
        m = int(figure.number(r" batch (\d+)") / (d * size))
        operations = (96 * size * SEQUENCE * layers * hidden ** 2 / TERA
                      * (1 + SEQUENCE / (6 * hidden) + VOCABULARY / (16 * layers * hidden)))
        step = shape("1f1b", p, m, int(layers / p / chunk) if chunk else 1, 3.0)
        of_stage = layers / p * size * SEQUENCE / 1e9
        yield Case(figure, name, {"s_per_TFLOP": step * operations / (p * t),
                                  "s_per_GB_of_activations": step * of_stage * 2 * hidden,
                                  "s_per_GB_of_scores": step * of_stage * 2 * heads * SEQUENCE / t},
                   operations * m / (p * t), float(figure.value))


def megatron() -> Table:
    cases = list(_megatron_cases())
    return Table("megatron", "Megatron-LM SC'21, Tables 1 and 2: TFLOP/s/GPU on 32 to 3072 A100", leave_one_out(cases),
                 "Three times, on the other models: of an operation of the products; of a byte of activations, which "
                 "every tensor-parallel rank has and all-reduces; of a byte of attention scores. Micro-batches and "
                 "chunks are those of the authors' run_table_1.sh; Table 2 states micro-batches, and runs without "
                 "interleaving.",
                 "Messages between stages, the sum of gradients over replicas and the optimiser; the embedding and "
                 "the head as work of two stages; all-reduces as an own term.",
                 ("ZeRO-3 rows of Table 2: no pipeline; a step gathers all parameters, which Penstock does not plan.",
                  "s5.8: kernels with and without fusing; the runs' p, d and m are not stated.",
                  "s5.9: bisection bandwidth, not a time of a step."))


def llama3() -> Table:
    cases = []
    for figure in figures("2407.21783", ["Table 4"]):
        p, m = int(figure.numbers["p"]), int(figure.numbers["m"])
        chunks = round((figure.number(r" L(\d+)") + 2) / p)
        cases.append(Case(figure, figure.setting, {"s_per_TFLOP": shape("1f1b", p, m, chunks) / m}, 1.0,
                          float(figure.value)))
    return Table("llama3", "Llama 3, Table 4: TFLOP/s/GPU of 405B on 8192 and 16384 H100", leave_one_out(cases),
                 "One time, of an operation, on the two other rows. One layer a chunk (V is not in the table).",
                 "Tensor, context and data parallelism: their communication is in the fitted time, so that the row "
                 "with context parallelism is overpredicted. Stages of unequal work.")


@dataclass(frozen=True)
class Decoder:
    """A Llama-like decoder; of experts, those that a token uses."""

    layers: int
    hidden: int
    feed_forward: int
    vocabulary: int = 128256
    key_value: int = 1024

    @property
    def blocks(self) -> float:
        """TFLOP per token of the products in all blocks, forward and backward."""
        return 6 * self.layers * self.hidden * (2 * self.hidden + 2 * self.key_value + 3 * self.feed_forward) / TERA

    @property
    def head(self) -> float:
        return 6 * self.hidden * self.vocabulary / TERA

    def attention(self, sequence: float) -> float:
        """The same of causal attention."""
        return 6 * self.layers * self.hidden * sequence / TERA


DECODERS = {"405B": Decoder(126, 16384, 53248), "70B": Decoder(80, 8192, 28672), "8B": Decoder(32, 4096, 14336),
            "8x22B": Decoder(56, 6144, 2 * 16384, 32768)}


def _decoder(figure: Figure) -> str:
    name = re.search(r"\b(" + "|".join(DECODERS) + r")\b", figure.setting)
    return name[1] if name else ""


def torchtitan() -> Table:
    cases = []
    for figure in figures("torchtitan", [f"Table {i}" for i in range(1, 7)]):
        name = _decoder(figure)
        if not name:
            continue
        decoder = DECODERS[name]
        sequence = figure.number(r"sequence (\d+)", 8192)
        recompute = 4 / 3 if name != "8B" or sequence > 8192 else 1.0  # full activation checkpointing
        p = int(figure.numbers.get("p", 1))
        m = p if p > 1 else 1  # torchtitan's default
        bubble = shape("1f1b", p, m, 2 if "Interleaved" in figure.setting else 1, 3 * recompute - 1) / m
        whole = figure.id in ("Table 2", "Table 4", "Table 5", "Table 6")  # compiled, and with Float8
        kind = ("float8" if whole or "Float8" in figure.setting else
                "compiled" if "compile" in figure.setting else "eager")
        cases.append(Case(figure, figure.id + f" {sequence:g}",
                          {f"s_per_TFLOP_{kind}": (decoder.blocks * recompute + decoder.head) * bubble,
                           "s_per_TFLOP_attention": decoder.attention(sequence) * recompute * bubble},
                          1.0, float(figure.value)))
    return Table("torchtitan", "torchtitan, Llama 3.1 on 8 to 512 H100: tokens/s/GPU", leave_one_out(cases),
                 "A time of an operation for each of eager, compiled and Float8 products, and one for attention, on "
                 "the rows of other tables and sequences. m = p, torchtitan's default.",
                 "Tensor and context parallelism, gathering parameters, AsyncTP.")


# Of the makers' data sheets, in TFLOP/s without sparsity: products in FP8 and in BF16; bytes of memory.
DEVICES = {"MI325X": (2614.9, 1307.4, 256e9), "MI355X": (5033.2, 2516.6, 288e9), "MI300X": (2614.9, 1307.4, 192e9)}


def primus() -> Table:
    cases, theirs = [], {}
    for figure in figures("Primus", ["Validation"]):
        name, _, kind = figure.setting.rpartition(": ")
        device = next((device for device in DEVICES if device in figure.setting), None)
        if kind != "measured":
            theirs[name] = float(figure.value)
        elif device and _decoder(figure):
            decoder, (fast, exact, memory) = DECODERS[_decoder(figure)], DEVICES[device]
            sequence, p = figure.number(r"sequence (\d+)", 8192), int(figure.numbers.get("p", 1))
            # 34 bytes for each activation of a layer (Korthikanti et al., 2022): blocks that do not fit are recomputed.
            held = 34 * sequence * figure.number(r"batch (\d+)", 1) * decoder.hidden * decoder.layers
            recompute = 4 / 3 if held > memory else 1.0
            products = fast if "FP8" in figure.setting else exact
            blocks = decoder.blocks / products + decoder.attention(sequence) / exact
            bubble = shape("1f1b", p, 4 * p) / (4 * p)
            time = (recompute * blocks + decoder.head / exact) * bubble
            cases.append(Case(figure, name, {"times_at_peak": time}, 1.0, float(figure.value)))
    rows = leave_one_out(cases)
    off = ", ".join(f"{theirs[case.group] / case.published - 1:+.1%}" for case in cases if case.group in theirs)
    return Table("primus", "Primus, 8 nodes of AMD GPUs: tokens/s/GPU", rows,
                 "One factor, how much longer an operation takes than at the device's peak, on the three other rows. "
                 f"(Primus's own projections, from a measured node, are off by {off}.) Blocks are recomputed if their "
                 "activations exceed the memory; of the pipeline m is not published: 4 p is assumed.",
                 "FSDP, expert parallelism and its all-to-all, memory-bound kernels.")


MFU_SCHEDULES = {"V-ZB": "zb-v", "V-Half": "v-half", "V-Min": "v-min", "1F1B": "1f1b", "1F1B-R": "1f1b"}


def _peak(name: str, ranks: int = 60) -> float:
    """The live activations of the fullest rank, over 1F1B's. With many ranks lower orders vanish."""
    made = schedule(name, ranks=ranks, micro_batches=2 * ranks)
    return max(made.simulate().peak_contexts) / max(made.chunks) / ranks


def controllable_memory() -> Table:
    cases, peaks = [], []
    for figure in figures("2405.15362", ["Table 1"]):
        name, part = figure.setting.split(",")[0], re.fullmatch(r"M(?:/(\d+))?", figure.value)
        if name in MFU_SCHEDULES and part:
            published, found = 1 / float(part[1] or 1), _peak(MFU_SCHEDULES[name])
            peaks.append(Row(f"Table 1, peak of activations over 1F1B's, {figure.setting}", published, found,
                             found / published - 1, {}))
    for figure in figures("2405.15362", ["Table 4"]):
        method = figure.setting.split(", ")[-1]
        if method not in MFU_SCHEDULES:
            continue
        p, m = int(figure.numbers["p"]), int(figure.numbers["m"])
        recomputed = method.endswith("-R")
        step = shape(MFU_SCHEDULES[method], p, m, 1, 3.0 if recomputed else 2.0) * (4 / 3 if recomputed else 1)
        cases.append(Case(figure, figure.setting, {"time_of_micro_batch": step / m}, 1.0, float(figure.value)))
    return Table("controllable-memory",
                 "Controllable memory (arXiv 2405.15362): peaks of Table 1; MFU % of Table 4, 38.5B on 32 GPUs",
                 (*peaks, *leave_one_out(cases)), "For Table 4 the time of a micro-batch, on the other schedules.",
                 "F = I = W, because the table's times are not published; messages.",
                 ("Table 3: the best of a grid; the configuration of one cell is known.",
                  "Table 5: times of F, which are inputs."))


TABLES = {"megatron": megatron, "primus": primus, "llama3": llama3, "torchtitan": torchtitan,
          "controllable-memory": controllable_memory}
