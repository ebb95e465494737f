#!/usr/bin/env python3
"""Prints how many lines of the planning library the tests of a build with --coverage have executed.

    line_coverage.py BUILD SOURCE [--least PERCENT] [--lines]

Reads the counts by gcov. A line counts if the compiler makes code of it anywhere, and is covered if any test has
executed it anywhere, as a template or an inline function has several places. Lines of a header count for its module.
Ends with 1 if fewer than PERCENT of all lines are covered. --lines also prints each line that is not.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys

# The modules of the planning library.
MODULES = ["base", "schedule", "trace", "plan", "checkpoint"]


def gcov_documents(build):
    """What gcov says about each object file that has counts."""
    for notes in sorted(pathlib.Path(build).rglob("*.gcno")):
        if not notes.with_suffix(".gcda").exists():
            continue
        done = subprocess.run(["gcov", "--json-format", "--stdout", str(notes.with_suffix(".gcda").resolve())],
                              capture_output=True, check=True, cwd=build)
        for line in done.stdout.splitlines():
            yield json.loads(line)


def counts_of(build, source):
    """For each file below `source`, by its path there: {line: how often it was executed}."""
    root = os.path.realpath(source)
    counts = collections.defaultdict(lambda: collections.defaultdict(int))
    for document in gcov_documents(build):
        for file in document["files"]:
            path = os.path.realpath(os.path.join(document["current_working_directory"], file["file"]))
            if not path.startswith(root + os.sep):
                continue
            name = os.path.relpath(path, root)
            if name.split(os.sep)[0] in MODULES:
                for line in file["lines"]:
                    counts[name][line["line_number"]] += line["count"]
    return counts


def ranges(numbers):
    """[1, 2, 3, 7] as "1-3, 7"."""
    parts = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(begin) if begin == end else f"{begin}-{end}" for begin, end in parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("source")
    parser.add_argument("--least", type=float, default=0)
    parser.add_argument("--lines", action="store_true")
    wanted = parser.parse_args()
    counts = counts_of(wanted.build, wanted.source)
    if not counts:
        sys.exit("line_coverage.py: no counts in " + wanted.build)

    totals = collections.defaultdict(lambda: [0, 0])
    for name, lines in sorted(counts.items()):
        covered = sum(1 for count in lines.values() if count > 0)
        for group in (name.split(os.sep)[0], "all"):
            totals[group][0] += covered
            totals[group][1] += len(lines)
        if covered < len(lines):
            print(f"{name}: {len(lines) - covered} of {len(lines)} lines: "
                  + ranges(line for line, count in lines.items() if count == 0))
            if wanted.lines:
                text = (pathlib.Path(wanted.source) / name).read_text().splitlines()
                for line, count in sorted(lines.items()):
                    if count == 0:
                        print(f"    {line:4}: {text[line - 1].strip()}")
    print(f"\n{'module':<12} {'lines':>6} {'covered':>8}")
    for group in [*MODULES, "all"]:
        covered, lines = totals[group]
        print(f"{group:<12} {lines:>6} {100 * covered / max(1, lines):>7.1f}%")
    covered, lines = totals["all"]
    return 0 if 100 * covered >= wanted.least * lines else 1


if __name__ == "__main__":
    sys.exit(main())
