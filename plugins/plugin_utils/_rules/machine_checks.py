# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the kernel, its log, the driver and the GPUs. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import re

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import MIB_IN_GIB, Arguments, Faults, check, comparison, differing
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Fault, Node, Unseen

#: ``NVRM: Xid (PCI:000f:01:00): 79, ...``
_XID = re.compile(r"Xid \([^)]*\): (\d+)")
_RESERVED = re.compile(r"/(?P<total>[1-9]\d*)K available \(.*?\b(?P<reserved>\d+)K reserved")


@check
def driver_loaded(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The loaded NVIDIA modules have the installed versions."""
    modules = node.get("kernel.modules")
    for name in arguments["modules"]:
        module = modules.get(name)
        loaded, installed = (module or {}).get("loaded"), (module or {}).get("installed")
        if loaded and installed and loaded != installed:
            yield Fault(loaded, installed, {"module": name, "loaded": loaded, "installed": installed})
        elif module is None and name in arguments["always"]:
            raise Unseen(f"kernel.modules.{name}")
        elif loaded and not installed:
            raise Unseen(f"kernel.modules.{name}.installed")


@check
def xids(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The kernel's log of this boot has no Xid; with ``fatal`` only those of the limit ``codes`` count, without it only the others."""
    for event in [event for event in node.get("kernel_log.events") if event["kind"] == "xid"]:
        code = _XID.search(event["text"])
        if code is None:
            raise Unseen(f"the code of the Xid in {event['text'][:120]!r}")
        if (int(code[1]) in limits["codes"]) is arguments["fatal"]:
            yield Fault(int(code[1]), None, {**event, "code": code[1]})


@check
def reserved_at_boot(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The kernel reserved at most ``percent`` of the memory at boot. A log without that line passes."""
    for event in node.get("kernel_log.events"):
        match = _RESERVED.search(event["text"]) if event["kind"] == "memory" else None
        percent = round(100 * int(match["reserved"]) / int(match["total"]), 1) if match else 0
        if percent > limits["percent"]:
            yield Fault(percent, limits["percent"], {"gib": round(int(match["reserved"]) / 1024 / MIB_IN_GIB, 1)})


@comparison
def same_of_gpus(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The GPUs of all nodes have the same ``field``. With ``if_known`` a node whose driver does not report it is left out."""
    values = {}
    for node in nodes:
        values_of = {gpu["index"]: gpu[arguments["field"]] for gpu in node.get("gpus")}
        if None in values_of.values():
            if arguments.get("if_known"):
                continue
            raise Unseen(f"gpus.{arguments['field']} of {node.name}")
        values[node.name] = "/".join(sorted(set(map(str, values_of.values()))))
    yield from differing(values)
