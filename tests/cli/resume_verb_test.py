"""`penstock train` with --checkpoint and --resume: settings, signals, limits of time, and misuse."""

import json
import os
import re
import shutil
import signal
import unittest

import program_runs
from program_runs import ProgramRuns, of_mpi, stored_tensors

SMALL = ("--stages", "2", "--momentum", "0.9", "--log-every", "0")
SIGNALS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 138}


def checkpoints(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("step-"))


def contents(folder):
    newest = os.path.join(folder, checkpoints(folder)[-1])
    with open(os.path.join(newest, "manifest.json")) as file:
        manifest = json.load(file)
    return {"step": manifest["step"], "data": manifest["data"], "states": manifest["states"],
            "tensors": stored_tensors(newest)}


class Resume(ProgramRuns):
    def misuse(self, *arguments):
        code, _, err = self.run_program(*arguments)
        self.assertEqual(code, 2, err)
        return err.strip().splitlines()[-1]

    def undisturbed(self, *flags):
        self.output_of(*self.train(*SMALL, "--checkpoint", "undisturbed", *flags))
        return contents(self.path("undisturbed"))

    def test_continues_with_the_stored_settings(self):
        expected = self.undisturbed("--epochs", "2", "--warmup", "1", "--lr-schedule", "cosine", "--patience", "3")
        flags = ("--checkpoint", "run", "--epochs", "2", "--warmup", "1", "--lr-schedule", "cosine", "--patience", "3")
        run = self.start(*self.train(*SMALL, *flags, "--checkpoint-every", "10steps"))
        while not os.path.isdir(self.path("run")) or len(checkpoints(self.path("run"))) < 2:
            self.assertIsNone(run.poll(), "it ended before it was interrupted")
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate()
        self.assertEqual(run.returncode, 143, err)
        _, out, err = self.run_program("train", "--resume", "run", "--stages", "3")
        self.assertIn("resumed from run at step", err)
        self.assertEqual(contents(self.path("run")), expected)
        self.assertEqual(len(checkpoints(self.path("run"))), 2)
        # After the last step nothing is left to do.
        self.output_of("train", "--resume", "run")
        self.assertEqual(contents(self.path("run")), expected)
        # A folder that was moved continues where it is.
        shutil.move(self.path("run"), self.path("moved"))
        self.output_of("train", "--resume", "moved", "--epochs", "3")
        self.assertFalse(os.path.exists(self.path("run")))
        self.assertGreater(contents(self.path("moved"))["step"], expected["step"])

    def test_continues_in_another_folder(self):
        expected = self.undisturbed("--steps", "8")
        self.output_of(*self.train(*SMALL, "--steps", "5", "--checkpoint", "run"))
        before = contents(self.path("run"))
        for ranks in (None, 2):
            self.output_of("train", "--resume", "run", "--checkpoint", f"other{ranks}", "--steps", "8", ranks=ranks)
            self.assertEqual(contents(self.path(f"other{ranks}")), expected)
        self.assertEqual(contents(self.path("run")), before)
        # The settings stored in the other folder continue there.
        self.output_of("train", "--resume", "other2", "--steps", "9")
        self.assertEqual(contents(self.path("other2"))["step"], 9)

    def test_frozen_parameters_stay_frozen_and_may_be_left_out(self):
        flags = ("--freeze", "*", "--unfreeze", "layer3,*.bias")
        expected = self.undisturbed("--steps", "8", *flags)["tensors"]
        self.output_of(*self.train(*SMALL, "--steps", "5", "--checkpoint", "run", *flags, "--trained-only"))
        left_out = {("model", "layer1.weight"), ("model", "layer2.weight")}
        self.assertEqual(set(expected) - set(contents(self.path("run"))["tensors"]), left_out)
        self.assertIn("leaves out the frozen 'layer1.weight', which has other values",
                      self.misuse("train", "--resume", "run", "--seed", "9", "--steps", "8"))
        self.output_of("train", "--resume", "run", "--stages", "3", "--steps", "8")
        self.assertEqual(contents(self.path("run"))["tensors"],
                         {name: value for name, value in expected.items() if name not in left_out})
        # Flags with --resume change what is frozen.
        self.output_of("train", "--resume", "run", "--steps", "9", "--unfreeze", "*")
        self.assertEqual({key for key in contents(self.path("run"))["tensors"] if key[0] == "model"},
                         {key for key in expected if key[0] == "model"})
        self.assertIn("no parameter of the network is called 'layer9'",
                      self.misuse(*self.train(*SMALL, "--steps", "1", "--freeze", "layer9")))

    def end_by(self, which, ranks=None):
        """A long training, ended by a signal to the launcher or the program."""
        shutil.rmtree(self.path("run"), ignore_errors=True)
        run = self.start(*self.train(*SMALL, "--epochs", "1000", "--checkpoint", "run", "--checkpoint-every",
                                     "30steps"),
                         ranks=ranks)
        while not os.path.isdir(self.path("run")) or not checkpoints(self.path("run")):
            self.assertIsNone(run.poll(), "it ended before it was interrupted")
        run.send_signal(which)
        _, err = run.communicate()
        last = re.search(r"ended before its goal, after step (\d+): signal (\d+)", err)
        return run.returncode, last and (int(last[1]), int(last[2])), err

    def test_a_signal_ends_it_with_a_checkpoint(self):
        for which, code in SIGNALS.items():
            with self.subTest(signal=which):
                returned, last, err = self.end_by(which)
                self.assertEqual(returned, code, err)
                self.assertEqual(last[1], which)
                self.assertEqual(contents(self.path("run"))["step"], last[0])
                code, out, _ = self.run_program("checkpoint", "verify", "run")
                self.assertEqual(code, 0, out)

    def test_max_time_ends_it_with_a_checkpoint(self):
        code, _, err = self.run_program(*self.train(*SMALL, "--epochs", "100000", "--checkpoint", "run", "--max-time",
                                                    "0:00:01"))
        self.assertEqual(code, 75, err)
        self.assertIn("--max-time 0:00:01 is over; continue with --resume run", err)
        self.assertGreater(contents(self.path("run"))["step"], 0)

    @of_mpi
    def test_processes_end_after_the_same_step(self):
        code, _, err = self.run_program(*self.train(*SMALL, "--epochs", "100000", "--checkpoint", "run", "--max-time",
                                                    "0:00:01"), ranks=2)
        self.assertEqual(code, 75, err)
        steps = contents(self.path("run"))["step"]
        expected = self.undisturbed("--steps", str(steps))
        self.assertEqual(contents(self.path("run"))["tensors"], expected["tensors"])

    @of_mpi
    def test_processes_end_soon(self):
        # In its first second a training of slow steps submits few; how long they take is not known before they are done.
        code, _, err = self.run_program(*self.train(*SMALL, "--hidden", "1024,1024", "--batch-size", "256", "--epochs",
                                                    "100000", "--checkpoint", "run", "--max-time", "0:00:01"), ranks=2)
        self.assertEqual(code, 75, err)
        self.assertLess(contents(self.path("run"))["step"], 200)

    def test_json_lines_continue(self):
        json_flags = ("--json", "lines.json")
        self.output_of(*self.train(*SMALL, *json_flags, "--checkpoint", "run", "--steps", "5"))
        self.output_of("train", "--resume", "run", "--steps", "8", *json_flags)
        steps = [json.loads(line)["step"] for line in self.read("lines.json").splitlines()]
        self.assertEqual(steps, list(range(8)))

    def test_json_lines_of_repeated_steps_are_replaced(self):
        self.output_of(*self.train(*SMALL, "--json", "lines.json", "--checkpoint", "run", "--steps", "5"))
        before = self.read("lines.json")
        for left in ("", '{"epoch": 0, "step": 5, "loss": 9}\n', '{"epoch": 0, "step": 5, "loss": 9}\n{"epoch": 0, "st',
                     '{"epoch": 0, "step": 5}\n{"epoch": 1, "step": 0}\n{"epoch": 1, "test_loss": 2}\n'):
            with self.subTest(left=left):
                shutil.rmtree(self.path("again"), ignore_errors=True)
                shutil.copytree(self.path("run"), self.path("again"))
                self.write("lines.json",
                           "of another program\n" + before + left + ("behind\n" if left[-1:] == "\n" else ""))
                self.output_of("train", "--resume", "again", "--steps", "8", "--json", "lines.json")
                head, *lines = self.read("lines.json").splitlines(keepends=True)
                self.assertEqual(head, "of another program\n")
                self.assertEqual("".join(lines[:5]), before)
                self.assertEqual([json.loads(line)["step"] for line in lines], list(range(8)))

    def test_json_lines_of_a_resume_that_is_refused_or_goes_elsewhere_stay(self):
        self.output_of(*self.train(*SMALL, "--json", "lines.json", "--checkpoint", "run", "--checkpoint-every",
                                   "4steps", "--steps", "8"))
        before = self.read("lines.json")
        oldest = os.path.join("run", checkpoints(self.path("run"))[0])
        code, _, err = self.run_program("train", "--resume", oldest, "--json", "lines.json")
        self.assertEqual((code, "training begins at step 4" in err), (2, True), err)
        self.assertEqual(self.read("lines.json"), before)
        self.output_of("train", "--resume", oldest, "--checkpoint", "fork", "--steps", "6", "--json", "lines.json")
        steps = [json.loads(line)["step"] for line in self.read("lines.json").splitlines()]
        self.assertEqual(steps, [*range(8), 4, 5])
        # The newest one is damaged: the lines from the one before it on are replaced.
        self.write("lines.json", before)
        newest = checkpoints(self.path("run"))[-1]
        self.damage("run", newest,
                    next(name for name in os.listdir(self.path("run", newest)) if name.startswith("model-")))
        code, _, err = self.run_program("train", "--resume", "run", "--steps", "8", "--json", "lines.json")
        self.assertEqual(code, 0, err)
        self.assertEqual([json.loads(line)["step"] for line in self.read("lines.json").splitlines()], list(range(8)))

    def test_other_settings_are_named(self):
        self.output_of(*self.train(*SMALL, "--checkpoint", "run", "--steps", "5"))
        code, _, err = self.run_program("train", "--resume", "run", "--steps", "8", "--micro-batches", "2", "--seed",
                                        "4", "--checkpoint", "other")
        self.assertEqual(code, 0, err)
        self.assertIn("micro-batches 2 instead of 4, seed 4 instead of 0", err)
        self.assertNotIn("with other flags", err)
        _, _, err = self.run_program("train", "--resume", "run", "--steps", "6", "--no-shuffle", "--lr", "0.02",
                                     "--stages", "1", "--log-every", "1")
        self.assertIn("the training goes on with other flags than it had: lr 0.02 instead of 0.01, shuffle false instead "
                      "of true\n", err)
        for flags, state in ((("--optimizer", "rmsprop"),
                              "/momentum', cannot be loaded by torch::optim::RMSprop: take"),
                             (("--momentum", "0"),
                              "/momentum' is stored, and the optimiser does not keep it: take the")):
            self.assertIn(state, self.misuse("train", "--resume", "run", "--steps", "8", *flags))
    def test_a_config_file_precedes_the_stored_settings(self):
        self.output_of(*self.train(*SMALL, "--lr", "0.07", "--checkpoint", "run", "--steps", "5"))
        expected = self.undisturbed("--lr", "0.07", "--steps", "8", "--batch-size", "32")
        self.write("more.toml", 'steps = 7\nresume = "run"\n')
        for flags in (("--resume", "run"), ()):  # on the line, and in the file
            shutil.rmtree(self.path("again"), ignore_errors=True)
            self.output_of("train", "--config", "more.toml", "--steps", "8", "--checkpoint", "again", *flags)
            self.assertEqual(contents(self.path("again")), expected)
        self.output_of("train", "--config", "more.toml")
        self.assertEqual(contents(self.path("run"))["step"], 7)

    def test_auto_begins_or_continues(self):
        flags = (*SMALL, "--checkpoint", "run", "--resume", "auto")
        _, _, err = self.run_program(*self.train(*flags, "--steps", "5"))
        self.assertIn("no complete checkpoint in run: training begins", err)
        _, _, err = self.run_program(*self.train(*flags, "--steps", "8"))
        self.assertIn("resumed from run at step 5", err)

    def test_auto_schedule_keeps_what_bits_depend_on(self):
        flags = ("--stages", "2", "--schedule", "auto", "--micro-batches", "auto", "--kernels", "fixed", "--log-every",
                 "0", "--tuning-cache", "off", "--checkpoint", "run")
        self.output_of(*self.train(*flags, "--steps", "5"))
        def bits():
            return json.loads(self.read("run", checkpoints(self.path("run"))[-1], "manifest.json"))["bits"]

        before = bits()
        code, _, err = self.run_program("train", "--resume", "run", "--steps", "8")
        self.assertEqual(code, 0, err)
        self.assertNotIn("other settings", err)
        self.assertEqual(bits(), before)

    def test_misuse_is_told_in_a_line(self):
        os.mkdir(self.path("empty"))
        self.write("file", "")
        train = self.train(*SMALL, "--steps", "3")
        for flags, text in (
                (("--resume", "nothing"), "--resume nothing: there is no complete checkpoint"),
                (("--resume", "empty"), "--resume empty: there is no complete checkpoint"),
                (("--resume", "auto"), "--resume auto continues from the newest checkpoint of --checkpoint"),
                (("--checkpoint", "run", "--checkpoint-keep", "1"), "--checkpoint-keep 1: at least 2 are kept"),
                (("--checkpoint", "run", "--checkpoint-every", "0"),
                 "--checkpoint-every 0: pass a whole number above 0"),
                (("--checkpoint", "run", "--checkpoint-every", "3h"), "--checkpoint-every 3h: pass a whole number"),
                (("--checkpoint-every", "3"), "--checkpoint-every is for checkpoints: pass --checkpoint DIR, too"),
                (("--max-time", "1:00:00"), "--max-time is for checkpoints"),
                (("--checkpoint", "run", "--max-time", "soon"), "--max-time soon: pass hours, minutes and seconds"),
                (("--checkpoint", ""), "--checkpoint: an empty name of a folder"),
                (("--resume", ""), "--resume: an empty name of a folder"),
                (("--resume", "run", "--weights", "w"), "--weights w and --resume run both say with which weights"),
                (("--checkpoint", "a\nb"), "the folder of checkpoints has a line break in its name"),
                (("--checkpoint", "file"), "file: is a file, and checkpoints need a folder")):
            with self.subTest(flags=flags):
                self.assertIn(text, self.misuse(*train, *flags))
        self.output_of(*train, "--checkpoint", "run")
        self.assertIn("lies in the directory of a checkpoint",
                      self.misuse(*train, "--save-weights", f"run/{checkpoints(self.path('run'))[0]}/mine.safetensors"))
        self.assertIn("has a checkpoint of step 3, and training begins at step 0",
                      self.misuse(*train, "--checkpoint", "run"))
        self.assertIn("holds the weights of a network with --hidden 32,16, but --hidden 8 is given",
                      self.misuse("train", "--resume", "run", "--hidden", "8"))
        manifest = os.path.join("run", checkpoints(self.path("run"))[0], "manifest.json")
        self.write(manifest, self.read(manifest).replace('"version": 2', '"version": 9'))
        self.assertRegex(self.misuse("train", "--resume", "run"),
                         "there is no complete checkpoint; the newest one: .*manifest.json' is damaged: its checksum")


if __name__ == "__main__":
    program_runs.main()
