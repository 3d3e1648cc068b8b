# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names, docstrings, comments, messages and pages are plain American English: phrases that must not come back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: What ships, and the pages around it.
SCANNED = (
    "plugins", "roles", "playbooks", "meta", "docs", "awx", "inventories", "bench", "changelogs/fragments", "README.md", "SECURITY.md", "CONTRIBUTING.md",
)  # fmt: skip
SUFFIXES = {".py", ".yml", ".md", ".j2", ".json"}

#: Each phrase with what to write instead.
PHRASES = {
    r"\b(?:anew|ANEW)\b": "again; restarted, recreated, rebuilt",
    r"\bfor want of\b": "out of",
    r"\btakes? not\b": "does not accept",
    r", needed (?:is|are)\b|; needed (?:is|are)\b": "expected",
    r"(?<![Tt]here )(?<!what )\bis no (?!longer\b|such\b|more\b|other\b|one\b)[a-z]+": "is not a …",
    r"\b[Nn]obody\b|\b[Ss]omebody\b|\b[Ww]hoever\b": "name who acts: no process, a person, another run",
    r"\bat hand\b": "available, loaded",
    r"\bon record\b": "recorded",
    r"\bof ours\b": "this collection's, own",
    r"\bgives? out\b|\bgiven out\b": "serves",
    r"\b(?:is|are|was|were) told\b": "gets, is notified",
    r"\bdef (?:told|stays)\b|\bGiver\b": "result_of, remaining, …",
    r"\bof its own accord\b": "by itself",
    r"\bhas no hope\b": "cannot work",
    r"\bby halves\b": "incomplete",
    r'"""(?:Say|Tell) whether\b': "Return whether",
    r"\btold apart\b": "distinguished",
    r"\bc(?:annot|ould not) be told\b": "is unknown",
    r"\b[Mm]eeting\.(?:heed|tell|told)\b": "RunBoard",
    r"\bseed (?:S|0)?\d": "who reported it",
    r"[Bb]ehaviour": "behavior",
    r"[Cc]olour": "color",
    r"\b[Ll]icences?\b": "license",
    r"[a-z]*cognis(?:e|es|ed|ing)\b": "recognize",
    r"[Nn]eighbour": "neighbor",
    r"\b(?:[Ss]erial|[Oo]rgan|[Ii]nitial|[Nn]ormal|[Ss]ummar|[Mm]inim|[Mm]axim|[Oo]ptim)is(?:e|es|ed|ing|ation)\b": "-ize",
    r"\b[Ss]ynchronis(?:e|es|ed|ing|ation)\b": "synchronize",
    r"\b[Aa]nalys(?:e|ed|ing)\b": "analyze",
    r"\b(?:[Ff]av|[Hh]on)our": "-or",
    r"\b[Cc]entre\b": "center",
    r"\b[Ll]abelled\b": "labeled",
    r"\bXid catalogue\b": "catalog",
}

#: Words of other programs, which stay as they are.
FOREIGN = ("Not synchronised", "models nobody node none", "guide for somebody who")

#: One search for all phrases: most lines have none.
ANY = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES))

#: Files that are not clean yet. This list must shrink to nothing.
LEFT: frozenset[str] = frozenset()


def files() -> list[str]:
    """Return the paths of the scanned files, seen from the repository's root. What git ignores comes and goes, such as the inventory of a lab."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *SCANNED]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout
    return sorted(name for name in listed.split("\0") if Path(name).suffix in SUFFIXES and (ROOT / name).is_file())


def problems(text: str) -> list[str]:
    """Return each forbidden phrase with its line and its replacement."""
    messages = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not ANY.search(line):
            continue
        for words in FOREIGN:
            line = line.replace(words, "")
        messages += [f"line {number}: {match[0]!r}, write {instead!r}" for phrase, instead in PHRASES.items() if (match := re.search(phrase, line))]
    return messages


@pytest.mark.parametrize("name", files())
def test_prose_is_plain(name: str) -> None:
    messages = problems((ROOT / name).read_text(encoding="utf-8"))
    assert bool(messages) is (name in LEFT), f"{name}: {'; '.join(messages) or 'is clean, take it out of LEFT'}"


def test_left_names_files() -> None:
    assert LEFT <= set(files())


@pytest.mark.parametrize(
    "text",
    ["it is started anew", "/var takes not the log", "x is no number", "killed for want of memory", "behaviour", "a neighbour", "recognised", "labelled"],
)
def test_a_phrase_is_found(text: str) -> None:
    assert problems(text)


def test_words_of_other_programs_stay() -> None:
    assert problems('fields[13] != "Not synchronised"') == []
