"""Restarts, elastic jobs and polite stops of `penstock launch`, with the real mpirun if there is one, and without it.

A script stands in for the training: it prints its settings as `penstock train --print-config` does, and otherwise runs
a shell script of the test. Checkpoints are copies of stored ones.

Usage: launch_restarts_test.py PENSTOCK CHECKPOINTS
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
from program_runs import ENVIRONMENT, WATCHDOG_S, InFolder

PROGRAM = ""
CHECKPOINTS = ""
MPIRUN = shutil.which("mpirun")

RANK = "${OMPI_COMM_WORLD_RANK:-$RANK}"

TRAINING = """\
#!/usr/bin/env python3
import os, sys
assert sys.argv[1] == "train", sys.argv
flags = dict(zip(sys.argv[2::2], sys.argv[3::2]))  # the last of equal ones
if sys.argv[-1] != "--print-config":
    os.execvp("sh", ["sh", "-c", os.environ["TRAINING"]])
if "--wrong" in flags:
    print("penstock: --wrong is wrong", file=sys.stderr)
    sys.exit(2)
for name in ("checkpoint", "resume", "max-time", "plan", "schedule", "partition", "transport"):
    print(f'{name} = "{flags["--" + name]}"' if "--" + name in flags else f"# {name} =")
print("replicas =", flags.get("--replicas", 0))
"""

# For the tests' scripts. A later copy of a checkpoint of the same step is a newer one.
FUNCTIONS = """\
save() {
  mkdir -p run
  copy=run/.copy$$
  cp -r $CHECKPOINTS/step-00000003 $copy
  n=$(ls -d run/step-* 2> /dev/null | wc -l)
  [ $n = 0 ] && mv $copy run/step-00000003 || mv $copy run/step-00000003-$((n + 1))
}
"""


class Launches(InFolder):
    write = InFolder.write_executable
    how = ()  # flags of all jobs of a class

    def setUp(self):
        super().setUp()
        for folder in ("bin", "libexec/penstock", "tmp"):
            os.makedirs(self.path(folder))
        shutil.copy(PROGRAM, self.path("bin/penstock"))
        self.write("libexec/penstock/penstock-runtime", TRAINING)
        self.environment = {**ENVIRONMENT, "CHECKPOINTS": CHECKPOINTS, "TMPDIR": self.path("tmp")}

    def command(self, arguments, training):
        """Flags of launch, or of the training after "--"."""
        split = arguments.index("--") if "--" in arguments else len(arguments)
        flags = arguments[split + 1:] if "--" in arguments else ("--checkpoint", "run")
        self.environment["TRAINING"] = FUNCTIONS + training
        return [self.path("bin/penstock"), "launch", *self.how, *arguments[:split], "--", "train", *flags]

    def launch(self, *arguments, training="exit 1"):
        done = subprocess.run(self.command(arguments, training), cwd=self.folder, text=True, timeout=WATCHDOG_S,
                              stdin=subprocess.DEVNULL, capture_output=True, env=self.environment)
        return done.returncode, done.stderr

    def start(self, *arguments, training, rank_count):
        """A running job whose ranks have written a file of their number."""
        run = subprocess.Popen(self.command(arguments, training), cwd=self.folder, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env=self.environment)
        self.addCleanup(self.end, run)
        until = time.monotonic() + WATCHDOG_S
        while not all(os.path.exists(self.path(f"ready.{rank}")) for rank in range(rank_count)):
            self.assertLess(time.monotonic(), until, "the ranks do not start")
            time.sleep(0.01)
        return run

    def end(self, run):
        run.kill()
        run.wait()
        run.stderr.close()

    def attempts(self):
        return sorted(os.listdir(self.path("log_output")))

    def line_of(self, attempt):
        """The program's arguments in the command line of an attempt."""
        return self.read("log_output", str(attempt), "launch.log").splitlines()[0].split(" -- ", 1)[1].split(" ", 2)[2]

    def infos(self, err):
        begin = "penstock: info: "
        return [line[len(begin):] for line in err.splitlines() if line.startswith(begin)]

    def discovery(self, *answers):
        """A program that answers with the next line at each call, and then with the last one."""
        for number, answer in enumerate(answers, 1):
            self.write(f"answer.{number}", answer)
        next_line = f"n=$(cat calls 2> /dev/null || echo 0); [ $n = {len(answers)} ] || n=$((n + 1)); echo $n > calls"
        return self.write("hosts", f"#!/bin/sh\n{next_line}; cat answer.$n\n")


class OverEither:
    """Jobs that do not depend on what starts their ranks."""

    # Restarts

    def test_later_attempts_go_on_from_the_newest_checkpoint(self):
        # Rank 1 fails twice, after a checkpoint; rank 0 waits until it is ended, or until rank 1 has come through.
        training = (f"[ {RANK} = 0 ] && {{ while [ ! -e done ]; do sleep 0.01; done; exit 0; }}; "
                    "[ -e run/step-00000003-2 ] && { touch done; exit 0; }; save; exit 4")
        code, err = self.launch("-n", "2", "--restarts", "5", training=training)
        self.assertEqual(code, 0, err)
        self.assertEqual([self.line_of(attempt) for attempt in self.attempts()],
                         ["--checkpoint run", "--checkpoint run --resume auto", "--checkpoint run --resume auto"])
        infos = self.infos(err)
        for attempt, path, left in (2, "run/step-00000003", 4), (3, "run/step-00000003-2", 3):
            self.assertIn(f"attempt {attempt} goes on from step 3 ({path}) after rank 1 of 2: exit code 4; {left} "
                          "restarts left", infos)

    def test_misuse_and_polite_stops_are_final(self):
        for code in (2, 75, 130, 138, 143):
            with self.subTest(code=code):
                shutil.rmtree(self.path("log_output"), ignore_errors=True)
                self.assertEqual(self.launch("-n", "1", "--restarts", "3", training=f"exit {code}")[0], code)
                self.assertEqual(self.attempts(), ["1"])

    def test_one_misuse_of_a_later_attempt_is_not_final(self):
        # As where a rank never comes to the start.
        for codes, result, attempts in (((4, 2, 0), 0, 3), ((4, 2, 2), 2, 3), ((4, 2, 4, 2, 0), 0, 5)):
            with self.subTest(codes=codes):
                shutil.rmtree(self.path("log_output"), ignore_errors=True)
                for number, code in enumerate(codes, 1):
                    self.write(f"code.{number}", f"exit {code}")
                self.write("count", "0")
                training = "n=$(($(cat count) + 1)); echo $n > count; . ./code.$n"
                code, err = self.launch("-n", "1", "--restarts", "9", "--", training=training)
                self.assertEqual((code, len(self.attempts())), (result, attempts), err)

    def test_nothing_of_the_former_attempt_is_left(self):
        # The first attempt leaves a process, and its launcher is killed.
        training = ("[ -e left ] && { kill -0 $(cat left) 2> /dev/null && exit 5; ls tmp/ompi.*/ > second; exit 0; }; "
                    "setsid sh -c 'echo $$ > left.part; mv left.part left; exec sleep 1000' & "
                    "while [ ! -e left ]; do sleep 0.01; done; ls tmp/ompi.*/ > first; "
                    "kill -9 $(ps -o ppid= $(ps -o ppid= $$)); exec sleep 1000")
        code, err = self.launch("-n", "1", "--restarts", "1", training=training)
        self.assertEqual(code, 0, err)
        self.assert_no_files_left(err)

    # Polite stops

    # Rank 0 ends at once; rank 1 needs three seconds to save, longer than launchers wait by themselves.
    SAVING = (f"stop() {{ [ {RANK} = 0 ] && exit $1; sleep 3; echo saved > saved; exit $1; }}; "
              f"trap 'stop 143' TERM; trap 'stop 138' USR1; touch ready.{RANK}; while :; do sleep 0.01; done")

    def test_ranks_have_time_to_save(self):
        for sent in self.stops:
            with self.subTest(sent=sent):
                for name in ("saved", "ready.0", "ready.1"):
                    if os.path.exists(self.path(name)):
                        os.remove(self.path(name))
                run = self.start("-n", "2", "--restarts", "3", training=self.SAVING, rank_count=2)
                run.send_signal(sent)
                _, err = run.communicate(timeout=WATCHDOG_S)
                self.assertEqual(run.returncode, 128 + sent, err)
                self.assertTrue(os.path.exists(self.path("saved")), err)
                self.assertNotIn("failed first", err)
                self.assertNotIn("restarts left", err)

    def test_a_second_signal_ends_the_ranks(self):
        training = f"trap 'echo asked >> asked.{RANK}' TERM; touch ready.{RANK}; while :; do sleep 0.01; done"
        run = self.start("-n", "2", "--grace", "10000", training=training, rank_count=2)
        while run.poll() is None:
            run.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM)
        self.assertTrue(os.path.exists(self.path("asked.1")))

    def test_the_grace_ends(self):
        training = f"trap '' TERM; touch ready.{RANK}; while :; do sleep 0.01; done"
        run = self.start("-n", "2", "--grace", "0", training=training, rank_count=2)
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=WATCHDOG_S)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM)

    def test_a_failure_while_saving_is_reported(self):
        training = (f"trap '[ {RANK} = 0 ] && exit 143; echo disk full >&2; exit 1' TERM; touch ready.{RANK}; "
                    "while :; do sleep 0.01; done")
        run = self.start("-n", "2", "--restarts", "3", training=training, rank_count=2)
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=WATCHDOG_S)
        self.assertEqual(run.returncode, 1, err)
        self.assertIn("penstock: rank 1 of 2 failed first: exit code 1; log_output/1/rank.1/stderr ends with\n", err)
        self.assertEqual(err.splitlines()[-1], "  | disk full")
        self.assertEqual(self.attempts(), ["1"])

    # Elastic jobs

    # Fails as often as wanted, after a new checkpoint each time.
    @staticmethod
    def failing(times):
        return (f"[ {RANK} = 0 ] || exec sleep 1000; "
                f"[ $(ls -d run/step-* 2> /dev/null | wc -l) = {times} ] && exit 9; save; exit 4")

    def test_a_lost_slot_and_one_that_comes_back(self):
        hosts = self.discovery("# all\nlocalhost:3\n", "localhost:2\n", "localhost:1\n", "localhost:4\n")
        code, err = self.launch("--elastic", "1:3", "--host-discovery", hosts, "--restarts", "3",
                                training=self.failing(3))
        self.assertEqual(code, 9, err)
        later = " --resume auto"
        self.assertEqual([self.line_of(attempt) for attempt in self.attempts()],
                         ["--checkpoint run --stages 3 --replicas 1",
                          f"--checkpoint run{later} --stages 2 --replicas 1",
                          f"--checkpoint run{later} --stages 1 --replicas 1",
                          f"--checkpoint run{later} --stages 3 --replicas 1"])
        ranks = [len([name for name in os.listdir(self.path("log_output", attempt)) if name.startswith("rank.")])
                 for attempt in self.attempts()]
        self.assertEqual(ranks, [3, 2, 1, 3])
        self.assertIn("elastic: 2 pipeline ranks, 1 replica; 2 slots", self.infos(err))


@unittest.skipUnless(MPIRUN, "there is no mpirun")
class OverMpi(OverEither, Launches):
    how = ("--transport", "mpi")
    stops = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)

    def assert_no_files_left(self, err):
        first, second = self.read("first").split(), self.read("second").split()  # the sessions of both attempts
        self.assertEqual((len(first), len(second)), (1, 1))
        self.assertNotEqual(first, second)
        self.assertIn(f"/{first[0]}, which this attempt left", err)
        self.assertEqual([name for _, folders, files in os.walk(self.path("tmp")) for name in (*folders, *files)
                          if not name.startswith("ompi.")], [])

    def test_a_host_that_is_gone_is_left_out(self):
        # Two names of this machine; a script in place of ssh runs commands here.
        agent = self.write("agent", f"#!/bin/sh\n[ $1 = two ] && [ -e {self.path('gone')} ] && exit 1\n"
                                    "export TMPDIR=$0.$1\nmkdir -p $TMPDIR\nshift\nexec sh -c \"$*\"\n")
        self.environment.update(OMPI_MCA_plm_rsh_agent=agent, OMPI_MCA_orte_keep_fqdn_hostnames="1")
        training = self.failing(1).replace("exit 4", "touch gone; exit 4")
        code, err = self.launch("--hosts", "one:1,two:1", "--elastic", "1:2", "--restarts", "1", training=training)
        self.assertEqual(code, 9, err)
        self.assertIn("host two starts no process: this attempt does without it", self.infos(err))
        self.assertEqual(self.line_of(2), "--checkpoint run --resume auto --stages 1 --replicas 1")


class OverGloo(OverEither, Launches):
    how = ("--transport", "gloo")
    stops = (signal.SIGTERM, signal.SIGUSR1)

    def assert_no_files_left(self, err):
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_a_rank_that_is_alone_keeps_its_flags(self):
        hosts = self.discovery("localhost:2\n", "localhost:1\n")
        code, err = self.launch("--elastic", "1:2", "--host-discovery", hosts, "--restarts", "1", "--", "--checkpoint",
                                "run", "--transport", "gloo", training=self.failing(1))
        self.assertEqual(code, 9, err)
        flags = "--checkpoint run --transport gloo"
        self.assertEqual(self.line_of(1), flags + " --stages 2 --replicas 1")
        self.assertEqual(self.line_of(2), flags + " --resume auto --stages 1 --replicas 1")

    def test_a_host_discovery_that_names_another_host(self):
        hosts = self.discovery("localhost:2\n", "localhost:1\nb:2\n")
        code, err = self.launch("--elastic", "1:2", "--host-discovery", hosts, "--restarts", "1",
                                training=self.failing(1))
        self.assertEqual(code, 2, err)
        self.assertEqual(err.splitlines()[-1],
                         "penstock: --host-discovery names b, but ranks that Gloo joins are started on this machine "
                         "alone: start them with mpirun (--transport mpi), or call torchrun on each host "
                         "(docs/launch.md#torchrun)")
        self.assertEqual(self.attempts(), ["1"])

    def test_without_a_checkpoint_an_attempt_begins_anew(self):
        code, err = self.launch("-n", "1", "--restarts", "1", training="[ -e 2 ] && exit 0; touch 2; kill -9 $$")
        self.assertEqual(code, 0, err)
        self.assertIn("attempt 2 begins anew after rank 0 of 1: signal 9 (Killed); 0 restarts left", self.infos(err))
        self.assertEqual(self.line_of(2), "--checkpoint run --resume auto")

    def test_a_resumed_training_is_not_told_twice(self):
        code, err = self.launch("-n", "1", "--restarts", "1", "--", "--checkpoint", "run", "--resume", "auto",
                                training="[ -e 2 ] && exit 0; touch 2; exit 4")
        self.assertEqual(code, 0, err)
        self.assertEqual(self.line_of(2), "--checkpoint run --resume auto")

    def test_the_time_of_former_attempts_counts(self):
        # Two attempts take 1.2 s at least.
        code, err = self.launch("-n", "1", "--restarts", "2", "--", "--checkpoint", "run", "--max-time", "1-1:00:01",
                                training="[ -e 3 ] && exit 75; [ -e 2 ] && touch 3; touch 2; sleep 0.6; exit 4")
        self.assertEqual(code, 75, err)
        self.assertRegex(self.line_of(2), r" --resume auto --max-time (25:00:0[01]|24:59:\d\d)$")
        self.assertRegex(self.line_of(3), r" --resume auto --max-time (25:00:00|24:59:\d\d)$")
        shutil.rmtree(self.path("log_output"))
        os.remove(self.path("3"))
        self.launch("-n", "1", "--restarts", "1", "--", "--checkpoint", "run", "--max-time", "0:00:01",
                    training="[ -e 4 ] && exit 75; touch 4; sleep 1; exit 4")
        self.assertIn(" --max-time 0:00:01", self.line_of(2))

    def test_three_restarts_without_progress_are_the_last(self):
        code, err = self.launch("-n", "1", "--restarts", "100", training="[ -e run ] || save; exit 4")
        self.assertEqual(code, 4)
        self.assertEqual(err.splitlines()[-1],
                         "penstock: given up: 3 restarts in a row ended without a new complete checkpoint in run, where "
                         "step 3 is the newest; the last failure is above")
        self.assertEqual(self.attempts(), ["1", "2", "3", "4"])

    def test_progress_is_counted(self):
        code, err = self.launch("-n", "1", "--restarts", "6", training="save; exit 4")
        self.assertEqual((code, len(self.attempts())), (4, 7), err)
        self.assertNotIn("given up", err)

    def test_refused_arguments_are_reported_before_the_start(self):
        code, err = self.launch("-n", "1", "--restarts", "1", "--", "--wrong", "x")
        self.assertEqual(code, 2)
        self.assertEqual(err, "penstock: --wrong is wrong\n"
                              "penstock: the program's arguments are refused, as said above\n")
        self.assertFalse(os.path.exists(self.path("log_output")))

    def test_too_few_slots_end_the_job(self):
        hosts = self.discovery("localhost:4\n", "localhost:3\n")
        code, err = self.launch("--elastic", "2:3", "--host-discovery", hosts, "--restarts", "3", "--", "--checkpoint",
                                "run", "--replicas", "2", training=self.failing(3))
        self.assertEqual(code, 1)
        self.assertEqual(err.splitlines()[-1],
                         "penstock: there are 3 slots, but --elastic 2:3 with 2 replicas takes at least 4")
        self.assertEqual(self.attempts(), ["1"])


class Misuse(Launches):
    def test_elastic_misuse(self):
        elastic = ("--elastic", "1:2", "--restarts", "1")
        for arguments, complaint in (
                (("--elastic", "2"), "--elastic 2: give the smallest and the largest number of pipeline ranks, as 2:4"),
                ((*elastic, "-n", "2"), "-n 2 fixes the number of ranks, which --elastic takes from the slots"),
                (("-n", "2", "--host-discovery", "./hosts"), "--host-discovery serves --elastic: give both"),
                ((*elastic, "--hosts", "a", "--host-discovery", "./hosts"), "--hosts and --host-discovery both name"),
                ((*elastic, "--launcher", "srun"), "--elastic needs mpirun or --transport gloo"),
                ((*elastic, "--transport", "gloo", "--hosts", "a,localhost"), "--hosts names a, but ranks that"),
                ((*elastic, "--grace", "-1"), "--grace -1: give seconds between 0 and 1e+06"),
                ((*elastic, "--", "--stages", "2"), "--elastic goes on from checkpoints, and the training writes none"),
                ((*elastic, "--", "--checkpoint", "run", "--plan", "p"),
                 "--elastic changes the number of pipeline ranks, and --plan p fixes it"),
                ((*elastic, "--", "--checkpoint", "run", "--schedule", "a.sched"), "--elastic changes the number"),
                ((*elastic, "--", "--checkpoint", "run", "--partition", "layer3"), "--elastic changes the number")):
            with self.subTest(arguments=arguments):
                code, err = self.launch(*arguments)
                self.assertEqual((code, err.count("\n")), (2, 1), err)
                self.assertTrue(err.startswith("penstock: " + complaint), err)
        done = subprocess.run([self.path("bin/penstock"), "launch", *elastic, "--", "true"], text=True,
                              capture_output=True, env=self.environment)
        self.assertEqual((done.returncode, done.stderr),
                         (2, "penstock: --elastic sets the number of stages of the verb train; the program is true\n"))


if __name__ == "__main__":
    PROGRAM, CHECKPOINTS = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1], verbosity=2)
