# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the members of an archive from the nodes' answers. This plugin util is PRIVATE to the collection."""

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

#: Version of an archive's content.
SCHEMA = 1

#: The variables of a node, by the word under which the action reads them. Each may be missing.
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
#: Answers of modules that are kept unchanged.
KEPT = ("info", "stack", "preflight", "image", "engine", "ranks")
#: The keys that Ansible adds to a module's answer.
OF_ANSIBLE = ("ansible_facts", "changed", "failed", "invocation", "warnings", "deprecations", "exception", "stderr", "stdout", "stderr_lines", "stdout_lines")

#: The reason for a part that the tags of the run left out.
NOT_ASKED = "was not asked"
#: The parts of a calibration by tag, as the play announces them.
PARTS = {
    "driver": "versions, the NVIDIA driver's answers, the kernel's log and figures, what Docker says of itself, the ConnectX functions in sysfs,"
    " the doctor's verdicts",
    "cluster": "the preflight's verdicts, what starts took of the memory, the image's contract and packages, logs of engine, containers and Ray, the libcuda"
    " that live ranks hold, the time of one token",
}


def plan(tags: t.Sequence[str], path: str) -> list[str]:
    """Return lines about what a run with these tags collects."""
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
    """Return a module's answer without the keys that Ansible adds, empty if there is none."""
    return {name: value for name, value in (answer or {}).items() if name not in OF_ANSIBLE} if answered(answer) else {}


def recorded(answer: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the result of a node's recorder, empty if there is none."""
    return plain(answer["recorded"]).get("texts") or {"files": [], "errors": [], "hostname": ""}


def missing(answers: Answers) -> list[dict[str, str]]:
    """Return the missing parts of the archive with the reasons, by node."""
    result = []
    for node, answer in answers.items():
        for word in ("recorded", "info", "stack", "preflight", "image", "engine", "ranks", "logs"):
            reply = answer[word]
            if not answered(reply):
                result.append({"node": node, "what": word, "why": str((reply or {}).get("msg") or answer["failure"] or NOT_ASKED)})
        result += [{"node": node, "what": error["section"], "why": error["error"]} for error in recorded(answer)["errors"]]
    return result


def evidence(answers: Answers, profile: dict[str, t.Any], executor: str, run: t.Any) -> dict[str, t.Any]:
    """Return the evidence for the rules, in the form for :func:`replay.records`."""
    # The profile's path on the controller is private.
    result: dict[str, t.Any] = {"nodes": list(answers), "profile": {**profile, "path": ""}, "run": node_settings.of_run(answers, run)}
    if any(answered(answer["info"]) for answer in answers.values()):
        result["doctor"] = doctor.evidence(
            {node: {**answer, "info": plain(answer["info"]), "stack": plain(answer["stack"])} for node, answer in answers.items()}
        )
    if all(answered(answer["preflight"]) for answer in answers.values()):
        result["preflight"] = preflight.evidence({node: {**answer, "info": plain(answer["preflight"])} for node, answer in answers.items()}, executor)
    return result


def is_address(text: t.Any) -> bool:
    """Return whether a text is an IP address."""
    try:
        ipaddress.ip_address(str(text))
    except ValueError:
        return False
    return True


def addresses_of(answers: Answers) -> tuple[str, ...]:
    """Return the addresses that identify a node."""
    addresses = []
    for answer in answers.values():
        for interface in plain(answer["info"]).get("interfaces") or []:
            addresses += [network["address"] for network in interface["networks"] if network["scope"] != "host"]
        addresses += [str(answer[word]) for word in ("address", "api_address", "reached") if is_address(answer.get(word))]
    return tuple(dict.fromkeys(addresses))


def collected(answers: Answers, rule_evidence: dict[str, t.Any], facts: dict[str, t.Any], logs: t.Mapping[str, str]) -> tuple[dict[str, t.Any], dict[str, str]]:
    """Return texts, or data for JSON, and links from the nodes' answers; ``logs`` are texts by name, with the node's name first.

    Raises :class:`UnknownState` for a node's file that would be outside the node's directory.
    """
    texts: dict[str, t.Any] = {
        replay.ASKED: rule_evidence,
        replay.RECORDS: replay.records(rule_evidence),
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
    """Return the name of a node's file in an archive. Raises :class:`UnknownState` for one outside the node's directory."""
    path = posixpath.normpath(posixpath.join(node, name))
    if not path.startswith(f"{node}/") or not is_plain(path):
        raise UnknownState(f"{node} sent a file of the name {name[:200]!r}, which is outside its directory", remedy="Nothing was written. Check that node.")
    return path


def _parsed(name: str, text: str) -> t.Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnknownState(f"{name} is not JSON: {error}", remedy="Nothing was written. Look at that node.", raw=text[:2000]) from error


def without_secrets(value: t.Any, secrets: t.Mapping[str, str]) -> str:
    """Return a text without secrets. In data for JSON each value is checked alone: the number after ``first_token`` is not a secret."""
    return redacted(value, secrets) if isinstance(value, str) else as_json(cleaned(value, secrets))


def content(texts: dict[str, t.Any], links: dict[str, str], names: Names) -> Content:
    """Return the members of an archive. All content passes through here, so nothing in it identifies anybody.

    The records are about the nodes' original answers; the results of parsers and signatures are about the anonymous texts.
    """
    # Names and links are texts like the others.
    whole = anonymized({name: without_secrets(value, names.secrets) for name, value in {**texts, "links.json": links}.items()}, names)
    clean_links = json.loads(whole.pop("links.json"))
    return Content({**whole, replay.VERDICTS: as_json(replay.of_texts(Content(whole, clean_links)))}, clean_links)
