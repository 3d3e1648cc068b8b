#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_inventory_info
short_description: List a node's models and their users
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Lists every revision of every repository in a hub cache, with its size, its missing files, and the space that its removal would free. Revisions share
    unchanged files, so that space may be less than the size.
  - Files that belong to no revision, such as those of unfinished downloads, are a separate entry, with the revision V(leftovers).
  - Lists the models in further directories, which may be other hub caches or plain ones. A directory with a C(config.json) is a model, and so are
    weights outside of any such directory.
  - Shows who uses a model now. That is an engine or any other process that names it, or has one of its files open. Parts of engines whose model no
    command line names are RV(unnamed), because they may use any.
  - Shows the last run of this collection that loaded a model, according to the node's notes.
  - No link is followed out of a repository or directory. Anything that the hub's client would not create is a doubt. The search ends at O(max_files) and
    O(max_seconds).
  - It only reads, and needs only Python's standard library.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._look
options:
  hf_home:
    description:
      - The directory that contains C(hub/), the cluster's own cache.
    type: path
    required: true
  directories:
    description:
      - Further directories to list. Each may have the patterns C(*), C(?) and C([).
    type: list
    elements: path
    default: []
  models:
    description:
      - Directories that are models, such as those that profiles name by a path. One that is not inside another listed model is a separate entry.
    type: list
    elements: path
    default: []
  state_dir:
    description:
      - Directory on the node for the state of the collection's clusters.
    type: path
    default: /var/lib/gb10
  max_files:
    description:
      - Maximum number of files and directories to search.
    type: int
    default: 200000
  max_seconds:
    description:
      - Maximum seconds for the search.
    type: int
    default: 120
seealso:
  - module: gb10.cluster.model_remove
  - module: gb10.cluster.model_info
"""

EXAMPLES = r"""
- name: List the models on this node
  gb10.cluster.model_inventory_info:
    hf_home: /home/spark/.cache/huggingface
    directories: [/home/spark/models]
  become: true
  register: inventory

- name: Show how much space their removal would free
  ansible.builtin.debug:
    msg: "{{ dict(inventory.models | map(attribute='path') | zip(inventory.models | map(attribute='frees'))) }}"
"""

RETURN = r"""
models:
  description: One entry for each revision, for the leftovers of each repository, and for each model in a plain directory.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: V(hub), or V(directory) for a model in a plain one.
      type: str
    root:
      description: The cache or directory that it was found in.
      type: str
    own:
      description: Whether it is in O(hf_home).
      type: bool
    repo:
      description: The repository. Null for a plain directory.
      type: str
    revision:
      description: The commit, V(leftovers), or null for a plain directory and for a repository that could not be read.
      type: str
    refs:
      description: The names of refs that point to it.
      type: list
      elements: str
    complete:
      description: Whether an engine could load it. Null if that cannot be judged without reading it, such as for GGUF files.
      type: bool
    missing:
      description: The files that are absent or unusable. For leftovers, the unfinished downloads.
      type: list
      elements: str
    broken:
      description: Links of the revision whose file is absent.
      type: list
      elements: str
    files:
      description: Number of its files.
      type: int
    bytes:
      description: Size of its files, each counted once.
      type: int
    frees:
      description: Bytes that are freed if only this entry is removed. 0 for a plain directory, which is never removed.
      type: int
    written:
      description: Time of the last write to any part of it, in UTC.
      type: str
    path:
      description: Its path.
      type: str
    named:
      description: Those of O(models) that are it, are inside it or contain it, with links followed.
      type: list
      elements: str
    in_use:
      description: Its current users.
      type: list
      elements: str
    last_run:
      description: The last run of this collection that loaded it, as C(cluster), C(run_id), C(started_at) and C(live). Null if none is recorded.
      type: dict
    doubts:
      description: Why it is only partly known. Such a model is never removed.
      type: list
      elements: str
  sample:
    - kind: hub
      root: /home/spark/.cache/huggingface
      own: true
      repo: nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4
      revision: 2f9d4a0c3b5e6f708192a3b4c5d6e7f801234567
      refs: [main]
      complete: true
      missing: []
      broken: []
      files: 31
      bytes: 80371298048
      frees: 80371302400
      written: "2026-11-20T08:12:44Z"
      path: /home/spark/.cache/huggingface/hub/models--nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4/snapshots/2f9d4a0c3b5e6f708192a3b4c5d6e7f801234567
      named: []
      in_use: ["the engine of cluster gb10 (run 20261122T100102Z-0a1b)"]
      last_run: {cluster: gb10, run_id: 20261122T100102Z-0a1b, started_at: "2026-11-22T10:01:04Z", live: true}
      doubts: []
bytes:
  description: Size of all their files, each counted once.
  returned: success
  type: int
  sample: 80371298048
absent:
  description: Directories of O(directories) and O(models) that do not exist.
  returned: success
  type: list
  elements: str
  sample: []
unnamed:
  description: Parts of engines on this node that may use any model, because no command line on this node names theirs, as C(text) and C(stack).
  returned: success
  type: list
  elements: dict
  sample: []
named_stacks:
  description:
    - The stacks of multi-node engines whose model a command line on this node names. Their parts on other nodes use that one.
  returned: success
  type: list
  elements: str
  sample: ["ray 10.0.0.11:6379"]
errors:
  description: What could not be read, as C(section) (V(hf_home), V(directories) or V(processes)), C(verdict), C(error) and C(remedy).
  returned: success
  type: list
  elements: dict
  sample: []
"""

import functools
import os
import stat
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._engine import model_use
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._model import hub_caches, inventory, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections


def of_cache(root: str, limits: inventory.Limits, uses: model_use.Uses, section: Section) -> tuple[list[dict[str, t.Any]], int]:
    """Return the models of a hub cache, and the bytes of all its files. An error is recorded, and its repository is listed as only partly known."""
    models, size = [], 0
    for relative in section(functools.partial(inventory.repositories, root), []):
        repository = section(functools.partial(inventory.read_repository, root, relative, limits))
        if repository is None:
            models.append({**inventory.unread(relative, root, "it could not be read as a whole"), "in_use": [], "last_run": None})
            continue
        size += repository.size()
        for entry in inventory.entries_of(repository, lambda path: section(functools.partial(hub_caches.judged, path), (None, []))):
            commit = entry["revision"]
            blobs = repository.leftovers() if commit == inventory.LEFTOVERS else repository.revisions[commit].blobs
            last = uses.last_run(entry["repo"], commit)
            models.append({**entry, "in_use": uses.of_repository(entry["repo"], commit, blobs), "last_run": last.view() if last else None})
    return models, size


def of_directory(root: str, limits: inventory.Limits, uses: model_use.Uses, proc: str, section: Section) -> tuple[list[dict[str, t.Any]], int]:
    """Return the models of a plain directory, and their bytes."""
    entries = section(lambda: list(limits.counted(untrusted.walk(root))), [])
    models = inventory.plain_models(root, entries, lambda path: section(functools.partial(hub_caches.judged, path), (None, [])))
    return [{**model, "in_use": uses.of_directory(model["path"], proc), "last_run": None} for model in models], sum(model["bytes"] for model in models)


def is_directory(path: str) -> bool:
    """Return whether a path is a directory. Raises :class:`UnknownState` when that cannot be determined."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise model_files.unreadable(path, error) from error


def of_named(path: str, limits: inventory.Limits, uses: model_use.Uses, proc: str, section: Section) -> dict[str, t.Any]:
    """Return the entry of a directory that is a model. An error is recorded, and the model is listed as only partly known."""
    entries = section(lambda: list(limits.counted(untrusted.walk(path))))
    if entries is None:
        model = {**inventory.unread("", path, "it could not be read as a whole"), "kind": "directory", "repo": None, "path": path}
    else:
        model = inventory.named_model(path, entries, lambda at: section(functools.partial(hub_caches.judged, at), (None, [])))
    return {"root": path, "own": False, **model, "in_use": uses.of_directory(path, proc), "last_run": None}


def add_named(paths: t.Iterable[str], models: list[dict[str, t.Any]], look: t.Callable[[str], dict[str, t.Any]], section: Section) -> tuple[list[str], int]:
    """Add to each model which of ``paths`` lead to it, and append a model for each path that leads to none. Return the absent paths, and the added bytes."""
    absent, size = [], 0
    for model in models:
        model["named"] = []
    for path in dict.fromkeys(paths):
        there = section(functools.partial(is_directory, path))
        if there is False:
            absent.append(path)
        real = os.path.realpath(path)
        places = [(model, os.path.realpath(model["path"])) for model in models]
        for model, at in places:
            if inventory.leads(real, at):
                model["named"].append(path)
        if there and not any(inventory.leads(real, at) and not at.startswith(f"{real}/") for dummy, at in places):
            model = look(path)
            inner = sum(other["bytes"] for other, at in places if other["kind"] == "directory" and inventory.leads(real, at))
            size += max(0, model["bytes"] - inner)
            models.append({**model, "named": [path]})
    return absent, size


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params, sections = module.params, Sections()
    require_least(params, {"max_files": 1, "max_seconds": 1})
    own, further, proc = sections.section("hf_home"), sections.section("directories"), params["roots"]["proc_root"]
    uses = model_use.read(params["state_dir"], proc)
    sections.read("processes", uses.require_all_asked)
    limits = inventory.Limits(params["max_files"], params["max_seconds"])
    models, absent, size = [], [], 0
    seen: set[str] = set()
    for root in [params["hf_home"], *(path for pattern in params["directories"] for path in hub_caches.expanded(pattern, further))]:
        real = os.path.realpath(root)
        if real in seen:
            continue
        section = further if seen else own
        if seen and not os.path.isdir(root):
            absent.append(root)
            continue
        if not seen or section(functools.partial(inventory.is_cache, root), False):
            listed, more = of_cache(root, limits, uses, section)
        else:
            listed, more = of_directory(root, limits, uses, proc, section)
        models += [{"root": root, "own": not seen, **model} for model in listed]
        size += more
        seen.add(real)
    named = functools.partial(of_named, limits=limits, uses=uses, proc=proc, section=further)
    without, more = add_named(params["models"], models, named, further)
    absent += [path for path in without if path not in absent]
    size += more
    models = [{**model, "written": utc_text(model["written"]) if model["written"] else None} for model in models]
    return {
        "msg": f"{len(models)} model(s), {size} bytes",
        "reason": "only looked",
        "models": inventory.printable(models),
        "bytes": size,
        "absent": inventory.printable(absent),
        "unnamed": [{"text": holder.text, "stack": holder.stack} for holder in uses.unnamed()],
        "named_stacks": uses.shared_stacks(),
        "errors": sections.errors,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "hf_home": {"type": "path", "required": True},
            "directories": {"type": "list", "elements": "path", "default": []},
            "models": {"type": "list", "elements": "path", "default": []},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "max_files": {"type": "int", "default": 200000},
            "max_seconds": {"type": "int", "default": 120},
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
