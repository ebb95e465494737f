"""`--model hf:DIR`: perplexity, logits and texts of transformers, checkpoints exported as such a directory, adapters of
PEFT, and bad input.

Usage: directory_test.py PENSTOCK DATA [MPIRUN]; see program_runs.py. Skipped without the packages that the test
hf.packages installs; a part also without SmolLM2, which it fetches.
"""

import array
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", name) for name in ("cli", "support")]
import program_runs
import torch_python
from program_runs import ProgramRuns, stored_tensors

PYTHON = torch_python.required("torch transformers peft tokenizers")
DATA = ["--data", "tokens.bin", "--context", "32", "--batch-size", "8"]
INDEX = "model.safetensors.index.json"


class Transformers:
    """tiny_directory.py: one process, because it imports for seconds."""

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        self.process = subprocess.Popen(
            [PYTHON, "-W", "ignore", os.path.join(HERE, "tiny_directory.py"), self.folder], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout.readline() == "made\n"

    def __call__(self, function, *arguments):
        print(json.dumps([function, *arguments]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.communicate()
        shutil.rmtree(self.folder)


def setUpModule():
    global transformers
    transformers = Transformers()
    unittest.addModuleCleanup(transformers.close)


class Directories(ProgramRuns):
    def setUp(self):
        super().setUp()
        shutil.copytree(transformers.folder, self.folder, dirs_exist_ok=True)

    def assert_close(self, ours, theirs):
        largest = max(abs(value) for row in theirs for token in row for value in token)
        for row, wanted_row in zip(ours, theirs, strict=True):
            for token, wanted in zip(row, wanted_row, strict=True):
                for a, b in zip(token, wanted, strict=True):
                    self.assertLess(abs(a - b), 1e-5 * largest)

    def logits(self, *flags):
        self.output_of("infer", *flags, "--context", "32", "--rows", "2", "--json", "out.json")
        return json.loads(self.read("out.json"))["outputs"][0]["values"]

    def losses(self, name):
        return [line["loss"] for line in map(json.loads, self.read(name).splitlines()) if "loss" in line]

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
        theirs, = transformers("logits", [self.path("tuned")])
        self.assert_close(self.logits("--model", "hf:tuned"), theirs)
        self.output_of("generate", "--model", "hf:tuned", "--prompt", "To be, ", "--tokens", "24", "--greedy", "--json",
                       "text.json")
        self.assertEqual(json.loads(self.read("text.json"))["texts"],
                         [transformers("continuation", self.path("tuned"), "To be, ", 24)])
        self.assertIn("has weights already: ", self.complaint_of("checkpoint", "export", "run", "--format", "hf",
                                                                  "--output", "tuned"))
        shutil.move(self.path("tiny"), self.path("moved"))
        self.assertIn("which has no config.json: pass --original DIR",
                      self.complaint_of("checkpoint", "export", "run", "--format", "hf", "--output", "again"))
        self.output_of("checkpoint", "export", "run", "--format", "hf", "--output", "again", "--original", "moved")
        self.assertFalse(os.path.exists(self.path(os.path.join("again", INDEX))))

    def test_adapters_are_those_of_peft(self):
        models = [f"{self.path('tiny')}+{self.path('adapter')}"]
        ours = [self.logits("--model", "hf:tiny", "--adapter", "adapter", "--stages", "2")]
        for run, model, *how in (("run-1", "tiny", "--adapter", "adapter"),
                                 ("run-2", "tiny", "--lora", "4", "--lora-targets", "q,o,gate_proj", "--trained-only"),
                                 ("run-3", "gpt2", "--lora", "2", "--lora-targets", "c_attn,c_proj", "--lora-alpha",
                                  "3", "--trained-only")):
            self.output_of("train", *DATA, "--model", f"hf:{model}", *how, "--lr", "0.5", "--stages", "2", "--steps",
                           "3", "--checkpoint", run)
            export = ["checkpoint", "export", run, "--format"]
            self.assertEqual(self.output_of(*export, "peft", "--output", f"{run}/peft").split(),
                             [f"{run}/peft/adapter_model.safetensors", f"{run}/peft/adapter_config.json"])
            self.output_of(*export, "hf", "--output", f"{run}/hf")
            models += [f"{self.path(model)}+{self.path(run, 'peft')}", self.path(run, "hf")]
            ours += [self.logits("--model", f"hf:{model}", "--adapter", f"{run}/peft"),
                     self.logits("--model", f"hf:{run}/hf")]
        theirs = transformers("logits", models)
        for i, name in enumerate(models):
            with self.subTest(model=name):
                self.assert_close(ours[i], theirs[i])
                if i % 2 == 0 and i > 0:  # the merged model
                    self.assert_close(theirs[i], theirs[i - 1])
        # A file of the adapters takes the other weights from the model's directory.
        self.output_of("checkpoint", "export", "run-2", "--output", "adapters.safetensors")
        self.assertLess(os.path.getsize(self.path("adapters.safetensors")), 20_000)
        self.assertEqual(self.output_of("evaluate", *DATA, "--weights", "adapters.safetensors"),
                         self.output_of("evaluate", *DATA, "--model", "hf:tiny", "--adapter", "run-2/peft"))

    def test_a_training_of_adapters_goes_on_with_other_processes(self):
        train = ["train", *DATA, "--model", "hf:tiny", "--lora", "4", "--optimizer", "adamw", "--lr", "0.01",
                 "--log-every", "0", "--trained-only"]
        self.output_of(*train, "--steps", "6", "--checkpoint", "undisturbed", "--schedule", "zb-h1", "--stages", "2")
        _, _, err = self.run_program(*train, "--steps", "3", "--checkpoint", "run")
        rank_4 = "rank 4, alpha 16 and the layers q_proj, v_proj"
        self.assertIn(f"adapters of {rank_4}", err)
        self.output_of("train", "--resume", "run", "--steps", "6", "--stages", "3",
                       ranks=3 if program_runs.MPIRUN else None)
        resumed, expected = (stored_tensors(self.path(run, "step-00000006")) for run in ("run", "undisturbed"))
        self.assertEqual(resumed, expected)
        self.assertEqual(len([name for kind, name in expected if kind == "model"]), 3 * 2 * 2)
        self.assertTrue(all(".lora_" in name for _, name in expected), "frozen weights are stored or have a state")
        self.output_of(*train, "--steps", "6", "--checkpoint", "begun", "--resume", "auto")
        self.assertEqual(stored_tensors(self.path("begun", "step-00000006")), expected)
        self.assert_refused(
            ["train", "--resume", "run", "--steps", "7"],
            (["--lora", "8"], f"adapters of {rank_4}, but the flags ask for rank 8, "),
            (["--adapter", "adapter"], "both say with which adapters the training begins"))

    def test_documents_and_partitions_have_names(self):
        lines = [json.dumps({"text": chr(ord("a") + i % 26) * (5 + i % 17)}) + "\n" for i in range(300)]
        self.write("documents.jsonl", "".join(lines))
        self.output_of("tokenize", "--model", "hf:tiny", "--output", "documents.tokens", "documents.jsonl")
        evaluate = ["evaluate", "--model", "hf:tiny", "--data", "documents.tokens", "--context", "32", "--batch-size",
                    "4"]
        apart = self.output_of(*evaluate, "--separate-documents")
        self.assertNotEqual(apart, self.output_of(*evaluate))
        self.assertEqual(apart, self.output_of(*evaluate, "--separate-documents", "--stages", "2", "--partition",
                                               "model.layers.1"))
        _, _, err = self.run_program("train", *DATA, "--model", "hf:tiny", "--steps", "1", "--stages", "2",
                                     "--partition", "model.layers.2")
        self.assertIn("stage 0: check_tokens, model.embed_tokens, model.layers.0-1\n", err)

    def test_bad_adapters_are_one_line(self):
        train = ["train", *DATA, "--steps", "1", "--checkpoint", "run"]
        self.assert_refused(
            [*train, "--model", "hf:tiny"],
            (["--lora-alpha", "8"], "--lora-alpha is for adapters: pass --lora RANK, too"),
            (["--lora", "0"], "adapters of rank 0"),
            (["--lora", "4", "--lora-targets", "kqv"], "the layers 'kqv', but the network has none: name some of"),
            (["--lora", "4", "--adapter", "adapter"],
             "has rank 3, alpha 5 and the layers down_proj, k_proj, but --lora asks for rank 4, "),
            (["--adapter", "tiny"], "cannot open 'tiny/adapter_config.json'"))
        self.assertIn("--lora is for hf:DIR, not for --model mlp", self.complaint_of("train", "--lora", "4"))
        self.output_of(*train, "--model", "hf:tiny")
        self.assertIn("is of a training without adapters: pass --format hf",
                      self.complaint_of("checkpoint", "export", "run", "--format", "peft", "--output", "peft"))

    def test_a_training_that_resumes_reads_its_checkpoint_only(self):
        train = ["train", *DATA, "--model", "hf:tiny", "--lr", "0.1", "--log-every", "0"]
        self.output_of(*train, "--steps", "4", "--json", "whole.json")
        run = ["--checkpoint", "run", "--resume", "auto"]
        self.output_of(*train, *run, "--steps", "2")
        os.mkdir(self.path("away"))
        weights = glob.glob(self.path("tiny", "model*.safetensors*"))
        for path in weights:
            shutil.move(path, self.path("away"))
        self.output_of("train", "--resume", "run", "--steps", "3", "--stages", "2", "--json", "rest.json",
                       "--save-weights", "three.safetensors")
        self.output_of(*train, *run, "--steps", "4", "--json", "rest.json")
        self.assertEqual(self.losses("rest.json"), self.losses("whole.json")[2:])
        perplexity = self.output_of("evaluate", *DATA, "--model", "hf:tiny", "--weights", "three.safetensors")
        none = "tiny: it has neither model.safetensors nor model.safetensors.index.json"
        self.assertIn(none, self.complaint_of(*train, "--steps", "4", "--checkpoint", "other", "--resume", "auto"))
        self.assertIn(none, self.complaint_of(*train, "--steps", "4", "--lr", "0.2"))
        # A run that can begin anew reads the directory after all.
        for checkpoint in os.listdir(self.path("run")):
            for path in glob.glob(self.path("run", checkpoint, "model-*")):
                self.damage(path)
        self.assertIn(none, self.run_program(*train, *run, "--steps", "4")[2])
        for path in weights:
            shutil.move(self.path("away", os.path.basename(path)), path)
        self.assertEqual(self.output_of("evaluate", *DATA, "--model", "hf:tiny", "--weights", "three.safetensors"),
                         perplexity)
        self.output_of(*train, *run, "--steps", "4", "--json", "again.json")
        self.assertEqual(self.losses("again.json"), self.losses("whole.json"))

    def test_bad_input_is_one_line(self):
        evaluate = ["evaluate", *DATA, "--model", "hf:tiny"]
        self.assertEqual(self.complaint_of("generate", "--model", "hf:tiny", "--prompt", 65 * "x"),
                         "a prompt of 65 tokens, but the model's context is 64: pass a shorter one")
        with open(self.path("other.bin"), "wb") as file:
            array.array("H", [*range(256), 256, *range(256)]).tofile(file)
        for verb in ("evaluate", "train"):
            self.assertIn("other.bin: token 256 is 256, ",
                          self.complaint_of(verb, "--data", "other.bin", "--model", "hf:tiny"))
        self.change_config(architectures=["BertModel"])
        self.assertRegex(self.complaint_of(*evaluate),
                         "names the architecture 'BertModel', .* GPT2LMHeadModel, .*, Qwen3ForCausalLM$")
        self.change_config(architectures=["LlamaForCausalLM"])
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

    def test_a_tokenizer_of_another_vocabulary_is_refused_before_ranks_start(self):
        tokenizer = json.loads(self.read("tiny/tokenizer.json"))
        tokenizer["model"]["vocab"]["abc"] = 300
        self.write("tiny/tokenizer.json", json.dumps(tokenizer))
        for more in ([], ["--stages", "2"]):
            self.assertEqual(self.complaint_of("generate", "--model", "hf:tiny", "--prompt", "x", *more),
                             "tiny: the tokenizer has ids up to 300, and the vocabulary of the model has "
                             "256 entries: pass the tokenizer of this model")


@unittest.skipUnless(os.path.exists(torch_python.SMOLLM2), "no SmolLM2: see the test hf.packages")
class SmolLM2(ProgramRuns):
    model = ["--model", "hf:" + os.path.abspath(torch_python.SMOLLM2)]

    def test_the_greedy_continuation_is_that_of_transformers(self):
        self.assertEqual(self.output_of("generate", *self.model, "--stages", "2", "--prompt", "The capital of France is",
                                        "--tokens", "40", "--greedy"),
                         " Paris.\n\nThe answer is: 2018-01-22 12:12:53.\n")

    def test_perplexity_is_that_of_transformers(self):
        with open(os.path.join(HERE, "..", "..", "data", "text", "tinyshakespeare.txt")) as file:
            text = file.read(2000)
        self.write("play.txt", text)
        self.output_of("tokenize", *self.model, "--output", "play.tokens", "play.txt")
        self.output_of("evaluate", *self.model, "--stages", "2", "--data", "play.tokens", "--context", "128",
                       "--batch-size", "4", "--json", "out.json")
        wanted = transformers("perplexity", torch_python.SMOLLM2, text, 128)
        self.assertAlmostEqual(json.loads(self.read("out.json"))["perplexity"] / wanted, 1, delta=1e-5)


if __name__ == "__main__":
    program_runs.main()
