"""Accounts of steps that torch's profiler has recorded."""
from __future__ import annotations

import gzip
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock import _planning
from penstock._planning import Account, DataError, Plan

#: Instruction, activity, begin, end and transit in ns.
Span = tuple[str, str, int, int, int]
#: Begin, end, name and thread of an event.
Event = tuple[int, int, str, int]
_instruction = re.compile(r"PP:(\d+)(F|B|I|W|SEND_F|SEND_B|RECV_F|RECV_B|REDUCE_GRAD)(\d*)$")
_pair = re.compile(r"PP:\((\w+);(\w+)\)OVERLAP_F_B$")
#: Children of an instruction that are not its computation: messages, and what the profiler itself notes.
_not_computing = ("c10d::", "gloo:", "nccl:", "mpi:", "PP:")

#: A shorter wait is the time of a call, not of a message.
_blocked_ns = 100_000


def account(traces: Sequence[str | os.PathLike[str]], *, plan: Plan | None = None,
            costs: Mapping[str, Any] | None = None) -> Account:
    """Where the time of a step of torch.distributed.pipelining went.

    An F, I or B waits for its message until its first operator begins. A message is sent when its SEND begins. Times of
    different ranks are compared, so all must be processes of one host.

    Raises DataError for traces without instructions, which only schedules of `penstock.torch.runtime` record, of other
    ranks than 0 to p - 1, and without a complete step.

    Parameters
    ----------
    traces
        The files of torch.profiler's export_chrome_trace (also .gz), one for each rank.
    plan, costs
        What was executed, and the costs from which it was planned: the account also has its prediction, and recommends
        partitions.


    Examples
    --------
    >>> found = account([f"trace{rank}.json.gz" for rank in range(4)])  # doctest: +SKIP
    >>> print(found)                                                    # doctest: +SKIP
    """
    ranks: dict[int, list[list[Span]]] = {}
    for path in traces:
        document = _read(Path(path))
        rank = document.get("distributedInfo", {}).get("rank", len(ranks))
        if rank in ranks:
            raise DataError(f"{path} is a second trace of rank {rank}: pass one file for each rank")
        ranks[rank] = _steps(document["traceEvents"], str(path))
    if sorted(ranks) != list(range(len(ranks))) or not ranks:
        raise DataError(f"traces of the ranks {sorted(ranks)}: pass one for each rank, from 0")
    steps = min(map(len, ranks.values()))
    rows = [ranks[rank][-steps:] for rank in sorted(ranks)]
    for of_step in zip(*rows):
        _note_transits(of_step)
    orders = [[span[0] for span in of_rank[-1] if span[1] == "compute"] for of_rank in rows]
    micro_batches = 1 + max(int(re.split("[FBIW]", text)[1]) for order in orders for text in order)
    settings = {}
    if plan is not None:
        settings = {"planned_ms": repr(plan.makespan), "layers": ";".join(map(",".join, plan.stages))}
        if costs is not None:
            settings["layer_costs"] = json.dumps(dict(costs))
    return _planning.account_of(_planning.schedule_of(orders, micro_batches, ""), rows, settings)


def _read(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    try:
        document: dict[str, Any] = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        document["traceEvents"]
    except (ValueError, TypeError, KeyError, EOFError, OSError) as error:
        raise DataError(f"{path} has no traceEvents ({error}): pass a file of torch.profiler's "
                        "export_chrome_trace") from None
    return document


def _steps(events: Sequence[Mapping[str, Any]], path: str) -> list[list[Span]]:
    """The spans of each step, in order. A step begins with an instruction that its predecessor has had."""
    timed = [(round(1e3 * event["ts"]), round(1e3 * (event["ts"] + event["dur"])), event["name"], event["tid"])
             for event in events if event.get("ph") == "X" and event.get("cat") in ("cpu_op", "user_annotation")]
    timed.sort(key=lambda event: (event[0], -event[1]))
    steps: list[list[Span]] = []
    seen: set[str] = set()
    stage = "0"
    for at, (_, _, event, _) in enumerate(timed):
        if event.startswith("Optimizer.step#") and steps:
            steps[-1].append((f"{stage}STEP", "update", timed[at][0], timed[at][1], 0))
        for name, begin, end in _instructions(timed, at):
            found = _instruction.match(name)
            if found is None:
                continue
            stage, operation, micro_batch = found.groups()
            text = f"{stage}{'REDUCE' if operation == 'REDUCE_GRAD' else operation + micro_batch}"
            if not steps or text in seen:
                steps.append([])
                seen = set()
            seen.add(text)
            # A RECV only announces a buffer: the wait is at the start of the instruction that needs the message.
            if len(operation) > 1:
                steps[-1].append((text, "update" if operation == "REDUCE_GRAD" else "communicate", begin, end, 0))
                continue
            receive = f"{stage}RECV_{'F' if operation == 'F' else 'B'}{micro_batch}"
            if receive in seen:
                computes = next((one[0] for one in _operators(timed, at) if begin <= one[0] < end), end)
                steps[-1].append((receive, "wait", begin, computes, 0))
                begin = computes
            steps[-1].append((text, "compute", begin, end, 0))
    if not steps:
        raise DataError(f"{path} has no events 'PP:...': only schedules of _PipelineScheduleRuntime record their "
                        "instructions; run the schedule with penstock.torch.runtime")
    return steps


def _operators(timed: Sequence[Event], at: int) -> Iterator[Event]:
    """The operators within an event, in order."""
    inside = itertools.takewhile(lambda i: timed[i][0] < timed[at][1], range(at + 1, len(timed)))
    return (timed[i] for i in inside if timed[i][3] == timed[at][3] and not timed[i][2].startswith(_not_computing))


def _instructions(timed: Sequence[Event], at: int) -> list[tuple[str, int, int]]:
    """The instructions of an event: of a pair of overlapped F and B, B begins after the last operator of F."""
    begin, end, name, _ = timed[at]
    pair = _pair.match(name)
    if pair is None:
        return [(name, begin, end)]
    forwards = itertools.takewhile(lambda one: not one[2].startswith("autograd::engine"), _operators(timed, at))
    middle = max((one[1] for one in forwards), default=begin)
    return [(f"PP:{pair[1]}", begin, middle), (f"PP:{pair[2]}", middle, end)]


def _note_transits(ranks: Sequence[list[Span]]) -> None:
    """The time from a SEND to the end of the wait for it, unless the message had arrived before the rank waited."""
    sent = {span[0]: span[2] for spans in ranks for span in spans if span[1] == "communicate"}
    for spans in ranks:
        for at, (text, activity, begin, end, _) in enumerate(spans):
            if activity == "wait":
                stage, kind, micro_batch = re.split("RECV_([FB])", text)
                begun = sent.get(f"{int(stage) + (-1 if kind == 'F' else 1)}SEND_{kind}{micro_batch}")
                if begun is not None and (begun > begin or end - begin > _blocked_ns):
                    spans[at] = (text, activity, begin, end, max(1, end - begun))
