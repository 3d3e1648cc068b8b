#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_contract_info
short_description: Show what an image really contains
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Asks an image's own Python for its version, its packages and the programs that a cluster needs. A tag says nothing reliable about them.
  - For that, it starts labeled throw-away containers without network and without GPU once for each image, and removes them. The answer is kept
    below O(state_dir) by the image's id.
  - The engine's own parser says which arguments, choices and defaults it has, its own registry which variables. That takes a minute on a GB10
    at most, and is not asked of an image without vLLM.
  - Images that were built on every node have different ids. They contain the same when RV(contract.packages_digest), RV(contract.python) and
    RV(base) are equal.
  - With O(gpus), another such container proves on this node that the GPU is reached in it, once for each image, boot and driver (RV(gpu)). It asks for
    the GPU as a node's container does, and takes no memory of it. In check mode none is started.
  - It does all else in check mode, too, since a check that does not know the image can predict nothing. It never reports a change.
  - An absent image is a result and not a failure. An image that does not answer is the verdict V(unknown).
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
attributes:
  check_mode:
    support: full
    details:
      - Starts the throw-away containers and keeps the answer in check mode, too.
options:
  image:
    description:
      - The image, as a tag, a digest or an id.
    type: str
    required: true
  base_image:
    description:
      - The image that it is, or will be, built on. Only its id and digest are looked up; nothing is started for it.
    type: str
    version_added: 0.2.0
  gpus:
    description:
      - The GPUs that a container has to reach, V(all), V(none) or a list of indexes or UUIDs. With V(none) that is not asked.
    type: raw
    default: none
    version_added: 0.2.0
  state_dir:
    description:
      - The directory that holds the state of clusters on the node. Answers are kept in C(image-contracts) below it.
    type: path
    default: /var/lib/gb10
  tool_timeout:
    description:
      - Seconds that the image gets for each answer. The first run of a large image is slow.
    type: int
    default: 300
"""

EXAMPLES = r"""
- name: Ask what the image holds
  gb10.cluster.image_contract_info:
    image: gb10/engine:ray
  become: true
  register: image

- name: Stop without Ray
  ansible.builtin.assert:
    that: image.exists and image.contract.programs.ray is not none
"""

RETURN = r"""
exists:
  description: Whether the node has the image.
  returned: success
  type: bool
  sample: true
image_id:
  description: The image's id, null when it is absent.
  returned: success
  type: str
  sample: sha256:9b90461c92071f0c3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
repo_tags:
  description: All tags that the image has on this node.
  returned: success
  type: list
  elements: str
  sample: [gb10/engine:ray]
repo_digests:
  description: The digests under which registries know it.
  returned: success
  type: list
  elements: str
  sample: []
labels:
  description: The image's labels.
  returned: success
  type: dict
  sample: {"io.gb10.base": "sha256:fc5d6037a455", "io.gb10.recipe": "1f0c3f3d"}
base:
  description:
    - What the image was built on, and the files that pip added, from the labels that the role image gives it; null for other images. C(ray_wanted) is null, or
      the C(version) of Ray that had been asked for, and C(why) the base kept it out.
  returned: success
  type: dict
  sample: {"image_id": "sha256:fc5d6037a455", "recipe": "1f0c3f3d", "lock": ["msgpack==1.2.4 --hash=sha256:a45ceb5f199d5e38"], "ray_wanted": null}
base_image_id:
  description: The id of O(base_image) on this node, null when it is absent or nobody asked.
  returned: success
  type: str
  sample: sha256:fc5d6037a4552c9e3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
base_config:
  description:
    - The sha256 of the configuration of O(base_image), which is its id in an engine with the classic image store and the same in every engine. Null when the
      base is absent, or when the engine has containerd's image store, which does not say it.
  returned: success
  type: str
  version_added: 0.2.0
  sample: sha256:fc5d6037a455a1d8
on_base:
  description:
    - Whether the image was built on O(base_image), by the labels that the role image gives it. Where the other kind of image store built it, in which the base
      has another id, by its layers. False when either is absent.
  returned: success
  type: bool
  version_added: 0.2.0
  sample: true
base_digest:
  description: O(base_image) by the digest that its registry knows it under, null when it was built or loaded here, is absent, or nobody asked.
  returned: success
  type: str
  sample: nvcr.io/nvidia/vllm@sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
  version_added: 0.2.0
created:
  description: When the image was made.
  returned: success
  type: str
  sample: "2026-11-20T18:02:11.5Z"
size_bytes:
  description: The image's size.
  returned: success
  type: int
  sample: 18853210112
contract:
  description: What the image holds, null when it is absent.
  returned: success
  type: dict
  contains:
    python:
      description: The full version of its C(python3). Ray compares it between nodes down to the patch level.
      type: str
      sample: 3.12.3
    architecture:
      description: The machine it was built for.
      type: str
      sample: aarch64
    versions:
      description: The versions of the engine, Ray and PyTorch, and of the CUDA and NCCL that PyTorch was built with; null for what it does not have.
      type: dict
      sample: {"vllm": 0.32.0, "ray": 2.60.0, "torch": 2.13.0, "cuda": "13.0", "nccl": 2.28.9}
    programs:
      description: Where its C(PATH) finds the programs that a cluster starts, null for what it does not find.
      type: dict
      sample: {"ray": /usr/local/bin/ray, "vllm": /usr/local/bin/vllm}
    packages:
      description: All its Python packages, in normal spelling and sorted.
      type: list
      elements: str
      sample: [aiohttp==3.13.0, vllm==0.32.0]
    packages_digest:
      description: The digest of RV(contract.packages). Equal digests mean equal packages.
      type: str
      sample: sha256:1b4f0e9851971998e732078544c96b36c3d01cedf7caa332359d6f1d83567014
    entrypoint:
      description:
        - Its own entrypoint (C(argv)), and what that does with a command (C(kind)), tried in a container without network.
        - V(wrapper) runs the command after its own work, and node containers keep it. V(program) takes the command for its arguments, and is replaced.
          V(none) means that there is no entrypoint, V(unknown) that it did not run the command and is not known as a program.
      type: dict
      sample: {"argv": [/opt/nvidia/nvidia_entrypoint.sh], "kind": wrapper}
    image_env:
      description: Names of the variables that the image sets in its containers.
      type: list
      elements: str
      sample: [CUDA_VERSION, PATH]
    engine:
      description: What vLLM in the image takes, null when it has none, or when that did not answer.
      type: dict
      contains:
        flags:
          description: Every long option of C(vllm serve) with its C(default), and its C(choices) where it has some.
          type: dict
          sample: {"--kv-cache-dtype": {"choices": [auto, fp8], "default": auto}}
        env:
          description: The names of all variables that it registers.
          type: list
          elements: str
          sample: [VLLM_HOST_IP]
        executor:
          description: The C(default) of C(--distributed-executor-backend), and whether Ray is used by its second executor (C(ray_v2), null without a choice).
          type: dict
          sample: {"default": null, "ray_v2": true}
        parsers:
          description: The parsers for C(reasoning) and for C(tool) calls that it registers.
          type: dict
          sample: {"reasoning": [deepseek_r1, qwen3], "tool": [hermes, qwen3_coder]}
    engine_error:
      description: Why vLLM in the image did not answer, empty when it did or there is none.
      type: str
      sample: ""
gpu:
  description:
    - What a container of the image reaches, null when it is absent, when nobody asked, or in check mode when that is not known yet.
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    error:
      description: What Docker, NVML or CUDA said when the GPU was not reached, empty when it was.
      type: str
      sample: ""
    why:
      description: What that means, empty when it was reached, or when it is unknown.
      type: str
      sample: ""
    remedy:
      description: What to do about it.
      type: str
      sample: ""
    driver:
      description: The version of the driver.
      type: str
      sample: 580.159.03
    gpus:
      description: How many GPUs it reaches.
      type: int
      sample: 1
    cuda:
      description: The CUDA that the C(libcuda) of its processes knows.
      type: str
      sample: "13.2"
    libcuda:
      description: Where that C(libcuda) lies in the container. NGC images bring one that is newer than the driver's, under their own entrypoint.
      type: list
      elements: str
      sample: [/usr/local/cuda/compat/lib.real/libcuda.so.595.45.04]
    image_cuda:
      description: The CUDA that the image compiles with, or else that of its PyTorch. Empty when neither says.
      type: str
      sample: "13.2"
from_cache:
  description: Whether the answer was known already, so that no container was started.
  returned: success
  type: bool
  sample: true
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker import image_store
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_contract, image_identity
from ansible_collections.gb10.cluster.plugins.module_utils._image.images import by_digest
from ansible_collections.gb10.cluster.plugins.module_utils._module import run

ABSENT: dict[str, t.Any] = {
    "exists": False,
    "image_id": None,
    "repo_tags": [],
    "repo_digests": [],
    "labels": {},
    "base": None,
    "created": None,
    "size_bytes": None,
    "contract": None,
    "gpu": None,
    "from_cache": False,
}


def gpu_of(module: AnsibleModule, api: EngineApi, image: dict[str, t.Any], entrypoint: dict[str, t.Any]) -> dict[str, t.Any] | None:
    """Return what a container of the image reaches, from a former one of this boot and driver where one reached the GPU."""
    params = module.params
    # Whether an entrypoint that is not understood stays is not known: the stage stops for that.
    if params["gpus"] in ("none", []) or entrypoint["kind"] == image_contract.UNKNOWN:
        return None
    path, key = gpu_access.proof_path(params["state_dir"], image), gpu_access.proof_key(params["gpus"])
    known = gpu_access.read_proof(path, key)
    if known or module.check_mode:
        return known
    wrapper = entrypoint["argv"] if entrypoint["kind"] == image_contract.WRAPPER else []
    answer = gpu_access.prove(api, image, wrapper, params["gpus"], params["tool_timeout"])
    if not answer["error"]:
        try:
            gpu_access.write_proof(path, key, answer)
        except OSError as error:
            module.warn(f"{path} cannot be written ({error.strerror}), so the GPU will be asked for again next time")
    return answer


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    image = api.image(params["image"])
    base_image = api.image(params["base_image"]) if params["base_image"] else None
    store = image_store.store_of(api.get("/info")) if base_image else ""
    base = {
        "base_image_id": base_image["Id"] if base_image else None,
        # The classic store calls an image by the sha256 of its configuration.
        "base_config": base_image["Id"] if base_image and store == "classic" else None,
        "on_base": bool(image and base_image) and image_identity.stands_on(image, base_image, store),
        "base_digest": by_digest(params["base_image"], base_image.get("RepoDigests") or []) if base_image else None,
    }
    if image is None:
        remedy = "Run the play with --tags image"
        return {**ABSENT, **base, "verdict": "block", "msg": f"no image {params['image']} is here", "remedy": remedy}

    path = image_contract.cache_path(params["state_dir"], image)
    kept = image_contract.read_cache(path)
    contract = kept or image_contract.ask(api, image, params["image"], params["tool_timeout"])
    if contract["engine_error"]:
        module.warn(f"{params['image']} does not say what its engine takes, and will be asked again next time: {contract['engine_error']}")
    if kept is None:
        try:
            image_contract.write_cache(path, contract)
        except OSError as error:
            module.warn(f"{path} cannot be written ({error.strerror}), so the image will be asked again next time")

    labels = (image.get("Config") or {}).get("Labels") or {}
    return {
        "msg": f"{params['image']} holds {len(contract['packages'])} packages on Python {contract['python']}",
        "exists": True,
        "image_id": image["Id"],
        "repo_tags": image.get("RepoTags") or [],
        "repo_digests": image.get("RepoDigests") or [],
        "labels": labels,
        "base": image_identity.base_of(labels),
        **base,
        "created": image.get("Created"),
        "size_bytes": image.get("Size"),
        "contract": contract,
        "gpu": gpu_of(module, api, image, contract["entrypoint"]),
        "from_cache": kept is not None,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "base_image": {"type": "str"},
            "gpus": {"type": "raw", "default": "none"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "tool_timeout": {"type": "int", "default": 300},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
