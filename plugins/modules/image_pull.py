#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_pull
short_description: Pull an image and show how far it is
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Pulls an image unless the node has it, and gives it the name O(tag).
  - While it pulls, a line on the controller says every 15 seconds how much is downloaded and unpacked. Images with an engine have 20 to 40 GB.
  - The pull runs on the node without the connection. When that is lost, the pull goes on, and a second run takes it up.
requirements:
  - The Docker SDK for Python on the node (C(python3-docker) of the distribution, 5.0.3 or newer), which knows the node's logins to registries.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  image:
    description:
      - The image with its tag, or by its digest as RV(gb10.cluster.image_info#module:digest.reference) says it.
    type: str
    required: true
  tag:
    description:
      - A name that the image gets on the node.
    type: str
  pull_timeout:
    description:
      - Seconds that the pull may take.
    type: int
    default: 7200
  state_dir:
    description:
      - The directory that holds the state of clusters on the node. How far the pull is stands there while it runs.
    type: path
    default: /var/lib/gb10
seealso:
  - module: gb10.cluster.image_info
"""

EXAMPLES = r"""
- name: Pull the image that the tag is now
  gb10.cluster.image_pull:
    image: nvcr.io/nvidia/vllm@sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
    tag: nvcr.io/nvidia/vllm:26.05-py3
  become: true
"""

RETURN = r"""
image_id:
  description: The image's id, null in check mode when it would be pulled.
  returned: success
  type: str
  sample: sha256:9b90461c92071f0c3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
"""

import contextlib
import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_json
from ansible_collections.gb10.cluster.plugins.module_utils._image import pulling
from ansible_collections.gb10.cluster.plugins.module_utils._module import run

#: Seconds between two notes of how far a pull is.
NOTE_SECONDS = 2.0


def plan(pulled: str | None, tagged: str | None, image: str, tag: str | None) -> list[str]:
    """Return what has to be done, from the ids that the node has under both names (None for none)."""
    pulls = [] if pulled else [f"pull {image}"]
    return [*pulls, *([f"tag it {tag}"] if tag and (not pulled or tagged != pulled) else [])]


def pull(docker: Docker, params: dict[str, t.Any]) -> None:
    """Pull the image, and note now and then how far that is. Raises :class:`ClusterError` in the engine's words, :class:`WaitTimeout`."""
    progress, path = pulling.Progress(), pulling.note_path(params["state_dir"], params["image"])
    began = noted = time.monotonic()
    try:
        for event in docker.pull(params["image"]):
            progress.feed(event)
            now = time.monotonic()
            if now - began > params["pull_timeout"]:
                raise WaitTimeout(
                    f"{params['image']} was not pulled within {params['pull_timeout']} s; last seen: {progress.text()}",
                    remedy="Run again, it goes on with the layers that are there. Raise pull_timeout for a slow line.",
                )
            if now - noted >= NOTE_SECONDS:
                noted = now
                # Only for people to read: a pull does not fail for it.
                with contextlib.suppress(OSError):
                    os.makedirs(params["state_dir"], mode=0o755, exist_ok=True)
                    write_json(path, {"text": progress.text()})
    except (UnknownState, WaitTimeout):
        raise
    except ClusterError as error:
        words = " ".join(str(error).split())
        said = words if params["image"] in words else f"{params['image']}: {words}"
        reason = "no image" if isinstance(error, NotFound) else "not pulled"
        raise ClusterError(said, remedy=error.remedy or pulling.remedy_of(words, params["image"]), reason=reason) from error
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    docker = Docker(params["docker_socket"], params["docker_timeout"])
    found, tagged = (name and docker.image(name) for name in (params["image"], params["tag"]))
    before = {"image": found and found["Id"], "tag": tagged and tagged["Id"]}
    actions = plan(before["image"], before["tag"], params["image"], params["tag"])
    after = dict(before)
    if actions and not module.check_mode:
        if not found:
            pull(docker, params)
        if params["tag"]:
            docker.tag(params["image"], params["tag"])
        after = {"image": (docker.image(params["image"]) or {}).get("Id"), "tag": (docker.image(params["tag"]) or {}).get("Id") if params["tag"] else None}
    return {
        "changed": bool(actions),
        "actions": actions,
        "image_id": after["image"],
        "msg": "; ".join(actions) or f"{params['image']} is here",
        "reason": "the node lacks it" if actions else "the node has it",
        "diff": {"before": before, "after": after},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "tag": {"type": "str"},
            "pull_timeout": {"type": "int", "default": pulling.TIMEOUT},
            "state_dir": {"type": "path", "default": pulling.STATE_DIR},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
