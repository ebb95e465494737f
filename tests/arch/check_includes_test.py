"""Tests that tools/check_includes.py reports the violation of every rule, on a small source tree."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).parents[2] / "tools" / "check_includes.py"

TABLE = """
| module | what it is for | may include | read first |
| --- | --- | --- | --- |
| base | the floor | - | base.h |
| wire | carries | base | wire.h |
| show | draws | base, wire | show.h |
"""

GOOD = {
    "docs/architecture.md": TABLE,
    "src/penstock/penstock.h": '#include "penstock/base/base.h"\n#include "penstock/show/show.h"\n'
                               '#include "penstock/wire/wire.h"\n',
    "src/penstock/base/base.h": "#include <string>\n",
    "src/penstock/wire/queue.h": '#include "penstock/base/base.h"\n',
    "src/penstock/wire/wire.h": '#include <torch/types.h>\n#include "penstock/wire/queue.h"\n',
    "src/penstock/show/show.h": '#include "penstock/wire/wire.h"\n',
    "src/penstock/show/show.cc": '#include "penstock/show/show.h"\n' + "//\n" * 499,
}


class CheckIncludes(unittest.TestCase):
    def check(self, changes):
        """Exit code and findings for the good tree with `changes`; a file changed to None is left out."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**GOOD, **changes}.items():
                if text is not None:
                    path = pathlib.Path(folder) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text)
            run = subprocess.run([sys.executable, CHECKER, folder], capture_output=True, text=True, check=False)
            return run.returncode, run.stdout.splitlines()

    def refuses(self, changes, *findings):
        self.assertEqual(self.check(changes), (1, list(findings)))

    def test_a_good_tree_passes(self):
        self.assertEqual(self.check({}), (0, ["the source tree is as docs/architecture.md says"]))

    def test_a_module_may_include_only_modules_in_the_table(self):
        self.refuses({"src/penstock/wire/wire.cc": '#include <string>\n#include <penstock/show/show.h>\n'},
                     "units include each other in a circle: show/show, wire/wire",
                     "wire/wire.cc:2: 'wire' may not include 'show'")

    def test_a_folder_with_a_row_is_a_module_that_other_modules_reach_with_the_one_around_it(self):
        nested = TABLE.replace("| show |", "| wire/join | joins | base, wire | join.h |\n| show |")
        tree = {"docs/architecture.md": nested, "src/penstock/wire/join/join.h": '#include "penstock/wire/wire.h"\n',
                "src/penstock/show/show.h": '#include "penstock/wire/join/join.h"\n'}
        self.assertEqual(self.check(tree)[0], 0)
        self.refuses({**tree, "src/penstock/wire/queue.cc": '#include "penstock/wire/join/join.h"\n'},
                     "units include each other in a circle: wire/join/join, wire/queue, wire/wire",
                     "wire/queue.cc:1: 'wire' may not include 'wire/join'")

    def test_a_module_may_not_include_the_umbrella(self):
        self.refuses({"src/penstock/show/show.cc": '#include "penstock/penstock.h"\n'},
                     "units include each other in a circle: penstock, show/show",
                     "show/show.cc:1: modules include public headers, not the umbrella")

    def test_units_may_not_include_each_other_in_a_circle(self):
        self.refuses({"src/penstock/base/a.h": '#include "penstock/base/b.h"\n', "src/penstock/base/b.h": "",
                      "src/penstock/base/b.cc": '#include "penstock/base/c.h"\n',
                      "src/penstock/base/c.h": '#include "penstock/base/a.h"\n'},
                     "units include each other in a circle: base/a, base/b, base/c")

    def test_an_included_header_exists(self):
        self.refuses({"src/penstock/show/show.cc": '#include "penstock/base/bass.h"\n'},
                     "show/show.cc:1: there is no penstock/base/bass.h")

    def test_a_class_is_defined_once(self):
        self.refuses({"src/penstock/wire/queue.h": "struct Span {\n};\n\ntemplate <class T>\nclass Line : T {\n};\n",
                      "src/penstock/base/base.h": "enum class Line { a, b };\n",
                      "src/penstock/base/span.h": "class alignas(64) Span\n    : public Line {\n};\n"},
                     "wire/queue.h: 'Span' is a class of base/span.h too; give one of the two another name",
                     "wire/queue.h: 'Line' is a class of base/base.h too; give one of the two another name")

    def test_declarations_specialisations_and_members_define_no_class_again(self):
        self.assertEqual(self.check({"src/penstock/wire/queue.h": "struct Span {\n  struct Point {\n  };\n};\n",
                                     "src/penstock/base/span.h": "struct Span;\nstruct Line {\n  struct Point {\n"
                                     "  };\n};\nclass Span::Point {\n};\nstruct std::hash<Span> {\n};\n"})[0], 0)

    def test_files_stay_short(self):
        self.refuses({"src/penstock/show/show.cc": "//\n" * 501},
                     "show/show.cc: 501 lines, at most 500 are allowed: it says more than one thing")

    def test_meaningless_names_are_refused(self):
        self.refuses({"src/penstock/show/utils.h": "", "src/penstock/show/detail/grid.h": ""},
                     "show/detail/grid.h: 'detail' says nothing about what is inside",
                     "show/utils.h: 'utils.h' says nothing about what is inside")

    def test_table_and_folders_agree(self):
        self.refuses({"src/penstock/attic/box.h": "", "docs/architecture.md": TABLE + "| roof | rains | - | - |\n"},
                     "attic/: a module without a row in docs/architecture.md",
                     "docs/architecture.md: module 'roof' has no folder")

    def test_the_table_has_no_cycles(self):
        self.refuses({"docs/architecture.md": TABLE.replace("the floor | -", "the floor | show")},
                     "docs/architecture.md: 'base' may include 'show', which stands below it")

    def test_headers_in_the_table_exist(self):
        self.refuses({"src/penstock/show/show.h": None, "src/penstock/show/show.cc": "",
                      "src/penstock/penstock.h": ""},
                     "docs/architecture.md: 'show' has no header 'show.h'")

    def test_without_a_table_nothing_passes(self):
        self.refuses({"docs/architecture.md": "| module | read first |\n"},
                     "docs/architecture.md: no table with the columns module | what it is for | may include | read first")


if __name__ == "__main__":
    unittest.main()
