#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_info
short_description: Show an image's content, additions to its base, missing packages, or registry digest
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - O(want=contract) asks an image's own Python for its version, its packages and the programs that a cluster needs, because a tag is not reliable. It
    starts labeled throw-away containers without network and GPU once for each image, and removes them. The answer is stored below O(state_dir)
    by the image's id.
  - The engine's own parser lists its arguments, choices and defaults, and its own registry lists its variables. That takes a minute at most on a GB10,
    and is skipped for an image without vLLM.
  - Images built on different nodes have different ids. Their content is the same if RV(contract.packages_digest), RV(contract.python) and
    RV(base) are equal.
  - With O(gpus), another such container verifies on this node that it reaches the GPU, once for each image, boot and driver (RV(gpu)). It requests
    the GPU as a node's container does, and uses no GPU memory. In check mode none is started.
  - For V(contract) an absent image is a result and not a failure. An image that does not answer gives the verdict V(unknown).
  - O(want=additions) compares an image with O(base_image). It fails if a file of the base was changed or removed, or if its variables, entrypoint,
    command or directory differ. Files below the packages in O(allowed) may differ. Each file in the layers above the base is compared with the same file
    in the base's layers, if it exists there, in the engine's export of the image (C(docker save)). Nothing is started for that. If layers are
    compressed in a way that Python does not know (zstd), a labeled throw-away container of each image without network lists its packages, and those of
    the base must be there in the same version.
  - O(want=layer) has an image's own pip (22.2 or newer) find what O(requirements) need in addition to the image's packages. Every installed package keeps
    its version. The answer names each file by its hash, so that a layer built from it is the same on every node, and next month. If the image's packages
    conflict with a version of Ray, the newest older one that fits is found, down to the first that requires the token. It starts a labeled throw-away
    container with network, and removes it. Nothing is installed.
  - O(want=digest) asks an image's registry, through the node's Docker engine, for the current digest of the tag. Nothing is pulled. A tag can
    be moved to another image at any time. Nodes that pull RV(digest.reference) always get the same image.
  - It never reports a change.
requirements:
  - For V(digest), the Docker SDK for Python on the node (the distribution's C(python3-docker), 5.0.3 or newer), which knows the node's registry logins.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
attributes:
  check_mode:
    support: full
    details:
      - Starts the throw-away containers and stores the answer in check mode, too, because predictions need facts about the image. The
        container that tests the GPU is not started.
options:
  image:
    description:
      - The image, as a tag, a digest or an id. For V(digest), with its registry and tag.
    type: str
    required: true
  want:
    description:
      - The kinds of information to return.
    type: list
    elements: str
    choices: [contract, additions, layer, digest]
    default: [contract]
  base_image:
    description:
      - The image that it is, or will be, built on, as a tag, a digest or an id. Required for V(additions). For V(contract) only its id and digest are
        read, and nothing is started for it.
    type: str
  gpus:
    description:
      - The GPUs that a container has to reach, V(all), V(none) or a list of indexes or UUIDs. V(none) skips the test.
    type: raw
    default: none
  state_dir:
    description:
      - Directory for the state of clusters on the node. Answers are stored in C(image-contracts) below it.
    type: path
    default: /var/lib/gb10
  allowed:
    description:
      - For V(additions), names of the packages whose files may be changed, spelled like their directories.
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
      - The packages that the layer is for, in pip's format. Required for V(layer).
    type: list
    elements: str
  ray_allowed:
    description:
      - Acceptable versions of Ray, in pip's format, if the image conflicts with the one that O(requirements) names. Empty accepts any older one.
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
      - A directory on the node with packages, as an import of M(gb10.cluster.bundle) creates it. With it pip uses no index.
    type: path
  tool_timeout:
    description:
      - Maximum seconds for each answer of the image, and for silence of the engine while it exports the image. The first run of a large image is slow.
      - The default is 300, and 600 for pip with V(layer).
    type: int
"""

EXAMPLES = r"""
- name: Read the image's content
  gb10.cluster.image_info:
    image: gb10/engine:ray
  become: true
  register: image

- name: Stop without Ray
  ansible.builtin.assert:
    that: image.exists and image.contract.programs.ray is not none

- name: Verify that the layer only adds files
  gb10.cluster.image_info:
    want: [additions]
    image: gb10/engine:ray
    base_image: nvcr.io/nvidia/vllm:26.05-py3
  become: true

- name: Find the packages that Ray adds to the base
  gb10.cluster.image_info:
    want: [layer]
    image: nvcr.io/nvidia/vllm:26.05-py3
    requirements: ["ray==2.60.0"]
  become: true

- name: Read the current digest of the tag
  gb10.cluster.image_info:
    want: [digest]
    image: nvcr.io/nvidia/vllm:26.05-py3
  become: true
  register: base

- name: Pull exactly that image
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
  description: The image's id. Null if it is absent.
  returned: when V(contract) is wanted
  type: str
  sample: sha256:9b90461c92071f0c3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
repo_tags:
  description: All tags of the image on this node.
  returned: when V(contract) is wanted
  type: list
  elements: str
  sample: [gb10/engine:ray]
repo_digests:
  description: The image's digests in its registries.
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
    - The image's base, and the files that pip added, from the labels that the role image sets. Null for other images. C(ray_wanted) is null, or
      the C(version) of Ray that was requested, and C(why) the base conflicts with it.
  returned: when V(contract) is wanted
  type: dict
  sample: {"image_id": "sha256:fc5d6037a455", "recipe": "1f0c3f3d", "lock": ["msgpack==1.2.4 --hash=sha256:a45ceb5f199d5e38"], "ray_wanted": null}
base_image_id:
  description: The id of O(base_image) on this node. Null if it is absent or was not requested.
  returned: when V(contract) is wanted
  type: str
  sample: sha256:fc5d6037a4552c9e3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
base_config:
  description:
    - The sha256 of the configuration of O(base_image), which is its id in an engine with the classic image store and the same in every engine. Null if the
      base is absent, or if the engine has containerd's image store, which does not report it.
  returned: when V(contract) is wanted
  type: str
  sample: sha256:fc5d6037a455a1d8
on_base:
  description:
    - Whether the image was built on O(base_image), by the labels that the role image sets. If the other kind of image store built it, in which the base
      has a different id, by its layers. False if either is absent.
  returned: when V(contract) is wanted
  type: bool
  sample: true
base_digest:
  description: The digest of O(base_image) in its registry. Null if it was built or loaded here, is absent, or was not requested.
  returned: when V(contract) is wanted
  type: str
  sample: nvcr.io/nvidia/vllm@sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
created:
  description: When the image was built.
  returned: when V(contract) is wanted
  type: str
  sample: "2026-11-20T18:02:11.5Z"
size_bytes:
  description: The image's size.
  returned: when V(contract) is wanted
  type: int
  sample: 18853210112
contract:
  description: The image's content. Null if it is absent.
  returned: when V(contract) is wanted
  type: dict
  contains:
    python:
      description: The full version of its C(python3). Ray compares it between nodes down to the patch level.
      type: str
      sample: 3.12.3
    architecture:
      description: The architecture it was built for.
      type: str
      sample: aarch64
    versions:
      description: The versions of the engine, Ray and PyTorch, and of the CUDA and NCCL that PyTorch was built with. Null for missing ones.
      type: dict
      sample: {"vllm": 0.32.0, "ray": 2.60.0, "torch": 2.13.0, "cuda": "13.0", "nccl": 2.28.9}
    programs:
      description: The paths of the programs that a cluster starts, on its C(PATH). Null for missing ones.
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
        - Its own entrypoint (C(argv)), and how that handles a command (C(kind)), tested in a container without network.
        - V(wrapper) runs the command after its own work, and node containers keep it. V(program) treats the command as its arguments, and is replaced.
          V(none) means that there is no entrypoint, V(unknown) that it did not run the command and is not known as a program.
      type: dict
      sample: {"argv": [/opt/nvidia/nvidia_entrypoint.sh], "kind": wrapper}
    image_env:
      description: Names of the variables that the image sets in its containers.
      type: list
      elements: str
      sample: [CUDA_VERSION, PATH]
    engine:
      description: The arguments of vLLM in the image. Null if it has none, or if vLLM did not answer.
      type: dict
      contains:
        flags:
          description: Every long option of C(vllm serve) with its C(default), and its C(choices) if it has any.
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
      description: Why vLLM in the image did not answer. Empty if it did or there is none.
      type: str
      sample: ""
gpu:
  description:
    - The GPU as seen from a container of the image. Null if it is absent, was not requested, or in check mode if it is not known yet.
  returned: when V(contract) is wanted
  type: dict
  contains:
    error:
      description: The message from Docker, NVML or CUDA if the GPU was not reached. Empty if it was.
      type: str
      sample: ""
    why:
      description: The meaning of the message. Empty if the GPU was reached, or if it is unknown.
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
      description: Number of GPUs that it reaches.
      type: int
      sample: 1
    cuda:
      description: The CUDA version of the C(libcuda) in its processes.
      type: str
      sample: "13.2"
    libcuda:
      description: The path of that C(libcuda) in the container. NGC images bring one that is newer than the driver's, under their own entrypoint.
      type: list
      elements: str
      sample: [/usr/local/cuda/compat/lib.real/libcuda.so.595.45.04]
    image_cuda:
      description: The CUDA that the image compiles with, or else that of its PyTorch. Empty if neither reports it.
      type: str
      sample: "13.2"
from_cache:
  description: Whether the answer was already stored, so that no container was started.
  returned: when V(contract) is wanted
  type: bool
  sample: true
additions:
  description: The image's additions to its base.
  returned: when V(additions) is wanted
  type: dict
  contains:
    how:
      description: V(files) if all files were compared, V(packages) if the packages were.
      type: str
      sample: files
    layers:
      description: Number of layers above the base.
      type: int
      sample: 2
    added:
      description: Number of files, or packages, that the layers add.
      type: int
      sample: 6144
    changed_paths:
      description: Parts of the base that were changed or removed as permitted by O(allowed).
      type: list
      elements: str
      sample: [/usr/local/lib/python3.12/dist-packages/vllm/envs.py]
layer:
  description: The packages that pip would add to the image.
  returned: when V(layer) is wanted
  type: dict
  contains:
    lock:
      description: The files to add, as lines for pip's option C(--require-hashes). Empty if the image has all of them.
      type: list
      elements: str
      sample: ["msgpack==1.2.4 --hash=sha256:a45ceb5f199d5e388f28b550ba881096a3740d4bda10e661d77f59d9a2e8187a"]
    why:
      description:
        - The packages of the image that conflict with the Ray of O(requirements), so that RV(layer.lock) has an older one. Empty if it has the requested one.
      type: str
      sample: ray 2.60.0 depends on packaging>=24.2, and the image has packaging 23.2
digest:
  description: The registry's data for the tag.
  returned: when V(digest) is wanted
  type: dict
  contains:
    digest:
      description: The digest of the image in its registry.
      type: str
      sample: sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
    reference:
      description: The image by its digest, in the format for a pull.
      type: str
      sample: nvcr.io/nvidia/vllm@sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._image_facts import image_changes, image_contents, image_layer, image_tag
from ansible_collections.gb10.cluster.plugins.module_utils._module import run

#: The function that reads each topic, and its default timeout in seconds. The contract's keys are at the top of the result, the others below their topic.
WANTS: dict[str, tuple[t.Callable[[AnsibleModule], dict[str, t.Any]], int]] = {
    "contract": (image_contents.work, 300), "additions": (image_changes.work, 300), "layer": (image_layer.work, 600), "digest": (image_tag.work, 300),
}  # fmt: skip


#: The option that a topic requires.
NEEDS = {"additions": "base_image", "layer": "requirements"}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    facts: dict[str, t.Any] = {}
    messages = []
    given = module.params
    missing = [f"{NEEDS[want]} for {want}" for want in given["want"] if want in NEEDS and not given[NEEDS[want]]]
    if missing:
        raise ClusterError(f"missing options: {', '.join(missing)}", remedy="Give them.", reason="input")
    for want in given["want"]:
        finds, seconds = WANTS[want]
        module.params = {**given, "tool_timeout": given["tool_timeout"] or seconds}
        answer = finds(module)
        messages.append(answer.pop("msg"))
        facts |= answer if want == "contract" else {want: answer}
    return {**facts, "msg": "; ".join(messages)}


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
