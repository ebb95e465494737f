"""The verb `launch`: ranks are small shell scripts, started by the real mpirun if there is one, and by launch itself.

Usage: launch_verb_test.py PENSTOCK
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
from program_runs import ENVIRONMENT, WATCHDOG_S, InFolder, still_running

PROGRAM = ""
MPIRUN = shutil.which("mpirun")

RANK = "${OMPI_COMM_WORLD_RANK:-$RANK}"

# Longer than a test: what ends in time was ended.
LONG = "sleep 1000"

# Gives ranks three seconds to end after SIGTERM, in place of one: a busy machine may need them.
UNHURRIED = {**ENVIRONMENT, "OMPI_MCA_odls_base_sigkill_timeout": "3"}

# Starts the program once per task, as srun does, and returns the first failure.
SRUN = """\
#!/bin/sh
echo "$@" > srun_arguments
while [ "${1#--}" != "$1" ]; do
  case $1 in --ntasks=*) tasks=${1#--ntasks=} ;; esac
  shift
done
code=0
for task in $(seq 0 $((tasks - 1))); do
  SLURM_PROCID=$task PMIX_RANK=$task "$@" || code=$?
done
exit $code
"""


class Launches(InFolder):
    write = InFolder.write_executable
    how = ()  # flags of all jobs of a class

    def journal(self, path):
        """Its lines, without those about Open MPI's files on each host."""
        return [line for line in self.read(path).splitlines() if not line.startswith("host ")]

    def launch(self, *arguments, script=None, environment=ENVIRONMENT, **how):
        """Exit code, standard output and error. `script`: what every rank runs."""
        done = subprocess.run(self.command(arguments, script), cwd=self.folder, text=True, timeout=WATCHDOG_S,
                              capture_output=True, env=environment, **how)
        return done.returncode, done.stdout, done.stderr

    def command(self, arguments, script):
        return [PROGRAM, "launch", *self.how, *arguments, *(["--", "sh", "-c", script] if script else [])]

    def start(self, *arguments, script, rank_count, environment=ENVIRONMENT, first="true"):
        """A running job: the process of launch, and those of its ranks after they have run `first`."""
        hello = self.path("hello")
        os.mkdir(hello)
        run = subprocess.Popen(self.command(arguments, f"{first}; echo $$ > {hello}/{RANK}.part; mv {hello}/{RANK}.part "
                                                   f"{hello}/{RANK}; {script}"),
                               cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=environment)
        self.addCleanup(self.end, run)
        names = [str(rank) for rank in range(rank_count)]
        until = time.monotonic() + WATCHDOG_S
        while sorted(os.listdir(hello)) != names:
            self.assertLess(time.monotonic(), until, "the ranks do not start")
            time.sleep(0.01)
        return run, [int(self.read("hello", name)) for name in names]

    def end(self, run):
        run.kill()
        run.wait()
        run.stdout.close()
        run.stderr.close()

    def complaint_of(self, *arguments, **how):
        code, out, err = self.launch(*arguments, **how)
        self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
        self.assertTrue(err.startswith("penstock: "), err)
        return err[len("penstock: "):-1]

    def files(self, *names):
        folder = self.path(*names)
        return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, found in os.walk(folder)
                      for name in found)


class OverEither:
    """Jobs that do not depend on what starts their ranks."""

    # Logs

    def test_every_rank_has_its_logs(self):
        code, out, err = self.launch("-n", "3", "--log-dir", "logs", script=f"echo out {RANK}; echo err {RANK} >&2")
        self.assertEqual((code, out), (0, "out 0\n"))
        self.assertRegex(err, r"^penstock: info: 3 ranks( over Gloo)?( share \d cores?)?; logs: logs/1\nerr 0\n$")
        self.assertEqual(self.files("logs"), ["1/launch.log", *(f"1/rank.{rank}/{stream}" for rank in range(3)
                                                                for stream in ("stderr", "stdout"))])
        for rank in range(3):
            self.assertEqual(self.read("logs", "1", f"rank.{rank}", "stdout"), f"out {rank}\n")
            self.assertEqual(self.read("logs", "1", f"rank.{rank}", "stderr"), f"err {rank}\n")
        journal = self.journal("logs/1/launch.log")
        self.assertRegex(journal[0], rf"^{self.launcher} -n 3 .* -- sh -c 'echo out ")
        self.assertEqual(sorted(journal[1:4]), [f"rank {rank}: exit code 0" for rank in range(3)])
        self.assertEqual(journal[4:], ["job: exit code 0"])

    def test_tee(self):
        script = f"echo out {RANK}; echo err {RANK} >&2"
        for tee, out, err in (("none", [], []), ("first", ["out 0"], ["err 0"]),
                              ("all", ["[rank 0] out 0", "[rank 1] out 1"], ["[rank 0] err 0", "[rank 1] err 1"])):
            _, shown, remarks = self.launch("-n", "2", "--tee", tee, script=script)
            self.assertEqual(sorted(shown.splitlines()), out)
            self.assertEqual(sorted(line for line in remarks.splitlines() if "penstock" not in line), err)

    def test_standard_input_reaches_rank_0(self):
        code, out, _ = self.launch("-n", "2", script=f"[ {RANK} = 1 ] || cat", input="said\n")
        self.assertEqual((code, out), (0, "said\n"))

    # Failures

    def test_the_first_failure_is_the_last_block(self):
        script = f"echo starting; [ {RANK} != 1 ] && exec {LONG}; for i in $(seq 30); do echo line $i >&2; done; exit 3"
        code, _, err = self.launch("-n", "3", script=script)
        self.assertEqual(code, 3)
        block = ["penstock: rank 1 of 3 failed first: exit code 3; log_output/1/rank.1/stderr ends with",
                 *(f"  | line {i}" for i in range(11, 31))]
        self.assertEqual(err.splitlines()[-21:], block)
        self.assertEqual(self.journal("log_output/1/launch.log")[1], "rank 1: exit code 3")
        self.assertEqual(self.journal("log_output/1/launch.log")[-1], "job: exit code 3")

    def test_a_rank_that_writes_to_standard_output_alone(self):
        code, _, err = self.launch("-n", "2", script=f"[ {RANK} = 0 ] && exec {LONG}; echo said; exit 7")
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

    def parent_of(self, process):
        with open(f"/proc/{process}/stat") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])

    def test_a_supervisor_that_is_killed(self):
        # The launcher then ends the other ranks: their endings are recorded but are not the cause.
        run, ranks = self.start("-n", "3", script=f"echo at work; {LONG}", rank_count=3, environment=UNHURRIED)
        until = time.monotonic() + WATCHDOG_S
        while self.read("log_output/1/rank.1/stdout") != "at work\n":
            self.assertLess(time.monotonic(), until, "rank 1 writes nothing")
            time.sleep(0.01)
        os.kill(self.parent_of(ranks[1]), signal.SIGKILL)
        _, err = run.communicate(timeout=WATCHDOG_S)
        self.assertEqual(run.returncode, 128 + 9)
        self.assertTrue(err.endswith("\npenstock: rank 1 of 3 failed first: its supervisor (penstock launch-rank) was "
                                     "killed, and the rank with it; log_output/1/rank.1/stdout ends with\n"
                                     "  | at work\n"), err)
        self.assertEqual(still_running(ranks), [])
        journal = self.read("log_output/1/launch.log")
        for rank in (0, 2):
            self.assertIn(f"rank {rank}: told to end by signal 15 (Terminated)\n", journal)

    def test_failures_during_the_clean_up_are_not_the_cause(self):
        # Rank 0 exits with its own code after SIGTERM; rank 2 was killed before.
        run, ranks = self.start("-n", "3", script=f"trap 'exit 77' TERM; {LONG} & wait", rank_count=3,
                                environment=UNHURRIED)
        os.kill(ranks[2], signal.SIGKILL)
        _, err = run.communicate(timeout=WATCHDOG_S)
        self.assertEqual(run.returncode, 128 + 9, err)
        self.assertIn("penstock: rank 2 of 3 failed first: signal 9 (Killed)", err)

    def test_a_terminated_launcher_is_not_a_rank_failure(self):
        run, ranks = self.start("-n", "2", script=f"exec {LONG}", rank_count=2, environment=UNHURRIED)
        with open(f"/proc/{run.pid}/task/{run.pid}/children") as file:
            os.kill(int(file.read()), signal.SIGTERM)
        _, err = run.communicate(timeout=WATCHDOG_S)
        self.assertNotEqual(run.returncode, 0)
        self.assertNotIn("failed first", err)
        self.assertIn("but no rank failed by itself", err.splitlines()[-1])
        self.assertEqual(still_running(ranks), [])

    def test_a_rank_that_cannot_be_started(self):
        self.write("broken", "#!/no/such/interpreter\n")
        code, _, err = self.launch("-n", "2", "--", "./broken")
        self.assertEqual(code, 127)
        self.assertRegex(err.splitlines()[-1], r"^  \| penstock: \./broken: cannot be started: No such file")

    # Signals

    def test_signals_end_the_job(self):
        for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            run, ranks = self.start("-n", "2", first="trap 'echo asked to end; exit 0' TERM", script=f"{LONG} & wait",
                                    rank_count=2, environment=UNHURRIED)
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
        run, ranks = self.start("-n", "2", script=LONG, rank_count=2)
        run.kill()
        run.wait()
        self.assertEqual(still_running(ranks), [])

    def test_nothing_outlives_the_launcher(self):
        run, ranks = self.start("-n", "2", script=LONG, rank_count=2)
        with open(f"/proc/{run.pid}/task/{run.pid}/children") as file:
            os.kill(int(file.read()), signal.SIGKILL)
        _, err = run.communicate(timeout=WATCHDOG_S)
        self.assertEqual(run.returncode, 128 + 9)
        self.assertIn("the launcher ended with signal 9 (Killed)", err.splitlines()[-1])
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
        code, _, err = self.launch("-n", "2", script=f"setsid sh -c 'echo $$ > part.{RANK}; mv part.{RANK} left.{RANK}; "
                                                     f"exec {LONG}' & while [ ! -e left.{RANK} ]; do sleep 0.01; done")
        self.assertEqual(code, 0, err)
        self.assertEqual(still_running([int(self.read(f"left.{rank}")) for rank in (0, 1)]), [])

    # Restarts

    def test_restarts(self):
        # Fails twice, then finds two marks and succeeds.
        script = f"[ {RANK} = 1 ] || exit 0; echo x >> tries; [ $(wc -l < tries) = 3 ] || exit 4"
        code, _, err = self.launch("-n", "2", "--restarts", "5", script=script)
        self.assertEqual(code, 0, err)
        self.assertEqual(sorted(os.listdir(self.path("log_output"))), ["1", "2", "3"])
        self.assertIn("penstock: info: attempt 2 begins anew after rank 1 of 2: exit code 4; 4 restarts left\n", err)
        self.assertIn("penstock: info: attempt 3 begins anew after rank 1 of 2: exit code 4; 3 restarts left\n", err)
        self.assertEqual(err.count("failed first"), 2)

    def test_misuse_is_not_restarted(self):
        code, _, err = self.launch("-n", "2", "--restarts", "3", "--", "schedule", "show", "gpype")
        self.assertEqual(code, 2)
        self.assertIn("no schedule is called 'gpype'", err.splitlines()[-1])
        self.assertEqual(os.listdir(self.path("log_output")), ["1"])

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

    def test_one_host_named_twice(self):
        code, _, err = self.launch("--hosts", "localhost:1,localhost:1", "--tee", "all", script=f"echo {RANK}")
        self.assertEqual((code, self.files("log_output/1")), (0, ["launch.log", "rank.0/stderr", "rank.0/stdout",
                                                                  "rank.1/stderr", "rank.1/stdout"]), err)


@unittest.skipUnless(MPIRUN, "there is no mpirun")
class OverMpi(OverEither, Launches):
    how = ("--transport", "mpi")
    launcher = "mpirun"

    def test_many_lines_come_through_whole(self):
        counting = f"i=0; while [ $i -lt 10000 ]; do echo rank {RANK} line $i; i=$((i + 1)); done"
        code, out, _ = self.launch("-n", "2", "--tee", "all", script=counting)
        self.assertEqual(code, 0)
        wanted = {rank: [f"rank {rank} line {i}" for i in range(10000)] for rank in (0, 1)}
        shown = out.splitlines()
        for rank, lines in wanted.items():
            self.assertEqual(self.read("log_output", "1", f"rank.{rank}", "stdout").splitlines(), lines)
            mark = f"[rank {rank}] "
            self.assertEqual([line for line in shown if line.startswith(mark)], [mark + line for line in lines])
        self.assertEqual(len(shown), 20000)

    def test_a_host_that_is_not_there(self):
        code, _, err = self.launch("--hosts", "no-such-host.invalid:2", script="true", environment={
            **ENVIRONMENT, "OMPI_MCA_plm_rsh_agent": "/bin/false"})
        self.assertNotEqual(code, 0)
        self.assertIn("no ending is recorded in log_output/1/launch.log", err.splitlines()[-1])

    def test_two_hosts(self):
        # Two names of this machine; a script in place of ssh runs commands here. Each host has a folder of its own for
        # temporary files, because the daemons would race for a common one.
        self.write("agent", "#!/bin/sh\nexport TMPDIR=$0.$1\nmkdir -p $TMPDIR\nshift\nexec sh -c \"$*\"\n")
        code, _, err = self.launch("--hosts", "one:2,two:2", script=f"echo rank {RANK} node $OMPI_COMM_WORLD_NODE_RANK",
                                   environment={**ENVIRONMENT, "OMPI_MCA_plm_rsh_agent": self.path("agent"),
                                                "OMPI_MCA_orte_keep_fqdn_hostnames": "1"})
        self.assertEqual(code, 0, err)
        self.assertIn("penstock: info: 4 ranks on 2 hosts; logs: log_output/1\n", err)
        said = [self.read("log_output/1", f"rank.{rank}/stdout") for rank in range(4)]
        self.assertEqual(said, [f"rank {rank} node {rank % 2}\n" for rank in range(4)])

    @unittest.skipUnless(os.geteuid() == 0, "for root alone")
    def test_root_gets_the_variables_to_set(self):
        environment = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("OMPI_")}
        code, out, err = self.launch("-n", "2", script="true", environment=environment)
        self.assertEqual((code, out), (1, ""))
        self.assertIn("OMPI_ALLOW_RUN_AS_ROOT=1", err)  # mpirun's message
        self.assertIn("the launcher's own messages are above", err.splitlines()[-1])


class OverGloo(OverEither, Launches):
    how = ("--transport", "gloo")
    launcher = r"/.*/penstock launch-local"
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

    def test_restarts_are_limited(self):
        code, _, err = self.launch("-n", "1", "--restarts", "1", script="exit 4")
        self.assertEqual((code, err.count("failed first")), (4, 2))


class LaunchVerb(Launches):
    def test_a_launcher_without_ranks_is_not_awaited(self):
        # mpirun takes up to two seconds after a failure; this one more than the test has.
        self.write("mpirun", '#!/bin/sh\nwhile [ "${1#/}" = "$1" ]; do shift; done\n'
                             f'OMPI_COMM_WORLD_RANK=0 "$@"\nexec {LONG}\n')
        code, out, err = self.launch("-n", "1", "--launcher", "./mpirun", script="echo last words; exit 3")
        self.assertEqual((code, out), (3, "last words\n"), err)

    def test_srun(self):
        self.write("srun", SRUN)
        code, out, err = self.launch("-n", "2", "--launcher", "./srun",
                                     script="echo task $SLURM_PROCID; exit $PMIX_RANK")
        self.assertEqual((code, out), (1, "task 0\n"))
        self.assertEqual(self.read("log_output/1/rank.1/stdout"), "task 1\n")
        self.assertTrue(err.endswith("penstock: rank 1 of 2 failed first: exit code 1; log_output/1/rank.1/stdout ends "
                                     "with\n  | task 1\n"), err)
        self.assertTrue(self.read("srun_arguments").startswith("--ntasks=2 --mpi=pmix --kill-on-bad-exit=1 "))

    def test_a_dry_run_starts_nothing(self):
        code, out, err = self.launch("--hosts", "a:2,b:2", "--dry-run", script="touch started")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^mpirun -n 4 --host a:2,b:2 .* launch-rank .* -- sh -c 'touch started'\n$")
        self.assertEqual(os.listdir(self.folder), [])

    def test_misuse(self):
        for arguments, complaint in (
                (["-n", "2"], "which program? Write it after --: penstock launch -n 2 -- train --stages 2, or -- "
                              "./my_program"),
                (["-n", "2", "--"], "which program?"),
                (["-n", "2", "train", "--stages", "2"],
                 "'train' is no flag of launch; the program and its own arguments go after --: "
                 "penstock launch -n 2 -- train --stages 2"),
                (["-n", "2", "--colour", "--", "true"], "'--colour' is no flag of launch"),
                (["--", "true"], "how many ranks? Give -n, or hosts with what each takes (--hosts a:2,b:2)"),
                (["-n", "-1", "--", "true"], "-n -1, but a job has at least 1 rank"),
                (["-n", "two", "--", "true"], "Could not convert: --ranks = two"),
                (["--hosts", "a:0", "--", "true"], "hosts 'a:0': '0' is not a number of ranks for a; write hosts as "
                                                   "a:2,b:2"),
                (["-n", "1", "--log-layout", "flat", "--", "true"], "--log-layout: flat not in {rank,worker}"),
                (["-n", "1", "--restarts", "-1", "--", "true"], "--restarts -1, but there can be 0 or more"),
                (["-n", "1", "--", "./nothing"], "there is no program './nothing' that can be started"),
                (["-n", "1", "--", "launch", "-n", "1"], "launch does not start itself: its own flags go before --"),
                (["-n", "1", "--log-dir", "/dev/null", "--", "true"], "logs cannot be written to /dev/null: "),
                (["-n", "1", "--transport", "tcp", "--", "true"], "--transport: tcp not in {auto,mpi,gloo}"),
                (["-n", "2", "--transport", "mpi", "--", "train", "--transport", "nccl"],
                 "launch --transport mpi starts ranks that the program's --transport nccl does not join"),
                (["-n", "1", "--transport", "gloo", "--launcher", "srun", "--", "true"],
                 "--transport gloo starts the ranks without another launcher, but --launcher names srun: leave one of "
                 "the two out"),
                (["-n", "2", "--transport", "gloo", "--", "train", "--transport", "mpi"],
                 "launch --transport gloo starts ranks that the program's --transport mpi does not join: give the same "
                 "transport on both sides of --, or on one of them"),
                (["-n", "2", "--transport", "mpi", "--", "train", "--transport=gloo"],
                 "launch --transport mpi starts ranks that the program's --transport gloo does not join"),
                (["--transport", "gloo", "--hosts", "a:2,b:2", "--", "true"],
                 "--hosts names a, but ranks that Gloo joins are started on this machine alone: start them with mpirun "
                 "(--transport mpi), or call torchrun on each host (docs/launch.md#torchrun)"),
                (["--hosts", "localhost:1,b:2", "--", "train", "--transport", "gloo"],
                 "--hosts names b, but ranks that"),
                (["-n", "2", "--transport", "gloo", "--bind", "socket", "--", "true"],
                 "--bind socket is a unit of mpirun, which does not start ranks that Gloo joins: give auto, for an "
                 "equal share of the cores, or none")):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.complaint_of(*arguments)[:len(complaint)], complaint)
        self.assertEqual(os.listdir(self.folder), [])

    def test_no_mpirun(self):
        environment = {**ENVIRONMENT, "PATH": self.folder}
        code, out, err = self.launch("-n", "2", "--", "/bin/sh", "-c", "echo $WORLD_SIZE", environment=environment)
        self.assertEqual((code, out), (0, "2\n"), err)
        self.assertIn("info: 2 ranks over Gloo", err)
        missing = ("there is no 'mpirun' that can be started: install Open MPI (Debian: apt install openmpi-bin), name "
                   "the program with --launcher, or start the ranks on this machine alone with --transport gloo")
        for flags in (("-n", "2", "--transport", "mpi"), ("--hosts", "a:2"), ("-n", "2", "--launcher", "mpirun")):
            self.assertEqual(self.complaint_of(*flags, "--", "/bin/true", environment=environment), missing)

    def test_what_starts_the_ranks(self):
        def line(*arguments):
            code, out, err = self.launch("--dry-run", *arguments)
            self.assertEqual((code, err), (0, ""))
            return out
        self.write("mpirun", "")
        gloo = r" launch-local -n 2 --master-port \d+ "
        self.assertRegex(line("-n", "2", "--transport", "gloo", "--", "true"), gloo)
        self.assertRegex(line("-n", "2", "--", "train", "--transport", "gloo"), gloo)
        self.assertRegex(line("-n", "2", "--", "train", "--transport=gloo"), gloo)
        self.assertRegex(line("-n", "2", "--", "train", "--transport", "mpi"), "^mpirun -n 2 ")
        self.assertRegex(line("-n", "2", "--launcher", "./mpirun", "--", "train", "--transport", "gloo"),
                         r"^\./mpirun -n 2 ")
        if MPIRUN:
            self.assertRegex(line("-n", "2", "--", "true", "--transport", "gloo"), "^mpirun -n 2 ")  # no verb

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
                code, out, err = self.launch("--transport", "gloo", "-n", "2", script="echo $RANK of $WORLD_SIZE",
                                             environment={**ENVIRONMENT, **variables})
                self.assertEqual((code, out), (0, "0 of 2\n"), err)

    def test_internal_verbs(self):
        for verb, wrong in (
                ("launch-rank", ([], ["x"], ["x", "rank", "1", "first", "--"],
                                 ["x", "rank", "1", "some", "--", "true"])),
                ("launch-local", ([], ["-n", "2"], ["-n", "2", "--master-port", "x", "--cores", "0", "true"],
                                  ["-n", "2", "--cores", "0", "--master-port", "1", "true"]))):
            for arguments in wrong:
                done = subprocess.run([PROGRAM, verb, *arguments], capture_output=True, text=True, env=ENVIRONMENT)
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"{verb} is for internal use by penstock launch", done.stderr)

    def test_help_has_an_example(self):
        self.assertIn("Example:\n  penstock launch -n 2 -- train", self.launch("--help")[1])


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1], verbosity=2)
