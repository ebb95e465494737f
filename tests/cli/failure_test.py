"""Errors of `train` and `bench`: exit code 2 and one line for misuse, exit code 1 and the cause for a failure, and no
remaining processes.

Usage: failure_test.py PENSTOCK DATA [MPIRUN]; see program_runs.py.
"""

import os
import re
import shutil
import signal
import sys

sys.dont_write_bytecode = True
import program_runs
from program_runs import WATCHDOG_S, ProgramRuns, of_mpi, processes_of, still_running

STEPS = ["--micro-batches", "4", "--batch-size", "32", "--steps", "3", "--log-every", "1"]

# Longer than a test: what ends in time did not wait for it.
PATIENT = ["--deadline", "1000"]

# Flags of `train`, and the beginning of the error message.
MISUSE = [
    (["--micro-batches", "0"], "micro-batches = 0, but a step has at least 1"),
    (["--micro-batches", "1000000000", "--batch-size", "1000000000"],
     "1 stages x 1000000000 micro-batches: at most 67108864 in all"),
    (["--epochs", "four"], "--epochs four: pass a whole number"),
    (["--stages", "-1"], "stages = -1, but a pipeline has at least 1"),
    (["--stages", "100000"], "stages x replicas = 100000, but a process holds at most 1024 ranks as threads"),
    (["--replicas", "-1"], "replicas = -1, but there is at least 1"),
    (["--batch-size", "0"], "batch-size = 0, but a batch has at least 1 sample"),
    (["--steps", "-1"], "steps = -1, but training takes at least 1: without --steps there is no limit"),
    (["--steps", "0"], "steps = 0, but training takes at least 1: without --steps there is no limit"),
    (["--epochs", "0"], "epochs = 0, but training takes at least 1"),
    (["--log-every", "-1"], "log-every = -1: pass a number of steps, or 0 for never"),
    (["--eval-every", "-1"], "eval-every = -1: pass a number of epochs, or 0 for never"),
    (["--threads", "0"], "threads = 0, but a rank has at least 1"),
    (["--deadline", "0"], "--deadline 0: pass seconds between 0.001 and 1e+06"),
    (["--stall-limit", "0"], "--stall-limit 0: pass seconds between 0.001 and 1e+06"),
    (["--start-deadline", "-3"], "--start-deadline -3: pass seconds between 0.001 and 1e+06"),
    (["--seed", "-1"], "--seed: -1 is below 0"),
    (["--model", "vgg"], "--model: vgg not in {mlp,"),
    (["--hidden", "512x"], "'512x' in '512x' is not a layer width: write widths as 512,512 or 1024x8"),
    (["--schedule", "1f1c"], "no schedule is called '1f1c': did you mean '1f1b'? There are sequential, gpipe, 1f1b"),
    (["--schedule", "forward-only"], "schedule 'forward-only' has no backward instructions: it cannot train"),
    (["--schedule", "none.sched"], "none.sched: cannot be opened; a schedule file is expected there"),
    (["--optimizer", "lion"], "--optimizer: lion not in {sgd,adam,adamw,rmsprop}"),
    (["--optimizer", "adam", "--momentum", "0.9"], "--momentum 0.9 is for --optimizer sgd or rmsprop, not for adam"),
    (["--lr", "-1"], "the learning rate is -1, but it cannot be below 0"),
    (["--lr", "inf"], "--lr inf: pass a finite number"),
    (["--momentum", "-1"], "the momentum is -1, but it cannot be below 0"),
    (["--optimizer", "rmsprop", "--momentum", "-1"], "the momentum is -1, but it cannot be below 0"),
    (["--weight-decay", "-1"], "the weight decay is -1, but it cannot be below 0"),
    (["--reduction", "max"], "--reduction: max not in {mean,sum}"),
    (["--transport", "smoke"], "--transport: smoke not in {auto,threads,mpi,gloo,nccl}"),
    (["--transport", "nccl"], "built without NCCL (PENSTOCK_NCCL=OFF, or a LibTorch for the CPU)"),
    (["--stages", "2", "--partition", "layer9"],
     "partition 'layer9': there is no layer or Cell 'layer9'; the layers are 0 flatten, 1 layer1"),
    (["--stages", "3", "--partition", "layer2"], "partition 'layer2' names 1 layers, but 3 stages need 2"),
    (["--json", "no/steps.json"], "no/steps.json: there is no such folder; make it first"),
    (["--trace", "no/trace.json"], "no/trace.json: there is no such folder; make it first"),
    (["--trace", "/proc/trace.json"], "/proc/trace.json: cannot be written: "),
    (["--save-weights", "/proc/w.safetensors"], "/proc/w.safetensors: cannot be written: "),
    (["--json", "/proc/steps.json"], "/proc/steps.json: cannot be written: "),
    (["--dump", "/proc"], "/proc/graph.txt: cannot be written: "),
    (["--svg", "."], ".: is a folder, and a file is to be written"),
    (["--report", "--batch-size", "3"],
     "batch-size = 3 fills fewer than 4 micro-batches on each of 1 replica: pass --batch-size 4 or more"),
    (["--batch-size", "32", "--micro-batches", "64"],
     "batch-size = 32 fills fewer than 64 micro-batches on each of 1 replica: pass --batch-size 64 or more"),
    (["--batch-size", "8", "--replicas", "3"], "batch-size = 8 fills fewer than 4 micro-batches on each of 3 replicas"),
    (["--warmup", "2", "--log-level", "error"], "a warm-up of 2 epochs in a training of 1 epochs: pass 0 to 1"),
    (["--warmup", "9", "--lr-by", "step", "--log-level", "error"],
     "a warm-up of 9 steps in a training of 3 steps: pass 0 to 3"),
    (["--static-shapes"], "--static-shapes was removed: leave it out (docs/devices.md)"),
    (["--keep-last-step"], "--keep-last-step was removed: save checkpoints with --checkpoint DIR"),
    (["--stagse", "2"], "unknown flag '--stagse': did you mean '--stages'? 'penstock train --help' lists all flags"),
    (["--mirco-batches=2"], "unknown flag '--mirco-batches': did you mean '--micro-batches'?"),
    (["-stages", "2"], "unknown flag '-stages': did you mean '--stages'?"),
    (["2"], "unexpected argument '2': 'penstock train --help' lists all arguments"),
]


class Misuse(ProgramRuns):
    def assert_begins(self, line, message):
        self.assertEqual(line[:len(message)], message, line)

    def test_flags(self):
        for flags, message in MISUSE:
            with self.subTest(flags=flags):
                self.assert_begins(self.complaint_of(*self.train(*STEPS, *flags)), message)
        self.assertEqual(os.listdir(self.folder), [])

    def test_numbers_beyond_every_range(self):
        """Every numeric flag in the help of the verbs refuses a number that is too large."""
        numeric = re.compile(r"^  (?:-\w,)?--([a-z-]+)(?:,\S+)? (INT|UINT|FLOAT|P|M|V|X|K|SHARE|BYTES)\b", re.MULTILINE)
        seen = set()  # flags that several verbs share are tried once
        for verb in (["train"], ["infer"], ["bench", "step"], ["plan", "--profile"]):
            for flag, kind in numeric.findall(self.output_of(*verb, "--help")):
                number = "1e999" if kind in ("FLOAT", "X") else "99999999999999999999"
                with self.subTest(verb=verb, flag=flag, number=number):
                    if flag not in seen:
                        self.assertRegex(self.complaint_of(*verb, f"--{flag}", number),
                                         f"^--{flag}:? .*{number}.*(too large|pass a )")
                seen.add(flag)
        self.assertLessEqual({"steps", "epochs", "stages", "lr", "warmup", "deadline", "top-k", "warm-up"}, seen)
        for verb in (["plan"], ["simulate"], ["schedule", "show"], ["schedule", "table"]):
            flags = numeric.findall(self.output_of(*verb, "--help"))
            self.assertGreaterEqual(len(flags), 2, verb)
            for flag, kind in flags:
                for number in ("1e999", "-1e999") if kind in ("X", "SHARE", "BYTES") else ("9" * 20, "-" + "9" * 20):
                    with self.subTest(verb=verb, flag=flag, number=number):
                        self.assertRegex(self.complaint_of(*verb, f"--{flag}", number), f"^--{flag}:? ")
        self.write("run.toml", "steps = 99999999999999999999\n")
        self.assertIn("run.toml:1", self.complaint_of(*self.train("--config", "run.toml")))

    def test_bench(self):
        for flags, message in ((["--steps", "0"], "steps = 0, but a median needs at least 1"),
                             (["--warm-up", "-1"], "warm-up = -1, but it takes 0 steps or more"),
                             (["--batch-size", "3"], "batch-size = 3 fills fewer than 4 micro-batches"),
                             (["--json", "no/b.json"], "no/b.json: there is no such folder; make it first"),
                             (["--lr", "nan"], "--lr nan: pass a finite number")):
            self.assert_begins(self.complaint_of("bench", "step", "--hidden", "8", *flags), message)
        self.assert_begins(self.complaint_of("bench"), "which verb? 'penstock bench' has step")

    # Data

    def test_missing_data(self):
        self.write("file", "")
        for place in ("nowhere", ".", "file"):
            self.assert_begins(self.complaint_of(*self.train(*STEPS, data=place)),
                               f"no MNIST in '{place}' or its folder mnist: 'train-images-idx3-ubyte'")

    def test_truncated_data(self):
        name = "train-images-idx3-ubyte"
        for part in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
            shutil.copy(os.path.join(self.small_set, part), self.folder)
        os.truncate(self.path(name), 10000)
        line = self.complaint_of(*self.train(*STEPS, data="."))
        self.assertIn(name, line)
        self.assertIn("10000", line)
        os.remove(self.path(name))
        shutil.copy(os.path.join(program_runs.DATA, name + ".gz"), self.folder)
        os.truncate(self.path(name + ".gz"), 500000)
        self.assertRegex(self.complaint_of(*self.train(*STEPS, data=".")),
                         r"train-images-idx3-ubyte\.gz' breaks off in the middle of its gzip stream")

    # Schedule files for another pipeline

    def test_schedule_files(self):
        self.write("x.sched", self.output_of("schedule", "convert", "1f1b", "--stages", "2", "--micro-batches", "4"))
        self.assert_refused(self.train(*STEPS, "--schedule", "x.sched", "--stages"),
                            (["3"], "schedule file 'x.sched' is for 2 ranks, but the pipeline has 3: set stages to 2"),
                            (["2", "--micro-batches", "8"], "schedule file 'x.sched' is for 4 micro-batches, but the "
                                                            "pipeline is to run 8: set micro-batches to 4"))

    # Processes

    def test_an_environment_that_is_no_number(self):
        self.assert_begins(self.complaint_of(*self.train(*STEPS), environment={"RANK": "x", "WORLD_SIZE": "2"}),
                           "the environment's RANK is not a number")

    @of_mpi
    def test_process_counts(self):
        for ranks, flags, message in (
                (3, ["--stages", "2"],
                 "3 processes do not divide into 2 pipeline ranks: start a multiple of 2 (mpirun -n 2)"),
                (1, ["--stages", "2"],
                 "1 process does not divide into 2 pipeline ranks: start a multiple of 2 (mpirun -n 2)"),
                (4, ["--stages", "2", "--replicas", "3"],
                 "4 processes for 2 pipeline ranks x 3 replicas: start 6 (mpirun -n 6)"),
                (2, ["--stages", "2", "--transport", "threads"],
                 "this is process 0 of 2 started by mpirun (OMPI_COMM_WORLD_SIZE = 2), but the transport is threads: 2 "
                 "whole jobs would run side by side; use the mpi transport or start one process")):
            with self.subTest(ranks=ranks, flags=flags):
                self.assertEqual(self.complaint_of(*self.train(*STEPS, *flags), ranks=ranks), message)

    @of_mpi
    def test_the_launcher_of_another_mpi(self):
        """As if the mpiexec of another library had started two processes, each of which MPI takes for the only one."""
        for rank in "01":
            line = self.complaint_of(*self.train(*STEPS), environment={"PMI_RANK": rank, "PMI_SIZE": "2"})
            self.assertIn(f"process {rank} of 2 started by ", line)
            self.assertIn("but mpi says process 0 of 1: use the launcher of the MPI library that this program is linked "
                          "with", line)

    @of_mpi
    def test_processes_of_different_builds(self):
        mixed, digest, _ = self.program_of_two_builds()
        code, out, err = self.run_program(*self.train(*STEPS, "--stages", "2"), ranks=2, program=mixed)
        self.assertEqual((code, out), (2, ""), err)
        [line] = self.sayings(err)
        self.assertRegex(line,
                         rf"^rank 1 runs another build than rank 0, and rank 0 runs penstock [0-9.]+ \({digest}\) "
                         "with LibTorch .*: install the same build on all hosts$")

    def test_mpi_without_mpirun(self):
        line = self.complaint_of(*self.train(*STEPS, "--stages", "2", "--transport", "mpi"))
        self.assertIn("1 process does not divide into 2 pipeline ranks" if program_runs.MPIRUN else "MPI", line)

    @of_mpi
    def test_misuse_of_every_process_is_reported_once(self):
        pair = self.train(*STEPS, "--stages", "2")
        for arguments in (["--micro-batches", "0"], ["--partition", "layer9"], ["--colour"],
                          ["--json", "no/steps.json"], ["--data", "nowhere"]):
            with self.subTest(arguments=arguments):
                self.complaint_of(*pair, *arguments, ranks=2)
        self.assertIn("did you mean 'penstock train'", self.complaint_of("trian", ranks=2))


class Failure(ProgramRuns):
    def end_of(self, run):
        """Exit code and messages of a run that ends by itself."""
        out, err = run.communicate(timeout=WATCHDOG_S)
        return run.returncode, self.sayings(err), err

    def training(self, *flags):
        """Two processes in an endless training, and their process ids by rank."""
        run = self.start(*self.train("--stages", "2", "--steps", "1000000000", *flags), ranks=2)
        self.assertEqual(run.stdout.readline()[:16], "epoch: 0 step: 0")
        self.assertEqual(run.stdout.readline()[:17], "epoch: 0 step: 10")
        ranks = {}
        for pid in processes_of(run):
            with open(f"/proc/{pid}/environ") as file:
                variables = dict(each.split("=", 1) for each in file.read().split("\0") if "=" in each)
            ranks[int(variables["OMPI_COMM_WORLD_RANK"])] = pid
        self.assertEqual(sorted(ranks), [0, 1])
        return run, ranks

    def test_a_loss_that_is_not_finite(self):
        job = self.train(*STEPS, "--lr", "1e30", "--stages", "2")
        for ranks in [None, 2] if program_runs.MPIRUN else [None]:
            code, out, err = self.run_program(*job, ranks=ranks)
            self.assertEqual(code, 1)
            said = self.sayings(err)
            # Every process finds it in the same loss, and the first to leave ends the job.
            self.assertIn(len(said), range(1, (ranks or 1) + 1), err)
            for line in said:
                self.assertRegex(line, r"epoch 0, step 1: the loss of training step 1 is -?(nan|inf) in micro-batch 0 "
                                       r"\(stage 1\): .*\(stage [01]\)")
            self.assertRegex(out, r"^epoch: 0 step: 0, loss is 2\.\d+\n$")  # the step that failed has none

    def test_a_failure_names_what_replaces_the_weights(self):
        # The last batch is shorter, and its values do not have the declared shape.
        job = self.train("--batch-size", "32", "--micro-batches", "4", "--hidden", "20", "--stages", "2", "--partition",
                         "layer2", "--log-every", "0", "--boundary-shape", "8,20", "--save-weights", "w.safetensors")
        for ranks in [None, 2] if program_runs.MPIRUN else [None]:
            code, _, err = self.run_program(*job, ranks=ranks)
            self.assertEqual(code, 1)
            self.assertIn("but the boundary shape is [8, 20]", err)
            if ranks is None:  # mpirun may end rank 0 before it says so
                self.assertIn("--save-weights w.safetensors is not written: pass --checkpoint DIR to keep states", err)
            self.assertFalse(os.path.exists(self.path("w.safetensors")))
            code, _, err = self.run_program(*job, "--checkpoint", "K", ranks=ranks)
            self.assertEqual(code, 1)
            if ranks is None:
                self.assertIn("--save-weights w.safetensors is not written: continue with --resume K", err)
            shutil.rmtree(self.path("K"))

    def test_a_full_disk(self):
        for flag, message in (("--json", "--json /dev/full could not be written to its end"),
                              ("--trace", "/dev/full: cannot be written: No space left on device")):
            code, _, err = self.run_program(*self.train(*STEPS, flag, "/dev/full"))
            self.assertEqual((code, self.sayings(err)), (1, [message]))

    @of_mpi
    def test_a_rank_that_is_killed(self):
        for rank in (0, 1):
            run, ranks = self.training(*PATIENT)
            os.kill(ranks[rank], signal.SIGKILL)
            code, _, err = self.end_of(run)
            self.assertNotEqual(code, 0)
            self.assertRegex(err, rf"\brank {rank}\b")
            self.assertEqual(still_running(ranks.values()), [])

    @of_mpi
    def test_a_stopped_rank(self):
        # mpirun does not notice a stopped process: the other rank must detect it.
        for stopped, wait in ((1, r"0RECV_B\d"), (0, ".*")):
            with self.subTest(stopped=stopped):
                run, ranks = self.training("--deadline", "5")
                os.kill(ranks[stopped], signal.SIGSTOP)
                code, said, err = self.end_of(run)
                self.assertEqual(code, 1, err)
                if stopped:  # mpirun continues a stopped rank before it ends it: rank 0 may have time to print an error
                    self.assertEqual(len(said), 1, err)
                cause, kept = said[0].removeprefix("[rank 1] "), 1 - stopped
                self.assertRegex(cause, rf"^rank {kept} \(stage {kept}\) failed at {kept}\S+ of step \d+: rank {kept} "
                                        rf"waits for {wait} from rank {stopped}, which .* \(no sign of life for 5 s\)$")
                self.assertEqual(said[1:], [cause] * (len(said) - 1), err)
                self.assertEqual(still_running(ranks.values()), [])

    @of_mpi
    def test_signals_end_all_processes(self):
        for by in (signal.SIGTERM, signal.SIGINT):
            run, ranks = self.training(*PATIENT)
            run.send_signal(by)
            code, said, _ = self.end_of(run)
            self.assertNotEqual(code, 0)
            self.assertEqual(said, [])
            self.assertEqual(still_running(ranks.values()), [])

    def test_signals_end_threads(self):
        for by in (signal.SIGTERM, signal.SIGINT):
            run = self.start(*self.train("--stages", "2", "--steps", "1000000000"))
            self.assertEqual(run.stdout.readline()[:16], "epoch: 0 step: 0")
            run.send_signal(by)
            code, said, _ = self.end_of(run)
            self.assertEqual((code, said), (-by, []))


if __name__ == "__main__":
    program_runs.main()
