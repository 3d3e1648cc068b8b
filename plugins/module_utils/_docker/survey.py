# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a node's Docker engine, its access to GPUs, and its foreign containers. This module util is PRIVATE to the collection.

A container gets a GPU in one of three ways: through NVIDIA's container runtime, which the engine must have by name; through the Container Device
Interface (CDI), whose specification files are in directories that the engine reads (``CDISpecDirs`` of ``GET /info``, empty if it is off); or, only for
``--gpus``, through the toolkit's hook, which the engine searches on its PATH and does not report.
"""

from __future__ import annotations

import functools
import itertools
import re
import shutil
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._docker import cdi, image_store
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, LABEL_SPEC, OWNER, NotFound, cluster_and_role, name_of
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, strict
from ansible_collections.gb10.cluster.plugins.module_utils._host.default_env import is_engine_name
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import CMDLINE_SHOWN
from ansible_collections.gb10.cluster.plugins.module_utils._redact import redacted
from ansible_collections.gb10.cluster.plugins.module_utils._sections import fail

#: The result for an engine that does not answer.
NO_ENGINE: dict[str, t.Any] = {
    "reachable": False,
    "version": None,
    "api_version": None,
    "min_api_version": None,
    "cgroup_driver": None,
    "cgroup_version": None,
    "runtimes": None,
    "storage_driver": None,
    "image_store": None,
    "root_dir": None,
    "root_free_bytes": None,
    "default_runtime": None,
    "cdi_dirs": None,
    "cdi_devices": None,
    "cdi_libcuda": None,
    "nvidia": None,
    "snap": None,
    "memlock_bytes": None,
    "live_restore": None,
    "warnings": None,
}

#: NVIDIA's runtimes in an engine (``nvidia-ctk runtime configure``).
NVIDIA_RUNTIMES = ("nvidia", "nvidia-cdi", "nvidia-legacy")

#: The program that the engine calls for ``--gpus`` (moby, daemon/nvidia_linux.go), and the PATH that systemd gives to a service (systemd.exec(5)).
HOOK = "nvidia-container-runtime-hook"
DAEMON_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: Where Docker of the snap package keeps its data; it is confined and does not reach all of the file system.
_SNAP = re.compile(r"^(?:/var)?/snap/docker/")

#: Values of NVIDIA_VISIBLE_DEVICES that give no device.
_NO_DEVICES = ("", "none", "void")


def engine(version: dict[str, t.Any], info: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the facts in the engine's answers to ``/version`` and ``/info``. Raises :class:`UnknownState` if required ones are missing.

    Facts from other sources are None: free space, limits, the devices of CDI and the access to GPUs.
    """
    try:
        runtimes = sorted(info.get("Runtimes") or {})
        root = str(info["DockerRootDir"])
        return {
            **NO_ENGINE,
            "reachable": True,
            "version": version["Version"],
            "api_version": version["ApiVersion"],
            "min_api_version": version.get("MinAPIVersion"),
            "cgroup_driver": info.get("CgroupDriver"),
            "cgroup_version": info.get("CgroupVersion"),
            "runtimes": runtimes,
            "storage_driver": info.get("Driver"),
            "image_store": image_store.store_of(info),
            "root_dir": root,
            "default_runtime": info.get("DefaultRuntime"),
            "cdi_dirs": [str(path) for path in info.get("CDISpecDirs") or []],
            "snap": bool(_SNAP.match(root)),
            "live_restore": info.get("LiveRestoreEnabled"),
            "warnings": [str(line) for line in info.get("Warnings") or []],
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise UnknownState(f"the Docker engine does not report {error}", raw=str({"version": version, "info": info})[:2000]) from error


def nvidia_access(runtimes: t.Iterable[str], devices: t.Iterable[str], hook: bool) -> str:
    """Return the ways in which a container can get a GPU: ``runtime``, ``cdi``, ``both``, ``hook`` (only that) or ``none``."""
    ways = (any(name in NVIDIA_RUNTIMES for name in runtimes), any(device.startswith(f"{cdi.NVIDIA_KIND}=") for device in devices))
    return {(True, True): "both", (True, False): "runtime", (False, True): "cdi"}.get(ways, "hook" if hook else "none")


def depth(facts: dict[str, t.Any], info: dict[str, t.Any], etc_root: str, section: Section = strict, daemon_path: str = DAEMON_PATH) -> dict[str, t.Any]:
    """Return the result of :func:`engine` with the devices of CDI and the access to GPUs. ``section`` records failures."""
    hook = shutil.which(HOOK, path=daemon_path) is not None
    specs = cdi.specs(facts["cdi_dirs"], etc_root, section)
    devices = cdi.devices(specs, section(lambda: cdi.discovered(info), []))
    return {
        **facts,
        "cdi_devices": devices,
        "cdi_libcuda": [{"path": spec["path"], "libcuda": spec["libcuda"]} for spec in specs if spec["libcuda"]],
        "nvidia": nvidia_access(facts["runtimes"], devices, hook),
    }


# -- containers --------------------------------------------------------------------------------------------------------------------------


def entries_of(answer: t.Any) -> list[dict[str, t.Any]]:
    """Return the engine's list of containers unchanged. Raises :class:`UnknownState` for anything else."""

    def is_entry(entry: t.Any) -> bool:
        return (
            isinstance(entry, dict)
            and all(isinstance(entry.get(key), str) for key in ("Id", "Image", "State", "Status"))
            and isinstance(entry.get("Labels"), (dict, type(None)))
            and isinstance(entry.get("Names"), (list, type(None)))
            and all(isinstance(name, str) for name in entry.get("Names") or [])
        )

    if not isinstance(answer, list) or not all(map(is_entry, answer)):
        raise UnknownState("the Docker engine's list of containers cannot be read", raw=str(answer)[:2000])
    return answer


def is_ours(entry: dict[str, t.Any]) -> bool:
    """Return whether a container of the engine's list belongs to this collection, to any cluster."""
    return (entry.get("Labels") or {}).get(LABEL_OWNER) == OWNER


def ours(entries: t.Iterable[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return this collection's containers of the engine's list, by name."""
    return sorted((
        {
            "id": entry["Id"],
            "name": name_of(entry),
            "image": entry["Image"],
            **dict(zip(("cluster", "role"), cluster_and_role(name_of(entry), entry["Labels"]))),
            "spec": entry["Labels"].get(LABEL_SPEC),
            "state": entry["State"],
            "status": entry["Status"],
        }
        for entry in entries
        if is_ours(entry)
    ), key=lambda container: container["name"])  # fmt: skip


def container_name(container_id: str, entries: t.Iterable[dict[str, t.Any]]) -> str:
    """Return the name of a container by its id; the id itself if the engine does not list it."""
    return next((name_of(entry) for entry in entries if entry["Id"] == container_id), container_id)


def uses_gpu(details: dict[str, t.Any]) -> bool:
    """Return whether a container has access to an NVIDIA GPU, from the answer to ``GET /containers/ID/json``.

    It requests one (``--gpus``, ``--device nvidia.com/gpu=…``), it has a device file of one, or it runs in NVIDIA's runtime with a value of
    ``NVIDIA_VISIBLE_DEVICES`` that selects devices: if that runtime is the default, every container runs in it.
    """
    host = details["HostConfig"]
    if any(map(_requests_nvidia, host.get("DeviceRequests") or [])):
        return True
    if any(str(device.get("PathOnHost")).startswith("/dev/nvidia") for device in host.get("Devices") or []):
        return True
    return host.get("Runtime") in NVIDIA_RUNTIMES and dict(variables(details)).get("NVIDIA_VISIBLE_DEVICES", "") not in _NO_DEVICES


def _requests_nvidia(request: dict[str, t.Any]) -> bool:
    names = [str(name) for name in request.get("DeviceIDs") or []]
    capabilities = {str(word) for words in request.get("Capabilities") or [] for word in words}
    return request.get("Driver") == "nvidia" or "gpu" in capabilities or any(name.startswith("nvidia.com/") for name in names)


def variables(details: dict[str, t.Any]) -> list[tuple[str, str]]:
    """Return the environment variables in the answer to ``GET /containers/ID/json``."""
    return [(name, value) for name, _equals, value in (str(entry).partition("=") for entry in details["Config"].get("Env") or [])]


def published(entry: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the ports that the engine publishes for a container, each once."""
    return sorted((
        {"address": port.get("IP", ""), "port": int(port["PublicPort"]), "container_port": int(port["PrivatePort"]), "protocol": str(port["Type"])}
        for port in entry.get("Ports") or []
        if port.get("PublicPort")
    ), key=lambda port: (port["port"], port["protocol"], str(port["address"])))  # fmt: skip


def described(entry: dict[str, t.Any], details: dict[str, t.Any] | None, pids: t.Mapping[str, list[int]]) -> dict[str, t.Any]:
    """Return the entry of a foreign container. Raises :class:`UnknownState` if the engine describes it in another form.

    ``details`` is the engine's complete answer about it; without it, facts from there are None. Of its environment only names are returned.
    """
    try:
        return {
            "id": str(entry["Id"]),
            "name": str(name_of(entry)),
            "image": str(entry["Image"]),
            "state": str(entry["State"]),
            "command": redacted(str(entry.get("Command") or ""), {})[:CMDLINE_SHOWN],
            "created": utc_text(int(entry["Created"])),
            "gpu": uses_gpu(details) if details is not None else None,
            "pids": list(pids.get(entry["Id"], [])),
            "host_network": details["HostConfig"].get("NetworkMode") == "host" if details is not None else None,
            "env_names": sorted({name for name, _value in variables(details) if is_engine_name(name)}) if details is not None else None,
            "ports": published(entry),
        }
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError, OSError) as error:
        raise UnknownState(f"the Docker engine describes a container in an unknown form: {error!r}", raw=str(entry)[:2000]) from error


def foreign(
    entries: t.Iterable[dict[str, t.Any]], inspect: t.Callable[[str], dict[str, t.Any]], pids: t.Mapping[str, list[int]], section: Section = strict
) -> list[dict[str, t.Any]]:
    """Return the section ``foreign_containers`` of ``node_info``: the containers that do not belong to the collection, by name.

    ``inspect`` asks the engine about one, ``pids`` are the processes by container id. A container that was removed meanwhile is omitted. ``section``
    records missing or unreadable answers; an engine that does not answer is not asked again.
    """
    containers: list[dict[str, t.Any]] = []
    silent = False
    for entry in itertools.filterfalse(is_ours, entries):
        details = None
        try:
            details = None if silent else inspect(entry["Id"])
        except NotFound:
            continue
        except ClusterError as error:
            section(functools.partial(fail, error))
            silent = isinstance(error, UnknownState)
        short = section(functools.partial(described, entry, None, pids))
        if short is not None:
            containers.append(section(functools.partial(described, entry, details, pids), short))
    return sorted(containers, key=lambda container: container["name"])
