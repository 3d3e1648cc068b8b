# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of memory: total and available memory, claims, and the memory plan. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._memory import components, plan
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import declared_claims, planning, wording
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import GB, GIB, MIB_IN_GIB, Arguments, Faults, check, derived, gib
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Entry, Fault, Node, Unseen

#: The value of gb10_kv_cache with which the size of the cache comes from the plan and the recorded starts.
RECORDED = "recorded"


@check
def memory_of_class(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The node has at least the memory of the Sparks that the profile was made for."""
    class_gb = node.needs["memory_class_gb"]
    total, floor = gib(node.get("memory.total_mb")), round(class_gb * limits["shown"], 1)
    if total < floor:
        yield Fault(total, floor, {"total": total, "class_gb": class_gb, "floor": floor})


@check
def memory_for_engine(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The memory that the engine will take is available: its fraction of the total, or weights, KV cache in bytes and a reserve.

    A live engine of this cluster takes nothing more. If it may be restarted, its memory is released first.
    """
    if node.engine_live and "restart" not in node.needs["allow"]:
        return
    readable(node)
    memory, total, available = node.needs["memory"], node.get("memory.total_mb"), available_mb(node)
    kv_bytes, fraction = memory["kv_cache_bytes"], memory["utilization"]
    if kv_bytes is not None:
        weights = memory["weights_gb"]
        if weights is None:
            raise Unseen("memory.weights_gb of the profile")
        needed = (weights * GB + kv_bytes) / GIB + limits["reserve_gib"]
        why = f"{weights} GB of weights, {round(kv_bytes / GIB, 1)} GiB of KV cache and {limits['reserve_gib']} GiB of reserve"
    else:
        needed, why = fraction * total / MIB_IN_GIB, f"{fraction} of {gib(total)} GiB, as gpu_memory_utilization asks"
    if available / MIB_IN_GIB < needed:
        yield Fault(gib(available), round(needed, 1), {"available": gib(available), "missing": round(needed - available / MIB_IN_GIB, 1), "why": why})


def readable(node: Node) -> None:
    """Raise :class:`Unseen` when the engine cannot read a number among the arguments that determine its memory."""
    unread = node.needs["plan"].use.unread
    if unread:
        raise Unseen("the engine's arguments", "; ".join(unread), "correct it in gb10_serve_arguments, or in the profile")


def available_mb(node: Node) -> int:
    """Return the MiB that are available for a start: those available now, and those of this cluster's live engine, which ends first."""
    available = int(node.get("memory.available_mb"))
    if not node.engine_live:
        return available
    held = node.get("held").get(node.needs["cluster"], {"gpu_mib": 0, "anon_mb": 0})
    if held["gpu_mib"] is None:
        raise Unseen(
            f"held.{node.needs['cluster']}.gpu_mib",
            "the driver does not say what the live engine holds",
            "take the cluster down first (the playbook teardown), then bring it up",
        )
    return available + int(held["gpu_mib"]) + int(held["anon_mb"])


def companions(node: Node) -> list[Entry]:
    """Return the companions of a node. A node without declared companions may lack this result."""
    if node.needs["companions"]:
        return node.get("companions")
    return [] if node.error("companions") else node.optional("companions") or []


def companion_pids(node: Node) -> set[int]:
    """Return the processes of declared companions. Their memory is claimed, so they are not tenants."""
    return {pid for companion in companions(node) if companion["declared"] for pid in companion["pids"]}


def held_gib(companion: Entry) -> float:
    """Return the GiB that a companion uses. GPU memory that the driver does not report counts as not taken yet."""
    return ((companion["gpu_mib"] or 0) + companion["anon_mb"]) / MIB_IN_GIB


@derived("companions")
def companions_seen(node: Node) -> list[Entry]:
    """Return the companions of a node, each with the GiB that it uses."""
    return [{**companion, "held": round(held_gib(companion), 1)} for companion in companions(node)]


def companion_claims(node: Node, admitted: bool = False) -> tuple[float, list[str]]:
    """Return the GiB that the companions of the mode have yet to take on a node, and the claims and uses in words. A companion that uses more than its claim
    has nothing more to take.

    With ``admitted``, running companions have nothing more to take: they were counted before the engine was started.
    """
    claimed = {f"companion {name}": size for name, size in declared_claims.companion_claims(node.needs["companions"], node.needs["mode"]).items()}
    running = {f"companion {companion['name']}": companion for companion in companions(node) if companion["running"]}
    now = {name: held_gib(running[name]) if name in running else 0.0 for name in claimed}
    others = [f"{name} {held_gib(companion):.1f} GiB held, not of this mode" for name, companion in running.items() if name not in claimed]
    more = sum(max(0.0, size - now[name]) for name, size in claimed.items() if not (admitted and name in running))
    return more, [*filter(None, [declared_claims.who(claimed, now)]), *others]


def claims(node: Node) -> tuple[float, str]:
    """Return the GiB that declared tenants and companions have yet to take on a node, and the claims and uses in words. Memory in use is not available
    anyway."""
    claimed = declared_claims.claimed(node.needs["tenants"], node.name)
    more, who = companion_claims(node)
    companion_processes = companion_pids(node)
    now = dict.fromkeys(claimed, 0.0)
    beside = []
    for tenant in [tenant for tenant in node.get("tenants") if tenant["pid"] not in companion_processes] if claimed or who else ():
        names = {str(tenant[word]).lower() for word in ("container", "name", "kind")}
        known = next((name for name in claimed if name.lower() in names), None)
        if known is not None:
            now[known] += (tenant["gpu_mib"] or 0) / MIB_IN_GIB
        elif tenant["gpu_mib"]:
            beside.append(f"{tenant['name']} {gib(tenant['gpu_mib'])} GiB undeclared")
    more += sum(max(0.0, size - now[name]) for name, size in claimed.items())
    return more, ", ".join(filter(None, (*who, declared_claims.who(claimed, now), *beside)))


@check
def companions_fit(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The memory that the companions of the mode have yet to take is available, with a reserve, whatever the engine takes."""
    more, who = companion_claims(node, admitted=node.engine_live)
    left = node.get("memory.available_mb") / MIB_IN_GIB - more
    if more and left < limits["reserve_gib"]:
        yield Fault(round(left, 1), limits["reserve_gib"], {"more": round(more, 1), "available": gib(node.get("memory.available_mb")), "who": ", ".join(who)})


@check
def companion_units(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The unit of each companion of the mode exists."""
    wanted = declared_claims.companion_claims(node.needs["companions"], node.needs["mode"])
    for companion in companions(node) if wanted else ():
        if companion["declared"] and companion["name"] in wanted and companion["state"] == "not-found":
            yield Fault("not found", companion["unit"], companion)


def records(node: Node) -> list[Entry]:
    """Return the recorded starts of this image, profile and driver. A node without that image has none, nor do results of older versions."""
    images, gpus = node.optional("images") or {}, node.optional("gpus") or []
    image, driver = images.get(node.needs["image"]["tag"]) or {}, next((gpu["driver_version"] for gpu in gpus if gpu["driver_version"]), "")
    known = [start for start in node.optional("starts") or [] if start["cluster"] == node.needs["cluster"]]
    return [start for start in known if starts.same(start, image.get("id", ""), node.needs["plan_digest"], driver)]


@check
def plan_fits(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The memory of the profile, by the memory plan, fits this node next to the memory in use and the claims of others.

    A live engine of this cluster takes nothing more. If it may be restarted, its memory is released first.
    """
    if node.engine_live and "restart" not in node.needs["allow"]:
        return
    readable(node)
    total, available = node.get("memory.total_mb") / MIB_IN_GIB, available_mb(node) / MIB_IN_GIB
    more, who = claims(node)
    pinned = planning.pinned(node.needs["plan"], node.needs["pin"].size if node.needs["pin"] else None)
    admission = planning.admission(pinned, components.Node(node.name, round(total, 2), round(more, 2), available=round(available, 2), who=who), records(node))
    if admission["verdict"] != plan.FITS:
        words = {
            "says": admission["verdict"],
            "figures": wording.figures(admission["node"]),
            "why": "; ".join([*admission["reasons"], *([f"others there: {who}"] if who else [])]),
            "would_go": admission["would_go"],
        }
        verdict = "warn" if admission["verdict"] == plan.TIGHT else "block"
        yield Fault(admission["node"]["serving"]["available_gib"], components.CONSTANTS["unproven"].value, words, verdict=verdict)


def pin_of(nodes: t.Sequence[Node]) -> planning.Pin | None:
    """Return the size of the KV cache that recorded starts confirm on all nodes; None if it was not requested."""
    if not nodes or nodes[0].needs["kv_cache"] != RECORDED:
        return None
    on, recorded, unseen = [], {}, {}
    for node in nodes:
        try:
            total = round(node.get("memory.total_mb") / MIB_IN_GIB, 2)
            recorded[node.name] = records(node)
        except Unseen as missing:
            unseen[node.name] = f"its recorded starts are unknown: {missing}"
            continue
        claimed = [*declared_claims.claimed(node.needs["tenants"], node.name).values()]
        claimed += declared_claims.companion_claims(node.needs["companions"], node.needs["mode"]).values()
        on.append(components.Node(node.name, total, sum(claimed)))
    pin = planning.pin(nodes[0].needs["plan"], on, recorded)
    return pin._replace(size=None, lacks={**pin.lacks, **unseen}) if unseen else pin
