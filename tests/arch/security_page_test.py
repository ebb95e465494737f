#!/usr/bin/env python3
"""Every promise of SECURITY.md names tests, and they exist.

Usage: security_page_test.py PROJECT_FOLDER
"""
import pathlib
import re
import sys

ROW = re.compile(r"^\| (?P<promise>.*) \| (?P<tests>[^|]*) \|$")
FUZZER = re.compile(r"^penstock_fuzzer\((\w+)", re.MULTILINE)


def exists(root, name):
    if name.startswith("fuzz_"):
        return name.removeprefix("fuzz_") in FUZZER.findall((root / "tests" / "fuzz" / "CMakeLists.txt").read_text())
    module, _, rest = name.partition(".")
    listing = root / "tests" / module / "CMakeLists.txt"
    if not rest or not listing.is_file():
        return False
    files = [root / "tests" / module / f"{rest}_test{ending}" for ending in (".cc", ".py")]
    lists = listing.read_text()
    is_listed = f"NAME {name}" in lists or re.search(rf"\b{rest}\b", lists)
    return bool(is_listed) and (f"add_test(NAME {name}" in lists or any(file.is_file() for file in files))


def findings(root):
    rows = [ROW.match(line) for line in (root / "SECURITY.md").read_text().splitlines()]
    rows = [row for row in rows if row and row["tests"] not in ("test", "---")]
    if len(rows) < 10:
        yield f"SECURITY.md has {len(rows)} promises"
    for row in rows:
        names = re.findall(r"`([\w.]+)`", row["tests"])
        if not names:
            yield f"no test: {row['promise']}"
        for name in names:
            if not exists(root, name):
                yield f"there is no test {name}: {row['promise'][:60]}"
    named = {name for row in rows for name in re.findall(r"`fuzz_(\w+)`", row["tests"])}
    for name in set(FUZZER.findall((root / "tests" / "fuzz" / "CMakeLists.txt").read_text())) - named:
        yield f"SECURITY.md does not name fuzz_{name}"


def main():
    root = pathlib.Path(sys.argv[1])
    assert not exists(root, "data.nothing") and not exists(root, "fuzz_nothing") and exists(root, "data.idx")
    found = list(findings(root))
    print("\n".join(found) or "each promise of SECURITY.md has its tests")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
