"""Plans in the words of Megatron-LM and torchtitan, read back by their own code if it is installed."""
import json

import pytest

import penstock as ps

NAMES = ["embedding", *(f"block{i}" for i in range(6)), "head"]


def costs(ranks=2, m=4):
    layer = {"forward": 2, "input_grad": 2, "weight_grad": 2, "activation_bytes": 8, "parameter_bytes": 8,
             "boundary_bytes": 8}
    return {"penstock_layer_costs": 1, "time_unit": "ms", "ranks": ranks, "samples": m, "micro_batch_size": 1,
            "link": {"bytes_per_unit": 0, "latency": 0}, "layers": [{"name": name, **layer} for name in NAMES]}


def planned(schedule, **shape):
    return ps.plan(costs(**shape), schedules=[schedule], weight_gradients="stream").best


def test_a_layout_has_a_letter_per_layer():
    assert planned("1f1b").to_megatron() == "Ettt|tttL"
    layout = planned("interleaved").to_megatron()
    assert layout.count("|") == 2 * 4 - 1 and layout.replace("|", "") == "EttttttL"
    only_blocks = planned("1f1b").to_megatron(letter=lambda name: "t" if name.startswith("block") else "")
    assert only_blocks == "Ettt|tttL"


@pytest.mark.parametrize("schedule, shape", [("zb-v", {}), ("gpipe", {}), ("zb-h1", {}), ("interleaved", {"m": 3})])
def test_megatron_runs_few_schedules(schedule, shape):
    with pytest.raises(ps.ScheduleError):
        planned(schedule, **shape).to_megatron()


def test_an_embedding_is_first():
    with pytest.raises(ps.ConfigError, match="tEt"):
        planned("1f1b").to_megatron(letter=lambda name: "E" if name == "block1" else "t")


def test_megatron_reads_the_layout():
    layouts = pytest.importorskip("megatron.core.transformer.pipeline_parallel_layer_layout")
    for schedule, p in [("1f1b", 2), ("1f1b", 4), ("interleaved", 2)]:
        best = planned(schedule, ranks=p)
        read = layouts.PipelineParallelLayerLayout.from_str(best.to_megatron(), p)
        read.validate_layer_layout(6, 0)
        blocks = [sum(name.startswith("block") for name in stage) for stage in best.stages]
        assert [read.layout[s % p][s // p].count(layouts.LayerType.decoder) for s in range(len(blocks))] == blocks


def test_titan_gets_modules_and_a_schedule(tmp_path):
    found = planned("1f1b").to_torchtitan(micro_batch_size=2)
    assert found["parallelism"]["module_fqns_per_model_part"] == [
        ["tok_embeddings", "layers.0", "layers.1", "layers.2"], ["layers.3", "layers.4", "layers.5", "norm", "lm_head"]]
    assert found["training"] == {"local_batch_size": 8}
    with pytest.raises(ps.ConfigError, match="zb-v"):
        planned("zb-v").to_torchtitan()
    path = tmp_path / "zb-v.csv"
    assert planned("zb-v").to_torchtitan(csv=str(path))["parallelism"]["pipeline_parallel_schedule"] == "ZBVZeroBubble"
    assert ps.load(path).orders == planned("zb-v").schedule.orders


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"])
def test_titan_reads_the_configuration(schedule, tmp_path):
    pytest.importorskip("torchtitan")
    configs = pytest.importorskip("torchtitan.config.configs")
    titan = pytest.importorskip("torchtitan.distributed.pipeline_parallel")
    best = planned(schedule)
    csv = tmp_path / "schedule.csv"
    found = best.to_torchtitan(csv=str(csv))["parallelism"]
    read = configs.ParallelismConfig(**json.loads(json.dumps(found)))
    parts = read.module_fqns_per_model_part
    for rank in range(read.pipeline_parallel_degree):
        stages = titan._get_pp_rank_to_stage_indices_mapping(rank, read.pipeline_parallel_degree,
                                                             read.pipeline_parallel_schedule, len(parts))
        assert list(stages) == [s for s, owner in enumerate(best.schedule.rank_of_stage) if owner == rank]
