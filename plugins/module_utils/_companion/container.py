# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A companion's container: its fields, its labels, and the options that make it. This module util is PRIVATE to the collection.

It belongs to its node and to no cluster.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import (
    LABEL_COMPANION,
    LABEL_FIELDS,
    LABEL_OWNER,
    LABEL_ROLE,
    LABEL_SPEC,
    OWNER,
    EngineApi,
    NotFound,
    name_of,
)
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._node import fields
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import LOG_CONFIG

#: The role in the labels of a companion's container.
ROLE = "companion"

#: A container is replaced when one of these differs.
FIELDS = ("image", "port", "env", "arguments", "mounts", "gpus")


def name_for(name: str) -> str:
    """Return the name of a companion's container."""
    return f"gb10-{ROLE}-{name}"


def wanted(companion: t.Mapping[str, t.Any]) -> fields.Fields:
    """Return the fields of a declared companion. Raises :class:`ClusterError` for a variable with an ambiguous value."""
    mounts = [{"read_only": False, **mount} for mount in companion["mounts"]]
    arguments = [str(word) for word in companion["arguments"]]
    return {**{name: companion[name] for name in FIELDS}, "env": fields.environment(companion["env"]), "arguments": arguments, "mounts": mounts}


def labels(companion: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return the labels of a declared companion's container."""
    wanted_fields = wanted(companion)
    return {
        LABEL_OWNER: OWNER,
        LABEL_ROLE: ROLE,
        LABEL_COMPANION: companion["name"],
        LABEL_SPEC: fields.digest(wanted_fields, {}),
        LABEL_FIELDS: fields.canonical(wanted_fields),
    }


def options(companion: t.Mapping[str, t.Any], cdi_devices: t.Collection[str], pull: str) -> dict[str, t.Any]:
    """Return the options of community.docker.docker_container for a declared companion.

    It uses the host's network, as the engine does. There is no restart policy. Docker's default capabilities stay, since third-party images need them; no
    program in it can get more. Only the labels are compared: they contain the digest of all fields.
    """
    wanted_fields = wanted(companion)
    return {
        "name": name_for(companion["name"]),
        "state": "started",
        "paused": False,
        "image": wanted_fields["image"],
        "pull": pull,
        # The anonymous volumes of a replaced container are removed.
        "keep_volumes": False,
        "comparisons": {"*": "ignore", "labels": "allow_more_present"},
        "labels": labels(companion),
        "network_mode": "host",
        "init": True,
        "log_driver": LOG_CONFIG["type"],
        "log_options": LOG_CONFIG["config"],
        "env": wanted_fields["env"],
        "device_requests": gpu_access.device_requests("all" if wanted_fields["gpus"] else "none", cdi_devices),
        "mounts": [{"type": "bind", **mount} for mount in wanted_fields["mounts"]],
        "ulimits": ["core:0:0"],
        "security_opts": ["no-new-privileges:true"],
        **({"command": wanted_fields["arguments"]} if wanted_fields["arguments"] else {}),
    }


def find(api: EngineApi, name: str) -> dict[str, t.Any]:
    """Return Docker's description of a companion's container. Raises :class:`ClusterError` unless there is exactly one."""
    entries = api.containers({LABEL_OWNER: OWNER, LABEL_ROLE: ROLE, LABEL_COMPANION: name})
    if len(entries) > 1:
        names = ", ".join(sorted(f"{name_of(entry)} ({entry['Id'][:12]}, {entry['State']})" for entry in entries))
        raise ClusterError(
            f"this node has {len(entries)} containers labeled as the companion {name}: {names}", remedy="Remove all but one: docker rm CONTAINER"
        )
    if not entries:
        raise NotFound(f"this node has no container of the companion {name}", remedy="Run the playbook mode: it creates the container.")
    return api.inspect(entries[0]["Id"])
