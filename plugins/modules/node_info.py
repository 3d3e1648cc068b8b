#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Read what a cluster needs to know about a node
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads memory, kernel, Docker engine, our containers, network interfaces with their addresses, devices, listeners, disk space, RDMA devices
    and GPUs of a node, from the thing itself.
  - It also runs unprivileged. What it could not see is in RV(errors), each section for itself. A list that is empty because of that
    must not pass for "nothing there".
  - It needs Python's standard library alone. Neither iproute2 nor the Docker SDK has to be installed.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
options:
  devices:
    description:
      - Device nodes, or directories of them, to look for.
    type: list
    elements: path
    default: [/dev/infiniband]
  ports:
    description:
      - TCP ports whose listeners to look for.
    type: list
    elements: int
    default: []
  paths:
    description:
      - Paths to tell the free disk space of. For one that does not exist yet, its nearest existing parent counts.
    type: list
    elements: path
    default: []
  nvidia_smi:
    description:
      - The NVIDIA driver's tool, as a path or as a name to be found on C(PATH).
    type: str
    default: nvidia-smi
  tool_timeout:
    description:
      - Seconds to wait for one answer of O(nvidia_smi).
    type: int
    default: 30
  proc_root:
    description:
      - Where the proc file system is mounted.
    type: path
    default: /proc
  sysfs_root:
    description:
      - Where the sys file system is mounted.
    type: path
    default: /sys
"""

EXAMPLES = r"""
- name: Read the nodes
  gb10.cluster.node_info:
    ports: [6379, 8000]
    paths: [/var/lib/gb10, /home/spark/.cache/huggingface]
  register: node

- name: Say what could not be seen
  ansible.builtin.debug:
    var: node.errors
"""

RETURN = r"""
memory:
  description: Memory figures in MiB, null when they could not be read.
  returned: always
  type: dict
  sample:
    {"total_mb": 122536, "free_mb": 9120, "available_mb": 108870, "cached_mb": 97204, "buffers_mb": 412, "slab_reclaimable_mb": 1290,
     "dirty_mb": 3, "mapped_mb": 611, "shmem_mb": 44, "swap_total_mb": 0, "swap_free_mb": 0}
kernel:
  description: The kernel's release, the architecture, and an id that changes at every boot.
  returned: always
  type: dict
  sample: {"release": 6.11.0-1016-nvidia, "arch": aarch64, "boot_id": 2a5dc1f5-3983-4f96-a958-ebff58fa47ab}
docker:
  description:
    - The Docker engine. RV(docker.reachable) tells whether it answered, the other keys of the engine are null when it did not.
    - RV(docker.python_docker) is the version of the Docker SDK that the node's Python would import, null when there is none.
  returned: always
  type: dict
  contains:
    reachable:
      description: Whether the engine answered.
      type: bool
      sample: true
    version:
      description: Its version.
      type: str
      sample: 28.3.3
    api_version:
      description: The newest API that it speaks.
      type: str
      sample: "1.51"
    min_api_version:
      description: The oldest API that it speaks.
      type: str
      sample: "1.24"
    cgroup_driver:
      description: How it makes control groups.
      type: str
      sample: systemd
    cgroup_version:
      description: The version of control groups.
      type: str
      sample: "2"
    runtimes:
      description: The container runtimes that it knows.
      type: list
      elements: str
      sample: [nvidia, runc]
    storage_driver:
      description: How it keeps images.
      type: str
      sample: overlay2
    root_dir:
      description: Where it keeps images and containers.
      type: str
      sample: /var/lib/docker
    root_free_bytes:
      description: The free disk space there, null when it cannot be told.
      type: int
      sample: 851479363584
    python_docker:
      description: The version of the Docker SDK for Python on this node.
      type: str
      sample: 5.0.3
containers:
  description: The containers of this collection on the node, of any cluster.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: The container's id.
      type: str
      sample: 4b1d1b8e52b0f1c1
    name:
      description: Its name.
      type: str
      sample: gb10-gb10-head
    image:
      description: The image it was made of.
      type: str
      sample: gb10/engine:ray
    cluster:
      description: Its cluster.
      type: str
      sample: gb10
    role:
      description: Its role.
      type: str
      sample: head
    spec:
      description: The digest of what it was asked to be.
      type: str
      sample: "1:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    state:
      description: Its state.
      type: str
      sample: running
    status:
      description: Its state in the engine's words.
      type: str
      sample: Up 3 hours
interfaces:
  description: The network interfaces by name.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The interface.
      type: str
      sample: enp1s0f0np0
    carrier:
      description: Whether the other end is there, null while the interface is down.
      type: bool
      sample: true
    operstate:
      description: Its state.
      type: str
      sample: up
    mtu:
      description: The largest packet in bytes.
      type: int
      sample: 9000
    mac:
      description: Its hardware address.
      type: str
      sample: 4c:bb:47:2c:00:01
    speed:
      description: Its speed in Mbit/s, null when it does not tell.
      type: int
      sample: 200000
    driver:
      description: Its driver, null for a virtual interface.
      type: str
      sample: mlx5_core
    addresses:
      description: Its addresses, IPv4 and IPv6.
      type: list
      elements: str
      sample: [192.168.100.10, "fe80::4ebb:47ff:fe2c:1"]
    networks:
      description: The same with what belongs to them.
      type: list
      elements: dict
      sample: [{"family": ipv4, "address": 192.168.100.10, "prefix": 24, "network": 192.168.100.0/24, "scope": global}]
devices:
  description: Whether each of O(devices) is there, null when that may not be seen.
  returned: always
  type: dict
  sample: {"/dev/infiniband": true}
listeners:
  description: Who listens on O(ports). The process is null or empty when it may not be seen, the container is the name of the one it runs in.
  returned: always
  type: list
  elements: dict
  sample:
    - port: 8000
      address: 0.0.0.0
      pid: 1822
      process: python3
      cmdline: python3 -m http.server 8000
      since: "2026-11-21T01:52:59Z"
      container: ""
disk:
  description: The disk space for each of O(paths), with the existing directory that was measured; null when that may not be seen.
  returned: always
  type: dict
  sample: {"/var/lib/gb10": {"measured_at": /var/lib, "total_bytes": 3936358408192, "free_bytes": 851479363584}}
rdma:
  description: The RDMA devices with the interfaces on top of them.
  returned: always
  type: list
  elements: dict
  sample:
    - name: rocep1s0f0
      netdevs: [enp1s0f0np0]
      ports: [{"port": 1, "state": ACTIVE, "physical_state": LinkUp, "link_layer": Ethernet, "rate": 200 Gb/sec (4X HDR)}]
gpus:
  description: The GPUs, with null for memory figures that the driver does not tell (GB10).
  returned: always
  type: list
  elements: dict
  sample:
    - index: 0
      name: NVIDIA GB10
      uuid: GPU-4f1c2d3e-0000-0000-0000-000000000000
      driver_version: 580.95.05
      memory_total_mb:
      memory_used_mb:
errors:
  description: What could not be seen, and why. Empty when all was seen.
  returned: always
  type: list
  elements: dict
  contains:
    section:
      description: The result that is empty or null, in whole or in part, because of it.
      type: str
      sample: gpus
    verdict:
      description: V(unknown) or V(block).
      type: str
      sample: unknown
    error:
      description: What went wrong.
      type: str
      sample: "nvidia-smi cannot be run: No such file or directory (nvidia-smi)"
    remedy:
      description: What to do about it.
      type: str
      sample: Install nvidia-smi on this node, or say where it is.
"""

import importlib.metadata
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import (
    _clock,
    _docker_depth,
    _environment,
    _fabric,
    _gpu_xml,
    _kernel,
    _kernel_log,
    _limits,
    _memory,
    _models_disk,
    _net,
    _processes,
    _tenants,
)
from ansible_collections.gb10.cluster.plugins.module_utils._devices import has_device
from ansible_collections.gb10.cluster.plugins.module_utils._docker import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._listeners import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._redact import redacted
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME, Sections, once

#: What can be read, in the order of the result. Each is a method of :class:`Look`.
SECTIONS = (
    "memory",
    "kernel",
    "docker",
    "containers",
    "foreign_containers",
    "interfaces",
    "fabric",
    "rdma",
    "devices",
    "listeners",
    "disk",
    "gpus",
    "environment",
    "limits",
    "kernel_log",
    "tenants",
    "models",
)


def sdk_version() -> str | None:
    """Return the version of the Docker SDK that this Python would import, None when there is none."""
    try:
        return importlib.metadata.version("docker")
    except importlib.metadata.PackageNotFoundError:
        return None


def nearest_existing(path: str) -> str:
    """Return the path itself, or its nearest parent that exists."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def disk(path: str) -> dict[str, t.Any]:
    """Return the disk space for a path, existing or not; free is what an ordinary user may use."""
    place = nearest_existing(os.path.abspath(path))
    space = os.statvfs(place)
    return {
        "measured_at": place,
        "total_bytes": space.f_blocks * space.f_frsize,
        "free_bytes": space.f_bavail * space.f_frsize,
    }


def with_addresses(interface: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return an interface with its addresses alone beside its networks."""
    return {**interface, "addresses": [network["address"] for network in interface["networks"]]}


def require_seen(found: t.Iterable[dict[str, t.Any]]) -> None:
    """Raise :class:`UnknownState` when a listener's process may not be seen: it could be anybody's."""
    hidden = sorted({entry["port"] for entry in found if entry["pid"] is None})
    if hidden:
        raise UnknownState(f"nobody tells whose process listens on port {', '.join(map(str, hidden))}", remedy=BECOME)


class Look:
    """One look at a node. What several sections need is read once, and fails for each of them."""

    def __init__(self, params: dict[str, t.Any], api: EngineApi) -> None:
        self.params = params
        self.api = api
        self.proc, self.sysfs = params["proc_root"], params["sysfs_root"]
        self.sections = Sections()
        self.answers = once(lambda: (api.get("/version"), api.get("/info")))
        self.entries = once(self._entries)
        self.processes = once(lambda: _processes.scan(self.proc))
        self.links = once(lambda: _net.interfaces(self.sysfs, self.proc))
        self.rdma_devices = once(lambda: _net.rdma_devices(self.sysfs))
        self.cards = once(lambda: _gpu_xml.gpus(params["nvidia_smi"], params["tool_timeout"], self.sections.part("gpus")))

    def _entries(self) -> list[dict[str, t.Any]]:
        self.answers()  # an engine that does not answer is not waited for twice
        return _docker_depth.entries_of(self.api.containers({}))

    def _meminfo(self) -> dict[str, int]:
        return _memory.read_meminfo(self.proc, self.params["meminfo"])

    # -- the sections, by name -----------------------------------------------------------------------------------------------------------

    def memory(self) -> dict[str, t.Any] | None:
        return self.sections.read("memory", lambda: _memory.memory(self.proc, self.params["meminfo"], self.sections.part("memory")))

    def kernel(self) -> dict[str, t.Any] | None:
        part = self.sections.part("kernel")
        found = part(lambda: _kernel.kernel(self.proc, self.sysfs, self.params["modules_root"], self.params["boot_root"], part))
        return found and {**found, "clock": part(lambda: _clock.clock(self.proc, self.sysfs, part))}

    def docker(self) -> dict[str, t.Any]:
        part = self.sections.part("docker")
        found = part(lambda: _docker_depth.engine(*self.answers()), _docker_depth.NO_ENGINE)
        if found["reachable"]:
            found = _docker_depth.depth(found, self.answers()[1], self.params["etc_root"], self.sections.part("docker.cdi_devices"))
            # Docker's directory itself is root's; the file system is the one of the nearest parent that may be looked at.
            found["root_free_bytes"] = part(lambda: disk(found["root_dir"])["free_bytes"])
            found["memlock_bytes"] = self.sections.read(
                "docker.memlock_bytes", lambda: _limits.memlock(self.processes().processes.values(), "dockerd", self.proc)
            )
        return {**found, "python_docker": sdk_version()}

    def containers(self) -> list[dict[str, t.Any]]:
        return self.sections.read("containers", lambda: _docker_depth.ours(self.entries()), [])

    def foreign_containers(self) -> list[dict[str, t.Any]]:
        part = self.sections.part("foreign_containers")

        def found() -> list[dict[str, t.Any]]:
            pids = _processes.by_container(part(lambda: self.processes().processes, {}).values())
            return _docker_depth.foreign(self.entries(), self.api.inspect, pids, part)

        return part(found, [])

    def interfaces(self) -> list[dict[str, t.Any]]:
        return [with_addresses(interface) for interface in self.sections.read("interfaces", self.links, [])]

    def fabric(self) -> list[dict[str, t.Any]]:
        part = self.sections.part("fabric")
        return part(lambda: _fabric.fabric(self.sysfs, self.proc, part, self.links(), self.rdma_devices()), [])

    def rdma(self) -> list[dict[str, t.Any]]:
        return self.sections.read("rdma", self.rdma_devices, [])

    def devices(self) -> dict[str, bool | None]:
        return {path: self.sections.read("devices", lambda path=path: has_device(path)) for path in self.params["devices"]}

    def listeners(self) -> list[dict[str, t.Any]]:
        found = self.sections.read("listeners", lambda: listeners(self.params["ports"], self.proc), [])
        self.sections.read("listeners", lambda: require_seen(found))
        # Without an engine a container goes by its id.
        entries = self.sections.read("containers", self.entries, []) if any(entry["container"] for entry in found) else []
        return [
            {**entry, "cmdline": redacted(entry["cmdline"], {}), "container": _docker_depth.container_name(entry["container"], entries)} for entry in found
        ]

    def disk(self) -> dict[str, t.Any]:
        return {path: self.sections.read("disk", lambda path=path: disk(path)) for path in self.params["paths"]}

    def gpus(self) -> list[dict[str, t.Any]]:
        return self.sections.read("gpus", self.cards, [])

    def environment(self) -> list[dict[str, str]]:
        part = self.sections.part("environment")
        return part(lambda: _environment.environment(self.params["etc_root"], part), [])

    def limits(self) -> dict[str, t.Any] | None:
        part = self.sections.part("limits")
        return part(lambda: _limits.limits(self.processes().processes.values(), self._meminfo, self.proc, part))

    def kernel_log(self) -> dict[str, t.Any] | None:
        return self.sections.read("kernel_log", lambda: _kernel_log.kernel_log(self.params["kernel_log"], self.proc, self.params["tool_timeout"]))

    def tenants(self) -> list[dict[str, t.Any]]:
        part = self.sections.part("tenants")

        def found() -> list[dict[str, t.Any]]:
            seen = self.processes()
            cards = part(self.cards, [])
            listed = [{**process, "gpu": card["index"]} for card in cards for process in card["processes"] or []]
            in_containers = any(process.container for process in seen.processes.values())
            entries = part(self.entries, []) if in_containers else []
            own = {entry["Id"] for entry in entries if _docker_depth.is_ours(entry)}
            names = {entry["Id"]: _docker_depth.name_of(entry) for entry in entries}
            return _tenants.tenants(seen, listed, own, names, self.proc, part)

        return part(found, [])

    def models(self) -> list[dict[str, t.Any]]:
        return _models_disk.models(self.params["model_roots"], self.sections.part("models"))


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    look = Look(params, EngineApi(params["docker_socket"], params["docker_timeout"]))
    wanted = params["sections"] or SECTIONS
    result = {section: getattr(look, section)() for section in SECTIONS if section in wanted}
    errors = look.sections.errors
    blind = ", ".join(sorted({entry["section"] for entry in errors}))
    return {**result, "errors": errors, "msg": f"could not see: {blind}" if blind else "all was seen"}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "sections": {"type": "list", "elements": "str", "default": [], "choices": list(SECTIONS)},
            "devices": {"type": "list", "elements": "path", "default": ["/dev/infiniband"]},
            "ports": {"type": "list", "elements": "int", "default": []},
            "paths": {"type": "list", "elements": "path", "default": []},
            "model_roots": {"type": "list", "elements": "path", "default": []},
            "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
            "tool_timeout": {"type": "int", "default": 30},
            "kernel_log": {"type": "str", "default": "auto"},
            "meminfo": {"type": "path"},
            "proc_root": {"type": "path", "default": "/proc"},
            "sysfs_root": {"type": "path", "default": "/sys"},
            "etc_root": {"type": "path", "default": "/etc"},
            "modules_root": {"type": "path", "default": "/lib/modules"},
            "boot_root": {"type": "path", "default": "/boot"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
