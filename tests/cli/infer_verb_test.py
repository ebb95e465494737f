"""The verb `infer`, also with a language model saved by `train`.

Usage: infer_verb_test.py PENSTOCK DATA [MPIRUN]; see program_runs.py.
"""

import json
import re
import sys

sys.dont_write_bytecode = True
import program_runs
from program_runs import ProgramRuns, of_mpi

SMALL_GPT = ["--model", "gpt", "--layers", "2", "--width", "16", "--heads", "2", "--context", "16"]
TEXT = "the quick brown fox jumps over the lazy dog, and the dog sleeps on; " * 12


class InferVerb(ProgramRuns):
    def outputs(self, *flags, ranks=None):
        """The outputs of each process, by rank. From files, because mpirun mixes long lines."""
        self.output_of("infer", *flags, "--json", "out.json", ranks=ranks)
        names = ["out.json"] + [f"out.json.rank{rank}" for rank in range(1, ranks or 1)]
        return [json.loads(self.read(name)) for name in names]

    def test_every_model_gives_its_outputs(self):
        for model, shape in (("mlp", [3, 10]), ("tied-lm", [3, 32]), ("resnet18", [3, 10]), ("unet", [3, 3, 32, 32])):
            small = ["--width", "4"] if model in ("resnet18", "unet") else []
            one, = self.outputs("--model", model, "--rows", "3", "--stages", "2", *small)
            self.assertEqual(one["outputs"][0]["shape"], shape, model)
            self.assertEqual(one["outputs"][0]["dtype"], "Float")
        one, = self.outputs(*SMALL_GPT, "--rows", "2", "--stages", "2")
        self.assertEqual(one["outputs"][0]["shape"][:2], [2, 16])

    def test_stages_placements_and_batches_do_not_change_it(self):
        flags = ["--model", "mlp", "--rows", "9", "--seed", "3"]
        alone = self.outputs(*flags)
        self.assertEqual(len(alone[0]["outputs"][0]["values"]), 9)
        for variant in (["--stages", "2"], ["--stages", "4"], ["--stages", "2", "--schedule", "zb-v"],
                        ["--stages", "2", "--chunks", "2"], ["--stages", "2", "--partition", "time"]):
            self.assertEqual(self.outputs(*flags, *variant), alone, variant)
        self.assertNotEqual(self.outputs("--model", "mlp", "--rows", "9", "--seed", "4"), alone)

    def test_text_output_has_shape_and_values(self):
        out = self.output_of("infer", "--model", "tied-lm", "--rows", "2", "--stages", "4")
        lines = out.splitlines()
        self.assertEqual(lines[0], "Float (2, 32)")
        self.assertEqual(len(lines), 3)
        # The table contains ones, so a row is the same number 32 times.
        numbers = re.findall(r"-?[\d.]+(?:e-?\d+)?", lines[1])
        self.assertEqual((len(numbers), len(set(numbers))), (32, 1))
        large = self.output_of("infer", "--model", "unet", "--width", "2", "--rows", "2")
        self.assertIn(", ...]", large)
        self.assertLess(len(large), 5000)

    @of_mpi
    def test_outputs_are_on_the_last_stage_or_everywhere(self):
        # Short lines, because mpirun mixes longer lines of several ranks.
        flags = ["--model", "mlp", "--hidden", "8", "--rows", "5", "--stages", "2"]

        def rounded(outputs):
            # Replicas split the rows differently, which may change the last bits.
            return outputs and [[[round(number, 5) for number in row] for row in one["values"]] for one in outputs]

        alone = rounded(self.outputs(*flags)[0]["outputs"])
        for replicas, ranks in ((1, 2), (2, 4)):
            by_rank = {one["rank"]: rounded(one["outputs"]) for one in self.outputs(*flags, ranks=ranks)}
            self.assertEqual(sorted(by_rank), list(range(ranks)))
            for rank, outputs in by_rank.items():
                self.assertEqual(outputs, alone if rank >= replicas else None, rank)
            for variant in (["--broadcast"], ["--broadcast", "--replica-input", "each"]):
                everywhere = self.outputs(*flags, *variant, ranks=ranks)
                self.assertEqual([rounded(one["outputs"]) for one in everywhere], [alone] * ranks)
        out = self.output_of("infer", *flags, ranks=2)
        self.assertIn("rank 0: not on this rank", out)
        self.assertIn("rank 1: Float (5, 10)", out)

    def train_gpt(self, *flags):
        self.write("some.txt", TEXT)
        return ["train", "--data", "some.txt", *SMALL_GPT, "--optimizer", "adamw", "--lr", "0.01", "--batch-size", "8",
                "--micro-batches", "2", "--log-every", "5", *flags]

    def test_a_language_model_learns_is_saved_and_goes_on_from_prompts(self):
        job = self.train_gpt("--epochs", "12", "--save-weights", "w.safetensors", "--stages", "2")
        out = self.output_of(*job)
        losses = [float(loss) for loss in re.findall(r"test: loss ([\d.]+)", out)]
        self.assertEqual(len(losses), 12)
        self.assertLess(losses[-1], losses[0] - 0.5)
        self.assertEqual(self.output_of(*self.train_gpt("--epochs", "12", "--stages", "4")), out)

        generate = ["infer", *SMALL_GPT, "--weights", "w.safetensors", "--generate", "40", "--prompt", "the ",
                    "--prompt", "dog", "--micro-batches", "2", "--json", "-"]
        code, alone, err = self.run_program(*generate)
        self.assertEqual(code, 0, err)
        texts = json.loads(alone)["texts"]
        self.assertEqual([len(text) for text in texts], [44, 43])
        self.assertTrue(texts[0].startswith("the ") and texts[1].startswith("dog"), texts)
        self.assertTrue(set("".join(texts)) <= set(TEXT))
        self.assertRegex(err, r"80 characters in \S+ s: \S+ a second")
        for variant in (["--stages", "2"], ["--stages", "4"]):
            self.assertEqual(json.loads(self.output_of(*generate, *variant))["texts"], texts)
        self.assertNotEqual(json.loads(self.output_of(*generate, "--seed", "1"))["texts"], texts)
        if program_runs.MPIRUN:
            everywhere = self.output_of(*generate, "--stages", "2", ranks=2).splitlines()
            self.assertEqual([json.loads(line)["texts"] for line in everywhere], [texts] * 2)

        self.assertIn("with --layers 2, but --layers 3 is given", self.complaint_of(*generate, "--layers", "3"))
        self.write("w.safetensors", "nothing")
        self.assertIn("not a safetensors file", self.complaint_of(*generate))

    def test_fresh_weights_generate_with_the_characters_of_a_keyboard(self):
        out = self.output_of("infer", *SMALL_GPT, "--generate", "20", "--prompt", "ROMEO:", "--temperature", "0")
        lines = out.split("\n", 1)
        self.assertEqual(lines[0], "prompt 0")
        self.assertEqual(len(lines[1]), len("ROMEO:") + 20 + 1)

    def test_misuse(self):
        self.assert_refused(
            ["infer"], (["--rows", "0"], "--rows 0"),
            (["--model", "mlp", "--generate", "3", "--prompt", "x"], "--generate is for --model gpt, not for mlp"),
            ([*SMALL_GPT, "--generate", "3"], "--generate without --prompt"),
            ([*SMALL_GPT, "--prompt", "x"], "--prompt without --generate"),
            ([*SMALL_GPT, "--generate", "3", "--prompt", "\u00e4"], "which is not among the 96 characters"),
            ([*SMALL_GPT, "--generate", "3", "--prompt", ""], "an empty prompt"),
            ([*SMALL_GPT, "--heads", "3"], "16 with 3 heads"),
            ([*SMALL_GPT, "--data", "nowhere"], "no text in 'nowhere'"),
            (["--schedule", "auto"], "--schedule auto measures training steps"),
            (["--model", "mlp", "--layers", "3"], "--layers is for gpt, vit-b16, not for --model mlp"), (["--lr", "1"], "--lr"))
        self.assert_refused(["train"], (["--model", "tied-lm"], "no data set here fits --model tied-lm"))


if __name__ == "__main__":
    program_runs.main()
