"""The tables of the Zero Bubble paper (arXiv 2401.10241), from the times of its Table 9.

Two terms of the product are fitted by `penstock.fit`, on the other models of a table, and used for the model that was
left out: `slowdown`, because kernels that share a GPU with communication and its launches take longer in a step, and
`send_share`, because a message needs the sender's time too. (One transfer lasts 0.4 to 0.8 ms, and a stage of a
micro-batch 30 to 80.) The paper's optimiser is validated after the step, so that a rank begins its next step when its
own work is done: the step is the span, and the makespan where an all-reduce stands before the update.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from penstock._planning import Fit, MeasuredStep, Schedule, StageCosts
from penstock.fitting import fit
from penstock.published.rows import Figure, Row, Table, figures
from penstock.schedules import schedule

SOURCE = "2401.10241"
GENERATORS = {"1F1B": ("1f1b", None), "1F1B-I": ("interleaved", None), "ZB-H1": ("zb-h1", None),
              "ZB-H2": ("zb-h2", None), "ZB-1p": ("zb-auto", 1.0), "ZB-2p": ("zb-auto", 2.0), "ZB-V": ("zb-v", None)}
UNFITTED = "Nothing: the times are those of Table 9."
MISSING = ("The first and the last stage have one layer less, and the embedding and the head: all stages are taken as "
           "equal. Launches, data loading and variation between ranks are in `slowdown`.")


@dataclass(frozen=True)
class Times:
    """Of a whole rank and one micro-batch, in ms."""

    forward: float
    input_grad: float
    weight_grad: float
    message: float

    def scaled(self, layers: float, micro_batch: float) -> Times:
        work = layers * micro_batch
        return Times(self.forward * work, self.input_grad * work, self.weight_grad * work, self.message * micro_batch)


@dataclass(frozen=True)
class Cell:
    """A configuration with the times of its stages."""

    figure: Figure
    model: str
    method: str
    ranks: int
    micro_batches: int
    micro_batch: float  # in samples
    layers: int  # with the embedding and the head, which count one each
    times: Times
    has_barrier: bool = False

    @property
    def label(self) -> str:
        return f"{self.figure.setting}, p = {self.ranks}, m = {self.micro_batches}"

    @property
    def value(self) -> float:
        return float(self.figure.value)

    @property
    def ms_times_value(self) -> float:
        """A step in ms times samples/s/GPU."""
        return 1e3 * self.micro_batches * self.micro_batch / self.ranks

    def costs(self, chunks: int) -> StageCosts:
        return StageCosts(forward=self.times.forward / chunks, input_grad=self.times.input_grad / chunks,
                          weight_grad=self.times.weight_grad / chunks, message=self.times.message)

    @lru_cache(maxsize=None)
    def schedule(self) -> Schedule:
        name, limit = GENERATORS[self.method]
        chunks = -(-self.layers // self.ranks) if name == "interleaved" else None  # one layer a chunk
        return schedule(name, ranks=self.ranks, micro_batches=self.micro_batches, chunks=chunks, costs=self.costs(1),
                        memory_limit=limit).lower()

    def step(self) -> MeasuredStep:
        made = self.schedule()
        return MeasuredStep(made, self.costs(max(made.chunks)), self.ms_times_value / self.value,
                            overlaps=not self.has_barrier, label=self.label)

    def __hash__(self) -> int:
        return hash((self.figure.id, self.label, self.has_barrier))


@dataclass(frozen=True)
class Reference:
    """A model as Table 9 has it."""

    layers: int
    micro_batch: float
    ranks: int
    times: dict[int, Times]  # by the number of micro-batches

    def of(self, ranks: int, micro_batch: float, micro_batches: int) -> Times:
        """Times grow with the layers of a stage and with the micro-batch; the m that is nearest."""
        nearest = min(self.times, key=lambda m: (abs(m - micro_batches), m))
        return self.times[nearest].scaled(self.ranks / ranks, micro_batch / self.micro_batch)


def _times(figure: Figure) -> Times:
    return Times(*(figure.numbers[key] for key in ("f_ms", "b_ms", "w_ms", "comm_ms")))


def _references() -> dict[str, Reference]:
    references: dict[str, Reference] = {}
    for figure in figures(SOURCE, ["Table 4", "Table 5"]):
        model = figure.setting.split()[0]
        known = references.setdefault(model, Reference(int(figure.number(r" L(\d+)")) + 2, figure.number(r" b(\d+)"),
                                                       int(figure.numbers["p"]), {}))
        known.times.setdefault(int(figure.numbers["m"]), _times(figure))
    return references


def _micro_batches_of_models(table: str) -> dict[str, float]:
    """Samples in a micro-batch, by model and ranks, as another table states them."""
    return {f"{one.setting.split()[0]} {one.numbers['p']:g}": one.number(r" b(\d+)")
            for one in figures(SOURCE, [table])}


def cells(table: str, micro_batch_from: str = "Table 4") -> Iterable[Cell]:
    """The rows whose schedule Penstock has and whose model is in Table 9."""
    references = _references()
    known_micro_batch = _micro_batches_of_models(micro_batch_from)
    for figure in figures(SOURCE, [table]):
        words = re.findall(r"[\w.*-]+", figure.setting)
        method = next((word.rstrip("*") for word in words if word.rstrip("*") in GENERATORS), None)
        reference = references.get(words[0])
        if method is None or reference is None:
            continue
        ranks, m = int(figure.numbers["p"]), int(figure.numbers["m"])
        b = figure.number(r" b(\d+)", known_micro_batch.get(f"{words[0]} {ranks}", reference.micro_batch))
        if "(b/2, 2m)" in figure.setting:
            b, m = b / 2, 2 * m
        times = _times(figure) if "f_ms" in figure.numbers else reference.of(ranks, b, m)
        yield Cell(figure, words[0], method, ranks, m, b, reference.layers, times, "all-reduce" in figure.setting)


@lru_cache(maxsize=None)
def fitted_without(model: str, measured: tuple[Cell, ...], terms: tuple[str, ...]) -> Fit:
    return fit(None, [cell.step() for cell in measured if cell.model != model], terms=terms)


def predicted(measured: Sequence[Cell], fitted_on: Sequence[Cell],
              terms: tuple[str, ...] = ("slowdown", "send_share")) -> tuple[Row, ...]:
    """Each model with the terms that the other models decide."""
    models = dict.fromkeys(cell.model for cell in measured)
    of_model = {model: fitted_without(model, tuple(fitted_on), terms).terms for model in models}
    rows = []
    for cell in measured:
        found = of_model[cell.model]
        value = cell.ms_times_value / cell.step().predicted(found)
        rows.append(Row(cell.label, cell.value, value, value / cell.value - 1,
                        {name: one for name, one in found.asdict().items() if name in terms}))
    return tuple(rows)


def bubble_rates(table: str, micro_batch_from: str) -> tuple[Row, ...]:
    rows = []
    for cell in cells(table, micro_batch_from):
        made = cell.schedule()
        rate = made.simulate(cell.costs(max(made.chunks))).bubble_span
        rows.append(Row(cell.label, cell.value, rate, rate - cell.value, {}))
    return tuple(rows)


def table_4() -> Table:
    measured = list(cells("Table 4"))
    return Table("zero-bubble-4", "Zero Bubble, Table 4: samples/s/GPU on up to 32 A100, measured",
                 predicted(measured, measured),
                 "`slowdown` and `send_share`, on the three other models.", MISSING)


def table_5() -> Table:
    return Table("zero-bubble-5", "Zero Bubble, Table 5: bubble rates, computed in the paper",
                 bubble_rates("Table 5", "Table 4"), UNFITTED,
                 "Nothing else is in the paper's own figures; errors are differences of rates.")


def table_6() -> Table:
    measured = list(cells("Table 6"))
    return Table("zero-bubble-6", "Zero Bubble, Table 6: ZB-V in samples/s/GPU, measured",
                 predicted(measured, measured),
                 "`slowdown` and `send_share`, on the two other models.",
                 "The times of these runs are not printed: Table 9's are scaled by layers and micro-batch, so that "
                 "larger micro-batches are as efficient as small ones. " + MISSING)


def table_8() -> Table:
    return Table("zero-bubble-8", "Zero Bubble, Table 8: bubble rates of ZB-V, computed in the paper",
                 bubble_rates("Table 8", "Table 6"), UNFITTED,
                 "The paper's times for this table are not printed: Table 9's are scaled by layers and micro-batch. "
                 "Errors are differences of rates.")


def table_10() -> Table:
    return Table("zero-bubble-10", "Zero Bubble, Table 10: an all-reduce before the update, samples/s/GPU, measured",
                 predicted(list(cells("Table 10")), list(cells("Table 4"))),
                 "`slowdown` and `send_share`, on the three other models of Table 4. The barrier has no term: its step "
                 "is the makespan in place of the span.", "The time of the all-reduce itself. " + MISSING)


def table_12() -> Table:
    measured = list(cells("Table 12"))
    return Table("zero-bubble-12", "Zero Bubble, Table 12: as few micro-batches as ranks, samples/s/GPU, measured",
                 predicted(measured, measured), "`slowdown` and `send_share`, on the two other models.",
                 MISSING)


TABLES = {"zero-bubble-4": table_4, "zero-bubble-5": table_5, "zero-bubble-6": table_6, "zero-bubble-8": table_8,
          "zero-bubble-10": table_10, "zero-bubble-12": table_12}
