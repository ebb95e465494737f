"""Every block of C++ in docs/*.md stands in tests/docs/code.cc or an example, which are compiled.

Usage: code_test.py REPOSITORY
"""

import glob
import os
import re
import sys


def lines_of(text):
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def main():
    compiled = []
    for source in ["tests/docs/code.cc", *glob.glob("examples/*.cc", root_dir=sys.argv[1])]:
        with open(os.path.join(sys.argv[1], source)) as file:
            compiled.append(lines_of(file.read()))
    blocks = 0
    for page in sorted(glob.glob(os.path.join(sys.argv[1], "docs/*.md"))):
        with open(page) as file:
            for block in re.findall(r"^```(?:cpp|c\+\+)\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL):
                blocks += 1
                if not any(lines_of(block) in source for source in compiled):
                    sys.exit(f"{page}: this code is not in tests/docs/code.cc or examples/*.cc, line by line:\n{block}")
    if blocks < 15:
        sys.exit(f"{blocks} blocks of C++ in docs/*.md: are they all marked as cpp?")


if __name__ == "__main__":
    main()
