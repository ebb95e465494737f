#!/usr/bin/env python3
"""Compares docs/errors.md with the tests: each message in it is expected by a test, and each class is thrown in one.

    check_error_messages.py PROJECT_FOLDER

A message is an indented line. Below a block of them, a comment names the test: <!-- tests/data/idx_test.cc -->. The parts of the
message that do not vary, of three words or more, must occur in that file. What varies are words with
digits, quotes, slashes or an ellipsis. A class stands in the table; some test must expect it by its name.
"""
import pathlib
import re
import sys

VARIES = re.compile(r"[\d'\"/…]")
EXPECTS = r"(?:EXPECT_THROW|ASSERT_THROW|error_text<|THROWS_AS|catch \(const ).{0,200}?\b%s\b"
LEAST_WORDS = 3


def constant_parts(message):
    """The parts of a message between the words that vary."""
    parts, words = [], []
    for word in message.split() + ["0"]:
        if VARIES.search(word):
            parts.append(" ".join(words))
            words = []
        else:
            words.append(word)
    return [part for part in parts if len(part.split()) >= LEAST_WORDS]


def text_of(path):
    """A test's text with its neighbouring literals joined and the escapes of regular expressions removed."""
    text = re.sub(r"\",?\s*\n\s*(?:r|f|rf)?\"", "", path.read_text())
    return text.replace("\\", "")


def messages(page):
    """The indented lines outside of blocks of code, each with the test that the next comment names, if any."""
    lines = page.read_text().splitlines()
    fenced = False
    for number, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if fenced or not line.startswith("    ") or not line.strip():
            continue
        after = [later for later in lines[number + 1:] if later.strip() and not later.startswith("    ")]
        comment = re.fullmatch(r"<!-- (\S+) -->", after[0]) if after else None
        yield number + 1, line.strip(), comment[1] if comment else None


def findings(root):
    page = root / "docs" / "errors.md"
    found = list(messages(page))
    if not found:
        yield "docs/errors.md: no messages"
    for number, message, test in found:
        place = f"docs/errors.md:{number}"
        if test is None or not (root / test).is_file():
            yield f"{place}: the line below does not name the test that expects it: <!-- tests/... -->"
            continue
        text, parts = text_of(root / test), constant_parts(message)
        if not parts:
            yield f"{place}: nothing in it is constant"
        for part in parts:
            if part not in text:
                yield f"{place}: {test} does not contain '{part}'"
    classes = re.findall(r"^\| `(\w+)` \|", page.read_text(), re.MULTILINE)
    tests = "\n".join(path.read_text() for path in sorted((root / "tests").rglob("*_test.cc")))
    for name in classes:
        if not re.search(EXPECTS % name, tests, re.DOTALL):
            yield f"docs/errors.md: no test expects a {name}"
    if not classes:
        yield "docs/errors.md: no table of classes"


def main():
    found = list(findings(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "each message and class of docs/errors.md is expected by a test")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
