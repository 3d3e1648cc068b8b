# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks that a run's tags are tags of its playbooks, and that these write the file that it names. PRIVATE to the collection.

Ansible runs nothing for a tag that no task has, and reports success.
"""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import near

#: Ids of findings that are made here.
IDS = ("input.tag", "input.to")
#: Playbooks that write ``gb10_to``, with the tag that they need for it.
WRITING = {"bench": "", "calibrate": "", "explain": "", "import": "", "init": "", "models": "", "plan": "", "status": "postmortem"}

#: The directory of the collection's playbooks, in a clone and in an installed collection alike.
PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
ROLES = PLAYBOOKS.parent / "roles"
_COLLECTION = "gb10.cluster."

#: Tags with a meaning for Ansible itself.
_ALWAYS_KNOWN = {"all", "always", "never", "tagged", "untagged"}
_LISTS = ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always")
#: Only the tags of the task itself reach a file that Ansible includes during a run.
_INCLUDES = ("include_role", "include_tasks")
_IMPORTS = ("import_playbook", "import_tasks")


def of_collection(names: t.Iterable[str]) -> list[Path] | None:
    """Return the files of the playbooks of a run; None when one of them is not the collection's, whose tags are not checked."""
    paths = [PLAYBOOKS / f"{name.removeprefix(_COLLECTION).removesuffix('.yml')}.yml" if name.startswith(_COLLECTION) else Path(name) for name in names]
    paths = [path.resolve() for path in paths]
    return paths if paths and all(path.parent == PLAYBOOKS and path.is_file() for path in paths) else None


def known(path: Path) -> set[str]:
    """Return the tags of a playbook, with those of the playbooks, roles and task files that it imports."""
    tags: set[str] = set()
    for entry in yaml_load(path.read_text(encoding="utf-8")) or []:
        tags |= _of_entry(entry, path.parent)
    return tags


def _of_entry(entry: dict[str, t.Any], directory: Path) -> set[str]:
    """Return the tags of a play, a block or a task."""
    tags = _words(entry.get("tags"))
    for key, value in entry.items():
        name = key.removeprefix("ansible.builtin.")
        if name in _LISTS:
            tags |= {tag for child in value or [] for tag in _of_entry(child, directory)}
        elif name in _INCLUDES:
            tags |= _words((value.get("apply") or {}).get("tags") if isinstance(value, dict) else ())
        elif name in _IMPORTS:
            places = [place for place in (directory / value, PLAYBOOKS / value) if place.is_file()]
            tags |= known(places[0]) if places else set()
        elif name == "import_role":
            file = ROLES / value["name"].removeprefix(_COLLECTION) / "tasks" / f"{value.get('tasks_from', 'main')}.yml"
            tags |= known(file) if file.is_file() else set()
    return tags


def _words(tags: t.Any) -> set[str]:
    return set(tags.split(",") if isinstance(tags, str) else tags or ())


def problems(books: t.Iterable[str], run_tags: t.Iterable[str], skip_tags: t.Iterable[str]) -> t.Iterator[Problem]:
    """Yield a problem for each tag that no task of the run has. ``books`` are the playbooks as they were named on the command line."""
    requested = [(option, tag) for option, tags in (("--tags", run_tags), ("--skip-tags", skip_tags)) for tag in tags if tag not in _ALWAYS_KNOWN]
    paths = of_collection(books) if requested else None
    if not paths:
        return
    stages = sorted(set().union(*map(known, paths)) - _ALWAYS_KNOWN)
    for option, tag in requested:
        # Skipping a tag that does not exist changes nothing, and tools do so (molecule: notest): only one that resembles a stage's counts.
        meant = near(tag, stages)
        if tag not in stages and (meant or option == "--tags"):
            expected = f"one of {', '.join(stages)}" if stages else "no tag: this playbook has no stages"
            yield Problem("input.tag", option, f"no stage has the tag '{tag}'{meant}", expected, f"correct it, or leave {option} out")


def unwritten(books: t.Iterable[str], run_tags: t.Collection[str], path: t.Any) -> t.Iterator[Problem]:
    """Yield a problem if the command line names a file in ``gb10_to`` and none of the playbooks writes it."""
    names = [book.stem for book in of_collection(books) or []] if path else []
    if names and not any(WRITING[name] in ("", *run_tags) for name in names if name in WRITING):
        tag = next((f"add --tags {WRITING[name]}, or " for name in names if name in WRITING), "")
        yield Problem("input.to", "gb10_to", f"the playbook {names[0]} does not write it", remedy=f"{tag}leave it out; {', '.join(WRITING)} write it")
