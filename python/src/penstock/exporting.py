"""Plans in the words of other systems: Megatron-LM's layout of layers, and torchtitan's configuration."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from penstock import _planning
from penstock._planning import ConfigError, Plan, Schedule, ScheduleError

#: What a layer is in Megatron's letters: 'E' embedding, 't' transformer block, 'L' head with the loss; '' is a part of
#: its neighbour.
Letter = Callable[[str], str]
#: torchtitan's name of a schedule, by Penstock's.
TITAN_NAMES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}


def letter_of(layer: str) -> str:
    """The letter of a layer by its name: embed... is E, head, norm, loss... are L, all others are t."""
    name = layer.lower()
    if name.startswith(("embed", "tok_embed", "wte")):
        return "E"
    return "L" if name.startswith(("head", "lm_head", "norm", "final_norm", "loss", "output")) else "t"


def to_megatron(plan: Plan, *, letter: Letter = letter_of) -> str:
    """The value of Megatron-LM's --pipeline-model-parallel-layout: a letter per layer, and | between stages.

    An embedding and a loss that the plan lacks are added to its first and last stage. p is Megatron's
    --pipeline-model-parallel-size, and the replicas follow from the number of processes.

    Raises ScheduleError for what Megatron-LM does not run: it has 1f1b and interleaved, stage s on rank s mod p, and
    for interleaved a multiple of p micro-batches. Raises ConfigError for an embedding that is not first or a head that
    is not last.

    Parameters
    ----------
    letter
        What each layer is, by its name.
    """
    made, p, is_looped = _schedule_of(plan)
    if not is_looped or made.stages % p != 0:
        raise ScheduleError(f"stages of {made.name} are on ranks {made.rank_of_stage}, and Megatron-LM puts "
                            "stage s on rank s mod p: plan with schedules=['1f1b', 'interleaved']")
    name = "1f1b" if made.stages == p else "interleaved"
    if not _is(made, name):
        raise ScheduleError(f"Megatron-LM runs {name} on {p} ranks with {made.stages} stages, and this schedule is "
                            f"{made.name or 'another one'} with weight_gradients = '{plan.weight_gradients}': plan "
                            "with schedules=['1f1b', 'interleaved'], weight_gradients='stream'")
    if name == "interleaved" and made.micro_batches % p != 0:
        raise ScheduleError(f"{made.micro_batches} micro-batches on {p} ranks: for interleaved stages Megatron-LM "
                            f"needs a multiple of {p}")
    stages = ["".join(letter(layer) for layer in stage) for stage in plan.stages]
    stages[0] = "E" + stages[0].lstrip("E")
    stages[-1] = stages[-1].rstrip("L") + "L"
    text = "|".join(stages)
    if "E" in text[1:] or "L" in text[:-1]:
        raise ConfigError(f"the layout {text} has an E that is not first or an L that is not last: pass letter=, which "
                          "says what each layer is")
    return text


def _schedule_of(plan: Plan) -> tuple[Schedule, int, bool]:
    """The schedule, p, and whether stage s is on rank s mod p."""
    if plan.recompute:
        raise ConfigError(f"the plan recomputes {', '.join(plan.recompute)}, and others choose layers to recompute by "
                          "number: plan without recompute=True")
    made, p = plan.schedule, plan.schedule.ranks
    return made, p, made.rank_of_stage == [stage % p for stage in range(made.stages)]


def _is(made: Schedule, name: str) -> bool:
    chunks = None if made.stages == made.ranks else made.stages // made.ranks
    try:
        known = _planning.generate(name, made.ranks, made.micro_batches, chunks, None, None)
        return made.strip().orders == known.orders
    except _planning.Misuse:
        return False


def to_torchtitan(plan: Plan, *, csv: str | None = None, micro_batch_size: int = 1,
                  module: Mapping[str, list[str]] | None = None) -> dict[str, dict[str, Any]]:
    """torchtitan's configuration: the keys of its sections `parallelism` and `training`.

    Raises ScheduleError for other placements than stage s on rank s mod p and the V of two stages per rank, and
    ConfigError without `csv` for a schedule that torchtitan does not have by name.

    Parameters
    ----------
    csv
        The path at which torchtitan shall find the schedule, which is written to it. Without, the schedule is named,
        which works for gpipe, 1f1b and interleaved only.
    micro_batch_size
        Samples in a micro-batch.
    module
        The modules of torchtitan's model that each layer of the plan is; without: embedding is tok_embeddings, head is
        norm and lm_head, and the others are layers.0, layers.1, ... in order.
    """
    made, p, is_looped = _schedule_of(plan)
    is_v = made.rank_of_stage == [*range(p), *reversed(range(p))]
    if not is_looped and not is_v:
        raise ScheduleError(f"stages of {made.name} are on ranks {made.rank_of_stage}, and torchtitan puts stage s on "
                            "rank s mod p, or two stages per rank in a V")
    named = TITAN_NAMES.get(made.name)
    if csv is None and (named is None or not _is(made, made.name)):
        raise ConfigError(f"torchtitan has no schedule {made.name!r}: pass csv=, the path at which it shall find it")
    names: dict[str, list[str]] = {"E": ["tok_embeddings"], "L": ["norm", "lm_head"]}
    blocks = count()
    parts = [[name for layer in stage for name in (module[layer] if module else names.get(letter_of(layer))
                                                   or [f"layers.{next(blocks)}"])] for stage in plan.stages]
    if "tok_embeddings" not in parts[0]:
        parts[0].insert(0, "tok_embeddings")
    if "lm_head" not in parts[-1]:
        parts[-1] += names["L"]
    parallelism: dict[str, Any] = {
        "pipeline_parallel_degree": p,
        # With a file, the name only says where stages are.
        "pipeline_parallel_schedule": "ZBVZeroBubble" if is_v and p > 1 else
        named if csv is None else "1F1B" if made.stages == p else "Interleaved1F1B",
        "module_fqns_per_model_part": parts,
        "pipeline_parallel_microbatch_size": micro_batch_size}
    if plan.replicas > 1:
        parallelism |= {"data_parallel_replicate_degree": plan.replicas, "data_parallel_shard_degree": 1}
    if csv is not None:
        made.to_torch_csv(csv)
        parallelism["pipeline_parallel_schedule_csv"] = csv
    return {"parallelism": parallelism, "training": {"local_batch_size": micro_batch_size * made.micro_batches}}
