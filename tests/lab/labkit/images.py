# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The base images and the node images."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile

from .common import HERE, LABEL, LabError, docker, fingerprint, pipe, run, step, succeeds
from .labs import ENGINE_BASE, LABS, Base, Lab
from .machine import apt_install, proxies

# Registries are only tried, with a short patience: where none answers, debootstrap makes the same system and is the path proven so far.
REGISTRY_PATIENCE = 60


def exists(image: str) -> bool:
    """Whether the engine has an image."""
    return succeeds(["docker", "image", "inspect", image])


def base_tag(base: Base) -> str:
    """The reference of a base image; another release or digest is another tag."""
    return f"gb10-lab/base:{fingerprint(base.release, base.registry)}"


def node_tag(lab: Lab) -> str:
    """The reference of a lab's node image; any change under node/ is another tag."""
    return f"gb10-lab/node:{fingerprint(HERE / 'node', base_tag(lab.base), *lab.packages)}"


def debootstrap(release: str, tag: str) -> None:
    """Make a base image from Debian packages alone. Raises LabError without root."""
    if os.geteuid() != 0:
        raise LabError("no container registry answers and debootstrap needs root: run this once as root")
    if shutil.which("debootstrap") is None:
        # Ubuntu does not carry Debian's keys by default.
        apt_install("debootstrap", "debian-archive-keyring")
    with tempfile.TemporaryDirectory(prefix="gb10-lab-") as directory:
        root = pathlib.Path(directory) / "root"
        run(["debootstrap", "--variant=minbase", release, str(root)], timeout=900)
        for leftover in (*root.glob("var/cache/apt/archives/*.deb"), *root.glob("var/lib/apt/lists/*_*")):
            leftover.unlink()
        change = f"LABEL {LABEL}"
        pipe(["tar", "--directory", str(root), "--create", "."], ["docker", "import", "--change", change, "-", tag], timeout=300)


def ensure_base(base: Base) -> str:
    """Make a base image if it is missing; return its reference."""
    tag = base_tag(base)
    if exists(tag):
        return tag
    ours = not exists(base.registry)
    with step(f"asking a registry for the base image of {base.release}"):
        pulled = succeeds(["docker", "pull", "--quiet", base.registry], timeout=REGISTRY_PATIENCE)
    if pulled:
        docker("tag", base.registry, tag)
        if ours:
            docker("rmi", base.registry)
        return tag
    with step("none answered: base image from Debian packages"):
        debootstrap(base.release, tag)
    return tag


def ensure_node(lab: Lab) -> str:
    """Make a lab's node image if it is missing; return its reference."""
    tag = node_tag(lab)
    if not exists(tag):
        arguments = {"BASE": ensure_base(lab.base), "PACKAGES": " ".join(lab.packages), **proxies()}
        with step(f"node image {tag}"):
            options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
            docker("build", "--label", LABEL, "--tag", tag, *options, str(HERE / "node"), timeout=900)
    return tag


def made() -> list[str]:
    """The references of all images that the labs made on this machine, whatever they were made of."""
    return docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "--filter", "reference=gb10-lab/*").split()


def nodes_made() -> list[str]:
    """The references of the node images among them."""
    return [tag for tag in made() if tag.startswith("gb10-lab/node:")]


def drop_old_nodes() -> None:
    """Remove node images made of other sources, unless a node still runs on one."""
    wanted = {node_tag(lab) for lab in LABS.values()}
    used = set(docker("container", "ls", "--all", "--format", "{{.Image}}").split())
    for tag in nodes_made():
        if tag not in wanted | used:
            docker("rmi", tag)


def drop(lab: Lab) -> None:
    """Remove a lab's node image, and its base unless another lab or the engine image is made from it."""
    bases = {ENGINE_BASE, *(other.base for other in LABS.values() if other is not lab)}
    for tag in (node_tag(lab), *([] if lab.base in bases else [base_tag(lab.base)])):
        if exists(tag):
            docker("rmi", tag, timeout=300)
