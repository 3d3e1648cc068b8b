# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's container for an engine that spreads its ranks by itself. This module util is PRIVATE to the collection.

The container's first program is the launcher, which only holds it open: the engine comes and goes in it as it does beside Ray.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import launch
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import EnginePaths
from ansible_collections.gb10.cluster.plugins.module_utils._node import node_containers

#: Value of the field ``executor``. A container without that field runs Ray.
EXECUTOR = "native"


def native_unit(cluster: str, fields: dict[str, t.Any]) -> node_containers.Unit:
    """Return the node container that waits for an engine."""
    paths = EnginePaths.of(fields["state_dir"], fields["log_dir"], cluster)
    program, *arguments = launch.argv("hold")
    return node_containers.Unit(
        cluster=cluster,
        role=fields["node_role"],
        fields=fields,
        absent_means=node_containers.ABSENT_MEANS,
        entrypoint=[program],
        command=arguments,
        env=fields["env"],
        mounts=[
            *node_containers.state_mounts(paths),
            *node_containers.secret_mounts(fields["secret_files"]),
            *fields["mounts"],
        ],
    )
