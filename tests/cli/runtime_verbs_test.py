"""The verbs that train and measure: standard output, standard error, files, exit code.

Usage: runtime_verbs_test.py PENSTOCK DATA [MPIRUN]; see program_runs.py.
"""

import json
import os
import pty
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree

sys.dont_write_bytecode = True
import program_runs
from program_runs import ENVIRONMENT, TEST_SAMPLES, WATCHDOG_S, ProgramRuns, of_mpi

DO_NOT_TRAIN = ("forward-only", "chimera")  # the second one has two copies of each stage
LOSS = re.compile(r"epoch: (\d+) step: (\d+), loss is (\d+\.\d+)")
EVALUATION = re.compile(r"epoch: (\d+) test: loss (\d+\.\d+), accuracy (0\.\d{4})")

STEPS = ["--micro-batches", "4", "--batch-size", "32", "--steps", "6", "--seed", "3", "--log-every", "1"]


class RuntimeVerbs(ProgramRuns):
    def losses(self, out):
        """The losses by (epoch, step) of an output that consists of loss lines only."""
        lines = [LOSS.fullmatch(line) for line in out.splitlines()]
        self.assertTrue(out.endswith("\n") and all(lines), out)
        return {(int(line[1]), int(line[2])): float(line[3]) for line in lines}

    def on_a_terminal(self, *arguments, ranks=None):
        """The output of a run on a terminal."""
        ours, its = pty.openpty()
        shown = []

        def watch():
            try:
                while text := os.read(ours, 65536):
                    shown.append(text)
            except OSError:  # end of file of a pseudo-terminal
                pass

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = subprocess.run(self.command(arguments, ranks), cwd=self.folder, env=ENVIRONMENT, timeout=WATCHDOG_S,
                              stdin=subprocess.DEVNULL, stdout=its, stderr=subprocess.PIPE).returncode
        os.close(its)
        watcher.join()
        os.close(ours)
        self.assertEqual(code, 0)
        return b"".join(shown).decode()

    # The lines of a training

    def test_loss_lines(self):
        code, out, err = self.run_program(*self.train("--stages", "2", "--micro-batches", "4", "--batch-size", "32",
                                                      "--steps", "60", "--seed", "3", "--lr", "0.01", "--reduction",
                                                      "mean", "--no-shuffle", "--log-every", "10"))
        self.assertEqual(code, 0)
        # The 60 steps continue after the first epoch of 52 steps.
        self.assertEqual(list(self.losses(out)),
                         [(0, 0), (0, 10), (0, 20), (0, 30), (0, 40), (0, 50), (1, 0)])
        self.assertEqual(err,
                         "penstock: info: mlp 32,16: 2 ranks = 2 pipeline ranks x 1 replica, threads, 1 thread per "
                         "rank; "
                              "1f1b, 4 micro-batches; batch 32\n"
                              "penstock: info: stage 0: flatten, layer1, relu1\n"
                              "penstock: info: stage 1: layer2, relu2, layer3\n")

    def test_log_every(self):
        job = self.train("--batch-size", "500", "--steps", "4")
        self.assertEqual(self.output_of(*job, "--log-every", "0"), "")
        self.assertEqual(list(self.losses(self.output_of(*job, "--log-every", "3"))), [(0, 0), (0, 3)])

    def test_an_epoch_ends_with_its_evaluation(self):
        out = self.output_of(*self.train("--stages", "2", "--epochs", "2", "--log-every", "50"))
        lines = out.splitlines()
        self.assertEqual(list(self.losses("\n".join([*lines[:2], *lines[3:5], ""]))),
                         [(0, 0), (0, 50), (1, 0), (1, 50)])
        for epoch, line in enumerate((lines[2], lines[5])):
            self.assertEqual(EVALUATION.fullmatch(line)[1], str(epoch))
        self.assertEqual(self.output_of(*self.train("--log-every", "0", "--eval-every", "0")), "")

    def test_what_the_order_depends_on(self):
        job = self.train(*STEPS)
        shuffled = self.output_of(*job)
        self.assertEqual(self.output_of(*job, "--shuffle"), shuffled)
        self.assertNotEqual(self.output_of(*job, "--no-shuffle"), shuffled)
        self.assertNotEqual(self.output_of(*job, "--seed", "4"), shuffled)

    def test_learning_rates(self):
        def rates(*flags):
            job = self.train("--batch-size", "500", "--epochs", "2", "--eval-every", "0", "--lr", "0.001", *flags)
            return [json.loads(line)["lr"] for line in self.output_of(*job, "--json", "-").splitlines()]

        per_epoch = len(rates()) // 2
        self.assertEqual(set(rates()), {0.001})
        # Colossal-AI's warm-up of one epoch in two.
        self.assertEqual(rates("--lr-schedule", "linear", "--warmup", "1"), [0.0005] * per_epoch + [0.001] * per_epoch)
        by_step = rates("--lr-schedule", "cosine", "--lr-by", "step")
        self.assertEqual((by_step[0], len(set(by_step))), (0.001, 2 * per_epoch))
        self.assertEqual(by_step, sorted(by_step, reverse=True))
        self.assertIn("warm-up of 3", self.run_program(*self.train("--epochs", "2", "--warmup", "3"))[2])

    def test_clipped_gradients(self):
        job = self.train(*STEPS, "--stages", "2", "--lr", "1")
        norms = [json.loads(line)["grad_norm"] for line in
                 self.output_of(*job, "--clip-norm", "0.1", "--json", "-").splitlines()]
        self.assertTrue(all(norm > 0.1 for norm in norms), norms)
        self.assertNotEqual(self.output_of(*job, "--clip-norm", "0.1"), self.output_of(*job))
        self.assertEqual(self.output_of(*job, "--clip-norm", "inf"), self.output_of(*job))
        self.assertEqual(self.run_program(*job, "--clip-norm", "0")[0], 2)

    # Equal numbers in all configurations

    def test_the_curve_of_mindspores_tutorial(self):
        """The tutorial's numbers, with the sum over micro-batches: 9.2 at first, 3.4 to 4.1 at step 50."""
        job = self.train("--hidden", "512,512", "--stages", "2", "--micro-batches", "4", "--batch-size", "32", "--lr",
                         "0.01", "--no-shuffle", "--steps", "51", "--log-every", "10", data=program_runs.DATA)
        by_sum = self.losses(self.output_of(*job, "--reduction", "sum"))
        self.assertTrue(9.0 < by_sum[0, 0] < 9.5, by_sum)
        self.assertTrue(3.4 < by_sum[0, 50] < 4.1, by_sum)
        # With the mean, steps are a quarter as large, so the loss is still higher.
        by_mean = self.losses(self.output_of(*job, "--reduction", "mean"))
        self.assertAlmostEqual(4 * by_mean[0, 0], by_sum[0, 0], places=5)
        self.assertGreater(4 * by_mean[0, 50], 8)

    def test_stages_and_schedules_do_not_change_a_bit(self):
        job = self.train(*STEPS)
        alone = self.output_of(*job)
        self.assertEqual(len(self.losses(alone)), 6)
        for variant in (["--stages", "2"], ["--stages", "3"], ["--stages", "2", "--partition", "layer3"],
                        ["--stages", "2", "--partition", "uniform", "--schedule", "gpipe"],
                        ["--stages", "2", "--schedule", "sequential"]):
            self.assertEqual(self.output_of(*job, *variant), alone, variant)
        self.assertNotEqual(self.output_of(*job, "--micro-batches", "1"), alone, "this does change the last bits")

    def test_recompute_changes_no_bit(self):
        job = self.train(*STEPS, "--stages", "2")
        code, out, err = self.run_program(*job, "--recompute")
        self.assertEqual((code, out), (0, self.output_of(*job)))
        self.assertIn("4 micro-batches, recomputed; batch 32", err)

    def test_precisions(self):
        job = self.train(*STEPS)
        exact = self.losses(self.output_of(*job, "--precision", "fp32"))
        code, out, err = self.run_program(*job, "--stages", "2", "--precision", "bf16")
        self.assertIn("4 micro-batches, bf16; batch 32", err)
        self.assertEqual(self.output_of(*job, "--precision", "bf16", "--recompute"), out)
        rounded = self.losses(out)
        self.assertNotEqual(rounded, exact)
        for step, loss in exact.items():
            self.assertAlmostEqual(rounded[step], loss, delta=0.05)
        self.assertIn("not in {fp32,bf16,fp16}", self.complaint_of(*job, "--precision", "half"))
        in_half = self.output_of(*job, "--precision", "fp16")
        self.assertEqual(self.output_of(*job, "--stages", "2", "--precision", "fp16"), in_half)
        for step, loss in exact.items():
            self.assertAlmostEqual(self.losses(in_half)[step], loss, delta=0.01)
        lines = self.output_of(*job, "--precision", "fp16", "--loss-scale", "16777216", "--json", "-").splitlines()
        skipped = [json.loads(line)["update_skipped"] for line in lines if '"loss"' in line]
        self.assertTrue(skipped[0] and not skipped[-1], skipped)
        self.assertIn("give a power of two", self.complaint_of(*job, "--precision", "fp16", "--loss-scale", "1000"))

    def test_replicas_do_not_change_the_curve(self):
        """Sums over micro-batches are averaged over replicas, unless these are summed too; a mean may be reported."""
        job = self.train(*STEPS, "--reduction", "sum")
        one = self.losses(self.output_of(*job))
        four = self.losses(self.output_of(*job, "--replicas", "4"))
        for step, loss in one.items():
            self.assertAlmostEqual(four[step], loss, delta=1e-3 * loss)
        summed = self.losses(self.output_of(*job, "--replicas", "4", "--replica-reduction", "sum"))
        first = min(one)
        self.assertAlmostEqual(summed[first], 4 * one[first], delta=1e-3 * summed[first])
        mean = self.losses(self.output_of(*job, "--reported-loss", "mean"))
        for step, loss in one.items():
            self.assertAlmostEqual(4 * mean[step], loss, delta=1e-4 * loss)

    def test_a_schedule_file(self):
        shape = ["--stages", "2", "--micro-batches", "4"]
        self.write("x.sched", self.output_of("schedule", "convert", "gpipe", *shape))
        job = self.train(*STEPS, *shape)
        self.assertEqual(self.output_of(*job, "--schedule", "x.sched"), self.output_of(*job))

    def every_schedule(self):
        """The flags of every schedule that trains."""
        table = self.output_of("schedule", "table", "--stages", "2", "--micro-batches", "4").splitlines()[1:]
        names = [line.split()[0] for line in table]
        names = [name for name in names if name not in DO_NOT_TRAIN]
        return [["--schedule", name] for name in names] + [
            ["--chunks", "2"], ["--schedule", "looped-bfs", "--chunks", "3"],
            ["--schedule", "zb-auto", "--memory-limit", "2"]]

    def deep(self, *flags):
        return self.train("--hidden", "20x6", *STEPS, *flags)

    def test_every_schedule_equals_one_stage(self):
        for mode in ("stream", "fused"):
            weights = ["--weight-gradients", mode]
            alone = self.output_of(*self.deep(*weights))
            for variant in self.every_schedule():
                self.assertEqual(self.output_of(*self.deep("--stages", "2", *weights, *variant)), alone, variant)

    @of_mpi
    def test_every_schedule_equals_one_stage_under_mpirun(self):
        alone = self.output_of(*self.deep())
        for variant in self.every_schedule():
            self.assertEqual(self.output_of(*self.deep("--stages", "2", *variant), ranks=2), alone, variant)

    def test_chunks(self):
        err = self.run_program(*self.deep("--stages", "2", "--chunks", "2"))[2]
        self.assertIn("interleaved with 2 chunks per rank, 4 micro-batches", err)
        self.assertIn("stage 3: ", err)
        for flags, message in ((["--schedule", "1f1b", "--chunks", "2"], "takes exactly 1 chunk"),
                               (["--schedule", "zb-v", "--chunks", "3"], "takes exactly 2 chunk"),
                               (["--schedule", "interleaved", "--chunks", "1"], "takes at least 2 chunks"),
                               (["--schedule", "forward-only"], "cannot train"),
                               (["--schedule", "chimera"], "2 copies of each stage"),
                               (["--schedule", "gpipe", "--memory-limit", "1"], "set a limit of 2 or more"),
                               (["--schedule", "1f1b", "--memory-limit", "0.5", "--weight-gradients", "fused"],
                                "set a limit of 1 or more")):
            self.assert_refused(self.deep("--stages", "2"), (flags, message))

    def test_memory_limit_in_bytes(self):
        job = self.deep("--stages", "2", "--schedule", "zb-auto")
        self.assertEqual(self.output_of(*job, "--memory-limit", "1MiB"), self.output_of(*job))
        self.assert_refused(self.deep("--stages", "2", "--memory-limit"),
                            (["1B"], "a memory limit of 1B per rank is less than the "),
                            (["1Gi"], "the units are B, kB, MB, GB, TB, KiB, MiB, GiB and TiB"),
                            (["1B", "--weight-gradients", "fused"], "set a limit of "))

    def write_plan(self, **changes):
        layers = [{"name": name, "forward": 1, "input_grad": 1, "weight_grad": weight, "activation_bytes": 10,
                   "parameter_bytes": 10, "boundary_bytes": 1}
                  for name, weight in (("layer1", 1), ("layer2", 1), ("layer3", 4), ("layer4", 1), ("layer5", 1))]
        costs = {"penstock_layer_costs": 1, "time_unit": "ms", "ranks": 2, "samples": 32, "micro_batch_size": 8,
                 "link": {"bytes_per_unit": 0, "latency": 0.01}, "layers": layers, **changes}
        self.write("costs.json", json.dumps(costs))
        self.output_of("plan", "--costs", "costs.json", "--output", "x.plan")

    def test_a_plan_is_executed(self):
        self.write_plan()
        job = self.train("--hidden", "20x4", "--batch-size", "32", "--steps", "6", "--seed", "3", "--log-every", "1")
        code, out, err = self.run_program(*job, "--plan", "x.plan")
        self.assertEqual(code, 0, err)
        self.assertEqual(len(self.losses(out)), 6)
        stages = json.loads(self.read("x.plan"))["stages"]
        for number, stage in enumerate(stages):
            self.assertRegex(err, rf"stage {number}: .*".replace(".*", ".*" + ".*".join(stage)))
        self.assertIn("2 ranks = 2 pipeline ranks", err)

    def has_cpu_kernels(self):
        return "\nkernels      fixed, tuned\n" in self.output_of("doctor")

    def test_kernels_of_a_plan_are_used(self):
        if not self.has_cpu_kernels():
            self.skipTest("this build has no tuned kernels")
        self.write_plan(kernels=["tuned", "linear 20 20 bias_apart"])
        job = ["bench", "step", "--hidden", "20x4", "--batch-size", "32", "--steps", "2", "--plan", "x.plan", "--json",
               "-"]
        for flags, kernels in (([], "tuned"), (["--kernels", "fixed"], "fixed")):
            code, out, err = self.run_program(*job, *flags)
            self.assertEqual(code, 0, err)
            self.assertEqual(json.loads(out)["kernels"], kernels)
        self.write_plan(kernels=["tuned", "linear 20 20 fast"])
        self.assert_refused(job, ([], "names 'fast', which does not exist"))

    def test_a_build_without_tuned_kernels_refuses_them(self):
        if self.has_cpu_kernels():
            self.skipTest("this build has tuned kernels")
        self.write_plan(kernels=["tuned", "linear 20 20 bias_apart"])
        job = ["bench", "step", "--hidden", "20x4", "--batch-size", "32", "--steps", "2", "--json", "-"]
        told = "built without them (PENSTOCK_CPU_KERNELS=OFF): set --kernels fixed"
        self.assert_refused(job, (["--kernels", "tuned"], told), (["--plan", "x.plan"], told))
        for flags in (["--kernels", "fixed", "--plan", "x.plan"], ["--schedule", "auto", "--stages", "2"]):
            self.assertEqual(json.loads(self.output_of(*job, *flags))["kernels"], "fixed")

    def test_a_plan_that_does_not_fit(self):
        self.write_plan()
        network = "x.plan is the plan of another network: it "
        self.assert_refused(self.train("--plan", "x.plan"), (["--stages", "3"], "excludes"),
                            (["--hidden", "20"], network + "has layer 'layer3'"),
                            (["--hidden", "20x5"], network + "does not have layer 'layer6', which this network has"),
                            (["--hidden", "20x3"], network + "has layer 'layer5'"))
        self.assert_refused(self.train(), (["--plan", "no.plan"], "no.plan"))

    @of_mpi
    def test_processes_print_what_threads_print(self):
        job = self.train(*STEPS, "--stages", "2")
        code, out, err = self.run_program(*job, ranks=2)
        self.assertEqual((code, out), (0, self.output_of(*job)))
        self.assertIn("2 ranks = 2 pipeline ranks x 1 replica, mpi, 1 thread per rank", err)
        self.assertEqual(err.count("penstock: info: "), 3, "once, not by every process")

    @of_mpi
    def test_processes_beyond_the_stages_are_replicas(self):
        # A whole epoch with evaluation: the last batch has 2 samples, so that some replicas have none.
        job = self.train("--stages", "2", "--micro-batches", "2", "--log-every", "1")
        code, out, err = self.run_program(*job, ranks=8)
        self.assertEqual((code, out), (0, self.output_of(*job, "--replicas", "4")))
        self.assertIn("8 ranks = 2 pipeline ranks x 4 replicas, mpi", err)
        self.assertIn("batch 32 in all, 8 per replica", err)
        self.assertEqual(len(out.splitlines()), 53)

    @of_mpi
    def test_nothing_but_lines_without_a_terminal(self):
        for ranks in (1, 2):
            job = self.train("--stages", "2", "--replicas", "0", "--steps", "30") if ranks == 2 else self.train()
            out = self.output_of(*job, ranks=ranks)
            self.assertNotRegex(out, r"[\r\x1b]")

    @of_mpi
    def test_a_process_that_is_bound_to_a_core_is_told_once(self):
        cores = os.sched_getaffinity(0)
        if len(cores) < 2:
            self.skipTest("this machine has one core")
        for threads, lines in ((2, 1), (1, 0)):
            job = self.train("--stages", "2", "--steps", "1", "--threads", str(threads))
            code, _, err = self.run_program(*job, ranks=2, preexec_fn=lambda: os.sched_setaffinity(0, {min(cores)}))
            said = self.sayings(err)
            self.assertEqual((code, len(said)), (0, lines), err)
            self.assertTrue(all("2 threads" in line and "--bind-to none" in line for line in said), said)

    # Batches of any size

    def test_odd_batches(self):
        # 1634 samples are 4 batches of 333 and one of 302.
        odd = self.train("--micro-batches", "4", "--batch-size", "333", "--log-every", "1")
        out = self.output_of(*odd, "--stages", "2")
        self.assertEqual(list(self.losses("".join(out.splitlines(True)[:-1]))), [(0, step) for step in range(5)])
        self.assertEqual(out, self.output_of(*odd))
        dropped = self.output_of(*odd, "--drop-last")
        self.assertEqual(dropped.splitlines()[:4], out.splitlines()[:4])
        self.assertEqual(len(dropped.splitlines()), 5)

    def test_a_short_last_batch_has_fewer_micro_batches(self):
        # 1634 samples are 51 batches of 32 and one of 2.
        job = self.train("--batch-size", "32", "--log-every", "1", "--no-shuffle", "--eval-every", "0")
        out = self.output_of(*job, "--micro-batches", "4", "--stages", "2")
        self.assertEqual(len(self.losses(out)), 52)
        self.assertIn("batch-size = 3 fills fewer than 4 micro-batches",
                      self.complaint_of(*job, "--batch-size", "3", "--micro-batches", "4"))
        # With an odd batch, one replica has a sample for each micro-batch, and the other has one less.
        self.output_of(*job, "--batch-size", "31", "--replicas", "2", "--micro-batch-size", "1", "--steps", "2")

    def test_the_size_of_micro_batches_gives_their_number(self):
        job = self.train("--batch-size", "30", "--steps", "3", "--log-every", "1", "--no-shuffle", "--stages", "2")
        self.assertEqual(self.output_of(*job, "--micro-batch-size", "8"), self.output_of(*job, "--micro-batches", "4"))
        self.assertEqual(self.output_of(*job, "--micro-batch-size", "16", "--replicas", "2"),
                         self.output_of(*job, "--micro-batches", "1", "--replicas", "2"))
        self.assertIn("excludes", self.complaint_of(*job, "--micro-batch-size", "8", "--micro-batches", "4"))

    def test_a_declared_boundary_shape_is_checked(self):
        job = self.train("--batch-size", "30", "--steps", "2", "--log-every", "1", "--hidden", "20", "--stages", "2",
                         "--partition", "layer2", "--micro-batches", "2")
        self.assertEqual(self.output_of(*job, "--boundary-shape", "15,20"), self.output_of(*job))
        code, _, err = self.run_program(*job, "--boundary-shape", "16,20")
        self.assertEqual(code, 1)
        self.assertIn("of shape [15, 20] to stage 1, but the boundary shape is [16, 20]", err)

    def test_more_stages_than_layers(self):
        job = self.train(*STEPS)
        code, out, err = self.run_program(*job, "--stages", "7")
        self.assertEqual((code, out), (0, self.output_of(*job)))
        self.assertEqual(self.sayings(err), ["warning: stage 0 of 7 has no layers: it passes values through, and its "
                                             "rank adds nothing"])

    def test_widths(self):
        job = self.train(*STEPS)
        self.assertEqual(self.output_of(*job, "--hidden", "16x3"), self.output_of(*job, "--hidden", "16,16x2"))

    def test_optimizers(self):
        job = self.train(*STEPS)
        curves = {self.output_of(*job, *flags)
                  for flags in (["--optimizer", "sgd"], ["--optimizer", "adam"], ["--momentum", "0.9"],
                                ["--optimizer", "adamw", "--weight-decay", "0.5"], ["--optimizer", "rmsprop"],
                                ["--optimizer", "rmsprop", "--momentum", "0.9"])}
        self.assertEqual(len(curves), 6)
        self.assertEqual(len({curve.splitlines()[0] for curve in curves}), 1, "the first loss is before any update")

    # JSON and traces

    def test_json_to_a_file(self):
        out = self.output_of(*self.train("--stages", "2", "--log-every", "1", "--json", "steps.json"))
        lines = [json.loads(line) for line in self.read("steps.json").splitlines()]
        *steps, evaluation = lines
        self.assertEqual(list(steps[0]), ["epoch", "step", "loss", "lr", "samples", "step_ms", "samples_per_s",
                                          "bubble", "peak_activations", "peak_resident_bytes"])
        for step in steps:
            self.assertTrue(0 <= step["bubble"] < 1 and step["peak_resident_bytes"] > 1 << 20, step)
            self.assertEqual(step["peak_activations"], 2)
        self.assertEqual([step["step"] for step in steps], list(range(52)))
        self.assertEqual([step["samples"] for step in steps], [32] * 51 + [2])
        shown = [f"epoch: 0 step: {step['step']}, loss is {step['loss']:.9g}" for step in steps]
        shown.append(f"epoch: 0 test: loss {evaluation['test_loss']:.6g}, accuracy {evaluation['test_accuracy']:.4f}")
        self.assertEqual(out.splitlines(), shown)
        self.assertEqual((evaluation["epoch"], evaluation["test_samples"]), (0, TEST_SAMPLES))

    def test_json_to_standard_output(self):
        job = self.train(*STEPS, "--stages", "2")
        for ranks in (None, 2) if program_runs.MPIRUN else (None,):
            code, out, err = self.run_program(*job, "--json", "-", ranks=ranks)
            self.assertEqual(code, 0)
            self.assertEqual([json.loads(line)["step"] for line in out.splitlines()], list(range(6)))
            told = "".join(line for line in err.splitlines(True) if line.startswith("epoch"))
            self.assertEqual(told, self.output_of(*job))

    @of_mpi
    def test_a_trace_of_two_hosts(self):
        # Processes that see two hosts on one machine. Transit times come from clocks that were compared.
        from_two = ["-n", "1", "-x", "PENSTOCK_HOST=a", program_runs.PROGRAM,
                    *self.train(*STEPS, "--stages", "2", "--trace", "two.json"), ":",
                    "-n", "1", "-x", "PENSTOCK_HOST=b", program_runs.PROGRAM,
                    *self.train(*STEPS, "--stages", "2", "--trace", "two.json")]
        done = subprocess.run([program_runs.MPIRUN, *program_runs.LAUNCH, *from_two], cwd=self.folder, text=True,
                              capture_output=True, env=program_runs.ENVIRONMENT, timeout=program_runs.WATCHDOG_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.output_of(*self.train(*STEPS, "--stages", "2", "--trace", "one.json"), ranks=2)

        def waits(name):
            events = json.loads(self.read(name))["traceEvents"]
            return [event["args"] for event in events if event.get("cat") == "wait"]
        for name in ("one.json", "two.json"):
            self.assertTrue(any(wait.get("transit_ns", 0) > 0 for wait in waits(name)), name)
        report = self.output_of("trace", "report", "two.json", "--json", "-")
        for rank in json.loads(report)["ranks"]:
            self.assertLess(rank["message"], rank["total"])
            parts = sum(value for name, value in rank.items() if name not in ("stages", "total"))
            self.assertAlmostEqual(parts, rank["total"], delta=1e-6)


    def test_trace_picture_and_report(self):
        out = self.output_of(*self.train(*STEPS, "--stages", "2", "--report", "--trace", "t.json", "--svg", "s.svg"))
        self.assertIn("\nrank 1 |   .    1F0   1B0", out)
        self.assertRegex(out, r"\nstep \d, the median of 5 \(.* ms\): measured [0-9.]+ ms, predicted [0-9.]+ ms from ")
        report = self.output_of("trace", "report", "t.json")
        self.assertRegex(report, r"^rank  stages  compute .* woken-late +drain ")
        # Between threads, too, the trace has the times of sending and receiving.
        self.assertIn('"transit_ns":', self.read("t.json"))
        self.assertIn('"late_ns":', self.read("t.json"))
        self.assertTrue(xml.etree.ElementTree.parse(self.path("s.svg")).getroot().tag.endswith("svg"))

    # Terminals

    def test_a_bar_on_a_terminal(self):
        shown = self.on_a_terminal(*self.train("--stages", "2", "--log-every", "10"))
        self.assertRegex(shown, r"\r\x1b\[K\[#+\.*\] \d+/52  \d+ samples/s  \d+ s left")
        # The text that remains on the screen.
        left = [line.split("\r\x1b[K")[-1] for line in shown.replace("\r\n", "\n").split("\n")]
        self.assertEqual(left.pop(), "")
        self.assertRegex(left.pop(), EVALUATION)
        self.assertEqual(len(self.losses("\n".join([*left, ""]))), 6)

    def test_no_bar_among_json(self):
        self.assertNotIn("\x1b", self.on_a_terminal(*self.train(*STEPS, "--json", "-")))

    # bench step

    def test_bench_step_as_json(self):
        job = ["bench", "step", "--hidden", "64x2", "--batch-size", "32", "--micro-batches", "4", "--steps", "5"]
        code, out, err = self.run_program(*job, "--stages", "2", "--json", "-")
        self.assertEqual((code, out.count("\n")), (0, 1))
        self.assertRegex(err, r"median [0-9.]+ ms, min [0-9.]+ ms over 5 steps")
        result = json.loads(out)
        self.check_bench(result)
        self.assertEqual({name: result[name] for name in
                          ("model", "hidden", "stages", "replicas", "micro_batches", "schedule", "transport",
                           "threads", "batch_size", "reduction", "optimizer", "seed")},
                         {"model": "mlp", "hidden": [64, 64], "stages": 2, "replicas": 1, "micro_batches": 4,
                          "schedule": "1f1b", "transport": "threads", "threads": 1, "batch_size": 32,
                          "reduction": "mean", "optimizer": "sgd", "seed": 0})
        # To a file, with one rank: almost no bubble.
        self.assertRegex(self.output_of(*job, "--json", "b.json"), r"median [0-9.]+ ms")
        self.assertEqual(json.loads(self.read("b.json"))["bubble_predicted"], 0)

    def check_bench(self, result):
        self.assertEqual(list(result)[:6], ["median_ms", "min_ms", "steps", "predicted_ms", "bubble_predicted",
                                            "bubble_measured"])
        self.assertEqual(result["steps"], 5)
        self.assertTrue(0 < result["min_ms"] <= result["median_ms"], result)
        self.assertGreater(result["predicted_ms"], 0)
        self.assertTrue(0 < result["bubble_predicted"] < 1, result)
        self.assertTrue(0 < result["bubble_measured"] < 1, result)

    @of_mpi
    def test_bench_step_under_mpirun(self):
        out = self.output_of("bench", "step", "--hidden", "64x2", "--stages", "2", "--steps", "5", "--json", "-",
                             ranks=2)
        result = json.loads(out)
        self.check_bench(result)
        self.assertEqual(result["transport"], "mpi")

    def test_bench_schedules(self):
        out = self.output_of("bench", "schedules", "--hidden", "16x4", "--batch-size", "12", "--micro-batch-size", "4",
                             "--stages", "2", "--steps", "2", "--warm-up", "0", "--format", "markdown")
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines()]
        heading, rows = rows[0], {row[0]: row for row in rows[2:]}
        self.assertEqual(len(rows), 16)
        measured = [i for i, name in enumerate(heading) if name == "measured"]
        self.assertEqual(len(measured), 2, heading)
        self.assertEqual(rows["gpipe"][measured[1]], "6", "2(p - 1)m messages, with m = 3")
        for name, row in rows.items():
            for column in measured:  # live activations, and messages
                self.assertEqual(row[column], "-" if name in DO_NOT_TRAIN else row[column - 1], row)

    # doctor, and help

    def test_doctor(self):
        out = self.output_of("doctor")
        for instruction in ("penstock", "LibTorch", "BLAS", "kernels", "products", "GPU", "MPI", "cores", "started by", "threads"):
            self.assertRegex(out, rf"(?m)^{instruction} ")
        self.assertRegex(out.splitlines()[-1], "^(note: .*|no problems)$")
        self.assertRegex(out, r"(?m)^MPI +" + ("built in" if program_runs.MPIRUN else "not built in"))

    @of_mpi
    def test_doctor_under_mpirun(self):
        out = self.output_of("doctor", ranks=2)
        self.assertEqual([out.count(f"process {rank} of 2") for rank in (0, 1)], [1, 1])

    def test_help_has_examples_that_run(self):
        for verb in (["train"], ["bench", "step"], ["bench", "schedules"], ["doctor"]):
            help_text = self.output_of(*verb, "--help")
            example = help_text.split("Example:\n")[1].splitlines()[0].split()
            self.assertEqual(example[:1 + len(verb)], ["penstock", *verb])
        os.symlink(os.path.dirname(program_runs.DATA), self.path("data"))
        example = self.output_of("train", "--help").split("Example:\n")[1].splitlines()[0].split()
        self.assertEqual(len(self.losses(self.output_of(*example[1:], "--steps", "1"))), 1)


if __name__ == "__main__":
    program_runs.main()
