"""`--model hf:DIR`: perplexity and logits of transformers, checkpoints exported as such a directory, and bad input.

Usage: directory_test.py PENSTOCK DATA BUILD; see program_runs.py. Skipped if there is no BUILD/hf/venv, which
tools/fetch_smollm2.py makes.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import program_runs
from program_runs import ProgramRuns

PYTHON = ""
DATA = ["--data", "tokens.bin", "--context", "32", "--batch-size", "8"]
INDEX = "model.safetensors.index.json"


def transformers(*arguments):
    done = subprocess.run([PYTHON, "-W", "ignore", os.path.join(HERE, "tiny_directory.py"), *arguments], check=True,
                          capture_output=True, text=True)
    return done.stdout


class Directories(ProgramRuns):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.made = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.made)
        transformers("make", cls.made)

    def setUp(self):
        super().setUp()
        shutil.copytree(self.made, self.folder, dirs_exist_ok=True)

    def assert_close(self, ours, theirs):
        largest = max(abs(value) for row in theirs for token in row for value in token)
        for row, wanted_row in zip(ours, theirs, strict=True):
            for token, wanted in zip(row, wanted_row, strict=True):
                for a, b in zip(token, wanted, strict=True):
                    self.assertLess(abs(a - b), 1e-5 * largest)

    def change_config(self, **values):
        with open(self.path("tiny/config.json")) as file:
            config = json.load(file)
        with open(self.path("tiny/config.json"), "w") as file:
            json.dump({**config, **values}, file)

    def test_perplexity_is_that_of_transformers(self):
        wanted = json.loads(self.read("perplexity.json"))
        for flags in ([], ["--stages", "3"]):
            code, _, err = self.run_program("evaluate", "--model", "hf:tiny", *DATA, "--json", "out.json", *flags)
            self.assertEqual(code, 0, err)
            self.assertRegex(err, r"memory for weights, gradients and optimiser state, .*: rank 0 .*: it fits")
            self.assertNotIn("are cast", err)
            self.assertAlmostEqual(json.loads(self.read("out.json"))["perplexity"] / wanted, 1, delta=1e-5)
        _, out, err = self.run_program("evaluate", "--model", "hf:tiny-bf16", *DATA)
        self.assertIn("tiny-bf16: weights of BF16 are cast to F32", err)
        self.assertRegex(out, r"^test: loss is \S+, .*perplexity is \S+, over 32 samples\n$")

    def test_an_exported_checkpoint_is_a_directory_of_transformers(self):
        train = ["train", *DATA, "--lr", "0.1", "--checkpoint", "run", "--log-every", "0"]
        self.output_of(*train, "--model", "hf:tiny", "--stages", "2", "--steps", "2")
        out = self.output_of("checkpoint", "export", "run", "--format", "hf", "--output", "tuned", "--max-shard-size",
                             "40KB").split()
        self.assertIn(os.path.join("tuned", INDEX), out)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
            self.assertEqual(self.read(os.path.join("tuned", name)), self.read(os.path.join("tiny", name)))
        theirs = json.loads(transformers("logits", self.path("tuned")))
        self.assertEqual(theirs["dtype"], "torch.float32")
        self.output_of("infer", "--model", "hf:tuned", "--context", "32", "--rows", "2", "--json", "out.json")
        self.assert_close(json.loads(self.read("out.json"))["outputs"][0]["values"], theirs["logits"])
        self.assertIn("has weights already: ", self.complaint_of("checkpoint", "export", "run", "--format", "hf",
                                                                  "--output", "tuned"))
        shutil.move(self.path("tiny"), self.path("moved"))
        self.assertIn("which has no config.json: pass --original DIR",
                      self.complaint_of("checkpoint", "export", "run", "--format", "hf", "--output", "again"))
        self.output_of("checkpoint", "export", "run", "--format", "hf", "--output", "again", "--original", "moved")
        self.assertFalse(os.path.exists(self.path(os.path.join("again", INDEX))))

    def test_bad_input_is_one_line(self):
        evaluate = ["evaluate", *DATA, "--model", "hf:tiny"]
        self.assertIn("--context 65, but the longest sequence of hf:tiny is 64 tokens",
                      self.complaint_of(*evaluate, "--context", "65"))
        self.change_config(intermediate_size=80)
        self.assertIn("'model.layers.0.mlp.gate_proj.weight' has shape [80, 32] in the network and [64, 32] in tiny",
                      self.complaint_of(*evaluate))
        self.change_config(intermediate_size=64, num_hidden_layers=2)
        complaint = self.complaint_of(*evaluate)
        self.assertIn("tiny has 'model.layers.2.input_layernorm.weight', ", complaint)
        self.assertIn(" and 6 more, which the network does not have", complaint)
        self.change_config(num_hidden_layers=3)
        index = json.loads(self.read(os.path.join("tiny", INDEX)))
        shard = index["weight_map"]["model.norm.weight"]
        os.remove(self.path(os.path.join("tiny", shard)))
        self.assertIn(f"lists '{shard}', which tiny does not have", self.complaint_of(*evaluate))
        self.output_of(*evaluate, "--init", "random")


if __name__ == "__main__":
    program_runs.PROGRAM = os.path.abspath(sys.argv[1])
    program_runs.DATA = os.path.abspath(sys.argv[2])
    PYTHON = os.path.join(os.path.abspath(sys.argv[3]), "hf", "venv", "bin", "python")
    if not os.path.exists(PYTHON):
        print(f"no {PYTHON}: run tools/fetch_smollm2.py", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
