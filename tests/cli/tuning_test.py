"""`--schedule auto` of the program: what it may be combined with, and the cache of its measurements.

Usage: tuning_test.py PENSTOCK DATA [MPIRUN]
"""

import json
import os

import program_runs
from program_runs import ProgramRuns, of_mpi

AUTO = ["--schedule", "auto"]  # measures for eight seconds
SINGLE_LAYERS = ["--partition", "time"]


class Tuning(ProgramRuns):
    def run_tuned(self, *flags, ranks=None, environment=None):
        """The losses, the log's line about tuning, and the whole log."""
        job = self.train("--stages", "2", "--micro-batches", "4", "--steps", "3", *flags, "--json", "steps.json")
        code, _, err = self.run_program(*job, ranks=ranks, environment=environment)
        self.assertEqual(code, 0, err)
        lines = [line for line in err.splitlines() if "tuning: " in line]
        self.assertEqual(len(lines), 1, err)
        losses = [json.loads(line).get("loss") for line in self.read("steps.json").splitlines()]
        return losses, lines[0].split("tuning: ")[1], err

    def test_a_second_run_chooses_the_same_without_measuring(self):
        flags = ["--tuning-cache", "cache"]
        first, line, err = self.run_tuned(*AUTO, *flags)
        self.assertRegex(line, r"^measured now in \d+ s, kept in cache/[0-9a-f]{16}\.json$")
        self.assertIn("Chosen: ", err)
        (file,) = os.listdir(self.path("cache"))
        second, line, err = self.run_tuned(*AUTO, *flags)
        self.assertRegex(line, rf"^taken from cache/{file} of 20\d\d-.* UTC, nothing was measured$")
        self.assertNotIn("Chosen: ", err)
        self.assertEqual(first, second)

    def test_the_partition_by_time_is_kept(self):
        flags = ["--tuning-cache", "cache"]
        first, line, _ = self.run_tuned(*SINGLE_LAYERS, *flags)
        self.assertIn("measured now", line)
        second, line, _ = self.run_tuned(*SINGLE_LAYERS, *flags)
        self.assertIn("nothing was measured", line)
        self.assertEqual(first, second)
        _, line, _ = self.run_tuned(*SINGLE_LAYERS, *flags, "--tune-again")
        self.assertIn("measured now", line)
        (file,) = os.listdir(self.path("cache"))
        _, line, _ = self.run_tuned(*SINGLE_LAYERS, *flags, "--optimizer", "adam")
        self.assertIn("measured now", line)
        self.assertEqual(len(os.listdir(self.path("cache"))), 2)
        self.write(f"cache/{file}", "{")
        _, line, err = self.run_tuned(*SINGLE_LAYERS, *flags)
        self.assertIn("measured now", line)
        self.assertIn(f"warning: cache/{file} cannot be used", err)

    def test_the_cache_is_in_the_users_folder_unless_it_is_off(self):
        home = {"XDG_CACHE_HOME": self.path("xdg"), "HOME": self.path("home")}
        for flags, environment, place in (([], home, "xdg/penstock"),
                                          ([], {**home, "XDG_CACHE_HOME": ""}, "home/.cache/penstock"),
                                          (["--tuning-cache", "off"], home, None)):
            _, line, _ = self.run_tuned(*SINGLE_LAYERS, *flags, environment=environment)
            self.assertIn("measured now", line)
            if place:
                self.assertEqual(len(os.listdir(self.path(place))), 1)
            else:
                self.assertNotIn("kept", line)
        self.assertEqual(len(os.listdir(self.path("xdg/penstock"))), 1)

    def test_auto_serves_replicas_chunks_and_a_memory_limit(self):
        for flags in (["--chunks", "2"], ["--replicas", "2", "--memory-limit", "1.5", "--micro-batches", "auto"]):
            self.run_tuned(*AUTO, *flags)
        complaint = self.complaint_of(*self.train(*AUTO, "--chunks", "2", "--memory-limit", "0.01"))
        self.assertIn("no schedule stays within a memory limit of 0.01", complaint)
        self.assertIn("the smallest limit that would do is", complaint)

    def test_auto_serves_a_memory_limit_in_bytes(self):
        self.run_tuned(*AUTO, "--memory-limit", "1MiB")
        complaint = self.complaint_of(*self.train(*AUTO, "--memory-limit", "1B"))
        self.assertIn("no schedule stays within a memory limit of 1B of activations per rank", complaint)
        out = self.output_of("plan", "--profile", "--hidden", "32,16", "--stages", "2", "--memory-limit", "1MiB",
                             "--steps", "1", "--json", "plan.json")
        self.assertIn("Chosen: ", out)
        for trial in json.loads(self.read("plan.json"))["trials"]:
            self.assertEqual(trial["fits"], trial["needed_limit_bytes"] <= 1 << 20)

    def test_plan_profile_serves_them_too(self):
        out = self.output_of("plan", "--profile", "--hidden", "32,16", "--stages", "2", "--replicas", "2", "--chunks",
                             "2", "--memory-limit", "2", "--steps", "1", "--json", "plan.json")
        self.assertIn("Chosen: ", out)
        for trial in json.loads(self.read("plan.json"))["trials"]:
            self.assertEqual(trial["chunks"], 2)
            self.assertEqual(trial["fits"], trial["needed_limit"] <= 2)

    @of_mpi
    def test_processes_share_one_decision(self):
        flags = [*AUTO, "--tuning-cache", "cache", "--replicas", "2"]
        first, line, _ = self.run_tuned(*flags, ranks=4)
        self.assertIn("measured now", line)
        second, line, _ = self.run_tuned(*flags, ranks=4)
        self.assertIn("nothing was measured", line)
        self.assertEqual(first, second)


if __name__ == "__main__":
    program_runs.main()
