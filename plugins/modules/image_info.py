#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_info
short_description: Show what an image contains, adds to its base, would need, or is in its registry
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - O(want=contract) asks an image's own Python for its version, its packages and the programs that a cluster needs. A tag says nothing reliable about them. For
    that, it starts labeled throw-away containers without network and without GPU once for each image, and removes them. The answer is kept below O(state_dir)
    by the image's id.
  - The engine's own parser says which arguments, choices and defaults it has, its own registry which variables. That takes a minute on a GB10
    at most, and is not asked of an image without vLLM.
  - Images that were built on every node have different ids. They contain the same when RV(contract.packages_digest), RV(contract.python) and
    RV(base) are equal.
  - With O(gpus), another such container proves on this node that the GPU is reached in it, once for each image, boot and driver (RV(gpu)). It asks for
    the GPU as a node's container does, and takes no memory of it. In check mode none is started.
  - For V(contract) an absent image is a result and not a failure. An image that does not answer is the verdict V(unknown).
  - O(want=additions) compares an image with O(base_image). It fails when a file of the base was changed or removed, or when its variables, its entrypoint, its
    command or its directory are other ones. What lies below the packages in O(allowed) may differ. Each file in the layers above the base is looked up in those
    of the base, in what the engine exports of the image (C(docker save)), and what is there as well is compared. Nothing is started for that. Where layers are
    compressed in a way that Python does not know (zstd), a labeled throw-away container of each image without network says which packages it has, and those of
    the base must be there in the same version.
  - O(want=layer) has an image's own pip (22.2 or newer) find what O(requirements) need beyond what the image has, with every installed package kept at its
    version. The answer names each file by its hash, so that a layer made of it is the same on every node, and next month. Where the image's packages
    keep a version of Ray out, the newest older one that fits is found, down to the first that asks for the token. For that it starts a labeled throw-away
    container with network, and removes it. Nothing is installed.
  - O(want=digest) asks the registry of an image, through the node's Docker engine, for the digest that the tag has at this moment. Nothing is pulled. A tag can
    be given to another image at any time. Nodes that pull RV(digest.reference) have the same image whenever they pull it.
  - It never reports a change.
requirements:
  - For V(digest), the Docker SDK for Python on the node (C(python3-docker) of the distribution, 5.0.3 or newer), which knows the node's logins to registries.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
attributes:
  check_mode:
    support: full
    details:
      - Starts the throw-away containers and keeps the answer in check mode, too, since a check that does not know the image can predict nothing. The
        container that proves the GPU is not started.
options:
  image:
    description:
      - The image, as a tag, a digest or an id. For V(digest), with its registry and tag.
    type: str
    required: true
  want:
    description:
      - What to find out.
    type: list
    elements: str
    choices: [contract, additions, layer, digest]
    default: [contract]
  base_image:
    description:
      - The image that it is, or will be, built on, as a tag, a digest or an id. Required for V(additions). For V(contract) only its id and digest are looked
        up; nothing is started for it.
    type: str
  gpus:
    description:
      - The GPUs that a container has to reach, V(all), V(none) or a list of indexes or UUIDs. With V(none) that is not asked.
    type: raw
    default: none
  state_dir:
    description:
      - The directory that holds the state of clusters on the node. Answers are kept in C(image-contracts) below it.
    type: path
    default: /var/lib/gb10
  allowed:
    description:
      - For V(additions), names of the packages whose files may be changed, as directories are named.
    type: list
    elements: str
    default: []
  allowed_env:
    description:
      - For V(additions), names of variables that may have other values.
    type: list
    elements: str
    default: []
  requirements:
    description:
      - What the layer is for, as pip writes it. Required for V(layer).
    type: list
    elements: str
  ray_allowed:
    description:
      - Which versions of Ray do as well where what the image holds keeps out the one that O(requirements) names, as pip writes them. Empty for any older one.
    type: str
    default: ""
  ca_file:
    description:
      - A CA bundle on the node that pip needs behind a TLS proxy.
    type: path
  pip_env:
    description:
      - Variables for pip, such as C(PIP_INDEX_URL).
    type: dict
    default: {}
  wheels:
    description:
      - A directory on the node with packages, as an import of M(gb10.cluster.bundle) leaves them. With it pip uses no index.
    type: path
  tool_timeout:
    description:
      - Seconds that the image gets for each answer, and that the engine may be silent while it exports the image. The first run of a large image is slow.
      - If left out, 300, and 600 for pip with V(layer).
    type: int
"""

EXAMPLES = r"""
- name: Ask what the image contains
  gb10.cluster.image_info:
    image: gb10/engine:ray
  become: true
  register: image

- name: Stop without Ray
  ansible.builtin.assert:
    that: image.exists and image.contract.programs.ray is not none

- name: Make sure that nothing of the base was changed
  gb10.cluster.image_info:
    want: [additions]
    image: gb10/engine:ray
    base_image: nvcr.io/nvidia/vllm:26.05-py3
  become: true

- name: Find what Ray adds to the base
  gb10.cluster.image_info:
    want: [layer]
    image: nvcr.io/nvidia/vllm:26.05-py3
    requirements: ["ray==2.60.0"]
  become: true

- name: Ask which image the tag is now
  gb10.cluster.image_info:
    want: [digest]
    image: nvcr.io/nvidia/vllm:26.05-py3
  become: true
  register: base

- name: Pull that very image
  community.docker.docker_image_pull:
    name: "{{ base.digest.reference }}"
  become: true
"""

RETURN = r"""
exists:
  description: Whether the node has the image.
  returned: when V(contract) is wanted
  type: bool
  sample: true
image_id:
  description: The image's id, null when it is absent.
  returned: when V(contract) is wanted
  type: str
  sample: sha256:9b90461c92071f0c3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
repo_tags:
  description: All tags that the image has on this node.
  returned: when V(contract) is wanted
  type: list
  elements: str
  sample: [gb10/engine:ray]
repo_digests:
  description: The digests under which registries know it.
  returned: when V(contract) is wanted
  type: list
  elements: str
  sample: []
labels:
  description: The image's labels.
  returned: when V(contract) is wanted
  type: dict
  sample: {"io.gb10.base": "sha256:fc5d6037a455", "io.gb10.recipe": "1f0c3f3d"}
base:
  description:
    - What the image was built on, and the files that pip added, from the labels that the role image gives it; null for other images. C(ray_wanted) is null, or
      the C(version) of Ray that had been asked for, and C(why) the base kept it out.
  returned: when V(contract) is wanted
  type: dict
  sample: {"image_id": "sha256:fc5d6037a455", "recipe": "1f0c3f3d", "lock": ["msgpack==1.2.4 --hash=sha256:a45ceb5f199d5e38"], "ray_wanted": null}
base_image_id:
  description: The id of O(base_image) on this node, null when it is absent or nobody asked.
  returned: when V(contract) is wanted
  type: str
  sample: sha256:fc5d6037a4552c9e3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
base_config:
  description:
    - The sha256 of the configuration of O(base_image), which is its id in an engine with the classic image store and the same in every engine. Null when the
      base is absent, or when the engine has containerd's image store, which does not say it.
  returned: when V(contract) is wanted
  type: str
  sample: sha256:fc5d6037a455a1d8
on_base:
  description:
    - Whether the image was built on O(base_image), by the labels that the role image gives it. Where the other kind of image store built it, in which the base
      has another id, by its layers. False when either is absent.
  returned: when V(contract) is wanted
  type: bool
  sample: true
base_digest:
  description: O(base_image) by the digest that its registry knows it under, null when it was built or loaded here, is absent, or nobody asked.
  returned: when V(contract) is wanted
  type: str
  sample: nvcr.io/nvidia/vllm@sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
created:
  description: When the image was made.
  returned: when V(contract) is wanted
  type: str
  sample: "2026-11-20T18:02:11.5Z"
size_bytes:
  description: The image's size.
  returned: when V(contract) is wanted
  type: int
  sample: 18853210112
contract:
  description: What the image holds, null when it is absent.
  returned: when V(contract) is wanted
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
  returned: when V(contract) is wanted
  type: dict
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
  returned: when V(contract) is wanted
  type: bool
  sample: true
additions:
  description: What the image adds to its base.
  returned: when V(additions) is wanted
  type: dict
  contains:
    how:
      description: V(files) where all files were compared, V(packages) where the packages were.
      type: str
      sample: files
    layers:
      description: How many layers there are above the base.
      type: int
      sample: 2
    added:
      description: How many files the layers add, or packages.
      type: int
      sample: 6144
    changed_paths:
      description: What of the base was changed or removed where O(allowed) says that it may be.
      type: list
      elements: str
      sample: [/usr/local/lib/python3.12/dist-packages/vllm/envs.py]
layer:
  description: What pip would add to the image.
  returned: when V(layer) is wanted
  type: dict
  contains:
    lock:
      description: The files that would be added, as lines for pip's option C(--require-hashes). Empty when the image has all of it.
      type: list
      elements: str
      sample: ["msgpack==1.2.4 --hash=sha256:a45ceb5f199d5e388f28b550ba881096a3740d4bda10e661d77f59d9a2e8187a"]
    why:
      description:
        - Which packages of the image kept the Ray of O(requirements) out, so that RV(layer.lock) has an older one. Empty when it has what was asked for.
      type: str
      sample: ray 2.60.0 depends on packaging>=24.2, and the image has packaging 23.2
digest:
  description: What the registry has under the tag.
  returned: when V(digest) is wanted
  type: dict
  contains:
    digest:
      description: The digest of the image in its registry.
      type: str
      sample: sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
    reference:
      description: The image by its digest, as engines pull it.
      type: str
      sample: nvcr.io/nvidia/vllm@sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._image_facts import image_changes, image_contents, image_layer, image_tag
from ansible_collections.gb10.cluster.plugins.module_utils._module import run

#: What finds each out, and the seconds for an answer where none are given. What the contract has is the result itself, all else is below its name.
WANTS: dict[str, tuple[t.Callable[[AnsibleModule], dict[str, t.Any]], int]] = {
    "contract": (image_contents.work, 300), "additions": (image_changes.work, 300), "layer": (image_layer.work, 600), "digest": (image_tag.work, 300),
}  # fmt: skip


#: An option that one of them cannot do without.
NEEDS = {"additions": "base_image", "layer": "requirements"}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    found: dict[str, t.Any] = {}
    said = []
    given = module.params
    missing = [f"{NEEDS[want]} for {want}" for want in given["want"] if want in NEEDS and not given[NEEDS[want]]]
    if missing:
        raise ClusterError(f"missing options: {', '.join(missing)}", remedy="Give them.", reason="input")
    for want in given["want"]:
        finds, seconds = WANTS[want]
        module.params = {**given, "tool_timeout": given["tool_timeout"] or seconds}
        answer = finds(module)
        said.append(answer.pop("msg"))
        found |= answer if want == "contract" else {want: answer}
    return {**found, "msg": "; ".join(said)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "want": {"type": "list", "elements": "str", "choices": list(WANTS), "default": ["contract"]},
            "base_image": {"type": "str"},
            "gpus": {"type": "raw", "default": "none"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "allowed": {"type": "list", "elements": "str", "default": []},
            "allowed_env": {"type": "list", "elements": "str", "default": []},
            "requirements": {"type": "list", "elements": "str"},
            "ray_allowed": {"type": "str", "default": ""},
            "ca_file": {"type": "path"},
            "pip_env": {"type": "dict", "default": {}},
            "wheels": {"type": "path"},
            "tool_timeout": {"type": "int"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
