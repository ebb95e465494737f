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
from penstock.published.rows import DATA, Case, Figure, Row, figures, leave_one_out, row
from penstock.schedules import schedule

TERA = 1e12
SEQUENCE, VOCABULARY = 2048, 51200  # of Megatron-LM's table
MFU_SCHEDULES = {"V-ZB": "zb-v", "V-Half": "v-half", "V-Min": "v-min", "1F1B": "1f1b", "1F1B-R": "1f1b"}


@lru_cache(maxsize=None)
def shape(name: str, ranks: int, micro_batches: int, chunks: int = 1, backward: float = 2.0) -> float:
    """A step, in times of F and B of one micro-batch on a whole rank; `backward` is B over F."""
    made = schedule("interleaved" if name == "1f1b" and chunks > 1 else name, ranks=ranks, micro_batches=micro_batches,
                    chunks=chunks if name == "1f1b" else None)
    unit = 1 / (1 + backward) / max(made.chunks)
    costs = StageCosts(forward=unit, input_grad=backward / 2 * unit, weight_grad=backward / 2 * unit)
    return made.simulate(costs).makespan


def _megatron() -> Iterator[Case]:
    for figure in figures("2104.04473", ["Table 1", "Table 2"]):
        if "ZeRO" in figure.setting:
            continue
        name = figure.setting.split()[1]
        known = DATA["megatron_shapes"].get(name, (None,) * 3)  # layers, hidden, heads, if a row lacks them
        layers, hidden, heads = (figure.number(rf" {key}(\d+)", default) for key, default in zip("Lha", known))
        p, d, t = (figure.count(key) for key in ("p", "d", "t"))
        # Of examples/sc21/run_table_1.sh: samples in a micro-batch, and layers of a chunk, or 0 for one chunk.
        script_size, chunk = DATA["megatron_runs"].get(name, (1, 0)) if figure.id == "Table 1" else (1, 0)
        size = figure.number(r"micro-batch (\d+)", script_size)
        m = int(figure.number(r" batch (\d+)") / (d * size))
        operations = (96 * size * SEQUENCE * layers * hidden ** 2 / TERA
                      * (1 + SEQUENCE / (6 * hidden) + VOCABULARY / (16 * layers * hidden)))
        step = shape("1f1b", p, m, int(layers / p / chunk) if chunk else 1, 3.0)
        of_stage = layers / p * size * SEQUENCE / 1e9
        yield Case(figure.setting, float(figure.value),
                   {"s_per_TFLOP": step * operations / (p * t),
                    "s_per_GB_of_activations": step * of_stage * 2 * hidden,
                    "s_per_GB_of_scores": step * of_stage * 2 * heads * SEQUENCE / t}, operations * m / (p * t), name)


def _llama3() -> Iterator[Case]:
    for figure in figures("2407.21783", ["Table 4"]):
        p, m = figure.count("p"), figure.count("m")
        chunks = round((figure.number(r" L(\d+)") + 2) / p)
        yield Case(figure.setting, float(figure.value), {"s_per_TFLOP": shape("1f1b", p, m, chunks) / m})


@dataclass(frozen=True)
class Decoder:
    """A Llama-like decoder; of experts, those that a token uses. Work is in TFLOP per token, forward and backward."""

    layers: int
    hidden: int
    feed_forward: int
    vocabulary: int = 128256
    key_value: int = 1024

    @property
    def blocks(self) -> float:
        """The products in all blocks."""
        return 6 * self.layers * self.hidden * (2 * self.hidden + 2 * self.key_value + 3 * self.feed_forward) / TERA

    @property
    def head(self) -> float:
        return 6 * self.hidden * self.vocabulary / TERA

    def attention(self, sequence: float) -> float:
        """Causal attention."""
        return 6 * self.layers * self.hidden * sequence / TERA


def _decoder(figure: Figure) -> tuple[str, Decoder] | None:
    name = re.search(r"\b(" + "|".join(DATA["decoders"]) + r")\b", figure.setting)
    return (name[1], Decoder(**DATA["decoders"][name[1]])) if name else None


def _torchtitan() -> Iterator[Case]:
    for figure in figures("torchtitan", [f"Table {i}" for i in range(1, 7)]):
        found = _decoder(figure)
        if found is None:
            continue
        name, decoder = found
        sequence = figure.number(r"sequence (\d+)", 8192)
        recompute = 4 / 3 if name != "8B" or sequence > 8192 else 1.0  # full activation checkpointing
        p = figure.count("p", 1)
        m = p if p > 1 else 1  # torchtitan's default
        bubble = shape("1f1b", p, m, 2 if "Interleaved" in figure.setting else 1, 3 * recompute - 1) / m
        whole = figure.id in ("Table 2", "Table 4", "Table 5", "Table 6")  # compiled, and with Float8
        kind = ("float8" if whole or "Float8" in figure.setting else
                "compiled" if "compile" in figure.setting else "eager")
        yield Case(figure.setting, float(figure.value),
                   {f"s_per_TFLOP_{kind}": (decoder.blocks * recompute + decoder.head) * bubble,
                    "s_per_TFLOP_attention": decoder.attention(sequence) * recompute * bubble},
                   group=f"{figure.id} {sequence:g}")


def _primus() -> Iterator[Case]:
    for figure in figures("Primus", ["Validation"]):
        name, _, kind = figure.setting.rpartition(": ")
        device = next((one for model, one in DATA["devices"].items() if model in figure.setting), None)
        found = _decoder(figure)
        if kind != "measured" or device is None or found is None:
            continue
        decoder = found[1]
        sequence, p = figure.number(r"sequence (\d+)", 8192), figure.count("p", 1)
        # 34 bytes for each activation of a layer (Korthikanti et al., 2022): blocks that do not fit are recomputed.
        held = 34 * sequence * figure.number(r"batch (\d+)", 1) * decoder.hidden * decoder.layers
        recompute = 4 / 3 if held > device["memory"] else 1.0
        products = device["fp8"] if "FP8" in figure.setting else device["bf16"]
        blocks = decoder.blocks / products + decoder.attention(sequence) / device["bf16"]
        time = (recompute * blocks + decoder.head / device["bf16"]) * (shape("1f1b", p, 4 * p) / (4 * p))
        yield Case(figure.setting, float(figure.value), {"times_at_peak": time})


def _peaks() -> Iterator[Row]:
    """The live activations of the fullest rank, over 1F1B's. With many ranks lower orders vanish."""
    ranks = 60
    for figure in figures("2405.15362", ["Table 1"]):
        name, part = figure.setting.split(",")[0], re.fullmatch(r"M(?:/(\d+))?", figure.value)
        if name in MFU_SCHEDULES and part:
            made = schedule(MFU_SCHEDULES[name], ranks=ranks, micro_batches=2 * ranks)
            found = max(made.simulate().peak_contexts) / max(made.chunks) / ranks
            yield row(f"Table 1, peak of activations over 1F1B's, {figure.setting}", 1 / float(part[1] or 1), found, {})


def _mfu() -> Iterator[Case]:
    for figure in figures("2405.15362", ["Table 4"]):
        method = figure.setting.split(", ")[-1]
        if method in MFU_SCHEDULES:
            p, m, recomputed = figure.count("p"), figure.count("m"), method.endswith("-R")
            step = shape(MFU_SCHEDULES[method], p, m, 1, 3.0 if recomputed else 2.0) * (4 / 3 if recomputed else 1)
            yield Case(figure.setting, float(figure.value), {"time_of_micro_batch": step / m})


TABLES = {"megatron": lambda: leave_one_out(list(_megatron())), "primus": lambda: leave_one_out(list(_primus())),
          "llama3": lambda: leave_one_out(list(_llama3())), "torchtitan": lambda: leave_one_out(list(_torchtitan())),
          "controllable-memory": lambda: (*_peaks(), *leave_one_out(list(_mfu())))}
