"""The program that README shows is examples/1_mnist_mlp.cc, so what is built and run in tests is what is read.

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
