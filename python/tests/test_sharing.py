"""Steps of ranks that share cores."""
import pytest

import penstock as ps
from penstock.sharing import shared_makespan


def costs(**changes):
    layer = {"forward": 2, "input_grad": 2, "weight_grad": 1, "backward": 3, "activation_bytes": 8,
             "parameter_bytes": 8, "boundary_bytes": 8}
    return {"penstock_layer_costs": 1, "time_unit": "ms", "ranks": 4, "samples": 8, "micro_batch_size": 1,
            "link": {"bytes_per_unit": 0, "latency": 0}, "layers": [{"name": f"l{i}", **layer} for i in range(8)],
            **changes}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"])
@pytest.mark.parametrize("changes", [{}, {"first_stage_splits": False, "word_overhead": 0.5},
                                     {"link": {"bytes_per_unit": 16, "latency": 0.25}}])
def test_with_a_core_each_it_is_the_plan(schedule, changes):
    given = costs(**changes)
    plan = ps.plan(given, schedules=[schedule], weight_gradients="stream").best
    found = shared_makespan(plan, given, cores=4, busy=4)
    assert found == pytest.approx(plan.makespan, rel=0.05 if changes.get("link") else 1e-9)  # links have no queue here


def test_one_core_does_all_the_work():
    plan = ps.plan(costs(), schedules=["1f1b"], weight_gradients="stream").best
    assert shared_makespan(plan, costs(), cores=1, busy=1) == pytest.approx(8 * 8 * (2 + 3))
    # Measured with four on two cores: twice the time of a core of its own.
    assert shared_makespan(plan, costs(), cores=2, busy=4) < plan.makespan
    with pytest.raises(ps.ConfigError):
        shared_makespan(plan, costs(), cores=0, busy=1)
