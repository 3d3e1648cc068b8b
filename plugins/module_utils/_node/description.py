# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The keys of a result that describe a node's container, the same for every module. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._node import container, ray

#: The keys without a container.
NOTHING: dict[str, t.Any] = {
    "exists": False,
    "running": False,
    "role": "",
    "executor": "",
    "container": {},
    "session": "",
    "address": "",
    "ray_version": "",
    "python_version": "",
    "nodes": [],
    "gpus_total": 0.0,
    "ray_error": "",
    "ray_without_token": "",
}


def described(role: str, inspected: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the keys of a result that describe a container, without Ray's, which was not asked yet."""
    current = container.existing(inspected)
    executor = current.fields.get("executor", ray.EXECUTOR)
    return {
        **NOTHING,
        "exists": True,
        "running": current.running,
        "role": role,
        "executor": executor,
        "container": {
            "id": current.id,
            "name": current.name,
            "image": current.fields.get("image", ""),
            "image_id": inspected["Image"],
            "created": inspected["Created"],
            "state": current.status,
            "exit_code": None if current.holds_processes else current.exit_code,
        },
        "session": container.session(current.id, current.started_at) if current.running else "",
        "address": ray.host_port(current.fields["head_address"], current.fields["port"]) if executor == "ray" and current.readable else "",
    }
