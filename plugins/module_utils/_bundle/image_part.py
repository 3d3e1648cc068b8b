# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image of a bundle: an engine's own export, which engines with either image store can load. This module util is PRIVATE to the collection."""

from __future__ import annotations

import json
import os
import tarfile
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content, programs
from ansible_collections.gb10.cluster.plugins.module_utils._docker import image_store
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_identity
from ansible_collections.gb10.cluster.plugins.module_utils._image.images import familiar, named_image, with_tag
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import named

#: The parts of a configuration that identify an image together with its layers.
FACE = ("Cmd", "Entrypoint", "Env", "Labels", "User", "WorkingDir")

About = dict[str, t.Any]


class Image(t.NamedTuple):
    """An image of an export: its names, the digest of its configuration, its unpacked layers, and the identifying parts of its configuration."""

    names: list[str]
    config: str
    layers: list[str]
    face: dict[str, t.Any]

    def is_one(self, answer: About) -> bool:
        """Return whether an image of an engine is this one. An engine with the other image store has a different id for it."""
        return answer["Id"] == self.config or (image_identity.layers_in(answer), face_of(answer.get("Config"))) == (self.layers, self.face)


def face_of(config: t.Any) -> dict[str, t.Any]:
    """Return the identifying parts of a configuration."""
    return {name: (config or {}).get(name) or None for name in FACE}


def tagged(name: str) -> str:
    """Return an image's name as in an engine's export."""
    return with_tag(familiar(name))


# -- out of an engine ------------------------------------------------------------------------------------------------


class Export(t.NamedTuple):
    """A bundle's description of an image, the names to export (the base first), and about their bytes."""

    about: About
    names: list[str]
    size: int


def exported(api: EngineApi, image: str, base: str) -> Export:
    """Return the export of an image and the base below it. Raises :class:`ClusterError`."""
    answer = named_image(api, image, "export", "Set image.tag in the profile.")
    below = api.image(base) if base and base != image and "@" not in base else None
    layers = image_identity.layers_in(below) if below else []
    ids = {**({base: below["Id"]} if below and image_identity.layers_in(answer)[:len(layers)] == layers else {}), image: answer["Id"]}
    return Export({
        "tag": image,
        "archive": f"{content.IMAGE}/{content.sha256_of(json.dumps(ids).encode())[:12]}.tar",
        "store": image_store.store_of(api.get("/info")),
        "id": answer["Id"],
        "architecture": str(answer.get("Architecture") or ""),
        "labels": (answer.get("Config") or {}).get("Labels") or {},
    }, list(ids), int(answer.get("Size") or 0))  # fmt: skip


def save(watch: programs.Watch, api: EngineApi, export: Export, path: str, owner: owners.Owner) -> None:
    """Write an engine's export into a bundle, completely or not at all. Raises :class:`ClusterError`, OSError."""
    part, archive = os.path.join(path, content.PARTS, "image.tar"), export.about["archive"]
    with owners.acting_as(owner):
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(descriptor, "r+b") as stream:
        watch.checked(
            "docker save",
            path,
            ["docker", "--host", f"unix://{api.socket_path}", "save", *export.names],
            stdout=descriptor,
            far=lambda: f"{os.fstat(descriptor).st_size / 1e9:.1f} of about {export.size / 1e9:.1f} GB",
        )
        require_names(images_in(stream, archive), export.names, archive)
        base_first(stream, export.names)
        os.fsync(descriptor)
    with owners.acting_as(owner):
        os.makedirs(os.path.join(path, content.IMAGE), mode=0o755, exist_ok=True)
        os.rename(part, os.path.join(path, archive))


def base_first(stream: t.BinaryIO, names: t.Sequence[str]) -> None:
    """Move the base before the image that was built on it, in a list that the classic store writes in any order.

    containerd's store assigns unpacked layers to the first image, and a base in second place would be removed with that image (seen with engine
    26.1.5). Raises OSError.
    """
    stream.seek(0)
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        member = tar.getmember("manifest.json")
        listed = json.load(tar.extractfile(member) or stream)
    listed.sort(key=lambda entry: tagged(names[0]) not in (entry["RepoTags"] or []))
    text = json.dumps(listed, separators=(",", ":")).encode().ljust(member.size)
    if len(text) == member.size:
        stream.seek(member.offset_data)
        stream.write(text)
        stream.flush()


# -- into an engine --------------------------------------------------------------------------------------------------


def images_in(stream: t.BinaryIO, where: str) -> list[Image]:
    """Return the images of an engine's export. Raises :class:`ClusterError` for any other file."""
    images = []
    try:
        stream.seek(0)
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            for entry in json.loads(_member(tar, "manifest.json")):
                text = _member(tar, entry["Config"])
                config, names = json.loads(text), [str(name) for name in entry["RepoTags"] or []]
                layers = [str(layer) for layer in config["rootfs"]["diff_ids"]]
                images.append(Image(names, f"sha256:{content.sha256_of(text)}", layers, face_of(config.get("config"))))
            index = json.loads(_member(tar, "index.json"))["manifests"] if "index.json" in tar.getnames() else []
            indexed = {str((manifest.get("annotations") or {}).get("io.containerd.image.name") or "") for manifest in index} - {""}
    except (tarfile.TarError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"{where} is not an export of an engine: {error!r}", remedy="Export the bundle again.", reason="foreign") from error
    other = sorted({tagged(name) for name in indexed} - {name for image in images for name in image.names})
    return [*images, *([Image(other, "", [], {})] if other else [])]


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.getmember(name)
    stream = tar.extractfile(member) if member.size <= content.LIST_LIMIT else None
    if stream is None:
        raise ValueError(f"{name} is not a file, or has {member.size} bytes")
    return stream.read()


def require_names(images: t.Sequence[Image], names: t.Sequence[str], where: str) -> None:
    """Raise :class:`ClusterError` unless an export has the last of these names and no others: a bundle must not choose which images it replaces."""
    has, expected = sorted(name for image in images for name in image.names), [tagged(name) for name in names if name]
    if expected[-1] not in has or set(has) - set(expected):
        raise ClusterError(
            f"{where} has the image(s) {named(has) or 'without a name'}",
            expected=f"{names[-1]}, as in the profile of this controller",
            remedy="Use the profile that the bundle was made with, from its directory profile.",
            reason="other profile",
        )


class Wanted(t.NamedTuple):
    """The images of a bundle's export, the names that an engine lacks, and the ids that all names had ``before``.

    ``left_out`` are names that are not imported, because this engine could not recognize their images.
    """

    images: list[Image]
    names: list[str]
    before: dict[str, str | None]
    left_out: list[str]


def wanted(api: EngineApi, about: About, images: list[Image], replace: bool) -> Wanted:
    """Return the images that this node's engine lacks. Raises :class:`ClusterError` if another image has a name here, or for another processor."""
    info = api.get("/info")
    architecture, own = str(about.get("architecture") or ""), str(info.get("Architecture") or "")
    if architecture and own and {"x86_64": "amd64", "aarch64": "arm64"}.get(own, own) != architecture:
        raise ClusterError(
            f"the bundle's image is for {architecture}, and this node has {own}",
            remedy="Export the bundle on a node with the same processor.",
            reason="architecture",
        )
    left_out = []
    if image_store.store_of(info) != about["store"]:
        labels, tag = about.get("labels") or {}, tagged(about["tag"])
        left_out = [name for image in images if tag not in image.names and not image_identity.is_built_on(labels, None, image.config) for name in image.names]
    here = {name: (image, api.image(name)) for image in images for name in image.names}
    lacking = [name for name, (image, answer) in here.items() if name not in left_out and not (answer and image.is_one(answer))]
    other = [f"{name} ({answer['Id'][7:19]} here)" for name, (_image, answer) in here.items() if name in lacking and answer]
    if other and not replace:
        raise ClusterError(
            f"the names of {len(other)} image(s) of the bundle are those of other images here: {named(other)}; nothing was imported",
            remedy="Use -e gb10_allow=names, which gives the names to the bundle's images. The other images stay, without these names.",
            reason="other content",
        )
    return Wanted(images, lacking, {name: answer["Id"] if answer else None for name, (_image, answer) in here.items()}, left_out)


def load(watch: programs.Watch, api: EngineApi, place: tuple[str, str, str], missing: Wanted, names: t.Sequence[str]) -> None:
    """Have an engine load an export; ``place`` is the path of a bundle, its archive and the archive's sha256. Raises :class:`ClusterError`, OSError."""
    path, archive, digest = place
    docker = ["docker", "--host", f"unix://{api.socket_path}"]
    with untrusted.reader(path, archive, own=False) as stream:
        size = os.fstat(stream.fileno()).st_size

        def far() -> str:
            return f"{os.lseek(stream.fileno(), 0, os.SEEK_CUR) / 1e9:.1f} of {size / 1e9:.1f} GB"

        # The same open file is read twice: another file with its name does not matter.
        if watch.run(["sha256sum"], stdin=stream, far=far).stdout[:64] != digest:
            raise programs.damaged(path, [archive])
        require_names(images_in(stream, archive), names, archive)
        stream.seek(0)
        done = watch.run([*docker, "load"], stdin=stream, far=far)
    # Engines with containerd's store were seen to print this and to exit with 0.
    if done.rc != 0 or "error unpacking" in done.stdout.lower():
        raise programs.failed("docker load", done.words, archive)
    for name in missing.left_out:
        before = missing.before[name]
        if watch.run([*docker, *(["tag", before, name] if before else ["rmi", "--no-prune", name])]).rc != 0:
            raise ClusterError(f"cannot remove the name {name}, which was imported, too", remedy=f"docker rmi --no-prune {name}", reason="engine")
    for name, image in ((name, image) for image in missing.images for name in image.names if name not in missing.left_out):
        here = api.image(name)
        if here is None or not image.is_one(here):
            raise ClusterError(
                f"{name} is {here['Id'] if here else 'absent'} after the import",
                expected=image.config,
                remedy="Find out which process tags or removes images here, and run again.",
                reason="other content",
            )
