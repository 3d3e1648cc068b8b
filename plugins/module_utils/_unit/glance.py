# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine's unit shows to everybody: which model, how it is, and when it last gave a token. This module util is PRIVATE to the collection.

It lies in the state directory itself, since root alone may enter that of a cluster, and holds no secret, no argument and no environment.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import clean

#: What the name of a glance begins and ends with, around that of its cluster.
BEGIN, END = "glance-", ".json"
#: Where units of older versions wrote it, in the cluster's directory, and where sweeps of older versions look for it.
FORMER = "glance.json"
#: The form of a glance. ``state`` and ``reason`` are the unit's, ``token`` is empty before the first one and has ``seconds`` and ``at`` (UTC) after it.
KEYS: dict[str, type] = {
    "cluster": str, "role": str, "state": str, "reason": str, "boot_id": str, "at": str, "model": str, "endpoint": str, "token": dict,
}  # fmt: skip

DOCUMENT = Document("glance", "a glance", 1, lambda glance: lacking(glance, KEYS), "Run the playbook status, which asks the engine itself.")

Glance = dict[str, t.Any]


def path_of(state_dir: str, cluster: str) -> str:
    """Return where a cluster's glance lies on a node."""
    return os.path.join(state_dir, f"{BEGIN}{cluster}{END}")


def paths_of(state_dir: str, cluster: str) -> tuple[str, str]:
    """Return all the places where a cluster's glance lies on a node."""
    return path_of(state_dir, cluster), os.path.join(state_dir, cluster, FORMER)


def write(state_dir: str, glance: Glance) -> None:
    """Write a glance for everybody to read. Raises OSError."""
    for path in paths_of(state_dir, glance["cluster"]):
        DOCUMENT.write(path, {**glance, "reason": clean(glance["reason"])})


def read(path: str) -> Glance | None:
    """Return a glance, None when there is none. Raises :class:`UnknownState` when it cannot be read or holds something else."""
    content = DOCUMENT.read(path)
    return {key: content[key] for key in KEYS} if content else None


def on_node(state_dir: str) -> list[Glance]:
    """Return the glances of all clusters of a node. Raises as :func:`read` does.

    One that a unit of an older version wrote counts where there is no other; where the cluster's directory is closed by now, root alone sees it.
    """
    found = {}
    for name in files.names(state_dir):
        if name.startswith(BEGIN) and name.endswith(END):
            found[name.removeprefix(BEGIN).removesuffix(END)] = read(os.path.join(state_dir, name))
    for cluster in files.names(state_dir):
        former = paths_of(state_dir, cluster)[1]
        if cluster not in found and os.access(os.path.dirname(former), os.X_OK):
            found[cluster] = read(former)
    return [one for _cluster, one in sorted(found.items()) if one]


def hidden(state_dir: str, etc_root: str) -> list[str]:
    """Return the clusters with a unit of an older version, which shows nothing to everybody since the cluster's directory was closed."""
    return [
        cluster
        for cluster in files.names(state_dir)
        if not os.path.lexists(path_of(state_dir, cluster))
        and not os.access(os.path.join(state_dir, cluster), os.X_OK)
        and os.path.lexists(unit_files.of_engine(state_dir, cluster, etc_root).path)
    ]
