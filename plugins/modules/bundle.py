#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bundle
short_description: Transfer a node's image and models to a cluster without Internet in a directory
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - With O(state=exported) the module writes everything that a profile needs from this node into a directory. That is the engine's own export of the node
    image with its base, the repositories that the engine loads, in the hub's layout, the packages that pip added to the image, C(SHA256SUMS), and a
    C(README.md) with instructions to check and load it by hand.
  - With O(state=imported) this node loads what it lacks from such a directory, and the other nodes of its cluster copy that from here at the next bring-up.
    With O(state=verified) the whole bundle is read and compared.
  - A bundle consists of plain files, so a disk with any file system but FAT32 can store it. C(sha256sum --check SHA256SUMS) checks it.
  - It is written and read with C(docker), C(rsync) and C(sha256sum). Each file gets its name once it is complete. A killed export or import continues from
    the complete files. Until an export has finished C(bundle.unfinished) exists, and the bundle cannot be imported.
  - The image can move between both kinds of Docker's image stores. The classic one identifies an image by the sha256 of its configuration, containerd's by
    the sha256 of its manifest. The ids therefore differ, and two images are the same if their layers and their configuration are.
  - Only the objects that O(image), O(base_image) and O(repositories) name are imported. A bundle with links, with files that C(SHA256SUMS) does not list, with
    names that point out of it, or with images of other names is refused.
  - Existing files with other content are never replaced, on either side. A file that exists with the same name and size is not read again on either side.
  - The files read and written are dropped from the page cache.
requirements:
  - A Docker engine 20.10 or newer, and its program C(docker).
  - C(rsync) (Debian's package of that name), and C(ssh-keygen) (openssh-client) with O(signers).
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._cluster
attributes:
  check_mode:
    support: full
    details:
      - Nothing is written. RV(bytes) and C(msg) show what would be, or the failure shows why it could not. O(state=verified) still reads the bundle.
  diff_mode:
    support: full
options:
  state:
    description:
      - V(exported) writes the part of this node's image and models that the bundle lacks.
      - V(imported) loads the part of the bundle that this node lacks, and reads nothing else of it.
      - V(verified) reads the whole bundle, and fails with the names of the files that differ from the export.
    type: str
    choices: [exported, imported, verified]
    required: true
  path:
    description:
      - The bundle's directory on this node. For an export it may be absent or empty. Its parent directory must exist, such as a mounted disk.
    type: path
    required: true
  profile:
    description:
      - Id of the profile that the bundle is for.
    type: str
    required: true
  image:
    description:
      - The node image's tag.
    type: str
    required: true
  base_image:
    description:
      - The tag of the image that it was built on. It is included if it exists. An image named by a digest is not, because an engine does not export such a
        name.
    type: str
  repositories:
    description:
      - The repositories that the engine loads, from the hub cache or, for an absolute path, from that plain directory.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Its name in the profile.
        type: str
        default: model
      repo:
        description:
          - The repository's hub name, or a directory on the node.
        type: str
        required: true
      revision:
        description:
          - A commit, or a branch or tag. Without one it is C(main).
        type: str
      purpose:
        description:
          - Its purpose.
        type: str
        choices: [model, drafter, assistant, tokenizer, adapter, files]
        default: model
      files:
        description:
          - Names and patterns of the required files. Empty for all of them.
        type: list
        elements: str
        default: []
      side_files:
        description:
          - Additional files that must exist, relative to the repository.
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
        and RV(other_texts) lists those that differ.
    type: dict
    default: {}
  wheels:
    description:
      - Whether an export adds the packages that pip added to the image, as its label C(io.gb10.lock) names them by their hashes, and whether an import puts
        the bundle's packages into C(wheels) below O(state_dir). The image has them. As files they are for a build without Internet.
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
      - Whether the bundle's images get their names even if another image of this node has them. That image stays without the name.
    type: bool
    default: false
  signers:
    description:
      - The accepted signers of the bundle, as the content of an allowed signers file (C(ssh-keygen -Y)). An import and a verification fail for a bundle without
        a signature by one of them, in C(SHA256SUMS.sig) with the namespace C(file). If empty, no signature is checked.
    type: str
    default: ""
  disk_floor_gib:
    description:
      - GiB to keep free on the disks of the hub cache and of the Docker engine, from 0. A disk with only the bundle may become full.
    type: int
    default: 20
  timeout:
    description:
      - Seconds after which the module aborts. The next run continues.
    type: int
    default: 14400
  made_by:
    description:
      - The maker that an export records. The action plugin sets it to the collection's version.
    type: str
    default: gb10.cluster
  state_dir:
    description:
      - Directory on the node for the state of the collection's clusters. It contains the progress of a run, and locks on the directory, the cache and the
        engine.
    type: path
    default: /var/lib/gb10
  lock_id:
    description:
      - Id of the cluster lock that this run acquired (RV(gb10.cluster.cluster_lock#module:lock)). Before it writes anything, the module verifies that the lock
        on this node still has this id. With an empty value nothing is checked.
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
  description: The existing or future bundle.
  returned: success
  type: dict
  contains:
    path:
      description: Its directory.
      type: str
      sample: /mnt/ssd/nemotron
    digest:
      description:
        - The sha256 of its list, C(SHA256SUMS), which has the sha256 of every file. The exporting person can send it to the importing one separately from the
          disk. Empty in check mode for an incomplete bundle.
      type: str
      sample: 5b1f0c3a9d2e4f60718293a4b5c6d7e8f901234567890abcdef0123456789abc
    profile:
      description: Id of its profile.
      type: str
      sample: nemotron_3_super_tp2
    made_by:
      description: The collection that wrote it.
      type: str
      sample: gb10.cluster 0.2.0
    made_at:
      description: When it was completed, in UTC. Empty in check mode for an incomplete bundle.
      type: str
      sample: "2026-11-23T18:00:00Z"
    image:
      description: The node image's tag.
      type: str
      sample: gb10/engine:ray
    image_config:
      description: The sha256 of its configuration, which is its id in an engine with the classic image store. Empty in check mode for an incomplete bundle.
      type: str
      sample: sha256:8f1e0b5d0f4c4a5e
    base_digest:
      description: The digest by which the exporting node's engine pulled the base. Empty if unknown.
      type: str
      sample: nvcr.io/nvidia/vllm@sha256:4a1c
    recipe:
      description: The digest of the image's recipe. Empty for an image not built by this collection.
      type: str
      sample: 1f0c3f3d
    models:
      description: The repositories with their revisions.
      type: list
      elements: str
      sample: [nvidia/Qwen3.8-27B-NVFP4@50307d4c4cde]
    wheels:
      description: Number of packages of the image's own layer.
      type: int
      sample: 14
    files:
      description: Number of files.
      type: int
      sample: 61
    bytes:
      description: Their bytes.
      type: int
      sample: 104371298048
written:
  description: The files that were written into the bundle, or would be. With O(state=imported) the files that were read from it.
  returned: success
  type: list
  elements: str
  sample: [hub/models--nvidia--Qwen3.8-27B-NVFP4/snapshots/50307d4c4cde/config.json]
bytes:
  description: The bytes of RV(written), or the bytes read with O(state=verified).
  returned: success
  type: int
  sample: 80371298048
signed_by:
  description: The one of O(signers) who signed the bundle. Empty if none.
  returned: success
  type: str
  sample: maker@example.org
seconds:
  description: Seconds that it took.
  returned: success
  type: float
  sample: 412.5
image_id:
  description: The id of the node image in this node's engine. Null if it does not exist.
  returned: success
  type: str
  sample: sha256:8f1e0b5d0f4c4a5e
left_out:
  description: Names of images that are not imported, because this node's kind of image store would treat them as images other than the base.
  returned: O(state=imported)
  type: list
  elements: str
  sample: []
other_texts:
  description: Names of O(texts) that differ from the bundle's, or are missing on one side.
  returned: O(state=imported)
  type: list
  elements: str
  sample: []
unlisted:
  description: Files from an earlier export into the directory that this bundle no longer needs. They stay, and C(SHA256SUMS) lists them.
  returned: O(state=exported)
  type: list
  elements: str
  sample: []
"""

import contextlib
import json
import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content, image_part, model_part, programs, wheel_part
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.copy_job import GIB, Note, alone, lock_path, note_path, require_space
from ansible_collections.gb10.cluster.plugins.module_utils._host.disk import disk, nearest_existing
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_copying, image_identity, image_loading, images
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import named
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run

#: Keys that differ between two exports of the same content.
_OF_EXPORT = ("made_at", "made_by")

Params = dict[str, t.Any]
Result = dict[str, t.Any]


def engine_of(params: Params) -> EngineApi:
    """Return a client of this node's Docker engine."""
    return EngineApi(params["docker_socket"], params["docker_timeout"])


def summary(path: str, about: content.About, names: t.Collection[str], size: int, digest: str) -> dict[str, t.Any]:
    """Return the summary of a bundle. ``size`` is the bytes of the files in ``names``, ``digest`` the SHA-256 of its list of files."""
    image = about["image"]
    return {
        "path": path,
        "digest": digest,
        "profile": about["profile"],
        "made_by": str(about.get("made_by") or ""),
        "made_at": str(about.get("made_at") or ""),
        "image": image["tag"],
        "image_config": next((entry.config for entry in images_of(path, image) if image_part.tagged(image["tag"]) in entry.names), "") if digest else "",
        "base_digest": str(image.get("base_digest") or ""),
        "recipe": str((image.get("labels") or {}).get(image_identity.LABEL_RECIPE) or ""),
        "models": [f"{model['repo']}@{str(model['revision'])[:12]}" if model["revision"] else str(model["repo"]) for model in about["models"]],
        "wheels": sum(name.startswith(f"{content.WHEELS}/") for name in names),
        "files": len(names),
        "bytes": size,
    }


def images_of(path: str, about: image_part.About) -> list[image_part.Image]:
    """Return the images of a bundle. Raises :class:`ClusterError` and OSError."""
    with untrusted.reader(path, about["archive"], own=False) as stream:
        return image_part.images_in(stream, os.path.join(path, about["archive"]))


def require_room(parts: t.Sequence[tuple[str, int, int]]) -> None:
    """Raise :class:`ClusterError` when a disk lacks room. Each part is a path, the bytes to write there, and the bytes that must stay free."""
    needed: dict[int, list[tuple[str, int, int]]] = {}
    for part in parts:
        needed.setdefault(os.stat(nearest_existing(part[0])).st_dev, []).append(part)
    for each in needed.values():
        path, size, floor = each[0][0], sum(part[1] for part in each), max(part[2] for part in each)
        if size:
            remedy = "Take a larger disk, or see what could go: ansible-playbook -i INVENTORY gb10.cluster.models, and gb10.cluster.prune"
            require_space(path, disk(path)["free_bytes"], size, round(floor / GIB), "for the bundle, or what comes from it,", remedy)


def result(module: AnsibleModule, began: float, written: t.Sequence[str], size: int, **more: t.Any) -> Result:
    """Return a result with the keys that all states share."""
    return {"written": list(written), "bytes": size, "seconds": round(time.monotonic() - began, 1), "signed_by": "", **more}


# -- export ----------------------------------------------------------------------------------------------------------


class Plan(t.NamedTuple):
    """The wanted content of a bundle: the image, the files of models and packages, small texts. ``missing`` and ``lacks_image`` show what it lacks."""

    image: image_part.Export
    lock: list[str]
    about: content.About
    items: list[model_part.Item]
    texts: dict[str, bytes]
    missing: list[model_part.Item]
    lacks_image: bool
    rewritten: list[str]

    @property
    def written(self) -> list[str]:
        """Return the files that this export writes."""
        return [*([self.image.about["archive"]] if self.lacks_image else []), *(item.path for item in self.missing), *self.rewritten]

    @property
    def size(self) -> int:
        """Return the approximate number of bytes that this export writes."""
        return self.image.size * self.lacks_image + sum(item.size for item in self.missing) + sum(len(self.texts[name]) for name in self.rewritten)


def plan_of(params: Params, seen: content.Seen, wheels: t.Sequence[model_part.Item]) -> Plan:
    """Return the plan of an export. ``wheels`` are packages to add. Raises :class:`ClusterError` when a file would be replaced, and OSError."""
    api, path = engine_of(params), params["path"]
    before = content.about_of(path, seen) if seen.what == "whole" else {}
    image = image_part.exported(api, params["image"], params["base_image"] or "")
    base = api.image(params["base_image"]) if params["base_image"] else None
    pulled = images.by_digest(params["base_image"], base.get("RepoDigests") or []) if base else ""
    models, items, refs = model_part.exported(params["hf_home"], params["repositories"])
    items += wheels
    image.about["base_digest"] = pulled or image.about["labels"].get("io.gb10.base_digest", "")
    # In the form in which it is read back, so that it can be compared with the present one.
    lock = wheel_part.lock_of(image.about["labels"]) if params["wheels"] else []
    about = {"format": content.FORMAT, "profile": params["profile"], "image": image.about, "models": models}
    about = json.loads(content.text_of({**about, "wheels": wheel_part.entries_of(lock, seen, wheels)}))
    if {word: value for word, value in before.items() if word not in _OF_EXPORT} == about:
        about = before
    else:
        about |= {"made_at": utc_text(), "made_by": params["made_by"]}
    readme = content.README_TEXT.format(profile=params["profile"], archive=image.about["archive"])
    texts = {f"{content.PROFILE}/{name}": str(text).encode() for name, text in params["texts"].items()}
    texts |= {**refs, content.README: readme.encode(), content.ABOUT: content.text_of(about)}
    wrong = [name for name in (*texts, *(item.path for item in items)) if not content.is_path(name)]
    if wrong:
        raise ClusterError(f"{named(wrong)} cannot be the name of a file in a bundle", remedy="Give it names without .., \\ or line breaks.", reason="input")
    other = [item.path for item in items if item.path in seen.files and not item.is_at(seen.files[item.path], seen.sums.get(item.path, ""))]
    if other:
        raise ClusterError(
            f"{path} has {len(other)} file(s) with the name of one of this export, and other content: {named(other)}; nothing was replaced",
            remedy="Export into a new directory.",
            reason="other content",
            files=other,
        )
    missing = [item for item in items if item.path not in seen.files]
    rewritten = sorted(name for name, text in texts.items() if name not in seen.files or seen.sums.get(name) != content.sha256_of(text))
    return Plan(image, lock, about, items, texts, missing, image.about["archive"] not in seen.files, rewritten)


def exported(module: AnsibleModule, note: Note) -> Result:
    params, path, began = module.params, module.params["path"], time.monotonic()
    programs.require("rsync", "docker", "sha256sum", "setpriv")
    above = os.path.dirname(path.rstrip("/"))
    if not os.path.isdir(above):
        raise ClusterError(f"{above} is not there", expected="a directory, such as a mounted disk", remedy="Mount the disk, or make it.", reason="absent")
    seen, api = content.look(path), engine_of(params)
    plan = plan_of(params, seen, [])
    lost = wheel_part.lost(plan.lock, seen.sums)
    same = not plan.written and not lost and seen.what == "whole"
    wheels_kept = [f"{content.WHEELS}/{wheel['path']}" for wheel in plan.about["wheels"]]
    kept = {plan.image.about["archive"], *(item.path for item in plan.items), *plan.texts, *wheels_kept}
    own = [nearest_existing(directory) for directory in ("/", params["hf_home"], params["state_dir"])]
    floor = params["disk_floor_gib"] * GIB
    on_own = os.stat(nearest_existing(path)).st_dev in {os.stat(directory).st_dev for directory in own}
    root = str(api.get("/info").get("DockerRootDir"))
    # Docker's classic store first writes a copy of what it exports to its own disk.
    spooled = plan.image.size if plan.lacks_image and plan.image.about["store"] == "classic" else 0
    require_room([(path, plan.size, floor if on_own else 0), (root, spooled, floor if spooled else 0)])
    sums, text = seen.sums, seen.text if same else b""
    if not same and not module.check_mode:
        cluster_locks.check_held(cluster_locks.path_of(params["state_dir"], params["cluster_name"]), params["lock_id"])
        with wheel_part.downloaded(api, plan.image.about["id"], lost, params) if lost else contextlib.nullcontext([]) as wheels:
            plan = plan_of(params, seen, wheels) if wheels else plan
            text = write(params, seen, plan, programs.Watch(params["timeout"], note))
        sums = content.sums_of(text, path)
    files = content.look(path).files if text and not same else seen.files
    message = f"{len(plan.written)} file(s), {plan.size / GIB:.1f} GiB, {'would be written' if module.check_mode else 'written'} to {path}"
    size = sum(files[name].st_size for name in sums) if text else plan.image.size + sum(item.size for item in plan.items)
    return result(
        module, began, plan.written, plan.size,
        changed=not same,
        bundle=summary(path, plan.about, sums if text else kept, size, content.sha256_of(text) if text else ""),
        image_id=plan.image.about["id"],
        unlisted=sorted(set(seen.sums) - kept),
        msg=f"{path} has all of it" if same else message,
        reason="names, sizes and times are those of this node" if same else "the bundle lacks it",
        actions=[f"write {name}" for name in plan.written],
        diff={"before": {}, "after": {} if same else {"files": plan.written}},
    )  # fmt: skip


def write(params: Params, seen: content.Seen, plan: Plan, watch: programs.Watch) -> bytes:
    """Write the missing files of a bundle, then its list of files, and return that list. Raises :class:`ClusterError` and OSError."""
    path, owner = params["path"], owners.owner_of(params["path"])
    content.write(path, content.UNFINISHED, b"", owner)
    with owners.acting_as(owner):
        with contextlib.suppress(FileNotFoundError):
            untrusted.remove_tree(path, content.PARTS)
        os.mkdir(os.path.join(path, content.PARTS))
    if plan.lacks_image:
        image_part.save(watch, engine_of(params), plan.image, path, owner)
    model_part.bring(watch, path, plan.missing, owner)
    for name in plan.rewritten:
        content.write(path, name, plan.texts[name], owner)
    files = set(content.look(path).files) - {content.UNFINISHED, content.SUMS, content.SIGNATURE}
    sums = {name: digest for name, digest in seen.sums.items() if name in files and name not in plan.rewritten}
    new = sorted(files - set(sums))
    watch.settle(path, [*(os.path.join(path, name) for name in new), *(os.path.join(item.source, item.name) for item in plan.missing)])
    sums |= watch.sha256(path, new, owner)
    again = {item.path: item for item in model_part.exported(params["hf_home"], params["repositories"])[1]}
    changed = [item.path for item in plan.missing if item.path in again and again[item.path] != item]
    spoiled = model_part.spoiled(path, [item for item in plan.items if item.path in new], sums, owner)
    if changed or spoiled:
        with owners.acting_as(owner):
            for name in {*changed, *spoiled}:
                untrusted.remove(path, name)
        if changed:
            raise ClusterError(
                f"{named(changed)} was changed while it was exported",
                remedy="See what writes there (a download, a person), let it end, and run again.",
                reason="source changed", files=changed,
            )
        raise ClusterError(
            f"{named(spoiled)} of this node is not what the hub names it",
            remedy="Read all of it on this node: --tags model -e gb10_model_verify=full names what is damaged and says how it is mended.",
            reason="wrong digest",
            files=spoiled,
        )
    lost = wheel_part.lost(plan.lock, sums)
    if lost:
        raise ClusterError(f"pip did not download {named(lost)}", remedy="Leave them out: -e gb10_bundle=export_without_packages", reason="no packages")
    text = content.sums_text(sums)
    content.sums_of(text, path)
    content.write(path, content.SUMS, text, owner)
    with owners.acting_as(owner):
        untrusted.remove_tree(path, content.PARTS)
        for name in (content.SIGNATURE, content.UNFINISHED):
            # A signature of the previous list is not valid for this one.
            with contextlib.suppress(FileNotFoundError):
                untrusted.remove(path, name)
    return text


# -- import ----------------------------------------------------------------------------------------------------------


class Lacks(t.NamedTuple):
    """The parts of a bundle that this node lacks. ``archive`` is the file with the image."""

    archive: str
    image: image_part.Wanted
    models: list[model_part.Wanted]

    def files(self) -> list[str]:
        """Return the files of the bundle that an import copies."""
        of_models = [f"{model.below}/{name}" for model in self.models for name in model.files()]
        return list(dict.fromkeys([*([self.archive] if self.image.names else []), *of_models]))

    def actions(self) -> list[str]:
        """Return the steps of an import as texts, none when this node lacks nothing."""
        writes = [f"write {model.repository.repo}: {len(model.files())} file(s), {model.repository.lack.size} bytes" for model in self.models]
        return [*(f"load {name}" for name in self.image.names), *writes]


def lacks_of(params: Params, about: content.About, seen: content.Seen) -> Lacks:
    """Return what this node lacks. Only names, sizes and the image's own list are read from the bundle. Raises :class:`ClusterError` and OSError."""
    if about["profile"] != params["profile"]:
        raise ClusterError(
            f"the bundle {params['path']} is for the profile {about['profile']}",
            expected=params["profile"],
            remedy=f"Import it with -e gb10_profile={about['profile']}, or export one with the profile {params['profile']}.",
            reason="other profile",
        )
    models = model_part.asked(about["models"], params["repositories"])
    models += [wheel_part.model_of(params["state_dir"], about)] if params["wheels"] and about["wheels"] else []
    bundled = images_of(params["path"], about["image"])
    image_part.require_names(bundled, [params["base_image"] or "", params["image"]], f"the bundle {params['path']}")
    image = image_part.wanted(engine_of(params), about["image"], bundled, params["replace"])
    return Lacks(about["image"]["archive"], image, model_part.wanted(params["hf_home"], models, seen))


def imported(module: AnsibleModule, note: Note) -> Result:
    params, path, began = module.params, module.params["path"], time.monotonic()
    programs.require("rsync", "docker", "sha256sum", "setpriv")
    api, watch = engine_of(params), programs.Watch(params["timeout"], note)
    seen = content.look(path)
    who = content.signer(path, seen, params["signers"])
    about = content.about_of(path, seen)
    lacks = lacks_of(params, about, seen)
    floor, size = params["disk_floor_gib"] * GIB, seen.files[lacks.archive].st_size
    image = size * image_loading.TIMES.get(about["image"]["store"], 1) if lacks.image.names else 0
    root = str(api.get("/info").get("DockerRootDir"))
    require_room([(root, image, floor), *((model.repository.path, model.repository.lack.size, floor) for model in lacks.models)])
    if lacks.actions() and not module.check_mode:
        cluster_locks.check_held(cluster_locks.path_of(params["state_dir"], params["cluster_name"]), params["lock_id"])
        hub = os.path.join(params["hf_home"], "hub")
        with contextlib.ExitStack() as stack:
            stack.enter_context(alone(lock_path(params["state_dir"], copying.KIND, hub), params["timeout"], note, "this cache", ""))
            stack.enter_context(alone(image_copying.lock_path(params["state_dir"]), params["timeout"], note, "this engine", ""))
            # Another copy may have added some of it in the meantime.
            lacks = lacks_of(params, about, seen)
            act(params, seen, lacks, watch)
    files, actions = lacks.files(), lacks.actions()
    texts = {name: digest for name, digest in seen.sums.items() if name.startswith(f"{content.PROFILE}/")}
    own = {f"{content.PROFILE}/{name}": content.sha256_of(str(text).encode()) for name, text in params["texts"].items()}
    here, size = api.image(params["image"]), sum(seen.files[name].st_size for name in files)
    done = "would be imported" if module.check_mode else "imported and compared"
    out = f"; {', '.join(lacks.image.left_out)} was left out: this engine would not know it as the image's base" if lacks.image.left_out else ""
    after = {name: entry.config for entry in lacks.image.images for name in entry.names}
    return result(
        module, began, files, size,
        changed=bool(actions),
        bundle=summary(path, about, seen.sums, sum(seen.files[name].st_size for name in seen.sums), seen.digest),
        signed_by=who,
        image_id=here["Id"] if here else None,
        left_out=lacks.image.left_out,
        other_texts=sorted(name for name in {*texts, *own} if texts.get(name) != own.get(name)),
        msg=(f"{len(files)} file(s), {size / GIB:.1f} GiB, {done}" if actions else "all of it is here") + out,
        reason="this node lacks it" if actions else "names, sizes and the image's configuration are those of the bundle",
        actions=actions,
        diff={"before": {"images": lacks.image.before}, "after": {"images": after}} if actions else {},
    )  # fmt: skip


def act(params: Params, seen: content.Seen, lacks: Lacks, watch: programs.Watch) -> None:
    """Import what is missing, the image first: Docker loads it completely or not at all."""
    path = params["path"]
    if lacks.image.names:
        place = (path, lacks.archive, seen.sums[lacks.archive])
        image_part.load(watch, engine_of(params), place, lacks.image, [params["base_image"] or "", params["image"]])
        watch.settle(path, [os.path.join(path, lacks.archive)])
    for model in lacks.models:
        model_part.imported(watch, model, path, seen.sums)
        here = [os.path.join(model.repository.path, entry.path) for entry in model.repository.lack.files]
        watch.settle(model.repository.path, [*here, *(os.path.join(path, model.below, name) for name in model.files())])


# -- verify ----------------------------------------------------------------------------------------------------------


def verified(module: AnsibleModule, note: Note) -> Result:
    params, path, began = module.params, module.params["path"], time.monotonic()
    programs.require("sha256sum", "setpriv")
    seen, watch = content.look(path), programs.Watch(params["timeout"], note)
    who = content.signer(path, seen, params["signers"])
    about = content.about_of(path, seen)
    wrong = watch.wrong(path, seen.sums, owners.owner_of(path))
    watch.settle(path, [os.path.join(path, name) for name in seen.sums])
    if wrong:
        raise programs.damaged(path, wrong)
    size = sum(seen.files[name].st_size for name in seen.sums)
    return result(
        module, began, [], size,
        changed=False,
        bundle=summary(path, about, seen.sums, size, seen.digest),
        signed_by=who,
        image_id=None,
        msg=f"all {len(seen.sums)} file(s) of {path} are what was exported, {size / GIB:.1f} GiB read",
        reason="each file has the sha256 that the list says",
    )  # fmt: skip


def work(module: AnsibleModule) -> Result:
    params = module.params
    require_least(params, {"timeout": 1, "disk_floor_gib": 0})
    if not os.path.isabs(params["path"]):
        raise ClusterError(f"path is {params['path']!r}", expected="an absolute path on this node", remedy="Correct gb10_bundle_dir.", reason="input")
    repos = [repository["repo"] for repository in params["repositories"]]
    wrong = [repo for repo in repos if not model_files.is_directory(repo) and repo.count("/") != 1]
    if wrong:
        raise ClusterError(f"repositories: {wrong[0]!r} is neither ORG/NAME nor a directory", remedy="Correct the profile.", reason="input")
    note = Note(note_path(params["state_dir"], content.KIND, params["cluster_name"]))
    act_of = {"exported": exported, "imported": imported, "verified": verified}[params["state"]]
    try:
        if module.check_mode or params["state"] == "verified":
            return act_of(module, note)
        lock = lock_path(params["state_dir"], content.KIND, params["path"])
        with alone(lock, params["timeout"], note, "this bundle", ": it continues with the remaining files"):
            return act_of(module, note)
    except OSError as error:
        raise programs.failed("The module", str(error), str(error.filename or params["path"])) from error
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
            "signers": {"type": "str", "default": ""},
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
