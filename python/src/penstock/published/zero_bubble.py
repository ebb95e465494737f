"""The tables of the Zero Bubble paper (arXiv 2401.10241), from the times of its Table 9.

Two terms of the product are fitted by `penstock.fit`, on the other models of a table, and used for the model that was
left out: `slowdown`, because kernels that share a GPU with communication and its launches take longer in a step, and
`send_share`, because a message needs the sender's time too. (One transfer lasts 0.4 to 0.8 ms, and a stage of a
micro-batch 30 to 80.) The paper's optimiser is validated after the step, so that a rank begins its next step when its
own work is done: the step is the span, and the makespan where an all-reduce stands before the update.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, partial

from penstock._planning import MeasuredStep, Schedule, StageCosts, StepTerms
from penstock.fitting import fit
from penstock.published.rows import Figure, Row, figures, row
from penstock.schedules import schedule

SOURCE = "2401.10241"
GENERATORS = {"1F1B": ("1f1b", None), "1F1B-I": ("interleaved", None), "ZB-H1": ("zb-h1", None),
              "ZB-H2": ("zb-h2", None), "ZB-1p": ("zb-auto", 1.0), "ZB-2p": ("zb-auto", 2.0), "ZB-V": ("zb-v", None)}
TERMS = ("slowdown", "send_share")


@dataclass(frozen=True)
class Cell:
    """A configuration, with its schedule and the costs of its stages."""

    model: str
    label: str
    value: float
    work: float  # of a step in ms times samples/s/GPU
    schedule: Schedule
    costs: StageCosts
    has_barrier: bool

    @property
    def step(self) -> MeasuredStep:
        return MeasuredStep(self.schedule, self.costs, self.work / self.value, overlaps=not self.has_barrier,
                            label=self.label)


def _costs(figure: Figure, layers: float = 1.0, micro_batch: float = 1.0) -> StageCosts:
    """Times of a whole rank in ms, which grow with the layers of a stage and with the micro-batch."""
    forward, input_grad, weight_grad, message = (figure.numbers[key] for key in ("f_ms", "b_ms", "w_ms", "comm_ms"))
    work = layers * micro_batch
    return StageCosts(forward=forward * work, input_grad=input_grad * work, weight_grad=weight_grad * work,
                      message=message * micro_batch)


def _micro_batch(figure: Figure, default: float | None = None) -> float:
    return figure.number(r" b(\d+)", default)


@lru_cache(maxsize=None)
def cells(table: str, micro_batch_from: str = "Table 4") -> tuple[Cell, ...]:
    """The rows whose schedule Penstock has and whose model is in Table 9."""
    references: dict[str, dict[int, Figure]] = {}  # by model and m: figures with the times of Table 9
    for figure in figures(SOURCE, ["Table 4", "Table 5"]):
        references.setdefault(figure.setting.split()[0], {}).setdefault(figure.count("m"), figure)
    stated = {(one.setting.split()[0], one.count("p")): _micro_batch(one)
              for one in figures(SOURCE, [micro_batch_from])}
    made = []
    for figure in figures(SOURCE, [table]):
        words = re.findall(r"[\w.*-]+", figure.setting)
        method = next((word.rstrip("*") for word in words if word.rstrip("*") in GENERATORS), None)
        model = words[0]
        if method is None or model not in references:
            continue
        p, m = figure.count("p"), figure.count("m")
        first = next(iter(references[model].values()))
        b = _micro_batch(figure, stated.get((model, p), _micro_batch(first)))
        if "(b/2, 2m)" in figure.setting:
            b, m = b / 2, 2 * m
        nearest = references[model][min(references[model], key=lambda known: (abs(known - m), known))]
        costs = (_costs(figure) if "f_ms" in figure.numbers else
                 _costs(nearest, first.count("p") / p, b / _micro_batch(first)))
        name, limit = GENERATORS[method]
        layers = int(first.number(r" L(\d+)")) + 2  # the embedding and the head count one each
        chunks = -(-layers // p) if name == "interleaved" else None  # one layer a chunk
        order = schedule(name, ranks=p, micro_batches=m, chunks=chunks, costs=costs, memory_limit=limit).lower()
        made.append(Cell(model, f"{figure.setting}, p = {p}, m = {m}", float(figure.value), 1e3 * m * b / p, order,
                         costs.divided(max(order.chunks)), "all-reduce" in figure.setting))
    return tuple(made)


@lru_cache(maxsize=None)
def terms_without(model: str, table: str) -> StepTerms:
    """The terms that the other models of a table decide."""
    return fit(None, [cell.step for cell in cells(table) if cell.model != model], terms=TERMS).terms


def throughputs(table: str, fitted_on: str) -> tuple[Row, ...]:
    rows = []
    for cell in cells(table):
        terms = terms_without(cell.model, fitted_on)
        rows.append(row(cell.label, cell.value, cell.work / cell.step.predicted(terms),
                        {name: one for name, one in terms.asdict().items() if name in TERMS}))
    return tuple(rows)


def bubble_rates(table: str, micro_batch_from: str) -> tuple[Row, ...]:
    rates = [(cell, cell.schedule.simulate(cell.costs).bubble_span) for cell in cells(table, micro_batch_from)]
    return tuple(Row(cell.label, cell.value, rate, rate - cell.value, {}) for cell, rate in rates)


TABLES = {"zero-bubble-4": partial(throughputs, "Table 4", "Table 4"),
          "zero-bubble-5": partial(bubble_rates, "Table 5", "Table 4"),
          "zero-bubble-6": partial(throughputs, "Table 6", "Table 6"),
          "zero-bubble-8": partial(bubble_rates, "Table 8", "Table 6"),
          "zero-bubble-10": partial(throughputs, "Table 10", "Table 4"),
          "zero-bubble-12": partial(throughputs, "Table 12", "Table 12")}
