# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image that comes from its registry. This module util is PRIVATE to the collection."""

from __future__ import annotations

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
            if now - began > params["timeout"]:
                raise WaitTimeout(
                    f"{params['image']} was not pulled within {params['timeout']} s; last seen: {progress.text()}",
                    remedy="Run again, it goes on with the layers that are there. Raise timeout for a slow line.",
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
