# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The built documentation compared with the collection: nothing is left out, and no page is empty."""

from __future__ import annotations

import html
import re
import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "docs" / "html"

#: ansible-doc's name of each kind and the files that define it.
KINDS = {
    "module": "plugins/modules/[!_]*.py",
    "lookup": "plugins/lookup/[!_]*.py",
    "filter": "plugins/filter/*.yml",
    "role": "roles/*/meta/argument_specs.yml",
}


def named(kind: str) -> list[str]:
    """Return the names of one kind in the collection."""
    paths = sorted(ROOT.glob(KINDS[kind]))
    return [path.parents[1].name if kind == "role" else path.stem for path in paths]


def text(page: str) -> str:
    """Return a built page as text on one line."""
    source = (SITE / page).read_text(encoding="utf-8")
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", source)).split())


def headings(page: str) -> list[str]:
    """Return the second headings of a built page."""
    source = (SITE / page).read_text(encoding="utf-8")
    return [html.unescape(re.sub(r"<[^>]+>|¶|\uf0c1", "", heading)).strip() for heading in re.findall(r"<h2>(.*?)</h2>", source, re.DOTALL)]


def short_description(kind: str, name: str) -> str:
    """Return the short description in the source of a plugin or role."""
    if kind == "role":
        spec = yaml.safe_load((ROOT / "roles" / name / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
        return next(iter(spec.values()))["short_description"]
    if kind == "filter":
        return yaml.safe_load((ROOT / "plugins" / "filter" / f"{name}.yml").read_text(encoding="utf-8"))["DOCUMENTATION"]["short_description"]
    directory = {"module": "modules", "lookup": "lookup"}[kind]
    source = (ROOT / "plugins" / directory / f"{name}.py").read_text(encoding="utf-8")
    return re.search(r"^short_description: (.+)$", source, re.MULTILINE)[1]


ALL = [(kind, name) for kind in KINDS for name in named(kind)]


def test_the_site_was_built() -> None:
    assert (SITE / "index.html").is_file(), "run tests/docs/build.py first"


def test_every_directory_of_plugins_is_looked_at() -> None:
    """A new kind of plugin has to be added here, or needs a reason why it has no page."""
    without_page = {
        "action": "each is the controller's side of the module of its name",
        "doc_fragments": "texts of other pages",
        "module_utils": "private",
        "plugin_utils": "private",
    }
    directories = {path.name for path in (ROOT / "plugins").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert directories - set(without_page) == {"modules", "lookup", "filter"}
    assert {path.stem for path in (ROOT / "plugins" / "action").glob("[!_]*.py")} <= set(named("module"))


@pytest.mark.parametrize(("kind", "name"), ALL, ids=[f"{kind} {name}" for kind, name in ALL])
def test_each_has_a_page_that_says_what_it_is(kind: str, name: str) -> None:
    page = text(f"reference/{name}_{kind}.html")
    assert f"gb10.cluster.{name}" in page
    # Markup of the description may be rendered differently; its plain words have to be there.
    plain = re.sub(r"[A-Z]+\([^)]*\)", " ", short_description(kind, name)).split()
    assert all(word.strip("'\"`.,:") in page for word in plain), short_description(kind, name)


def test_no_page_is_about_something_that_is_gone() -> None:
    pages = {path.stem for path in (SITE / "reference").glob("*_*.html")}
    assert pages - {f"{name}_{kind}" for kind, name in ALL} <= {"environment_variables"}


@pytest.mark.parametrize("path", sorted((ROOT / "playbooks").glob("*.yml")), ids=lambda path: path.stem)
def test_each_playbook_is_described(path: Path) -> None:
    assert path.stem in headings("playbooks.html")
    begins = path.read_text(encoding="utf-8").splitlines()[1].removeprefix("# ")
    assert begins and begins in text("playbooks.html")


@pytest.mark.parametrize("path", sorted((ROOT / "playbooks" / "profiles").glob("*.yml")), ids=lambda path: path.stem)
def test_each_profile_is_described(path: Path) -> None:
    assert path.stem in headings("shipped_profiles.html")
    named = yaml.safe_load(path.read_text(encoding="utf-8")).get("model", {}).get("repo", "")
    assert named in text("shipped_profiles.html")


def test_each_rule_and_each_known_failure_is_described() -> None:
    tables = {"rules.html": "rules.yml", "doctor.html": "doctor.yml"}
    for page, table in tables.items():
        rules = yaml.safe_load((ROOT / "plugins" / "plugin_utils" / "_rules" / table).read_text(encoding="utf-8"))["rules"]
        assert [rule["id"] for rule in rules if rule["id"] not in text(page)] == []
    tables = (ROOT / "plugins" / "plugin_utils" / "_serve" / "signatures").glob("*.yml")
    rows = [row for path in tables for row in yaml.safe_load(path.read_text(encoding="utf-8"))]
    assert [row["id"] for row in rows if row["id"] not in text("signatures.html")] == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_each_page_is_built_with_its_title(path: Path) -> None:
    title = next(line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ")).removeprefix("# ")
    assert title in text(f"{path.stem}.html")


def test_the_sidebar_has_the_groups_of_the_front_page() -> None:
    source = (SITE / "index.html").read_text(encoding="utf-8")
    captions = [html.unescape(caption) for caption in re.findall(r'<p class="caption"[^>]*><span class="caption-text">(.*?)</span></p>', source)]
    written = re.findall(r"^## (.+)$", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert list(dict.fromkeys(captions)) == [*written, "Made from the collection itself", "The repository"]


def links(page: Path) -> t.Iterator[str]:
    """Yield the links of a built page that stay within the site."""
    for target in re.findall(r'href="([^"]+)"', page.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith(("mailto:", "#")):
            yield html.unescape(target)


def test_no_link_of_the_site_leads_nowhere() -> None:
    lost = []
    for page in SITE.rglob("*.html"):
        for target in links(page):
            path, _hash, anchor = target.partition("#")
            path = path.partition("?")[0]
            there = (page.parent / path).resolve()
            if not there.is_file():
                lost.append(f"{page.relative_to(SITE)}: {target}")
            elif anchor and there.suffix == ".html" and f'id="{anchor}"' not in there.read_text(encoding="utf-8"):
                lost.append(f"{page.relative_to(SITE)}: {target}")
    assert lost == []
