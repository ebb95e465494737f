"""The flags of image networks and their data.

Usage: image_models_test.py PENSTOCK DATA [MPIRUN]; see program_runs.py.
"""

import json
import os
import random
import sys

sys.dont_write_bytecode = True
import program_runs
from program_runs import ProgramRuns, of_mpi

SMALL = ["--model", "resnet18", "--stem", "cifar", "--width", "2"]


class ImageModels(ProgramRuns):
    def setUp(self):
        super().setUp()
        # The binary version: a label, then 32 x 32 pixels of three colours. The classes are easy to distinguish.
        chance = random.Random(1)
        os.mkdir(self.path("cifar10"))
        for name, samples in (("data_batch_1.bin", 40), ("data_batch_2.bin", 10), ("test_batch.bin", 12)):
            with open(self.path(f"cifar10/{name}"), "wb") as file:
                for sample in range(samples):
                    label = sample % 10
                    file.write(bytes([label]) + bytes(min(255, 20 * label + chance.randrange(60)) for _ in range(3072)))

    def job(self, *flags):
        return ["train", "--data", self.folder, *SMALL, "--batch-size", "16", "--micro-batches", "2", "--lr", "0.1",
                "--log-every", "1", *flags]

    def test_a_resnet_is_trained_and_evaluated(self):
        code, out, err = self.run_program(*self.job("--stages", "2", "--epochs", "2"))
        self.assertEqual(code, 0, err)
        lines = out.splitlines()
        self.assertEqual(len(lines), 2 * (4 + 1))
        self.assertRegex(lines[4], r"^epoch: 0 test: loss \d+\.\d+, accuracy 0\.\d{4}$")
        self.assertIn("resnet18 v1.5, stem cifar, width 2, 10 classes, on cifar10 of 32 x 32: 2 ranks", err)
        self.assertIn("stage 0: head, ", err)

    def test_stages_do_not_change_a_bit(self):
        for flags in ([], ["--augment"], ["--image-size", "20", "--augment", "resized-crop,autoaugment,color-jitter"]):
            alone = self.output_of(*self.job(*flags))
            for variant in (["--stages", "2"], ["--stages", "3", "--schedule", "gpipe"],
                            ["--stages", "2", "--chunks", "2"]):
                self.assertEqual(self.output_of(*self.job(*flags, *variant)), alone, (flags, variant))

    @of_mpi
    def test_processes_see_the_same_images(self):
        job = self.job("--augment", "--stages", "2")
        self.assertEqual(self.output_of(*job, ranks=4), self.output_of(*job, "--replicas", "2"))

    def test_flags_of_the_data_do_something(self):
        plain = self.output_of(*self.job())
        for flags in (["--augment"], ["--normalize", "none"], ["--image-size", "16"], ["--variant", "v1"],
                      ["--dataset", "mnist", "--data", program_runs.DATA, "--steps", "4"]):
            self.assertNotEqual(self.output_of(*self.job(*flags)), plain, flags)
        self.assertEqual(self.output_of(*self.job("--no-augment", "--normalize", "standard")), plain)
        # The first loss precedes all updates of the running statistics; the evaluation follows them.
        momentum = self.output_of(*self.job("--norm-momentum", "0.01"))
        self.assertEqual(momentum.splitlines()[:4], plain.splitlines()[:4])
        self.assertNotEqual(momentum.splitlines()[4], plain.splitlines()[4])

    def test_augmentations_are_chosen_by_their_names(self):
        def losses(*flags):
            return self.output_of(*self.job("--steps", "4", *flags))
        plain, crop_flip = losses(), losses("--augment")
        self.assertEqual(losses("--augment", "crop-flip"), crop_flip)
        self.assertEqual(losses("--augment", "flip,crop"), crop_flip)
        self.assertEqual(losses("--augment", "randaugment", "--no-augment"), plain)
        self.assertEqual(losses("--no-augment", "--augment"), crop_flip)
        self.assertEqual(losses("--augment", "randaugment"), losses("--augment=randaugment:2:9"))
        every = [plain, crop_flip] + [losses("--augment", arguments) for arguments in (
            "crop", "resized-crop", "autoaugment", "autoaugment-imagenet", "randaugment", "randaugment:3:20",
            "color-jitter", "crop,autoaugment")]
        self.assertEqual(len(set(every)), len(every))
        with open(self.path("run.toml"), "w") as file:
            file.write('augment = "crop,autoaugment"\n')
        self.assertEqual(losses("--config", self.path("run.toml")), every[-1])
        printed = self.output_of(*self.job("--augment", "crop,autoaugment", "--print-config"))
        self.assertIn('augment = "crop,autoaugment"\n', printed)
        self.assertIn("augment = true\n", self.output_of(*self.job("--augment", "--print-config")))
        self.assert_refused(
            self.job("--augment"),
            (["autoagument"], "--augment: there is no 'autoagument': did you mean 'autoaugment'?"),
            (["randaugment:x"], "--augment randaugment:x: 'x' is not a whole number"),
            (["randaugment:2:31"], "--augment randaugment:2:31: OPERATIONS is 1 or more, MAGNITUDE 0 to 30"),
            (["autoaugment,randaugment"], "pass one of autoaugment, autoaugment-imagenet and randaugment"))

    def test_mnist_without_normalisation(self):
        job = self.train("--steps", "3", "--log-every", "1")
        self.assertNotEqual(self.output_of(*job, "--normalize", "none", "--no-shuffle", "--drop-last"),
                            self.output_of(*job, "--no-shuffle", "--drop-last"))

    def test_a_test_set_is_never_augmented(self):
        job = self.job("--lr", "0", "--no-shuffle", "--norm-momentum", "0")
        def tests(flags):
            return [line for line in self.output_of(*job, *flags).splitlines() if "test" in line]
        self.assertEqual(tests(["--augment"]), tests([]))

    def test_flags_of_other_models_are_refused(self):
        self.assert_refused(
            ["train", "--data", program_runs.DATA, "--model"],
            (["resnet50", "--hidden", "8"], "--hidden is for mlp, not for --model resnet50"),
            (["mlp", "--stem", "cifar"], "--stem is for resnet18, resnet34, resnet50, resnet101, not for --model mlp"),
            (["unet", "--classes", "10"], "--classes is for mlp, resnet18, resnet34, resnet50, resnet101, vit-b16, "),
            (["mlp", "--image-size", "32"],
             "--image-size is for resnet18, resnet34, resnet50, resnet101, vit-b16, unet, not for"),
            (["resnet18", "--classes", "5"], "--classes 5, but cifar10 has 10: pass as many or more"),
            (["resnet18", "--image-size", "0"], "--image-size 0: pass 1 or more pixels a side"),
            (["resnet18", "--width", "0"], "a ResNet of width 0: it needs at least 1 channel"),
            (["mlp", "--augment"], "--augment is for cifar10, not for mnist"),
            (["unet"], "no data set here has images as targets"),
            (["resnet18"], f"no CIFAR-10 in '{program_runs.DATA}'"))

    def test_bench_step_takes_every_model(self):
        def settings(*flags):
            return json.loads(self.output_of("bench", "step", *flags, "--batch-size", "8", "--micro-batches", "2",
                                             "--steps", "1", "--warm-up", "0", "--stages", "2", "--json", "-"))
        resnet = settings("--model", "resnet50", "--width", "4", "--variant", "v1", "--classes", "1000")
        self.assertEqual([resnet[name] for name in ("model", "dataset", "classes", "variant", "stem", "width",
                                                    "norm_momentum", "image_size")],
                         ["resnet50", "cifar10", 1000, "v1", "imagenet", 4, 0.1, 32])
        unet = settings("--model", "unet", "--width", "2", "--image-size", "20")
        self.assertEqual([unet[name] for name in ("model", "dataset", "width", "image_size")],
                         ["unet", "cifar10", 2, 20])
        self.assertEqual(settings("--dataset", "cifar10", "--hidden", "8")["dataset"], "cifar10")


if __name__ == "__main__":
    program_runs.main()
