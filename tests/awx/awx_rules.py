# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AWX's rules for a project, a survey and a job's variables, written again here so that they can be tested without AWX.

Each rule names its source, a file of github.com/ansible/awx. The revisions of 2024 and 2026 that were read agree in it.
"""

from __future__ import annotations

import configparser
import os
import re
import typing as t
from pathlib import Path

Spec = dict[str, t.Any]
Variables = dict[str, t.Any]

#: The form of a playbook's line (awx/main/utils/ansible.py). It may be indented, so files that are not playbooks match, too.
PLAYBOOK_LINE = re.compile(r"\s*-?\s*(hosts|include|import_playbook):")
#: How an inventory in INI form begins (the same file).
INVENTORY_LINE = re.compile(r"[a-zA-Z0-9_.=\[\]]")

#: Type of a question → type of its default (awx/api/views/__init__.py).
DEFAULT_TYPES: dict[str, type | tuple[type, ...]] = {
    "text": str, "textarea": str, "password": str, "multiplechoice": str, "multiselect": str, "integer": int, "float": (int, float),
}  # fmt: skip

#: The most bytes of an event's result that AWX keeps (MAX_EVENT_RES_DATA in awx/settings/defaults.py); a larger one loses its data.
EVENT_BYTES = 700_000


# --- what the drop-downs show -------------------------------------------------------------------------------------------------


def skipped(directory: str) -> bool:
    """Whether AWX skips a directory, given relative to the project (skip_directory in awx/main/utils/ansible.py)."""
    parts = directory.split(os.sep)
    return any(part in ("roles", "tasks", "group_vars", "host_vars") or part.startswith(".") and part != "." for part in parts)


def files(project: Path) -> t.Iterator[Path]:
    """Every file of a project that is not skipped. Links to directories are not followed (AWX_SHOW_PLAYBOOK_LINKS is off)."""
    for directory, _names, names in os.walk(project, followlinks=False):
        if not skipped(os.path.relpath(directory, project)):
            yield from (Path(directory, name) for name in names)


def playbooks(project: Path) -> list[str]:
    """The playbooks that a job template can name (could_be_playbook, and the property playbooks in awx/main/models/projects.py)."""
    paths = []
    for path in files(project):
        if path.suffix not in (".yml", ".yaml"):
            continue
        lines = path.read_text(encoding="utf-8", errors="ignore").splitlines()
        if any(PLAYBOOK_LINE.match(line) for line in lines) or lines[:1] and lines[0].startswith("$ANSIBLE_VAULT;"):
            paths.append(str(path.relative_to(project)))
    return sorted(paths, key=str.lower)


def inventories(project: Path) -> list[str]:
    """The files that an inventory source is offered (could_be_inventory). Others can be typed in."""
    paths = []
    for path in files(project):
        plain = path.name in ("inventory", "hosts") or path.suffix == ".ini" or os.access(path, os.X_OK)
        if not plain and "." not in path.suffix:
            lines = path.read_text(encoding="utf-8", errors="ignore").splitlines(keepends=True)[:10]
            plain = all(INVENTORY_LINE.match(line) for line in lines)
        if plain:
            paths.append(str(path.relative_to(project)))
    return sorted(paths, key=str.lower)


# --- surveys ------------------------------------------------------------------------------------------------------------------


def survey_error(spec: t.Any) -> str:
    """Why AWX refuses a survey, empty when it accepts it (_validate_spec_data in awx/api/views/__init__.py)."""
    if not isinstance(spec, dict):
        return "the survey is no mapping"
    for field, kind in (("name", str), ("description", str), ("spec", list)):
        if field not in spec:
            return f"Field '{field}' is missing from survey spec."
        if not isinstance(spec[field], kind):
            return f"'{field}' of the survey is no {kind.__name__}"
    if not spec["spec"]:
        return "'spec' doesn't contain any items."
    seen: set[str] = set()
    for number, question in enumerate(spec["spec"]):
        error = "it is no mapping" if not isinstance(question, dict) else question_error(question)
        if not error and question["variable"] in seen:
            error = f"variable {question['variable']} is asked for twice"
        if error:
            return f"question {number}: {error}"
        seen.add(question["variable"])
    return ""


def question_error(question: dict[str, t.Any]) -> str:
    """What is wrong with one question, empty when nothing is."""
    for field in ("type", "question_name", "variable", "required"):
        if field not in question:
            return f"'{field}' is missing"
        if not isinstance(question[field], bool if field == "required" else str):
            return f"'{field}' has the wrong type"
    kind = question["type"]
    if kind not in DEFAULT_TYPES:
        return f"there is no type {kind}"
    default = question.get("default", "")
    if default != "" and not isinstance(default, DEFAULT_TYPES[kind]):
        return f"the default is no {kind}"
    for limit in ("min", "max"):
        if question.get(limit) is not None and not isinstance(question[limit], int):
            return f"'{limit}' is no whole number"
    if kind in ("multiplechoice", "multiselect"):
        if "choices" not in question:
            return "there are no choices"
        defaults = [line for line in default.splitlines() if line.strip()]
        if kind == "multiplechoice" and len(defaults) > 1:
            return "there is more than one default"
        if any(line not in choices(question) for line in defaults):
            return "the default is none of the choices"
    if isinstance(default, str) and default.startswith("$encrypted$"):
        return "$encrypted$ is no default of a new question"
    return ""


def choices(question: dict[str, t.Any]) -> list[str]:
    """The answers that a question offers, which are written as a list or one a line."""
    offered = question["choices"]
    return [line for line in offered.splitlines() if line.strip()] if isinstance(offered, str) else list(offered)


def answer_error(question: dict[str, t.Any], answers: Variables) -> str:
    """Why an answer is refused (_survey_element_validation in awx/main/models/mixins.py)."""
    name, kind = question["variable"], question["type"]
    if name not in answers:
        return f"'{name}' value missing" if question["required"] else ""
    value = answers[name]
    low, high = (question.get(limit) if question.get(limit) not in ("", None) else None for limit in ("min", "max"))
    if kind == "multiplechoice":
        return "" if value in choices(question) else f"{name}: {value!r} is none of {choices(question)}"
    if kind == "multiselect":
        return "" if isinstance(value, list) and all(entry in choices(question) for entry in value) else f"{name}: {value!r} is no list of choices"
    if kind in ("integer", "float"):
        if isinstance(value, bool) or not isinstance(value, int if kind == "integer" else (int, float)):
            return f"{name}: {value!r} is no {kind}"
        size: float = value
    elif not isinstance(value, str):
        return f"{name}: {value!r} is no string"
    else:
        size = len(value)
    return f"{name}: {value!r} is out of range" if (low is not None and size < low) or (high is not None and size > high) else ""


# --- variables of a job -------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """AWX does not start the job."""


def accepted(template: dict[str, t.Any], answers: Variables) -> Variables:
    """What a person's answers become at a launch (_accept_or_ignore_variables). Raises :class:`Refused` for unrequested or wrong answers."""
    questions = template.get("survey_spec", {}).get("spec", []) if template.get("survey_enabled") else []
    # The launch form fills in the defaults.
    filled = {question["variable"]: question["default"] for question in questions if question.get("default", "") != ""} | answers
    errors = [error for question in questions if (error := answer_error(question, filled))]
    variables = {question["variable"] for question in questions}
    strange = sorted(set(answers) - variables)
    if strange and not template.get("ask_variables_on_launch"):
        errors.append(f"Variables {', '.join(strange)} are not allowed on launch.")
    if errors:
        raise Refused("; ".join(errors))
    return filled


def tagged(template: dict[str, t.Any], tags: str) -> dict[str, t.Any]:
    """A template with the tags of a launch, or of a workflow's node (ask_mapping in awx/main/models/mixins.py).

    Raises :class:`Refused` where it asks for none.
    """
    if tags and not template.get("ask_tags_on_launch"):
        raise Refused("job_tags: Field is not configured to prompt on launch.")
    return {**template, "job_tags": tags} if tags else template


def extra_vars(template: dict[str, t.Any], runtime: Variables) -> Variables:
    """The variables of a job: the template's, over them the survey's defaults, over them those of the launch (_update_unified_job_kwargs)."""
    variables = dict(template.get("extra_vars") or {})
    if template.get("survey_enabled"):
        for question in template.get("survey_spec", {}).get("spec", []):
            default = question.get("default")
            # A default that is not a valid answer is silently ignored.
            if default is not None and not answer_error(question, {question["variable"]: default}):
                variables[question["variable"]] = default
    return variables | runtime


def node_vars(template: dict[str, t.Any], workflow: Variables, artifacts: Variables) -> Variables:
    """The variables of a job that a workflow starts (get_job_kwargs in awx/main/models/workflow.py).

    What the jobs before it passed on, and over that the workflow's own variables, whether the template asks for them or not.
    """
    return extra_vars(template, artifacts | workflow)


def workflow_failed(nodes: t.Mapping[str, dict[str, t.Any]], statuses: t.Mapping[str, str]) -> bool:
    """Whether a workflow has failed (has_workflow_failed in awx/main/scheduler/dag_workflow.py): a failure counts unless something follows on it.

    ``nodes`` are the workflow's by identifier, ``statuses`` those of the jobs that ran.
    """
    failed = [nodes[name].get("related", {}) for name, status in statuses.items() if status in ("failed", "canceled", "error")]
    return any(not related.get("failure_nodes") and not related.get("always_nodes") for related in failed)


# --- environment of a job -----------------------------------------------------------------------------------------------------


def collections_path(project: Path, root: Path) -> str:
    """ANSIBLE_COLLECTIONS_PATH of a job (build_env in awx/main/tasks/jobs.py): the project's collections, then the path in its ansible.cfg."""
    paths = ["~/.ansible/collections", "/usr/share/ansible/collections"]
    parser = configparser.ConfigParser()
    parser.read(project / "ansible.cfg")
    configured = parser.get("defaults", "collections_path", fallback="")
    if any(path not in paths for path in configured.split(":")):
        paths = [configured, *paths]
    return ":".join([str(root / "requirements_collections"), *filter(None, paths)])
