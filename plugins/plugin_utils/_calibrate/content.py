# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what the nodes answered to the members of an archive. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import ipaddress
import json
import posixpath
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned, redacted
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate import replay
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate.anonymize import Names, anonymized
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate.archive import Content, is_plain
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import node_settings
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import doctor, preflight
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, answered

#: Version of what an archive holds.
SCHEMA = 1

#: By the word under which the action reads it: the variable of a node. Every one may be missing.
READS = {
    **node_settings.SETTINGS,
    "recorded": "__calibrate_recorded",
    "info": "__doctor_node",
    "stack": "__doctor_stack",
    "failure": "__doctor_failure",
    "preflight": "__preflight_node",
    "waited": "__preflight_waited",
    "image": "__calibrate_image",
    "engine": "__calibrate_engine",
    "ranks": "__calibrate_ranks",
    "logs": "__calibrate_logs",
}
#: Answers of modules that are kept as they are.
KEPT = ("info", "stack", "preflight", "image", "engine", "ranks")
#: What Ansible adds to a module's answer.
OF_ANSIBLE = ("ansible_facts", "changed", "failed", "invocation", "warnings", "deprecations", "exception", "stderr", "stdout", "stderr_lines", "stdout_lines")

#: Why something is missing that the tags of the run left out.
NOT_ASKED = "was not asked"
#: What is taken, and from where, as the play announces it.
PARTS = {
    "driver": "versions, the NVIDIA driver's answers, the kernel's log and figures, what Docker says of itself, the ConnectX functions in sysfs,"
    " the doctor's verdicts",
    "cluster": "the preflight's verdicts, what starts took of the memory, the image's contract and packages, logs of engine, containers and Ray, the libcuda"
    " that live ranks hold, the time of one token",
}


def plan(tags: t.Sequence[str], path: str) -> list[str]:
    """Return in lines what a run with these tags takes."""
    chosen = [f"{part}: {taken}" for part, taken in PARTS.items() if "all" in tags or part in tags]
    left_out = "left out or replaced: secrets, names of hosts and users, addresses, serial numbers, MAC addresses, GUIDs and UUIDs"
    return [
        *chosen,
        left_out,
        "kept: names of images, containers, models and processes. Look through the archive before you pass it on",
        f"written to {path}" if path else "nothing is read or written now; to take it, run again with -e gb10_to=FILE",
    ]


def as_json(value: t.Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


def plain(answer: t.Any) -> dict[str, t.Any]:
    """Return a module's answer without what Ansible adds, empty where there is none."""
    return {name: value for name, value in (answer or {}).items() if name not in OF_ANSIBLE} if answered(answer) else {}


def recorded(answer: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what a node's recorder returned, empty where there is nothing."""
    return plain(answer["recorded"]).get("texts") or {"files": [], "errors": [], "hostname": ""}


def missing(answers: Answers) -> list[dict[str, str]]:
    """Return what the archive lacks and why, by node."""
    found = []
    for node, answer in answers.items():
        for word in ("recorded", "info", "stack", "preflight", "image", "engine", "ranks", "logs"):
            one = answer[word]
            if not answered(one):
                found.append({"node": node, "what": word, "why": str((one or {}).get("msg") or answer["failure"] or NOT_ASKED)})
        found += [{"node": node, "what": error["section"], "why": error["error"]} for error in recorded(answer)["errors"]]
    return found


def evidence(answers: Answers, profile: dict[str, t.Any], executor: str, run: t.Any) -> dict[str, t.Any]:
    """Return what the rules judge, as :func:`replay.records` takes it."""
    # The profile's path on the controller is private.
    asked: dict[str, t.Any] = {"nodes": list(answers), "profile": {**profile, "path": ""}, "run": node_settings.of_run(answers, run)}
    if any(answered(answer["info"]) for answer in answers.values()):
        asked["doctor"] = doctor.evidence(
            {node: {**answer, "info": plain(answer["info"]), "stack": plain(answer["stack"])} for node, answer in answers.items()}
        )
    if all(answered(answer["preflight"]) for answer in answers.values()):
        asked["preflight"] = preflight.evidence({node: {**answer, "info": plain(answer["preflight"])} for node, answer in answers.items()}, executor)
    return asked


def is_address(text: t.Any) -> bool:
    """Return whether a text is an IP address."""
    try:
        ipaddress.ip_address(str(text))
    except ValueError:
        return False
    return True


def addresses_of(answers: Answers) -> tuple[str, ...]:
    """Return the addresses of the nodes that name one of them."""
    found = []
    for answer in answers.values():
        for interface in plain(answer["info"]).get("interfaces") or []:
            found += [network["address"] for network in interface["networks"] if network["scope"] != "host"]
        found += [str(answer[word]) for word in ("address", "api_address", "reached") if is_address(answer.get(word))]
    return tuple(dict.fromkeys(found))


def collected(answers: Answers, asked: dict[str, t.Any], facts: dict[str, t.Any], logs: t.Mapping[str, str]) -> tuple[dict[str, t.Any], dict[str, str]]:
    """Return texts, or what becomes JSON, and links as the nodes gave them; ``logs`` are texts by name, the node's first.

    Raises :class:`UnknownState` for a node's file that would be none of that node's.
    """
    texts: dict[str, t.Any] = {
        replay.ASKED: asked,
        replay.RECORDS: replay.records(asked),
        "calibration.json": {"schema": SCHEMA, **facts, "nodes": list(answers), "missing": missing(answers)},
        **logs,
    }
    links = {}
    for node, answer in answers.items():
        texts.update({f"{node}/answers/{word}.json": plain(answer[word]) for word in KEPT if answered(answer[word])})
        for file in recorded(answer)["files"]:
            name = _member(node, file["name"])
            if "link" in file:
                links[name] = file["link"]
            else:
                texts[name] = _parsed(name, file["text"]) if name.endswith(".json") else file["text"]
    return texts, links


def _member(node: str, name: str) -> str:
    """Return the name that a node's file has in an archive. Raises :class:`UnknownState` for one that is not among the node's own."""
    found = posixpath.normpath(posixpath.join(node, name))
    if not found.startswith(f"{node}/") or not is_plain(found):
        raise UnknownState(f"{node} sent a file of the name {name[:200]!r}, which is outside its directory", remedy="Nothing was written. Check that node.")
    return found


def _parsed(name: str, text: str) -> t.Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnknownState(f"{name} is not JSON: {error}", remedy="Nothing was written. Look at that node.", raw=text[:2000]) from error


def without_secrets(value: t.Any, secrets: t.Mapping[str, str]) -> str:
    """Return a text without secrets. Of what becomes JSON each value is checked alone: the number after ``first_token`` is not a secret."""
    return redacted(value, secrets) if isinstance(value, str) else as_json(cleaned(value, secrets))


def content(texts: dict[str, t.Any], links: dict[str, str], names: Names) -> Content:
    """Return the members of an archive: nothing leaves by another way, so nothing leaves that names anybody.

    The records are those on the nodes' own answers; what parsers and signatures say is of the anonymous texts.
    """
    # Names and links are texts like the others.
    whole = anonymized({name: without_secrets(value, names.secrets) for name, value in {**texts, "links.json": links}.items()}, names)
    clean_links = json.loads(whole.pop("links.json"))
    return Content({**whole, replay.VERDICTS: as_json(replay.of_texts(Content(whole, clean_links)))}, clean_links)
