#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_prune
short_description: List, and on request remove, a cluster's leftovers on a node
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Lists the containers, images, logs and notes that this collection created on a node and that are no longer needed. It removes them only with
    O(remove=true).
  - A container is removed if it has the labels of this collection and of O(cluster_name), and has ended or never started. So is one that an image probe
    left over for an hour. A container whose labels come only from its image (C(docker commit) of one of this collection's containers) is foreign. It is
    listed in RV(left), and stays. One that runs, restarts or is paused stays, and so does one that Docker reports as stopped while an engine or one of
    Ray's workers runs in it.
  - An image is removed if this collection's recipe built it, no remaining container uses it, and its name moved to a newer build, or if it was built
    more than O(days) ago and none of its names is in O(keep_images). A user's image built on one of them is foreign.
  - A log below O(log_dir) is removed if it has a name that this collection uses, and was not written to for O(days). Logs of the engine's last
    run stay, no matter how old they are.
  - A note about an image's content is removed if the image is gone.
  - A directory with the engine's compiled files (kernels, graphs, and a model's own code) is removed if its image is gone, or if nothing was written
    there for O(days). It stays while a container uses it that may have processes.
  - A model download that an interrupted play left running is ended, and its hub token is removed. The downloaded files stay.
  - A server that copies a model or an image to other nodes and was left running is ended. With O(hf_home), files fetched by an unfinished copy are removed
    once nothing was written there for a day.
  - Specification and program of a unit (M(gb10.cluster.node_service)) are removed if the unit itself is gone.
  - Leftovers of a lease (M(gb10.cluster.node_service)) on the node are removed if the node has ended it automatically.
  - Files and secrets of a sweep (M(gb10.cluster.node_service)) are removed if its timer is gone.
  - Models and the notes about their code and files, other secrets, states and named volumes are never touched. A file with another name among the logs is
    listed in RV(left), and stays.
  - Right before it removes something, everything is read again. If one removal fails, the others continue, and the module fails at the end.
  - Acquire the cluster's lock (M(gb10.cluster.cluster_lock)) before O(remove=true), because a container is also stopped in the moment before it is
    started, and a play may be waiting for a download.
requirements:
  - With O(remove=true), the Docker SDK for Python on the node (the distribution's C(python3-docker), 5.0.3 or newer).
  - Docker Engine 20.10 or newer.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._cluster
  - gb10.cluster._cluster.state_dir
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  remove:
    description:
      - Whether to remove the listed objects.
    type: bool
    default: false
  days:
    description:
      - Days after which a log without new lines, or an unused image, is old. From 0.
    type: int
    default: 14
  keep_images:
    description:
      - Names or ids of images to keep although no container uses them, such as the current one of each profile.
    type: list
    elements: str
    default: []
  companions:
    description:
      - Names of the companions that run as containers on this node (C(gb10_companions)). A stopped container of another companion may be removed.
      - Without it no companion's container is removed.
    type: list
    elements: str
  lock_id:
    description:
      - Id of the cluster lock that this run acquired (RV(gb10.cluster.cluster_lock#module:lock)). Before it starts, stops or removes anything, the module
        verifies that the lock on this node still has this id. With an empty value nothing is checked.
    type: str
    default: ""
    version_added: 0.2.0
  log_dir:
    description:
      - Directory on the node for the logs of the collection's clusters.
    type: path
    default: /var/log/gb10
  secrets_dir:
    description:
      - Directory on the node for the secrets of the collection's clusters.
    type: path
    default: /etc/gb10/secrets
  hf_home:
    description:
      - The directory that contains the hub cache (C(hub/)). Without it, unfinished copies are not searched for.
    type: path
    version_added: 0.2.0
seealso:
  - module: gb10.cluster.cluster_lock
  - module: gb10.cluster.ray_cluster
"""

EXAMPLES = r"""
- name: List what could be removed
  gb10.cluster.cluster_prune:
    keep_images: [local/vllm-ray:26.05.post1]
  become: true
  register: prune

- name: Remove it
  gb10.cluster.cluster_prune:
    keep_images: [local/vllm-ray:26.05.post1]
    remove: true
  become: true
"""

RETURN = r"""
candidates:
  description: Objects that may be removed, or were, in the order of removal.
  returned: always
  type: list
  elements: dict
  contains:
    kind:
      description: V(download), V(token), V(copy) for a server that copies a model or image, V(partial) for the files fetched by a copy, V(container), V(image),
        V(log), V(cache) for the caches of a cluster, or V(note) for one on an image's content.
      type: str
    name:
      description: Name of the container, tags of the image (its id if it has none), path of the file.
      type: str
    age_seconds:
      description: Seconds since the container ended, the image was built, the file was written to.
      type: int
    size_bytes:
      description:
        - Bytes that are freed. For a container, the bytes it wrote. For an image, its bytes beyond its base as long as the base stays.
        - Images that share more than their base free less.
      type: int
    why:
      description: Why it may be removed.
      type: str
  sample:
    - kind: container
      name: gb10-gb10-worker
      age_seconds: 86512
      size_bytes: 1283145
      why: exited
    - kind: image
      name: sha256:5b1f0c3a9d2e
      age_seconds: 1213044
      size_bytes: 312453120
      why: its name went to a newer build
left:
  description: Foreign files and images among the collection's own, which stay. At most 100.
  returned: always
  type: list
  elements: dict
  contains:
    kind:
      description: V(container), V(file) or V(image).
      type: str
    name:
      description: Its path or names.
      type: str
    why:
      description: Why it stays.
      type: str
  sample:
    - kind: file
      name: /var/log/gb10/gb10/engine/notes.txt
      why: not ours
total_bytes:
  description: Sum of C(size_bytes) of all RV(candidates).
  returned: always
  type: int
  sample: 313736265
removed:
  description: Names of the removed objects, or of those that would be removed in check mode. Empty with O(remove=false).
  returned: always
  type: list
  elements: str
  sample: [gb10-gb10-worker]
skipped:
  description: Names of listed objects that were in use or had changed when they were to be removed.
  returned: always
  type: list
  elements: str
  sample: []
findings:
  description: One finding for each object that could not be removed.
  returned: always
  type: list
  elements: dict
  sample:
    - id: prune.image
      node: spark-1
      verdict: block
      message: "removing image local/vllm-ray:26.04: conflict: image has dependent child images"
      measured: null
      needed: null
      remedy: Look at what still holds it, and repeat.
      source: "local/vllm-ray:26.04"
"""

import os
import platform
import shutil
import stat
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker import engine_api
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, NotFound, lookalikes
from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker
from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work, engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_copying
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_note
from ansible_collections.gb10.cluster.plugins.module_utils._leftovers import caches, prune
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._model import copy_source, copy_target, copying
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding, run
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import under_removal
from ansible_collections.gb10.cluster.plugins.module_utils._service import table
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import setup, transient

#: Seconds that a download gets to end; what it has loaded stays in the cache.
DOWNLOAD_GRACE = 5
#: Seconds that systemd gets for one answer about a unit.
UNIT_SECONDS = 60.0
#: Maximum number of entries of ``left`` in a result.
LEFT_LIMIT = 100

Params = dict[str, t.Any]


# -- reading ---------------------------------------------------------------------------------------------------------


class Survey(t.NamedTuple):
    """What can be removed, and what stays and why."""

    candidates: list[prune.Candidate]
    left: list[prune.Left]


def inspected(docker: EngineApi | Docker, ids: t.Iterable[str]) -> list[dict[str, t.Any]]:
    """Return Docker's details of each container that still exists."""
    containers = []
    for container_id in ids:
        try:
            containers.append(docker.inspect(container_id))
        except NotFound:
            continue
    return containers


def log_bytes(container: dict[str, t.Any]) -> int:
    """Return the size of a container's log file, 0 when Docker writes no log file."""
    try:
        return os.stat(container.get("LogPath") or "").st_size
    except OSError:
        return 0


def survey_containers(docker: EngineApi | Docker, params: Params, now: float) -> prune.Judged:
    listed = docker.containers({engine_api.LABEL_OWNER: engine_api.OWNER}, prune.STOPPED, size=True)
    containers = inspected(docker, (entry["Id"] for entry in listed))
    logs = {entry["Id"]: log_bytes(entry) for entry in containers}
    sizes = {entry["Id"]: (entry.get("SizeRw") or 0) + logs.get(entry["Id"], 0) for entry in listed}
    judged = prune.containers(containers, sizes, params["cluster_name"], now, at_work.by_container(), params["companions"])
    others = [prune.Left("container", name, "not ours: it has our labels from its image alone") for name in lookalikes(docker, params["cluster_name"])]
    return prune.Judged(judged.candidates, [*judged.left, *others])


def survey_download(docker: EngineApi | Docker, params: Params, now: float) -> list[prune.Candidate]:
    """Return what an interrupted download left: its container, which still runs, and the hub's token."""
    ours = {engine_api.LABEL_OWNER: engine_api.OWNER, engine_api.LABEL_CLUSTER: params["cluster_name"], engine_api.LABEL_ROLE: prune.DOWNLOAD}
    candidates = prune.downloads(inspected(docker, (entry["Id"] for entry in docker.containers(ours))), params["cluster_name"], now)
    path = os.path.join(params["secrets_dir"], params["cluster_name"], prune.TOKEN)
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return candidates
    except OSError as error:
        raise UnknownState(f"{path} cannot be seen: {error.strerror}", remedy="Run the task with become: true.", raw=str(error)) from error
    return [*candidates, prune.Candidate("token", path, (path,), prune.age_of(status.st_mtime, now), status.st_blocks * 512, "left by a download")]


def survey_copy(params: Params, now: float) -> list[prune.Candidate]:
    """Return what an interrupted copy left: servers of a model or an image, and partly fetched models."""
    name = params["cluster_name"]
    units = {copying.unit_name(name): copy_source.run_dir(name), image_copying.unit_name(name): image_copying.run_dir(name)}
    why = "left by a copy that was interrupted, or one that runs now"
    candidates = [prune.Candidate("copy", unit, (unit, place), 0, 0, why) for unit, place in units.items() if transient.left(unit, place)]
    hub = os.path.join(params["hf_home"] or "", "hub")
    for path, (size, written) in copy_target.left(hub).items() if params["hf_home"] else ():
        age = prune.age_of(written, now)
        if age >= prune.SECONDS_PER_DAY:
            candidates.append(prune.Candidate("partial", path, (path,), age, size, "fetched by a copy that did not end"))
    return candidates


def where_of(params: Params) -> table.Where:
    return table.Where(params["state_dir"], params["cluster_name"], params["secrets_dir"])


def survey_units(params: Params, now: float) -> list[prune.Candidate]:
    """Return what removed units and an ended lease left."""
    candidates, where = [], where_of(params)
    for service in table.SERVICES:
        for path, why in service.left(service.unit(where), where).items():
            size = sum(status.st_blocks * 512 for _path, status in prune.files_below(path))
            candidates.append(prune.Candidate(service.kind, path, (path, service.key), prune.age_of(os.lstat(path).st_mtime, now), size, why))
    return candidates


def used_images(docker: EngineApi | Docker, going: t.Collection[str]) -> set[str]:
    """Return the ids of the images that are used by containers other than ``going``."""
    return {entry["ImageID"] for entry in docker.containers({}) if entry["Id"] not in going}


def survey_images(docker: EngineApi | Docker, params: Params, going: t.Collection[str], now: float) -> tuple[prune.Judged, set[str]]:
    """Return the judged images, and the ids of all images that stay."""
    everything = docker.images()
    ours = docker.images([prune.LABEL_RECIPE])
    histories = {image["Id"]: docker.history(image["Id"]) for image in ours}
    sizes = {image["Id"]: image["Size"] for image in everything}
    judged = prune.images(ours, histories, sizes, used_images(docker, going), params["keep_images"], params["days"], now)
    gone = {image["Id"] for image in ours for candidate in judged.candidates if names(image) == candidate.ref}
    return judged, set(sizes) - gone


def names(image: dict[str, t.Any]) -> tuple[str, ...]:
    """Return the references by which an image is removed: all its names, or its id when it has none."""
    return tuple(prune.references(image)) or (image["Id"],)


def kept_runs(params: Params) -> set[str]:
    """Return the ids of the engine's runs whose logs stay: the last recorded run, and one that is about to start."""
    paths = engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"])
    notes = (read_note(os.path.join(paths.run, "run.json")), read_note(os.path.join(paths.launch, "engine.json")))
    return {note["run_id"] for note in notes if note and note.get("run_id")}


def survey_caches(docker: EngineApi | Docker, params: Params, staying: t.Collection[str], now: float) -> prune.Judged:
    """Return the judged caches of compiled kernels. ``staying`` are the ids of the images that stay."""
    directories = caches.directories(engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"]).cache)
    if not directories:
        return prune.Judged([], [])
    origins = {caches.origin_of(docker, image["Id"], image.get("Labels")) for image in docker.images() if image["Id"] in staying}
    return caches.judge(directories, origins, caches.mounted(docker.containers({})), params["days"], now)


def survey(docker: EngineApi | Docker, params: Params, now: float) -> Survey:
    """Survey the whole node. Raises :class:`ClusterError` when any part of it cannot be read."""
    logs = os.path.join(params["log_dir"], params["cluster_name"])
    notes = os.path.join(params["state_dir"], "image-contracts")
    downloads = [*survey_download(docker, params, now), *survey_copy(params, now), *survey_units(params, now)]
    containers = survey_containers(docker, params, now)
    images, staying = survey_images(docker, params, {container_id for candidate in containers.candidates for container_id in candidate.ref}, now)
    files = [
        survey_caches(docker, params, staying, now),
        prune.logs(logs, prune.files_below(logs), params["cluster_name"], kept_runs(params), params["days"], now),
        prune.contracts(notes, prune.files_below(notes), staying, now),
    ]
    return Survey(
        [*downloads, *containers.candidates, *images.candidates, *(candidate for judged in files for candidate in judged.candidates)],
        [*containers.left, *images.left, *(entry for judged in files for entry in judged.left)],
    )


# -- removing --------------------------------------------------------------------------------------------------------


class Remover:
    """Removes candidates one by one. Each is read again first, and stays if it has changed."""

    def __init__(self, docker: Docker, params: Params) -> None:
        self._docker = docker
        self._params = params

    def __call__(self, candidate: prune.Candidate) -> bool:
        """Remove a candidate. Return False when it is already gone or in use. Raises :class:`ClusterError` when it cannot be removed or the lock was lost."""
        cluster_locks.check_held(cluster_locks.path_of(self._params["state_dir"], self._params["cluster_name"]), self._params["lock_id"])
        kinds = {
            "download": self._download, "token": self._file, "container": self._container, "image": self._image, "log": self._file, "note": self._file,
            "cache": self._cache, "copy": self._copy, "partial": self._partial, **dict.fromkeys((service.kind for service in table.SERVICES), self._unit),
        }  # fmt: skip
        return kinds[candidate.kind](candidate)

    def _download(self, candidate: prune.Candidate) -> bool:
        if not prune.downloads(inspected(self._docker, candidate.ref), self._params["cluster_name"], time.time()):
            return False
        try:
            self._docker.stop(candidate.ref[0], DOWNLOAD_GRACE)
            self._docker.remove(candidate.ref[0])
        except NotFound:
            return False
        return True

    def _container(self, candidate: prune.Candidate) -> bool:
        again = inspected(self._docker, candidate.ref)
        working, names = at_work.by_container(), self._params["companions"]
        if not prune.containers(again, {}, self._params["cluster_name"], time.time(), working, names).candidates:
            return False
        try:
            # Docker refuses to remove a container that was started just now.
            self._docker.remove(candidate.ref[0])
        except NotFound:
            return False
        except ClusterError as error:
            if not under_removal(error):
                raise
            return False
        return True

    def _image(self, candidate: prune.Candidate) -> bool:
        image = self._docker.image(candidate.ref[0])
        if image is None or names(image) != candidate.ref or image["Id"] in used_images(self._docker, ()):
            return False
        for name in candidate.ref:
            self._docker.remove_image(name)
        return True

    def _cache(self, candidate: prune.Candidate) -> bool:
        path, present = candidate.ref[0], {image["Id"] for image in self._docker.images()}
        if candidate.ref not in [again.ref for again in survey_caches(self._docker, self._params, present, time.time()).candidates]:
            return False
        try:
            # Follows no links, not even at the top.
            shutil.rmtree(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ClusterError(f"removing {path}: {error.strerror}", remedy="Run the task with become: true.") from error
        return True

    def _copy(self, candidate: prune.Candidate) -> bool:
        unit, place = candidate.ref
        if not transient.left(unit, place):
            return False
        transient.stop(unit, place)
        return True

    def _partial(self, candidate: prune.Candidate) -> bool:
        if candidate.ref not in [again.ref for again in survey_copy(self._params, time.time())]:
            return False
        hub = os.path.join(self._params["hf_home"], "hub")
        try:
            with owners.held(hub) as top:
                untrusted.remove_tree(top, os.path.relpath(candidate.ref[0], hub))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ClusterError(f"removing {candidate.name}: {error.strerror}", remedy="Run the task with become: true.") from error
        return True

    def _unit(self, candidate: prune.Candidate) -> bool:
        if candidate.ref not in [again.ref for again in survey_units(self._params, time.time())]:
            return False
        path, key = candidate.ref
        unit = next(service.unit(where_of(self._params)) for service in table.SERVICES if service.key == key)
        try:
            if os.path.lexists(unit.path):
                setup.remove(unit, UNIT_SECONDS)
            shutil.rmtree(path)
        except OSError as error:
            raise ClusterError(f"removing {candidate.name}: {error.strerror}", remedy="Run the task with become: true.") from error
        return True

    def _file(self, candidate: prune.Candidate) -> bool:
        path, *images = candidate.ref
        if any(self._docker.image(image) for image in images):
            return False
        try:
            folder, name = os.path.split(path)
            top, below = os.path.split(folder)
            with untrusted.directory(top, below) as handle:
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode) or prune.age_of(status.st_mtime, time.time()) < candidate.age:
                    return False
                os.unlink(name, dir_fd=handle)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ClusterError(f"removing {path}: {error.strerror}", remedy="Run the task with become: true.") from error
        return True


def remove_all(candidates: list[prune.Candidate], remove: t.Callable[[prune.Candidate], bool], node: str) -> dict[str, t.Any]:
    """Remove each candidate even if others failed, unless the lock was lost. Return the keys to add to the result."""
    removal: dict[str, list[t.Any]] = {"removed": [], "skipped": [], "findings": []}
    for candidate in candidates:
        try:
            removal["removed" if remove(candidate) else "skipped"].append(candidate.name)
        except ClusterError as error:
            remedy = error.remedy or "Look at what still holds it, and repeat."
            removal["findings"].append(finding(f"prune.{candidate.kind}", node, error.verdict, str(error), remedy=remedy, source=candidate.name))
            if error.reason in (cluster_locks.LOST, cluster_locks.NOT_UNDERSTOOD):
                break
    return removal


# -- the module ------------------------------------------------------------------------------------------------------


def snapshot(candidates: t.Iterable[prune.Candidate]) -> dict[str, t.Any]:
    """Return one side of the diff."""
    return {"leavings": [f"{candidate.kind} {candidate.name}" for candidate in candidates]}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params, node = module.params, platform.node()
    if params["days"] < 0:
        raise ClusterError(f"days is {params['days']}; it cannot be below 0", remedy="Give the age in days, such as 14.", reason="input")
    # Also in check mode: without the Docker SDK nothing could be removed.
    docker = (Docker if params["remove"] else EngineApi)(params["docker_socket"], params["docker_timeout"])
    surveyed = survey(docker, params, time.time())
    going = surveyed.candidates if params["remove"] else []
    removal = {"removed": [candidate.name for candidate in going], "skipped": [], "findings": []}
    if going and not module.check_mode:
        removal = remove_all(going, Remover(docker, params), node)
    left = [candidate for candidate in surveyed.candidates if candidate.name not in removal["removed"]]
    done = "may go" if not params["remove"] else "would go" if module.check_mode else f"could go, {len(removal['removed'])} removed"
    result = {
        "changed": bool(removal["removed"]),
        "msg": f"{len(surveyed.candidates)} thing(s) {done}",
        "reason": "removal was asked for" if params["remove"] else "only listed",
        "actions": [f"remove {candidate.kind} {candidate.name}" for candidate in going if candidate.name in removal["removed"]],
        "candidates": [candidate.view() for candidate in surveyed.candidates],
        "left": [entry._asdict() for entry in surveyed.left[:LEFT_LIMIT]],
        "total_bytes": sum(candidate.size for candidate in surveyed.candidates),
        **removal,
        "diff": {"before": snapshot(surveyed.candidates), "after": snapshot(left)},
    }
    if removal["findings"]:
        messages = "; ".join(entry["message"] for entry in removal["findings"])
        details = {name: value for name, value in result.items() if name not in ("msg", "reason")}
        raise ClusterError(
            f"{len(removal['findings'])} of {len(going)} could not be removed on {node}: {messages}",
            remedy=removal["findings"][0]["remedy"],
            reason="not removed",
            **details,
        )
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "remove": {"type": "bool", "default": False},
            "days": {"type": "int", "default": 14},
            "secrets_dir": {"type": "path", "default": "/etc/gb10/secrets"},
            "hf_home": {"type": "path"},
            "keep_images": {"type": "list", "elements": "str", "default": []},
            "companions": {"type": "list", "elements": "str"},
            "lock_id": {"type": "str", "default": ""},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
