# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The labs there are, as data. Both can be up on one machine at the same time."""

from __future__ import annotations

import dataclasses
import ipaddress
import pathlib
import typing as t

from .common import REPOSITORY


@dataclasses.dataclass(frozen=True)
class Base:
    """A Debian release. ``registry`` is where it is asked for first; its digest is fixed."""

    release: str
    registry: str


@dataclasses.dataclass(frozen=True)
class Engine:
    """How the Docker engine of a node keeps images and which API versions it answers.

    ``settings`` go into its daemon.json, ``environment`` into its service. ``data`` says which directories of the store it
    mounts, and where. ``immutable`` are the patterns below the store's directory of what the engine never writes to once it is
    there; nodes share it. ``mark`` ends the name of the seed.
    """

    settings: t.Mapping[str, t.Any]
    environment: t.Mapping[str, str]
    data: t.Mapping[str, str]
    immutable: tuple[str, ...]
    mark: str


@dataclasses.dataclass(frozen=True)
class Node:
    """One simulated Spark. ``number`` decides its addresses: the tenth plus number of each network."""

    name: str
    group: str
    number: int

    @property
    def container(self) -> str:
        """Name of the container."""
        return f"gb10-lab-{self.name}"

    def address(self, subnet: ipaddress.IPv4Network) -> str:
        """This node's address in a network."""
        return str(subnet[10 + self.number])


@dataclasses.dataclass(frozen=True)
class Lab:
    """Two nodes of one generation, their two networks and their inventory. ``packages`` are Debian packages beside the common ones."""

    name: str
    base: Base
    packages: tuple[str, ...]
    engine: Engine
    prefix: str
    nodes: tuple[Node, ...]
    inventory: pathlib.Path

    @property
    def management(self) -> str:
        """Name of the network that the controller reaches the nodes on."""
        return f"{self.prefix}-mgmt"

    @property
    def fabric(self) -> str:
        """Name of the network between the nodes."""
        return f"{self.prefix}-fabric"

    @property
    def builder(self) -> str:
        """Name of the temporary host that makes the seed."""
        return f"{self.prefix}-builder"


BOOKWORM = Base("bookworm", "debian:bookworm-slim@sha256:96e378d7e6531ac9a15ad505478fcc2e69f371b10f5cdf87857c4b8188404716")
TRIXIE = Base("trixie", "debian:trixie-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f")

# What the engine image is made from, whatever system the nodes have.
ENGINE_BASE = BOOKWORM

OVERLAY2 = Engine(
    settings={"storage-driver": "overlay2"},
    environment={},
    data={"docker": "/var/lib/docker"},
    # overlay2 never writes to a lower layer, it copies the file up first.
    immutable=("docker/overlay2/*/diff",),
    mark="",
)

CONTAINERD = Engine(
    # Without the second feature this engine knows no devices by CDI; from 28.3 on that is the default, and on DGX OS the only way to a GPU.
    settings={"storage-driver": "overlayfs", "features": {"containerd-snapshotter": True, "cdi": True}},
    # As Docker 29 does, refuse what is older; Debian's 26 would still answer API 1.24.
    environment={"DOCKER_MIN_API_VERSION": "1.44"},
    data={"docker": "/var/lib/docker", "containerd": "/var/lib/containerd"},
    immutable=(
        "containerd/io.containerd.content.v1.content/blobs",
        "containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs",
    ),
    mark="-containerd",
)

CURRENT = Lab(
    name="current",
    base=BOOKWORM,
    packages=(),
    engine=OVERLAY2,
    prefix="gb10-lab",
    nodes=(Node("spark-1", "gb10_head", 1), Node("spark-2", "gb10_workers", 2)),
    inventory=REPOSITORY / "inventories" / "lab",
)

NEXT = Lab(
    name="next",
    base=TRIXIE,
    # Debian 13 ships the engine's command line on its own.
    packages=("docker-cli",),
    engine=CONTAINERD,
    prefix="gb10-lab-next",
    nodes=(Node("spark-3", "gb10_head", 3), Node("spark-4", "gb10_workers", 4)),
    inventory=REPOSITORY / "inventories" / "lab_next",
)

LABS = {lab.name: lab for lab in (CURRENT, NEXT)}
