#!/usr/bin/env python3
"""Checks the source tree against the table of modules in docs/architecture.md.

    check_includes.py PROJECT_FOLDER

Fails, with one line per finding, when
  * a module includes a module that the table does not allow, or one that stands below it in the table;
  * units (a header with the source file of its name) include each other in a circle;
  * an included header of ours does not exist;
  * two headers define a class of the same name: the linker keeps one of the two for all their users;
  * a file in src/ is longer than MAX_LINES, or a folder or file bears a name that says nothing;
  * the table and the folders of src/penstock differ, or a module lacks the header that it names.

PENSTOCK_TORCH=OFF, as in the preset asan, compiles what must not need LibTorch.
"""
import pathlib
import re
import sys

PROJECT = "penstock"
MAX_LINES = 500
SAYS_NOTHING = {"util", "utils", "common", "detail", "details", "helper", "helpers", "misc"}
HEADINGS = ["module", "what it is for", "may include", "read first"]
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')
# A definition at the begin of a line, which is at namespace scope; no declaration, specialisation or nested class.
CLASS = re.compile(r"^(?:template <.*> )?(?:class|struct|union|enum(?: class| struct)?) (?:alignas\(.*\) )?"
                   r"(\w+)(?![\w:<])[^;{]*\{", re.MULTILINE)


class Module:
    """One row of the table: a folder of src/penstock, or one within such a folder."""

    def __init__(self, name, may_include, header):
        self.name = name
        self.may_include = may_include
        self.header = header


def read_modules(page):
    """The rows below the line of HEADINGS, by module, in their order."""

    def cells(line):
        return [cell.strip() for cell in line.strip().strip("|").split("|")]

    def names(cell):
        return [] if cell == "-" else [name.strip() for name in cell.split(",")]

    modules, inside = {}, False
    for line in page.read_text().splitlines():
        if not line.startswith("|"):
            inside = False
        elif cells(line) == HEADINGS:
            inside = True
        elif inside and not set(line) <= set("|- "):
            name, _, may_include, header = cells(line)
            modules[name] = Module(name, names(may_include), None if header == "-" else header)
    return modules


def read_includes(root):
    """For every source file below `root`: its included headers, as (line number, path) pairs."""
    includes = {}
    for path in sorted(root.rglob("*")):
        if path.suffix in {".h", ".cc"}:
            lines = path.read_text().splitlines()
            found = [(number, INCLUDE.match(line)) for number, line in enumerate(lines, 1)]
            includes[path.relative_to(root).as_posix()] = [(number, match[1]) for number, match in found if match]
    return includes


def ours(include):
    """The path below src/penstock of an included header of ours, else None."""
    first, _, rest = include.partition("/")
    return rest if first == PROJECT else None


def unit(file):
    """A header and the source file of its name are one unit."""
    return file.rpartition(".")[0]


def reached_from(name, direct):
    """All units that `name` includes, through however many others."""
    below, todo = set(), [name]
    while todo:
        for other in direct[todo.pop()] - below:
            below.add(other)
            todo.append(other)
    return below


def check_cycles(includes):
    """One finding for each set of units that reach each other."""
    direct = {unit(file): set() for file in includes}
    for file, found in includes.items():
        direct[unit(file)] |= {unit(ours(name)) for _, name in found if ours(name) in includes} - {unit(file)}
    reached = {name: reached_from(name, direct) for name in direct}
    circles = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in reached}
    for circle in sorted(circles - {()}):
        yield "units include each other in a circle: " + ", ".join(circle)


def check_table(modules, root):
    names = list(modules)
    for position, module in enumerate(modules.values()):
        for other in module.may_include:
            if other not in names:
                yield f"docs/architecture.md: '{module.name}' may include '{other}', which has no row"
            elif names.index(other) >= position:
                yield f"docs/architecture.md: '{module.name}' may include '{other}', which stands below it"
        if module.header and not (root / module.name / module.header).is_file():
            yield f"docs/architecture.md: '{module.name}' has no header '{module.header}'"
    folders = {path.name for path in root.iterdir() if path.is_dir()}
    for name in sorted(folders - set(names)):
        yield f"{name}/: a module without a row in docs/architecture.md"
    for name in names:
        if not (root / name).is_dir():
            yield f"docs/architecture.md: module '{name}' has no folder"


def module_of(file, modules):
    """The name of the innermost module that contains the file, else None."""
    return next((folder.as_posix() for folder in pathlib.PurePath(file).parents if folder.as_posix() in modules), None)


def may_include(module, other):
    """Beside what its row names, a module may include itself, and the folders of other modules that its row names."""
    top = other.split("/")[0]
    return other in [module.name, *module.may_include] or (
        top in module.may_include and top != module.name.split("/")[0])


def check_names(file):
    for part in file.split("/"):
        if part.split(".")[0] in SAYS_NOTHING:
            yield f"{file}: '{part}' says nothing about what is inside"


def check_classes(root):
    """A name is that of one class, even if its modules have namespaces of their own."""
    defined = {}
    for path in sorted(root.rglob("*.h")):
        file = path.relative_to(root).as_posix()
        for name in CLASS.findall(path.read_text()):
            if name in defined:
                yield f"{file}: '{name}' is a class of {defined[name]} too; give one of the two another name"
            else:
                defined[name] = file


def check_includes(file, modules, includes):
    module = modules[module_of(file, modules)]
    for number, include in includes[file]:
        target = ours(include)
        if target is None:
            continue
        if target not in includes:
            yield f"{file}:{number}: there is no {include}"
        other = module_of(target, modules) or target.split("/")[0]
        if "/" not in target:
            yield f"{file}:{number}: modules include public headers, not the umbrella"
        elif not may_include(module, other):
            yield f"{file}:{number}: '{module.name}' may not include '{other}'"


def check(project):
    root = project / "src" / PROJECT
    modules = read_modules(project / "docs" / "architecture.md")
    if not modules:
        return ["docs/architecture.md: no table with the columns " + " | ".join(HEADINGS)]
    includes = read_includes(root)
    findings = [*check_table(modules, root), *check_classes(root),
                *check_cycles(includes)]
    for file in includes:
        findings += check_names(file)
        lines = len((root / file).read_text().splitlines())
        if lines > MAX_LINES:
            findings.append(f"{file}: {lines} lines, at most {MAX_LINES} are allowed: it says more than one thing")
        if module_of(file, modules):
            findings += check_includes(file, modules, includes)
    return findings


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    findings = check(pathlib.Path(arguments[1]))
    print("\n".join(findings) or "the source tree is as docs/architecture.md says")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
