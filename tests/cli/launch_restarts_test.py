"""Restarts and polite stops of `penstock launch`.

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
for name in ("checkpoint", "resume", "max-time"):
    print(f'{name} = "{flags["--" + name]}"' if "--" + name in flags else f"# {name} =")
print("stages = 2")
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
        return [self.path("bin/penstock"), "launch", *arguments[:split], "--", "train", *flags]

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
        self.wait_until(run, lambda: all(os.path.exists(self.path(f"ready.{rank}")) for rank in range(rank_count)))
        return run

    def attempts(self):
        return sorted(os.listdir(self.path("log_output")))

    def line_of(self, attempt):
        """The flags of the training in an attempt."""
        return self.read("log_output", str(attempt), "launch.log").splitlines()[0].split(" train ", 1)[1]

    def infos(self, err):
        begin = "penstock: info: "
        return [line[len(begin):] for line in err.splitlines() if line.startswith(begin)]

class LaunchRestarts(Launches):
    # Restarts

    def test_later_attempts_go_on_from_the_newest_checkpoint(self):
        # Rank 1 fails twice, after a checkpoint; rank 0 waits until it is ended, or until rank 1 has come through.
        training = (f"[ $RANK = 0 ] && {{ while [ ! -e done ]; do sleep 0.01; done; exit 0; }}; "
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
        training = ("[ -e left ] && { kill -0 $(cat left) 2> /dev/null && exit 5; exit 0; }; "
                    "setsid sh -c 'echo $$ > left.part; mv left.part left; exec sleep 1000' & "
                    "while [ ! -e left ]; do sleep 0.01; done; kill -9 $$")
        code, err = self.launch("-n", "1", "--restarts", "1", training=training)
        self.assertEqual(code, 0, err)
        self.assertEqual(os.listdir(self.path("tmp")), [])

    # Polite stops

    # Rank 0 ends at once; rank 1 needs three seconds to save, longer than the others have after a failure.
    SAVING = (f"stop() {{ [ $RANK = 0 ] && exit $1; sleep 3; echo saved > saved; exit $1; }}; "
              f"trap 'stop 143' TERM; trap 'stop 138' USR1; touch ready.$RANK; while :; do sleep 0.01; done")

    def test_ranks_have_time_to_save(self):
        for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
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
        training = f"trap 'echo asked >> asked.$RANK' TERM; touch ready.$RANK; while :; do sleep 0.01; done"
        run = self.start("-n", "2", "--grace", "10000", training=training, rank_count=2)
        while run.poll() is None:
            run.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM)
        self.assertTrue(os.path.exists(self.path("asked.1")))

    def test_the_grace_ends(self):
        training = f"trap '' TERM; touch ready.$RANK; while :; do sleep 0.01; done"
        run = self.start("-n", "2", "--grace", "0", training=training, rank_count=2)
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=WATCHDOG_S)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM)

    def test_a_failure_while_saving_is_reported(self):
        training = (f"trap '[ $RANK = 0 ] && exit 143; echo disk full >&2; exit 1' TERM; touch ready.$RANK; "
                    "while :; do sleep 0.01; done")
        run = self.start("-n", "2", "--restarts", "3", training=training, rank_count=2)
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=WATCHDOG_S)
        self.assertEqual(run.returncode, 1, err)
        self.assertIn("penstock: rank 1 of 2 failed first: exit code 1; log_output/1/rank.1/stderr ends with\n", err)
        self.assertEqual(err.splitlines()[-1], "  | disk full")
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


if __name__ == "__main__":
    PROGRAM, CHECKPOINTS = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1], verbosity=2)
