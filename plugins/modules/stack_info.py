#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_info
short_description: Find the engines that serve on a node, no matter who started them
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Finds every engine and every part of Ray that runs on a node, in containers and outside, from this collection or not. Those are vLLM's servers, engine
    cores and ranks, Ray's own processes, and by name the servers of SGLang, TensorRT-LLM, Triton, llama.cpp, Ollama and TensorFold.
  - Returns for each process the facts that matter for a failing stack. They are its arguments, its actual variables, the addresses it listens on, its
    connections, its open RDMA devices, its locked memory limit, and its use of a core.
  - Requests C(/health), C(/v1/models) and C(/metrics) from each API, without a key, and returns the answers. It sends no request that generates a token,
    except with O(probe_token=true) one to each API of vLLM.
  - Runs for any account and reports what it could not read. Variables, open files and RDMA devices of other users' processes require C(become).
  - Secrets in arguments and variables do not leave the node.
  - It only reads, installs nothing, and needs only Python's standard library.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._look.driver
options:
  sample_s:
    description:
      - Seconds between the two samples of processor time and of each API's tokens, 0 to 60. With 0 neither is returned.
    type: float
    default: 2
  probe:
    description:
      - Whether to query the APIs.
    type: bool
    default: true
  probe_timeout:
    description:
      - Maximum total seconds for one answer of an API.
    type: float
    default: 3
  probe_token:
    description:
      - Whether to also request one generated token from each API of vLLM. That is the only proof that an engine serves.
    type: bool
    default: false
  token_timeout:
    description:
      - Seconds to wait for that token.
    type: float
    default: 15
  api_key_file:
    description:
      - File on the node with the APIs' key, for this request only. A server gets it only if its socket belongs to the container that Docker reports for it.
    type: path
seealso:
  - module: gb10.cluster.node_info
  - module: gb10.cluster.cuda_zombie_check
"""

EXAMPLES = r"""
- name: Find the engines on this node
  gb10.cluster.stack_info:
  become: true
  register: stack

- name: Show the APIs that answer without a key
  ansible.builtin.debug:
    msg: "{{ stack.apis | selectattr('open', 'true') | map(attribute='asked') }}"
"""

RETURN = r"""
processes:
  description: The parts of all stacks, by pid. Null if processes could not be listed.
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: Its pid on this node.
      type: int
      sample: 1033
    ppid:
      description: Its parent's pid.
      type: int
      sample: 32121
    kind:
      description:
        - C(api_server), C(headless) (a server that has ranks and no API), C(engine_core), C(rank) (one process on one GPU), C(helper).
        - Of Ray C(ray_start), C(raylet), C(gcs_server), C(ray_dashboard), C(ray_client) (the server for Ray's own clients), C(ray_agent),
          C(ray_worker) (a worker that has work, or does not report it) and C(ray_idle) (one that reports that it has none).
      type: str
      sample: rank
    engine:
      description: C(vllm), C(ray), C(sglang), C(tensorrt_llm), C(triton), C(llama_cpp), C(ollama) or C(tensorfold).
      type: str
      sample: vllm
    stack:
      description:
        - An id that its parts share, on this node and on others. C(ray ADDRESS) with that of Ray's head, C(native ADDRESS) with the address at which ranks
          connect without Ray, or C(local PID) with the server that has only this node.
        - Null if unknown, as for a rank without a server.
      type: str
      sample: "ray 192.168.100.11:6379"
    argv:
      description: Its arguments, or the title that it set, without secrets. Long ones are cut.
      type: list
      elements: str
      sample: ["ray::RayWorkerProc.run"]
    container:
      description: The name of its container, the id if no engine reports the name. Empty outside of any.
      type: str
      sample: vllm_node
    container_id:
      description: The full id of its container.
      type: str
      sample: 964bc153e00c758b43a14de9ade4413c0bc9dc189f25844cebce11ad5d798101
    user:
      description: Its user.
      type: str
      sample: root
    started:
      description: When it started, in UTC.
      type: str
      sample: "2026-11-21T17:35:53Z"
    age_s:
      description: Seconds since then. Null if unknown.
      type: int
      sample: 3721
    env:
      description: Its current variables for the engine, Ray, NCCL and related software, without secrets. Null if they cannot be read.
      type: dict
      sample: {"NCCL_IB_HCA": "rocep1s0f0", "VLLM_HOST_IP": "192.168.100.11"}
    env_source:
      description: C(live) if they were read from its memory, C(exec) if they are those it was started with, null without any.
      type: str
      sample: live
    listens:
      description: The TCP addresses it listens on. Null if its open files cannot be read.
      type: list
      elements: dict
      sample: [{"address": 0.0.0.0, "port": 8000}]
    peers:
      description: The peers of its TCP connections, other machines first, with their number, at most 64. Null if its open files cannot be read.
      type: list
      elements: dict
      sample: [{"address": 192.168.100.12, "port": 20113, "count": 2}]
    rdma:
      description: Its open RDMA devices. Null if its open files cannot be read.
      type: list
      elements: str
      sample: [uverbs0, uverbs2]
    memlock_bytes:
      description: How much memory it may lock, -1 for no limit, null if that cannot be read.
      type: int
      sample: -1
    rss_mb:
      description: Its ordinary memory in MiB.
      type: int
      sample: 3120
    gpu_mib:
      description: Its GPU memory in MiB. Null if the driver does not list it or does not report it.
      type: int
      sample: 93440
    cpu_percent:
      description: How much of one core it used during O(sample_s), all its threads together. Null if that was not measured.
      type: float
      sample: 3.5
    halted:
      description: Whether a signal or a debugger stopped it. A stopped process does not answer, and its ports stay open.
      type: bool
      sample: false
    state:
      description: C(alive), C(stopped), C(uninterruptible) (it waits in the kernel, and no signal reaches it) or C(ended).
      type: str
      sample: alive
    orphan:
      description: For an engine's core or rank, whether its server or raylet is gone. False for all others.
      type: bool
      sample: false
    why:
      description: Why it is an orphan, or is not. Empty for all others.
      type: str
      sample: ""
    versions:
      description: The packages that matter to an engine, as installed in its environment. Null if that cannot be read.
      type: dict
      sample: {"vllm": 0.32.0, "ray": 2.60.0, "torch": 2.13.0}
containers:
  description: The containers of these processes, by name. Containers that Docker does not know are left out.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: Its full id.
      type: str
      sample: 964bc153e00c758b43a14de9ade4413c0bc9dc189f25844cebce11ad5d798101
    name:
      description: Its name.
      type: str
      sample: vllm_node
    image:
      description: Its image.
      type: str
      sample: eugr/spark-vllm:2026-11-01
    image_id:
      description: The id of that image.
      type: str
      sample: sha256:1f0c
    image_base:
      description: The id of the image that this collection built it on, and the digest of the recipe. Empty for other images.
      type: str
      sample: ""
    ours:
      description: Whether it belongs to this collection.
      type: bool
      sample: false
    memlock_bytes:
      description: The limit of locked memory that it was created with, -1 for none, null if it has Docker's default.
      type: int
      sample: -1
    host_network:
      description: Whether it uses the node's network.
      type: bool
      sample: true
    privileged:
      description: Whether it is privileged.
      type: bool
      sample: true
    infiniband:
      description: Whether it has RDMA devices, by name or because it is privileged.
      type: bool
      sample: true
    ports:
      description: The ports that the engine publishes for it.
      type: list
      elements: dict
      sample: []
    env:
      description: The variables for the engine, Ray, NCCL and related software that it was created with, without secrets.
      type: dict
      sample: {"NCCL_IB_HCA": "rocep1s0f0"}
apis:
  description: The APIs of these servers, one entry for each address.
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: The server.
      type: int
      sample: 381
    engine:
      description: As in RV(processes[].engine).
      type: str
      sample: vllm
    stack:
      description: As in RV(processes[].stack).
      type: str
      sample: "ray 192.168.100.11:6379"
    container:
      description: As in RV(processes[].container).
      type: str
      sample: vllm_node
    address:
      description: The address it listens on. Null if it does not listen yet.
      type: str
      sample: 0.0.0.0
    port:
      description: The port, or the port that it will listen on.
      type: int
      sample: 8000
    asked:
      description: The requested URL. Null if none was requested.
      type: str
      sample: "http://127.0.0.1:8000"
    world:
      description:
        - Whether other machines can reach it as far as this node decides (its address is not a loopback, or its port is published).
        - Null if unknown.
      type: bool
      sample: true
    state:
      description:
        - C(answers), C(silent) (it listens and does not answer), C(not_listening), C(unknown) (the answer is not HTTP, or it cannot be reached from
          the node), C(not_asked).
      type: str
      sample: answers
    error:
      description: The raw reason if it does not answer as it should.
      type: str
      sample: ""
    health:
      description: The status of C(/health).
      type: int
      sample: 200
    models_status:
      description: The status of C(/v1/models) without a key.
      type: int
      sample: 200
    models:
      description: The models in that answer, with C(max_model_len) if the engine reports it. Null if it lists none without a key.
      type: list
      elements: dict
      sample: [{"id": nvidia/nemotron-3-super, "max_model_len": 1048576}]
    open:
      description: Whether it listed its models without a key. Null if it did not answer.
      type: bool
      sample: true
    running:
      description: Running requests in vLLM's metrics, at the second sample. Null if the metrics do not show it.
      type: float
      sample: 1.0
    tokens:
      description: Tokens read and written between the two samples. Null if the metrics do not show it.
      type: float
      sample: 212.0
    token:
      description:
        - The result of the token request, as the keys C(api), C(completion) and C(progress) of M(gb10.cluster.vllm_serve_info).
        - Null if none was requested, or if the API refused the request.
      type: dict
      sample: {"api": answers, "completion": {"tokens": 1, "seconds": 0.4}, "progress": null}
sample_s:
  description: Actual seconds between the two samples. Null if there was only one.
  returned: always
  type: float
  sample: 2.01
errors:
  description: Facts that could not be read, with the reason. Empty if all were read.
  returned: always
  type: list
  elements: dict
  contains:
    section:
      description: The result, or the key of RV(processes), that is empty or null because of it, in whole or in part.
      type: str
      sample: env
    verdict:
      description: V(unknown) or V(block).
      type: str
      sample: unknown
    error:
      description: What went wrong.
      type: str
      sample: "the environment of process 1033 cannot be read: Permission denied"
    remedy:
      description: What to do about it.
      type: str
      sample: "Run the task with become: true."
"""

import functools
import ipaddress
import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker import survey
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, NotFound, name_of
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_key, api_probe, token_probe
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver_xml
from ansible_collections.gb10.cluster.plugins.module_utils._host.default_env import is_engine_name
from ansible_collections.gb10.cluster.plugins.module_utils._http import Answer, ask, base_url
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._network.listeners import (
    TCP_ESTABLISHED,
    TCP_LISTEN,
    Connection,
    parse_connections,
    socket_inodes,
    started_at,
)
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, command_line, installed, process_table, stacks, tenants
from ansible_collections.gb10.cluster.plugins.module_utils._process.live_env import environment
from ansible_collections.gb10.cluster.plugins.module_utils._protect.limits import parse_memlock
from ansible_collections.gb10.cluster.plugins.module_utils._redact import shown_argv, shown_value
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME, Sections, fail, once

#: Maximum number of words of a command line to return.
WORDS_SHOWN = 300
#: Maximum characters of such a word, of a variable's value, and of an error.
WORD_SHOWN = 500
VALUE_SHOWN = 1000
ERROR_SHOWN = 500
PEERS_SHOWN = 64
#: Maximum number of APIs to query, and of addresses of one server. No stack has more.
APIS_ASKED = 16
ADDRESSES_ASKED = 4
#: Maximum bytes of a list of sockets, enough for some ten thousand connections.
SOCKETS_LIMIT = 16 * 1024 * 1024

_UVERBS = "/dev/infiniband/uverbs"

#: The labels for the base and the recipe of an image that this collection built.
_LABEL_BASE = "io.gb10.base"
_LABEL_RECIPE = "io.gb10.recipe"

MOST_SAMPLE_S = 60.0

#: The values for an API that was not queried or did not answer.
NO_ANSWER: dict[str, t.Any] = {"health": None, "models_status": None, "models": None, "open": None, "running": None, "tokens": None, "token": None}


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def local_of(address: str) -> str:
    """Return the address at which this node reaches a listener on ``address``."""
    parsed = ipaddress.ip_address(address)
    return {4: "127.0.0.1", 6: "::1"}[parsed.version] if parsed.is_unspecified else address


def peers_of(connections: t.Iterable[Connection]) -> list[dict[str, t.Any]]:
    """Return the peers of established connections as ``{address, port, count}``, other machines first."""
    counted: dict[tuple[bool, str, int], int] = {}
    for connection in connections:
        if connection.state == TCP_ESTABLISHED:
            key = (is_loopback(connection.peer_address), connection.peer_address, connection.peer_port)
            counted[key] = counted.get(key, 0) + 1
    return [{"address": address, "port": port, "count": count} for (_loop, address, port), count in sorted(counted.items())[:PEERS_SHOWN]]


def described(details: dict[str, t.Any], entry: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a container as the result shows it, from Docker's details and its entry in Docker's list.

    Raises :class:`UnknownState` when they have an unexpected form.
    """
    try:
        host, config = details["HostConfig"], details["Config"]
        labels = config.get("Labels") or {}
        limits = {str(limit["Name"]): int(limit["Soft"]) for limit in host.get("Ulimits") or []}
        devices = [str(device.get("PathOnHost")) for device in host.get("Devices") or []]
        privileged = bool(host.get("Privileged"))
        base = [str(labels[name]) for name in (_LABEL_BASE, _LABEL_RECIPE) if labels.get(name)]
        return {
            "id": str(details["Id"]),
            "name": name_of(entry),
            "image": str(config.get("Image") or entry["Image"]),
            "image_id": str(details.get("Image") or ""),
            "image_base": " ".join(base),
            "ours": survey.is_ours(entry),
            "memlock_bytes": limits.get("memlock"),
            "host_network": host.get("NetworkMode") == "host",
            "privileged": privileged,
            "infiniband": privileged or any(path.startswith("/dev/infiniband") for path in devices),
            "ports": survey.published(entry),
            "env": selected(dict(survey.variables(details))),
        }
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise UnknownState(f"the Docker engine describes a container in a shape that cannot be read: {error!r}", raw=str(details)[:2000]) from error


def addresses_of(details: dict[str, t.Any]) -> list[str]:
    """Return a container's addresses in Docker's networks, none when the details have an unexpected form."""
    networks = (details.get("NetworkSettings") or {}).get("Networks") or {}
    return [str(network["IPAddress"]) for network in networks.values() if isinstance(network, dict) and network.get("IPAddress")]


def selected(env: t.Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that matter to an engine, by name and without secrets."""
    return {name: shown_value(name, env[name])[:VALUE_SHOWN] for name in sorted(env) if is_engine_name(name)}


class Look:
    """Reads what runs on a node. Each part can fail on its own, and is then in ``sections.errors`` under the name of the incomplete key."""

    def __init__(self, params: dict[str, t.Any], engine: EngineApi, now: t.Callable[[], float] = time.monotonic) -> None:
        self.params = params
        self.engine = engine
        self.now = now
        self.proc = params["roots"]["proc_root"]
        self.sections = Sections()
        self.entries = once(lambda: survey.entries_of(engine.containers({})))
        self._tables: dict[str, t.Callable[[], list[Connection]]] = {}
        self._versions: dict[str, dict[str, str] | None] = {}
        self._details: dict[str, dict[str, t.Any]] = {}
        self._uptime = self.sections.read("age_s", self._read_uptime)

    # -- the processes -------------------------------------------------------------------------------------------------------------------

    def find(self) -> bool:
        """Find the parts of all stacks. Return False when the processes could not be listed."""
        self.stacks = stacks.Stacks({})
        seen = self.sections.read("processes", lambda: process_table.scan(self.proc))
        if seen is None:
            return False
        self.sections.read("processes", lambda: process_table.require_all_seen(seen))
        self.stacks = stacks.stacks(seen.processes, self.proc)
        return True

    def members(self) -> list[dict[str, t.Any]]:
        """Return the parts as the result lists them, without values that need two samples. A part that ends in the meantime is left out."""
        memory = tenants.gpu_memory(self.sections.read("gpu_mib", self._gpu_processes, [])) if self.stacks.parts else {}
        described_ones = (self._member(pid, memory) for pid in sorted(self.stacks.parts))
        return [member for member in described_ones if member is not None]

    def _gpu_processes(self) -> list[dict[str, t.Any]]:
        cards = driver_xml.gpus(self.params["roots"]["nvidia_smi"], self.params["tool_timeout"], self.sections.section("gpu_mib"))
        return [{**process, "gpu": card["index"]} for card in cards for process in card["processes"] or []]

    def _member(self, pid: int, memory: t.Mapping[int, int | None]) -> dict[str, t.Any] | None:
        part = self.stacks.parts[pid]
        process = part.process
        try:
            env, source = self._env(pid)
            sockets, rdma = self._open(pid)
            memlock = self._memlock(pid)
            lineage = self.stacks.parentage(pid)
        except process_table.GONE:
            return None
        return {
            "pid": pid,
            "ppid": process.ppid,
            "kind": part.kind,
            "engine": part.engine,
            "stack": self.stacks.of(pid),
            "argv": [word[:WORD_SHOWN] for word in shown_argv(process.argv[:WORDS_SHOWN])],
            "container": self.container_name(process.container),
            "container_id": process.container,
            "user": process_table.user_name(process.uid),
            "started": started_at(pid, self.proc),
            "age_s": self._age(process),
            "env": None if env is None else selected(env),
            "env_source": source,
            "listens": None if sockets is None else listening(sockets),
            "peers": None if sockets is None else peers_of(sockets),
            "rdma": rdma,
            "memlock_bytes": memlock,
            "rss_mb": process.rss_kib // 1024,
            "gpu_mib": memory.get(pid),
            "cpu_percent": None,
            "halted": process.condition == "stopped",
            "state": process.condition,
            "orphan": lineage.orphan,
            "why": lineage.why,
            "versions": self._installed(process),
        }

    def _env(self, pid: int) -> tuple[dict[str, str] | None, str | None]:
        """Return (environment, source). Raises FileNotFoundError when the process is gone."""
        try:
            return environment(pid, self.proc)
        except UnknownState as error:
            if error.reason == "process gone" and not os.path.exists(f"{self.proc}/{pid}/stat"):
                raise FileNotFoundError(f"{self.proc}/{pid}") from error
            self.sections.read("env", functools.partial(fail, error))
            return None, None

    def _open(self, pid: int) -> tuple[list[Connection] | None, list[str] | None]:
        """Return a process's own TCP sockets and its open RDMA devices, None for what cannot be seen."""
        try:
            links = listeners.open_files(pid, self.proc)
        except PermissionError:
            error = UnknownState(f"what process {pid} has open may not be seen", remedy=BECOME)
            for section in ("listens", "rdma"):
                self.sections.read(section, functools.partial(fail, error))
            return None, None
        rdma = sorted({link.removeprefix("/dev/infiniband/") for link in links if link.startswith(_UVERBS)})
        inodes = socket_inodes(links)
        table = self.sections.read("listens", lambda: self.table(pid)) if inodes else []
        return None if table is None else [entry for entry in table if entry.inode in inodes], rdma

    def network(self, pid: int | str) -> str | None:
        """Return the name of a process's network namespace, None when it cannot be seen."""
        try:
            return os.readlink(f"{self.proc}/{pid}/ns/net")
        except OSError:
            return None

    def table(self, pid: int) -> list[Connection]:
        """Return the TCP sockets of a process's network. Raises OSError and :class:`UnknownState`."""
        return self._tables.setdefault(self.network(pid) or f"of {pid}", once(functools.partial(self._read_table, pid)))()

    def _read_table(self, pid: int) -> list[Connection]:
        connections = parse_connections(process_table.read_bytes(f"{self.proc}/{pid}/net/tcp", SOCKETS_LIMIT).decode("ascii", "replace"))
        try:
            connections += parse_connections(process_table.read_bytes(f"{self.proc}/{pid}/net/tcp6", SOCKETS_LIMIT).decode("ascii", "replace"))
        except FileNotFoundError:
            pass  # a kernel without IPv6
        return connections

    def _memlock(self, pid: int) -> int | None:
        try:
            text = process_table.read_bytes(f"{self.proc}/{pid}/limits").decode("utf-8", "replace")
            return parse_memlock(text)
        except process_table.GONE:
            raise
        except (UnknownState, OSError) as error:
            self.sections.read("memlock_bytes", functools.partial(fail, error))
            return None

    def _read_uptime(self) -> float:
        text = process_table.read_bytes(f"{self.proc}/uptime").decode("ascii", "replace")
        try:
            return float(text.split()[0])
        except (IndexError, ValueError):
            raise UnknownState(f"the time since boot cannot be read: {text[:80]!r}", raw=text[:2000]) from None

    def _age(self, process: process_table.Process) -> int | None:
        return None if self._uptime is None else max(0, int(self._uptime - process.start_ticks / os.sysconf("SC_CLK_TCK")))

    def _installed(self, process: process_table.Process) -> dict[str, str] | None:
        """Return the versions that are installed where a process runs, read once for each container."""
        if process.container not in self._versions:
            argvs = [part.process.argv for part in self.stacks.parts.values() if part.process.container == process.container]
            root = f"{self.proc}/{process.pid}/root"
            self._versions[process.container] = self.sections.read("versions", lambda: installed.versions(root, argvs))
        return self._versions[process.container]

    # -- containers ----------------------------------------------------------------------------------------------------------------------

    def container_name(self, container_id: str) -> str:
        entries = self.sections.read("containers", self.entries, []) if container_id else []
        return survey.container_name(container_id, entries)

    def containers(self) -> list[dict[str, t.Any]]:
        """Return the containers that the parts run in."""
        ids = {member.process.container for member in self.stacks.parts.values() if member.process.container}
        entries = {entry["Id"]: entry for entry in (self.sections.read("containers", self.entries, []) if ids else [])}
        containers = []
        for container_id in sorted(ids & set(entries)):
            container = self.sections.read("containers", functools.partial(self._container, entries[container_id]))
            if container is not None:
                containers.append(container)
        return sorted(containers, key=lambda container: container["name"])

    def _container(self, entry: dict[str, t.Any]) -> dict[str, t.Any] | None:
        try:
            self._details[entry["Id"]] = details = self.engine.inspect(entry["Id"])
        except NotFound:
            return None  # it was removed in the meantime
        return described(details, entry)

    # -- APIs ----------------------------------------------------------------------------------------------------------------------------

    def apis(self, members: t.Sequence[dict[str, t.Any]], containers: t.Sequence[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
        """Return the APIs of the servers before they are queried: where each listens, how to reach it, and whether other machines can."""
        by_pid = {member["pid"]: member for member in members}
        by_container = {container["id"]: container for container in containers}
        apis: list[dict[str, t.Any]] = []
        for member in members:
            if member["kind"] != classify.FRONT_END or self.stacks.main(member["pid"]) != member["pid"]:
                continue
            port, sockets = self._sockets(member, by_pid)
            about = {name: member[name] for name in ("pid", "engine", "stack", "container")}
            if not sockets:
                unseen = sockets is None
                error = "where it listens may not be seen" if unseen else ""
                apis.append({**about, "address": None, "port": port, "asked": None, "world": None, "state": "unknown" if unseen else "not_listening",
                             "error": error, **NO_ANSWER})  # fmt: skip
            for address, at in sockets or []:
                place, world = self._reached(member, address, at, by_container.get(member["container_id"]))
                error = "" if place else "it listens in a network of its own, and its container publishes no port"
                shown = f"http://[{place[0]}]:{place[1]}" if place and ":" in place[0] else f"http://{place[0]}:{place[1]}" if place else None
                apis.append({**about, "address": address, "port": at, "asked": shown, "world": world, "state": "not_asked" if place else "unknown",
                             "error": error, **NO_ANSWER, "_place": place})  # fmt: skip
        return apis

    def _sockets(self, member: dict[str, t.Any], by_pid: t.Mapping[int, dict[str, t.Any]]) -> tuple[int, list[tuple[str, int]] | None]:
        """Return the port that a server should use, and the places where it or its children listen, None when these cannot be seen."""
        stated = command_line.whole_number(command_line.options(self.stacks.parts[member["pid"]].words).get("port"))
        port = stated if stated is not None else stacks.DEFAULT_PORTS[member["engine"]]
        family = [part for part in by_pid.values() if part["kind"] == classify.FRONT_END and self.stacks.main(part["pid"]) == member["pid"]]
        listens: list[tuple[str, int]] | None = [(entry["address"], entry["port"]) for part in family for entry in part["listens"] or []]
        if any(part["listens"] is None for part in family) and not listens:
            table = self.sections.read("apis", lambda: self.table(member["pid"]))
            # The owner of a socket cannot be seen here. On the port that this server was given, it is hardly another process.
            listens = None if table is None else [(entry.address, entry.port) for entry in table if entry.state == TCP_LISTEN and entry.port == port]
        if listens is None:
            return port, None
        wanted = [listener for listener in listens if listener[1] == port]
        if not wanted and stated is None and member["engine"] != "vllm":
            wanted = listens
        return port, sorted(set(wanted))[:ADDRESSES_ASKED]

    def _reached(
        self, member: dict[str, t.Any], address: str, port: int, container: dict[str, t.Any] | None
    ) -> tuple[tuple[str, int] | None, bool | None]:
        """Return where this node reaches a listener (None when it cannot), and whether other machines can."""
        mine, its = self.network("self"), self.network(member["pid"])
        if mine is not None and its is not None:
            same = mine == its
        else:
            same = container["host_network"] if container else True
        if same:
            return (local_of(address), port), not is_loopback(address)
        if is_loopback(address):
            return None, False
        for entry in container["ports"] if container else []:
            if entry["container_port"] == port and entry["protocol"] == "tcp":
                public = entry["address"] or "0.0.0.0"
                return (local_of(public), entry["port"]), not is_loopback(public)
        inside = addresses_of(self._details.get(member["container_id"], {}))
        return ((inside[0], port), False) if inside else (None, None if container is None else False)

    def ask(self, api: dict[str, t.Any]) -> float | None:
        """Fill in an API's answers. Return its token count so far, None when its metrics lack it."""
        health = self._get(api, "/health")
        if health.status is None:
            api.update(state="silent" if health.silent else "unknown", error=health.error[:ERROR_SHOWN])
            return None
        models = self._get(api, "/v1/models")
        api.update(state="answers", health=health.status, models_status=models.status, error=models.error[:ERROR_SHOWN])
        if models.status is not None:
            api["open"] = models.status == 200
        if models.status == 200:
            try:
                api["models"] = api_probe.parse_models(models.body)
            except UnknownState as error:
                api.update(error=str(error)[:ERROR_SHOWN], open=None)
        return self.progress(api)

    def progress(self, api: dict[str, t.Any]) -> float | None:
        """Fill in the number of running requests. Return the token count, None when the metrics lack it."""
        if api["engine"] != "vllm" or api["state"] != "answers":
            return None
        answer = self._get(api, "/metrics")
        if answer.status != 200 or answer.error:
            return None
        progress = self.sections.read("apis", lambda: api_probe.parse_progress(answer.body.decode("utf-8", "replace")))
        api["running"] = progress.running if progress else None
        return progress.tokens if progress else None

    def probe_token(self, api: dict[str, t.Any]) -> None:
        """Ask a vLLM API for a token, and fill in the outcome."""
        if api["engine"] == "vllm" and api["state"] != "unknown":
            answer = self.sections.read("token", lambda: self._ask_token(api))
            api["token"] = answer and answer.as_result()

    def _ask_token(self, api: dict[str, t.Any]) -> token_probe.Asked:
        # The pid is Docker's, because any process can look like a server.
        state = self._details.get(self.stacks.parts[api["pid"]].process.container, {}).get("State") or {}
        key = api_key.of({"pid": state.get("Pid")}, self.params["api_key_file"], self.proc)
        fabric = token_probe.fabric_root(self.stacks.parts[api["pid"]].words, self.params["roots"]["sysfs_root"])
        return token_probe.ask(base_url(*api["_place"]), None, key, self.params["probe_timeout"], self.params["token_timeout"], fabric)

    def _get(self, api: dict[str, t.Any], path: str) -> Answer:
        return ask(f"{base_url(*api['_place'])}{path}", self.params["probe_timeout"])

    # -- all of it -----------------------------------------------------------------------------------------------------------------------

    def run(self, sleep: t.Callable[[float], None]) -> dict[str, t.Any]:
        """Read everything, and after the sample's time read the counters again."""
        if not self.find():
            return {"processes": None, "containers": [], "apis": [], "sample_s": None}
        began = self.now()
        members = self.members()
        containers = self.containers()
        apis = self.apis(members, containers)
        probed = [api for api in apis if api.get("_place")][:APIS_ASKED] if self.params["probe"] else []
        tokens = [self.ask(api) for api in probed]
        for api in probed if self.params["probe_token"] else []:
            self.probe_token(api)
        sampled = None
        if self.params["sample_s"] > 0 and self.stacks.parts:
            # For the processors the time of the readings above counts too. An API gets the whole sample time from now on.
            since = self.now() if any(count is not None for count in tokens) else began
            sleep(max(0.0, since + self.params["sample_s"] - self.now()))
            sampled = round(self._second_look(members, began), 2)
            for api, before in zip(probed, tokens):
                after = self.progress(api) if before is not None else None
                if before is not None and after is not None and after >= before:
                    api["tokens"] = after - before
        for api in apis:
            api.pop("_place", None)
        return {"processes": members, "containers": containers, "apis": apis, "sample_s": sampled}

    def _second_look(self, members: t.Iterable[dict[str, t.Any]], began: float) -> float:
        """Fill in how much of a core each part used since ``began``; return the seconds since then."""
        again = self.sections.read("cpu_percent", lambda: process_table.scan(self.proc, self.stacks.parts).processes, {})
        elapsed = self.now() - began
        for member in members:
            if member["pid"] in again:
                member["cpu_percent"] = process_table.cpu_percent(self.stacks.processes[member["pid"]], again[member["pid"]], elapsed)
        return elapsed


def listening(connections: t.Iterable[Connection]) -> list[dict[str, t.Any]]:
    """Return the listeners, as ``{address, port}``, each once."""
    places = {(connection.port, connection.address) for connection in connections if connection.state == TCP_LISTEN}
    return [{"address": address, "port": port} for port, address in sorted(places)]


def work(module: AnsibleModule, sleep: t.Callable[[float], None] = time.sleep) -> dict[str, t.Any]:
    params = module.params
    for name, least, most in (("sample_s", 0.0, MOST_SAMPLE_S), ("probe_timeout", 0.1, MOST_SAMPLE_S), ("token_timeout", 0.1, 3600), ("tool_timeout", 1, 600)):
        if not least <= params[name] <= most:
            raise ClusterError(f"{name} is {params[name]:g}, expected {least:g} to {most:g}", remedy=f"Set {name} to a value within these.")
    look = Look(params, EngineApi(params["docker_socket"], params["docker_timeout"]))
    result = look.run(sleep)
    errors = look.sections.errors
    return {**result, "errors": errors, "msg": summary(result, errors)}


def summary(result: dict[str, t.Any], errors: list[dict[str, str]]) -> str:
    """Return one line about what runs and what could not be read."""
    if result["processes"] is None:
        text = "what runs is unknown"
    else:
        servers = sum(process["kind"] in classify.SERVERS for process in result["processes"])
        ranks = sum(process["kind"] == classify.RANK for process in result["processes"])
        of_ray = sum(process["engine"] == "ray" for process in result["processes"])
        text = f"{servers} server process(es), {ranks} rank(s), {of_ray} process(es) of Ray" if result["processes"] else "no engine and no Ray runs"
    blind = ", ".join(sorted({entry["section"] for entry in errors}))
    return f"{text}; could not see: {blind}" if blind else text


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "sample_s": {"type": "float", "default": 2},
            "probe": {"type": "bool", "default": True},
            "probe_timeout": {"type": "float", "default": 3},
            "probe_token": {"type": "bool", "default": False},
            "token_timeout": {"type": "float", "default": 15},
            "api_key_file": {"type": "path", "no_log": False},
            "roots": ROOTS,
            "tool_timeout": {"type": "int", "default": 30},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
