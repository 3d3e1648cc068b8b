#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bundle
short_description: Carry a node's image and models to a cluster without Internet in a directory
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - With O(state=exported) a directory gets all that a profile needs of this node. Those are the node image with the base below it, the repositories that the
    engine loads, the packages that pip added to the image, and C(bundle.json), which lists each file with its bytes and sha256.
  - With O(state=imported) this node gets from such a directory what it lacks, and the other nodes of its cluster copy that from here at the next bring-up.
    With O(state=verified) all of a bundle is read and compared.
  - A bundle is made of plain files, so a disk with any file system but FAT32 carries it. Links and refs of the hub cache stand in its list.
  - Each file is written under another name first, and gets its own once all of it was compared. An export or import that was killed goes on behind the last
    whole file. The list of an export that has not ended is C(bundle.unfinished), and nobody imports that.
  - The image moves between both kinds of Docker's image stores. The classic one calls an image by the sha256 of its configuration, that of containerd by the
    sha256 of its manifest. So the ids differ, and an image is the same one when its configuration is, which names each layer by its content.
  - Of a bundle nothing is imported but what O(image), O(base_image) and O(repositories) name. Links in it are refused.
  - Files that are here with other content are never replaced. What is here by name and size is not read again, nor is the file of the bundle.
  - What was read and written leaves the page cache.
requirements:
  - A Docker engine 20.10 or newer, with the storage driver overlay2 or the image store of containerd where a bundle is exported.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._cluster
attributes:
  check_mode:
    support: full
    details:
      - Nothing is written. RV(bytes) and C(msg) say what would be, or the failure says why it could not. O(state=verified) reads the bundle all the same.
  diff_mode:
    support: full
options:
  state:
    description:
      - V(exported) writes what the bundle lacks of this node's image and models.
      - V(imported) brings what this node lacks of the bundle, and reads nothing else of it.
      - V(verified) reads all of the bundle, and fails with the names of the files that are not what was exported.
    type: str
    choices: [exported, imported, verified]
    required: true
  path:
    description:
      - The bundle's directory on this node. For an export it may be absent or empty, and the directory above it must be there, such as a mounted disk.
    type: path
    required: true
  profile:
    description:
      - Id of the profile that the bundle is for.
    type: str
    required: true
  image:
    description:
      - The node image by its tag.
    type: str
    required: true
  base_image:
    description:
      - The image that it was built on, by its tag. It comes along where it is there. One that is named by a digest does not, since an engine gives no such
        name.
    type: str
  repositories:
    description:
      - What the engine loads, from the hub cache or, for an absolute path, from that plain directory.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - What the profile calls it.
        type: str
        default: model
      repo:
        description:
          - The repository as the hub names it, or a directory of the node.
        type: str
        required: true
      revision:
        description:
          - A commit, or a branch or tag. Without one it is C(main).
        type: str
      purpose:
        description:
          - What it is for.
        type: str
        choices: [model, drafter, assistant, tokenizer, adapter, files]
        default: model
      files:
        description:
          - Names and patterns of the files that are needed, all of them when empty.
        type: list
        elements: str
        default: []
      side_files:
        description:
          - Files that must be there beside the model's own, relative to the repository.
        type: list
        elements: str
        default: []
  hf_home:
    description:
      - The hub cache on this node.
    type: path
    required: true
  texts:
    description:
      - Small files that an export adds, by their names below C(profile), such as the profile and its patches. An import compares them with those of the bundle,
        and RV(other_texts) names those that differ.
    type: dict
    default: {}
  wheels:
    description:
      - Whether an export adds the packages that pip added to the image, as its label C(io.gb10.lock) names them by their hashes, and whether an import puts
        those of the bundle into C(wheels) below O(state_dir). The image has them; as files they are for a build without Internet.
      - An export has the image's own pip download those that the bundle lacks, in a throw-away container with network.
    type: bool
    default: true
  pip_env:
    description:
      - Variables for pip, such as C(PIP_INDEX_URL).
    type: dict
    default: {}
  ca_file:
    description:
      - A CA bundle on the node that pip needs behind a TLS proxy.
    type: path
  replace:
    description:
      - Whether the bundle's images get their names where another image of this node has them. That one stays without the name.
    type: bool
    default: false
  disk_floor_gib:
    description:
      - GiB that stay free on the disks of the hub cache and of the Docker engine, from 0. A disk that carries the bundle alone may become full.
    type: int
    default: 20
  timeout:
    description:
      - Seconds after which it is given up. The next run goes on.
    type: int
    default: 14400
  made_by:
    description:
      - What an export notes as its maker. The action plugin fills in the collection's version.
    type: str
    default: gb10.cluster
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters. How far it is stands there while it runs, and the locks that keep others out
        of the same directory, cache and engine.
    type: path
    default: /var/lib/gb10
  lock_id:
    description:
      - Id of the cluster's lock that this run took (RV(gb10.cluster.cluster_lock#module:lock)). Before it writes anything, the module makes sure that the lock
        on this node still is that one. With an empty one nothing is checked.
    type: str
    default: ""
seealso:
  - module: gb10.cluster.image_copy
  - module: gb10.cluster.model_copy
  - module: gb10.cluster.model_info
"""

EXAMPLES = r"""
- name: Export
  gb10.cluster.bundle:
    state: exported
    path: /mnt/ssd/nemotron
    profile: nemotron_3_super_tp2
    image: gb10/engine:ray
    base_image: nvcr.io/nvidia/vllm:26.05-py3
    repositories: "{{ lookup('gb10.cluster.profile', 'nemotron_3_super_tp2') | gb10.cluster.repositories }}"
    hf_home: /home/spark/.cache/huggingface
  become: true

- name: Import on the head of a cluster without Internet
  gb10.cluster.bundle:
    state: imported
    path: /mnt/ssd/nemotron
    profile: nemotron_3_super_tp2
    image: gb10/engine:ray
    base_image: nvcr.io/nvidia/vllm:26.05-py3
    repositories: "{{ lookup('gb10.cluster.profile', 'nemotron_3_super_tp2') | gb10.cluster.repositories }}"
    hf_home: /home/spark/.cache/huggingface
  become: true
"""

RETURN = r"""
bundle:
  description: What the bundle is, or would be.
  returned: success
  type: dict
  contains:
    path:
      description: Its directory.
      type: str
      sample: /mnt/ssd/nemotron
    digest:
      description:
        - The sha256 of its list, C(bundle.json), which has the sha256 of every file. Who exported it can tell it to who imports, by another way than the
          disk. Empty in check mode for one that is not whole.
      type: str
      sample: 5b1f0c3a9d2e4f60718293a4b5c6d7e8f901234567890abcdef0123456789abc
    profile:
      description: Id of the profile that it is for.
      type: str
      sample: nemotron_3_super_tp2
    made_by:
      description: The collection that wrote it.
      type: str
      sample: gb10.cluster 0.2.0
    made_at:
      description: When it became whole, in UTC. Empty in check mode for one that is not.
      type: str
      sample: "2026-11-23T18:00:00Z"
    image:
      description: The node image by its tag.
      type: str
      sample: gb10/engine:ray
    image_config:
      description: The sha256 of its configuration, which is its id in an engine with the classic image store.
      type: str
      sample: sha256:8f1e0b5d0f4c4a5e
    base_digest:
      description: The base by the digest under which the exporting node's engine pulled it, empty where that is not known.
      type: str
      sample: nvcr.io/nvidia/vllm@sha256:4a1c
    recipe:
      description: The digest of the recipe that the image was built by, empty for one that was not built by this collection.
      type: str
      sample: 1f0c3f3d
    models:
      description: The repositories with their revisions.
      type: list
      elements: str
      sample: [nvidia/Qwen3.8-27B-NVFP4@50307d4c4cde]
    wheels:
      description: How many packages of the image's own layer it has.
      type: int
      sample: 14
    files:
      description: How many files it has.
      type: int
      sample: 61
    bytes:
      description: Their bytes.
      type: int
      sample: 104371298048
written:
  description: The files that were written into the bundle, or would be; with O(state=imported) those that were read of it.
  returned: success
  type: list
  elements: str
  sample: [hub/models--nvidia--Qwen3.8-27B-NVFP4/blobs/5b1f0c3a9d2e]
bytes:
  description: The bytes of RV(written), or those that were read with O(state=verified).
  returned: success
  type: int
  sample: 80371298048
seconds:
  description: Seconds that it took.
  returned: success
  type: float
  sample: 412.5
image_id:
  description: The id of the node image in this node's engine, null when it is not there.
  returned: success
  type: str
  sample: sha256:8f1e0b5d0f4c4a5e
left_out:
  description: Names of images of the bundle that do not come, since this node's kind of image store would take them for other ones than the base.
  returned: O(state=imported)
  type: list
  elements: str
  sample: []
other_texts:
  description: Names of O(texts) that differ from those of the bundle, or that one of both lacks.
  returned: O(state=imported)
  type: list
  elements: str
  sample: []
unlisted:
  description: Files of an earlier export into the directory that this bundle does not have any more. They stay.
  returned: O(state=exported)
  type: list
  elements: str
  sample: []
"""

import contextlib
import json
import os
import shutil
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content, image_part, model_part, wheel_part
from ansible_collections.gb10.cluster.plugins.module_utils._bundle.place import GIB, Item, Place, Progress, damaged, full, require_space
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._docker import image_store
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._files.copy_job import Note, alone
from ansible_collections.gb10.cluster.plugins.module_utils._host.disk import disk, nearest_existing
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_copying, image_identity, images
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run

#: Where the packages of a bundle lie, below that directory.
WHEELS = "wheels"
#: Seconds that pip gets to download packages.
WHEELS_SECONDS = 1800
#: What differs between two exports of the same things.
_OF_EXPORT = ("made_at", "made_by")

Params = dict[str, t.Any]
Result = dict[str, t.Any]


def wheels_dir(params: Params) -> str | None:
    """Return where the packages of a bundle lie on this node."""
    return os.path.join(params["state_dir"], WHEELS) if params["wheels"] else None


def engine_of(params: Params) -> EngineApi:
    """Return the way to this node's engine."""
    return EngineApi(params["docker_socket"], params["docker_timeout"])


def summary(path: str, manifest: content.Manifest, digest: str) -> dict[str, t.Any]:
    """Return what a result says of a bundle, whose list has this sha256."""
    image, rows = manifest["image"], content.rows_of(manifest)
    return {
        "path": path,
        "digest": digest,
        "profile": manifest["profile"],
        "made_by": str(manifest.get("made_by") or ""),
        "made_at": str(manifest.get("made_at") or ""),
        "image": str(image.get("tag") or ""),
        "image_config": str(image["images"][0]["config"][0]),
        "base_digest": str(image.get("base_digest") or ""),
        "recipe": str((image.get("labels") or {}).get(image_identity.LABEL_RECIPE) or ""),
        "models": [f"{model['repo']}@{str(model['revision'])[:12]}" if model["revision"] else str(model["repo"]) for model in manifest["models"]],
        "wheels": sum(row.path.startswith(f"{content.WHEELS}/") for row in rows),
        "files": len(rows),
        "bytes": sum(row.size for row in rows),
    }


# -- export ----------------------------------------------------------------------------------------------------------


def wanted_of(module: AnsibleModule, place: Place, stack: contextlib.ExitStack) -> tuple[content.Manifest, list[Item]]:
    """Return the manifest of the bundle, without its files, and what these are. What is made for them lies there as long as ``stack`` is open."""
    params, api = module.params, engine_of(module.params)
    image, items = image_part.exported(api, params["image"], params["base_image"] or "", place)
    base = api.image(params["base_image"]) if params["base_image"] else None
    pulled = images.by_digest(params["base_image"], base.get("RepoDigests") or []) if base else ""
    image["base_digest"] = pulled or image["labels"].get("io.gb10.base_digest", "")
    models, files = model_part.exported(params["hf_home"], params["repositories"])
    texts = [image_part.small(f"{content.PROFILE}/{name}", str(text).encode()) for name, text in sorted(params["texts"].items())]
    wrong = [one.path for one in texts if not content.is_path(one.path)]
    if wrong:
        raise ClusterError(f"texts: {content.named(wrong)} does not name a file", remedy="Give names below a directory.", reason="input")
    lock = lock_of(image["labels"]) if params["wheels"] else []
    wheels, lost = wheel_part.exported(lock, place, None)
    if lost and not module.check_mode:
        directory = os.path.join(params["state_dir"], f"bundle-{params['cluster_name']}.wheels")
        # What an export that was killed left there.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory)
        private.ensure(directory)
        stack.callback(shutil.rmtree, directory)
        # A container writes there, which can change the mode of what it has mounted: that of the directory above it stays.
        below = os.path.join(directory, content.WHEELS)
        os.mkdir(below)
        wheel_part.fetch(api, image["id"], lost, below, params["pip_env"], params["ca_file"], WHEELS_SECONDS)
        wheels, lost = wheel_part.exported(lock, place, below)
        if lost:
            raise ClusterError(f"pip did not download {content.named(lost)}", remedy="Leave them out: -e gb10_bundle_wheels=false", reason="no packages")
    manifest = {"format": content.FORMAT, "profile": params["profile"], "image": image, "models": models}
    # As it will be read again, to be compared with what is there.
    return json.loads(content.text_of(manifest)), [*items, *texts, *wheels, *files]


def lock_of(labels: dict[str, str]) -> list[str]:
    """Return the packages that pip added to an image of ours, none for another one."""
    base = image_identity.base_of(labels)
    return base["lock"] if base else []


def floor_of(params: Params, path: str) -> int:
    """Return the bytes that stay free on the disk of a bundle: none on one that holds neither this node's system, nor its images, nor its models."""
    own = [nearest_existing(one) for one in ("/", params["hf_home"], params["state_dir"])]
    return params["disk_floor_gib"] * GIB if os.stat(nearest_existing(path)).st_dev in {os.stat(one).st_dev for one in own} else 0


def exported(module: AnsibleModule, note: Note) -> Result:
    with contextlib.ExitStack() as stack:
        return export(module, note, stack)


def export(module: AnsibleModule, note: Note, stack: contextlib.ExitStack) -> Result:
    params, path = module.params, module.params["path"]
    until, began = time.monotonic() + params["timeout"], time.monotonic()
    above = os.path.dirname(path.rstrip("/"))
    if not os.path.isdir(above):
        raise ClusterError(f"{above} is not there", expected="a directory, such as a mounted disk", remedy="Mount the disk, or make it.", reason="absent")
    place = Place(path, content.look(path))
    manifest, items = wanted_of(module, place, stack)
    rows = {item.path: place.has(item) for item in items}
    missing = [item for item in items if rows[item.path] is None]
    taken = place.strangers(missing)
    if taken:
        raise ClusterError(
            f"{path} has {len(taken)} file(s) that its list does not know: {content.named(taken)}; nothing was replaced",
            remedy="Move them away, or export into a new directory.",
            reason="other content",
            files=taken,
        )
    before = {word: value for word, value in (place.seen.manifest or {}).items() if word not in _OF_EXPORT}
    size = sum(item.size for item in missing)
    same = not missing and before == {**manifest, "files": files_of(rows)}
    unlisted, digest = sorted(set(place.seen.files) - set(rows)), place.seen.digest if same else ""
    if not same and not module.check_mode:
        require_space(path, disk(path)["free_bytes"], size, floor_of(params, path), "the bundle")
        cluster_locks.check_held(cluster_locks.path_of(params["state_dir"], params["cluster_name"]), params["lock_id"])
        with full_disk(path):
            place.begin()
            tick = Progress(size, until, note)
            for item in missing:
                rows[item.path] = place.write(item, tick)
            made_at = utc_text()
            manifest = {**manifest, "files": files_of(rows), "made_at": made_at, "made_by": params["made_by"]}
            place.finish(manifest)
            digest = content.sha256_of(content.text_of(manifest).encode())
    elif same:
        manifest = place.seen.manifest or manifest
    else:
        require_space(path, disk(path)["free_bytes"], size, floor_of(params, path), "the bundle")
        predicted = [content.Row(item.path, item.size, item.sha256 or "0" * 64, item.mtime) for item in items]
        manifest = {**manifest, "files": [row._asdict() for row in predicted], "made_by": params["made_by"]}
    said = f"{len(missing)} file(s), {size / GIB:.1f} GiB, {'would be written' if module.check_mode else 'written'} to {path}"
    return {
        "changed": not same,
        "bundle": summary(path, manifest, digest),
        "written": [item.path for item in missing],
        "bytes": size,
        "seconds": round(time.monotonic() - began, 1),
        "image_id": manifest["image"]["id"],
        "unlisted": unlisted,
        "msg": f"{path} has all of it" if same else said,
        "reason": "names, sizes and times are those of this node" if same else "the bundle lacks it",
        "actions": [] if same else [f"write {item.path}: {item.size} bytes" for item in missing] or [f"write {content.MANIFEST}"],
        "diff": {"before": {}, "after": {} if same else {"files": [item.path for item in missing]}},
    }


def files_of(rows: dict[str, content.Row | None]) -> list[dict[str, t.Any]]:
    """Return the files of a manifest."""
    return [row._asdict() for _path, row in sorted(rows.items()) if row]


@contextlib.contextmanager
def full_disk(path: str) -> t.Iterator[None]:
    """Say it when a disk is full. Raises :class:`ClusterError`."""
    try:
        yield
    except OSError as error:
        said = full(error, path)
        if said is None:
            raise
        raise said from error


# -- import ----------------------------------------------------------------------------------------------------------


class Lacks(t.NamedTuple):
    """What this node lacks of a bundle."""

    image: image_part.Wanted
    models: list[model_part.Wanted]
    wheels: list[content.Row]

    def __bool__(self) -> bool:
        return bool(self.image.images or self.models or self.wheels)


def require_profile(params: Params, manifest: content.Manifest) -> None:
    """Raise :class:`ClusterError` for a bundle of another profile, or of other images."""
    if manifest["profile"] != params["profile"]:
        raise ClusterError(
            f"the bundle {params['path']} is for the profile {manifest['profile']}",
            expected=params["profile"],
            remedy=f"Import it with -e gb10_profile={manifest['profile']}, or export one with the profile {params['profile']}.",
            reason="other profile",
        )
    names = {name for one in image_part.images_of(manifest) for name in one.names}
    if params["image"] not in names or names - {params["image"], params["base_image"]}:
        raise ClusterError(
            f"the bundle {params['path']} has the image(s) {', '.join(sorted(names))}",
            expected=f"{params['image']}, as the profile {params['profile']} of this controller says",
            remedy="Use the profile that the bundle was made with: it lies in the bundle, below profile.",
            reason="other profile",
        )


def lacks_of(params: Params, place: Place, manifest: content.Manifest, info: dict[str, t.Any]) -> Lacks:
    """Return what this node lacks; nothing is read but names, sizes and times."""
    rows = {row.path: row for row in content.rows_of(manifest)}
    models = model_part.wanted(params["hf_home"], model_part.asked(manifest["models"], params["repositories"]), rows)
    image = image_part.wanted(engine_of(params), manifest, info, params["replace"])
    return Lacks(image, models, wheel_part.wanted(wheels_dir(params), list(rows.values())))


def reads(lacks: Lacks, rows: dict[str, content.Row]) -> list[content.Row]:
    """Return the files of the bundle that come, each once."""
    of_image = [rows[image_part.blob_name(digest)] for one in lacks.image.images for digest, _size in one.layers[lacks.image.have:]]
    of_image += [rows[image_part.blob_name(one.config[0])] for one in lacks.image.images]
    of_models = [row for one in lacks.models for row in model_part.rows_of(one, rows)]
    return list(dict.fromkeys([*of_image, *of_models, *lacks.wheels]))


def require_room(params: Params, lacks: Lacks, info: dict[str, t.Any]) -> None:
    """Raise :class:`ClusterError` when a disk has not enough room for all that comes to it."""
    root = str(info.get("DockerRootDir"))
    needed: dict[int, tuple[str, int]] = {}
    parts = [(root, image_part.space(lacks.image))]
    parts += [(one.repository.path, one.repository.lack.size) for one in lacks.models]
    for path, size in parts:
        device = os.stat(nearest_existing(path)).st_dev
        needed[device] = (needed.get(device, (path, 0))[0], needed.get(device, (path, 0))[1] + size)
    for path, size in needed.values():
        if size:
            require_space(path, disk(path)["free_bytes"], size, params["disk_floor_gib"] * GIB, "what comes from the bundle")


def imported(module: AnsibleModule, note: Note) -> Result:
    params, path = module.params, module.params["path"]
    until, began = time.monotonic() + params["timeout"], time.monotonic()
    api = engine_of(params)
    info = api.get("/info")
    seen = content.look(path)
    manifest = content.require_whole(path, seen)
    require_profile(params, manifest)
    image_part.require_architecture(manifest, info)
    place, rows = Place(path, seen), {row.path: row for row in content.rows_of(manifest)}
    lacks = lacks_of(params, place, manifest, info)
    needed = reads(lacks, rows)
    place.require_there(needed)
    require_room(params, lacks, info)
    if lacks and not module.check_mode:
        cluster_locks.check_held(cluster_locks.path_of(params["state_dir"], params["cluster_name"]), params["lock_id"])
        hub = os.path.join(params["hf_home"], "hub")
        with contextlib.ExitStack() as stack:
            stack.enter_context(alone(copying.lock_path(params["state_dir"], hub), params["timeout"], note, "this cache", ""))
            stack.enter_context(alone(image_copying.lock_path(params["state_dir"]), params["timeout"], note, "this engine", ""))
            # Another copy may have brought some of it meanwhile.
            lacks = lacks_of(params, place, manifest, info)
            needed = reads(lacks, rows)
            act(params, place, rows, lacks, Progress(sum(row.size for row in needed), until, note), note)
    size = sum(row.size for row in needed)
    texts = {row.path: row.sha256 for row in rows.values() if row.path.startswith(f"{content.PROFILE}/")}
    own = {f"{content.PROFILE}/{name}": content.sha256_of(str(text).encode()) for name, text in params["texts"].items()}
    here = api.image(params["image"])
    done = "would be imported" if module.check_mode else "imported and compared"
    out = f"; {', '.join(lacks.image.left_out)} was left out: this engine would not know it as the image's base" if lacks.image.left_out else ""
    return {
        "changed": bool(lacks),
        "bundle": summary(path, manifest, seen.digest),
        "written": [row.path for row in needed],
        "bytes": size,
        "seconds": round(time.monotonic() - began, 1),
        "image_id": here["Id"] if here else None,
        "left_out": lacks.image.left_out,
        "other_texts": sorted(name for name in {*texts, *own} if texts.get(name) != own.get(name)),
        "msg": (f"{len(needed)} file(s), {size / GIB:.1f} GiB, {done}" if lacks else "all of it is here") + out,
        "reason": "this node lacks it" if lacks else "names, sizes and the image's configuration are those of the bundle",
        "actions": actions(lacks),
        "diff": {"before": {"images": lacks.image.before}, "after": {"images": {name: one.config[0] for one in lacks.image.images for name in one.names}}}
        if lacks else {},
    }  # fmt: skip


def actions(lacks: Lacks) -> list[str]:
    """Return what an import does, in words."""
    said = [f"load {', '.join(one.names)}" for one in lacks.image.images]
    said += [f"write {one.repository.repo}: {len(one.repository.lack.files)} file(s), {one.repository.lack.size} bytes" for one in lacks.models]
    return [*said, *([f"write {len(lacks.wheels)} package(s)"] if lacks.wheels else [])]


def act(params: Params, place: Place, rows: dict[str, content.Row], lacks: Lacks, tick: Progress, note: Note) -> None:
    """Bring it: the image first, whose engine takes it whole or not at all."""
    api = engine_of(params)
    info = api.get("/info")
    if lacks.image.images:
        store = image_store.store_of(info)
        stream = image_part.stream(place, rows, store, lacks.image)
        image_copying.load(api, stream, image_part.stream_bytes(lacks.image), params["timeout"], note)
        tick.done += sum(row.size for row in reads(lacks._replace(models=[], wheels=[]), rows))
        for one in lacks.image.images:
            for name in one.names:
                here = api.image(name)
                if here is None or not image_part.is_one(api, here, one, info):
                    raise ClusterError(
                        f"{name} is {here['Id'] if here else 'absent'} after the import",
                        expected=one.id_in(store),
                        remedy="Somebody else tags or removes images here. Find out who, and run again.",
                        reason="other content",
                    )
    for model in lacks.models:
        model_part.imported(model, place, rows, tick)
    wheel_part.imported(wheels_dir(params), place, lacks.wheels, tick)


# -- verify ----------------------------------------------------------------------------------------------------------


def verified(module: AnsibleModule, note: Note) -> Result:
    params, path = module.params, module.params["path"]
    until, began = time.monotonic() + params["timeout"], time.monotonic()
    seen = content.look(path)
    manifest = content.require_whole(path, seen)
    place, rows = Place(path, seen), content.rows_of(manifest)
    place.require_there(rows)
    size = sum(row.size for row in rows)
    wrong = place.wrong(rows, Progress(size, until, note))
    if wrong:
        raise damaged(path, wrong)
    return {
        "changed": False,
        "bundle": summary(path, manifest, seen.digest),
        "written": [],
        "bytes": size,
        "seconds": round(time.monotonic() - began, 1),
        "image_id": None,
        "msg": f"all {len(rows)} file(s) of {path} are what was exported, {size / GIB:.1f} GiB read",
        "reason": "each file has the sha256 that the list says",
    }


def work(module: AnsibleModule) -> Result:
    params = module.params
    require_least(params, {"timeout": 1, "disk_floor_gib": 0})
    if not os.path.isabs(params["path"]):
        raise ClusterError(f"path is {params['path']!r}", expected="an absolute path on this node", remedy="Correct gb10_bundle_dir.", reason="input")
    wrong = [one["repo"] for one in params["repositories"] if not model_files.is_directory(one["repo"]) and one["repo"].count("/") != 1]
    if wrong:
        raise ClusterError(f"repositories: {wrong[0]!r} is neither ORG/NAME nor a directory", remedy="Correct the profile.", reason="input")
    note = Note(content.note_path(params["state_dir"], params["cluster_name"]))
    act_of = {"exported": exported, "imported": imported, "verified": verified}[params["state"]]
    try:
        if module.check_mode or params["state"] == "verified":
            return act_of(module, note)
        with alone(content.lock_path(params["state_dir"], params["path"]), params["timeout"], note, "this bundle", ": it goes on with what is whole"):
            return act_of(module, note)
    except OSError as error:
        said = full(error, str(error.filename or params["path"]))
        raise said or ClusterError(
            f"{error.filename or params['path']}: {error.strerror}", remedy="Run the task with become: true.", reason="permission"
        ) from error
    finally:
        if not module.check_mode:
            note.remove()


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["exported", "imported", "verified"], "required": True},
            "path": {"type": "path", "required": True},
            "profile": {"type": "str", "required": True},
            "image": {"type": "str", "required": True},
            "base_image": {"type": "str"},
            "repositories": {**model_files.REPOSITORIES, "required": True},
            "hf_home": {"type": "path", "required": True},
            "texts": {"type": "dict", "default": {}},
            "wheels": {"type": "bool", "default": True},
            "pip_env": {"type": "dict", "default": {}},
            "ca_file": {"type": "path"},
            "replace": {"type": "bool", "default": False},
            "disk_floor_gib": {"type": "int", "default": 20},
            "timeout": {"type": "int", "default": content.TIMEOUT},
            "made_by": {"type": "str", "default": "gb10.cluster"},
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": content.STATE_DIR},
            "lock_id": {"type": "str", "default": ""},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
