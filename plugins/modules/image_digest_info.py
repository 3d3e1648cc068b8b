#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_digest_info
short_description: Show which image a registry has under a tag now
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Asks the registry of an image, through the node's Docker engine, for the digest that the tag has at this moment. Nothing is pulled.
  - A tag can be given to another image at any time. Nodes that pull what RV(reference) says hold the same image whenever they pull it.
requirements:
  - The Docker SDK for Python on the node (C(python3-docker) of the distribution, 5.0.3 or newer), which knows the node's logins to registries.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
options:
  image:
    description:
      - The image with its registry and tag.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Ask what the tag is now
  gb10.cluster.image_digest_info:
    image: nvcr.io/nvidia/vllm:26.05-py3
  become: true
  register: base

- name: Pull that very image
  community.docker.docker_image_pull:
    name: "{{ base.reference }}"
  become: true
"""

RETURN = r"""
digest:
  description: The digest of the image in its registry.
  returned: success
  type: str
  sample: sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
reference:
  description: The image by its digest, as engines pull it.
  returned: success
  type: str
  sample: nvcr.io/nvidia/vllm@sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._image import images, pulling
from ansible_collections.gb10.cluster.plugins.module_utils._module import run


def work(module: AnsibleModule) -> dict[str, t.Any]:
    image = module.params["image"]
    try:
        digest = Docker(module.params["docker_socket"], module.params["docker_timeout"]).registry_digest(image)
    except UnknownState:
        raise
    except ClusterError as error:
        raise ClusterError(
            f"the registry does not say what {image} is: {error}",
            remedy=error.remedy or pulling.remedy_of(str(error), image),
            reason=error.reason or "no digest",
        ) from error
    return {"msg": f"{image} is {digest}", "digest": digest, "reference": f"{images.repository(image)}@{digest}"}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
