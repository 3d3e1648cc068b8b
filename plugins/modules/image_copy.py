#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_copy
short_description: Copy an image to a node, from another node over the fabric or from its registry
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - A copy has three steps. O(state=served) on the node that has the image starts a server. O(state=copied) on the node that lacks it fetches the layers
    that its engine does not have. O(state=stopped) on the first stops the server. Afterwards both have the image with the same id.
  - The server is a transient systemd unit, C(gb10-image-copy-CLUSTER.service), that ends after O(timeout) at the latest. It
    listens only on O(address), only reads, accepts only O(clients), and requires a secret that was generated for this copy. The secret is in a
    directory below C(/run) that only root may read, and is deleted with the unit. The traffic itself is not encrypted. The fabric is a cable between
    the nodes.
  - The engine pushes the layers that the other node lacks to a registry on 127.0.0.1. The server runs it for the length of one push. With containerd's image
    store, O(state=served) runs it too, to list the layers. The image has another name meanwhile. An engine with the classic store can do that only
    if it knows the compressed form of the other layers, because it pulled or pushed them. Only blobs are transferred, each with its sha256, and no name.
  - Layers that are not pushed are filtered out of the engine's export (C(docker save)) while it streams. With containerd's image store, C(msg) has the
    reason. Engines before 25.0 name a layer only after all of them. A layer whose content is unknown until then is spooled in a private file.
  - Both ends prove that they know the secret, which never crosses the link. The fetching node accepts only blobs in RV(offer), which the controller
    gave it. It computes the sha256 of each, and completes the archive only if all are right. An engine accepts an archive completely or not at all.
    Names come only from the offer.
  - Afterwards the engine has to create a container from the image (without starting it), because a load can succeed without unpacking the layers. An
    image from which it cannot create one loses its name again.
  - Both engines must use the same image store (classic, or containerd's), because an image has a different id in each.
  - O(base_image) is copied under its own name if the image was built on it. It has no layers of its own.
  - An image that has another tag on this node keeps that tag. A tag that names another image here is moved to the copied one, as in a pull.
  - If the tag already names the image, nothing is fetched and C(changed) is false.
  - O(state=pulled) instead pulls an image from its registry unless the node has it, and assigns the name O(tag).
  - While it copies or pulls, the controller prints the progress every 15 seconds. Images with an engine have 20 to 40 GB. Both run on the node
    without the connection. If it is lost, they continue, and a second run picks them up.
requirements:
  - systemd on the node that serves the image, and a Docker engine 20.10 or newer on both.
  - For O(state=pulled), the Docker SDK for Python on the node (the distribution's C(python3-docker), 5.0.3 or newer), which knows the node's
    registry logins.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
attributes:
  check_mode:
    support: full
    details:
      - Nothing is started. O(state=served) reports what it would serve, and O(state=copied) what it would copy, or why it could not.
  diff_mode:
    support: full
options:
  state:
    description:
      - V(served) starts a server for the image. It replaces a leftover server of the same cluster.
      - V(copied) fetches the part of O(offer) that this node's engine lacks.
      - V(stopped) stops the server, and removes its files. In check mode it only reports them.
      - V(pulled) pulls the image from its registry.
    type: str
    choices: [served, copied, stopped, pulled]
    required: true
  image:
    description:
      - The image's tag. Required with O(state=served) and O(state=pulled). A pull also accepts its digest, in the format of
        RV(gb10.cluster.image_info#module:digest.reference).
    type: str
  tag:
    description:
      - With O(state=pulled), an additional name for the image on the node.
    type: str
  base_image:
    description:
      - The image that it was built on. It is copied with its tag. An image named by a digest is not copied.
    type: str
  cluster_name:
    description:
      - Name of the cluster. Each cluster has its own unit.
    type: str
    default: gb10
  address:
    description:
      - This node's own address on the fabric. The unit listens on it, and clients connect from it. Required unless O(state=stopped).
    type: str
  port:
    description:
      - The unit's port.
    type: int
    default: 20301
  clients:
    description:
      - Fabric addresses that may fetch. Required with O(state=served).
    type: list
    elements: str
  source:
    description:
      - Fabric address of the node that serves the image. Required with O(state=copied), except in check mode.
    type: str
  secret:
    description:
      - The content of RV(secret_file) from the node that serves the image. Required with O(state=copied), except in check mode.
    type: str
  offer:
    description:
      - RV(offer) from the node that serves the image. Required with O(state=copied).
    type: dict
  timeout:
    description:
      - Seconds after which the copy or the pull is aborted, and the unit ends.
    type: int
    default: 7200
  disk_floor_gib:
    description:
      - GiB to keep free on the disk of the Docker engine, from 0. With O(state=copied) the missing layers must also fit there twice, compressed layers
        five times. With O(state=served) the export must fit, which a classic engine writes to its disk, before 25.0 twice.
    type: int
    default: 20
  required:
    description:
      - Whether to fail if this node cannot copy at all, because it lacks systemd, the address, a free port, a route to the source or the same
        kind of image store. Otherwise RV(able) is false, C(msg) has the reason, and the node may pull and build on its own.
    type: bool
    default: true
  state_dir:
    description:
      - Directory on the node for the state of the collection's clusters. It contains the progress of a running copy, and a lock that
        prevents two copies into one engine.
    type: path
    default: /var/lib/gb10
  lock_id:
    description:
      - Id of the cluster lock that this run acquired (RV(gb10.cluster.cluster_lock#module:lock)). Before it starts anything, the module verifies that the
        lock on this node still has this id. With an empty value nothing is checked.
    type: str
    default: ""
seealso:
  - module: gb10.cluster.image_info
  - module: gb10.cluster.model_copy
"""

EXAMPLES = r"""
- name: Serve the image
  gb10.cluster.image_copy:
    state: served
    image: gb10/engine:ray
    base_image: nvcr.io/nvidia/vllm:26.05-py3
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

- name: Fetch the layers that this node lacks
  gb10.cluster.image_copy:
    state: copied
    address: 192.168.177.12
    source: 192.168.177.11
    secret: "{{ secret.content | b64decode }}"
    offer: "{{ hostvars['spark-1'].served.offer }}"
  become: true
  when: inventory_hostname == 'spark-2'

- name: Pull the image by digest, and tag it
  gb10.cluster.image_copy:
    state: pulled
    image: nvcr.io/nvidia/vllm@sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
    tag: nvcr.io/nvidia/vllm:26.05-py3
  become: true

- name: Stop the server
  gb10.cluster.image_copy:
    state: stopped
  become: true
  when: inventory_hostname == 'spark-1'
"""

RETURN = r"""
able:
  description: Whether this node can copy. False only with O(required=false).
  returned: success, but with O(state=pulled)
  type: bool
  sample: true
offer:
  description: The image on the node that serves it.
  returned: O(state=served)
  type: dict
  contains:
    image:
      description: The tag.
      type: str
    image_id:
      description: The image's id.
      type: str
    layers:
      description: Its layers by the sha256 of their content, lowest first.
      type: list
      elements: str
    size:
      description: The bytes of the image, as reported by the engine.
      type: int
    store:
      description: The engine's image store, V(classic) or V(containerd).
      type: str
    images:
      description:
        - The image, after the base if that is included. Each has its C(id), its C(names), its number of C(layers) and bytes (C(size)). With
          V(containerd) also its media type (C(kind)) and its blobs, C(about) it and those of its layers (C(blobs)), each as digest and bytes.
      type: list
      elements: dict
  sample:
    image: gb10/engine:ray
    image_id: sha256:9b90461c92071f0c3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
    layers: ["sha256:5cabe72bc046d6157873a33464e2abb537823afa38009b92c383e0d92dcd5f15"]
    size: 52428800
    store: classic
    images:
      - id: sha256:9b90461c92071f0c3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
        names: [gb10/engine:ray]
        layers: 1
        size: 52428800
secret_file:
  description: The file with the secret, on the node that serves the image. Only root may read it. Empty if nothing was started.
  returned: O(state=served)
  type: str
  sample: /run/gb10-image-copy/gb10/secret
image_id:
  description: The image's id. Null with O(state=stopped), if nothing could be copied, and in check mode if it would be pulled.
  returned: success
  type: str
  sample: sha256:9b90461c92071f0c3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
how:
  description: V(layers) for the classic store, or V(blobs) for containerd's. Empty with O(state=stopped) and if nothing could be copied.
  returned: success, but with O(state=pulled)
  type: str
  sample: layers
layers_sent:
  description: Number of layers that this node lacked.
  returned: O(state=copied)
  type: int
  sample: 2
bytes:
  description: The bytes that the engine loaded. In check mode the approximate bytes to load, with O(state=served) the approximate bytes of all layers.
  returned: success, but with O(state=pulled)
  type: int
  sample: 52436480
seconds:
  description: Seconds until the engine had the image.
  returned: O(state=copied)
  type: float
  sample: 0.8
running:
  description: The unit and the directory of an existing copy.
  returned: O(state=stopped)
  type: list
  elements: str
  sample: [gb10-image-copy-gb10.service, /run/gb10-image-copy/gb10]
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import FULL, ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.copy_job import GIB, Note, alone, note_path
from ansible_collections.gb10.cluster.plugins.module_utils._host.disk import disk
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_copying, image_loading, registry_pull
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._model.block_client import Route
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient

#: The keys that every state returns, with their values when nothing was done.
NOTHING: dict[str, t.Any] = {"image_id": None, "how": "", "bytes": 0}
#: What is sent, by the kind of image store.
HOW = {"classic": "layers", "containerd": "blobs"}

Result = dict[str, t.Any]


def engine_of(params: dict[str, t.Any]) -> EngineApi:
    """Return a client of this node's Docker engine."""
    return EngineApi(params["docker_socket"], params["docker_timeout"])


def served(module: AnsibleModule) -> Result:
    params = module.params
    given = (params["image"], params["base_image"] or "", params["timeout"], params["disk_floor_gib"])
    offer, order, why = image_copying.offer_of(engine_of(params), *given)
    transient.require_address(params["address"])
    secret_file, unit = "", image_copying.unit_name(params["cluster_name"])
    if not module.check_mode:
        where = (params["address"], params["port"], params["clients"], params["timeout"])
        secret_file = image_copying.start(params["cluster_name"], order, *where)
    would = "would be served" if module.check_mode else "is served"
    suffix = f"; the engine does not push all of it, and exports that: {why}" if why else ""
    return {
        "changed": True,
        "able": True,
        "offer": offer,
        "secret_file": secret_file,
        "image_id": offer["image_id"],
        "how": HOW[offer["store"]],
        "bytes": offer["size"],
        "msg": f"{params['image']} {would} on {params['address']}:{params['port']} by {unit}{suffix}",
        "reason": "another node lacks it",
        "actions": [f"start {unit}"],
        "diff": {"before": {"unit": "absent"}, "after": {"unit": "active"}},
    }


def copied(module: AnsibleModule) -> Result:
    params, api = module.params, engine_of(module.params)
    offer = image_copying.require_offer(params["offer"])
    before = (api.image(offer["image"]) or {}).get("Id")
    if before == offer["image_id"]:
        return result_of(offer, 0, 0, 0.0, before)
    transient.require_address(params["address"])
    lacking = with_space(api, offer, params["disk_floor_gib"])
    if module.check_mode:
        return result_of(offer, lacking.layers, lacking.size, 0.0, before, "would be copied")
    if not params["source"] or not (params["secret"] or "").strip():
        raise ClusterError("source and secret are needed for a copy", remedy="Give both, as the node that gives the image says them.", reason="input")
    route = Route(params["address"], params["source"], params["port"], params["secret"].strip())
    note = Note(note_path(params["state_dir"], image_copying.KIND, params["cluster_name"]))
    try:
        with alone(image_copying.lock_path(params["state_dir"]), params["timeout"], note, "this engine", ""):
            # Another copy may have added some of it in the meantime.
            lacking = with_space(api, offer, params["disk_floor_gib"])
            began = time.monotonic()
            came = image_copying.fetch(api, route, offer, lacking, params["timeout"], note) if lacking.images else 0
            seconds = time.monotonic() - began
    finally:
        note.remove()
    return result_of(offer, lacking.layers, came, seconds, before)


def with_space(api: EngineApi, offer: dict[str, t.Any], floor_gib: int) -> image_copying.Lacks:
    """Return what is missing. Raises :class:`ClusterError` when the disk lacks room for it, and OSError."""
    info = api.get("/info")
    root = str(info.get("DockerRootDir"))
    image_copying.require_store(info, offer)
    free = disk(root)["free_bytes"]
    lacking = image_copying.lacks(api, offer, max(0, free - floor_gib * GIB))
    image_loading.require_space(root, free, image_loading.TIMES[offer["store"]] * lacking.size, floor_gib)
    return lacking


def result_of(offer: dict[str, t.Any], layers: int, count: int, seconds: float, before: str | None, done: str = "copied") -> Result:
    """Return the result of a copy."""
    changed = before != offer["image_id"]
    rate = f" in {seconds:.1f} s, {count / 1e6 / seconds:.0f} MB/s" if seconds else ""
    what = f"{layers} of {len(offer['layers'])} layer(s)"
    return {
        "changed": changed,
        "able": True,
        "image_id": offer["image_id"],
        "how": HOW[offer["store"]],
        "layers_sent": layers if changed else 0,
        "bytes": count,
        "seconds": round(seconds, 1),
        "msg": f"{offer['image']}: {what} {done}, {count / 1e6:.1f} MB{rate}" if changed else f"{offer['image']} is here",
        "reason": "this node lacks it" if changed else "the tag names that very image",
        "actions": [f"copy {offer['image']}: {what} {count} bytes"] if changed else [],
        "diff": {"before": {"image": before}, "after": {"image": offer["image_id"]}},
    }


def stopped(module: AnsibleModule) -> Result:
    name = module.params["cluster_name"]
    unit, place = image_copying.unit_name(name), image_copying.run_dir(name)
    running = transient.left(unit, place)
    if running and not module.check_mode:
        transient.stop(unit, place)
    return {
        **NOTHING,
        "changed": bool(running),
        "able": True,
        "running": running,
        "msg": f"{', '.join(running)} {'would be removed' if module.check_mode else 'removed'}" if running else "no image server is running",
        "reason": "the copy is over" if running else "no image server of this cluster is here",
        "actions": [f"remove {leftover}" for leftover in running],
        "diff": {"before": {"running": running}, "after": {"running": []}},
    }


def work(module: AnsibleModule) -> Result:
    params = module.params
    require_least(params, {"timeout": 1, "disk_floor_gib": 0, "port": 1})
    if params["state"] != "stopped" and not module.check_mode:
        cluster_locks.check_held(cluster_locks.path_of(params["state_dir"], params["cluster_name"]), params["lock_id"])
    try:
        return {"served": served, "copied": copied, "stopped": stopped, "pulled": registry_pull.work}[params["state"]](module)
    except ClusterError as error:
        if params["required"] or error.reason not in image_copying.UNABLE:
            raise
        warning = {"verdict": "warn", "msg": str(error), "remedy": error.remedy, "reason": error.reason}
        return {**NOTHING, **warning, "changed": False, "able": False, "offer": {}, "secret_file": "", "layers_sent": 0, "seconds": 0.0}
    except OSError as error:
        full = error.errno in FULL
        remedy = "Free some, see docker system df, and run again." if full else "Run the task with become: true."
        raise ClusterError(f"{error.filename or params['state_dir']}: {error.strerror}", remedy=remedy, reason="disk full" if full else "permission") from error


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["served", "copied", "stopped", "pulled"], "required": True},
            "image": {"type": "str"},
            "tag": {"type": "str"},
            "base_image": {"type": "str"},
            "cluster_name": {"type": "str", "default": "gb10"},
            "address": {"type": "str"},
            "port": {"type": "int", "default": 20301},
            "clients": {"type": "list", "elements": "str"},
            "source": {"type": "str"},
            "secret": {"type": "str", "no_log": True},
            "offer": {"type": "dict"},
            "timeout": {"type": "int", "default": image_copying.TIMEOUT},
            "disk_floor_gib": {"type": "int", "default": 20},
            "required": {"type": "bool", "default": True},
            "state_dir": {"type": "path", "default": image_copying.STATE_DIR},
            "lock_id": {"type": "str", "default": ""},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        required_if=[("state", "served", ["image", "address", "clients"]), ("state", "copied", ["offer", "address"]), ("state", "pulled", ["image"])],
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
