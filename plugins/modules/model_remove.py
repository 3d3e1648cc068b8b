#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_remove
short_description: Remove revisions of models from a hub cache
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Removes exactly the revisions in O(models), and only from the hub cache in O(hf_home). Files that another revision shares stay.
  - Right before the removal, the cache and the node's processes are checked again. Nothing is removed if one of O(models) is in use or in O(keep), if
    an engine may use any model, if a download of its repository may still run, or if its repository is only partly known.
  - Files are removed first and the links to them last, so that an interrupted removal can be repeated. An absent revision is not a failure.
  - First acquire the cluster's lock (M(gb10.cluster.cluster_lock)), because an engine that starts next may need the model.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._look
  - gb10.cluster._cluster
  - gb10.cluster._cluster.state_dir
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  models:
    description:
      - The revisions to remove, each as C(REPO@REVISION). The revision is a full commit, or V(leftovers) for files that belong to no revision.
      - M(gb10.cluster.model_inventory_info) lists them.
    type: list
    elements: str
    required: true
  keep:
    description:
      - Revisions that must stay, each as C(REPO@REVISION) with the reason, such as models that engines on other nodes use.
    type: dict
    default: {}
  elsewhere:
    description:
      - Stacks of engines whose model another node names (RV(gb10.cluster.model_inventory_info#module:named_stacks)). Their parts on this node
        do not protect any other model.
    type: list
    elements: str
    default: []
  hf_home:
    description:
      - The directory that contains C(hub/).
    type: path
    required: true
  lock_id:
    description:
      - Id of the cluster lock that this run acquired (RV(gb10.cluster.cluster_lock#module:lock)). Before each repository the module verifies that the lock on
        this node still has this id. With an empty value nothing is checked.
    type: str
    default: ""
  max_files:
    description:
      - Maximum number of files and directories in one repository. With more it counts as only partly known.
    type: int
    default: 200000
  max_seconds:
    description:
      - Maximum seconds for the search. After that nothing is removed.
    type: int
    default: 120
seealso:
  - module: gb10.cluster.model_inventory_info
  - module: gb10.cluster.cluster_lock
"""

EXAMPLES = r"""
- name: Remove an old revision
  gb10.cluster.model_remove:
    hf_home: /home/spark/.cache/huggingface
    models: [Qwen/Qwen3-30B-A3B-Thinking-2507-FP8@0123456789abcdef0123456789abcdef01234567]
  become: true
"""

RETURN = r"""
removed:
  description: The removed revisions, or those that would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [Qwen/Qwen3-30B-A3B-Thinking-2507-FP8@0123456789abcdef0123456789abcdef01234567]
absent:
  description: The requested revisions that are not on this node.
  returned: success
  type: list
  elements: str
  sample: []
freed_bytes:
  description: Bytes that were freed, or would be.
  returned: success
  type: int
  sample: 31138512896
findings:
  description: One finding for each revision that must stay.
  returned: when nothing was removed because of it
  type: list
  elements: dict
  sample:
    - id: models.in_use
      node: spark-1
      verdict: block
      message: "org/name@0123456789abcdef0123456789abcdef01234567 is in use: vllm serve org/name (pid 4711)"
      measured: null
      needed: null
      remedy: Stop its user, or serve another profile, then ask again.
      source: /home/spark/.cache/huggingface/hub/models--org--name
"""

import contextlib
import errno
import functools
import os
import platform
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._engine import model_use
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._model import inventory, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._model.inventory import LEFTOVERS, Repository, Request
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

Params = dict[str, t.Any]

#: Number of obstacles that a message names.
NAMED = 3


# -- deciding --------------------------------------------------------------------------------------------------------


def present(request: Request, repository: Repository | None) -> bool:
    """Return whether the requested revision or leftovers are present."""
    if repository is None:
        return False
    return bool(repository.leftovers()) if request.revision == LEFTOVERS else request.revision in repository.revisions


def objections(
    request: Request, repository: Repository, uses: model_use.Uses, keep: t.Mapping[str, str], elsewhere: t.Collection[str], now: float
) -> list[dict[str, t.Any]]:
    """Return a finding for each reason not to remove the requested model from this node."""
    blobs = repository.leftovers() if request.revision == LEFTOVERS else repository.revisions[request.revision].blobs
    # A doubt about another revision counts too, because revisions can share files.
    doubts = [text for texts in repository.doubts.values() for text in texts]
    running, using, unnamed = repository.unfinished(now), uses.of_repository(request.repo, request.revision, blobs), uses.unnamed(elsewhere)
    used, unknown = (functools.partial(make, platform.node(), path=repository.path) for make in (inventory.in_use, inventory.unknown))
    findings = []
    if str(request) in keep:
        findings.append(used(f"{request} stays: {keep[str(request)]}"))
    if using:
        findings.append(used(f"{request} is in use: {'; '.join(using[:NAMED])}"))
    if running:
        message = f"{request} has a download that may still run: {', '.join(running[:NAMED])}"
        findings.append(used(message, remedy=f"Wait for its end, or for {inventory.RUNNING} seconds without a new byte, then ask again."))
    if unnamed:
        message = f"{request} may be in use: nothing says which model {'; '.join(holder.text for holder in unnamed[:NAMED])} has"
        findings.append(unknown(message, remedy="End that engine first; the playbook doctor shows where it belongs."))
    if doubts:
        findings.append(unknown(f"{request} is only partly known: {'; '.join(doubts[:NAMED])}"))
    return findings


# -- acting ----------------------------------------------------------------------------------------------------------


def remove(root: str, relative: str, repository: Repository, names: t.Collection[str]) -> None:
    """Remove revisions of the repository at ``relative`` below ``root``: files, refs, and last the links, without which the rest could not be found.

    Raises OSError.
    """
    gone = functools.partial(contextlib.suppress, FileNotFoundError)
    for name in repository.going(names):
        with gone():
            untrusted.remove(root, f"{relative}/blobs/{name}")
    commits = [name for name in names if name in repository.revisions]
    for name in (name for commit in commits for name in repository.refs.get(commit, [])):
        with gone():
            untrusted.remove(root, f"{relative}/refs/{name}")
    for commit in commits:
        with gone():
            untrusted.remove(root, f"{relative}/trees/{commit}.json")
        for folder in (".no_exist", "snapshots"):
            with gone():
                untrusted.remove_tree(root, f"{relative}/{folder}/{commit}")
    if set(repository.revisions) <= set(names):
        for folder in (".no_exist", "refs"):
            with gone():
                untrusted.remove_tree(root, f"{relative}/{folder}")
        for folder in ("blobs", "snapshots", "trees", ""):
            remove_empty(root, f"{relative}/{folder}".rstrip("/"))


def remove_empty(root: str, relative: str) -> None:
    """Remove a directory if it is empty. Raises OSError."""
    above, _slash, name = relative.rpartition("/")
    try:
        with untrusted.directory(root, above) as handle:
            os.rmdir(name, dir_fd=handle)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
            raise


# -- the module ------------------------------------------------------------------------------------------------------


def read(params: Params, requests: t.Iterable[Request]) -> dict[str, Repository]:
    """Return the requested repositories that are present, by name. Raises :class:`ClusterError` when one cannot be read completely."""
    limits = inventory.Limits(params["max_files"], params["max_seconds"])
    there = {os.path.basename(relative): relative for relative in inventory.repositories(params["hf_home"]) if relative.startswith("hub/")}
    repositories = {}
    for repo in dict.fromkeys(request.repo for request in requests):
        relative = there.get(model_files.repo_directory(repo))
        if relative:
            try:
                repositories[repo] = inventory.read_repository(params["hf_home"], relative, limits)
            except OSError as error:
                raise model_files.unreadable(os.path.join(params["hf_home"], relative), error) from error
    return repositories


def require_removable(requests: t.Sequence[Request], repositories: t.Mapping[str, Repository], params: Params) -> None:
    """Raise :class:`ClusterError` with all findings when a present model must not be removed."""
    uses = model_use.read(params["state_dir"], params["roots"]["proc_root"])
    uses.require_all_asked()
    findings = [
        entry for request in requests for entry in objections(request, repositories[request.repo], uses, params["keep"], params["elsewhere"], time.time())
    ]
    if findings:
        messages = "; ".join(entry["message"] for entry in findings)
        raise ClusterError(f"nothing was removed: {messages}", remedy=findings[0]["remedy"], reason="may not go", findings=findings)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    require_least(params, {"max_files": 1, "max_seconds": 1})
    requests = list(dict.fromkeys(map(inventory.parse_request, params["models"])))
    repositories = read(params, requests)
    going = [request for request in requests if present(request, repositories.get(request.repo))]
    if going:
        require_removable(going, repositories, params)
    by_repo = {repo: [request.revision for request in going if request.repo == repo] for repo in repositories}
    freed = sum(repositories[repo].freed(names) for repo, names in by_repo.items())
    for repo, names in by_repo.items():
        if names and not module.check_mode:
            cluster_locks.check_held(cluster_locks.path_of(params["state_dir"], params["cluster_name"]), params["lock_id"])
            try:
                with owners.held(params["hf_home"]) as top:
                    remove(top, os.path.relpath(repositories[repo].path, params["hf_home"]), repositories[repo], names)
            except OSError as error:
                remedy = f"{BECOME} Then ask again: what is left goes then."
                raise ClusterError(f"removing {repo}: {error.filename}: {error.strerror}", remedy=remedy) from error
    would = "would be removed" if module.check_mode else "removed"
    return {
        "changed": bool(going),
        "msg": f"{len(going)} model(s) {would}, {freed} bytes" if going else "nothing to remove",
        "reason": "removal was asked for" if going else "none of it is on this node",
        "actions": [f"remove {request}" for request in going],
        "removed": [str(request) for request in going],
        "absent": [str(request) for request in requests if request not in going],
        "freed_bytes": freed,
        "findings": [],
        "diff": {"before": {"models": [str(request) for request in going]}, "after": {"models": []}},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "models": {"type": "list", "elements": "str", "required": True},
            "keep": {"type": "dict", "default": {}},
            "elsewhere": {"type": "list", "elements": "str", "default": []},
            "hf_home": {"type": "path", "required": True},
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "lock_id": {"type": "str", "default": ""},
            "max_files": {"type": "int", "default": 200000},
            "max_seconds": {"type": "int", "default": 120},
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
