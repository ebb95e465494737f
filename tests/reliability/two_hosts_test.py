"""Trainings of processes on two hosts, which a wire joins: the bits are those of threads on one host, the profile
measures the wire, a wire that is cut ends all ranks in time, and a restarted job goes on with the same bits when the
wire is back, or when a host's processes were killed while adapters of a language model were trained.

Usage: two_hosts_test.py PENSTOCK DATA [MPIRUN] [--bound SECONDS]

Skipped (exit code 77) where two_hosts.py cannot make hosts; parts are skipped without mpirun, without a Python that
imports torch, which has torchrun (tests/support/torch_python.py), or without SmolLM2 (tools/fetch_smollm2.py).
The bound (default: 30) is the time from the cut to the end of the last rank beyond the deadline. It is long because a
machine that also has other work says nothing about times.
"""
import array
import json
import os
import random
import signal
import sys
import time

import training_runs
import two_hosts
from training_runs import TrainingRuns, contents, is_rank, newest_of, of_mpi, step_of
from two_hosts import ADDRESSES, NAMES, TwoHosts

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_python import NONE, SMOLLM2, torch_python

SKIPPED = 77
BOUND_S = 30.0
WITH_SMOLLM2 = False
DEADLINE_S = 3.0
MEETING = {"MASTER_ADDR": ADDRESSES["a"], "MASTER_PORT": "29500"}


def of_torchrun(test):
    """A test that needs torchrun."""
    def run(self):
        if not torch_python():
            self.skipTest(NONE.format("torch"))
        test(self)
    return run


class TwoHostsRuns(TrainingRuns):
    def hosts(self, rate=None):
        hosts = TwoHosts(rate)
        self.addCleanup(hosts.close)
        return hosts

    def on(self, hosts, name, command, environment=None):
        """A started command on a host."""
        program, *arguments = hosts.command(name, command)
        return self.start(*arguments, program=program,
                          environment={**hosts.environment(name), **(environment or {})})

    def ranks_of(self, hosts, count, arguments):
        """The processes of a job by rank, the first half of them on host a. Started by hand, as by srun without PMI."""
        return [self.on(hosts, NAMES[2 * rank // count], [training_runs.PENSTOCK, *arguments],
                        {**MEETING, "RANK": str(rank), "WORLD_SIZE": str(count)}) for rank in range(count)]

    def agents_of(self, hosts, arguments, *flags):
        """torchrun on both hosts, with a rank on each."""
        return [self.on(hosts, name, [torch_python(), "-m", "torch.distributed.run", "--nnodes", "2",
                                      "--nproc-per-node", "1", "--local-addr", ADDRESSES[name], "--no-python",
                                      *flags_of(flags, name), training_runs.PENSTOCK, *arguments]) for name in NAMES]

    def mpirun_of(self, hosts, count, arguments):
        """mpirun on host a, with half of the ranks on each host."""
        each = [f"{ADDRESSES[name]}:{count // 2}" for name in NAMES]
        agent = hosts.launch_agent(self.path("agent"))
        mca = {"plm_rsh_agent": agent, "btl": "self,vader,tcp", "btl_tcp_if_include": "10.77.0.0/24",
               "oob_tcp_if_include": "10.77.0.0/24"}
        return [self.on(hosts, "a", [training_runs.MPIRUN, "-n", str(count), "--host", ",".join(each), "--bind-to",
                                     "none", *(word for key, value in mca.items() for word in ("--mca", key, value)),
                                     training_runs.PENSTOCK, *arguments])]

    def end_of(self, runs):
        """All of them, with exit code 0. What the first one, or rank 0, has printed of its losses."""
        for run in runs:
            self.assertEqual(run.wait(), 0, (run.command, *(each.text() for each in runs)))
        return [line for line in runs[0].output().splitlines() if "loss is" in line]

    def training(self, stages, *flags):
        return self.arguments("--stages", str(stages), "--hidden", "24,20,16,12", "--steps", "12", "--log-every", "1",
                              "--deadline", "60", *flags)

    def wait_for(self, condition, *runs, seconds=training_runs.WATCHDOG_S):
        end = time.monotonic() + seconds
        while not condition():
            self.assertTrue(any(run.process.poll() is None for run in runs) and time.monotonic() < end,
                            [run.text() for run in runs])
            time.sleep(0.02)

    def weights(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()


def flags_of(flags, name):
    """`flags` with the number and the part of a host in the rendezvous in their places."""
    node = NAMES.index(name)
    return [flag.format(node=node, is_first=int(node == 0)) for flag in flags]


class SameBits(TwoHostsRuns):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expected = {}

    def expect_bits_of_threads(self, stages, start):
        """`start` takes the arguments of a training and returns its processes."""
        if stages not in self.expected:
            run = self.finished(*self.training(stages, "--save-weights", self.path("threads")))
            self.expected[stages] = self.end_of([run]), self.weights("threads")
        losses, weights = self.expected[stages]
        self.assertEqual(len(losses), 12)
        self.assertEqual(self.end_of(start(self.training(stages, "--save-weights", self.path("processes")))), losses)
        self.assertEqual(self.weights("processes"), weights)

    def test_gloo(self):
        hosts = self.hosts("1gbit")
        for stages in (2, 4):
            with self.subTest(stages=stages):
                before = hosts.bytes_sent("a")
                self.expect_bits_of_threads(stages, lambda arguments: self.ranks_of(hosts, stages, arguments))
                # Twelve steps' values of 32 samples and 12 to 20 numbers each.
                self.assertGreater(hosts.bytes_sent("a") - before, 12 * 32 * 12 * 4)

    @of_torchrun
    def test_torchrun(self):
        hosts = self.hosts("100mbit")
        flags = ["--node-rank", "{node}", "--master-addr", MEETING["MASTER_ADDR"], "--master-port",
                 MEETING["MASTER_PORT"]]
        self.expect_bits_of_threads(2, lambda arguments: self.agents_of(hosts, arguments, *flags))

    @of_mpi
    def test_mpi(self):
        hosts = self.hosts("1gbit")
        for stages in (2, 4):
            with self.subTest(stages=stages):
                before = hosts.bytes_sent("a")
                self.expect_bits_of_threads(stages, lambda arguments: self.mpirun_of(hosts, stages, arguments))
                self.assertGreater(hosts.bytes_sent("a") - before, 12 * 32 * 12 * 4)


class Profile(TwoHostsRuns):
    def link_of(self, start):
        """`start` takes a command line and returns its processes."""
        costs = self.path("costs")
        self.end_of(start(["plan", "--profile", "--hidden", "24,16", "--batch-size", "32", "--stages", "2", "--steps",
                           "1", "--schedules", "1f1b", "--costs-file", costs]))
        with open(costs) as file:
            return json.load(file)["link"]

    def test_the_wire_is_measured(self):
        bytes_per_ms = 100e6 / 8 / 1000
        link = self.link_of(lambda arguments: self.ranks_of(self.hosts("100mbit"), 2, arguments))
        self.assertGreater(link["latency"], 0)
        # The wire is never faster, and a busy machine not so much slower.
        self.assertLess(link["bytes_per_unit"], 1.1 * bytes_per_ms)
        self.assertGreater(link["bytes_per_unit"], 0.3 * bytes_per_ms)
        self.assertEqual(self.link_of(lambda arguments: [self.start(*arguments)])["bytes_per_unit"], 0)


class CutWire(TwoHostsRuns):
    def endless(self, *flags):
        return self.arguments("--steps", "100000000", "--log-every", "1", "--deadline", str(DEADLINE_S), *flags)

    def test_all_ranks_end(self):
        hosts = self.hosts("1gbit")
        ranks = self.ranks_of(hosts, 4, self.endless("--stages", "4", "--hidden", "24,20,16,12"))
        self.wait_for(lambda: ranks[0].output().count("loss is") > 5, *ranks)
        hosts.cut()
        begin = time.monotonic()
        for run in ranks:
            self.assertEqual(run.wait(DEADLINE_S + BOUND_S), 1, run.text())
        seconds = time.monotonic() - begin
        print(f"all ranks have ended {seconds:.2f} s after the cut, with a deadline of {DEADLINE_S} s", flush=True)
        self.assertLess(seconds, DEADLINE_S + BOUND_S)
        for number, run in enumerate(ranks):
            with self.subTest(rank=number):
                # The ranks of the other host, of which at least one is named.
                others = "[23]" if number < 2 else "[01]"
                self.assertRegex("\n".join(run.complaints()), rf"rank {others}\b", run.text())
        self.assertEqual([hosts.processes(name) for name in NAMES], [[], []])

    # Open MPI's own processes wait for each other for ever, or until somebody ends them.
    @of_mpi
    def test_all_ranks_of_mpirun_end(self):
        hosts = self.hosts("1gbit")
        [run] = self.mpirun_of(hosts, 4, self.endless("--stages", "4", "--hidden", "24,20,16,12"))
        self.wait_for(lambda: run.output().count("loss is") > 5, run)
        ranks = [process for name in NAMES for process in hosts.processes(name) if is_rank(process)]
        self.assertEqual(len(ranks), 4)
        hosts.cut()
        begin = time.monotonic()
        self.wait_for(lambda: not any(map(training_runs.program_runs.is_running, ranks)), run)
        seconds = time.monotonic() - begin
        print(f"all ranks of mpirun have ended {seconds:.2f} s after the cut, with a deadline of {DEADLINE_S} s",
              flush=True)
        self.assertLess(seconds, DEADLINE_S + BOUND_S)
        self.assertRegex("\n".join(run.complaints()), r"rank [23]\b.* \(no sign of life for 3 s\)", run.text())

    @of_torchrun
    def test_the_job_goes_on_when_the_wire_is_back(self):
        steps = ("--steps", "400", "--checkpoint-every", "50steps", "--log-every", "1", "--deadline", str(DEADLINE_S))
        self.finished(*self.arguments(*steps, "--checkpoint", self.fresh("undisturbed")))
        hosts = self.hosts()
        run = self.fresh("run")
        agents = self.agents_of(hosts, self.arguments(*steps, "--checkpoint", run, "--resume", "auto"),
                                "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                f"{ADDRESSES['a']}:29400", "--rdzv-conf", "is_host={is_first}",
                                "--monitor-interval", "0.1")
        self.wait_for(lambda: newest_of(run), *agents)
        hosts.cut()
        self.assertLess(step_of(newest_of(run)), 400)
        first = [process for name in NAMES for process in hosts.processes(name) if is_rank(process)]
        self.assertEqual(len(first), 2)
        self.wait_for(lambda: not any(map(training_runs.program_runs.is_running, first)), *agents)
        hosts.mend()
        for agent in agents:
            self.assertEqual(agent.wait(), 0, [each.text() for each in agents])
        self.assertEqual(contents(run), contents(self.path("undisturbed")))


class KilledFineTuning(TwoHostsRuns):
    def tiny_model(self):
        """The directory of a Llama model without weights, and a file of tokens as nanoGPT writes it."""
        directory, tokens = self.path("tiny"), self.path("tokens.bin")
        os.mkdir(directory)
        with open(os.path.join(directory, "config.json"), "w") as file:
            json.dump({"architectures": ["LlamaForCausalLM"], "vocab_size": 61, "hidden_size": 32,
                       "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
                       "intermediate_size": 48, "max_position_embeddings": 32, "tie_word_embeddings": True}, file)
        with open(tokens, "wb") as file:
            array.array("H", random.Random(1).choices(range(61), k=2000)).tofile(file)
        return directory, tokens

    def expect_bits_of_the_undisturbed_run(self, model, tokens, *flags):
        steps = int(flags[flags.index("--steps") + 1])
        training = ["train", "--model", "hf:" + model, "--data", tokens, "--stages", "2", "--lora", "4",
                    "--lora-targets", "q,k,v,o", "--trained-only", "--optimizer", "adamw", "--lr", "1e-3",
                    "--batch-size", "4", "--log-every", "1", "--deadline", "60", *flags]
        self.finished(*training, "--checkpoint", self.fresh("undisturbed"))
        hosts, run = self.hosts(), self.fresh("run")
        resuming = [*training, "--checkpoint", run, "--resume", "auto"]
        ranks = self.ranks_of(hosts, 2, resuming)
        self.wait_for(lambda: newest_of(run), *ranks)
        for process in filter(is_rank, hosts.processes("b")):
            os.kill(process, signal.SIGKILL)
        self.assertEqual([rank.wait() for rank in ranks], [1, -signal.SIGKILL], ranks[0].text())
        killed_after = step_of(newest_of(run))
        self.assertLess(killed_after, steps)
        ranks = self.ranks_of(hosts, 2, resuming)
        self.assertEqual(len(self.end_of(ranks)), steps - killed_after)
        resumed = contents(run)
        self.assertEqual(resumed["step"], steps)
        self.assertTrue(all(".lora_" in name for _, name in resumed["tensors"]), resumed["tensors"])
        self.assertEqual(resumed, contents(self.path("undisturbed")))

    def test_adapters_of_a_tiny_model(self):
        model, tokens = self.tiny_model()
        self.expect_bits_of_the_undisturbed_run(model, tokens, "--init", "random", "--context", "16", "--steps", "400",
                                                "--checkpoint-every", "20steps")

    def test_adapters_of_smollm2(self):
        if not WITH_SMOLLM2:
            self.skipTest("takes a minute: --smollm2")
        tokens = self.path("play.tokens")
        self.finished("tokenize", "--model", "hf:" + SMOLLM2, "--output", tokens,
                      os.path.join(training_runs.DATA, "text", "tinyshakespeare.txt"))
        self.expect_bits_of_the_undisturbed_run(os.path.abspath(SMOLLM2), tokens, "--context", "32", "--steps", "12",
                                                "--checkpoint-every", "3steps")


if __name__ == "__main__":
    two_hosts.enter_own_network()
    BOUND_S, WITH_SMOLLM2 = training_runs.read_arguments(bound=BOUND_S, smollm2=WITH_SMOLLM2)
    if reason := two_hosts.why_not():
        print(reason)
        sys.exit(SKIPPED)
    training_runs.main()
