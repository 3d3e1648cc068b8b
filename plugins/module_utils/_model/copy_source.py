# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node that has a model gives it out: a server of blocks for the time of one copy. This module util is PRIVATE to the collection."""

from __future__ import annotations

import inspect
import os
import sys
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks, copying
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient

#: Reasons for which a node cannot copy at all, so that it may download instead.
UNABLE = ("no systemd", "no address", "port taken", "unreachable")


def require_address(address: str, port: int = 0) -> None:
    """Raise :class:`ClusterError` unless this node has the address, and nobody listens there on the port (0: not asked)."""
    transient.require_address(address, port, "gb10_copy_port")


def run_dir(cluster: str) -> str:
    """Return where the files of a cluster's server lie."""
    return os.path.join(transient.RUN_ROOT, copying.RUN, cluster)


def left(cluster: str) -> list[str]:
    """Return what is there of a cluster's server: its unit, its files."""
    return transient.left(copying.unit_name(cluster), run_dir(cluster))


def stop(cluster: str) -> None:
    """End a cluster's server and remove its files. Raises :class:`ClusterError` when it stays."""
    transient.stop(copying.unit_name(cluster), run_dir(cluster))


def start(cluster: str, order: t.Mapping[str, t.Any], seconds: int) -> str:
    """Start the server and return where its secret lies: see :func:`transient.serve`. Raises :class:`ClusterError`."""
    place = run_dir(cluster)
    program = transient.Program(
        unit=copying.unit_name(cluster),
        place=place,
        about=f"gb10.cluster: copy of a model to the other nodes of cluster {cluster}",
        command=[sys.executable, os.path.join(place, "serve.py")],
        files={"serve.py": inspect.getsource(blocks).encode()},
        setting="gb10_copy_port",
        alone="Let each node download by itself: gb10_model_copy: preferred",
    )
    return transient.serve(program, order, seconds)
