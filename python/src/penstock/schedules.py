"""Schedules: of Penstock's generators, and of one's own."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Optional, Union

from penstock import _planning
from penstock._planning import ConfigError, Schedule, StageCosts

Instructions = Iterable[tuple[int, str]]
Wave = Callable[[int, int], Instructions]
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
        if any(name == known for known, _ in _planning.names()):
            raise ConfigError(f"a generator '{name}', but Penstock has one of this name: choose another name")
        _own[name] = function
        function.__dict__.update(schedule_name=name, chunks=chunks)
        return function

    return named


def schedule(source: Union[str, Wave, Sequence[Sequence[str]]], *, ranks: Optional[int] = None, micro_batches: int,
             chunks: Optional[int] = None, costs: Optional[StageCosts] = None,
             memory_limit: Union[float, str, None] = None) -> Schedule:
    """The schedule of a step: compute instructions only.

    Parameters
    ----------
    source
        The name of a generator (`generators`), a function that yields (rank, instruction), or the instructions of each
        rank in order: ``[["0F0", "0B0"], ["1F0", "1B0"]]``.
    ranks, micro_batches, chunks
        p, m and v, the stages per rank. `ranks` and `chunks` follow from instructions that are given.
    costs, memory_limit
        For generators that adapt to them: a limit of 1.5 times 1F1B's activations, or of bytes, as '512MiB'.

    Raises
    ------
    ConfigError
        For an unknown name, and for numbers that the generator does not accept.
    DataError
        For a text that is no instruction.
    """
    if isinstance(source, str) and source not in _own:
        if ranks is None:
            raise ConfigError(f"schedule '{source}' on how many ranks? Pass ranks=")
        return _planning.generate(source, ranks, micro_batches, chunks, costs, memory_limit)
    if isinstance(source, str) or callable(source):
        function = _own[source] if isinstance(source, str) else source
        if ranks is None:
            raise ConfigError("a generator on how many ranks? Pass ranks=")
        orders: list[list[str]] = [[] for _ in range(ranks)]
        for rank, instruction in function(ranks, micro_batches):
            if not 0 <= rank < ranks:
                raise ConfigError(f"instruction '{instruction}' for rank {rank}, but there are {ranks} ranks")
            orders[rank].append(instruction)
        name = getattr(function, "schedule_name", getattr(function, "__name__", ""))
        return _planning.schedule_of(orders, micro_batches, str(name))
    return _planning.schedule_of([list(order) for order in source], micro_batches, "")


def generators() -> dict[str, str]:
    """The names of all generators, and what they are."""
    return {**dict(_planning.names()), **{name: (one.__doc__ or "").split("\n")[0] for name, one in _own.items()}}


def load(path: Union[str, os.PathLike[str]]) -> Schedule:
    """Reads a .sched file, or the CSV of torch.distributed.pipelining."""
    text = Path(path).read_text()
    if text.startswith("penstock"):
        return _planning.from_text(text)
    return _planning.from_torch_csv(text)[0]


def table(*, ranks: int, micro_batches: int, chunks: Optional[int] = None) -> str:
    """All schedules of one shape: bubble, activations and messages, by formula and by simulation."""
    return _planning.table(ranks, micro_batches, chunks)


Key = Callable[[str, int, int], object]


def policy(key: Key, *, ranks: int, micro_batches: int, rank_of_stage: Optional[Sequence[int]] = None,
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
    places = list(range(ranks)) if rank_of_stage is None else list(rank_of_stage)
    last = len(places) - 1
    operations = ("F", "I", "W") if splits_backward else ("F", "B")
    units = {"F": 1, "I": 1, "W": 1, "B": 2}
    done: dict[tuple[str, int, int], int] = {}  # the time at which an instruction ends
    progress = {(operation, stage): 0 for operation in operations for stage in range(len(places))}
    free = [0] * ranks
    orders: list[list[str]] = [[] for _ in range(ranks)]

    def needs(operation: str, stage: int, i: int) -> list[tuple[str, int, int]]:
        gradient = operations[1]
        if operation == "F":
            return [("F", stage - 1, i)] if stage > 0 else []
        if operation == "W":
            return [("I", stage, i)]
        return [("F", stage, i)] + ([(gradient, stage + 1, i)] if stage < last else [])

    now = 0
    while any(count < micro_batches for count in progress.values()):
        for rank in range(ranks):
            if free[rank] > now:
                continue
            ready = [(operation, stage, i) for (operation, stage), i in progress.items()
                     if places[stage] == rank and i < micro_batches
                     and all(done.get(need, now + 1) <= now for need in needs(operation, stage, i))]
            if not ready:
                continue
            operation, stage, i = min(ready, key=lambda one: key(*one))  # type: ignore[arg-type, return-value]
            progress[operation, stage] += 1
            free[rank] = now + units[operation]
            done[operation, stage, i] = free[rank]
            orders[rank].append(f"{stage}{operation}{i}")
        now += 1
    return _planning.schedule_of(orders, micro_batches, name)
