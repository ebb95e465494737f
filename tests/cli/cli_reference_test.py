"""docs/cli.md is what tools/cli_reference.py prints: the page shows the flags that the program has.

Usage: cli_reference_test.py PENSTOCK REPOSITORY
"""

import difflib
import os
import subprocess
import sys


def main():
    program, repository = sys.argv[1:]
    script = os.path.join(repository, "tools/cli_reference.py")
    printed = subprocess.run([sys.executable, script, program], check=True, capture_output=True, text=True).stdout
    with open(os.path.join(repository, "docs/cli.md")) as file:
        page = file.read()
    if page != printed:
        sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), printed.splitlines(True),
                                                   "docs/cli.md", "the program's --help"))
        sys.exit("write docs/cli.md again: tools/cli_reference.py PROGRAM > docs/cli.md")


if __name__ == "__main__":
    main()
