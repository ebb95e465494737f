"""The verb `launch`: ranks are small shell scripts.

Usage: launch_verb_test.py PENSTOCK
"""

import os
import shutil
import signal
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from program_runs import ENVIRONMENT, WATCHDOG_S, InFolder, still_running

PROGRAM = ""
# Longer than a test: what ends in time was ended.
LONG = "sleep 1000"

class Launches(InFolder):
    write = InFolder.write_executable

    def launch(self, *arguments, script=None, environment=ENVIRONMENT, **how):
        """Exit code, standard output and error. `script`: what every rank runs."""
        done = subprocess.run(self.command(arguments, script), cwd=self.folder, text=True, timeout=WATCHDOG_S,
                              capture_output=True, env=environment, **how)
        return done.returncode, done.stdout, done.stderr

    def command(self, arguments, script):
        return [PROGRAM, "launch", *arguments, *(["--", "sh", "-c", script] if script else [])]

    def start(self, *arguments, script, rank_count, environment=ENVIRONMENT, first="true"):
        """A running job: the process of launch, and those of its ranks after they have run `first`."""
        hello = self.path("hello")
        os.mkdir(hello)
        run = subprocess.Popen(self.command(arguments, f"{first}; echo $$ > {hello}/$RANK.part; mv {hello}/$RANK.part "
                                                   f"{hello}/$RANK; {script}"),
                               cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=environment)
        self.addCleanup(self.end, run)
        names = [str(rank) for rank in range(rank_count)]
        self.wait_until(run, lambda: sorted(os.listdir(hello)) == names)
        return run, [int(self.read("hello", name)) for name in names]

    def complaint_of(self, *arguments, **how):
        code, out, err = self.launch(*arguments, **how)
        self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
        self.assertTrue(err.startswith("penstock: "), err)
        return err[len("penstock: "):-1]

    def files(self, *names):
        folder = self.path(*names)
        return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, found in os.walk(folder)
                      for name in found)


class LaunchVerb(Launches):
    # Logs

    def test_every_rank_has_its_logs(self):
        code, out, err = self.launch("-n", "3", "--log-dir", "logs", script=f"echo out $RANK; echo err $RANK >&2")
        self.assertEqual((code, out), (0, "out 0\n"))
        self.assertRegex(err, r"^penstock: info: 3 ranks; logs: logs/1\nerr 0\n$")
        self.assertEqual(self.files("logs"), ["1/launch.log", *(f"1/rank.{rank}/{stream}" for rank in range(3)
                                                                for stream in ("stderr", "stdout"))])
        for rank in range(3):
            self.assertEqual(self.read("logs", "1", f"rank.{rank}", "stdout"), f"out {rank}\n")
            self.assertEqual(self.read("logs", "1", f"rank.{rank}", "stderr"), f"err {rank}\n")
        journal = self.read("logs/1/launch.log").splitlines()
        self.assertEqual(journal[0], '3 ranks: sh -c "echo out $RANK; echo err $RANK >&2"')
        self.assertEqual(sorted(journal[1:4]), [f"rank {rank}: exit code 0" for rank in range(3)])
        self.assertEqual(journal[4:], ["job: exit code 0"])

    def test_tee(self):
        script = f"echo out $RANK; echo err $RANK >&2"
        for tee, out, err in (("none", [], []), ("first", ["out 0"], ["err 0"]),
                              ("all", ["[rank 0] out 0", "[rank 1] out 1"], ["[rank 0] err 0", "[rank 1] err 1"])):
            _, shown, remarks = self.launch("-n", "2", "--tee", tee, script=script)
            self.assertEqual(sorted(shown.splitlines()), out)
            self.assertEqual(sorted(line for line in remarks.splitlines() if "penstock" not in line), err)

    def test_standard_input_reaches_rank_0(self):
        code, out, _ = self.launch("-n", "2", script=f"[ $RANK = 1 ] || cat", input="said\n")
        self.assertEqual((code, out), (0, "said\n"))

    # Failures

    def test_the_first_failure_is_the_last_block(self):
        script = f"echo starting; [ $RANK != 1 ] && exec {LONG}; for i in $(seq 30); do echo line $i >&2; done; exit 3"
        code, _, err = self.launch("-n", "3", script=script)
        self.assertEqual(code, 3)
        block = ["penstock: rank 1 of 3 failed first: exit code 3; log_output/1/rank.1/stderr ends with",
                 *(f"  | line {i}" for i in range(11, 31))]
        self.assertEqual(err.splitlines()[-21:], block)
        self.assertEqual(self.read("log_output/1/launch.log").splitlines()[1], "rank 1: exit code 3")
        self.assertEqual(self.read("log_output/1/launch.log").splitlines()[-1], "job: exit code 3")

    def test_a_rank_that_writes_to_standard_output_alone(self):
        code, _, err = self.launch("-n", "2", script=f"[ $RANK = 0 ] && exec {LONG}; echo said; exit 7")
        self.assertEqual(code, 7)
        self.assertTrue(err.endswith("\npenstock: rank 1 of 2 failed first: exit code 7; log_output/1/rank.1/stdout "
                                     "ends with\n  | said\n"), err)

    def test_a_rank_that_is_killed(self):
        run, ranks = self.start("-n", "3", script=LONG, rank_count=3)
        os.kill(ranks[2], signal.SIGKILL)
        _, err = run.communicate(timeout=WATCHDOG_S)
        self.assertEqual(run.returncode, 128 + 9)
        self.assertTrue(err.endswith("\npenstock: rank 2 of 3 failed first: signal 9 (Killed); it wrote nothing "
                                     "(log_output/1/rank.2/stdout)\n"), err)
        self.assertEqual(still_running(ranks), [])

    def test_failures_during_the_clean_up_are_not_the_cause(self):
        # Rank 0 exits with its own code after SIGTERM; rank 2 was killed before.
        run, ranks = self.start("-n", "3", script=f"trap 'exit 77' TERM; {LONG} & wait", rank_count=3)
        os.kill(ranks[2], signal.SIGKILL)
        _, err = run.communicate(timeout=WATCHDOG_S)
        self.assertEqual(run.returncode, 128 + 9, err)
        self.assertIn("penstock: rank 2 of 3 failed first: signal 9 (Killed)", err)

    def test_a_rank_that_cannot_be_started(self):
        self.write("broken", "#!/no/such/interpreter\n")
        code, _, err = self.launch("-n", "2", "--", "./broken")
        self.assertEqual(code, 127)
        self.assertRegex(err.splitlines()[-1], r"^  \| penstock: \./broken: cannot be started: No such file")
        self.assertEqual(self.launch("-n", "2", "--", "./nothing")[0], 127)

    # Signals

    def test_signals_end_the_job(self):
        for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            run, ranks = self.start("-n", "2", first="trap 'echo asked to end; exit 0' TERM", script=f"{LONG} & wait",
                                    rank_count=2)
            run.send_signal(sent)
            _, err = run.communicate(timeout=WATCHDOG_S)
            self.assertEqual(run.returncode, 128 + sent, err)
            self.assertIn(f"penstock: info: ended by signal {sent.value}", err)
            self.assertNotIn("failed first", err)
            self.assertEqual(still_running(ranks), [])
            self.assertEqual(self.read("log_output/1/rank.1/stdout"), "asked to end\n")
            shutil.rmtree(self.path("hello"))
            shutil.rmtree(self.path("log_output"))

    def test_nothing_outlives_launch(self):
        run, ranks = self.start("-n", "2", script=f"exec {LONG}", rank_count=2)
        run.kill()
        run.wait()
        self.assertEqual(still_running(ranks), [])

    def test_ignored_signals_are_not_forwarded(self):
        # As nohup does.
        run, ranks = self.start("-n", "1", script="while [ ! -e go ]; do sleep 0.01; done", rank_count=1)
        self.end(run)
        shutil.rmtree(self.path("hello"))
        ours = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            run, ranks = self.start("-n", "1", script="while [ ! -e go ]; do sleep 0.01; done", rank_count=1)
        finally:
            signal.signal(signal.SIGHUP, ours)
        run.send_signal(signal.SIGHUP)
        self.write("go", "")
        run.communicate(timeout=WATCHDOG_S)
        self.assertEqual(run.returncode, 0)

    def test_nothing_outlives_the_job(self):
        code, _, err = self.launch("-n", "2", script=f"setsid sh -c 'echo $$ > part.$RANK; mv part.$RANK left.$RANK; "
                                                     f"exec {LONG}' & while [ ! -e left.$RANK ]; do sleep 0.01; done")
        self.assertEqual(code, 0, err)
        self.assertEqual(still_running([int(self.read(f"left.{rank}")) for rank in (0, 1)]), [])

    # Restarts

    def test_restarts(self):
        # Fails twice, then finds two marks and succeeds.
        script = f"[ $RANK = 1 ] || exit 0; echo x >> tries; [ $(wc -l < tries) = 3 ] || exit 4"
        code, _, err = self.launch("-n", "2", "--restarts", "5", script=script)
        self.assertEqual(code, 0, err)
        self.assertEqual(sorted(os.listdir(self.path("log_output"))), ["1", "2", "3"])
        self.assertIn("penstock: info: attempt 2 begins anew after rank 1 of 2: exit code 4; 4 restarts left\n", err)
        self.assertIn("penstock: info: attempt 3 begins anew after rank 1 of 2: exit code 4; 3 restarts left\n", err)
        self.assertEqual(err.count("failed first"), 2)

    # Ways to start

    def test_verbs_are_programs(self):
        code, out, _ = self.launch("-n", "2", "--", "schedule", "show", "1f1b", "--stages", "2", "--micro-batches", "2")
        self.assertEqual(code, 0)
        self.assertEqual(out, self.read("log_output/1/rank.1/stdout"))
        self.assertIn("rank 1 |", out)

    def test_arguments_of_the_program_are_not_parsed(self):
        arguments = ["[1,2]", "a b", "", "it's", "--log-dir", "x", "--", "-n"]
        code, out, _ = self.launch("-n", "1", "--", "printf", "<%s>", *arguments)
        self.assertEqual((code, out), (0, "".join(f"<{argument}>" for argument in arguments)))

    def test_many_lines_come_through_whole(self):
        counting = f"i=0; while [ $i -lt 10000 ]; do echo rank $RANK line $i; i=$((i + 1)); done"
        code, out, _ = self.launch("-n", "2", "--tee", "all", script=counting)
        self.assertEqual(code, 0)
        wanted = {rank: [f"rank {rank} line {i}" for i in range(10000)] for rank in (0, 1)}
        shown = out.splitlines()
        for rank, lines in wanted.items():
            self.assertEqual(self.read("log_output", "1", f"rank.{rank}", "stdout").splitlines(), lines)
            mark = f"[rank {rank}] "
            self.assertEqual([line for line in shown if line.startswith(mark)], [mark + line for line in lines])
        self.assertEqual(len(shown), 20000)

    VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

    def test_ranks_have_the_variables_of_torchrun(self):
        values = " ".join(f"${name}" for name in self.VARIABLES)
        # As within `srun -n 1` and `mpirun -n 1`.
        foreign = {"SLURM_PROCID": "7", "PMIX_RANK": "0", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1",
                   "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMI_RANK": "0",
                   "PMI_SIZE": "1", "MPI_LOCALRANKID": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}
        others = {**foreign, "MASTER_PORT": "7", "SLURM_STEP_NUM_TASKS": "1"}
        foreign_values = " ".join(f"${name}" for name in foreign)
        code, _, err = self.launch("-n", "2", "--restarts", "1", environment={**ENVIRONMENT, **others}, script=(
            f"echo {values} {foreign_values}; exit 3"))
        self.assertEqual(code, 3, err)
        said = {(attempt, rank): self.read("log_output", attempt, f"rank.{rank}", "stdout").split()
                for attempt in ("1", "2") for rank in (0, 1)}
        for (_, rank), words in said.items():
            self.assertEqual(words[:-1], [str(rank), str(rank), "2", "2", "127.0.0.1"])
        ports = [{int(said[attempt, rank][-1]) for rank in (0, 1)} for attempt in ("1", "2")]
        self.assertEqual([len(of_attempt) for of_attempt in ports], [1, 1])
        self.assertNotEqual(*ports)
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first_given = int(file.read().split()[0])
        for (port,) in ports if first_given > 10000 else []:
            self.assertTrue(10000 <= port < first_given, port)

    def test_ranks_that_do_not_end_are_killed(self):
        run, ranks = self.start("-n", "2", script="trap '' TERM; while :; do sleep 0.01; done", rank_count=2)
        os.kill(ranks[1], signal.SIGKILL)
        _, err = run.communicate(timeout=WATCHDOG_S)
        self.assertEqual(run.returncode, 128 + 9)
        self.assertIn("penstock: rank 1 of 2 failed first: signal 9 (Killed)", err)
        self.assertEqual(still_running(ranks), [])

    def test_a_terminal_is_not_read(self):
        master, terminal = os.openpty()
        self.addCleanup(os.close, master)
        code, out, err = self.launch("-n", "1", script="cat; echo read", stdin=terminal)
        os.close(terminal)
        self.assertEqual((code, out), (0, "read\n"), err)

    def test_nothing_is_overwritten(self):
        for attempt in ("1", "2"):
            self.launch("-n", "2", script=f"echo attempt {attempt}")
        self.assertEqual([self.read("log_output", attempt, "rank.1/stdout") for attempt in ("1", "2")],
                         ["attempt 1\n", "attempt 2\n"])

    def test_one_file_for_each_worker(self):
        layout = ("-n", "2", "--log-dir", "logs", "--log-layout", "worker")
        for attempt in ("first", "second"):
            code, _, _ = self.launch(*layout, "--tee", "none", script=f"echo {attempt} out; echo {attempt} err >&2")
            self.assertEqual(code, 0)
        self.assertEqual(self.files("logs"), ["launch.2.log", "launch.log", "worker_0.2.log", "worker_0.log",
                                              "worker_1.2.log", "worker_1.log"])
        self.assertEqual(self.read("logs/worker_1.log"), "first out\nfirst err\n")
        self.assertEqual(self.read("logs/worker_1.2.log"), "second out\nsecond err\n")

    def test_misuse(self):
        for arguments, complaint in (
                (["-n", "2"], "which program? Write it after --: penstock launch -n 2 -- train --stages 2, or -- "
                              "./my_program"),
                (["-n", "2", "--"], "which program?"),
                (["-n", "2", "train", "--stages", "2"],
                 "'train' is not a flag of launch; the program and its own arguments go after --: "
                 "penstock launch -n 2 -- train --stages 2"),
                (["-n", "2", "--colour", "--", "true"], "'--colour' is not a flag of launch"),
                (["--", "true"], "-n 0: a job has at least 1 rank: penstock launch -n 2 -- train --stages 2"),
                (["-n", "-1", "--", "true"], "-n -1: a job has at least 1 rank"),
                (["-n", "two", "--", "true"], "--ranks two: pass a whole number"),
                (["-n", "1", "--log-layout", "flat", "--", "true"], "--log-layout: flat not in {rank,worker}"),
                (["-n", "1", "--restarts", "-1", "--", "true"], "--restarts -1: pass a whole number of at least 0"),
                (["-n", "1", "--grace", "-1", "--", "true"], "--grace -1: pass a number from 0 to 1e+06"),
                (["-n", "1", "--", "launch", "-n", "1"], "launch does not start itself: its own flags go before --"),
                (["-n", "1", "--log-dir", "/dev/null", "--", "true"], "logs cannot be written to /dev/null: "),
                (["--hosts", "a:2,b:2", "--", "true"],
                 "launch has no --hosts: start ranks on several hosts with mpirun --host a:2,b:2 PROGRAM, or with "
                 "torchrun on each host"),
                (["--elastic", "2:4", "--restarts", "1", "--", "train"],
                 "launch has no --elastic: torchrun --nnodes 1:4 --max-restarts 100 --no-python penstock train --stages "
                 "auto --resume auto"),
                (["--host-discovery=./hosts", "--", "train"], "launch has no --host-discovery: torchrun --nnodes 1:4"),
                (["-n", "2", "--transport", "gloo", "--", "true"],
                 "launch has no --transport: launch starts ranks that Gloo joins; for MPI: mpirun -n 2 PROGRAM"),
                (["-n", "2", "--launcher", "srun", "--", "true"],
                 "launch has no --launcher: start MPI jobs directly: "),
                (["-n", "2", "--bind", "core", "--", "true"],
                 "launch has no --bind: mpirun -n 2 --bind-to core PROGRAM"),
                (["-n", "2", "--dry-run", "--", "true"], "launch has no --dry-run: ")):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.complaint_of(*arguments)[:len(complaint)], complaint)
        self.assertEqual(os.listdir(self.folder), [])

    def test_inside_a_job(self):
        environment = {**ENVIRONMENT, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
        self.assertIn("each would start a whole job", self.complaint_of("-n", "2", script="true",
                                                                        environment=environment))
        self.assertEqual(self.complaint_of("-n", "2", script="true", environment={**ENVIRONMENT, "RANK": "1"}),
                         "the environment has RANK = 1 but no WORLD_SIZE, so each process would run the whole job: set "
                         "both, or unset RANK")

    def test_inside_a_world_of_one_process(self):
        for variables in ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
                          {"PMI_RANK": "0", "PMI_SIZE": "1"},
                          {"PMIX_RANK": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}):
            with self.subTest(variables=variables):
                code, out, err = self.launch("-n", "2", script="echo $RANK of $WORLD_SIZE",
                                             environment={**ENVIRONMENT, **variables})
                self.assertEqual((code, out), (0, "0 of 2\n"), err)

    def test_help_has_an_example(self):
        self.assertIn("Example:\n  penstock launch -n 2 -- train", self.launch("--help")[1])


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1], verbosity=2)
