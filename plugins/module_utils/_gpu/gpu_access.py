# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a container requests the GPU, and whether it reaches the GPU. This module util is PRIVATE to the collection.

The Container Device Interface comes first: stock Docker of DGX OS 7.5 and 7.6 supports nothing else (recorded), and its devices stay when systemd
reloads, which NVIDIA's runtime and hook do not guarantee. The method is not a field of a container: a running one stays as it is.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker import cdi
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, LABEL_ROLE, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id, optional_text, write_json
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_contract
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

Gpus = t.Union[str, t.Sequence[t.Union[str, int]]]

#: The name of all GPUs of a node as a CDI device.
ALL_GPUS = f"{cdi.NVIDIA_KIND}=all"

#: The unit that writes the specification at every boot (NVIDIA Container Toolkit 1.18 and newer), into a directory that is empty until then. Toolkit 1.19.0
#: starts it after multi-user.target, and none before August 2026 starts it before Docker.
REFRESH_UNIT = "nvidia-cdi-refresh.service"
#: Seconds to wait for the devices, between two checks, and for one answer of systemd.
CDI_SECONDS, CDI_LOOK_SECONDS, SYSTEMCTL_SECONDS = 120.0, 1.0, 30.0
#: The remedy that writes the specification again. Where the toolkit's unit exists, as on DGX OS, a second one in /etc would only become outdated.
CDI_AGAIN = (
    "sudo systemctl restart nvidia-cdi-refresh, which writes /var/run/cdi/nvidia.yaml; on a node without that unit: "
    "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
)

#: Why a container does not reach the GPU: the error text of Docker, NVML or CUDA, the message, the remedy.
FAILURES: list[tuple[str, str, str]] = [
    (
        r"could not select device driver|unknown or invalid runtime name",
        "the Docker engine cannot give GPUs to a container: it has no NVIDIA runtime",
        "Install the NVIDIA Container Toolkit and restart Docker, or set gb10_container_gpus: none when no GPU is wanted.",
    ),
    (
        r"unresolvable CDI devices",
        "the Docker engine does not find the GPU in its specifications of devices (CDI)",
        CDI_AGAIN,
    ),
    (
        r"[Dd]river/library version mismatch|CUDA error 803\b",
        "the driver that is loaded and its libraries are of two versions",
        f"Reboot the node when it is idle, then: {CDI_AGAIN}",
    ),
    (
        r"error mounting .*/(?:libcuda|libnvidia-\S+)\.so|nvidia-container-cli: .*(?:load library failed|mount error|file creation failed)",
        "the driver's files that a container is to get are not those of this node",
        f"After an update of the driver: reboot the node when it is idle, then {CDI_AGAIN}",
    ),
    (
        r"Failed to initialize NVML: Unknown Error",
        "the container has the driver's libraries and may not use its devices",
        f"{CDI_AGAIN}. Then restart Docker (that stops its containers). What running containers lose it by: the rule docker.gpu_kept.",
    ),
    (
        r"cannot open shared object file",
        "the container gets none of the driver's libraries",
        f"{CDI_AGAIN}; for Docker older than 28.3: sudo nvidia-ctk runtime configure --runtime=docker, and restart it (that stops its containers)",
    ),
    (
        r"CUDA error 804\b",
        "the image has a libcuda that does not support this GPU",
        "Take an image.base for the CUDA that nvidia-smi names, or update the driver.",
    ),
    (
        r"Failed to initialize NVML|CUDA error \d+",
        "the driver shows the container no GPU that works",
        "See whether the host's nvidia-smi answers; where it does not: sudo dmesg | grep -E 'NVRM|Xid'",
    ),
]


def _cdi_names(gpus: Gpus) -> list[str]:
    """Return the names of these GPUs as CDI devices."""
    if gpus in ("none", []):
        return []
    return [f"{cdi.NVIDIA_KIND}={gpu}" for gpu in (["all"] if gpus == "all" else gpus)]


def device_requests(gpus: Gpus, cdi_devices: t.Collection[str] = ()) -> list[dict[str, t.Any]]:
    """Return the request for these GPUs in the form of the Docker SDK: by CDI where all of them are among these devices, else to the NVIDIA driver."""
    names = _cdi_names(gpus)
    if not names:
        return []
    if set(names) <= set(cdi_devices):
        return [{"driver": "cdi", "device_ids": names}]
    wanted: dict[str, t.Any] = {"count": -1} if gpus == "all" else {"device_ids": [str(gpu) for gpu in gpus]}
    return [{"driver": "nvidia", "capabilities": [["gpu"]], **wanted}]


def given_by_cdi(inspected: t.Mapping[str, t.Any]) -> bool:
    """Return whether a container, as the engine describes it, got its GPU by CDI."""
    return any(request.get("Driver") == "cdi" for request in (inspected.get("HostConfig") or {}).get("DeviceRequests") or [])


def await_cdi_devices(api: EngineApi, gpus: Gpus, before: bool = False, etc_root: str = "/etc") -> list[str]:
    """Return the CDI devices that the engine provides. Where these GPUs are expected among them, wait for them.

    They are expected where the previous container got its GPU by CDI (``before``), and where a unit writes the specification at boot. A GPU that is
    requested in another way then would be lost at the next reload of systemd. Raises :class:`WaitTimeout` when they do not appear, :class:`UnknownState`
    when the engine does not report its devices.
    """
    names, why = set(_cdi_names(gpus)), ""
    for _elapsed in clock(CDI_SECONDS, CDI_LOOK_SECONDS):
        devices = cdi_devices(api, etc_root)
        if names <= set(devices):
            return devices
        why = why or ("the container before had its GPU by CDI" if before else _comes_at_boot(api))
        if not why:
            return devices
    raise WaitTimeout(
        f"after {CDI_SECONDS:.0f} s the Docker engine still has no {', '.join(sorted(names))} among its devices, and {why}",
        remedy=f"{CDI_AGAIN}. Where it fails: journalctl -u {REFRESH_UNIT}. To pass GPUs without CDI, take the cluster down, and disable "
        "that unit.",
        reason="no devices",
    )


def _comes_at_boot(api: EngineApi) -> str:
    """Return a text that a unit writes the specification at boot for this engine, empty when none does or the engine does not read it."""
    if not api.get("/info").get("CDISpecDirs"):
        return ""
    try:
        enabled = run_tool(["systemctl", "is-enabled", REFRESH_UNIT], SYSTEMCTL_SECONDS).stdout.strip()
    except UnknownState:
        # A node without systemd has no such unit.
        return ""
    return f"{REFRESH_UNIT} writes them at boot" if enabled == "enabled" else ""


def cdi_devices(api: EngineApi, etc_root: str = "/etc") -> list[str]:
    """Return the CDI devices that the engine provides. Raises :class:`UnknownState` when it does not report them."""
    info = api.get("/info")
    directories = info.get("CDISpecDirs") or [] if isinstance(info, dict) else None
    if not isinstance(directories, list):
        raise UnknownState("the Docker engine does not report where it looks for devices", raw=str(info)[:2000])
    # A specification that cannot be read is omitted, as the engine does; ``node_info`` reports it.
    return cdi.devices(cdi.specs(map(str, directories), etc_root, Sections().section("cdi")), cdi.discovered(info))


# -- the proof -------------------------------------------------------------------------------------------------------


#: The answer of a container that reached nothing.
NOT_REACHED: dict[str, t.Any] = {"error": "", "why": "", "remedy": "", "driver": "", "gpus": 0, "cuda": "", "libcuda": [], "image_cuda": ""}


#: The form of a version of CUDA.
_CUDA = re.compile(r"\d{1,3}\.\d{1,3}|")


def checked(answer: t.Any) -> dict[str, t.Any]:
    """Return the probe's answer, which the image's own Python wrote. Raises ValueError for another form."""
    known = {name for name in NOT_REACHED if name not in ("why", "remedy")}
    fits = isinstance(answer, dict) and answer.keys() == known and all(type(answer[name]) is type(NOT_REACHED[name]) for name in known)
    if not fits or not all(isinstance(path, str) for path in answer["libcuda"]) or not all(_CUDA.fullmatch(answer[name]) for name in ("cuda", "image_cuda")):
        raise ValueError("an answer of another form")
    return answer


def explained(words: str) -> tuple[str, str]:
    """Return the cause that an error text about an unreachable GPU shows, and the remedy; empty texts for an unknown error."""
    return next(((message, remedy) for pattern, message, remedy in FAILURES if re.search(pattern, words)), ("", ""))


def prove(api: EngineApi, image: dict[str, t.Any], wrapper: t.Sequence[str], gpus: Gpus, timeout: float) -> dict[str, t.Any]:
    """Start a container as for a node but without network, and return whether it reaches the GPU (``error``, ``why``, ``remedy``) and with which versions.

    Raises :class:`UnknownState` when it does not answer.
    """
    # The keys of Docker's API for those of the SDK.
    spelled = {"driver": "Driver", "count": "Count", "device_ids": "DeviceIDs", "capabilities": "Capabilities"}
    argv = [*wrapper, "python3", "-c", inspect.getsource(gpu_probe)]
    try:
        requests = [{spelled[name]: value for name, value in request.items()} for request in device_requests(gpus, await_cdi_devices(api, gpus))]
        # Its root file system is writable, as in a node's container: with a read-only one, a hook of NVIDIA's toolkit ends the container before it starts
        # (reported in kserve/kserve#5711).
        host = {"DeviceRequests": requests, "ReadonlyRootfs": False}
        result = api.run_throwaway(image["Id"], argv, labels={LABEL_OWNER: OWNER, LABEL_ROLE: "probe"}, timeout=timeout, host=host)
    except UnknownState:
        raise
    except WaitTimeout as error:
        return {**NOT_REACHED, "error": str(error), "why": "the GPU's specification (CDI) is missing", "remedy": error.remedy}
    except ClusterError as error:
        words = str(error.details.get("raw") or error)
        return {**NOT_REACHED, "error": words, **dict(zip(("why", "remedy"), explained(words)))}
    try:
        answer = checked(image_contract.marked_json(result.stdout, gpu_probe.MARK))
    except ValueError as error:
        raise UnknownState(
            f"a container of the image does not report whether it reaches the GPU: python3 ended with status {result.rc} and {error}",
            reason="image does not answer",
            raw=(result.stdout + result.stderr)[-2000:],
        ) from error
    return {**NOT_REACHED, **answer, **dict(zip(("why", "remedy"), explained(answer["error"])))}


def proof_path(state_dir: str, image: dict[str, t.Any]) -> str:
    """Return the path of the stored answer for an image."""
    return image_contract.cache_path(state_dir, image).removesuffix(".json") + ".gpu.json"


def proof_key(gpus: Gpus, proc_root: str = "/proc") -> dict[str, t.Any]:
    """Return the conditions under which an answer is valid: this probe, these GPUs, this boot, this driver."""
    probe = hashlib.sha256(inspect.getsource(gpu_probe).encode()).hexdigest()
    return {"probe": probe, "gpus": gpus, "boot": boot_id(proc_root), "driver": optional_text(os.path.join(proc_root, "driver/nvidia/version"))}


def read_proof(path: str, key: dict[str, t.Any] | None = None) -> dict[str, t.Any] | None:
    """Return the answer stored at ``path``, of ``key`` if one is given; None when there is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            kept = json.load(stream)
        answer = kept["answer"]
        return answer if NOT_REACHED.keys() == answer.keys() and key in (None, kept["key"]) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # An unusable answer counts as missing: a container is asked again.
        return None


def write_proof(path: str, key: dict[str, t.Any], answer: dict[str, t.Any]) -> None:
    """Store the answer of a container that reached the GPU. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    write_json(path, {"key": key, "answer": answer})
