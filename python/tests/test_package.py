"""The package as it is installed. Run: pytest python/tests"""
import doctest
import importlib
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps

ROOT = Path(__file__).resolve().parents[2]
shapes = {"ranks": st.integers(1, 6), "micro_batches": st.integers(1, 12)}


@pytest.mark.parametrize("name", ["penstock", "penstock.comparing", "penstock.fitting", "penstock.grading", "penstock.schedules"])
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0


def test_the_page_about_schedules_from_papers():
    result = doctest.testfile(str(ROOT / "python/docs/schedules_from_papers.md"), module_relative=False)
    assert result.attempted > 0 and result.failed == 0


def test_several_pipelines_follow_from_the_instructions():
    chimera = ps.schedule("chimera", ranks=4, micro_batches=5)
    by_hand = ps.schedule(chimera.orders, micro_batches=5).check()
    assert (by_hand.pipelines, by_hand.pipeline_of) == (2, [0, 1, 0, 1, 0])
    with pytest.raises(ps.ScheduleError, match="2 copies"):
        chimera.to_torch_csv()
    with pytest.raises(ps.ScheduleError, match="0B1"):  # not a placement of its own: it is on the wrong rank
        ps.schedule([["0F0", "0F1", "0B0"], ["1F0", "1F1", "1B0", "1B1", "0B1"]], micro_batches=2).check()


def test_the_tutorial():
    result = doctest.testfile(str(ROOT / "python" / "docs" / "tutorial.md"), module_relative=False,
                              optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 10 and result.failed == 0


def test_cells_of_the_notebook_run():
    cells = json.loads((ROOT / "python" / "docs" / "tutorial.ipynb").read_text())["cells"]
    names: dict = {}
    for source in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
        if "IPython" not in source and "pandas" not in source:
            exec(source, names)
    assert names["planned"].best.makespan > 0


@pytest.mark.parametrize("name", list(ps.generators()))
@given(**shapes)
@settings(max_examples=10, deadline=None)
def test_schedules_are_valid_and_survive_every_form(name, ranks, micro_batches):
    made = ps.schedule(name, ranks=ranks, micro_batches=micro_batches)
    assert made.check() is made
    assert pickle.loads(pickle.dumps(made)) == made
    by_hand = ps.schedule(made.orders, micro_batches=micro_batches)
    assert by_hand.orders == made.orders and by_hand.rank_of_stage == made.rank_of_stage
    assert made.lower().strip() == made
    assert made.simulate().makespan > 0


def test_files_are_read_again(tmp_path):
    made = ps.schedule("zb-v", ranks=2, micro_batches=4)
    (tmp_path / "a.sched").write_text(made.to_text())
    (tmp_path / "a.csv").write_text(made.to_torch_csv())
    assert ps.load(tmp_path / "a.sched") == made
    assert ps.load(tmp_path / "a.csv").orders == made.orders


def test_costs_decide_about_the_step():
    made = ps.schedule("1f1b", ranks=2, micro_batches=2)
    costs = ps.StageCosts(forward=[1, 2], input_grad=1, weight_grad=1, message=0.5)
    assert costs.forward == [1, 2]
    assert made.simulate(costs).makespan > made.simulate().makespan
    assert [slot.instruction for slot in made.simulate().slots[1]][:2] == ["1F0", "1B0"]
    with pytest.raises(ps.CostError, match="3"):
        made.simulate(ps.StageCosts(forward=[1, 2, 3]))


def test_the_critical_path_covers_the_makespan():
    made = ps.schedule("zb-h1", ranks=3, micro_batches=5)
    simulated = made.simulate(ps.StageCosts(message=0.25))
    path = simulated.critical_path
    assert path[0].begin == 0 and path[-1].end == simulated.makespan
    gaps = [(b.begin - a.end, b.waits_for_message) for a, b in zip(path, path[1:])]
    assert all(gap == (0.25 if waits else 0) for gap, waits in gaps)
    assert "critical path" in made.svg(critical_path=True) and "critical path" not in made.svg()


def test_a_violation_has_its_place():
    with pytest.raises(ps.ScheduleError, match="1F0") as caught:
        ps.schedule([["0F0", "0B0"], ["1B0", "1F0"]], micro_batches=1).check()
    assert (caught.value.rank, caught.value.position) == (1, 0)
    with pytest.raises(ps.ScheduleError) as caught:
        ps.schedule([["0F0", "0B0"]], micro_batches=2).check()
    assert isinstance(caught.value, ps.Misuse)


def test_errors_have_one_root():
    classes = [ps.Misuse, ps.ConfigError, ps.ScheduleError, ps.DataError, ps.CostError, ps.Failure, ps.InternalError]
    assert all(issubclass(one, ps.Error) for one in classes) and ps.Error.__base__ is Exception
    assert issubclass(ps.CostError, ps.DataError) and issubclass(ps.CostError, ps.ConfigError)
    assert issubclass(ps.Misuse, ValueError) and issubclass(ps.Failure, RuntimeError)


def test_bad_input_is_named():
    with pytest.raises(ps.ConfigError, match="1f1b"):
        ps.schedule("1f1bb", ranks=2, micro_batches=1)
    with pytest.raises(ps.DataError, match="0X0"):
        ps.schedule([["0X0"]], micro_batches=1)
    with pytest.raises(ps.ConfigError, match="3"):
        ps.schedule(lambda p, m: [(3, "0F0")], ranks=2, micro_batches=1)
    with pytest.raises(ps.ConfigError, match="1f1b"):
        ps.generator("1f1b")(lambda p, m: [])
    with pytest.raises(ps.CostError, match="costs of stages"):
        ps.plan({"penstock_costs": 1})
    with pytest.raises(ps.CostError, match="penstock_layer_costs"):
        ps.plan({})
    costs = json.loads((ROOT / "docs" / "example_costs.json").read_text())
    with pytest.raises(ps.CostError, match="time_unit"):  # no unit
        ps.plan({key: value for key, value in costs.items() if key != "time_unit"})
    with pytest.raises(ps.CostError, match="did you mean 'ranks'"):
        ps.plan({**costs, "rank": 2})
    with pytest.raises(ps.ConfigError, match="machine"):
        ps.compare(["1f1b"], ranks=2, micro_batches=2, costs_per="machine")


@given(**shapes, split=st.booleans())
@settings(max_examples=30, deadline=None)
def test_policies_make_valid_schedules(ranks, micro_batches, split):
    order = {"I": 0, "B": 0, "F": 1, "W": 2}
    made = ps.policy(lambda op, stage, i: (order[op], i), ranks=ranks, micro_batches=micro_batches,
                     splits_backward=split).check()
    assert made.instructions == ranks * micro_batches * (3 if split else 2)


def test_plans():
    planned = ps.plan(ROOT / "docs" / "example_costs.json", ranks=2, micro_batches=[8], schedules=["1f1b", "zb-h1"])
    assert planned.best.makespan == planned.candidates[0].makespan
    assert {one.schedule for one in planned.candidates} <= {"1f1b", "zb-h1"}
    assert planned.best.schedule.check().micro_batches == 8
    assert "chosen" in str(planned) and planned._repr_svg_().startswith("<svg") and "<html" in planned.html()
    assert planned.best.schedule.simulate(planned.stage_costs).makespan == pytest.approx(planned.best.makespan)
    assert planned._repr_html_().count("<svg") == 1
    assert len(planned.candidates.rows()[0]["stages"]) == planned.best.schedule.stages
    own = ps.schedule(ps.schedule("1f1b", ranks=2, micro_batches=8).orders, micro_batches=8)
    beside = ps.plan(ROOT / "docs" / "example_costs.json", ranks=2, micro_batches=[8], schedules=["1f1b", own])
    assert {one.schedule for one in beside.candidates} == {"1f1b", "own-1"}
    with pytest.raises(ps.ConfigError, match="often"):
        ps.plan(ROOT / "docs" / "example_costs.json", weight_gradients="often")


def test_torch_gets_what_it_can_express(tmp_path):
    costs = ROOT / "docs" / "example_costs.json"
    planned = ps.plan(costs, ranks=2, micro_batches=[8], target="torch")
    text = planned.best.to_torch_csv(str(tmp_path / "p2.csv"))
    assert ps.load(tmp_path / "p2.csv").orders == planned.best.schedule.orders
    assert text == planned.best.schedule.to_torch_csv() and planned.best._repr_svg_().startswith("<svg")
    with pytest.raises(ps.ScheduleError, match="W0-3"):
        ps.Schedule("1f1b", ranks=2, micro_batches=4).fuse().to_torch_csv()
    with pytest.raises(ps.ConfigError, match="fused"):
        ps.plan(costs, target="torch", weight_gradients="fused")
    with pytest.raises(ps.ConfigError, match="jax"):
        ps.plan(costs, target="jax")


def test_pictures():
    made = ps.schedule("1f1b", ranks=2, micro_batches=4)
    assert made._repr_svg_().startswith("<svg") and "<html" in made.html()
    assert "1f1b" in ps.compare(["1f1b", made], ranks=2, micro_batches=4)._repr_html_()


def test_comparisons_and_sweeps():
    compared = ps.compare(["1f1b", "zb-v"], ranks=2, micro_batches=4, costs_per="rank")
    assert [sum(one.busy) for one in compared.simulations] == [24, 24]
    assert compared.html().count("<svg") == 2 and "<th>schedule</th>" in compared._repr_html_()
    costs = {"fast": ps.StageCosts(), "slow": ps.StageCosts(forward=2)}
    rows = ps.sweep(["gpipe", "1f1b"], ranks=[2, 4], micro_batches=[4], costs=costs)
    assert len(rows) == 8 and {row["costs"] for row in rows} == {"fast", "slow"}
    alone = ps.schedule("1f1b", ranks=4, micro_batches=4).simulate(costs["slow"]).makespan
    assert [row["makespan"] for row in rows if row["ranks"] == 4 and row["costs"] == "slow"] == [alone, alone]
    assert str(ps.sweep([], ranks=[2], micro_batches=[2])) == ""


def test_the_gallery_has_every_schedule():
    page = ps.gallery(ranks=2, micro_batches=2)
    assert page.count("<svg") == len(ps.generators()) and all(f"<h2>{name}</h2>" in page for name in ps.generators())


def test_a_wrong_instruction_is_found():
    expected = ps.schedule("1f1b", ranks=2, micro_batches=3)
    orders = expected.orders
    assert ps.grade(expected, expected).is_equal
    orders[1][1], orders[1][2] = orders[1][2], orders[1][1]
    grade = ps.grade(ps.schedule(orders, micro_batches=3), expected)
    assert grade.is_valid and grade.first_difference == (1, 1)
    del orders[0][-1]
    assert not ps.grade(ps.schedule(orders, micro_batches=3), expected).is_valid


def test_the_program():
    command = [sys.executable, "-m", "penstock", "schedule", "show", "--schedule", "1f1b", "--stages", "2",
               "--micro-batches", "4"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == str(ps.schedule("1f1b", ranks=2, micro_batches=4))
