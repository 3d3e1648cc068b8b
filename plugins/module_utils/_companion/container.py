# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A companion's container: its fields, its labels, and what Docker gets to make it. This module util is PRIVATE to the collection.

It belongs to its node and to no cluster. What is there, how it is compared and what leads from one to the other is as of a node's own container.
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

#: What the label of the role says of it.
ROLE = "companion"
#: The directory below the log directory that keeps the logs of replaced ones, as that of a cluster keeps its containers'.
LOGS = "companions"

#: What counts: another value makes another container.
FIELDS = ("image", "image_id", "port", "env", "arguments", "mounts", "gpus")


def name_for(name: str) -> str:
    """Return the name of a companion's container."""
    return f"gb10-{ROLE}-{name}"


def wanted(params: t.Mapping[str, t.Any], image_id: str) -> fields.Fields:
    """Return the fields that the options ask for. Raises :class:`ClusterError` for a variable that can be spelled in more than one way."""
    found = {name: params[name] for name in FIELDS if name != "image_id"}
    return {**found, "image_id": image_id, "env": fields.environment(params["env"]), "arguments": [str(word) for word in params["arguments"]]}


def digest(wanted_fields: fields.Fields) -> str:
    """Return the digest by which a container is known to be as wanted."""
    return fields.digest(wanted_fields, {})


def labels(name: str, wanted_fields: fields.Fields) -> dict[str, str]:
    """Return the labels of a companion's container."""
    return {
        LABEL_OWNER: OWNER,
        LABEL_ROLE: ROLE,
        LABEL_COMPANION: name,
        LABEL_SPEC: digest(wanted_fields),
        LABEL_FIELDS: fields.canonical(wanted_fields),
    }


def gpus(wanted_fields: fields.Fields) -> str:
    """Return which GPUs a companion gets."""
    return "all" if wanted_fields["gpus"] else "none"


def payload(name: str, wanted_fields: fields.Fields, cdi_devices: t.Collection[str] = ()) -> dict[str, t.Any]:
    """Return the keyword arguments of the Docker SDK's ``containers.create``.

    The host's network, as the engine's: it is asked and used at its own port. No restart policy, and never removed by itself. Docker's usual
    capabilities stay, since images of others count on them; more than that nothing in it can get.
    """
    return {
        "name": name_for(name),
        "image": wanted_fields["image"],
        "command": wanted_fields["arguments"] or None,
        "labels": labels(name, wanted_fields),
        "network_mode": "host",
        "init": True,
        "log_config": LOG_CONFIG,
        "environment": wanted_fields["env"],
        "device_requests": gpu_access.device_requests(gpus(wanted_fields), cdi_devices),
        "mounts": [fields.bind(one["source"], one["target"], one["read_only"]) for one in wanted_fields["mounts"]],
        "ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        "security_opt": ["no-new-privileges:true"],
    }


def listed(api: EngineApi, name: str = "") -> list[dict[str, t.Any]]:
    """Return the engine's list of companions' containers, of one name if it is given."""
    return api.containers({LABEL_OWNER: OWNER, LABEL_ROLE: ROLE, **({LABEL_COMPANION: name} if name else {})})


def find(api: EngineApi, name: str) -> dict[str, t.Any] | None:
    """Return what the engine knows of a companion's container, None when there is none. Raises :class:`ClusterError` when there are two."""
    found = listed(api, name)
    if len(found) > 1:
        names = ", ".join(sorted(f"{name_of(entry)} ({entry['Id'][:12]}, {entry['State']})" for entry in found))
        raise ClusterError(
            f"this node has {len(found)} containers labeled as the companion {name}: {names}", remedy="Remove all but one: docker rm CONTAINER"
        )
    try:
        return api.inspect(found[0]["Id"]) if found else None
    except NotFound:
        return None
