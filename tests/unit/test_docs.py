# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pages of the documentation against the tree: links lead somewhere, no page is lost, and what the page of symptoms names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "tests" / "lab" / "README.md", *(ROOT / "docs").glob("*.md"),
                *(ROOT / "roles").glob("*/README.md")])
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
UTILS = ROOT / "plugins" / "plugin_utils"


def name_of(path: Path) -> str:
    """Return a path as seen from the repository's root."""
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    """Return Markdown without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page."""
    return {slug(line.lstrip("#").strip()) for line in without_code(path.read_text(encoding="utf-8")).splitlines() if line.startswith("#")}


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_to_something_that_is_there(path: Path) -> None:
    lost = []
    for match in LINK.finditer(without_code(path.read_text(encoding="utf-8"))):
        target, _hash, anchor = match["target"].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        there = (path.parent / target).resolve() if target else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            lost.append(match[0])
    assert lost == []


# -- symptoms --------------------------------------------------------------------------------------------------------

ROWS = [
    [cell.strip() for cell in line.split(" | ")]
    for line in (ROOT / "docs" / "symptoms.md").read_text(encoding="utf-8").strip().splitlines()
    if line.startswith("| ") and line.count(" | ") == 3 and not line.startswith(("| Symptom ", "|---"))
]
#: The verbs of the page and their playbooks.
VERBS = {"preflight": "doctor", "doctor": "doctor", "fabric": "doctor", "bring-up": "nemotron_tp2", "status": "status", "teardown": "teardown"}


def rules(table: str) -> dict[str, list[str]]:
    """Return the tags of each rule of a table, by id."""
    return {rule["id"]: rule["tags"] for rule in yaml.safe_load((UTILS / "_rules" / table).read_text(encoding="utf-8"))["rules"]}


PREFLIGHT, DOCTOR = rules("rules.yml"), rules("doctor.yml")
FAILURES = {row["id"] for table in (UTILS / "_serve" / "signatures").glob("*.yml") for row in yaml.safe_load(table.read_text(encoding="utf-8"))}
MODULES = {path.stem for path in (ROOT / "plugins" / "modules").glob("[!_]*.py")}
PROOFS = set(re.findall(r'"((?:proof|image)\.\w+)"', "".join(path.read_text(encoding="utf-8") for path in UTILS.rglob("*.py"))))


def test_the_page_has_rows_and_the_proofs_were_found() -> None:
    assert len(ROWS) > 60 and {"proof.env", "proof.rank_hosts", "proof.device"} <= PROOFS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].lstrip("| ")[:60])
def test_a_row_says_who_reported_it_and_names_what_exists(row: list[str]) -> None:
    symptom, reported, verb, finds = row
    assert symptom.lstrip("| ") and reported
    assert (ROOT / "playbooks" / f"{VERBS[verb]}.yml").is_file()
    names = re.findall(r"`([^`]+)`", finds)
    assert names, "nothing finds it"
    # The rules of the verb itself, so that a row does not send a reader to the wrong command.
    by_verb = {
        "preflight": {name for name in PREFLIGHT if not name.startswith("probe.")},
        "fabric": {name for name in PREFLIGHT if name.startswith("probe.")},
        "doctor": set(DOCTOR) | {name for name, tags in PREFLIGHT.items() if "doctor" in tags},
        "bring-up": set(PREFLIGHT) | FAILURES | PROOFS | MODULES,
        "status": MODULES,
        "teardown": MODULES,
    }
    assert set(names) <= by_verb[verb], f"{set(names) - by_verb[verb]} is nothing that {verb} finds"


def test_what_a_row_names_is_used_by_its_playbook() -> None:
    """A module that is named for a verb is really called by one of the roles behind it."""
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "roles").glob("*/tasks/*.yml"))
    named = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[3])} & MODULES
    assert [name for name in sorted(named) if f"gb10.cluster.{name}:" not in source] == []


def test_every_known_failure_is_on_a_page() -> None:
    """A line of a log that the collection knows can be looked up. Those that owners met as a symptom are on the page of symptoms, too."""
    page = (ROOT / "docs" / "signatures.md").read_text(encoding="utf-8")
    assert {id for id in FAILURES if f"| `{id}` |" not in page} == set()
    named = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[3])}
    assert len(FAILURES & named) > 50


@pytest.mark.parametrize("page", ["mode", "teardown", "unit"])
def test_pages_say_how_long_a_drain_waits(page: str) -> None:
    defaults = yaml.safe_load((ROOT / "roles/gb10/defaults/main.yml").read_text(encoding="utf-8"))
    assert defaults["gb10_drain_seconds"] == 900
    (line,) = [line for line in (ROOT / f"docs/{page}.md").read_text(encoding="utf-8").splitlines() if "gb10_drain_seconds" in line]
    assert "900" in line
