# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's container for an engine that spreads its own ranks. This module util is PRIVATE to the collection.

The container's first program is the launcher, which only keeps it open: the engine starts and ends in it as it does next to Ray. The
functions have the names of those in ``ray.py``; :func:`apply.apply` uses those of the executor.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import launch
from ansible_collections.gb10.cluster.plugins.module_utils._errors import WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import HOLDS
from ansible_collections.gb10.cluster.plugins.module_utils._node import container, fields, obstacles
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import ExistingContainer, WantedContainer
from ansible_collections.gb10.cluster.plugins.module_utils._node.fields import Changes, Params
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

if t.TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker

#: Value of the field ``executor``. A container without that field runs Ray.
EXECUTOR = "native"


def wanted(params: Params, image_id: str, _current: ExistingContainer | None) -> WantedContainer:
    """Return the wanted container. Raises :class:`ClusterError` for options of the wrong form."""
    own = {**fields.wanted(params, EXECUTOR, image_id), "executor": EXECUTOR}
    return WantedContainer(params["cluster_name"], EXECUTOR, own, launch.argv("hold"), {})


def to_remove_first(
    docker: Docker, params: Params, node: str, _wanted: WantedContainer, current: ExistingContainer | None, _check_mode: bool
) -> list[obstacles.StaleHead]:
    """Raise :class:`ClusterError` when another program uses a port that the engine needs. No container has to be removed first."""
    taken = obstacles.foreign_on(docker, params["ports"], current)
    if taken:
        raise obstacles.ports_taken("the engine", node, taken, "gb10_master_port")
    return []


def engine_is_gone(_changed: Changes) -> bool:
    """A rank here always belongs to an engine whose head may live."""
    return False


def wait(docker: Docker, params: Params, node: str, wanted: WantedContainer) -> dict[str, t.Any]:
    """Wait until the launcher keeps the container open.

    Raises :class:`ClusterError` as soon as the container ends, :class:`WaitTimeout` when the time is over.
    """
    for _elapsed in clock(params["wait_timeout"], params["wait_sleep"]):
        if HOLDS in docker.logs(container.running(docker, node, wanted).id):
            return {}
    raise WaitTimeout(
        f"the launcher in container {wanted.name} on {node} did not report ready within {params['wait_timeout']} s",
        remedy=f"Read the container's log: docker logs {wanted.name}. A slow node needs a longer wait_timeout.",
        reason="not ready in time",
        node=node,
        log=container.last_log(docker, wanted),
    )
