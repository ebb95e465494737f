"""Plans for clusters. Run: pytest python/tests"""
import signal
import threading

import pytest

import penstock as ps

CLUSTER = {"penstock_cluster": 1, "time_unit": "ms",
           "kinds": {"fast": {"memory": "80GB"}, "slow": {"speed": 0.5, "memory": "40GB"}},
           "nodes": [{"name": "n0", "kind": "fast", "ranks": 2}, {"name": "n1", "kind": "slow", "ranks": 2}],
           "links": {"inside": {"GB_per_s": 200}, "between": {"GB_per_s": 10, "latency": 0.05}}}


def costs(layers, **changes):
    layer = {"forward": 2, "input_grad": 2, "weight_grad": 2, "activation_bytes": 10**8, "parameter_bytes": 10**9,
             "boundary_bytes": 10**7} | changes
    return {"penstock_layer_costs": 1, "time_unit": "ms", "ranks": 1, "samples": 32, "micro_batch_size": 1,
            "link": {"bytes_per_unit": 0, "latency": 0},
            "layers": [layer | {"name": f"block{i}"} for i in range(layers)]}


def test_unequal_devices_get_unequal_stages():
    planned = ps.plan(costs(12), cluster=CLUSTER, schedules=["1f1b"], ranks=4, replicas=1)
    best = planned.best
    layers = {device: len(stage) for device, stage in zip(best.devices, best.stages)}
    assert layers["n0:0"] + layers["n0:1"] > layers["n1:0"] + layers["n1:1"]
    assert planned.candidates[0].devices == best.devices
    row = planned.candidates.rows()[0]
    assert (row["ranks"], row["replicas"], len(row["stages"])) == (4, 1, 4)
    even = ps.on_cluster(ps.StageCosts(forward=6, input_grad=6, weight_grad=6), best.schedule, CLUSTER,
                         message_bytes=1e7)
    assert even.forward == [6, 6, 12, 12]
    assert best.schedule.simulate(even).makespan > best.makespan


def test_the_planner_chooses_ranks_and_replicas():
    planned = ps.plan(costs(12), cluster=CLUSTER)
    assert len({(one.ranks, one.replicas) for one in planned.candidates}) > 3
    assert planned.best.makespan <= min(one.makespan for one in planned.candidates if one.fits)
    curve = ps.scaling(costs(12), CLUSTER, [1, 2, 4], schedules=["1f1b"])
    assert [row["devices"] for row in curve.rows()] == [1, 2, 4]
    assert curve.points[2].step <= curve.points[1].step < curve.points[0].step and "efficiency" in str(curve)


def test_recompute_makes_room():
    cluster = CLUSTER | {"kinds": {"fast": {"memory": "9GB"}, "slow": {"memory": "9GB"}}}
    wanted = {"schedules": ["gpipe"], "ranks": 2, "replicas": 1, "cluster": cluster}
    with pytest.raises(ps.ScheduleError, match="n0:0|n0:1"):
        ps.plan(costs(12), **wanted)
    assert ps.plan(costs(12, boundary_bytes=1000), recompute=True, **wanted).best.recompute


def test_bad_clusters_are_named():
    for change, message in (({"nodes": [{"name": "n0", "kind": "fats"}]}, "fast"), ({"time_unit": "weeks"}, "weeks"),
                            ({"kinds": {"fast": {"memory": "80"}}}, "80"), ({"knids": {}}, "knids")):
        with pytest.raises(ps.Misuse, match=message):
            ps.plan(costs(4), cluster=CLUSTER | change)
    with pytest.raises(ps.ConfigError, match="4"):
        ps.plan(costs(12), cluster=CLUSTER, ranks=8)
    with pytest.raises(ps.ConfigError, match="cluster"):
        ps.plan(costs(12), replicas=2)


def test_a_long_search_is_interrupted():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts jobs in the background without it
    many = costs(96) | {"samples": 4096}
    cluster = CLUSTER | {"nodes": [{"name": f"n{i}", "kind": "fast", "ranks": 8} for i in range(64)]}
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        ps.plan(many, cluster=cluster, time_limit=1000)
