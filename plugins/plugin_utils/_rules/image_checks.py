# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of Docker, the node image and the disk. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import GIB, Arguments, Faults, check, comparison, differing
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Entry, Fault, Node, Unseen, of_entry

#: Docker's names of machine architectures that the kernel names differently.
ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}


@check
def docker_answers(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The Docker engine answers."""
    if not node.get("docker.reachable"):
        error = node.error("docker") or {}
        yield Fault(
            False,
            True,
            {
                "why": error.get("error", "no answer"),
                "remedy": error.get("remedy") or "systemctl start docker; the account that Ansible becomes needs rights on its socket",
            },
        )


@check
def cdi_current(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The specification in effect, the last one that names a libcuda, names that of the running driver."""
    for spec in node.get("docker.cdi_libcuda")[-1:]:
        for index, gpu in enumerate(node.get("gpus")):
            driver = of_entry(gpu, "driver_version", f"gpus[{index}]")
            if driver not in spec["libcuda"]:
                yield Fault(spec["libcuda"], driver, {"path": spec["path"], "named": ", ".join(spec["libcuda"])})


@check
def one_specification(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Only one specification names the driver's library."""
    paths = [spec["path"] for spec in node.get("docker.cdi_libcuda")]
    if len(paths) > 1:
        yield Fault(paths, paths[-1], {"listed": " and ".join(paths), "first": paths[0]})


@check
def devices_present(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Every device for the containers exists."""
    there = node.get("devices")
    for path in node.needs["devices"]:
        if there.get(path) is None:
            raise Unseen(f"devices.{path}")
        if not there[path]:
            yield Fault(False, path, {"path": path})


@check
def daemon_memlock(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The memlock limit of the Docker daemon is at least the usual one; a lower limit also restricts its containers."""
    have, memlock = node.get("limits.docker_memlock_bytes"), node.needs["memlock"]
    floor = limits["least_bytes"] if memlock == -1 else min(memlock, limits["least_bytes"])
    if have != -1 and have < floor:
        yield Fault(have, floor, {"asked": "unlimited" if memlock == -1 else f"{memlock} bytes"})


@check
def capabilities_granted(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The inventory grants each capability that the profile's engine needs."""
    for name in node.needs["needed_capabilities"]:
        if name not in node.needs["capabilities"]:
            granted = [*node.needs["capabilities"], name]
            yield Fault(node.needs["capabilities"], name, {"profile": node.needs["profile"], "name": name, "setting": f"[{', '.join(granted)}]"})


@check
def space(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The disks of images and models have enough free space."""
    floor = limits["least_gib"]
    places = {node.get("docker.root_dir"): node.get("docker.root_free_bytes")} if node.get("docker.reachable") else {}
    for path, disk in node.get("disk").items():
        if disk is None:
            raise Unseen(f"disk.{path}", f"the free space under {path} could not be read", f"look at {path}")
        places[path] = disk["free_bytes"]
    for path, free_bytes in places.items():
        if free_bytes < floor * GIB:
            free = round(free_bytes / GIB, 1)
            yield Fault(free, floor, {"path": path, "free": free})


@check
def space_for_image(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A node without the image has space for it."""
    if _image(node) is None:
        free = node.get("docker.root_free_bytes") / GIB
        if free < limits["image_gib"]:
            yield Fault(round(free, 1), limits["image_gib"], {"path": node.get("docker.root_dir"), "image": node.needs["image"]["tag"]})


def _image(node: Node) -> Entry | None:
    """Return the profile's image on the node, None when it is absent."""
    name = node.needs["image"]["tag"]
    images = node.get("images")
    if name not in images:
        raise Unseen(f"images.{name}")
    return images[name]


@check
def image_present(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The profile's image is on the node."""
    image = node.needs["image"]
    if _image(node) is None:
        pulled = image["base"] if node.get("images").get(image["base"]) is None else ""
        lost = node.needs["offline"] and pulled and not node.needs.get("image_given")
        yield Fault(None, image["tag"], {"image": image["tag"]}, cannot=f"gb10_offline is true, and {pulled} is not on this node either" if lost else "")


@check
def image_architecture(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The profile's images on the node were built for its processor."""
    arch = node.get("kernel.arch")
    wanted = ARCHITECTURES.get(arch, arch)
    for name in dict.fromkeys((node.needs["image"]["base"], node.needs["image"]["tag"])):
        image = node.get("images").get(name)
        if image and of_entry(image, "architecture", f"images.{name}") != wanted:
            yield Fault(image["architecture"], wanted, {"image": name})


def has_image_source(node: Node, nodes: list[Node]) -> bool:
    """Return whether another node has the profile's image and can copy it to this one; False when that is unknown."""
    tag = node.needs["image"]["tag"]
    try:
        copies = node.needs.get("image_copy", "never") != "never" and "@" not in tag
        return copies and any(other.get("images").get(tag) is not None for other in nodes if other is not node)
    except Unseen:
        return False


@comparison
def images_same(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The images of all nodes were built on the same base by the same recipe; images that were not built here have the same id.

    Known contents are also the same.
    """
    there = {node.name: _contents(image) for node in nodes if (image := _image(node)) is not None}
    for aspect in dict.fromkeys(aspect for contents in there.values() for aspect in contents):
        yield from differing({name: contents.get(aspect) for name, contents in there.items()}, what=aspect)


def _contents(image: Entry) -> dict[str, t.Any]:
    """Return the properties that the images of all nodes must have in common. Images that were built on each node have different ids."""
    labels, contract = image["labels"] or {}, image.get("contract")
    known = {"base image": labels.get("io.gb10.base") or image["id"], "recipe": labels.get("io.gb10.recipe")}
    if contract:
        known |= {"Python": contract["python"], "Ray": contract["versions"].get("ray"), "packages": contract["packages_digest"]}
    return known
