# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A sweep's checks of its node, of the other nodes and of endpoints. This module util is PRIVATE to the collection.

The checks change nothing. A check that fails is an entry with its reason, and does not stop the others.
"""

from __future__ import annotations

import os
import ssl
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._companion import declared as companions
from ansible_collections.gb10.cluster.plugins.module_utils._companion import running as companion_look
from ansible_collections.gb10.cluster.plugins.module_utils._docker import survey
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_key, at_work, engine_log, engine_state, health, token_probe
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._network.greeting import Mute, greet
from ansible_collections.gb10.cluster.plugins.module_utils._records import recoveries
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import declared, judging
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots, glance
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files as unit_look

#: Seconds for one answer of Docker or systemd, and of any other check except a token.
DOCKER_SECONDS, ANSWER_SECONDS = 30.0, 10.0
#: The roles of containers that serve a model.
ROLES = ("head", "worker")
#: The most bytes of an endpoint's answer: only its status counts.
ENDPOINT_LIMIT = 1024 * 1024

Entry = dict[str, t.Any]
Config = t.Mapping[str, t.Any]


def text_of(error: Exception) -> str:
    """Return an error as text, with its remedy if it has one."""
    if isinstance(error, ClusterError):
        return error.with_remedy()
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename and error.strerror else str(error) or type(error).__name__


# -- the node --------------------------------------------------------------------------------------------------------


def locks(state_dir: str) -> list[Entry]:
    """Return the locks on this node, of its clusters and of its mode."""
    paths = [os.path.join(state_dir, "mode.lock.json"), *(cluster_locks.path_of(state_dir, name) for name in files.names(state_dir))]
    return [lock for path in paths if (lock := _lock(path, state_dir))]


def _lock(path: str, state_dir: str) -> Entry | None:
    folder = os.path.dirname(path)
    name = "of the mode" if folder == state_dir.rstrip("/") else f"of cluster {os.path.basename(folder)}"
    try:
        lock = cluster_locks.read(path)
    except ClusterError as error:
        # Not every entry of the state directory belongs to a cluster.
        return None if not os.path.lexists(path) else {"name": name, "id": "", "who": "", "age_s": 0, "error": text_of(error)}
    # Holder and time distinguish a lock from the next one.
    return {"name": name, "id": f"{lock.id} {lock.acquired_at}", "who": lock.describe(), "age_s": lock.age, "error": ""} if lock else None


def memory(roots: t.Mapping[str, t.Any]) -> Entry:
    """Return the memory that is available on this node."""
    try:
        return {"available_mb": accounting.available_mb(node_memory.read_meminfo(roots["proc_root"], roots.get("meminfo"))), "error": ""}
    except (ClusterError, KeyError) as error:
        return {"available_mb": 0, "error": f"the available memory is unknown: {text_of(error)}"}


# -- engines ---------------------------------------------------------------------------------------------------------


def on_node(config: Config, containers: t.Iterable[Entry]) -> dict[str, str]:
    """Return this node's role in each cluster with a container or a unit here, for a node without a declared mode."""
    return {entry["cluster"]: entry["role"] for entry in (*glance.on_node(config["state_dir"]), *containers)}


def engine(config: Config, cluster: str, role: str, of_mode: bool, container: Entry | None, api: EngineApi) -> Entry:
    """Return the state of an engine, or of this node's part of one. ``container`` is Docker's entry of its container, None without one."""
    seen: Entry = {
        "cluster": cluster, "role": role, "of_mode": of_mode, "runs": False, "health": None, "error": "",
        "container": f"container {container['name']} is {container['state']}" if container else "",
        "unit": unit_look.unit(unit_look.of_engine(config["state_dir"], cluster, config["roots"]["etc_root"]), DOCKER_SECONDS),
        "engine": {"seconds": None, "stopped_by": "", "last_end": ""},
    }  # fmt: skip
    try:
        paths = engine_state.EnginePaths.of(config["state_dir"], config["log_dir"], cluster)
        state = engine_state.engine_state(paths, config["roots"]["proc_root"])
        seen["engine"] = {"seconds": state["seconds"], "stopped_by": state["stopped_by"], "last_end": engine_state.last_end(state)}
        if container and container["state"] == "running":
            _running(config, seen, state, at_work.members(api.top(container["id"])))
    except (ClusterError, OSError) as error:
        seen["error"] = f"its state is unknown: {text_of(error)}"
    return seen


def _running(config: Config, seen: Entry, state: Entry, processes: list[Entry]) -> None:
    """Add the state of an engine in a running container. With Ray a worker has no launched process, and only the head has an API."""
    is_head = seen["role"] == "head"
    seen["runs"] = state["live"] if is_head or state["run_id"] else True
    if not seen["runs"]:
        return
    probe = health.Probe(health.ANSWERS, True)
    if is_head and state["api_address"]:
        answer = ask(config, seen["cluster"], state)
        probe = health.Probe(answer.api, bool(answer.completion), **(answer.progress or {}))
    judged = health.verdict(probe, {config["node"]: processes})
    seen["health"] = {"state": judged.state, "text": judged.text, "limit_s": probe.limit_s}


def key_of(config: Config, cluster: str, state: Entry) -> api_key.ApiKey:
    """Return the key of a live engine's API, an empty one without one. Raises :class:`ClusterError` for a file that cannot be read."""
    path = os.path.join(config["secrets_dir"], cluster, "api_key")
    return api_key.of(state, path if os.path.exists(path) else None, config["roots"]["proc_root"])


def ask(config: Config, cluster: str, state: Entry) -> token_probe.Asked:
    """Request a token from a live engine, as the playbook status does. Raises :class:`ClusterError` when the engine refuses."""
    url, stage = engine_state.base_url(state["api_address"], state["api_port"]), engine_log.log_stage(state["log_path"])
    api = token_probe.api_of(url, ANSWER_SECONDS, stage.name if stage else "")
    if api != health.ANSWERS:
        return token_probe.Asked(api, None, None)
    note = os.path.join(config["state_dir"], cluster, "no-progress.json")
    fabric = token_probe.fabric_root(state["argv"], config["roots"]["sysfs_root"])
    return token_probe.ask(url, None, key_of(config, cluster, state), ANSWER_SECONDS, config["token_s"], fabric, state["run_id"], note)


def engines(config: Config, mode: modes.Record | None) -> list[Entry]:
    """Return the state of each engine that should run here. Raises :class:`ClusterError` or OSError when Docker or the state cannot be read."""
    wanted = judging.clusters_of(mode, config["node"])
    if wanted == {}:
        return []
    api = EngineApi(config["docker_socket"], DOCKER_SECONDS)
    there = [container for container in survey.ours(survey.entries_of(api.containers({}))) if container["cluster"] and container["role"] in ROLES]
    roles = on_node(config, there) if wanted is None else wanted
    by_role = {(container["cluster"], container["role"]): container for container in there}
    return [engine(config, cluster, role, wanted is not None, by_role.get((cluster, role)), api) for cluster, role in roles.items()]


# -- over the network ------------------------------------------------------------------------------------------------


def _entry(id: str, well: bool, text: str, silent: bool = False) -> Entry:
    return {"id": id, "well": well, "text": text, "silent": silent}


def companion(settings: Entry) -> Entry:
    """Return whether a companion answers."""
    well, answer = companion_look.health(settings["port"], settings["health_path"], ANSWER_SECONDS)
    return _entry(f"companion {settings['name']}", well, f"{companion_look.url(settings['port'], settings['health_path'])}: {answer}")


def endpoint(settings: Entry, tls: ssl.SSLContext) -> Entry:
    """Return whether an endpoint answers as declared."""
    answer = _http.ask(settings["url"], ANSWER_SECONDS, limit=ENDPOINT_LIMIT, tls=tls)
    result = answer.error if answer.status is None else f"status {answer.status}, expected {declared.status_text(settings.get('status'))}"
    well = answer.status is not None and declared.is_wanted(answer.status, settings.get("status"))
    return _entry(f"endpoint {settings['name']}", well, f"{declared.shown_url(settings['url'])}: {result}")


def peer(node: Entry) -> Entry:
    """Return whether another node answers: its sshd greets at one of its addresses. A node that accepts connections without a greeting may be busy."""
    failures, silent = [], False
    for address in node["addresses"]:
        where = f"{address} port {node['port']}"
        try:
            greet(address, node["port"], ANSWER_SECONDS)
            return _entry(f"node {node['name']}", True, f"its sshd greets at {where}")
        except Mute as error:
            failures.append(f"{where} accepts connections, but sshd does not greet: {error}")
            silent = True
        except OSError as error:
            failures.append(f"{where}: {error.strerror or error}")
    return _entry(f"node {node['name']}", False, f"it does not answer: {'; '.join(failures)}", silent)


# -- all of it -------------------------------------------------------------------------------------------------------


def see(config: Config) -> judging.Seen:
    """Check everything that is declared."""
    errors: list[str] = []
    seen = judging.nothing(memory(config["roots"]), errors)
    try:
        seen["mode"] = modes.read(config["state_dir"])
    except ClusterError as error:
        seen["mode_error"] = text_of(error)
    try:
        seen["unclean_boot"] = boots.recent(config["state_dir"], config["roots"]["proc_root"])
    except ClusterError as error:
        errors.append(f"unclean boots are unknown: {text_of(error)}")
    try:
        states = {name: recoveries.read(config["state_dir"], name) for name in files.names(config["state_dir"])}
        seen["asked"] = [_entry(f"recovery of {name}", False, text) for name, state in states.items() if (text := recoveries.problem(state))]
    except (ClusterError, OSError) as error:
        errors.append(f"recoveries are unknown: {text_of(error)}")
    try:
        seen["locks"] = locks(config["state_dir"])
        seen["engines"] = [] if seen["mode_error"] else engines(config, seen["mode"])
    except (ClusterError, OSError) as error:
        errors.append(f"the engines of this node are unknown: {text_of(error)}")
    seen["asked"] += [companion(settings) for settings in companions.up_in(config["companions"], judging.mode_of(seen["mode"]))]
    try:
        tls = _http.trusting(config["ca_file"])
        seen["asked"] += [endpoint(settings, tls) for settings in config["endpoints"]]
    except OSError as error:
        errors.append(f"no endpoint was checked: {config['ca_file']}: {error.strerror or error}")
    seen["asked"] += [peer(node) for node in config["peers"]]
    return seen
