"""A training that is interrupted and resumed in another layout has the bits of one that is not.

Usage: resume_matrix_test.py PENSTOCK DATA [MPIRUN] [--all]

Every case trains to a step, in one layout, and from there to the end in the next: schedule, stages, chunks, transport.
Then the newest checkpoints are compared: all tensors of the model and of the optimiser by their checksums, the position
in the data, and all states. The short form takes each model, optimiser, layout and step at least once; --all takes all
combinations.
"""

import itertools
import os
import shutil

import training_runs
from training_runs import TrainingRuns, contents, manifest_of

ALL = False

LAYOUTS = [("2", "--schedule", "gpipe"), ("3", "--schedule", "1f1b"), ("4", "--schedule", "zb-h1"),
           ("2", "--schedule", "interleaved", "--chunks", "2"), ("1",)]
OPTIMIZERS = {"momentum": ("--optimizer", "sgd", "--momentum", "0.9", "--lr", "0.05"),
              "adamw": ("--optimizer", "adamw", "--weight-decay", "0.01", "--lr", "0.001"),
              # Not Penstock's own, but torch::optim::RMSprop, as in a user's program.
              "rmsprop": ("--optimizer", "rmsprop", "--momentum", "0.9", "--lr", "0.0005")}
MODELS = {"mlp": ("--model", "mlp", "--hidden", "24x5", "--dropout", "0.2"),
          "resnet18": ("--model", "resnet18", "--stem", "cifar", "--width", "4", "--augment", "crop-flip"),
          "gpt": ("--model", "gpt", "--layers", "3", "--heads", "2", "--width", "16", "--context", "32", "--dropout",
                  "0.2", "--head", "tied")}
EPOCHS = 2


class ResumeMatrix(TrainingRuns):
    @classmethod
    def setUpClass(cls):
        """Parts of the other data sets, too, of which an epoch has seven steps or so."""
        super().setUpClass()
        for name, target, size in (("cifar10/data_batch_1_first4000.bin", "data_batch_1.bin", 200 * 3073),
                                   ("cifar10/test_batch_first1000.bin", "test_batch.bin", 32 * 3073),
                                   ("text/tinyshakespeare.txt", "input.txt", 8000)):
            with open(os.path.join(training_runs.DATA, name), "rb") as whole:
                with open(os.path.join(cls.data, target), "wb") as file:
                    file.write(whole.read(size))

    def train(self, model, optimizer, layout, mpi, *flags):
        stages, *schedule = layout
        training = self.finished("train", "--data", self.data, *MODELS[model], *OPTIMIZERS[optimizer], "--batch-size",
                                 "32", "--epochs", EPOCHS, "--seed", "3", "--log-level", "warning", "--stages", stages,
                                 *schedule, *flags, ranks=int(stages) if mpi and stages != "1" else None)
        self.assertEqual(training.errors(), "", training.command)
        training.close()

    def undisturbed(self, model, optimizer):
        folder = os.path.join(self.folder, f"{model}-{optimizer}")
        if not os.path.isdir(folder):
            self.train(model, optimizer, ("1",), False, "--checkpoint", folder)
        return folder

    def compare(self, model, optimizer, number, stop, mpi):
        """Trains to the stop in layout `number`, and from there in the next one."""
        expected = self.undisturbed(model, optimizer)
        epoch = manifest_of(expected)["states"]["trainer"]["steps_per_epoch"]
        step = {"first": 1, "middle": epoch // 2, "edge": epoch, "last": EPOCHS * epoch - 1}[stop]
        run = os.path.join(self.folder, "run")
        shutil.rmtree(run, ignore_errors=True)
        checkpoints = ("--checkpoint", run, "--checkpoint-every", "3steps")
        self.train(model, optimizer, LAYOUTS[number], mpi[0], *checkpoints, "--steps", str(step))
        self.assertEqual(manifest_of(run)["step"], step)
        self.train(model, optimizer, LAYOUTS[(number + 1) % len(LAYOUTS)], mpi[1], *checkpoints, "--resume", "auto")
        self.assertEqual(contents(run), contents(expected))

    def test_bits_are_those_of_a_training_without_interruption(self):
        stops = ["first", "middle", "edge", "last"]
        transports = [(False, False), (False, True), (True, False),
                      (True, True)] if training_runs.MPIRUN else [(False, False)]
        layouts = range(len(LAYOUTS))
        if ALL:
            cases = list(itertools.product(MODELS, OPTIMIZERS, layouts, stops, transports))
        else:
            pairs = list(itertools.product(MODELS, OPTIMIZERS))
            cases = [(*pairs[i % len(pairs)], i % len(LAYOUTS), stops[i % len(stops)], transports[i % len(transports)])
                     for i in range(len(pairs))]
        equal = 0
        for case in cases:
            with self.subTest(case=case):
                self.compare(*case)
                equal += 1
        print(f"in {equal} of {len(cases)} cases 0 bits differ", flush=True)


if __name__ == "__main__":
    [ALL] = training_runs.read_arguments(all=False)
    training_runs.main()
