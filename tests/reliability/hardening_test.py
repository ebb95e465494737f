#!/usr/bin/env python3
"""The programs of a release build are hardened (cmake/hardening.cmake), as readelf shows.

Usage: hardening_test.py PROGRAM...
"""
import re
import subprocess
import sys


def readelf(option, path):
    return subprocess.run(["readelf", "--wide", option, path], capture_output=True, text=True, check=True).stdout


def missing(path):
    """What a program lacks."""
    dynamic = readelf("--dynamic", path)
    symbols = readelf("--dyn-syms", path)
    checks = {
        "it is position-independent": re.search(r"Type:\s+DYN \(Position-Independent", readelf("--file-header", path)),
        "tables are read-only after the start (-z relro)": "GNU_RELRO" in readelf("--program-headers", path),
        "all functions are bound at the start (-z now)": re.search(r"FLAGS_1\).*\bNOW\b", dynamic),
        "the stack is checked (-fstack-protector-strong)": "__stack_chk_fail" in symbols,
        "buffers are checked (-D_FORTIFY_SOURCE=3)": re.search(r"__\w+_chk\b", symbols.replace("__stack_chk_fail", "")),
        "the stack is not executable": re.search(r"GNU_STACK .* RW ", readelf("--program-headers", path)),
    }
    return [what for what, holds in checks.items() if not holds]


def main():
    failed = {path: missing(path) for path in sys.argv[1:]}
    for path, what in failed.items():
        print(f"{path}: {'hardened' if not what else 'not so: ' + '; '.join(what)}")
    # The test can fail: most programs of an ordinary system lack one of these.
    return 1 if any(failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
