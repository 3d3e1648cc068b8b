# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What prevents a node's container from being created: files, devices, names, and ports in use. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import (
    LABEL_OWNER,
    OWNER,
    EngineApi,
    NotFound,
    cluster_and_role,
    node_container_name,
)
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners, net_devices, rdma
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import ExistingContainer
from ansible_collections.gb10.cluster.plugins.module_utils._node.fields import HF_HOME_TARGET, Params

if t.TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker


#: The kernel's names of the character devices that lead to a disk, and the numbers of those that lead to the memory: mem, kmem, port.
DISKS = ("bsg", "nvme", "nvme-generic", "scsi_generic")
MEMORY = ((1, 1), (1, 2), (1, 4))


class StaleHead(t.NamedTuple):
    """A container with a Ray head of another run, which must be removed before the node's container can be created."""

    id: str
    name: str
    description: str


def check_node_address(address: str, node: str) -> None:
    """Raise :class:`ClusterError` unless the address is one of this node's own that others can reach (Ray replaces a loopback address)."""
    own = [entry for entry in net_devices.ipv4_addresses() + net_devices.ipv6_addresses() if entry["scope"] != "host"]
    if address not in (entry["address"] for entry in own):
        known = ", ".join(f"{entry['address']} ({entry['interface']})" for entry in own if entry["scope"] == "global") or "none"
        raise ClusterError(
            f"others do not reach {node} at {address}; its addresses are {known}",
            remedy="Correct node_address (gb10_fabric_address).",
            reason="node address",
        )


def check_secrets(secret_files: dict[str, str], check_mode: bool) -> None:
    """Check every secret file; in check mode a missing one may still be created."""
    for name, path in secret_files.items():
        if not check_mode or os.path.exists(path):
            check_secret_file(name, path)


def check_secret_file(name: str, path: str) -> None:
    """Raise :class:`ClusterError` unless ``path`` is a file that only its owner can read."""
    write = f"Write the secret to {path} with mode 0600."
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ClusterError(f"secret {name}: {path} cannot be used: {error.strerror}", remedy=write, reason="secret file") from error
    if not stat.S_ISREG(mode):
        raise ClusterError(f"secret {name}: {path} is not a file", remedy=write, reason="secret file")
    if mode & 0o077:
        raise ClusterError(f"secret {name}: {path} has mode {stat.S_IMODE(mode):04o}; expected 0600", remedy=f"chmod 0600 {path}", reason="secret file")


def check_hub(hf_home: str | None) -> None:
    """Raise :class:`ClusterError` where another user than root chooses by a link which directory a container gets as its hub cache: Docker follows each."""
    hub = pathlib.PurePath(hf_home or "/", "hub")
    for path in (hub, *hub.parents) if hf_home else ():
        status = os.lstat(path) if os.path.lexists(path) else None
        if status and stat.S_ISLNK(status.st_mode) and (path == hub or status.st_uid != 0):
            raise ClusterError(
                f"{path} is a link to {os.readlink(path)}: a container would be given whatever it leads to in place of the hub cache",
                remedy=f"Replace the link by a directory (rm {path}, then move the cache or mount it there: mount --bind), "
                f"or name the directory without links in gb10_hf_home: {os.path.dirname(os.path.realpath(hub))}",
                reason="hub cache",
            )


def hub_identity(hf_home: str) -> list[int]:
    """Return what distinguishes the hub cache from any directory that replaces it: its device and inode. Raises as :func:`check_hub` does."""
    check_hub(hf_home)
    hub = os.path.join(hf_home, "hub")
    try:
        status = os.lstat(hub)
    except OSError as error:
        raise ClusterError(f"{hub} cannot be used: {error.strerror}", remedy="Download the model, or correct gb10_hf_home.", reason="hub cache") from error
    return [status.st_dev, status.st_ino]


@contextlib.contextmanager
def hub_held(hf_home: str | None) -> t.Iterator[t.Callable[[int], bool]]:
    """Keep the hub cache open, and yield a function that returns whether the container of a process got another directory in its place.

    Docker finds it by its name, which its owner may have given to another one since :func:`check_hub`. Raises as that does, and OSError.
    """
    if not hf_home:
        yield lambda _pid: False
        return
    check_hub(hf_home)
    held = os.open(os.path.join(hf_home, "hub"), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def is_another(pid: int) -> bool:
        try:
            with untrusted.directory(f"/proc/{pid}/root", f"{HF_HOME_TARGET}/hub".lstrip("/")) as there:
                return not os.path.samestat(os.fstat(there), os.fstat(held))
        except (OSError, untrusted.Tampered):
            return False  # It ended, or its image has a link on the way there.

    try:
        yield is_another
    finally:
        os.close(held)


def _danger(status: os.stat_result, sysfs_root: str) -> str:
    """Return ``a disk`` (also one that is reached past the kernel's block layer) or ``the memory`` for such a device, empty for others."""
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    kind = os.path.basename(os.path.realpath(os.path.join(sysfs_root, "dev", "char", f"{major}:{minor}", "subsystem")))
    is_char = stat.S_ISCHR(status.st_mode)
    if stat.S_ISBLK(status.st_mode) or (is_char and kind in DISKS):
        return "a disk"
    return "the memory" if is_char and (major, minor) in MEMORY else ""


def check_devices(devices: list[str], sysfs_root: str = "/sys") -> None:
    """Raise :class:`ClusterError` unless every device path exists on this node, and none is a disk or the memory, or a directory with one."""
    for device in devices:
        path = pathlib.Path(device.partition(":")[0])
        for entry in (path, *path.rglob("*")):
            with contextlib.suppress(OSError):
                if what := _danger(entry.stat(), sysfs_root):
                    raise ClusterError(
                        f"{entry} is {what} of this node: root of a container that has it reads and writes all of it",
                        remedy="Leave it out of gb10_container_devices.",
                        reason=f"device is {what}",
                        device=device,
                    )
        if not path.exists():
            raise ClusterError(
                f"this node has no {device}, which its container needs",
                remedy=f"For /dev/infiniband: {rdma.CABLE_IN}. For others: load the driver that makes it, or correct gb10_container_devices.",
                reason="device missing",
                device=device,
            )


def container_by_name(docker: Docker, name: str) -> dict[str, t.Any] | None:
    """Return Docker's description of the container of this name, None without one."""
    try:
        return docker.inspect(name)
    except NotFound:
        return None


def is_ours(inspected: dict[str, t.Any], cluster: str, role: str) -> bool:
    """Return whether a container is ours, of this cluster and this role."""
    labels = inspected["Config"].get("Labels") or {}
    return labels.get(LABEL_OWNER) == OWNER and cluster_and_role(inspected["Name"].lstrip("/"), labels) == (cluster, role)


def check_name(docker: Docker, cluster: str, role: str) -> None:
    """Raise :class:`ClusterError` when a container that is not ours has the name that ours needs."""
    name = node_container_name(cluster, role)
    holder = container_by_name(docker, name)
    if holder and not is_ours(holder, cluster, role):
        raise ClusterError(
            f"a foreign container has the name of this node's container: {container_text(holder)}",
            remedy=f"Rename it (docker rename {name} OTHER) or choose another gb10_cluster_name.",
            reason="name taken",
        )


def container_text(inspected: dict[str, t.Any]) -> str:
    """Return a container as text for a message, with its times to the second."""
    created, started = inspected["Created"][:19], inspected["State"]["StartedAt"][:19]
    return f"container {inspected['Name'].lstrip('/')} (image {inspected['Config']['Image']}, created {created}Z, started {started}Z)"


def check_node(docker: Docker, params: Params, node: str, check_mode: bool) -> None:
    """Check the requirements of every new container, with Ray or without. In check mode the image may be missing."""
    image = params["image"]
    if not check_mode and not docker.image(image):
        raise ClusterError(f"image {image} is not on {node}", remedy="Copy it there: run the play with --tags image.", reason="image missing")
    check_node_address(params["node_address"], node)
    check_devices(params["devices"])
    check_hub(params["hf_home"])
    check_name(docker, params["cluster_name"], params["node_role"])


# -- ports --------------------------------------------------------------------------------------------------------------


def foreign_listeners(entries: list[dict[str, t.Any]], names: dict[str, str], own_id: str) -> list[dict[str, t.Any]]:
    """Return the listeners that are not of our own container; ``names`` maps this engine's container ids to names.

    A container that this engine does not list contains the whole node: its processes count as the host's.
    """
    known = [{**entry, "container": entry["container"] if entry["container"] in names else ""} for entry in entries]
    return [{**entry, "container_name": names.get(entry["container"], "")} for entry in known if not own_id or entry["container"] != own_id]


def foreign_on(docker: EngineApi, ports: list[int], current: ExistingContainer | None) -> list[dict[str, t.Any]]:
    """Return the listeners on these ports of the node, without those of the node's own container."""
    entries = listeners.listeners(ports) if ports else []
    names = {entry["Id"]: entry["Names"][0].lstrip("/") for entry in docker.containers({})} if entries else {}
    return foreign_listeners(entries, names, current.id if current else "")


def listener_text(listener: dict[str, t.Any]) -> str:
    """Return a listener as text for a message."""
    if listener["pid"] is None:
        return f"port {listener['port']} on {listener['address']}: a process that only root can see"
    where = f" in container {listener['container_name']}" if listener["container"] else ""
    return f"port {listener['port']} on {listener['address']}: {listener['process']} (pid {listener['pid']}){where} since {listener['since']}"


def ports_taken(whose: str, node: str, taken: list[dict[str, t.Any]], variables: str) -> ClusterError:
    """Return the error for ports in use; ``whose`` names the program that needs them, ``variables`` the settings that choose other ports."""
    return ClusterError(
        f"ports that {whose} needs are taken on {node}: {'; '.join(map(listener_text, taken))}",
        remedy=f"Stop the listener, or choose another {variables}.",
        reason="port taken",
        node=node,
        listeners=taken,
    )
