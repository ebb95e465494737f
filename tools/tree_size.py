#!/usr/bin/env python3
"""Measures how large a checkout of Penstock is, and how its parts depend on each other.

    tree_size.py CHECKOUT...

Prints, for each checkout: per folder of src/penstock and in all its lines, files, median lines of a file, files under
40 lines, statements (`;` and `{` outside of comments and texts), units (a header with the source file of its name),
includes from unit to unit within the folder ("arrows"), and the largest number of units below one unit in its own
folder; then the headers and types behind penstock.h, the public member functions of Pipeline and World, the words of
the pages and the lines of tests.
"""
import pathlib
import re
import statistics
import sys

from check_includes import CLASS, PROJECT, ours, reached_from, read_includes, unit

SMALL = 40
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
FUNCTION = re.compile(r"(~?\w+|operator\W+)\s*\(")


def code(text):
    return NOT_CODE.sub('""', text)


def statements(texts):
    return sum(code(text).count(";") + code(text).count("{") for text in texts)


def module_of(file):
    return file.rpartition("/")[0] or "-"


def table(sources, includes):
    """The rows of the folders, and a last one of the whole library."""
    direct = {unit(file): set() for file in sources}
    for file in sources:
        direct[unit(file)] |= {unit(ours(name)) for _, name in includes[file] if ours(name) in sources} - {unit(file)}
    within = {name: {other for other in others if module_of(other) == module_of(name)} for name, others in direct.items()}

    def row(name, files):
        lines = [sources[file].count("\n") for file in files]
        units = {unit(file) for file in files}
        below = max((len(reached_from(one, within) - {one}) for one in units), default=0)
        return [name, sum(lines), len(files), round(statistics.median(lines)), sum(count < SMALL for count in lines),
                statements(sources[file] for file in files), len(units), sum(len(within[one]) for one in units), below]

    modules = sorted({module_of(file) for file in sources})
    rows = [row(module, [file for file in sources if module_of(file) == module]) for module in modules]
    return [["module", "lines", "files", "median", f"under {SMALL}", "statements", "units", "arrows", "below"],
            *rows, row("all", list(sources))]


def behind_umbrella(sources, includes):
    """Headers of ours that penstock.h reaches, itself included, and the types that they define."""
    headers = {file: {ours(name) for _, name in includes[file] if ours(name) in sources} for file in sources}
    umbrella = f"{PROJECT}.h"
    reached = reached_from(umbrella, headers) | {umbrella}
    return len(reached), sum(len(CLASS.findall(sources[file])) for file in reached)


def public_functions(sources, name):
    """The number of public member functions of a class, each overload counted; constructors and destructor included."""
    for file, text in sources.items():
        match = re.search(rf"^class {name}\b[^;{{]*\{{(.*?)^\}};", code(text), re.MULTILINE | re.DOTALL) \
            if file.endswith(".h") else None
        if not match:
            continue
        body = match[1]
        while re.search(r"\{[^{}]*\}", body):
            body = re.sub(r"\{[^{}]*\}", ";", body)
        parts = re.split(r"^\s*(public|private|protected):", body, flags=re.MULTILINE)
        public = "".join(text for kind, text in zip(parts[1::2], parts[2::2]) if kind == "public")
        declarations = [one for one in public.split(";") if FUNCTION.search(one)]
        return sum("= delete" not in one and not re.match(r"\s*using\b", one) for one in declarations)
    return 0


def read_all(paths):
    return {path: path.read_text() for path in paths if path.is_file()}


def report(root):
    source = root / "src" / PROJECT
    sources = {path.relative_to(source).as_posix(): text for path, text in
               read_all(path for path in sorted(source.rglob("*")) if path.suffix in (".h", ".cc")).items()}
    includes = read_includes(source)
    for row in table(sources, includes):
        yield f"{row[0]:<22}" + "".join(f"{cell:>11}" for cell in row[1:])
    headers, types = behind_umbrella(sources, includes)
    yield f"headers of ours behind {PROJECT}.h: {headers}, which define {types} types at namespace scope"
    for name in ("Pipeline", "World"):
        yield f"public member functions of {name}: {public_functions(sources, name)}"
    pages = read_all([*sorted((root / "docs").glob("*.md")), root / "README.md"])
    yield f"words of docs/*.md and README.md: {sum(len(text.split()) for text in pages.values())}"
    tests = read_all(path for path in sorted((root / "tests").rglob("*")) if path.suffix in (".h", ".cc", ".py"))
    c_tests = [text for path, text in tests.items() if path.suffix != ".py"]
    yield (f"tests: {sum(text.count(chr(10)) for text in tests.values())} lines in {len(tests)} files, of which C++: "
           f"{sum(text.count(chr(10)) for text in c_tests)} lines, {statements(c_tests)} statements")


def main(arguments):
    if not arguments or not all((pathlib.Path(name) / "src" / PROJECT).is_dir() for name in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    for name in arguments:
        print(f"{name}:", *report(pathlib.Path(name)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
