# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The base image and the node image."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile

from .common import HERE, LABEL, LabError, docker, fingerprint, pipe, run, step, succeeds
from .machine import apt_install, proxies

RELEASE = "bookworm"
# Only tried, with a short patience: where no registry answers, debootstrap makes the same system and is the path proven so far.
REGISTRY_BASE = "debian:bookworm-slim@sha256:96e378d7e6531ac9a15ad505478fcc2e69f371b10f5cdf87857c4b8188404716"
REGISTRY_PATIENCE = 60


def exists(image: str) -> bool:
    """Whether the engine has an image."""
    return succeeds(["docker", "image", "inspect", image])


def base_tag() -> str:
    """The reference of the base image; another release or digest is another tag."""
    return f"gb10-lab/base:{fingerprint(RELEASE, REGISTRY_BASE)}"


def node_tag() -> str:
    """The reference of the node image; any change under node/ is another tag."""
    return f"gb10-lab/node:{fingerprint(HERE / 'node', base_tag())}"


def debootstrap(tag: str) -> None:
    """Make the base image from Debian packages alone. Raises LabError without root."""
    if os.geteuid() != 0:
        raise LabError("no container registry answers and debootstrap needs root: run this once as root")
    if shutil.which("debootstrap") is None:
        # Ubuntu does not carry Debian's keys by default.
        apt_install("debootstrap", "debian-archive-keyring")
    with tempfile.TemporaryDirectory(prefix="gb10-lab-") as directory:
        root = pathlib.Path(directory) / "root"
        run(["debootstrap", "--variant=minbase", RELEASE, str(root)], timeout=900)
        for leftover in (*root.glob("var/cache/apt/archives/*.deb"), *root.glob("var/lib/apt/lists/*_*")):
            leftover.unlink()
        change = f"LABEL {LABEL}"
        pipe(["tar", "--directory", str(root), "--create", "."], ["docker", "import", "--change", change, "-", tag], timeout=300)


def ensure_base() -> str:
    """Make the base image if it is missing; return its reference."""
    tag = base_tag()
    if exists(tag):
        return tag
    ours = not exists(REGISTRY_BASE)
    with step("asking a registry for the base image"):
        pulled = succeeds(["docker", "pull", "--quiet", REGISTRY_BASE], timeout=REGISTRY_PATIENCE)
    if pulled:
        docker("tag", REGISTRY_BASE, tag)
        if ours:
            docker("rmi", REGISTRY_BASE)
        return tag
    with step("none answered: base image from Debian packages"):
        debootstrap(tag)
    return tag


def ensure_node() -> str:
    """Make the node image if it is missing; return its reference."""
    tag = node_tag()
    if not exists(tag):
        base = ensure_base()
        with step(f"node image {tag}"):
            arguments = [f"--build-arg={name}={value}" for name, value in {"BASE": base, **proxies()}.items()]
            docker("build", "--label", LABEL, "--tag", tag, *arguments, str(HERE / "node"), timeout=900)
    return tag


def drop_old_nodes() -> None:
    """Remove node images made of other sources."""
    tags = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "gb10-lab/node").split()
    for tag in tags:
        if tag != node_tag():
            docker("rmi", tag)
