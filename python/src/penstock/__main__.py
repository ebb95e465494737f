"""`python -m penstock`: the verbs of the planning program."""
import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "bin" / "penstock"
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
