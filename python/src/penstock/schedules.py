"""Schedules: of Penstock's generators, and of one's own."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from penstock import _planning
from penstock._planning import ConfigError, Schedule, StageCosts

Instructions = Iterable[tuple[int, str]]
Wave = Callable[[int, int], Instructions]
Key = Callable[[str, int, int], object]
_own: dict[str, Wave] = {}


def generator(name: str, *, chunks: int = 1) -> Callable[[Wave], Wave]:
    """Makes a function a generator: it takes ranks and micro-batches and yields (rank, instruction).

    Parameters
    ----------
    name
        The name by which `schedule` finds it.
    chunks
        Stages per rank; for display.

    Examples
    --------
    >>> @generator("all-forward-first")
    ... def all_forward_first(p, m):
    ...     for rank in range(p):
    ...         yield from ((rank, f"{rank}F{i}") for i in range(m))
    ...         yield from ((rank, f"{rank}B{i}") for i in range(m))
    >>> schedule("all-forward-first", ranks=2, micro_batches=2).check()
    Schedule('all-forward-first', ranks=2, stages=2, micro_batches=2)
    """

    def named(function: Wave) -> Wave:
        if name in dict(_planning.names()):
            raise ConfigError(f"a generator '{name}', but Penstock has one of this name: choose another name")
        _own[name] = function
        function.__dict__.update(schedule_name=name, chunks=chunks)
        return function

    return named


def schedule(source: str | Wave | Sequence[Sequence[str]], *, ranks: int | None = None, micro_batches: int,
             chunks: int | None = None, costs: StageCosts | None = None,
             memory_limit: float | str | None = None) -> Schedule:
    """The schedule of a step: compute instructions only.

    Raises ConfigError for an unknown name or numbers that the generator refuses, and DataError for an unknown
    instruction.

    Parameters
    ----------
    source
        The name of a generator (`generators`), a function that yields (rank, instruction), or the instructions of each
        rank in order: ``[["0F0", "0B0"], ["1F0", "1B0"]]``.
    ranks, micro_batches, chunks
        p, m and v, the stages per rank. `ranks` and `chunks` follow from instructions that are given.
    costs, memory_limit
        For generators that adapt to them: a limit of 1.5 times 1F1B's activations, or of bytes, as '512MiB'.
    """
    if not isinstance(source, str) and not callable(source):
        return _planning.schedule_of([list(order) for order in source], micro_batches, "")
    name = source if isinstance(source, str) else getattr(source, "schedule_name", getattr(source, "__name__", ""))
    if ranks is None:
        raise ConfigError(f"schedule '{name}' on how many ranks? Pass ranks=")
    function = source if callable(source) else _own.get(source)
    if function is None:
        return _planning.generate(name, ranks, micro_batches, chunks, costs, memory_limit)
    orders: list[list[str]] = [[] for _ in range(ranks)]
    for rank, instruction in function(ranks, micro_batches):
        if not 0 <= rank < ranks:
            raise ConfigError(f"instruction '{instruction}' for rank {rank}, but there are {ranks} ranks")
        orders[rank].append(instruction)
    return _planning.schedule_of(orders, micro_batches, name)


def generators() -> dict[str, str]:
    """The names of all generators, and what they are."""
    return {**dict(_planning.names()), **{name: (one.__doc__ or "").split("\n")[0] for name, one in _own.items()}}


def load(path: str | os.PathLike[str]) -> Schedule:
    """Reads a .sched file, or the CSV of torch.distributed.pipelining."""
    text = Path(path).read_text()
    return _planning.from_text(text) if text.startswith("penstock") else _planning.from_torch_csv(text)[0]


def table(*, ranks: int, micro_batches: int, chunks: int | None = None) -> str:
    """All schedules of one shape: bubble, activations and messages, by formula and by simulation."""
    return _planning.table(ranks, micro_batches, chunks)


def policy(key: Key, *, ranks: int, micro_batches: int, rank_of_stage: Sequence[int] | None = None,
           splits_backward: bool = False, name: str = "policy") -> Schedule:
    """A schedule by a rule: of the instructions that are ready, a rank takes the one with the smallest key.

    Every instruction takes one unit of time (B, which is not split, two), and messages take none.

    Parameters
    ----------
    key
        A function of the operation ('F', 'B', or with `splits_backward` 'I' and 'W'), the stage and the micro-batch.
    rank_of_stage
        The rank of each stage; without: one stage per rank.

    Examples
    --------
    Backward passes first:

    >>> s = policy(lambda op, stage, i: (op == "F", i), ranks=2, micro_batches=2).check()
    >>> s.orders[1]
    ['1F0', '1B0', '1F1', '1B1']
    """
    places = range(ranks) if rank_of_stage is None else rank_of_stage
    units = {"F": 1, "I": 1, "W": 1} if splits_backward else {"F": 1, "B": 2}
    ends: dict[tuple[str, int, int], int] = {}
    progress = {(operation, stage): 0 for operation in units for stage in range(len(places))}
    free = [0] * ranks  # when each rank ends what it computes
    orders: list[list[str]] = [[] for _ in range(ranks)]

    def is_ready(operation: str, stage: int, i: int, now: int) -> bool:
        if operation == "W":
            needs = [("I", stage, i)]
        else:
            needs = [] if operation == "F" else [("F", stage, i)]
            neighbour = stage - 1 if operation == "F" else stage + 1
            if 0 <= neighbour < len(places):
                needs.append((operation, neighbour, i))
        return all(ends.get(need, now + 1) <= now for need in needs)

    now = 0
    while any(count < micro_batches for count in progress.values()):
        for rank in (rank for rank in range(ranks) if free[rank] <= now):
            ready = [(operation, stage, i) for (operation, stage), i in progress.items()
                     if places[stage] == rank and i < micro_batches and is_ready(operation, stage, i, now)]
            if ready:
                operation, stage, i = min(ready, key=lambda one: key(*one))  # type: ignore[arg-type, return-value]
                progress[operation, stage] += 1
                ends[operation, stage, i] = free[rank] = now + units[operation]
                orders[rank].append(f"{stage}{operation}{i}")
        now += 1
    return _planning.schedule_of(orders, micro_batches, name)
