#!/usr/bin/env python3
"""Runs two programs that print lines with "step: N, loss is X" and "test: loss X", and compares the losses.

    compare_losses.py TOLERANCE COMMAND_A COMMAND_B

Fails unless both print the same steps, at least three, with losses that differ by at most TOLERANCE relatively. Each
command is one argument, split like a shell's arguments. Ends with 77 if a program reports that its data is missing.
"""
import re
import shlex
import subprocess
import sys


def losses(command):
    run = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(run.stderr, file=sys.stderr)
        sys.exit(77 if re.search(r"no [A-Za-z0-9 -]+ in '", run.stderr) else 1)
    return re.findall(r"(step: \d+|test)[,:] (?:loss is|loss) ([^\s,]+)", run.stdout)


def main():
    tolerance, first, second = float(sys.argv[1]), losses(sys.argv[2]), losses(sys.argv[3])
    if len(first) < 3 or [step for step, _ in first] != [step for step, _ in second]:
        sys.exit(f"the steps differ: {first} and {second}")
    apart = [abs(float(a) - float(b)) / abs(float(a)) for (_, a), (_, b) in zip(first, second)]
    print(f"{len(first)} losses, {max(apart):.2g} apart at most")
    return 0 if all(each <= tolerance for each in apart) else 1  # a loss that is no number is not as near as that


if __name__ == "__main__":
    sys.exit(main())
