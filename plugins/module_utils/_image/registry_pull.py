# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pulls an image from its registry. This module util is PRIVATE to the collection."""

from __future__ import annotations

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files.copy_job import Note
from ansible_collections.gb10.cluster.plugins.module_utils._image import pulling


def plan(pulled: str | None, tagged: str | None, image: str, tag: str | None) -> list[str]:
    """Return the required actions, from the ids that both names have on the node (None for absent)."""
    return [*([] if pulled else [f"pull {image}"]), *([f"tag it {tag}"] if tag and (not pulled or tagged != pulled) else [])]


def pull(docker: Docker, params: dict[str, t.Any]) -> None:
    """Pull the image, and write the progress. Raises :class:`ClusterError` with the engine's message, :class:`WaitTimeout`."""
    progress, note, began = pulling.Progress(), Note(pulling.note_path(params["state_dir"], params["image"])), time.monotonic()
    try:
        for event in docker.pull(params["image"]):
            progress.feed(event)
            note(progress.text())
            if time.monotonic() - began > params["timeout"]:
                raise WaitTimeout(
                    f"{params['image']} was not pulled within {params['timeout']} s; last seen: {progress.text()}",
                    remedy="Run again, it continues with the remaining layers. Raise timeout for a slow line.",
                )
    except (UnknownState, WaitTimeout):
        raise
    except ClusterError as error:
        words = " ".join(str(error).split())
        raise ClusterError(
            words if params["image"] in words else f"{params['image']}: {words}",
            remedy=error.remedy or pulling.remedy_of(words, params["image"]),
            reason="no image" if isinstance(error, NotFound) else "not pulled",
        ) from error
    finally:
        note.remove()


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    docker = Docker(params["docker_socket"], params["docker_timeout"])
    pulled, tagged = (name and docker.image(name) for name in (params["image"], params["tag"]))
    before = {"image": pulled and pulled["Id"], "tag": tagged and tagged["Id"]}
    actions = plan(before["image"], before["tag"], params["image"], params["tag"])
    after = dict(before)
    if actions and not module.check_mode:
        if not pulled:
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
