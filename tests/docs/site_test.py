"""Every page of the site is in the navigation of mkdocs.yml, every link in the repository leads to a file, and every
command of mpirun also runs on two cores.

Usage: site_test.py REPOSITORY
"""

import pathlib
import re
import sys


def main():
    root = pathlib.Path(sys.argv[1])
    pages = {path.relative_to(root / "docs").as_posix() for path in (root / "docs").rglob("*.md")}
    pages |= {f"benchmarks/{path.parent.name}.md" for path in root.glob("benchmarks/*/README.md")}
    pages |= {"examples.md", "contributing.md", "changelog.md"}
    navigation = (root / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    listed = set(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE))
    wrong = [f"mkdocs.yml: nav does not contain {page}" for page in sorted(pages - listed)]
    wrong += [f"mkdocs.yml: nav contains {page}, which does not exist" for page in sorted(listed - pages)]

    links = 0
    sources = [*root.glob("*.md"), *(path for folder in ("docs", "examples", "benchmarks", ".github")
                                     for path in (root / folder).rglob("*.md"))]
    for source in sources:
        prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", source.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s#]+)", prose):
            if "://" in target:
                continue
            links += 1
            if not (source.parent / target).exists():
                wrong.append(f"{source.relative_to(root)}: no file {target}")
    commands = 0
    for source in [*sources, *(root / "examples").rglob("*.cc")]:
        for line in source.read_text().splitlines():
            for command in re.finditer(r"mpirun -n (\d+)( --oversubscribe)?", line):
                commands += 1
                if int(command[1]) > 2 and not command[2]:
                    wrong.append(f"{source.relative_to(root)}: needs --oversubscribe on two cores: {command[0]}")
    if commands < 10:
        wrong.append(f"only {commands} commands of mpirun found: are they still written as mpirun -n N?")
    if links < 50:
        wrong.append(f"only {links} links found: are they still written as [text](target)?")
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(pages)} pages, {links} links")


if __name__ == "__main__":
    main()
