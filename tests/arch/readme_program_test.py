"""The program in the README is equal to examples/1_mnist_mlp.cc, which tests build and run.

Usage: readme_program_test.py REPOSITORY
"""

import os
import re
import sys


def main():
    with open(os.path.join(sys.argv[1], "README.md")) as file:
        blocks = re.findall(r"^```cpp\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    shown = [block for block in blocks if "int main" in block]
    with open(os.path.join(sys.argv[1], "examples/1_mnist_mlp.cc")) as file:
        program = re.sub(r"\A(//[^\n]*\n)+", "", file.read())
    if shown != [program]:
        sys.exit("README.md's program is not that of examples/1_mnist_mlp.cc: copy it there, without its first comment")


if __name__ == "__main__":
    main()
