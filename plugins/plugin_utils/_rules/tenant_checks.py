# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of other uses of the node: processes, ports, containers, services. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import ID_LENGTH, ID_SHOWN, Arguments, Faults, check, comparison, derived, named_like
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Entry, Fault, Node, of_entry
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.memory_checks import companion_pids
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.groups import grouped

#: The kind of the tenants that belong to a desktop session.
DESKTOP = "desktop"


def holder(listener: Entry) -> str:
    """Return the process that listens, as far as it is visible."""
    since = f" since {listener['since']}" if listener["since"] else ""
    return f"{listener['process'] or 'a process that may not be seen'} (pid {listener['pid'] or 'unknown'}){inside(listener)}{since}"


@check
def ports_free(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The ports are free, or used by this cluster. With ``stale_heads`` only the Ray heads of other runs count, without it only other processes.

    Processes that are not visible are not evidence; ``errors`` lists them.
    """
    ours = {container["name"] for container in node.our_containers()}
    for name, port in node.needs["ports"].items():
        holders = [listener for listener in node.get("listeners") if listener["port"] == port and listener["pid"] is not None]
        foreign = [listener for listener in holders if listener["container"] not in ours]
        stale = all(classify.is_gcs(listener["process"]) and listener["container"] for listener in foreign)
        if foreign and stale is arguments["stale_heads"]:
            who = "; ".join(holder(listener) for listener in foreign)
            cannot = "gb10_allow lacks stale_head" if stale and "stale_head" not in node.needs["allow"] else ""
            yield Fault(who, f"port {port} free", {"port": port, "variable": name, "who": who}, cannot=cannot)


def _tenants(node: Node) -> list[Entry]:
    """Return the tenants, without declared companions and the processes that cuda_zombie_check reports: an orphan has no owner, and another remedy."""
    classes = node.optional("zombies.classes") or {}
    reported = {pid for kind in ("ghost", "orphan", "defunct") for pid in classes.get(kind, ())} | companion_pids(node)
    return [tenant for tenant in node.get("tenants") if tenant["pid"] not in reported]


@derived("tenants")
def other_tenants(node: Node) -> list[Entry]:
    """Return the tenants that no other rule reports, each with its container."""
    return [{**tenant, "where": inside(tenant)} for tenant in _tenants(node)]


@check
def desktop_session(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The processes of a desktop session use less GPU memory than ``held_mib`` in total."""
    drawing = [tenant for tenant in _tenants(node) if tenant["kind"] == DESKTOP and tenant["gpu_mib"]]
    held = sum(tenant["gpu_mib"] for tenant in drawing)
    if held >= limits["held_mib"]:
        yield Fault(held, f"below {limits['held_mib']} MiB", {"who": ", ".join(f"{tenant['name']} {tenant['gpu_mib']} MiB" for tenant in drawing)})


@check
def tenants_idle(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No other program runs that takes GPU memory on request. Processes of one kind in one container share a finding."""
    yield from together(tenant for tenant in _tenants(node) if tenant["kind"] != DESKTOP and (tenant["gpu_mib"] or 0) < limits["held_mib"])


def together(tenants: t.Iterable[Entry]) -> Faults:
    """Yield one fault for all tenants of one kind in one container."""
    for (_container, kind), (first, *others) in grouped(((tenant["container"], tenant["kind"]), tenant) for tenant in tenants).items():
        held = sum(tenant["gpu_mib"] or 0 for tenant in (first, *others))
        more = f" and {len(others)} more" if others else ""
        who = f"{first['name']} (pid {first['pid']}, {kind}, user {first['user']}){more}{inside(first)}"
        yield Fault(held, "none", {"who": who, "held": f"{held} MiB" if held else "no memory that the driver lists"})


def inside(entry: Entry) -> str:
    """Return the container of a process in words. A container without a known name is shown by the beginning of its id, as in Docker."""
    name = entry["container"] or ""
    is_id = len(name) == ID_LENGTH and not name.strip("0123456789abcdef")
    return f" in container {name[:ID_SHOWN] if is_id else name}" if name else ""


@check
def gpu_containers(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No foreign container with the GPU runs. One that uses GPU memory is already reported as a tenant."""
    named, declared = {tenant["container"] for tenant in node.get("tenants")}, companion_pids(node)
    for container in node.get("foreign_containers"):
        is_named = container["name"] in named or declared.intersection(container["pids"])
        if container["gpu"] and container["state"] == "running" and not is_named:
            yield Fault(container["name"], "none", container)


@check
def mode_has_it(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The declared mode includes this cluster with this profile. Without a declared mode, and in results of versions without modes, any cluster may come up.

    What an earlier bring-up recorded declares nothing.
    """
    record, cluster, profile = node.optional("mode"), node.needs["cluster"], node.needs["profile"]
    has = {name: entry["profile"] for name, entry in record["clusters"].items()} if record and record["mode"] != modes.SERVE else {cluster: profile}
    if has.get(cluster) != profile:
        declared = ", ".join(f"{name} with {profile_id}" for name, profile_id in has.items()) or "nothing"
        yield Fault(declared, f"{cluster} with {profile}", {"mode": record["mode"], "has": declared, "cluster": cluster, "profile": profile})


@check
def environment_clean(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No variable of the engine, Ray or NCCL is set for the whole machine, except harmless ones."""
    left = [entry for entry in node.get("environment") if not named_like(entry["name"], limits["harmless"])]
    for where, variables in grouped((entry["where"], f"{entry['name']}={entry['value']}") for entry in left).items():
        yield Fault(variables, [], {"where": where, "variables": ", ".join(variables)})


@check
def no_mps(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """CUDA MPS is neither running nor requested."""
    variables = [f"{entry['name']} in {entry['where']}" for entry in node.get("environment") if named_like(entry["name"], limits["variables"])]
    running = [f"{process['name']} (pid {process['pid']})" for gpu in node.get("gpus") for process in gpu["processes"] or []]
    running += [f"{tenant['name']} (pid {tenant['pid']})" for tenant in node.get("tenants")]
    seen = dict.fromkeys([*variables, *(label for label in running if limits["program"] in label)])
    if seen:
        yield Fault(list(seen), [], {"seen": ", ".join(seen)})


@check
def sshd_protected(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The kernel kills sshd last when memory is short."""
    sshd = node.get("limits.sshd")
    if sshd["pid"] is None and node.error("limits.sshd") is None:
        # No sshd runs: this node was reached in another way.
        return
    score = of_entry(sshd, "oom_score_adj", "limits.sshd")
    if score > limits["most"]:
        yield Fault(score, limits["most"], {"pid": sshd["pid"], "score": score})


@check
def earlyoom_effective(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A running earlyoom can act before the memory is full. One that does not run is not a fault."""
    guard = node.get("limits.earlyoom")
    if of_entry(guard, "running", "limits.earlyoom") and not of_entry(guard, "effective", "limits.earlyoom"):
        yield Fault(guard["args"], "effective", {"why": guard["why"] or "its thresholds are never reached"})


@comparison
def heads_alive(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """If containers of this cluster run on the workers, the head's also runs."""
    running = {node.name: [container["name"] for container in node.our_containers() if container["state"] == "running"] for node in nodes}
    heads = [node.name for node in nodes if node.needs["head"]]
    if heads and not any(running[head] for head in heads):
        for name, containers in running.items():
            if containers:
                yield Fault(containers, f"a head on {heads[0]}", {"containers": ", ".join(containers), "head": heads[0]}, node=name)
