#!/usr/bin/env python3
"""Prints docs/cli.md: what `penstock VERB --help` says, for every verb that `penstock --help` lists.

    cli_reference.py PROGRAM > docs/cli.md

PROGRAM is a `penstock` with the runtime (a build with LibTorch). Nothing in the page depends on the machine: the
program writes its help without the width of the terminal, and defaults are those of the source.
"""
import os
import re
import subprocess
import sys
import textwrap

HEADER = """\
# Command line

This page is the output of `--help` of every verb; a flag that an earlier verb describes in the same words is only
named. `tools/cli_reference.py` writes it, and the test `cli.cli_reference`
compares it with the program. [program.md](program.md) shows the verbs in use.

Results go to standard output, remarks to standard error. The exit code is 0 after success, 1 after a failure, 2 after
misuse ([errors.md](errors.md)).
"""
PROFILE = ["plan", "--profile"]  # the one flag that makes another verb of it


def help_of(program, verb):
    # A default may come from the environment: the page must not show it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment.update(LC_ALL="C", COLUMNS="80", TERM="dumb")
    done = subprocess.run([program, *verb, "--help"], capture_output=True, text=True, env=environment, timeout=60)
    if done.returncode != 0:
        sys.exit(f"{' '.join(['penstock', *verb, '--help'])} ended with {done.returncode}: {done.stderr.strip()}")
    text = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
    return re.sub(r"\n{3,}", "\n\n", text)


def verbs_below(text):
    """The names that the paragraph 'Subcommands:' of a help lists."""
    found = re.search(r"^Subcommands:\n((?:  .*\n?)+)", text, re.MULTILINE)
    # A line of its own at two spaces names a verb; a description that wraps stands further right.
    return re.findall(r"^  (\S+)", found[1], re.MULTILINE) if found else []


def without_repeated(text, verb, seen):
    """The help with the flags that an earlier verb describes in the same words named only, below its other ones."""
    blocks = []
    for block in text.split("\n\n"):
        title, *lines = block.split("\n")
        flags = re.findall(r"^  -.*\n?(?:   .*\n?)*", "\n".join(lines), re.MULTILINE)
        if not title.endswith(":") or not flags:
            blocks.append(block)
            continue
        kept, repeated = [], {}
        for flag in (flag.rstrip("\n") for flag in flags):
            known = seen.setdefault(flag, verb)
            if known == verb:
                kept.append(flag)
            else:
                repeated.setdefault(known, []).append(re.match(r"  (?:-\w,)?(\S+)", flag)[1])
        for known, names in repeated.items():
            kept += textwrap.wrap(f"as '{known}': {', '.join(names)}", 118, initial_indent="  ",
                                  subsequent_indent="    ", break_on_hyphens=False)
        blocks.append("\n".join([title, *kept]))
    return "\n\n".join(blocks)


def sections(program, seen, verb=()):
    text = without_repeated(help_of(program, verb), " ".join(["penstock", *verb]), seen)
    name = " ".join(["penstock", *verb])
    yield f"{'#' * (1 + max(1, len(verb)))} {name}\n\n```text\n{text}\n```\n"
    for further in verbs_below(text):
        yield from sections(program, seen, (*verb, further))
        if further == PROFILE[0] and not verb:
            text = without_repeated(help_of(program, PROFILE), "penstock plan --profile", seen)
            yield f"### penstock plan --profile\n\n```text\n{text}\n```\n"


def page(program):
    return "\n".join([HEADER, *sections(program, {})])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(page(os.path.abspath(sys.argv[1])))
