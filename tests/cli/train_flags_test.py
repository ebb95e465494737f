"""Config files, and flags that control the output of a training.

Usage: train_flags_test.py PENSTOCK DATA [MPIRUN]; see program_runs.py.
"""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

sys.dont_write_bytecode = True
import program_runs
from program_runs import ProgramRuns, of_mpi

STEPS = ["--micro-batches", "4", "--batch-size", "32", "--steps", "6", "--seed", "3", "--log-every", "1"]


class ConfigFiles(ProgramRuns):
    def config(self, text):
        self.write("run.toml", text)
        return ["train", "--config", "run.toml", "--data", self.small_set]

    def test_keys_are_flags(self):
        expected = self.output_of(*self.train(*STEPS, "--stages", "2", "--no-shuffle", "--lr", "0.5"))
        for text in ('hidden = [32, 16]\nmicro_batches = 4\nbatch-size = 32\nsteps = 6\nseed = 3\nlog_every = 1\n'
                     'stages = 2\nshuffle = false\nlr = 5e-1\n',
                     '# as flags have them\n"hidden" = "32,16"\nmicro-batches = 4\nbatch_size = 32\nsteps = 6\n'
                     'seed = 3\nlog-every = 1\nstages = 2\nno_shuffle = true\nlr = 0.5\n'):
            self.assertEqual(self.output_of(*self.config(text)), expected, text)

    def test_flags_take_precedence(self):
        file = self.config("steps = 3\nbatch_size = 100\nno_shuffle = true\nhidden = 8\nlog_every = 1\n")
        job = ["--batch-size", "32", "--shuffle", "--steps", "2"]
        expected = self.output_of("train", "--data", self.small_set, "--hidden", "8", "--log-every", "1", *job)
        self.assertEqual(len(expected.splitlines()), 2)
        self.assertEqual(self.output_of(*file, *job), expected)
        self.assertEqual(self.output_of("train", *job, *file[1:]), expected)

    def test_errors_name_file_and_line(self):
        self.write("nothing", "")
        for text, complaint in (
                ("steps = 3\nbatchsize = 4\n", "run.toml:2: unknown key 'batchsize': did you mean 'batch-size'?"),
                ("config = 'a'\n", "run.toml:1: unknown key 'config'"),
                ("\nstages = 'two'\n", "run.toml:2: 'stages' is of type string, but --stages takes a whole number"),
                ("stages = 2.5\n", "run.toml:1: 'stages' is of type floating-point, but --stages takes a whole number"),
                ("lr = true\n", "run.toml:1: 'lr' is of type boolean, but --lr takes a number"),
                ("shuffle = 1\n", "run.toml:1: 'shuffle' is of type integer, but --shuffle takes true or false"),
                ("partition = 1.5\n",
                 "run.toml:1: 'partition' is of type floating-point, but --partition takes a string"),
                ("stages = [1, 2]\n", "run.toml:1: 'stages' is of type array"),
                ("\n\n[parallel]\nstages = 2\n", "run.toml:3: a table, [parallel]: write the keys without tables"),
                ("batch_size = 1\nbatch-size = 2\n", "'-' and '_' are one"),
                ("shuffle = true\nno-shuffle = true\n", "'shuffle' is given a second time"),
                ("steps = = 3\n", "run.toml:1: "), ("model = 'lmp'\n", "run.toml:1: --model: ")):
            self.assert_refused(self.config(text), ([], complaint))
        self.assert_refused(["train", "--config"], (["nowhere.toml"], "nowhere.toml"))

    def test_print_config_round_trip(self):
        job = self.train(*STEPS, "--stages", "2", "--no-shuffle", "--lr", ".05", "--schedule", "gpipe", "--momentum",
                         "0.9")
        printed = self.output_of(*job, "--print-config")
        for line in ('schedule = "gpipe"', "shuffle = false", "lr = 0.05", 'reduction = "mean"', "# clip-norm ="):
            self.assertIn(f"\n{line}\n", printed)
        self.write("again.toml", printed)
        self.assertEqual(self.output_of("train", "--config", "again.toml"), self.output_of(*job))
        self.assertEqual(self.output_of("train", "--config", "again.toml", "--print-config"), printed)

    def test_every_flag_is_a_key(self):
        """Every flag in the help can be a key."""
        printed = self.output_of("train", "--print-config")
        keys = set(re.findall(r"(?m)^(?:# )?([a-z][a-z0-9-]+) =", printed))
        flags = set(re.findall(r"--([a-z][a-z0-9-]*)", self.output_of("train", "--help").split("Example:")[0]))
        for flag in flags - {"help", "config", "print-config"}:
            if not flag.startswith("no-"):
                self.assertIn(flag, keys)

    def test_help_is_ordered_by_theme(self):
        headings = re.findall(r"(?m)^([A-Z][a-z]+):$", self.output_of("train", "--help"))
        self.assertEqual(headings,
                         ["Options", "Model", "Data", "Training", "Pipeline", "Numerics", "Job", "Checkpoints",
                                    "Output", "Example"])

    def test_bench_step_takes_a_file_too(self):
        self.write("bench.toml", "hidden = '16x2'\nsteps = 2\nwarm_up = 0\nstages = 2\n")
        self.assertRegex(self.output_of("bench", "step", "--config", "bench.toml"), "over 2 steps")

    @of_mpi
    def test_every_rank_has_the_losses_in_its_log(self):
        code, out, err = self.run_program("launch", "-n", "2", "--log-dir", "logs", "--",
                                          *self.train(*STEPS, "--stages", "2"))
        self.assertEqual(code, 0, err)
        self.assertIn("loss is", out)
        self.assertEqual([self.read(f"logs/1/rank.{rank}/stdout") for rank in (0, 1)], [out, out])
        code, _, err = self.run_program("launch", "-n", "2", "--log-dir", "logs", "--",
                                        *self.train(*STEPS, "--stages", "2", "--log-ranks", "main"))
        self.assertEqual([self.read(f"logs/2/rank.{rank}/stdout") for rank in (0, 1)], [out, ""], err)

    @of_mpi
    def test_every_rank_has_the_losses_in_the_files_of_mpirun(self):
        """`mpirun --output-filename` alone, without `penstock launch`."""
        def losses(folder, *flags):
            command = self.command(self.train(*STEPS, "--stages", "2", *flags), ranks=2)
            done = subprocess.run([command[0], "--output-filename", self.path(folder) + ":nocopy", *command[1:]],
                                  cwd=self.folder, text=True, capture_output=True, env=program_runs.ENVIRONMENT,
                                  timeout=program_runs.WATCHDOG_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [self.read(f"{folder}/1/rank.{rank}/stdout") for rank in (0, 1)]

        out = self.output_of(*self.train(*STEPS, "--stages", "2"), ranks=2)
        self.assertIn("loss is", out)
        self.assertEqual(losses("logs"), [out, out])
        self.assertEqual(losses("main_logs", "--log-ranks", "main"), [out, ""])

    @of_mpi
    def test_processes_read_it_as_one(self):
        file = self.config("hidden = '32,16'\nsteps = 3\nstages = 2\nlog_every = 1\n")
        self.assertEqual(self.output_of(*file, ranks=2), self.output_of(*file))
        self.assertEqual(self.output_of(*file, "--print-config", ranks=2).count("\nstages = 2\n"), 1)


class Lines(ProgramRuns):
    def test_styles(self):
        job = self.train("--batch-size", "500", "--epochs", "2", "--lr", "0.001", "--lr-schedule", "linear", "--warmup",
                         "1", "--log-every", "2")
        times = self.output_of(*job, "--log-style", "times").splitlines()
        self.assertRegex(times[0], r"^epoch: 0 step: 0, loss is 2\.\d+, [0-9.e-]+ s per step$")
        self.assertRegex(times[2], r"^epoch: 0 train: loss 2\.\d+, 1634 samples in [0-9.e-]+ s, [0-9.e+]+ samples/s$")
        self.assertRegex(times[3], r"^epoch: 0 test: loss 2\.\d+, accuracy 0\.\d+$")
        self.assertEqual([re.split(",|: loss", line)[0] for line in
                          self.output_of(*job, "--log-style", "monitor").splitlines()],
                         ["epoch: 1 step: 2", "epoch: 1 step: 4", "epoch: 1 test",
                          "epoch: 2 step: 2", "epoch: 2 step: 4", "epoch: 2 test"])
        epochs = self.output_of(*job, "--log-style", "epochs").splitlines()
        self.assertEqual(len(epochs), 4)
        self.assertRegex(epochs[0], r"^\[Epoch 0 / Train\]: Loss = 2\.\d+ \| LR = 0\.001$")
        self.assertRegex(epochs[1], r"^\[Epoch 0 / Test\]: Loss = 2\.\d+ \| Accuracy = 0\.\d+$")
        self.assertRegex(epochs[2], r"^\[Epoch 1 / Train\]: Loss = 2\.\d+ \| LR = 0$")

    def test_an_invalid_loss_ends_training_unless_it_goes_on(self):
        job = self.train(*STEPS, "--lr", "1e30", "--stages", "2")
        for style in ("steps", "monitor"):
            code, out, err = self.run_program(*job, "--log-style", style)
            self.assertEqual(code, 1)
            self.assertEqual(len(out.splitlines()), 1, out)
            self.assertRegex(err, r"penstock: epoch 0, step 1: the loss of training step 1 is nan in micro-batch 0 "
                                  r"\(stage 1\): .*\(stage [01]\).* is .*: training stops before")
        self.assertEqual(len(self.output_of(*job, "--on-nan", "go-on").splitlines()), 6)
        self.assert_refused(job, (["--log-style", "monitor", "--on-nan", "go-on"],
                                  "--log-style monitor stops at an invalid loss"),
                            (["--on-nan", "rollback"], "--on-nan rollback returns to the last checkpoint"))

    def test_steps_with_an_invalid_loss_are_left_out(self):
        job = self.train("--batch-size", "32", "--log-every", "1", "--lr", "1e30", "--on-nan", "skip")
        code, out, err = self.run_program(*job, "--steps", "6", "--json", "lines.json")
        self.assertEqual((code, len(out.splitlines())), (0, 1), err)
        lines = [json.loads(line) for line in self.read("lines.json").splitlines()]
        self.assertEqual([line.get("left_out") for line in lines], [None, 1, 2, 3, 4, 5])
        for step in range(1, 6):
            self.assertEqual(err.count(f"step {step} of epoch 0 is left out: the loss of training step {step} is nan"),
                             1)
        code, out, err = self.run_program(*job, "--steps", "20")
        self.assertEqual(code, 1)
        self.assertEqual(err.count("is left out"), 10)
        self.assertRegex(err, r"penstock: epoch \d+, step \d+: .*: 10 steps in a row are left out, training stops")

    def test_training_returns_to_the_last_checkpoint_at_an_invalid_loss(self):
        code, out, err = self.run_program(*self.train(
            "--batch-size", "32", "--log-every", "1", "--lr", "1e30", "--on-nan", "rollback", "--steps", "20",
            "--checkpoint", "run", "--checkpoint-every", "100steps"))
        self.assertEqual(code, 1)
        self.assertEqual(len(out.splitlines()), 11, out)  # the first step, and again after each return
        self.assertEqual(err.count("has returned to the checkpoint of step 0\n"), 10)
        self.assertIn(": training has returned to the checkpoint of step 0 10 times, and stops", err)
        self.assertIn("step-00000000", self.output_of("checkpoint", "verify", "run"))

    def test_patience(self):
        code, out, err = self.run_program(*self.train("--batch-size", "500", "--epochs", "9", "--lr", "0",
                                                      "--log-every", "0", "--patience", "2"))
        self.assertEqual((code, len(out.splitlines())), (0, 3), err)
        self.assertIn("stopped early: the test loss has been no better", err)

    def test_log_level(self):
        self.assertEqual(self.run_program(*self.train(*STEPS, "--log-level", "warning"))[2], "")

    def test_parameters_per_rank_sum_to_the_whole(self):
        for ranks in (None, 2) if program_runs.MPIRUN else (None,):
            code, out, err = self.run_program(*self.train(*STEPS, "--stages", "2", "--verbose"), ranks=ranks)
            self.assertEqual(code, 0, err)
            held = [int(number) for number in re.findall(r"rank \d: (\d+) parameters", err)]
            self.assertEqual(len(held), 2)
            self.assertIn(f"all: {sum(held)} parameters", err)
            self.assertEqual(sum(held), 784 * 32 + 32 + 32 * 16 + 16 + 16 * 10 + 10)

    def test_dump(self):
        self.output_of(*self.train(*STEPS, "--stages", "2", "--dump", "a/b"))
        self.assertEqual(sorted(os.listdir(self.path("a/b"))),
                         ["graph.txt", "schedule.sched", "schedule.svg", "stages.txt"])
        self.assertIn("layer2: layer, stage 1, rank 1, takes relu1\n", self.read("a/b/graph.txt"))
        self.assertIn("stage 0 on rank 0\n  runs: flatten, layer1, relu1\n  takes input 0\n  hands to stage 1: relu1\n",
                      self.read("a/b/stages.txt"))
        self.assertIn("ok: 1f1b", self.output_of("schedule", "check", "a/b/schedule.sched"))
        xml.etree.ElementTree.parse(self.path("a/b/schedule.svg"))
        self.write("file", "")
        self.assertEqual(self.run_program(*self.train(*STEPS, "--dump", "file/x"))[0], 2)

    def test_partition_by_time_changes_no_number(self):
        job = self.train(*STEPS)
        self.assertEqual(self.output_of(*job, "--stages", "2", "--partition", "time"), self.output_of(*job))
        if program_runs.MPIRUN:
            self.assertEqual(self.output_of(*job, "--stages", "2", "--partition", "time", ranks=2),
                             self.output_of(*job))

    def test_a_uniform_partition_of_any_layers_and_chunks(self):
        # Ten layers in six stages.
        job = ["train", "--data", self.small_set, "--hidden", "20x4", *STEPS]
        code, out, err = self.run_program(*job, "--stages", "2", "--chunks", "3", "--partition", "uniform")
        self.assertEqual(code, 0, err)
        self.assertEqual([len(line.split(": ")[-1].split()) for line in err.splitlines() if ": stage " in line],
                         [1, 1, 2, 2, 2, 2])
        self.assertEqual(out, self.output_of(*job))


if __name__ == "__main__":
    program_runs.main()
