# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the documentation: the pages of docs/, and pages made from plugins, roles, playbooks, profiles and tables. A warning fails it.

    make docs

The result is build/docs/html; nothing that is made here is committed. No network is used.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path


HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# A variant is read together with what it extends, which is the collection's own work.
sys.path.insert(0, str(ROOT / "collections"))
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles

DOCS = ROOT / "docs"
COLLECTION = "gb10.cluster"
#: Everything that is made.
BUILD = ROOT / "build" / "docs"
SOURCE = BUILD / "source"
HTML = BUILD / "html"
#: Seconds for one command.
TIMEOUT = 600

#: Pages of the repository outside docs/ that the documentation includes, and their names in it.
TAKEN_IN = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "CHANGELOG.md": "changelog.md",
    "tests/lab/README.md": "lab_machines.md",
    "tests/lab/hub/README.md": "lab_hub.md",
}
#: Files whose page is made from them, as (path in the repository, page of the documentation).
MADE = (
    (re.compile(r"plugins/modules/(\w+)\.py"), r"reference/\1_module.rst"),
    (re.compile(r"plugins/lookup/(\w+)\.py"), r"reference/\1_lookup.rst"),
    (re.compile(r"plugins/filter/(\w+)\.yml"), r"reference/\1_filter.rst"),
    (re.compile(r"roles/(\w+)/README\.md"), r"reference/\1_role.rst"),
    (re.compile(r"playbooks/(\w+)\.yml"), r"playbooks.md#\1"),
    (re.compile(r"playbooks/profiles/(\w+)\.yml"), r"shipped_profiles.md#\1"),
    (re.compile(r"LICENSE"), "https://www.gnu.org/licenses/gpl-3.0.html"),
)
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^ {0,3}(```|~~~)")


class NoPage(Exception):
    """A page links to a file of the repository that has no page."""


def pictures() -> list[Path]:
    """Return the pictures of the pages."""
    return sorted(DOCS.glob("*.svg"))


def page_for(path: str) -> str:
    """Return the page or picture of the documentation for a path of the repository, empty for a file or directory that is there and is neither.

    Raises :class:`NoPage` for a page that the documentation should have, and for a file that does not exist.
    """
    if path in TAKEN_IN:
        return TAKEN_IN[path]
    if path.startswith("docs/") and (path.endswith(".md") or ROOT / path in pictures()):
        return path.removeprefix("docs/")
    for pattern, page in MADE:
        if pattern.fullmatch(path):
            return pattern.sub(page, path)
    if not (ROOT / path).exists() or path.endswith(".md"):
        raise NoPage(path)
    return ""


def moved(text: str, directory: str) -> str:
    """Return a page's text with each link to a file of the repository turned into one to that file's page, or into text where there is none.

    ``directory`` is the page's directory in the repository. All pages of the documentation are in one directory. Raises :class:`NoPage`.
    """

    def link(match: re.Match[str]) -> str:
        target, _hash, anchor = match["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        page = page_for(os.path.normpath(os.path.join(directory, target)))
        if not page:
            return match["text"]
        return f"[{match['text']}]({page}#{anchor})" if anchor else f"[{match['text']}]({page})"

    lines, fenced = [], False
    for line in text.splitlines():
        fenced ^= bool(_FENCE.match(line))
        lines.append(line if fenced else _LINK.sub(link, line))
    return "\n".join(lines) + "\n"


def header(path: Path) -> str:
    """Return the comment that a playbook begins with, without its marks."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = lines.index("---") + 1
    comment = []
    for line in lines[start:]:
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(comment).strip()


def prose_and_code(comment: str) -> str:
    """Return a comment as Markdown: lines that are set in become blocks of commands."""
    out: list[str] = []
    for is_code, group in itertools.groupby((line for line in comment.splitlines() if line.strip()), key=lambda line: line.startswith("  ")):
        lines = [f"$ {line.strip()}" if is_code else line for line in group]
        out += ["```console", *lines, "```", ""] if is_code else [*lines, ""]
    return "\n".join(out)


def playbook_title(path: Path) -> str:
    """Return a playbook's name as it is typed after the collection's."""
    return path.name if path.with_suffix("").is_dir() else path.stem


def playbooks_page(tree: Path = ROOT) -> str:
    """Return the page about the playbooks, made from the comment at the top of each."""
    parts = ["# Playbooks", "", f"Each goes by its full name, `{COLLECTION}.NAME`, wherever the collection is installed, and by its path in a clone.", ""]
    for path in sorted((tree / "playbooks").glob("*.yml")):
        parts += [f"## {path.stem}", "", f"`{COLLECTION}.{playbook_title(path)}`", "", prose_and_code(header(path)), ""]
    return "\n".join(parts)


def cell(text: t.Any) -> str:
    """Return text fit for one cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def evidence(profile: t.Mapping[str, t.Any]) -> list[str]:
    """Return who measured a profile, one line for each."""
    if isinstance(profile["evidence"], str):
        return [f"- {profile['evidence']}"]
    return [
        f"- {cell(entry['who'])}, on {cell(entry['image'])}" + (f" (`{entry['digest']}`)" if entry.get("digest") else "") + f": {cell(entry['figures'])}"
        + (f" ({', '.join(cell(entry[name]) for name in ('source', 'date') if entry.get(name))})" if entry.get("source") else "")
        for entry in profile["evidence"]
    ]


def profiles_page(tree: Path = ROOT) -> str:
    """Return the page about the shipped profiles."""
    parts = ["# Shipped profiles", "", "Made from the files. [profiles.md](profiles.md) explains the keys. Figures are those of the people named.", ""]
    for path in sorted((tree / "playbooks" / "profiles").glob("*.yml")):
        profile, problems = profiles.read(path)
        if problems:
            sys.exit(f"{path}: {'; '.join(map(str, problems))}")
        model, image = profile["model"], profile["image"]
        repositories = profile["repositories"].values()
        beside = [f"`{repository['repo']}` at `{repository['revision'] or 'main'}` ({repository['purpose']})" for repository in repositories]
        sizes = ", ".join(f"{name} {profile['parallel'][name]}" for name in ("tensor", "pipeline", "data"))
        parts += [
            f"## {profile['id']}", "",
            f"- Model: `{model['repo']}`" + (f" at `{model['revision']}`" if model["revision"] else ""),
            *([f"- Beside it: {', '.join(beside)}"] if beside else []),
            f"- Image: `{image['base']}`" + (f" with {', '.join([*image['layers'], *image['mods']])}" if image["layers"] or image["mods"] else ""),
            f"- Parallel: {sizes}{', whole experts on each node' if profile['parallel']['expert'] else ''}; executor: {profile['executor']}",
            f"- Requires: {', '.join(f'{name} {versions}' for name, versions in profile['requires'].items())}",
            f"- Context in steps: {', '.join(str(rung) for rung in profile['ladder']) or 'one'}",
            "", "Switches:", "",
            *([f"- `{name}`: {cell(switch['description'])}" for name, switch in profile["switches"].items()] or ["- none"]),
            "", "Evidence:", "", *evidence(profile), "",
        ]
    return "\n".join(parts)


def groups(index: str) -> dict[str, list[str]]:
    """Return the pages that the front page links to, without their suffix, by the heading above each. Links above the first heading are left out."""
    _intro, *sections = re.split(r"^## (.+)$", index, flags=re.MULTILINE)
    pages = {}
    for heading, text in zip(sections[::2], sections[1::2], strict=True):
        targets = [match["target"].partition("#")[0] for match in _LINK.finditer(text)]
        pages[heading] = [target.rpartition(".")[0] for target in targets if target.endswith((".md", ".rst")) and "://" not in target]
    return pages


def tree_of_pages(caption: str, pages: t.Sequence[str]) -> str:
    """Return a hidden table of contents, which is one group of the sidebar; on GitHub the links of the page are enough."""
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


#: The sidebar's group of the pages that are taken in.
REPOSITORY = "The repository"
#: Sections of the front page that only the built documentation has.
MADE_SECTION = """
## Made from the collection itself

- [Modules, roles, filters and lookups](reference/index.rst)
- [Playbooks](playbooks.md)
- [Shipped profiles](shipped_profiles.md)
"""


def write_sources(directory: Path) -> None:
    """Write all pages of the repository, with their pictures, into an empty directory; exits when one links to a file without a page."""
    pages = {path: path.name for path in sorted(DOCS.glob("*.md"))} | {ROOT / name: page for name, page in TAKEN_IN.items()}
    bad = []
    for path, name in pages.items():
        try:
            text = moved(path.read_text(encoding="utf-8"), str(path.parent.relative_to(ROOT)))
        except NoPage as error:
            bad.append(f"{path.relative_to(ROOT)} links to {error}, which has no page (see TAKEN_IN and MADE in {Path(__file__).name})")
            continue
        if path == DOCS / "index.md":
            text += MADE_SECTION
            of_repository = {REPOSITORY: [page.removesuffix(".md") for page in TAKEN_IN.values()]}
            text += "".join(tree_of_pages(caption, pages) for caption, pages in (groups(text) | of_repository).items())
        (directory / name).write_text(text, encoding="utf-8")
    if bad:
        sys.exit("\n".join(bad))
    for picture in pictures():
        shutil.copy(picture, directory)
    (directory / "playbooks.md").write_text(playbooks_page(), encoding="utf-8")
    (directory / "shipped_profiles.md").write_text(profiles_page(), encoding="utf-8")


def run(argv: t.Sequence[str | Path]) -> None:
    """Run a program of this Python's environment from the repository's root; exits when it fails."""
    bin_dir = Path(sys.executable).parent
    env = {
        **os.environ,
        "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    }
    done = subprocess.run([str(part) for part in argv], cwd=ROOT, env=env, timeout=TIMEOUT, check=False)
    if done.returncode:
        sys.exit(f"FAILED with exit code {done.returncode}: {' '.join(str(part) for part in argv)}")


def main() -> None:
    """Build the whole documentation again."""
    shutil.rmtree(BUILD, ignore_errors=True)
    reference = SOURCE / "reference"
    reference.mkdir(parents=True)
    write_sources(SOURCE)
    run(["antsibull-docs", "collection", "--use-current", "--squash-hierarchy", "--fail-on-error", "--dest-dir", reference, COLLECTION])
    run(["sphinx-build", "--fail-on-warning", "--keep-going", "--quiet", "-c", HERE, "-d", BUILD / "doctrees", SOURCE, HTML])
    print(f"{len(list(HTML.rglob('*.html')))} pages: {HTML.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
