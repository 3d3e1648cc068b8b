# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs every parser, rule and signature of this collection on a recorded calibration. This plugin util is PRIVATE to the collection.

The playbook runs it once, when it writes the archive, and stores the results in it. In a clone, tests/tools/field_check.py repeats it and compares.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker import survey
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_log
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import names
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver, driver_xml
from ansible_collections.gb10.cluster.plugins.module_utils._host import kernel_log
from ansible_collections.gb10.cluster.plugins.module_utils._memory import node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._network import net_devices, rdma
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate.archive import Content, is_plain, spread
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.failures import Diagnosis

#: The members with the evidence for the rules, the records of the rules, and the results of parsers and signatures.
ASKED, RECORDS, VERDICTS = "asked.json", "records.json", "verdicts.json"

#: The parsers by the name of the recorded text that they read.
PARSERS: dict[str, t.Callable[[str], t.Any]] = {
    "driver/smi.xml": driver_xml.parse_gpus,
    "driver/gpu.csv": driver.parse_gpus,
    "driver/processes.csv": driver_xml.parse_processes_by_gpu,
    "proc/meminfo": lambda text: node_memory.figures(node_memory.parse_meminfo(text)),
    "proc/vmstat": lambda text: len(node_memory.parse_vmstat(text)),
    "proc/pressure/memory": node_memory.parse_pressure,
    "proc/buddyinfo": node_memory.parse_buddyinfo,
    "kernel.log": lambda text: [{name: event[name] for name in ("kind", "text", "count")} for event in kernel_log.parse_log(text).events()],
}
ENGINE_LOG = "engine.log"


def parsed(read: t.Callable[[], t.Any]) -> t.Any:
    """Return the result of a parser in the form of JSON, or its error."""
    try:
        return json.loads(json.dumps(read()))
    except (ClusterError, OSError) as error:
        return {"error": str(error)}


def of_signatures(text: str) -> dict[str, t.Any]:
    """Return the results of the signatures and of the stages of a start for an engine's log."""
    lines = engine_log.plain_lines(text)
    diagnosis = Diagnosis()
    diagnosis.feed(lines)
    stages = (stage.name for line in lines if (stage := engine_log.stage_of([line])))
    return {
        "fatal": diagnosis.fatal.signature.id if diagnosis.fatal else None,
        "warnings": sorted(match.signature.id for match in diagnosis.warnings),
        "first_error": diagnosis.first_error,
        "stages": [name for name, _lines in itertools.groupby(stages)],
    }


def records(evidence: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    """Return the records of the rules for the answers of all nodes: of the preflight and the doctor, if they were run."""
    result: dict[str, t.Any] = {}
    if "doctor" in evidence:
        result["doctor"] = judging.judge_stacks(evidence["doctor"], evidence["run"])
    if "preflight" in evidence:
        result["preflight"] = judging.judge(evidence["preflight"], evidence["profile"], evidence["run"])
    return result


def of_network(content: Content, node: str, interfaces: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    """Return the result of the readers of sysfs for the recorded tree."""
    with tempfile.TemporaryDirectory() as directory:
        spread(content, f"{node}/sys", directory)
        devices = net_devices.rdma_devices(directory)
        return {
            "rdma": devices,
            "links": [net_devices.link(name, directory) for name in names(os.path.join(directory, "class", "net"))],
            "fabric": parsed(lambda: rdma.fabric(directory, os.path.join(directory, "proc"), interfaces=interfaces, rdma=devices)),
        }


def of_texts(content: Content) -> dict[str, t.Any]:
    """Return the results of parsers and signatures for an archive's members."""
    texts = content.texts
    evidence = json.loads(texts[ASKED])
    result: dict[str, t.Any] = {"parsers": {}, "signatures": {}}
    for name, text in sorted(texts.items()):
        node, _slash, rest = name.partition("/")
        if rest in PARSERS:
            result["parsers"][name] = parsed(lambda rest=rest, text=text: PARSERS[rest](text))
        if os.path.basename(name) == ENGINE_LOG:
            result["signatures"][name] = of_signatures(text)
        if rest == "docker/info.json" and f"{node}/docker/version.json" in texts:
            version = json.loads(texts[f"{node}/docker/version.json"])
            result["parsers"][name] = parsed(lambda text=text, version=version: survey.engine(version, json.loads(text)))
    for node in evidence["nodes"]:
        if any(name.startswith(f"{node}/sys/") for name in texts):
            interfaces = (evidence.get("doctor") or evidence.get("preflight") or {}).get(node, {}).get("info", {}).get("interfaces") or []
            # Each name becomes that of a directory that is read.
            plain = [interface for interface in interfaces if "/" not in interface["name"] and is_plain(interface["name"])]
            result["parsers"][f"{node}/sys"] = of_network(content, node, plain)
    return result
