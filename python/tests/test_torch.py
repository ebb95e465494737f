"""The bridge to torch within one process: costs, layers of decoders, refusals, accounts of traces."""
import gzip
import json

import pytest

import penstock as ps

torch = pytest.importorskip("torch")
import penstock.torch  # noqa: E402


def blocks(count=4, width=8):
    return [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh()) for _ in range(count)]


def test_the_first_layer_has_no_i():
    layers = blocks()
    layers[0][0].weight.grad = before = torch.ones(8, 8)
    costs = ps.torch.measure(layers, torch.randn(4, 8), samples=16, repeats=3)
    assert [layer["name"] for layer in costs["layers"]] == ["block0", "block1", "block2", "block3"]
    assert costs["layers"][0]["input_grad"] == 0 < costs["layers"][1]["input_grad"]
    assert 0 <= costs["spread"] <= 1
    assert all(layer["weight_grad"] > 0 and layer["backward"] > 0 for layer in costs["layers"])
    assert {layer["boundary_bytes"] for layer in costs["layers"]} == {4 * 8 * 4}
    assert costs["layers"][0]["parameter_bytes"] == (64 + 8) * 4 * 4
    assert costs["layers"][1]["activation_bytes"] == 2 * 4 * 8 * 4  # the input and the output of tanh
    assert layers[0][0].weight.grad is before and layers[1][0].weight.grad is None
    assert costs.keys() >= {"first_stage_splits"} and not costs["first_stage_splits"]
    assert ps.plan(costs, target="torch").best.schedule.micro_batches == 4


def test_layers_without_parameters_cost_nothing_backward():
    costs = ps.torch.measure([torch.nn.Flatten(), *blocks(2, 16)], torch.randn(4, 4, 4), samples=4, busy=2)
    assert costs["layers"][0]["parameter_bytes"] == 0
    assert costs["layers"][1]["weight_grad"] > 0


@pytest.mark.parametrize("wrong, text", [({"blocks": []}, "no blocks"), ({"samples": 6}, "multiple of 4"),
                                         ({"blocks": torch.nn.Linear(8, 8)}, "Linear")])
def test_what_cannot_be_measured(wrong, text):
    with pytest.raises(ps.ConfigError, match=text):
        ps.torch.measure(**{"blocks": blocks(), "sample": torch.randn(4, 8), "samples": 8, **wrong})


def decoders():
    transformers = pytest.importorskip("transformers")
    size = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
    yield transformers.LlamaForCausalLM(transformers.LlamaConfig(**size, intermediate_size=32, num_key_value_heads=1))
    yield transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**size, intermediate_size=32))
    yield transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=3, n_head=2, bos_token_id=0, eos_token_id=0))
    yield transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**size, intermediate_size=32, num_key_value_heads=1))


def test_a_decoder_is_its_layers():
    ids = torch.randint(50, (2, 6))
    for model in decoders():
        costs = ps.torch.measure(model, ids, samples=8, repeats=2)
        assert [layer["name"] for layer in costs["layers"]] == ["embedding", "block0", "block1", "block2", "head"]
        assert costs["layers"][1]["boundary_bytes"] == 2 * 6 * 16 * 4
        assert ps.plan(costs, target="torch", schedules=["1f1b"]).best.to_megatron().startswith("E")
        layers = ps.torch.layers(model, ids)
        model.eval()
        torch.testing.assert_close(torch.nn.Sequential(*layers)(ids), model(ids).logits)


def test_a_model_with_more_than_layers_is_refused():
    model = next(decoders())
    model.model.norm.forward = lambda x: x * model.factor
    model.factor = 2.0
    layers = ps.torch.layers(model, torch.randint(50, (2, 6)))  # a changed norm is a norm
    assert len(layers) == 5
    model.lm_head.register_forward_hook(lambda _, given, output: output * next(model.factors))
    model.factors = iter([1.0, 2.0])
    with pytest.raises(ps.ConfigError, match="logits"):
        ps.torch.layers(model, torch.randint(50, (2, 6)))


def test_stages_are_cut_as_planned():
    layers = blocks(5)
    plan = ps.plan(ps.torch.measure(layers, torch.randn(4, 8), samples=16), target="torch").best
    assert [len(stage) for stage in ps.torch.cut(plan, layers)] == [len(names) for names in plan.stages]
    with pytest.raises(ps.ConfigError, match="4 layers for a plan of 5"):
        ps.torch.cut(plan, layers[1:])


def test_ranks_share_no_parameters():
    layers = blocks(2)
    layers[1][0].weight = layers[0][0].weight
    with pytest.raises(ps.ConfigError, match="stage 1 shares 0.weight with stage 0"):
        ps.torch.runtime(ps.schedule("1f1b", ranks=2, micro_batches=2), layers, rank=0)


def test_a_fused_w_is_refused():
    with pytest.raises(ps.ScheduleError):
        ps.torch.runtime(ps.schedule("zb-h1", ranks=2, micro_batches=2).fuse(), blocks(2), rank=0)


#: Two ranks, one micro-batch; ms. Rank 1 waits from 1 for a message that is sent at 3, and begins to compute at 3.5.
EVENTS = [[("PP:0F0", 0, 3), ("PP:0SEND_F0", 3, 3.25), ("PP:0RECV_B0", 3.25, 3.5), ("PP:0B0", 3.5, 11),
           ("aten::mm", 7.5, 10.5), ("Optimizer.step#SGD.step", 11, 12)],
          [("PP:1RECV_F0", 0.5, 1), ("PP:1F0", 1, 5), ("c10d::wait", 1, 3), ("aten::mm", 3.5, 4.75), ("PP:1B0", 5, 7),
           ("PP:1SEND_B0", 7, 7.25)]]


def written(folder, rank, events, zip_it=False):
    begins = [{"ph": "X", "cat": "cpu_op" if "::" in name else "user_annotation", "name": name, "tid": 1, "pid": 7,
               "ts": 1000 * begin, "dur": 1000 * (end - begin)} for name, begin, end in events]
    path = folder / f"trace{rank}.json{'.gz' if zip_it else ''}"
    data = json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": begins}).encode()
    path.write_bytes(gzip.compress(data) if zip_it else data)
    return path


def test_a_trace_becomes_an_account(tmp_path):
    paths = [written(tmp_path, 1, EVENTS[1], zip_it=True), written(tmp_path, 0, EVENTS[0])]  # in any order
    found = ps.torch.account(paths)
    assert found.measured == pytest.approx(12)
    first, second = found.ranks
    assert first["compute"] == pytest.approx(3 + 3.5) and first["update"] == pytest.approx(1)
    assert first["message"] == pytest.approx(0.5)  # sent at 7, computed at 7.5
    assert second["compute"] == pytest.approx(1.5 + 2) and second["message"] == pytest.approx(0.5)
    assert second["warm_up"] == pytest.approx(2.5)  # before the message was sent, without the RECV
    assert first["sending"] == pytest.approx(0.5) and second["sending"] == pytest.approx(0.75)
    assert all(sum(v for k, v in rank.items() if k != "total") == pytest.approx(12) for rank in found.ranks)
    assert found.costs.forward == pytest.approx([3, 1.5])
    assert "<svg" in found._repr_svg_() and "warm-up" in str(found) and found.sentence in str(found)


def test_the_advice_knows_the_layers_of_a_plan(tmp_path):
    plan = ps.plan(ps.torch.measure(blocks(), torch.randn(4, 8), samples=4), target="torch", schedules=["1f1b"]).best
    paths = [written(tmp_path, rank, events) for rank, events in enumerate(EVENTS)]
    assert "the plan predicted" in str(ps.torch.account(paths, plan=plan))


def test_overlapped_pairs_are_two_instructions(tmp_path):
    engine = "autograd::engine::evaluate_function: MmBackward0"
    found = ps.torch.account([written(tmp_path, 0, [
        ("PP:0F0", 0, 1), ("PP:(0F1;0B0)OVERLAP_F_B", 1, 6), ("aten::mm", 1, 3), (engine, 3.5, 6), ("aten::mm", 4, 5),
        ("PP:0B1", 6, 9)])])
    assert found.costs.forward == pytest.approx([1.5]) and found.costs.input_grad == pytest.approx([3])


def test_traces_without_instructions_are_refused(tmp_path):
    with pytest.raises(ps.DataError, match="no events 'PP:"):
        ps.torch.account([written(tmp_path, 0, [("aten::mm", 0, 1)])])


def test_each_rank_has_one_trace(tmp_path):
    path = written(tmp_path, 1, EVENTS[1])
    for paths, text in [([path, path], "second trace of rank 1"), ([path], r"\[1\]")]:
        with pytest.raises(ps.DataError, match=text):
            ps.torch.account(paths)
