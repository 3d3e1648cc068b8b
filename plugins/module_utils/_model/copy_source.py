# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Serves a model to other nodes: a block server for the time of one copy. This module util is PRIVATE to the collection."""

from __future__ import annotations

import inspect
import os
import sys
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._model import blocks, copying
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient

#: Reasons why a node cannot copy at all, and may download instead.
UNABLE = ("no systemd", "no address", "port taken", "unreachable")


def run_dir(cluster: str) -> str:
    """Return the directory of a cluster's server."""
    return os.path.join(transient.RUN_ROOT, copying.RUN, cluster)


def start(cluster: str, order: t.Mapping[str, t.Any], seconds: int) -> str:
    """Start the server and return the path of its secret: see :func:`transient.serve`. Raises :class:`ClusterError`."""
    return transient.serve(
        transient.Program(
            unit=copying.unit_name(cluster),
            place=run_dir(cluster),
            about=f"gb10.cluster: copy of a model to the other nodes of cluster {cluster}",
            command=[sys.executable, os.path.join(run_dir(cluster), "serve.py")],
            files={"serve.py": inspect.getsource(blocks).encode()},
            setting="gb10_copy_port",
            alone="Set gb10_model_copy: preferred, and each node downloads the model",
        ),
        order,
        seconds,
    )
