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
  - Three steps make a copy. O(state=served) on the node that has the model lists its files and starts a server of them. O(state=copied) on the node that
    lacks it fetches what is missing. O(state=stopped) on the first ends the server.
  - The server is a transient systemd unit, C(gb10-copy-CLUSTER.service), that ends after O(timeout) even when nobody comes back. It listens on O(address)
    alone, reads the listed files alone, in a root of its own as the owner of the cache, lets O(clients) in alone, and both ends prove that they know a
    secret that was made for this copy. The secret lies in a directory of root's below C(/run), and goes away with the server. The traffic itself is not
    encrypted; the fabric is a cable between the nodes.
  - O(streams) connections fetch at once, in blocks of 4 MiB, without compression. Each block is compared by a digest of 128 bits (xxh128, by sha256 where
    one of the nodes has no libxxhash), and fetched again when it differs.
  - Several nodes copy as a chain. With O(state=copied) and O(clients), a node gives each block on as soon as it was compared, so that the last node ends
    little later than the first one.
  - What is not whole lies in C(hub/.gb10-copy) with a note of the blocks that have come, and the next run goes on with it. A file gets its own name in the
    cache only when all files have arrived, and the source has not changed one meanwhile. A file that has such a name and is another one is never
    replaced; the module names it and fails.
  - Files, links into the cache, refs that name the revision, and modes are as on the source, but no mode goes beyond C(0644). The owner is that of the cache
    on this node, and all is done as that user. Where somebody else owns a directory that is written to, or a link on the way, the module fails and says
    which C(chown) mends it.
  - Afterwards the copied files leave the page cache, on the target and, with O(state=stopped) and O(listing), on the source.
  - When all is there already, nothing is read but names and sizes. C(changed) is false then.
requirements:
  - systemd on the node that serves.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._repositories
attributes:
  check_mode:
    support: full
    details:
      - Nothing is started. O(state=served) lists, and O(state=copied) says what it would copy, or why it could not.
  diff_mode:
    support: full
options:
  state:
    description:
      - V(served) lists the files of O(repositories) and starts the server, one that was left over of the same cluster is replaced.
      - V(copied) fetches what this node lacks of O(listing).
      - V(stopped) ends the server, and removes its files. In check mode it only says what there is of a copy.
    type: str
    choices: [served, copied, stopped]
    required: true
  hf_home:
    description:
      - The directory that holds C(hub/).
    type: path
    required: true
  cluster_name:
    description:
      - Name of the cluster. Each has a server of its own.
    type: str
    default: gb10
  address:
    description:
      - This node's own address on the fabric. The server listens there, and clients connect from there. Required unless O(state=stopped).
    type: str
  port:
    description:
      - The port of all nodes of this copy.
    type: int
    default: 20300
  clients:
    description:
      - Fabric addresses that may fetch. Required with O(state=served). With O(state=copied), those of the next node of a chain; it is waited for in the
        end, as long as it asks for more.
    type: list
    elements: str
  source:
    description:
      - Fabric address of the node to copy from, the one that serves or the one before this one in a chain. Required with O(state=copied), but in check mode.
    type: str
  secret:
    description:
      - The content of RV(secret_file) of the node that serves. Required with O(state=copied), but in check mode.
    type: str
  listing:
    description:
      - The files, as RV(listing) of the node that serves says them. Required with O(state=copied). With O(state=stopped), the files that leave the page cache.
    type: list
    elements: dict
  streams:
    description:
      - How many connections fetch at once, from 1. No more than the node has cores, but two.
    type: int
    default: 4
  timeout:
    description:
      - Seconds after which the copy is given up, and the server ends by itself.
    type: int
    default: 7200
  disk_floor_gib:
    description:
      - GiB that stay free on the disk of the cache, from 0.
    type: int
    default: 20
  required:
    description:
      - Whether it is a failure that this node cannot copy at all, since it lacks systemd, the address, a free port or a way to the source.
        Otherwise RV(able) is false then, C(msg) says why, and the node may download by itself.
    type: bool
    default: true
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters. How far the copy is stands there while it runs, and a lock that
        keeps two copies out of one cache.
    type: path
    default: /var/lib/gb10
  lock_id:
    description:
      - Id of the cluster's lock that this run took (RV(gb10.cluster.cluster_lock#module:lock)). Before it starts anything, the module makes sure that the
        lock on this node still is that one. With an empty one nothing is checked.
    type: str
    default: ""
seealso:
  - module: gb10.cluster.model_info
  - module: gb10.cluster.fabric_probe
"""

EXAMPLES = r"""
- name: Give the model out
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

- name: Fetch it
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

- name: End the server
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
  description: What the node that serves has, an entry a repository.
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
      description: The ref that was asked for, empty for a commit.
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
  description: The file on the node that serves that holds the secret; only root may read it. Empty when no server was started.
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
  description: Their bytes; for O(state=served) those of all files that are listed.
  returned: success
  type: int
  sample: 80371298048
resumed_bytes:
  description: Those of the bytes that an earlier copy had fetched.
  returned: O(state=copied)
  type: int
  sample: 0
seconds:
  description: Seconds that fetching took, without what came before and after.
  returned: O(state=copied)
  type: float
  sample: 101.4
cached_bytes:
  description: Bytes of the copied files that were in the page cache after the copy.
  returned: O(state=copied) and O(state=stopped)
  type: int
  sample: 41371298048
left_bytes:
  description: Bytes of them that stay in the page cache, since a process has them mapped.
  returned: O(state=copied) and O(state=stopped)
  type: int
  sample: 0
running:
  description: The unit and the directory that were there of a server.
  returned: O(state=stopped)
  type: list
  elements: str
  sample: [gb10-copy-gb10.service, /run/gb10-copy/gb10]
partial:
  description: Bytes that copies into this cache which did not end have left, by directory.
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
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners
from ansible_collections.gb10.cluster.plugins.module_utils._files.copy_job import Note
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks, copy_source, copy_stage, copy_target, copying, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._model.block_client import Way
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run

Params = dict[str, t.Any]
Result = dict[str, t.Any]


def hub_of(params: Params) -> str:
    """Return the hub's directory of the cache."""
    return os.path.join(params["hf_home"], "hub")


# -- the node that serves --------------------------------------------------------------------------------------------


def listed(params: Params, repository: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the list of a repository. Raises :class:`ClusterError` when this node does not have it."""
    place = model_files.locate(params["hf_home"], repository["repo"], repository["revision"])
    if place.path is None or place.repo_path is None or place.revision is None:
        what = f"there is no {repository['repo']} (revision {repository['revision'] or 'main'}) in {params['hf_home']}, so nothing to copy"
        raise ClusterError(what, remedy="Run the play with --tags model, which downloads it on one node first.", reason="absent")
    asked = repository["revision"] or "main"
    ref = "" if copying.is_commit(asked) else asked
    entries = copying.listing(place.repo_path, place.revision, ref)
    return {"repo": repository["repo"], "revision": place.revision, "ref": ref, "entries": copying.rows(entries)}


def order(params: Params, listing: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    """Return what the server is to do."""
    names = {repo: model_files.repo_directory(repo) for repo in (one["repo"] for one in listing)}
    files = [[f"{names[one['repo']]}/{row['path']}", row["size"], row["mtime"]] for one in listing for row in one["entries"] if row["kind"] == "file"]
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
    each = {(one["repo"], one["revision"]): one for one in params["repositories"] if not model_files.is_directory(one["repo"])}
    listing = [listed(params, repository) for repository in each.values()]
    total = sum(row["size"] for one in listing for row in one["entries"])
    result = {"changed": True, "listing": listing, "bytes": total, "secret_file": "", "able": True}
    copy_source.require_address(params["address"])
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
    """Return what this node lacks of each repository of the list. Raises :class:`ClusterError` for a file of the same name and other content."""
    found = []
    for one in params["listing"]:
        path = os.path.join(hub_of(params), model_files.repo_directory(one["repo"]))
        entries = copying.entries_of(one["entries"])
        lack = copying.lacking(entries, path, one["ref"])
        found.append(copy_stage.Repository(one["repo"], path, copying.stage_of(hub_of(params), one["repo"]), entries, lack))
    other = [name for one in found for name in one.lack.other]
    if other:
        raise copy_target.refusal(other)
    return found


def way_of(params: Params) -> Way:
    """Return how the source is reached."""
    secret = (params["secret"] or "").strip()
    if not secret or not params["source"]:
        raise ClusterError("source and secret are needed for a copy", remedy="Give both, as the node that serves says them.", reason="input")
    return Way(params["address"], params["source"], params["port"], secret)


def act(params: Params, found: list[copy_stage.Repository], until: float, note: Note, given: copy_target.Given | None) -> float:
    """Fetch it, give the files their names, and return the seconds that fetching took."""
    began, owner = time.monotonic(), owners.owner_of(params["hf_home"])
    copy_target.fetch(found, copying.numbered(params["listing"]), way_of(params), params["streams"], until, owner, note, given)
    seconds = time.monotonic() - began
    with owners.acting_as(owner):
        for one in found:
            copy_target.place(one)
        copy_target.clear(hub_of(params), found)
    return seconds


def look(params: Params) -> tuple[list[copy_stage.Repository], int]:
    """Return what this node lacks, and the bytes of it that an earlier copy has fetched. Raises :class:`ClusterError` where its owner could not write it."""
    boot = boot_id("/proc")
    with owners.acting_as(owners.owner_of(params["hf_home"])):
        found = [one for one in wanted(params) if one.lack]
        before = copy_stage.resumed(found, boot)
    owners.one_owner(params["hf_home"], [path for one in found for path in one.directories()])
    return found, before


def copied(module: AnsibleModule) -> Result:
    params = module.params
    until = time.monotonic() + params["timeout"]
    note = Note(copying.note_path(params["state_dir"], params["cluster_name"]))
    found, before = look(params)
    result = told(found, 0, 0.0, module.check_mode)
    clients = params["clients"] or []
    if not found and (module.check_mode or not clients):
        return result
    copy_source.require_address(params["address"], params["port"] if clients and not module.check_mode else 0)
    hub = hub_of(params)
    if module.check_mode:
        require_space(params, found, before)
        return result
    seconds = 0.0
    try:
        with contextlib.ExitStack() as stack:
            given, server = None, None
            if clients:
                given = copy_target.Given(hub, params["listing"])
                server = stack.enter_context(copy_target.giving_on(given, params["address"], params["port"], way_of(params).secret, clients, params["streams"]))
            with copy_stage.alone(copying.lock_path(params["state_dir"], hub), params["timeout"], note):
                # Another copy may have done it meanwhile.
                found, before = look(params)
                require_space(params, found, before)
                if found:
                    seconds = act(params, found, until, note, given)
                elif given:
                    given.begin([])
            if server:
                copy_target.see_off(server, until, note)
    finally:
        note.remove()
    files = [os.path.join(one.path, entry.path) for one in found for entry in one.lack.files]
    with owners.acting_as(owners.owner_of(params["hf_home"])):
        return {**told(found, before, seconds, False), **copy_target.drop_pages(files)}


def require_space(params: Params, found: list[copy_stage.Repository], before: int) -> None:
    """Raise :class:`ClusterError` when the disk has not room for what is missing."""
    hub = hub_of(params)
    copying.require_space(copy_stage.free_bytes(hub), sum(one.lack.size for one in found) - before, params["disk_floor_gib"], hub)


def told(found: list[copy_stage.Repository], before: int, seconds: float, would: bool) -> Result:
    """Return the result of a copy."""
    total = sum(one.lack.size for one in found)
    rate = f" in {seconds:.1f} s, {(total - before) / 1e6 / seconds:.0f} MB/s" if seconds else ""
    done = "would be copied" if would else "copied and compared"
    names = [f"copy {one.repo}: {len(one.lack.files)} file(s), {one.lack.size} bytes" for one in found]
    listing = {one.repo: [entry.path for entry in [*one.lack.files, *one.lack.links, *one.lack.refs]] for one in found}
    return {
        "changed": bool(found),
        "able": True,
        "copied": {one.repo: [entry.path for entry in one.lack.files] for one in found},
        "bytes": total,
        "resumed_bytes": before,
        "seconds": round(seconds, 1),
        "cached_bytes": 0,
        "left_bytes": 0,
        "msg": f"{total / copying.GIB:.1f} GiB {done}{rate}" if found else "all of it is here",
        "reason": "this node lacks it" if found else "names and sizes are those of the source",
        "actions": names,
        "diff": {"before": {}, "after": listing},
    }


# -- the end ---------------------------------------------------------------------------------------------------------


def stopped(module: AnsibleModule) -> Result:
    params = module.params
    running, partial = copy_source.left(params["cluster_name"]), copy_target.left(hub_of(params))
    cached = {"cached_bytes": 0, "left_bytes": 0}
    if not module.check_mode:
        if running:
            copy_source.stop(params["cluster_name"])
        given = [(model_files.repo_directory(one["repo"]), row["path"]) for one in params["listing"] or [] for row in one["entries"]]
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
        "msg": f"{', '.join(running)} {'would be removed' if module.check_mode else 'removed'}" if running else "nothing is given out",
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
