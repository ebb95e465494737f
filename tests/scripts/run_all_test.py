"""benchmarks/run_all.py: when a build is slower, by its pure functions and by programs that only print times.

Usage: run_all_test.py REPOSITORY
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(sys.argv[1]).resolve()
RUN_ALL = ROOT / "benchmarks" / "run_all.py"
sys.path.insert(0, str(RUN_ALL.parent))
import run_all
from run_all import Round, verdict

# Prints the next of its times, or the last one; notes the start.
PROGRAM = f"#!{sys.executable}\n" + """
import json, pathlib
build = pathlib.Path(__file__).parents[1]
starts = build.parent / "starts"
times = json.loads((build / "times.json").read_text())
done = starts.read_text().split().count(build.name) if starts.exists() else 0
with starts.open("a") as file:
    file.write(build.name + " ")
print(json.dumps({"step_ms": [times[min(done, len(times) - 1)]] * 3, "losses": [1.0]}))
"""


class Verdict(unittest.TestCase):
    def test_one_round_is_enough_for_an_equal_build(self):
        for this, other in (([10] * 5, [10] * 5), ([10] * 5, [9.71] * 5), ([10] * 5, [8, 8, 10, 10, 10])):
            self.assertEqual(verdict([Round(this, other)]), "equal", (this, other))

    def test_only_two_slower_rounds_fail(self):
        slower, equal = Round([10] * 5, [9.69] * 5), Round([10] * 5, [10] * 5)
        self.assertEqual(verdict([slower]), "again")
        self.assertEqual(verdict([slower, slower]), "slower")
        self.assertEqual(verdict([slower, equal]), "equal")

    def test_only_pairs_that_agree_fail(self):
        slower, mixed = Round([10] * 5, [9.69] * 5), Round([10] * 5, [9, 9, 9, 9, 10.1])
        self.assertEqual(verdict([mixed]), "again")
        for rounds in ([slower, mixed], [mixed, slower], [mixed, mixed]):
            self.assertEqual(verdict(rounds), "unclear")

    def test_a_ratio_is_of_a_pair(self):
        """A machine that slows down between pairs slows both builds down."""
        drifting = [10, 20, 30, 40, 50]
        self.assertAlmostEqual(Round(drifting, [0.99 * ms for ms in drifting]).speed.middle, 0.99)


class RunAll(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def build(self, name, *times):
        binary = self.folder / name / "bin" / "penstock"
        binary.parent.mkdir(parents=True)
        binary.write_text(PROGRAM)
        binary.chmod(0o755)
        (self.folder / name / "times.json").write_text(json.dumps(times))
        return str(self.folder / name)

    def run_all(self, this, other, *flags):
        return subprocess.run([sys.executable, RUN_ALL, "--build", this, "--against", other, "--no-torch", *flags],
                              capture_output=True, text=True, env={**os.environ, "TMPDIR": str(self.folder)})

    def starts(self):
        return (self.folder / "starts").read_text().split()

    def test_a_build_against_itself(self):
        build = self.build("this", 10)
        done = self.run_all(build, build, "--workloads", "mlp-b32,gpt")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.starts()), 2 * 2 * run_all.PAIRS)
        self.assertEqual(done.stdout.count("1.00 (1.00 to 1.00)"), 2, done.stdout)

    def test_pairs_are_interleaved(self):
        done = self.run_all(self.build("this", 10), self.build("other", 10), "--workloads", "mlp-b32")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.starts(), ["this", "other", "other", "this"] * 2 + ["this", "other"])

    def test_a_slower_build_fails_after_a_second_round(self):
        done = self.run_all(self.build("this", 11), self.build("other", 10), "--workloads", "mlp-b32")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(self.starts()), 2 * 2 * run_all.PAIRS)
        self.assertIn("slower", done.stdout)

    def test_a_busy_first_round_does_not_fail(self):
        done = self.run_all(self.build("this", *[12] * run_all.PAIRS, 10), self.build("other", 10), "--workloads",
                            "mlp-b32")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("equal, by the second round", done.stdout)

    def test_what_is_not_measured_has_a_reason(self):
        build = self.build("this", 10)
        done = self.run_all(build, build, "--workloads", "mlp-b32,mlp-b128", "--minutes", "0")
        self.assertIn("not measured: 0 minutes", done.stdout)
        if not run_all.smollm2.MODEL.is_dir():
            self.assertIn("tools/fetch_smollm2.py", self.run_all(build, build, "--workloads", "smollm2").stdout)

    def test_misuse(self):
        build = self.build("this", 10)
        for flags, text in ((["--workloads", "mlp"], "mlp-b128"), (["--against", "/nowhere"], "/nowhere/bin/penstock")):
            done = self.run_all(build, build, *flags)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
