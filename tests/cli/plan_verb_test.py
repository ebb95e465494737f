"""The verb `plan`: standard output, standard error, exit code, files.

Usage: plan_verb_test.py PENSTOCK DOCS, with the program and the folder of the documentation.
"""

import itertools
import json
import os
import re

import program_runs


def layer(name, **figures):
    return {"name": name, "forward": 1, "input_grad": 1, "weight_grad": 1, "activation_bytes": 10,
            "parameter_bytes": 100, "boundary_bytes": 0, **figures}


def costs(**members):
    return {"penstock_layer_costs": 1, "time_unit": "ms", "ranks": 2, "samples": 16, "micro_batch_size": 4,
            "link": {"bytes_per_unit": 100, "latency": 0}, "layers": [layer(f"layer{i}") for i in range(8)], **members}


class PlanVerb(program_runs.VerbRuns):

    def plan(self, *flags, **members):
        self.write("costs.json", json.dumps(costs(**members)))
        return ["plan", "--costs", "costs.json", *flags]

    def test_the_table_shows_candidates_and_choice(self):
        out = self.output_of(*self.plan("--schedules", "gpipe,1f1b", "--weight-gradients", "stream"))
        self.assertIn("    1f1b  1  4  stream       time    60.000  20.0 %   480 B   chosen\n", out)
        self.assertIn("   gpipe  1  4  stream       time    60.000  20.0 %   560 B  as fast\n", out)
        self.assertIn("Chosen: '1f1b' (v = 1, m = 4, weight gradients stream), the shortest step of 2 tried", out)
        self.assertIn("stage 1 on rank 1: layer4 to layer7 (4 layers)\n", out)

    def test_flags_override_the_file(self):
        found = json.loads(self.output_of(*self.plan("--ranks", "4", "--micro-batches", "2,8", "--memory-cap", "260",
                                                     "--json", "out.json", "--schedules", "1f1b")) and
                           self.read("out.json"))
        self.assertEqual({candidate["micro_batches"] for candidate in found["trials"]}, {2, 8})
        self.assertEqual(len(found["stages"]), 4)
        self.assertEqual(len(found["chosen"]["memory_bytes"]), 4)
        self.assertTrue(all(max(candidate["memory_bytes"]) <= 260
                            for candidate in found["trials"] if candidate["fits"]))
        self.assertTrue(any(not candidate["fits"] for candidate in found["trials"]))

    def test_layers_without_costs_are_partitioned_uniformly(self):
        """Colossal-AI's example, which counts from 1: device 1 has the layers 1, 2, 9 and 10."""
        out = self.output_of("plan", "--layers", "16", "--stages", "4", "--chunks", "2")
        self.assertEqual(out.splitlines()[1:], ["rank 0: layers 0, 1, 8, 9; stages 0, 4",
                                                "rank 1: layers 2, 3, 10, 11; stages 1, 5",
                                                "rank 2: layers 4, 5, 12, 13; stages 2, 6",
                                                "rank 3: layers 6, 7, 14, 15; stages 3, 7"])
        ranks = json.loads(self.run_program("plan", "--layers", "10", "--stages", "4", "--json", "-")[1])["ranks"]
        self.assertEqual([rank["layers"] for rank in ranks], [[0, 1], [2, 3], [4, 5, 6], [7, 8, 9]])
        self.assert_refused(["plan"], (["--layers", "16"], "on how many ranks? Pass --stages P"),
                            (["--layers", "7", "--stages", "4", "--chunks", "2"],
                             "--layers 7 are fewer than the 8 stages"),
                            (["--layers", "7", "--stages", "2", "--costs", "x"], "--costs excludes --layers"),
                            (["--costs", "x", "--chunks", "2"], "--chunks requires --layers"))

    def test_a_truncated_file(self):
        whole = json.dumps(costs(), indent=1)
        for length in (0, 1, 50, len(whole) - 3):
            self.write("costs.json", whole[:length])
            told = self.complaint_of("plan", "--costs", "costs.json")
            self.assertRegex(told,
                             r"^costs\.json: the cost file is not JSON: (it is empty|it breaks off at line \d+, column "
                                   r"\d+; truncated\?)")

    def test_every_schedule_that_trains_is_tried(self):
        names = re.search(r"name \((.*?)\)", " ".join(self.output_of("schedule", "show", "--help").split()))[1]
        candidates = json.loads(self.output_of(*self.plan("--json", "out.json")) and self.read("out.json"))["trials"]
        self.assertEqual({candidate["schedule"] for candidate in candidates}, set(names.split(", ")) - {"forward-only", "chimera"})
        self.assertIn("chimera", " ".join(json.loads(self.read("out.json"))["left_out"]))

    def test_values_that_are_not_possible(self):
        self.assert_refused(self.plan(), (["--ranks", "0"], "--ranks 0: pass a whole number of at least 1"),
                            (["--ranks", "2,4.5"], "--ranks 2,4.5: pass"),
                            (["--memory-cap", "80 GB"], "--memory-cap 80 GB: pass bytes"),
                            (["--memory-cap", "-3"], "--memory-cap -3: pass bytes"),
                            (["--micro-batches", "100000"],
                             "--micro-batches 100000: a step of 16 samples has at most 16 micro-batches"),
                            (["--for", "torch", "--weight-gradients", "fused"], "torch has no fused W"))
        self.write("stages.json", json.dumps({"penstock_costs": 1}))
        self.assert_refused(["plan", "--costs"], (["stages.json"], "the cost file has costs of stages, which"))

    def test_a_cap_with_a_unit(self):
        capped = self.plan("--schedules", "1f1b", "--json", "-", "--memory-cap")
        self.assertEqual(self.run_program(*capped, "0.3kB")[1], self.run_program(*capped, "300")[1])

    def test_schedules_by_name_and_by_file(self):
        self.output_of("schedule", "convert", "gpipe", "--stages", "2", "--micro-batches", "4", "--output", "own.sched")
        self.write("own.sched", self.read("own.sched").replace("name gpipe", "name own"))
        out = self.run_program(*self.plan("--schedules", "1f1b, own.sched,1f1b", "--for", "torch", "--json", "-"))[1]
        trials = json.loads(out)["trials"]
        self.assertEqual(sorted(one["schedule"] for one in trials), ["1f1b", "own"])
        self.assertEqual(trials[0]["stages"], ["layer0", "layer4"])

    def test_a_plan_becomes_csv_for_torch(self):
        shape = ["--schedules", "1f1b", "--output", "model.plan"]
        self.output_of(*self.plan(*shape, "--for", "torch"))
        csv = self.output_of("schedule", "convert", "model.plan", "--format", "csv")
        self.assertEqual(csv, self.output_of("schedule", "convert", "1f1b", "--stages", "2", "--micro-batches", "4",
                                             "--format", "csv").replace("1f1b", "model"))
        self.output_of(*self.plan(*shape, "--weight-gradients", "fused"))
        self.assertIn("torch has no W of several micro-batches: plan with --for torch",
                      self.complaint_of("schedule", "convert", "model.plan", "--format", "csv"))
        self.assertIn("0W0-3", self.output_of("schedule", "convert", "model.plan"))

    def test_the_plan_file_contains_the_chosen_schedule(self):
        self.output_of(*self.plan("--schedules", "1f1b", "--weight-gradients", "fused", "--output", "model.plan"))
        plan = json.loads(self.read("model.plan"))
        self.assertEqual(plan["stages"], [[f"layer{i}" for i in range(4)], [f"layer{i}" for i in range(4, 8)]])
        self.write("model.sched", "\n".join(plan["schedule"]) + "\n")
        self.assertIn("ok: 1f1b, 2 ranks", self.output_of("schedule", "check", "model.sched"))
        self.assertEqual(plan["schedule"][-1], "rank 1: 1F0 1I0 1F1 1I1 1F2 1I2 1F3 1I3 1W0-3")

    def test_standard_output_contains_only_the_file(self):
        for flag in ("--output", "--json"):
            code, out, err = self.run_program(*self.plan(flag, "-"))
            self.assertEqual(code, 0)
            json.loads(out)
            self.assertIn("Chosen: ", err)
        self.assertIn("would both write to standard output",
                      self.complaint_of(*self.plan("--output", "-", "--json", "-")))

    def test_too_little_memory_reports_the_required_amount(self):
        message = self.complaint_of(*self.plan("--memory-cap", "400"))
        smallest = re.search(r"the smallest cap that would do is (\d+) bytes", message)[1]
        self.output_of(*self.plan("--memory-cap", smallest))
        self.complaint_of(*self.plan("--memory-cap", str(int(smallest) - 1)))

    def test_memory_limit(self):
        limited = self.plan("--schedules", "gpipe,1f1b", "--weight-gradients", "stream", "--memory-limit", "120B")
        self.assertIn(" needs 560 bytes, limit 160B\n", self.output_of(*limited))
        trials = json.loads(self.run_program(*limited, "--json", "-")[1])["trials"]
        self.assertEqual([(trial["schedule"], trial["fits"], trial["needed_limit_bytes"]) for trial in trials],
                         [("1f1b", True, 80), ("gpipe", False, 160)])
        for limit, needed in (("120B",
                               "a memory limit of 120B of activations per rank: the smallest limit that would do "
                               "is 160B, with 'gpipe', 1 chunk per rank and 4 micro-batches"),
                              ("1.5", "the smallest limit that would do is 2, with 'gpipe'")):
            self.assertIn(needed, self.complaint_of(*self.plan("--schedules", "gpipe", "--memory-limit", limit)))
        adapted = self.run_program(*self.plan("--schedules", "zb-auto", "--memory-limit", "100B", "--json", "-"))[1]
        self.assertIn(100, [trial.get("memory_limit_bytes") for trial in json.loads(adapted)["trials"]])

    CLUSTER = {"penstock_cluster": 1, "time_unit": "ms", "kinds": {"new": {}, "old": {"speed": 0.5}},
               "nodes": [{"name": "n0", "kind": "new", "ranks": 2}, {"name": "n1", "kind": "old", "ranks": 2}],
               "links": {"inside": {"GB_per_s": 100}, "between": {"GB_per_s": 10, "latency": 0.05}}}

    def cluster(self, **changes):
        self.write("cluster.json", json.dumps({**self.CLUSTER, **changes}))
        return [*self.plan("--schedules", "1f1b,zb-h1"), "--cluster", "cluster.json"]

    def test_a_cluster(self):
        found = json.loads(self.run_program(*self.cluster(), "--json", "-")[1])
        shapes = {(trial["ranks"], trial["replicas"]) for trial in found["trials"]}
        self.assertGreater(len(shapes), 3)
        chosen = found["chosen"]
        self.assertEqual(len(chosen["devices"]), chosen["ranks"] * chosen["replicas"])
        self.assertEqual(len(chosen["stages"]), chosen["ranks"] * chosen["chunks"])
        fixed = json.loads(self.run_program(*self.cluster(), "--ranks", "4", "--replicas", "1", "--json", "-")[1])
        self.assertEqual({trial["ranks"] for trial in fixed["trials"]}, {4})
        curve = self.output_of(*self.cluster(), "--devices", "1..4").splitlines()
        self.assertEqual([line.split()[0] for line in curve], ["devices", "1", "2", "4"])

    def test_clusters_that_are_wrong(self):
        for changes, texts in (({"nodes": [{"name": "n0", "kind": "nwe"}]}, ("nodes[0].kind", "'new'")),
                               ({"time_unit": "days"}, ("'days'", "ms")),
                               ({"links": {"n0>n9": {}}}, ("'n9'", "'n0'"))):
            complaint = self.complaint_of(*self.cluster(**changes))
            for text in texts:
                self.assertIn(text, complaint)
        self.assertIn("4 devices", self.complaint_of(*self.cluster(), "--ranks", "8"))
        self.assertIn("--cluster", self.complaint_of(*self.plan("--replicas", "2")))
        self.assertIn("8..512", self.complaint_of(*self.cluster(), "--devices", "few"))

    def test_misuse(self):
        self.assertIn("Give --costs FILE, or --layers N --stages P", self.complaint_of("plan"))
        self.assertIn("nothing.json: cannot be opened", self.complaint_of("plan", "--costs", "nothing.json"))
        self.assertIn("costs.json: the cost file's samples is -1", self.complaint_of(*self.plan(samples=-1)))
        self.assertIn("no schedule is called '2f2b'", self.complaint_of(*self.plan("--schedules", "2f2b")))
        self.assertIn("costs.json: the cost file's ranks is 0", self.complaint_of(*self.plan(ranks=0)))
        self.assertIn("8 layers do not make a stage for each of 9 ranks", self.complaint_of(*self.plan("--ranks", "9")))
        self.assertIn("--micro-batches 17: a step of 16 samples has at most 16", self.complaint_of(*self.plan("--micro-batches", "17")))
        self.assertIn("there is no such folder", self.complaint_of(*self.plan("--output", "no/where.plan")))
        self.assertFalse(os.path.exists(self.path("no")))

    def test_the_example_of_the_help_runs(self):
        os.symlink(program_runs.DATA, self.path("docs"))
        first, second = self.output_of("plan", "--help").split("Example:\n")[1].strip().splitlines()
        self.assertIn("Chosen: ", self.output_of(*first.split()[1:]))
        self.assertIn("rank 3", self.output_of(*second.split()[1:]))
        self.assertTrue(json.loads(self.read("model.plan")))

    def test_the_example_of_the_documentation_shows_what_comes_out(self):
        os.symlink(program_runs.DATA, self.path("docs"))
        with open(os.path.join(program_runs.DATA, "cost_file.md")) as page:
            session = page.read().split("    $ penstock ")[1]
        command, *rest = session.split("\n")
        shown = [line[4:] for line in itertools.takewhile(lambda line: not line or line.startswith("    "), rest)]
        self.assertEqual(self.output_of(*command.split()).split(), " ".join(shown).split())


if __name__ == "__main__":
    program_runs.main()
