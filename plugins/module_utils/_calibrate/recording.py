# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records the raw sources of this collection's parsers on a node. This module util is PRIVATE to the collection."""

from __future__ import annotations

import json
import os
import socket
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import names, optional_text
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver, driver_xml
from ansible_collections.gb10.cluster.plugins.module_utils._host.kernel_log import whole_text
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: One file: ``name``, and either its ``text`` or, for a symbolic link, its target (``link``).
File = dict[str, str]

#: The queries of the driver's tool, by file name.
DRIVER = {"smi.xml": driver_xml.XML_QUERY, "gpu.csv": driver.GPU_QUERY, "processes.csv": driver_xml.PROCESS_QUERY, "table.txt": ()}
#: Files below /proc.
PROC = ("meminfo", "vmstat", "pressure/memory", "sys/vm/swappiness", "sys/kernel/osrelease", "cmdline", "version", "driver/nvidia/version", "buddyinfo")
#: The keys of Docker's information about itself and its GPU support. The others name the machine, its registries and its proxies.
DOCKER_INFO = (
    "Architecture", "CDISpecDirs", "CgroupDriver", "CgroupVersion", "Containerd", "DefaultRuntime", "DiscoveredDevices", "DockerRootDir", "Driver",
    "DriverStatus", "KernelVersion", "LiveRestoreEnabled", "MemTotal", "NCPU", "OSType", "OSVersion", "OperatingSystem", "Runtimes", "SecurityOptions",
    "ServerVersion", "Warnings",
)  # fmt: skip
#: Attributes in sysfs of an interface, of a PCI function and its bridge, of an RDMA device and of a port of it.
INTERFACE = ("address", "carrier", "mtu", "operstate", "phys_port_name", "phys_switch_id", "speed")
FUNCTION = (
    "class", "current_link_speed", "current_link_width", "device", "max_link_speed", "max_link_width", "numa_node", "revision", "subsystem_device",
    "subsystem_vendor", "vendor",
)  # fmt: skip
DEVICE = ("fw_ver", "hca_type", "node_guid", "node_type", "sys_image_guid")
PORT = ("lid", "link_layer", "phys_state", "rate", "state")
COUNTERS = ("counters", "hw_counters")

#: The most files: a node with very many virtual functions has more.
MOST_FILES = 8000


class Recorder:
    """Reads the sources one by one; an unreadable source is an entry of ``sections.errors``."""

    def __init__(self, roots: t.Mapping[str, t.Any], timeout: int, docker: EngineApi) -> None:
        self.roots, self.timeout, self.docker_api = roots, timeout, docker
        self.sections = Sections()
        self.files: list[File] = []

    def take(self, name: str, read: t.Callable[[], str | None]) -> None:
        """Add the text that ``read`` returns, if any."""
        text = self.sections.read(name, read)
        if text is not None and len(self.files) < MOST_FILES:
            self.files.append({"name": name, "text": text})

    def everything(self) -> dict[str, t.Any]:
        """Read all sources, and return the files, the errors, and the node's host name."""
        for read in (self.driver, self.proc, self.kernel, self.docker, self.network):
            read()
        return {"files": self.files, "errors": self.sections.errors, "hostname": socket.gethostname()}

    def driver(self) -> None:
        for name, query in DRIVER.items():
            self.take(f"driver/{name}", lambda query=query: driver.answer(run_tool([self.roots["nvidia_smi"], *query], self.timeout)))

    def proc(self) -> None:
        for name in PROC:
            path = self.roots["meminfo"] if name == "meminfo" and self.roots["meminfo"] else os.path.join(self.roots["proc_root"], name)
            self.take(f"proc/{name}", lambda path=path: optional_text(path))

    def kernel(self) -> None:
        self.take("kernel.log", lambda: whole_text(self.roots["kernel_log"], self.timeout))

    def docker(self) -> None:
        def info() -> str:
            answer = self.docker_api.get("/info")
            return json.dumps({name: answer[name] for name in DOCKER_INFO if name in answer}, indent=1)

        self.take("docker/version.json", lambda: json.dumps(self.docker_api.get("/version"), indent=1))
        if any(file["name"] == "docker/version.json" for file in self.files):  # an engine that does not answer is not waited for twice
            self.take("docker/info.json", info)

    def network(self) -> None:
        """The ConnectX functions: interfaces on hardware, RDMA devices, and their places on the PCI bus, as one tree."""
        self.sections.read("sys", lambda: self._network(self.roots["sysfs_root"]))

    def _network(self, root: str) -> None:
        linked = [os.path.join("class", kind, name) for kind in ("net", "infiniband") for name in names(os.path.join(root, "class", kind))]
        seen: set[str] = set()
        for path in linked:
            if not os.path.exists(os.path.join(root, path, "device")):
                continue
            place = self._link(root, path)
            function = self._link(root, os.path.join(place, "device"))
            self._attributes(root, place, INTERFACE if path.startswith("class/net") else DEVICE)
            if path.startswith("class/infiniband"):
                self._ports(root, place)
            for directory in (function, os.path.dirname(function)):
                if directory not in seen:
                    seen.add(directory)
                    self._attributes(root, directory, FUNCTION)
            if function in seen and os.path.islink(os.path.join(root, function, "driver")):
                self._attributes(root, self._link(root, os.path.join(function, "driver")), ("module/version",))

    def _link(self, root: str, path: str) -> str:
        """Add a symbolic link, when it is one, and return where it leads, seen from the root."""
        target = os.path.relpath(os.path.realpath(os.path.join(root, path)), os.path.realpath(root))
        if os.path.islink(os.path.join(root, path)):
            self.files.append({"name": os.path.join("sys", path), "link": os.path.relpath(target, os.path.dirname(path))})
        return target

    def _attributes(self, root: str, directory: str, wanted: t.Iterable[str]) -> None:
        for name in wanted:
            self.take(os.path.join("sys", directory, name), lambda name=name: optional_text(os.path.join(root, directory, name)))

    def _ports(self, root: str, device: str) -> None:
        self._counters(root, device)
        for number in names(os.path.join(root, device, "ports")):
            port = os.path.join(device, "ports", number)
            self._attributes(root, port, PORT)
            self._counters(root, port)
            for index in names(os.path.join(root, port, "gids")):
                gid = optional_text(os.path.join(root, port, "gids", index))
                if gid and gid.strip("0:"):  # of hundreds a few are in use
                    self._attributes(root, port, (f"gids/{index}", f"gid_attrs/types/{index}", f"gid_attrs/ndevs/{index}"))

    def _counters(self, root: str, directory: str) -> None:
        for kind in COUNTERS:
            self._attributes(root, directory, (f"{kind}/{name}" for name in names(os.path.join(root, directory, kind))))
