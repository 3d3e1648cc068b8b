#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_copy
short_description: Copy a model from one node's hub cache to another's over the fabric
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - A copy has three steps. O(state=served) on the node that has the model lists its files and starts a server for them. O(state=copied) on the node that
    lacks it fetches the missing files. O(state=stopped) on the first stops the server.
  - The server is a transient systemd unit, C(gb10-copy-CLUSTER.service), that ends after O(timeout) at the latest. It listens only on O(address),
    reads only the listed files, in its own root directory as the owner of the cache, and accepts only O(clients). Both ends prove that they know a
    secret that was generated for this copy. The secret is in a directory below C(/run) that only root may read, and is deleted with the server. The
    traffic itself is not encrypted. The fabric is a cable between the nodes.
  - O(streams) connections fetch at once, in blocks of 4 MiB, without compression. Each block is verified by a digest of 128 bits (xxh128, or sha256 if
    one of the nodes has no libxxhash), and fetched again if it differs.
  - Several nodes copy as a chain. With O(state=copied) and O(clients), a node forwards each block as soon as it is verified, so that the last node
    finishes only a little later than the first.
  - Incomplete files are in C(hub/.gb10-copy) with a note of the blocks that have arrived, and the next run continues from there. A file gets its final
    name in the cache only after all files have arrived, and if the source did not change one meanwhile. A different file that already has this name is
    never replaced. The module names it and fails.
  - Files, links into the cache, refs that name the revision, and modes are the same as on the source, but no mode exceeds C(0644). The owner is that of
    the cache on this node, and all work is done as that user. If another user owns a directory to write to, or a link in its path, the module fails and
    shows the C(chown) command that fixes it.
  - Afterwards the copied files are dropped from the page cache, on the target and, with O(state=stopped) and O(listing), on the source.
  - If all files exist already, only names and sizes are read, and C(changed) is false.
requirements:
  - systemd on the node that serves.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._repositories
attributes:
  check_mode:
    support: full
    details:
      - Nothing is started. O(state=served) lists the files, and O(state=copied) reports what it would copy, or why it could not.
  diff_mode:
    support: full
options:
  state:
    description:
      - V(served) lists the files of O(repositories) and starts the server. It replaces a leftover server of the same cluster.
      - V(copied) fetches the part of O(listing) that this node lacks.
      - V(stopped) stops the server, and removes its files. In check mode it only reports them.
    type: str
    choices: [served, copied, stopped]
    required: true
  hf_home:
    description:
      - The directory that contains C(hub/).
    type: path
    required: true
  cluster_name:
    description:
      - Name of the cluster. Each cluster has its own server.
    type: str
    default: gb10
  address:
    description:
      - This node's own address on the fabric. The server listens on it, and clients connect from it. Required unless O(state=stopped).
    type: str
  port:
    description:
      - The port on all nodes of this copy.
    type: int
    default: 20300
  clients:
    description:
      - Fabric addresses that may fetch. Required with O(state=served). With O(state=copied), those of the next node in a chain. At the end the module
        waits for that node as long as it requests more.
    type: list
    elements: str
  source:
    description:
      - Fabric address of the node to copy from, the server or the previous node in a chain. Required with O(state=copied), except in check mode.
    type: str
  secret:
    description:
      - The content of RV(secret_file) from the node that serves. Required with O(state=copied), except in check mode.
    type: str
  listing:
    description:
      - The files, as RV(listing) from the node that serves. Required with O(state=copied). With O(state=stopped), the files to drop from the page cache.
    type: list
    elements: dict
  streams:
    description:
      - Number of connections that fetch at once, from 1. No more than the node has cores, but at least two.
    type: int
    default: 4
  timeout:
    description:
      - Seconds after which the copy is aborted, and the server ends.
    type: int
    default: 7200
  disk_floor_gib:
    description:
      - GiB to keep free on the disk of the cache, from 0.
    type: int
    default: 20
  required:
    description:
      - Whether to fail if this node cannot copy at all, because it lacks systemd, the address, a free port or a route to the source.
        Otherwise RV(able) is false, C(msg) has the reason, and the node may download on its own.
    type: bool
    default: true
  state_dir:
    description:
      - Directory on the node for the state of the collection's clusters. It contains the progress of a running copy, and a lock that
        prevents two copies into one cache.
    type: path
    default: /var/lib/gb10
  lock_id:
    description:
      - Id of the cluster lock that this run acquired (RV(gb10.cluster.cluster_lock#module:lock)). Before it starts anything, the module verifies that the
        lock on this node still has this id. With an empty value nothing is checked.
    type: str
    default: ""
seealso:
  - module: gb10.cluster.model_info
  - module: gb10.cluster.fabric_probe
"""

EXAMPLES = r"""
- name: Serve the model
  gb10.cluster.model_copy: &copy
    state: served
    repositories:
      - repo: nvidia/Qwen3.8-27B-NVFP4
    hf_home: /home/spark/.cache/huggingface
    address: 192.168.177.11
    clients: [192.168.177.12]
  become: true
  register: served
  when: inventory_hostname == 'spark-1'

- name: Read the secret of this copy
  ansible.builtin.slurp:
    src: "{{ hostvars['spark-1'].served.secret_file }}"
  become: true
  delegate_to: spark-1
  no_log: true
  register: secret
  when: inventory_hostname == 'spark-2'

- name: Fetch the model
  gb10.cluster.model_copy:
    state: copied
    repositories:
      - repo: nvidia/Qwen3.8-27B-NVFP4
    hf_home: /home/spark/.cache/huggingface
    address: 192.168.177.12
    source: 192.168.177.11
    secret: "{{ secret.content | b64decode }}"
    listing: "{{ hostvars['spark-1'].served.listing }}"
  become: true
  when: inventory_hostname == 'spark-2'

- name: Stop the server
  gb10.cluster.model_copy:
    state: stopped
    hf_home: /home/spark/.cache/huggingface
    listing: "{{ served.listing }}"
  become: true
  when: inventory_hostname == 'spark-1'
"""

RETURN = r"""
able:
  description: Whether this node can copy. False only with O(required=false).
  returned: success
  type: bool
  sample: true
listing:
  description: The content of the node that serves, one entry per repository.
  returned: O(state=served)
  type: list
  elements: dict
  contains:
    repo:
      description: The repository.
      type: str
    revision:
      description: The commit.
      type: str
    ref:
      description: The requested ref. Empty for a commit.
      type: str
    entries:
      description: Its files, links and refs, by path, with C(kind), C(size) in bytes, C(mtime) in nanoseconds, C(mode) and C(target).
      type: list
      elements: dict
  sample:
    - repo: nvidia/Qwen3.8-27B-NVFP4
      revision: 50307d4c4cde6860d4eee73e2547cd786fe8e8a4
      ref: ""
      entries: []
secret_file:
  description: The file with the secret, on the node that serves. Only root may read it. Empty if no server was started.
  returned: O(state=served)
  type: str
  sample: /run/gb10-copy/gb10/secret
copied:
  description: The files that were fetched, or would be, by repository.
  returned: O(state=copied)
  type: dict
  sample:
    nvidia/Qwen3.8-27B-NVFP4: [blobs/5b1f0c3a9d2e4f60718293a4b5c6d7e8f9012345]
bytes:
  description: Their bytes. For O(state=served) those of all listed files.
  returned: success
  type: int
  sample: 80371298048
resumed_bytes:
  description: The part of these bytes that an earlier copy had fetched.
  returned: O(state=copied)
  type: int
  sample: 0
seconds:
  description: Seconds that fetching took, without the steps before and after.
  returned: O(state=copied)
  type: float
  sample: 101.4
cached_bytes:
  description: Bytes of the copied files that were in the page cache after the copy.
  returned: O(state=copied) and O(state=stopped)
  type: int
  sample: 41371298048
left_bytes:
  description: Bytes of them that stay in the page cache, because a process has them mapped.
  returned: O(state=copied) and O(state=stopped)
  type: int
  sample: 0
running:
  description: The unit and the directory of an existing server.
  returned: O(state=stopped)
  type: list
  elements: str
  sample: [gb10-copy-gb10.service, /run/gb10-copy/gb10]
partial:
  description: Bytes left by unfinished copies into this cache, by directory.
  returned: O(state=stopped)
  type: dict
  sample:
    /home/spark/.cache/huggingface/hub/.gb10-copy/models--nvidia--Qwen3.8-27B-NVFP4: 12884901888
"""

import contextlib
import errno
import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job, owners
from ansible_collections.gb10.cluster.plugins.module_utils._files.copy_job import Note
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._host.disk import disk
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks, copy_source, copy_stage, copy_target, copying, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._model.block_client import Route
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient

Params = dict[str, t.Any]
Result = dict[str, t.Any]


def hub_of(params: Params) -> str:
    """Return the hub's directory of the cache."""
    return os.path.join(params["hf_home"], "hub")


# -- the node that serves --------------------------------------------------------------------------------------------


def listed(params: Params, repository: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the listing of a repository. Raises :class:`ClusterError` when this node does not have it."""
    place = model_files.locate(params["hf_home"], repository["repo"], repository["revision"])
    if place.path is None or place.repo_path is None or place.revision is None:
        what = f"there is no {repository['repo']} (revision {repository['revision'] or 'main'}) in {params['hf_home']}, so nothing to copy"
        raise ClusterError(what, remedy="Run the play with --tags model, which downloads it on one node first.", reason="absent")
    revision = repository["revision"] or "main"
    ref = "" if model_files.is_commit(revision) else revision
    entries = copying.listing(place.repo_path, place.revision, ref)
    return {"repo": repository["repo"], "revision": place.revision, "ref": ref, "entries": copying.rows(entries)}


def order(params: Params, listing: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    """Return the configuration for the server."""
    names = {repo: model_files.repo_directory(repo) for repo in (repository["repo"] for repository in listing)}
    files = [
        [f"{names[repository['repo']]}/{row['path']}", row["size"], row["mtime"]]
        for repository in listing
        for row in repository["entries"]
        if row["kind"] == "file"
    ]
    owner = owners.owner_of(params["hf_home"])
    return {
        "address": params["address"],
        "port": params["port"],
        "root": hub_of(params),
        "uid": owner.uid,
        "gid": owner.gid,
        "clients": params["clients"],
        "connections": params["streams"] * len(params["clients"]) + blocks.MORE_CONNECTIONS,
        "files": files,
    }


def served(module: AnsibleModule) -> Result:
    params = module.params
    of_hub = [repository for repository in params["repositories"] if not model_files.is_directory(repository["repo"])]
    each = {(repository["repo"], repository["revision"]): repository for repository in of_hub}
    listing = [listed(params, repository) for repository in each.values()]
    total = sum(row["size"] for repository in listing for row in repository["entries"])
    result = {"changed": True, "listing": listing, "bytes": total, "secret_file": "", "able": True}
    transient.require_address(params["address"])
    if not module.check_mode:
        result["secret_file"] = copy_source.start(params["cluster_name"], order(params, listing), params["timeout"])
    unit = copying.unit_name(params["cluster_name"])
    would = "would be given" if module.check_mode else "given"
    return {
        **result,
        "msg": f"{total} bytes are {would} out on {params['address']}:{params['port']} by {unit}",
        "reason": "another node lacks it",
        "actions": [f"start {unit}"],
        "diff": {"before": {"unit": "absent"}, "after": {"unit": "active"}},
    }


# -- the node that fetches -------------------------------------------------------------------------------------------


def wanted(params: Params) -> list[copy_stage.Repository]:
    """Return the listed repositories, each with what this node lacks. Raises :class:`ClusterError` when a file of the same name has different content."""
    repositories = []
    for repository in params["listing"]:
        path = os.path.join(hub_of(params), model_files.repo_directory(repository["repo"]))
        entries = copying.entries_of(repository["entries"])
        lack = copying.lacking(entries, path, repository["ref"])
        repositories.append(copy_stage.Repository(repository["repo"], path, copying.stage_of(hub_of(params), repository["repo"]), entries, lack))
    other = [name for repository in repositories for name in repository.lack.other]
    if other:
        raise copy_target.refusal(other)
    return repositories


def route_of(params: Params) -> Route:
    """Return the route to the source."""
    secret = (params["secret"] or "").strip()
    if not secret or not params["source"]:
        raise ClusterError("source and secret are needed for a copy", remedy="Give both, as the node that serves says them.", reason="input")
    return Route(params["address"], params["source"], params["port"], secret)


def act(params: Params, repositories: list[copy_stage.Repository], until: float, note: Note, given: copy_target.Forward | None) -> float:
    """Fetch the missing files, give them their final names, and return the seconds that fetching took."""
    began, owner = time.monotonic(), owners.owner_of(params["hf_home"])
    copy_target.fetch(repositories, copying.numbered(params["listing"]), route_of(params), params["streams"], until, owner, note, given)
    seconds = time.monotonic() - began
    with owners.acting_as(owner):
        for repository in repositories:
            copy_target.place(repository)
        copy_target.clear(hub_of(params), repositories)
    return seconds


def look(params: Params) -> tuple[list[copy_stage.Repository], int]:
    """Return what this node lacks, and the bytes of it that an earlier copy fetched. Raises :class:`ClusterError` when the cache's owner cannot write there."""
    boot = boot_id("/proc")
    with owners.acting_as(owners.owner_of(params["hf_home"])):
        repositories = [repository for repository in wanted(params) if repository.lack]
        before = copy_stage.resumed(repositories, boot)
    owners.one_owner(params["hf_home"], [path for repository in repositories for path in repository.directories()])
    return repositories, before


def copied(module: AnsibleModule) -> Result:
    params = module.params
    until = time.monotonic() + params["timeout"]
    note = Note(copy_job.note_path(params["state_dir"], copying.KIND, params["cluster_name"]))
    repositories, before = look(params)
    result = copy_result(repositories, 0, 0.0, module.check_mode)
    clients = params["clients"] or []
    if not repositories and (module.check_mode or not clients):
        return result
    transient.require_address(params["address"], params["port"] if clients and not module.check_mode else 0, "gb10_copy_port")
    hub = hub_of(params)
    if module.check_mode:
        require_space(params, repositories, before)
        return result
    seconds = 0.0
    try:
        with contextlib.ExitStack() as stack:
            given, server = None, None
            if clients:
                given = copy_target.Forward(hub, params["listing"])
                where = (params["address"], params["port"], route_of(params).secret, clients, params["streams"])
                server = stack.enter_context(copy_target.forwarding(given, *where))
            lock = copy_job.lock_path(params["state_dir"], copying.KIND, hub)
            with copy_job.alone(lock, params["timeout"], note, "this cache", ": it continues with the remaining blocks"):
                # Another copy may have finished in the meantime.
                repositories, before = look(params)
                require_space(params, repositories, before)
                if repositories:
                    seconds = act(params, repositories, until, note, given)
                elif given:
                    given.begin([])
            if server:
                copy_target.wait_for_clients(server, until, note)
    finally:
        note.remove()
    files = [os.path.join(repository.path, entry.path) for repository in repositories for entry in repository.lack.files]
    with owners.acting_as(owners.owner_of(params["hf_home"])):
        return {**copy_result(repositories, before, seconds, False), **copy_target.drop_pages(files)}


def require_space(params: Params, repositories: list[copy_stage.Repository], before: int) -> None:
    """Raise :class:`ClusterError` when the disk lacks room for the missing files."""
    hub = hub_of(params)
    remedy = "See what could go: ansible-playbook -i INVENTORY gb10.cluster.models, and gb10.cluster.prune"
    missing = sum(repository.lack.size for repository in repositories) - before
    copy_job.require_space(hub, disk(hub)["free_bytes"], missing, params["disk_floor_gib"], "for the copy", remedy)


def copy_result(repositories: list[copy_stage.Repository], before: int, seconds: float, would: bool) -> Result:
    """Return the result of a copy."""
    total = sum(repository.lack.size for repository in repositories)
    rate = f" in {seconds:.1f} s, {(total - before) / 1e6 / seconds:.0f} MB/s" if seconds else ""
    done = "would be copied" if would else "copied and compared"
    names = [f"copy {repository.repo}: {len(repository.lack.files)} file(s), {repository.lack.size} bytes" for repository in repositories]
    listing = {repository.repo: [entry.path for entry in repository.lack.entries] for repository in repositories}
    return {
        "changed": bool(repositories),
        "able": True,
        "copied": {repository.repo: [entry.path for entry in repository.lack.files] for repository in repositories},
        "bytes": total,
        "resumed_bytes": before,
        "seconds": round(seconds, 1),
        "cached_bytes": 0,
        "left_bytes": 0,
        "msg": f"{total / copy_job.GIB:.1f} GiB {done}{rate}" if repositories else "all of it is here",
        "reason": "this node lacks it" if repositories else "names and sizes are those of the source",
        "actions": names,
        "diff": {"before": {}, "after": listing},
    }


# -- the end ---------------------------------------------------------------------------------------------------------


def stopped(module: AnsibleModule) -> Result:
    params = module.params
    unit, place = copying.unit_name(params["cluster_name"]), copy_source.run_dir(params["cluster_name"])
    running, partial = transient.left(unit, place), {path: size for path, (size, _written) in copy_target.left(hub_of(params)).items()}
    cached = {"cached_bytes": 0, "left_bytes": 0}
    if not module.check_mode:
        if running:
            transient.stop(unit, place)
        given = [(model_files.repo_directory(repository["repo"]), row["path"]) for repository in params["listing"] or [] for row in repository["entries"]]
        files = [os.path.join(hub_of(params), *names) for names in given]
        with owners.acting_as(owners.owner_of(params["hf_home"])):
            cached = copy_target.drop_pages([path for path in files if os.path.isfile(path) and not os.path.islink(path)])
    return {
        "changed": bool(running),
        "able": True,
        "running": running,
        "partial": partial,
        "bytes": 0,
        **cached,
        "msg": f"{', '.join(running)} {'would be removed' if module.check_mode else 'removed'}" if running else "no model server is running",
        "reason": "the copy is over" if running else "no server of this cluster runs",
        "actions": [f"remove {name}" for name in running],
        "diff": {"before": {"running": running}, "after": {"running": []}},
    }


def work(module: AnsibleModule) -> Result:
    params = module.params
    require_least(params, {"streams": 1, "timeout": 1, "disk_floor_gib": 0, "port": 1})
    if params["state"] != "stopped" and not module.check_mode:
        cluster_locks.check_held(cluster_locks.path_of(params["state_dir"], params["cluster_name"]), params["lock_id"])
    try:
        return {"served": served, "copied": copied, "stopped": stopped}[params["state"]](module)
    except ClusterError as error:
        if params["required"] or error.reason not in copy_source.UNABLE:
            raise
        nothing = {"copied": {}, "listing": [], "secret_file": "", "bytes": 0, "resumed_bytes": 0, "seconds": 0.0, "cached_bytes": 0, "left_bytes": 0}
        return {**nothing, "changed": False, "able": False, "verdict": "warn", "msg": str(error), "remedy": error.remedy, "reason": error.reason}
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Free some, see gb10.cluster.models, and run again." if full else "Run the task with become: true."
        raise ClusterError(f"{error.filename or params['hf_home']}: {error.strerror}", remedy=remedy, reason="disk full" if full else "permission") from error


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["served", "copied", "stopped"], "required": True},
            "repositories": model_files.REPOSITORIES,
            "hf_home": {"type": "path", "required": True},
            "cluster_name": {"type": "str", "default": "gb10"},
            "address": {"type": "str"},
            "port": {"type": "int", "default": 20300},
            "clients": {"type": "list", "elements": "str"},
            "source": {"type": "str"},
            "secret": {"type": "str", "no_log": True},
            "listing": {"type": "list", "elements": "dict"},
            "streams": {"type": "int", "default": 4},
            "timeout": {"type": "int", "default": copying.TIMEOUT},
            "disk_floor_gib": {"type": "int", "default": 20},
            "required": {"type": "bool", "default": True},
            "state_dir": {"type": "path", "default": copying.STATE_DIR},
            "lock_id": {"type": "str", "default": ""},
        },
        required_if=[("state", "served", ["repositories", "address", "clients"]), ("state", "copied", ["listing", "address"])],
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
