"""The verb `fit`, and verbs that use the terms that it finds.

Usage: fit_verb_test.py PENSTOCK DOCS, with the program and the folder of the documentation.
"""

import json
import os

import program_runs

HEAD = "schedule,ranks,micro_batches,measured\n"
# What the costs of the example predict with these terms.
TERMS = {"slowdown": 0.08, "send_share": 3.0, "per_step": 12.0}


class FitVerb(program_runs.VerbRuns):

    def setUp(self):
        super().setUp()
        with open(os.path.join(program_runs.DATA, "example_costs.json")) as example:
            self.costs = {**json.load(example), "memory_cap_bytes": 10 ** 12}
        self.write("costs.json", json.dumps(self.costs))
        self.write("truth.json", json.dumps({**self.costs, **TERMS}))

    def plans(self, costs, runs):
        """The chosen candidate of each (schedule, ranks, m)."""
        chosen = []
        for schedule, ranks, m in runs:
            self.output_of("plan", "--costs", costs, "--ranks", str(ranks), "--micro-batches", str(m), "--schedules",
                           schedule, "--weight-gradients", "stream", "--json", "plan.json")
            chosen.append(json.loads(self.read("plan.json"))["chosen"])
        return chosen

    def steps(self, costs, runs):
        return [plan["makespan"] for plan in self.plans(costs, runs)]

    def test_finds_terms_and_writes_costs_that_predict_the_runs(self):
        runs = [("1f1b", 2, 8), ("1f1b", 4, 32), ("zb-h1", 4, 16), ("zb-h1", 2, 32), ("1f1b", 4, 8)]
        plans = self.plans("truth.json", runs)
        measured = [plan["makespan"] for plan in plans]
        rows = (f"{s},{p},{m},{plan['makespan']},{';'.join(plan['stages'][1:])}\n"
                for (s, p, m), plan in zip(runs, plans))
        self.write("runs.csv", HEAD.replace("\n", ",partition\n") + "".join(rows))
        out = self.output_of("fit", "--costs", "costs.json", "--measured", "runs.csv", "--output", "fitted.json", "--json",
                             "fit.json")
        self.assertIn("1f1b, 2 ranks, m = 8", out)
        fit = json.loads(self.read("fit.json"))
        for name, value in TERMS.items():
            self.assertAlmostEqual(fit["terms"][name] / value, 1, delta=0.05, msg=name)
        self.assertLess(fit["worst_error"], 1e-3)
        self.assertGreater(fit["worst_error_without"], 0.05)
        self.assertEqual((fit["warnings"], len(fit["runs"])), ([], 5))
        for predicted, truth in zip(self.steps("fitted.json", runs), measured):
            self.assertAlmostEqual(predicted / truth, 1, delta=2e-3)

    def test_warns_of_few_runs(self):
        self.write("runs.csv", HEAD + "1f1b,4,16,500\n")
        out = self.output_of("fit", "--costs", "costs.json", "--measured", "runs.csv")
        self.assertIn("warning: 1 run for 3 terms", out)
        out = self.output_of("fit", "--costs", "costs.json", "--measured", "runs.csv", "--terms", "slowdown", "--overlap")
        self.assertIn("warning: 1 run for 1 term ", out)

    def test_simulate_has_the_terms_as_flags_and_in_cost_files(self):
        shape = ["simulate", "1f1b", "--stages", "2", "--micro-batches", "2", "--cost-comm", "1"]
        self.assertIn("makespan 11.000", self.output_of(*shape))
        self.assertIn("makespan 13.000", self.output_of(*shape, "--per-step", "2"))
        self.assertIn("makespan 11.900", self.output_of(*shape, "--slowdown", "0.1"))
        plain = self.output_of(*shape, "--send-share", "0.5")
        self.write("stage.json", json.dumps({"penstock_costs": 1, "forward": [1], "input_grad": [1], "weight_grad": [1],
                                             "message": 1, "send_share": 0.5}))
        self.assertEqual(self.output_of(*shape, "--cost-file", "stage.json"), plain)
        self.assertNotIn("makespan 11.000", plain)
        self.assert_refused(shape, (["--send-share", "-1"], "--send-share"))

    def test_bad_input(self):
        self.write("runs.csv", HEAD + "1f1b,4,16,500\n1f1b,4,16,soon\n")
        self.write("columns.csv", HEAD.replace("ranks", "rank"))
        fit = ["fit", "--costs", "costs.json"]
        self.assert_refused(fit, (["--measured", "runs.csv"], "runs.csv: line 3"),
                            (["--measured", "columns.csv"], "did you mean 'ranks'?"),
                            (["--measured", "runs.csv", "--terms", "slow_down"], "did you mean 'slowdown'?"),
                            (["--measured", "none.csv"], "none.csv"),
                            (["--measured", "runs.csv", "--output", "-", "--json", "-"], "--output - and --json -"))


if __name__ == "__main__":
    program_runs.main()
