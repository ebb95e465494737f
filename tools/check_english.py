#!/usr/bin/env python3
"""Counts habits of wording that readers stumble over, per folder, and compares the counts with bounds that only fall.

    check_english.py PROJECT_FOLDER               fails if a folder has more habits than tools/english_bounds.txt allows
    check_english.py PROJECT_FOLDER --lower       the same, and lowers the bounds to the counts of today
    check_english.py PROJECT_FOLDER --list PATH   prints each habit below PATH: file, line, habit, what to write instead

Counted are comments and texts in quotes of source files, and everything in pages but their code. A pattern leaves out
the correct uses that it can tell ("the place where", "there is no", "behind an interface"); others stay counted, so the
bounds need not reach 0. A row of the bounds is a folder or file with everything below it.
"""
import argparse
import bisect
import io
import pathlib
import re
import sys
import tokenize

FOLDERS = ["src", "docs", "README.md", "tests", "benchmarks", "examples"]
EXEMPT = {"tests/arch/check_english_test.py"}  # its sentences are examples of the habits

# A habit: correct uses, which are looked for first; the pattern; what to write. A blank stands for any white space.
HABITS = {
    "where": (r"\b(?:places?|points?|lines?|columns?|positions?|folders?|directory|files?|pages?|hosts?|machines?|"
              r"address(?:es)?|from|shows?|sees?|knows?|known|tells?|told|reports?|prints?|finds?|records?|and|or) where"
              r"|where (?:from|to|\S+ (?:is|are|goes|went|lies)\b)|-where|where-", r"\bwhere\b", "if, when"),
    "alone": (r"\b(?:leaves? it|let|not) alone|-alone", r"\balone\b", "only"),
    "those of": (r"\bth(?:ose|at) of (?:them|which|course)", r"\bth(?:ose|at) of\b", "name the thing again, or its"),
    "give it": (r"[:;] give up", r"[:;] give\b", "pass, set, use"),
    "is no": (r"\b[Tt]here (?:is|are|was|were) no|\b(?:is|are|was|were) no (?:longer|more|less|fewer|\w+er than)\b",
              r"\b(?:is|are|was|were) no\b(?!-)", "is not a"),
    "behind": (r"\b(?:falls?|lags?|leaves?) behind|behind (?:an?|one|the same|this|its) (?:\w+ )?"
               r"(?:interface|link|function|proxy|wall|type|pointer)\b", r"\bbehind\b", "after"),
    "gives": (r"\b(?:gives|gave|given|give) (?:up|way)\b",
              r"\b(?:gives|gave|(?:has|have|had) given)\b|\bgiv(?:e|ing) no\b", "returns, prints, has not responded"),
    "old words": (r"\b(?:has|have|had) come from|the begin iterator",
                  r"\b(?:has|have|had) come\b|\bthe begin\b|\bfor ever\b|\bas ever\b|\bsays? so\b|\b[Nn]obody\b",
                  "has joined, the start, indefinitely, still, reports it, a subject"),
    "pronouns": (r"(?!)", r"\b(?:those|them|ones|that|it) of (?:which|whom)\b|\bthose of them\b|\bthat which\b",
                 "a noun"),
    "inversion": (r"(?!)", r"(?:[.:|] |\n[ |]*)(?!What|Those|These|The)[A-Z][a-z]*(?:ed|[^aeiou]en|ible|able) "
                  r"(?:as \w+ )?(?:is|are) ", "the subject first"),
    "double negation": (r"\b(?:not|never) but (?:also|not)\b",
                        r"\b(?:nothing|none|not|never|no \w+) but\b|"
                        r"\bno \w+ (?:that|which) (?:is|are|does|do|has|have) (?:no|not)\b", "the positive"),
}
PATTERNS = {habit: re.compile(f"(?:{correct})|({pattern})".replace(" ", r"\s+"))
            for habit, (correct, pattern, _) in HABITS.items()}

SOURCES = {".h", ".cc", ".in", ".py", ".sh", ".cmake", ".md"}
C_PROSE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
SCRIPT_PROSE = re.compile(r'(?<![^\s])#[^\n]*|"(?:\\.|[^"\\])*"')
PAGE_CODE = re.compile(r"^```.*?^```|^(?: {4}|\t)[^\n]*$|`[^`\n]+`|<!--.*?-->|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)


def keep(text, spans):
    """`text` with every character outside of `spans` replaced by '|', but line breaks; its length stays."""
    shown = [c if c == "\n" else "|" for c in text]
    for begin, end in spans:
        shown[begin:end] = text[begin:end]
    return "".join(shown)


def python_spans(text):
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield starts[token.start[0] - 1] + token.start[1], starts[token.end[0] - 1] + token.end[1]


def prose(path):
    """The text of a file in which code is blanked, line by line as in the file."""
    text = path.read_text()
    if path.suffix == ".md":
        code = [match.span() for match in PAGE_CODE.finditer(text)]
        return keep(text, zip([0] + [end for _, end in code], [begin for begin, _ in code] + [len(text)]))
    if path.suffix == ".py":
        return re.sub(r"\n[ |]*# ", lambda match: "\n" + " " * (len(match[0]) - 1), keep(text, python_spans(text)))
    if path.suffix in (".sh", ".cmake") or path.name == "CMakeLists.txt":
        return keep(text, (match.span() for match in SCRIPT_PROSE.finditer(text)))
    shown = keep(text, (match.span() for match in C_PROSE.finditer(text)))
    # A comment or text that goes on in the next line is one text.
    shown = re.sub(r"\n[ |]*///?", lambda match: "\n" + " " * (len(match[0]) - 1), shown)
    return re.sub(r'"\n[ |]*"', lambda match: " \n" + " " * (len(match[0]) - 2), shown)


def habits_of(text):
    """(line number, habit) for each habit in a text."""
    breaks = [match.start() for match in re.finditer("\n", text)]
    for habit, pattern in PATTERNS.items():
        for match in (match for match in pattern.finditer(text) if match[1]):
            yield bisect.bisect_left(breaks, match.end()) + 1, habit


def read_tree(root, below=FOLDERS):
    """For each file with prose: its path, its number of lines and its habits."""
    for top in below:
        for path in sorted((root / top).rglob("*")) if (root / top).is_dir() else [root / top]:
            name = path.relative_to(root).as_posix()
            is_source = path.suffix in SOURCES or path.name == "CMakeLists.txt"
            if path.is_file() and is_source and name not in EXEMPT:
                text = prose(path)
                yield name, text.count("\n"), sorted(habits_of(text))


def folder_of(name):
    """src/penstock/base for its files, tests/base likewise, else the first folder."""
    parts = name.split("/")
    depth = {"src": 3, "tests": 2}.get(parts[0], 1)
    return "/".join(parts[:depth] if len(parts) > depth else parts[:-1] or parts)


def read_bounds(path):
    rows = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {name: int(bound) for name, bound in rows}


def is_below(name, row):
    return name == row or name.startswith(row + "/")


def table(files):
    """Lines, habits and habits per thousand lines of each folder."""
    sums = {}
    for name, lines, habits in files:
        for key in (folder_of(name), "all"):
            row = sums.setdefault(key, [0, 0])
            row[0] += lines
            row[1] += len(habits)
    yield f"{'folder':<28} {'lines':>7} {'habits':>7} {'per 1000':>9}"
    for key, (lines, habits) in sorted(sums.items(), key=lambda item: (item[0] == "all", item[0])):
        yield f"{key:<28} {lines:>7} {habits:>7} {1000 * habits / max(lines, 1):>9.1f}"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=pathlib.Path)
    parser.add_argument("--lower", action="store_true")
    parser.add_argument("--list", metavar="PATH")
    options = parser.parse_args(arguments)
    if options.list:
        for name, _, habits in read_tree(options.project, [options.list]):
            lines = (options.project / name).read_text().splitlines()
            for number, habit in habits:
                print(f"{name}:{number}: {habit} ({HABITS[habit][2]}): {lines[number - 1].strip()}")
        return 0
    files = list(read_tree(options.project))
    print("\n".join(table(files)))
    page = options.project / "tools" / "english_bounds.txt"
    bounds = read_bounds(page)
    counts = {row: sum(len(habits) for name, _, habits in files if is_below(name, row)) for row in bounds}
    too_many = [f"{row}: {counts[row]} habits, at most {bound} are allowed: write plainly what you added (--list {row})"
                for row, bound in bounds.items() if counts[row] > bound]
    missing = [f"{name}: no row of tools/english_bounds.txt contains it" for name, _, _ in files
               if not any(is_below(name, row) for row in bounds)]
    if options.lower:
        head = [line for line in page.read_text().splitlines() if line.startswith("#")]
        page.write_text("\n".join(head + [f"{row} {min(bounds[row], counts[row])}" for row in bounds]) + "\n")
    print("\n".join(too_many + missing) or "no folder has more habits than its bound")
    return 1 if too_many or missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
