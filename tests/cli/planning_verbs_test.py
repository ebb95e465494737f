"""The verbs that do not need LibTorch: standard output, standard error, exit code.

Usage: planning_verbs_test.py PENSTOCK TESTS, with the program and the folder of the tests' files.
"""

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
import program_runs
from program_runs import VerbRuns

TESTS = ""

GRID = """\
rank 0 | 0F0 0F1  .  0B0 0F2 0B1 0F3 0B2  .  0B3
rank 1 |  .  1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3  .
"""

SCHED = """\
penstock schedule 1
name 1f1b
ranks 2
stages 2
micro_batches 2
rank_of_stage 0 1
rank 0: 0F0 0F1 0B0 0B1
rank 1: 1F0 1B0 1F1 1B1
"""

# Rank 0 runs B0 before it sends F1, and rank 1 needs F1 first.
DEADLOCK = SCHED.replace("0F0 0F1 0B0 0B1", "0F0 0B0 0F1 0B1").replace("1F0 1B0 1F1 1B1", "1F0 1F1 1B0 1B1")

SHAPE = ["--stages", "2", "--micro-batches", "4"]


class PlanningVerbs(VerbRuns):

    # The program

    def test_never_sees_libtorch(self):
        libraries = subprocess.run(["ldd", program_runs.PROGRAM], capture_output=True, text=True, check=True).stdout
        for heavy in ("libtorch", "libc10", "libmkl", "libmpi"):
            self.assertNotIn(heavy, libraries)

    def test_help_lists_every_verb(self):
        out = self.output_of("--help")
        verbs = [line.split()[0] for line in out.split("Subcommands:\n")[1].split("\n\n")[0].splitlines()]
        self.assertEqual(verbs, ["train", "evaluate", "infer", "generate", "bench", "schedule", "simulate", "plan",
                                 "fit", "trace", "checkpoint", "tokenize", "launch", "doctor"])


    def test_examples_of_help_run(self):
        self.write("my.sched", SCHED)
        self.write("1f1b_order.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
        shutil.copy(os.path.join(TESTS, "trace/goldens/trace.json"), self.folder)
        for verb in (["schedule"], ["schedule", "show"], ["schedule", "check"], ["schedule", "convert"],
                     ["schedule", "table"], ["simulate"], ["trace"], ["trace", "report"], ["trace", "svg"]):
            example = self.output_of(*verb, "--help").split("Example:\n")[1].split()
            self.assertEqual(example[:2], ["penstock", verb[0]])
            self.output_of(*example[1:])

    def test_version(self):
        self.assertRegex(self.output_of("--version"), r"^penstock \d+\.\d+\.\d+\n$")

    def test_missing_and_unknown_verbs(self):
        verbs = ("train, evaluate, infer, generate, bench, schedule, simulate, plan, fit, trace, checkpoint, "
                 "tokenize, launch, doctor")
        self.assert_refused([], ([], f"which verb? 'penstock' has {verbs}"),
                            (["trace"], "which verb? 'penstock trace' has report, validate, svg"),
                            (["simulte"], f"'simulte': did you mean 'penstock simulate'? The verbs are {verbs}"),
                            (["sim"], "'sim': did you mean 'penstock simulate'?"),
                            (["schedule", "chek"],
                             "'chek': did you mean 'penstock schedule check'? The verbs are show, "
                             "convert, check, table"))

    def test_help_is_a_verb_too(self):
        self.assertEqual(self.output_of("help"), self.output_of("--help"))
        self.assertEqual(self.output_of("help", "simulate"), self.output_of("simulate", "--help"))

    def test_values_that_are_not_possible(self):
        one = ["simulate", "1f1b", "--micro-batches", "2"]
        self.assert_refused(one, (["--stages", "4.5"], "--stages 4.5: pass a whole number"),
                            (["--stages", "2,4"], "--stages 2,4: pass one number only, a whole number"),
                            (["--stages", "2", "--stages", "4"], "--stages is given 2 times: pass it once"),
                            (["--stages"], "--stages needs a value: pass P"),
                            (["--weight-share", "3"], "--weight-share 3: pass a number from 0 to 1"))

    def test_unknown_flags(self):
        for verb, wrong, right in ((["schedule", "show"], "--fromat", "--format"),
                                   (["simulate"], "--stagse", "--stages"),
                                   (["plan"], "--cots", "--costs"), (["trace", "report"], "--jsn", "--json"),
                                   (["schedule", "table"], "--chunk", "--chunks")):
            self.assert_refused(verb, ([wrong, "2"], f"unknown flag '{wrong}': did you mean '{right}'? 'penstock "
                                                     f"{' '.join(verb)} --help' lists all flags"))
        self.assert_refused([], (["--stages=2"], "unknown flag '--stages': flags follow a verb"),
                            (["simulate", "gpipe", "--stages", "two"], "--stages two: pass a whole number"))

    def test_a_full_disk_is_a_failure(self):
        with open("/dev/full", "w") as full:
            code, _, err = self.run_program("schedule", "show", "gpipe", *SHAPE, stdout=full)
        self.assertEqual((code, err), (1, "penstock: standard output cannot be written\n"))

    # The hand-over to the runtime program

    def installed_copy(self):
        os.makedirs(os.path.join(self.folder, "usr/bin"))
        return shutil.copy(program_runs.PROGRAM, self.path("usr/bin/penstock"))

    def test_a_build_without_libtorch_says_so(self):
        program = self.installed_copy()
        for verb in ("train", "evaluate", "infer", "bench", "doctor"):
            code, out, err = self.run_program(verb, "--help", program=program)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(f"this build has no LibTorch (PENSTOCK_TORCH=OFF): the verb '{verb}' is not in it (there is no "
                          f"{os.path.realpath(self.folder)}/usr/libexec/penstock/penstock-runtime)\n", err)

    def test_the_runtime_program_takes_over_with_the_same_command_line(self):
        program = self.installed_copy()
        os.makedirs(os.path.join(self.folder, "usr/libexec/penstock"))
        # A runtime program that prints its arguments as files: "train", which is empty, and its own command line.
        shutil.copy(shutil.which("cat"), os.path.join(self.folder, "usr/libexec/penstock/penstock-runtime"))
        self.write("train", "")
        code, out, err = self.run_program("train", "/proc/self/cmdline", program=program)
        self.assertEqual((code, out, err), (0, program + "\0train\0/proc/self/cmdline\0", ""))

    def test_a_runtime_program_that_does_not_start_is_a_failure(self):
        program = self.installed_copy()
        os.makedirs(os.path.join(self.folder, "usr/libexec/penstock"))
        self.write("usr/libexec/penstock/penstock-runtime", "not a program")
        code, _, err = self.run_program("doctor", program=program)
        self.assertEqual(code, 1)
        self.assertIn("penstock-runtime: cannot be started: Permission denied", err)

    # schedule

    def test_show(self):
        self.assertEqual(self.output_of("schedule", "show", "--schedule", "1f1b", *SHAPE), GRID)
        self.assertEqual(self.output_of("schedule", "show", "1f1b", *SHAPE), GRID)

    def test_convert(self):
        shape = ["--stages", "2", "--micro-batches", "2"]
        self.assertEqual(self.output_of("schedule", "convert", "1f1b", *shape), SCHED)
        self.assertEqual(self.output_of("schedule", "convert", "1f1b", *shape, "--format", "csv-comms"),
                         "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                         "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n")
        lowered = self.output_of("schedule", "convert", "1f1b", *shape, "--lowered")
        self.assertIn("rank 1: 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1STEP", lowered)

    def test_formats_convert_to_each_other(self):
        for form in ("sched", "csv"):
            name = "order." + form
            self.assertEqual(self.output_of("schedule", "convert", "1f1b", *SHAPE, "--format", form, "--output", name),
                             "")
            self.assertEqual(self.output_of("schedule", "show", name), GRID)

    def test_check(self):
        self.assertEqual(self.output_of("schedule", "check", "--schedule", "1f1b", *SHAPE),
                         "ok: 1f1b, 2 ranks, 2 stages, 4 micro-batches, 34 instructions with messages and step; "
                         "runs with 1 post per channel; live activations at most 2 1 per rank, in micro-batches of a "
                         "whole rank\n")
        self.output_of("schedule", "convert", "1f1b", *SHAPE, "--lowered", "--output", "x.sched")
        self.assertEqual(self.output_of("schedule", "check", "x.sched"),
                         "ok: 1f1b, 2 ranks, 2 stages, 4 micro-batches, 34 instructions; runs with 1 post per "
                         "channel; live activations at most 2 1 per rank, in micro-batches of a whole rank\n")

    def test_check_show_and_simulate_count_live_activations_alike(self):
        # A micro-batch of one of two chunks counts as a half: check once counted 6 6 6 where the picture showed 3.
        zb_v = ("zb-v", "--stages", "3", "--micro-batches", "6")
        self.assertIn("; live activations at most 3 3 3 per rank, in micro-batches of a whole rank\n",
                      self.output_of("schedule", "check", *zb_v))
        self.assertIn("; at most 3 live activations on a rank, in micro-batches of a whole rank<",
                      self.output_of("schedule", "show", *zb_v, "--format", "svg"))
        self.assertEqual([line.split()[-1] for line in self.output_of("simulate", *zb_v).splitlines()[2:5]],
                         ["3.00"] * 3)

    def test_check_reports_what_was_normalised(self):
        self.write("backwards.csv", "0F0,0F1,0B1,0B0\n")
        out = self.output_of("schedule", "check", "backwards.csv")
        self.assertRegex(out, r"^ok: backwards, 1 ranks, .*\nnote: .*")

    def test_check_with_posts(self):
        shape = ("looped-bfs", "--stages", "2", "--micro-batches", "6")
        self.assertIn("; runs with 2 posts per channel; ", self.output_of("schedule", "check", *shape, "--posts", "2"))
        code, out, err = self.run_program("schedule", "check", *shape, "--posts", "1")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("deadlock with 1 post per channel: rank 0 is at 0SEND_F5 (the forward channel of ranks 0>1 is "
                      "full)", err.splitlines()[0])
        self.assertRegex(err, r"rank 0 \| .*>0SEND_F5<")
        self.output_of("schedule", "convert", *shape, "--lowered", "--output", "looped.sched")
        self.assertEqual(self.run_program("schedule", "check", "looped.sched", "--posts", "1"), (code, out, err))
        for posts, text in (("0", "posts = 0: at least 1"), ("-1", "posts = -1: at least 1"),
                            ("some", "--posts some: pass a whole number")):
            code, out, err = self.run_program("schedule", "check", *shape, "--posts", posts)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(text, err)

    def test_a_deadlock_is_shown_as_a_grid(self):
        self.write("stuck.sched", DEADLOCK)
        for command in (["schedule", "check"], ["simulate"], ["schedule", "show", "--format", "svg"],
                        ["schedule", "show", "--format", "html"], ["schedule", "show", "--format", "json"]):
            code, out, err = self.run_program(*command, "stuck.sched")
            self.assertEqual((code, out), (2, ""), command)
            self.assertIn("deadlock", err.splitlines()[0])
            self.assertRegex(err, r"rank 0 \| .*>0B0<")
        self.assertIn("0B0", self.output_of("schedule", "show", "stuck.sched"), "the grid shows how far it gets")

    def test_a_file_and_flags_that_contradict_it(self):
        self.write("x.sched", SCHED)
        self.assert_refused(["schedule", "show", "x.sched"],
                            (["--stages", "3"], "x.sched has 2 pipeline ranks, but --stages says 3"),
                            (["--micro-batches", "3"], "x.sched has 2 micro-batches, but --micro-batches says 3"),
                            (["--chunks", "2"],
                             "x.sched has 2 stages on 2 pipeline ranks, but --chunks says 2 on each"))
        self.output_of("schedule", "show", "x.sched", "--stages", "2", "--micro-batches", "2", "--chunks", "1")

    def test_files_people_write(self):
        self.write("x.sched", "# mine\r\n" + SCHED.replace("\n", "\r\n").replace("0F0 ", "0F0   "))
        shown = self.output_of("schedule", "show", "1f1b", "--stages", "2", "--micro-batches", "2")
        self.assertEqual(self.output_of("schedule", "show", "x.sched"), shown)
        for command in (["schedule", "show", "-"], ["schedule", "show", "/dev/stdin"]):
            with open(self.path("x.sched")) as file:
                run = subprocess.run([program_runs.PROGRAM, *command], stdin=file, capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stdout), (0, shown), run.stderr)

    def test_a_table_with_a_file(self):
        self.write("x.sched", SCHED.replace("1f1b", "mine"))
        rows = self.output_of("schedule", "table", "x.sched").splitlines()
        self.assertEqual(rows[1].split()[:2], ["mine", "1"])
        alone = self.output_of("schedule", "table", "--stages", "2", "--micro-batches", "2").splitlines()
        self.assertEqual([row.split() for row in rows[2:]], [row.split() for row in alone[1:]])
        self.assert_refused(["schedule", "table"], (["x.sched", "--stages", "3"], "x.sched has 2 ranks"),
                            ([], "Pass --stages P and --micro-batches M, or a schedule file"))

    def test_misuse_of_schedule(self):
        self.write("x.sched", SCHED.replace("0F1", "0Q1"))
        self.assert_refused(
            ["schedule", "show"], (SHAPE, "which schedule? Give --schedule NAME or FILE"),
            (["gpip", *SHAPE], "no schedule is called 'gpip': did you mean 'gpipe'? There are "),
            (["./gpipe"], "./gpipe: cannot be opened"), (["x.sched"], "x.sched: line 7, column 14: "),
            (["gpipe"], "schedule 'gpipe' needs --stages P and --micro-batches M: both are missing"),
            (["gpipe", "--stages", "2"], "needs --stages P and --micro-batches M: --micro-batches is missing"),
            (["gpipe", "--stages", "2", "--micro-batches", "0"], "0 micro-batches"),
            (["gpipe", "--stages", "-1", "--micro-batches", "2"], "-1 ranks"),
            (["gpipe", *SHAPE, "--chunks", "2"], "chunk"),
            (["gpipe", *SHAPE, "--format", "png"], "--format: png not in {grid,csv,csv-comms,sched,svg,html,json}"),
            (["gpipe", *SHAPE, "--output", "no/such/file"], "no/such/file: there is no such folder; make it first"))

    def test_pictures(self):
        svg = self.output_of("schedule", "show", "1f1b", *SHAPE, "--format", "svg", "--cost-f", "1, 2")
        self.assertTrue(xml.etree.ElementTree.fromstring(svg).tag.endswith("svg"))
        self.assertIn("<title>1F0: 1 to 3</title>", svg)
        self.assertEqual(self.output_of("schedule", "convert", "1f1b", *SHAPE, "--format", "svg", "--cost-f", "1,2",
                                        "--output", "x.svg"), "")
        self.assertEqual(self.read("x.svg"), svg)
        page = self.output_of("schedule", "show", "1f1b", *SHAPE, "--format", "html")
        data = page.split('id="schedule">')[1].split("</script>")[0]
        self.assertEqual(json.loads(data), json.loads(self.output_of("schedule", "show", "1f1b", *SHAPE, "--format",
                                                                     "json")))

    def test_pictures_of_the_documentation_are_what_is_drawn(self):
        folder = os.path.join(TESTS, "../docs/pictures")
        with open(os.path.join(folder, "README.md")) as file:
            lines = [line.split() for line in file if line.startswith("    ")]
        commands = [line for line in lines if line[0] == "penstock"]
        compared = [line for line in lines if line[0] == "python3"]
        drawn = [os.path.basename(command[-1]) for command in commands]
        self.assertEqual(sorted(drawn + [os.path.basename(command[3]) for command in compared]),
                         sorted(name for name in os.listdir(folder) if name.endswith(".svg")))
        for command, name in zip(commands, drawn):
            with open(os.path.join(folder, name)) as file:
                self.assertEqual(self.output_of(*command[1:-2]), file.read(), "run it again: " + " ".join(command))
        for command in compared:
            script, arguments = os.path.join(TESTS, "..", command[1]), ["-", *command[4:]]
            done = subprocess.run([sys.executable, script, program_runs.PROGRAM, *arguments], capture_output=True,
                                  text=True)
            with open(os.path.join(TESTS, "..", command[3])) as file:
                self.assertEqual(done.stdout, file.read(), "run it again: " + " ".join(command))

    def test_drawings_and_figures_of_the_documentation_are_what_is_printed(self):
        with open(os.path.join(TESTS, "../docs/schedules.md")) as file:
            lines = file.read().splitlines()
        generators = set()
        for place, line in enumerate(lines):
            if not line.startswith("    $ penstock "):
                continue
            told = [further[4:] for further in itertools.takewhile(lambda text: text.startswith("    "),
                                                                   lines[place + 1:])]
            command = line[len("    $ penstock "):].split()
            self.assertEqual(self.output_of(*command).splitlines(), told, "run it again: " + line.strip())
            if command[:2] == ["schedule", "show"]:
                generators.add(command[2])
        table = self.output_of("schedule", "table", "--stages", "4", "--micro-batches", "8")
        self.assertEqual(generators, {row.split()[0] for row in table.splitlines()[1:]}, "each has its drawing")

    def test_foreign_schedules_are_drawn(self):
        folder = os.path.join(TESTS, "schedule/torch_csv")
        for name in sorted(os.listdir(folder)):
            made = json.loads(self.output_of("schedule", "show", os.path.join(folder, name), "--format", "json"))
            svg = self.output_of("schedule", "show", os.path.join(folder, name), "--format", "svg")
            boxes = [slot for slot in made["slots"] if slot["end"] > slot["begin"]]
            self.assertEqual(svg.count("<title>"), len(boxes), name)

    def test_json_begins_with_its_format(self):
        made = json.loads(self.output_of("schedule", "show", "1f1b", *SHAPE, "--format", "json", "--cost-update", "1"))
        self.assertEqual(list(made.items())[:3], [("format", "penstock schedule"), ("version", 1), ("name", "1f1b")])
        self.assertEqual(made["makespan"], 16)
        self.assertEqual(made["slots"][-1], {"rank": 1, "word": "1STEP", "op": "STEP", "stage": 1, "begin": 13,
                                             "end": 14, "needs": [10, 12, 14, 16]})

    def test_memory_limit(self):
        self.assertIn("ok: ", self.output_of("schedule", "check", "gpipe", *SHAPE))
        self.assertIn("ok: ", self.output_of("schedule", "check", "1f1b", *SHAPE, "--memory-limit", "1"))
        self.output_of("schedule", "convert", "gpipe", *SHAPE, "--output", "gpipe.sched")
        for arguments in (["schedule", "check"], ["simulate"], ["schedule", "show", "--format", "svg"]):
            for schedule in (["gpipe", *SHAPE], ["gpipe.sched"]):
                code, out, err = self.run_program(*arguments, *schedule, "--memory-limit", "1.5")
                self.assertEqual((code, out), (2, ""))
                self.assertIn("holds 4 there: set a limit of 2 or more", err.splitlines()[0])
            self.output_of(*arguments, "gpipe.sched", "--memory-limit", "2")
        for schedule in (["1f1b", *SHAPE], ["gpipe.sched"]):
            self.assert_refused(["schedule", "check", *schedule, "--memory-limit"],
                                *(([bad], f"memory limit {bad}: pass a positive multiple")
                                  for bad in ("0", "-1", "nan", "inf")))

    def test_memory_limit_in_bytes(self):
        bytes_of_two = ["--activation-bytes", "3MiB,1MiB"]
        self.output_of("schedule", "convert", "1f1b", *SHAPE, "--output", "1f1b.sched")
        self.write("costs.json", json.dumps({"penstock_costs": 1, "forward": [1], "input_grad": [1],
                                             "weight_grad": [1], "activation_bytes": [3 << 20, 1 << 20]}))
        for arguments in (["schedule", "check"], ["simulate"], ["schedule", "show", "--format", "svg"]):
            for schedule in (["1f1b", *SHAPE], ["1f1b.sched"]):
                for costs in (bytes_of_two, ["--cost-file", "costs.json"]):
                    self.output_of(*arguments, *schedule, *costs, "--memory-limit", "6MiB")
                    code, out, err = self.run_program(*arguments, *schedule, *costs, "--memory-limit", "6291455B")
                    self.assertEqual((code, out), (2, ""))
                    self.assertIn("a memory limit of 6291455B (6.0MiB) per rank is less than the 6MiB of activations that "
                                  "schedule '1f1b' holds on rank 0: set a limit of 6MiB or more", err.splitlines()[0])
                self.assertIn("the bytes of a micro-batch's activations are not known: pass them per stage "
                              "(--activation-bytes,",
                              self.complaint_of(*arguments, *schedule, "--memory-limit", "2GiB"))
        # zb-auto adapts: with twice the memory it holds more.
        held = [json.loads(self.run_program("simulate", "zb-auto", *SHAPE, "--activation-bytes", "1MiB",
                                            "--memory-limit", limit, "--json", "-")[1])["peak_activations"]
                for limit in ("1MiB", "2MiB", "3MiB")]
        self.assertEqual([max(peaks) for peaks in held], [1, 2, 3])
        # Groups of weight gradients are as large as the limit permits.
        self.assertIn("counted in full until W: 3 4\n",
                      self.output_of("schedule", "check", "1f1b", *SHAPE, "--fuse-w", *bytes_of_two, "--memory-limit",
                                     "9MiB"))
        self.assert_refused(["schedule", "check", "1f1b", *SHAPE, "--memory-limit"],
                            *(([bad], "the units are B, kB, MB, GB, TB, KiB, MiB, GiB and TiB")
                              for bad in ("1GB/s", "-1GiB", "0B", "1 GiB", "9223372036854775808B", "GiB")))
        self.assert_refused(["simulate", "1f1b", *SHAPE, "--activation-bytes"],
                            *(([bad], "not a number of bytes") for bad in ("3", "3MiB,", "-1B", "x")),
                            (["1B,2B,3B"], "there are 3 costs for the bytes of activations and 2 stages"))

    def test_fused_weight_gradients(self):
        self.assertIn(" 0W0-3\n", self.output_of("schedule", "show", "--fuse-w", "1f1b", *SHAPE))
        self.assertIn("rank 0: 0F0 0F1 0I0 0F2 0I1 0W0-1 ",
                      self.output_of("schedule", "convert", "1f1b", *SHAPE, "--fuse-w=2"))
        check = ["schedule", "check", "1f1b", *SHAPE, "--fuse-w"]
        self.assertIn("live activations at most 3 2.5 per rank, in micro-batches of a whole rank; counted in full until "
                      "W: 4 4\n", self.output_of(*check))
        self.assertIn("; counted in full until W: 3 3\n", self.output_of(*check, "--memory-limit", "1.5"))
        self.assert_refused(["simulate", "1f1b", *SHAPE], *(([f"--fuse-w={bad}"], f"--fuse-w={bad}: pass a number")
                                                            for bad in ("x", "-1", "0", "2x")))

    def test_a_lowered_file_is_fused_too(self):
        self.output_of("schedule", "convert", "1f1b", *SHAPE, "--lowered", "--output", "x.sched")
        wanted = self.output_of("schedule", "convert", "1f1b", *SHAPE, "--fuse-w=2", "--lowered")
        self.assertEqual(self.output_of("schedule", "convert", "x.sched", "--fuse-w=2"), wanted)
        self.output_of("schedule", "convert", "1f1b", *SHAPE, "--format", "csv-comms", "--output", "x.csv")
        fused = self.output_of("schedule", "convert", "x.csv", "--fuse-w=2")
        self.assertIn(" 0W0-1 ", fused)
        self.assertNotIn("STEP", fused, "nor has the file one")

    def test_a_fused_file_keeps_its_skip_links_and_what_ends_its_step(self):
        skip = "".join(("penstock schedule 1\nname skip\nranks 3\nstages 3\nmicro_batches 1\nrank_of_stage 0 1 2\n",
                        "rank 0: 0F0 0SEND_F0 0SEND_F0>2 0RECV_B0 0RECV_B0<2 0B0 0REDUCE 0NORM 0STEP\n",
                        "rank 1: 1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0 1REDUCE 1NORM 1STEP\n",
                        "rank 2: 2RECV_F0<0 2RECV_F0 2F0 2B0 2SEND_B0>0 2SEND_B0 2REDUCE 2NORM 2STEP\n"))
        self.write("skip.sched", skip)
        fused = self.output_of("schedule", "convert", "skip.sched", "--fuse-w")
        instructions = sorted(fused.replace(":", "").split())
        expected = sorted(skip.replace(":", "").replace("B0 0REDUCE", "I0 0W0 0REDUCE").replace(" 1B0 ", " 1I0 1W0 ")
                          .replace(" 2B0 ", " 2I0 2W0 ").split())
        self.assertEqual(instructions, expected)
        self.write("stuck.sched", skip.replace("0SEND_F0>2 0RECV_B0", "0RECV_B0 0SEND_F0>2").replace(
            "1F0 1SEND_F0 1RECV_B0 1B0", "1RECV_B0 1F0 1B0 1SEND_F0"))
        code, _, err = self.run_program("schedule", "check", "stuck.sched", "--fuse-w")
        self.assertEqual(code, 2, "what its messages do wrong is not covered up")
        self.assertIn("deadlock", err.splitlines()[0])

    def test_costs_that_do_not_fit_are_refused_before_anything_is_made(self):
        told = "there are 3 costs for F and 2 stages: pass one for all or one for each"
        self.output_of("schedule", "convert", "gpipe", *SHAPE, "--output", "gpipe.sched")
        for schedule in (["gpipe", *SHAPE], ["zb-auto", *SHAPE], ["gpipe.sched"]):
            for arguments in (["schedule", "show"], ["schedule", "check"], ["simulate"]):
                self.assertEqual(self.complaint_of(*arguments, *schedule, "--cost-f", "1,2,3"), told)

    def test_table(self):
        out = self.output_of("schedule", "table", "--stages", "4", "--micro-batches", "8", "--format", "markdown")
        self.assertIn("| 1f1b | 1 | (p-1)(F+I+W) | 27.3 % | 27.3 % | min(m, p) | 4 | 2(p-1)m | 48 |\n", out)
        grid = self.output_of("schedule", "table", "--stages", "4", "--micro-batches", "8", "--chunks", "2")
        self.assertEqual(len(grid.splitlines()), len(out.splitlines()) - 1, "one line less: the rule of Markdown")
        self.assertIn("--micro-batches M", self.complaint_of("schedule", "table", "--stages", "4"))

    def test_no_partial_files_are_left(self):
        self.write("x.sched", "before")

        def short_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))

        code, _, err = self.run_program("schedule", "convert", "gpipe", *SHAPE, "--output", "x.sched",
                                        preexec_fn=short_files)
        self.assertEqual((code, err), (1, "penstock: x.sched: cannot be written: File too large\n"))
        self.assertEqual(os.listdir(self.folder), ["x.sched"])
        self.assertEqual(self.read("x.sched"), "before")

    # simulate

    def test_simulate_as_a_table(self):
        self.assertEqual(self.output_of("simulate", "1f1b", *SHAPE),
                         "1f1b: 2 ranks, 2 stages, 4 micro-batches\n"
                         "rank    busy   idle  peak activations\n"
                         "   0  12.000  3.000              2.00\n"
                         "   1  12.000  3.000              1.00\n"
                         "makespan 15.000, bubble 20.00 %; span 15.000, bubble 20.00 %\n")

    def test_simulate_as_json(self):
        arguments = ["simulate", "--schedule", "gpipe", "--stages", "4", "--micro-batches", "8", "--cost-f", "18.522",
                 "--cost-i", "18.086", "--cost-w", "9.337", "--cost-comm", "0.601"]
        code, out, err = self.run_program(*arguments, "--json", "-")
        self.assertEqual(code, 0)
        self.assertIn("makespan", err, "people read on beside it")
        figures = json.loads(out)
        self.assertEqual(list(figures), ["schedule", "ranks", "stages", "micro_batches", "makespan", "span",
                                         "bubble_makespan", "bubble_span", "peak_activations", "peak_contexts", "busy"])
        # (m + p - 1)(F + I + W) and p - 1 messages each way.
        self.assertAlmostEqual(figures["makespan"], 11 * (18.522 + 18.086 + 9.337) + 6 * 0.601)
        self.assertEqual(figures["peak_activations"], [8, 8, 8, 8])
        self.assertEqual((figures["schedule"], figures["ranks"], figures["stages"], figures["micro_batches"]),
                         ("gpipe", 4, 4, 8))
        table = self.output_of(*arguments, "--json", "figures.json")
        self.assertIn("makespan", table)
        self.assertEqual(json.loads(self.read("figures.json")), figures)

    def test_simulate_several_schedules(self):
        shape = ["--stages", "2", "--micro-batches", "4"]
        rows = self.output_of("simulate", "1f1b, zb-v,1f1b", *shape, "--cost-f", "1").splitlines()
        self.assertEqual([row.split()[0] for row in rows], ["schedule", "1f1b", "zb-v"])
        figures = json.loads(self.run_program("simulate", "1f1b,zb-v", *shape, "--json", "-")[1])
        alone = json.loads(self.run_program("simulate", "zb-v", *shape, "--json", "-")[1])
        self.assertEqual(figures[1], alone)

    def test_simulate_shows_the_critical_path(self):
        out = self.output_of("simulate", "gpipe", "--stages", "2", "--micro-batches", "2", "--cost-comm", "0.5",
                             "--critical-path")
        self.assertEqual(out.split("critical path:\n")[1],
                         "rank 0: 0F0, 0.000 to 1.000\nrank 1: 1F0 to 1B0, 1.500 to 5.500, after a message\n"
                         "rank 0: 0B0 to 0STEP, 6.000 to 10.000, after a message\n")

    def test_messages_wait_for_their_link(self):
        shape = ["gpipe", "--stages", "2", "--micro-batches", "8", "--cost-comm", "5"]
        for gap, makespan in (("0", 37), ("5", 86)):
            code, out, _ = self.run_program("simulate", *shape, "--cost-gap", gap, "--json", "-")
            self.assertEqual((code, json.loads(out)["makespan"]), (0, makespan))
        self.assert_refused(["simulate", *shape], (["--cost-gap", "6"], "occupies its link for 6 of the 5"))

    def test_costs_of_a_rank_are_shared_by_its_stages(self):
        out = self.run_program("simulate", "gpipe,looped-bfs", "--stages", "2", "--micro-batches", "4", "--chunks", "2",
                               "--cost-f", "4", "--cost-per", "rank", "--json", "-")
        self.assertEqual(out[0], 2, "gpipe has one stage per rank")
        code, out, _ = self.run_program("simulate", "gpipe,interleaved,zb-v", "--stages", "2", "--micro-batches", "4",
                                        "--cost-f", "4", "--cost-per", "rank", "--json", "-")
        self.assertEqual([sum(one["busy"]) for one in json.loads(out)], [2 * 4 * (4 + 1 + 1)] * 3)

    def test_a_place_for_json_is_looked_at_first(self):
        code, out, err = self.run_program("simulate", "1f1b", *SHAPE, "--json", "no/such/file")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("no/such/file: there is no such folder", err)

    def test_costs_of_layers_are_for_plan(self):
        self.write("costs.json", json.dumps({"penstock_layer_costs": 1}))
        self.assert_refused(["simulate", "1f1b", *SHAPE],
                            (["--cost-file", "costs.json"], "costs.json: the cost file has costs of layers, which"))

    def test_simulate_with_a_cost_per_stage(self):
        out = self.output_of("simulate", "1f1b", "--stages", "2", "--micro-batches", "1", "--cost-f", "1,10",
                             "--cost-update", "100")
        self.assertIn("makespan 115.000", out)

    def test_simulate_with_a_file_of_costs(self):
        costs = {"penstock_costs": 1, "forward": [1, 10], "input_grad": [1], "weight_grad": [1], "update": [100]}
        self.write("costs.json", json.dumps(costs))
        arguments = ["simulate", "1f1b", "--stages", "2", "--micro-batches", "1", "--cost-file", "costs.json"]
        self.assertIn("makespan 115.000", self.output_of(*arguments))
        self.assertIn("makespan 106.000", self.output_of(*arguments, "--cost-f", "1"), "a flag goes before the file")
        self.assert_refused(["simulate", "1f1b", "--micro-batches", "1", "--stages"],
                            (["3", *arguments[6:]], "there are 2 costs for F and 3 stages"))
        self.write("costs.json", "{}")
        self.assert_refused(arguments[:-1],
                            (["costs.json"], "costs.json: the cost file must say \"penstock_costs\": 1"),
                            (["none.json"], "none.json: cannot be opened: No such file or directory"))

    def test_simulate_reads_files_and_chunks(self):
        file = os.path.join(TESTS, "schedule/torch_csv/zbv_p4_m8_v2_compute.csv")
        code, out, _ = self.run_program("simulate", "--schedule", file, "--chunks", "2", "--json", "-", "--cost-f",
                                        "1,1,1,1,1,1,1,2")
        figures = json.loads(out)
        self.assertEqual((code, figures["ranks"], figures["stages"]), (0, 4, 8))
        self.assertEqual(figures["busy"], [56, 48, 48, 48])
        self.assertEqual(figures["peak_activations"], [4, 4, 4, 4], "in micro-batches of both chunks")

    def test_simulate_refuses_costs(self):
        self.assert_refused(["simulate", "1f1b", *SHAPE],
                            (["--cost-f", "1,x"], "--cost-f 1,x: cost 2 is 'x', which is not a finite number >= 0"),
                            (["--cost-i", "-1"], "--cost-i -1: cost 1 is '-1', wh"),
                            (["--cost-w", "1,2,3"], "3 costs for W and 2 stages"),
                            (["--cost-comm", "1,2"], "--cost-comm 1,2: there are 2 costs"))

    # trace

    def test_trace_report(self):
        out = self.output_of("trace", "report", os.path.join(TESTS, "trace/goldens/trace.json"))
        self.assertRegex(out, r"^rank  stages  compute .*\n   0       0 .*\n   1       1 .*\n")
        self.assertRegex(out, r"step 2, the median of \d+ \([0-9.]+ to [0-9.]+ ms\): measured [0-9.]+ ms, predicted "
                              r"[0-9.]+ ms from the times of this run's own instructions\nbubble: measured .* \(makespan\);")
        self.assertRegex(out, r"\n(What would help most: .* would save .*|Nothing was found .*)\.\n$")

    def json_report_of(self, *arguments):
        """The JSON report on standard output; the text goes to standard error."""
        code, out, err = self.run_program("trace", "report", *arguments, "--json", "-")
        self.assertEqual((code, err[:4]), (0, "rank"), err)
        return json.loads(out)

    def test_trace_report_as_json(self):
        golden = os.path.join(TESTS, "trace/goldens/trace.json")
        report = self.json_report_of(golden)
        self.assertEqual(report["step"], 2)
        self.assertEqual([rank["stages"] for rank in report["ranks"]], [[0], [1]])
        for rank in report["ranks"]:
            parts = sum(value for name, value in rank.items() if name not in ("stages", "total"))
            self.assertAlmostEqual(parts, rank["total"])
        saved = [recommendation["saved"] for recommendation in report["advice"]["remedies"]]
        self.assertEqual(saved, sorted(saved, reverse=True))
        self.assertEqual(self.output_of("trace", "report", golden, "--json", "report.json"),
                         self.output_of("trace", "report", golden))
        self.assertEqual(json.loads(self.read("report.json")), report)

    def test_trace_report_with_costs(self):
        layers = [{"name": name, "forward": 1, "input_grad": 1, "weight_grad": 1, "activation_bytes": 0,
                   "parameter_bytes": 0, "boundary_bytes": 0} for name in ("a", "b", "c")]
        costs = {"penstock_layer_costs": 1, "time_unit": "ms", "ranks": 2, "samples": 4, "micro_batch_size": 1,
                 "link": {"bytes_per_unit": 0, "latency": 0}, "layers": layers}
        golden = os.path.join(TESTS, "trace/goldens/trace.json")
        self.write("costs.json", json.dumps(costs))
        self.assertRegex(self.complaint_of("trace", "report", golden, "--costs", "costs.json"),
                         "the trace does not say which layers its stages have")
        with open(golden) as file:
            trace = json.load(file)
        trace["penstock"]["settings"]["layers"] = "a;b,c"
        self.write("named.json", json.dumps(trace))
        report = self.json_report_of("named.json", "--costs", "costs.json")
        kinds = {recommendation["kind"] for recommendation in report["advice"]["remedies"]}
        self.assertNotIn("even_cut", kinds)
        trace["penstock"]["settings"]["layer_costs"] = json.dumps(costs, indent=2)
        self.write("told.json", json.dumps(trace))
        self.assertEqual(self.json_report_of("told.json"), report)

    def test_trace_svg(self):
        golden = os.path.join(TESTS, "trace/goldens/trace.json")
        self.assertEqual(self.output_of("trace", "svg", golden, "--output", "step.svg"), "")
        self.assertEqual(self.read("step.svg"), self.output_of("trace", "svg", golden))
        self.assertTrue(xml.etree.ElementTree.fromstring(self.read("step.svg")).tag.endswith("svg"))

    def test_trace_refuses_files(self):
        self.write("other.json", "{}")
        self.assert_refused(["trace"], (["report"], "trace is required"),
                            (["report", "none.json"], "none.json: cannot be opened: No such file or directory"),
                            (["svg", "other.json"], "other.json: the trace has no penstock"))


if __name__ == "__main__":
    program_runs.PROGRAM, TESTS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    unittest.main(argv=sys.argv[:1], verbosity=2)
