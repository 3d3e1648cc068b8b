# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a node's companions: whether they run and answer, and their memory. This module util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._companion import container, declared, unit
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_COMPANION, LABEL_ROLE, LABEL_SPEC, EngineApi, name_of
from ansible_collections.gb10.cluster.plugins.module_utils._docker.survey import is_ours
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, strict
from ansible_collections.gb10.cluster.plugins.module_utils._http import ask, base_url
from ansible_collections.gb10.cluster.plugins.module_utils._network.listeners import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import created_with, end_of_log
from ansible_collections.gb10.cluster.plugins.module_utils._process import tenants
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Scan

Entry = dict[str, t.Any]

#: The address of a companion on its node, whose network it shares.
ADDRESS = "127.0.0.1"
#: The state of a companion without a container, where a foreign container has its name.
FOREIGN = "foreign"
#: Seconds for one health answer in a status check.
GLANCE_SECONDS = 3.0


def url(port: int, path: str) -> str:
    """Return the address of a companion's health check."""
    return f"{base_url(ADDRESS, port)}{path}"


def health(port: int, path: str, timeout: float) -> tuple[bool, str]:
    """Return whether a companion answers with a status of 200 to 299 within ``timeout`` seconds, and the answer as text."""
    answer = ask(url(port, path), timeout)
    if answer.status is None:
        return False, answer.error
    return 200 <= answer.status < 300, f"status {answer.status}"


def unhealthy(companion: t.Mapping[str, t.Any], node: str, answer: str) -> str:
    """Return the message about a running companion that was not healthy in time; ``answer`` is its last answer."""
    address = url(companion["port"], companion["health_path"])
    return f"companion {companion['name']} on {node} is not healthy after {companion['health_timeout']} s: GET {address}: {answer}"


def ignores_stop(name: str, node: str, seconds: int) -> str:
    """Return the message about a companion that ignores its stop signal."""
    return f"companion {name} on {node} got its stop signal and still runs after {seconds} s; it was not killed"


def settled(rows: t.Iterable[Entry], up: t.Collection[str], down: t.Collection[str]) -> bool:
    """Return whether each of ``up`` answers or has ended, and each of ``down`` has ended."""
    return not any(row["running"] and (row["name"] in down or (row["name"] in up and not row["healthy"])) for row in rows)


def with_logs(rows: t.Iterable[Entry], up: t.Collection[str], api: EngineApi, timeout: float) -> list[Entry]:
    """Add the end of the log to each companion of ``up`` that ended."""
    ended = {row["name"]: row for row in rows if row["name"] in up and not row["running"]}
    logs = {
        name: unit.journal(row["unit"], timeout) if row["unit"] else end_of_log(api.logs(row["container_id"])) if row["container_id"] else ""
        for name, row in ended.items()
    }
    return [{**row, "log": logs.get(row["name"], "")} for row in rows]


def look(
    companions: t.Sequence[t.Mapping[str, t.Any]],
    entries: t.Sequence[Entry],
    seen: Scan,
    gpu_processes: t.Callable[[], t.Sequence[t.Mapping[str, t.Any]] | None],
    root: str,
    timeout: float,
    section: Section = strict,
) -> list[Entry]:
    """Return the section ``companions`` of ``node_info``: the declared ones in their order, then containers of companions that are not declared.

    ``entries`` is the engine's list of containers, ``gpu_processes`` returns what the driver lists (None where it does not). A unit that systemd does
    not describe is noted by ``section``, and left out.
    """
    ours = {entry["Labels"][LABEL_COMPANION]: entry for entry in entries if is_ours(entry) and entry["Labels"].get(LABEL_ROLE) == container.ROLE}
    rows = []
    for companion in map(declared.whole, companions):
        if companion["unit"]:
            row = section(functools.partial(_of_unit, companion, timeout))
        else:
            row = _of_container(companion, ours.pop(companion["name"], None), entries)
        if row is not None:
            rows.append(row)
    for name, entry in sorted(ours.items()):
        fields = created_with(entry["Labels"]) or {}
        undeclared = {"name": name, "port": fields.get("port"), "health_path": "", "image": fields.get("image", "")}
        rows.append({**_of_container(undeclared, entry), "declared": False})
    return _with_memory(rows, entries, seen, gpu_processes, root, section)


def _row(companion: t.Mapping[str, t.Any], kind: str, state: str, running: bool) -> Entry:
    return {
        "name": companion["name"], "kind": kind, "declared": True, "container": "", "container_id": "", "unit": "", "state": state, "running": running,
        "port": companion["port"], "health_path": companion["health_path"], "healthy": None, "health": "", "pids": [], "gpu_mib": 0, "anon_mb": 0,
        "spec": "", "fields": {}, "log": "",
    }  # fmt: skip


def _of_unit(companion: t.Mapping[str, t.Any], timeout: float) -> Entry:
    state = unit.state(companion["unit"], timeout)
    return {**_row(companion, "unit", state.active if state.load != "not-found" else "not-found", state.holds_processes), "unit": companion["unit"]}


def _of_container(companion: t.Mapping[str, t.Any], entry: Entry | None, entries: t.Sequence[Entry] = ()) -> Entry:
    if entry is None:
        return _row(companion, "container", FOREIGN if container.name_for(companion["name"]) in map(name_of, entries) else "absent", False)
    row = _row(companion, "container", entry["State"], entry["State"] in ("running", "paused", "restarting"))
    created = {"spec": entry["Labels"].get(LABEL_SPEC, ""), "fields": created_with(entry["Labels"]) or {}}
    return {**row, **created, "container": name_of(entry), "container_id": entry["Id"]}


def _with_memory(
    rows: list[Entry],
    entries: t.Sequence[Entry],
    seen: Scan,
    gpu_processes: t.Callable[[], t.Sequence[t.Mapping[str, t.Any]] | None],
    root: str,
    section: Section,
) -> list[Entry]:
    """Add to the running companions their health, their processes, and the memory of these."""
    running = [row for row in rows if row["running"]]
    whose: dict[int, str] = {}
    known, own = {entry["Id"] for entry in entries}, {row["container_id"] for row in rows}
    heard = listeners([row["port"] for row in running if row["unit"]], root)
    for row in running:
        inside = {row["container_id"]} - {""}
        if row["unit"]:
            whose.update(dict.fromkeys(unit.processes(row["unit"], seen.processes, root), row["name"]))
            # A unit may run its program in a container, in a control group of Docker: the container that listens on its port belongs to it.
            inside = {entry["container"] for entry in heard if entry["port"] == row["port"]} & known - own
        whose.update({pid: row["name"] for pid, process in seen.processes.items() if process.container in inside})
    listed = gpu_processes() if whose else []
    held = section(functools.partial(tenants.held_by, seen, listed, lambda process: whose.get(process.pid), root), {})
    for row in running:
        row["pids"] = sorted(pid for pid, name in whose.items() if name == row["name"])
        row.update(held.get(row["name"], {}))
        if row["port"] and row["health_path"]:
            row["healthy"], row["health"] = health(row["port"], row["health_path"], GLANCE_SECONDS)
    return rows
