"""Tests that tools/check_english.py counts each habit, leaves out correct uses and code, and refuses what exceeds a bound."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).parents[2] / "tools" / "check_english.py"

HABITS = {
    "where": "a checkpoint is written where the loss is finite",
    "alone": "in the first process alone",
    "those of": "times are those of the mean micro-batch",
    "give it": "no checkpoint: give --checkpoint",
    "is no": "a loss that is no number",
    "behind": "it runs behind the last F",
    "gives": "rank 1 gives no sign of life",
    "old words": "as ever, nobody has come at the begin",
    "pronouns": "those of them of which messages were taken",
    "inversion": "Announced as ever are messages of the CPU",
    "double negation": "it throws nothing but what it caught",
}
CORRECT = ["the folder where it is", "it shows where time goes", "where from", "leave it alone", "there is no rank",
           "it is no longer there", "none is no more than that", "it falls behind", "all behind one interface",
           ": give up", "it gives up", "that of course", "it has come from afar"]


class CheckEnglish(unittest.TestCase):
    def check(self, files, bounds="src 0\ndocs 0\ntests 0\n", flags=()):
        """Exit code, output, and the bounds afterwards."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**files, "tools/english_bounds.txt": "# head\n" + bounds}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            run = subprocess.run([sys.executable, CHECKER, folder, *flags], capture_output=True, text=True, check=False)
            self.assertEqual(run.stderr, "")
            return run.returncode, run.stdout, (root / "tools/english_bounds.txt").read_text()

    def habits(self, name, text):
        _, listed, _ = self.check({name: text}, flags=["--list", name])
        return [line.split(": ")[1].split(" (")[0] for line in listed.splitlines()]

    def test_each_habit_is_counted(self):
        for habit, text in HABITS.items():
            for file in (f"// A comment.\n// {text}.\n", f'int f() {{ say("x"); say("A. {text}"); }}\n'):
                self.assertIn(habit, self.habits("src/a.cc", file), text)
            self.assertIn(habit, self.habits("docs/a.md", f"# Page\n\n{text}\n"))

    def test_a_habit_in_two_lines_is_counted(self):
        self.assertEqual(self.habits("src/a.h", "/// Times are those\n/// of the mean.\nint a;\n"), ["those of"])
        self.assertEqual(self.habits("src/a.cc", 'say("times are those "\n    "of the mean");\n'), ["those of"])
        self.assertEqual(self.habits("tests/a.py", '"""Times are\n    those\n    of it."""\n'), ["those of"])
        self.assertEqual(self.habits("docs/a.md", "times are those\nof the mean\n"), ["those of"])

    def test_correct_uses_are_not_counted(self):
        for text in CORRECT:
            self.assertEqual(self.habits("src/a.h", f"// {text}\n"), [], text)

    def test_code_is_not_counted(self):
        self.assertEqual(self.habits("src/a.cc", "int where = alone;\n"), [])
        self.assertEqual(self.habits("tests/a.py", "where = alone\n"), [])
        self.assertEqual(self.habits("docs/a.md", "`where` is\n\n    where alone\n\n```\nwhere\n```\n"), [])

    def test_a_folder_may_not_exceed_its_bound(self):
        two = {"src/b/a.h": "// in one alone\n", "src/c.h": "// in one alone\n"}
        self.assertEqual(self.check(two, "src 2\n")[0], 0)
        code, output, _ = self.check(two, "src 1\n")
        self.assertEqual(code, 1)
        self.assertIn("src: 2 habits, at most 1 are allowed", output)
        self.assertIn("src/b: 1 habits, at most 0 are allowed", self.check(two, "src 2\nsrc/b 0\n")[1])

    def test_a_file_without_a_bound_is_refused(self):
        code, output, _ = self.check({"docs/a.md": "Text.\n"}, "src 0\n")
        self.assertEqual(code, 1)
        self.assertIn("docs/a.md: no row of tools/english_bounds.txt contains it", output)

    def test_bounds_only_fall(self):
        one = {"src/a.h": "// in one alone\n"}
        self.assertEqual(self.check(one, "src 5\n", ["--lower"])[2], "# head\nsrc 1\n")
        self.assertEqual(self.check(one, "src 0\n", ["--lower"])[2], "# head\nsrc 0\n")


if __name__ == "__main__":
    unittest.main()
