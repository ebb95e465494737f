"""Hooks of mkdocs.yml: the site also contains pages of the repository that are not in docs/.

Links between pages are written as they are in the repository, so that they work in a clone and on a code host. Here
they become links of the site. A link to a file that is no page of the site (a source file, a script) becomes its text.
"""
import os
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Path in the repository: page of the site.
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "examples/README.md": "examples.md",
         **{path.relative_to(ROOT).as_posix(): f"benchmarks/{path.parent.name}.md"
            for path in sorted(ROOT.glob("benchmarks/*/README.md"))}}
LINKED = {**PAGES, "README.md": "index.md"}
IN_REPOSITORY = {page: path for path, page in PAGES.items()}
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def on_files(files, config):
    for path, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_uri
    folder = os.path.dirname(IN_REPOSITORY.get(here, "docs/" + here))

    def site_link(match):
        picture, text, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target or "://" in target:
            return match[0]
        path = os.path.normpath(os.path.join(folder, target))
        goal = path[len("docs/"):] if path.startswith("docs/") else LINKED.get(path)
        if goal is None:
            if not (ROOT / path).exists():
                raise FileNotFoundError(f"{here}: no file {path}")
            return text
        return f"{picture}[{text}]({os.path.relpath(goal, os.path.dirname(here))}{anchor})"

    # Code contains brackets too.
    parts = re.split(r"(^```[\s\S]*?^```$|(?:^    .*\n?)+)", markdown, flags=re.MULTILINE)
    return "".join(part if place % 2 else LINK.sub(site_link, part) for place, part in enumerate(parts))
