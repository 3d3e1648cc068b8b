# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every parser, rule and signature of this collection on what a calibration recorded. This plugin util is PRIVATE to the collection.

The playbook runs it once, when it writes the archive, and keeps the answers there. In a clone, tests/tools/field_check.py runs it again and compares.
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

#: What the rules judged, what they said then, and what parsers and signatures said.
ASKED, RECORDS, VERDICTS = "asked.json", "records.json", "verdicts.json"

#: By the name of a recorded text: what reads it.
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
    """Return what a parser returns, in the shape that JSON gives it, or why it does not."""
    try:
        return json.loads(json.dumps(read()))
    except (ClusterError, OSError) as error:
        return {"error": str(error)}


def of_signatures(text: str) -> dict[str, t.Any]:
    """Return what the signatures and the stages of a start say of an engine's log."""
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


def records(asked: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    """Return the records of the rules on what all nodes answered: of the preflight and the doctor, as far as they were asked."""
    found: dict[str, t.Any] = {}
    if "doctor" in asked:
        found["doctor"] = judging.judge_stacks(asked["doctor"], asked["run"])
    if "preflight" in asked:
        found["preflight"] = judging.judge(asked["preflight"], asked["profile"], asked["run"])
    return found


def of_network(content: Content, node: str, interfaces: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    """Return what the readers of sysfs make of the recorded tree."""
    with tempfile.TemporaryDirectory() as directory:
        spread(content, f"{node}/sys", directory)
        devices = net_devices.rdma_devices(directory)
        return {
            "rdma": devices,
            "links": [net_devices.link(name, directory) for name in names(os.path.join(directory, "class", "net"))],
            "fabric": parsed(lambda: rdma.fabric(directory, os.path.join(directory, "proc"), interfaces=interfaces, rdma=devices)),
        }


def of_texts(content: Content) -> dict[str, t.Any]:
    """Return what parsers and signatures say of an archive's members."""
    texts = content.texts
    asked = json.loads(texts[ASKED])
    found: dict[str, t.Any] = {"parsers": {}, "signatures": {}}
    for name, text in sorted(texts.items()):
        node, _slash, rest = name.partition("/")
        if rest in PARSERS:
            found["parsers"][name] = parsed(lambda rest=rest, text=text: PARSERS[rest](text))
        if os.path.basename(name) == ENGINE_LOG:
            found["signatures"][name] = of_signatures(text)
        if rest == "docker/info.json" and f"{node}/docker/version.json" in texts:
            version = json.loads(texts[f"{node}/docker/version.json"])
            found["parsers"][name] = parsed(lambda text=text, version=version: survey.engine(version, json.loads(text)))
    for node in asked["nodes"]:
        if any(name.startswith(f"{node}/sys/") for name in texts):
            interfaces = (asked.get("doctor") or asked.get("preflight") or {}).get(node, {}).get("info", {}).get("interfaces") or []
            # Each becomes the name of a directory that is read.
            found["parsers"][f"{node}/sys"] = of_network(content, node, [one for one in interfaces if "/" not in one["name"] and is_plain(one["name"])])
    return found
