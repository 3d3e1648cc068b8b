# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a container asks for the GPU. This module util is PRIVATE to the collection.

The Container Device Interface comes first: stock Docker of DGX OS 7.5 and 7.6 knows nothing else (recorded), and a device that it gave stays when
systemd reloads, which NVIDIA's runtime and hook cannot promise. The way is no field of a container: one that runs stays as it is.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker import survey
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

Gpus = t.Union[str, t.Sequence[t.Union[str, int]]]


def device_requests(gpus: Gpus, cdi_devices: t.Collection[str] = ()) -> list[dict[str, t.Any]]:
    """Return the request for these GPUs as the Docker SDK takes it: by CDI where every one of them is among these devices, or to the NVIDIA driver."""
    if gpus in ("none", []):
        return []
    names = [f"{survey.NVIDIA_KIND}={gpu}" for gpu in (["all"] if gpus == "all" else gpus)]
    if set(names) <= set(cdi_devices):
        return [{"driver": "cdi", "device_ids": names}]
    wanted: dict[str, t.Any] = {"count": -1} if gpus == "all" else {"device_ids": [str(gpu) for gpu in gpus]}
    return [{"driver": "nvidia", "capabilities": [["gpu"]], **wanted}]


def cdi_devices(api: EngineApi, etc_root: str = "/etc") -> list[str]:
    """Return the CDI devices that the engine can give. Raises :class:`UnknownState` when it does not report what it has."""
    info = api.get("/info")
    directories = info.get("CDISpecDirs") or [] if isinstance(info, dict) else None
    if not isinstance(directories, list):
        raise UnknownState("the Docker engine does not report where it looks for devices", raw=str(info)[:2000])
    return survey.cdi_devices(survey.cdi_specs(map(str, directories), etc_root, _left_out), survey.discovered(info))


def _left_out(reader: t.Callable[[], t.Any], otherwise: t.Any = None) -> t.Any:
    """Leave out a specification that cannot be read, as the engine does; ``node_info`` names it."""
    try:
        return reader()
    except (ClusterError, OSError):
        return otherwise
