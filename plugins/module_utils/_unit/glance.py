# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine's unit shows to everybody: which model, how it is, and when it last gave a token. This module util is PRIVATE to the collection.

It lies beside the unit's own directory, which root alone may enter, and holds no secret, no argument and no environment.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._host import files
from ansible_collections.gb10.cluster.plugins.module_utils._host.documents import Document, lacking
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import clean

FILE = "glance.json"
#: The form of a glance. ``state`` and ``reason`` are the unit's, ``token`` is empty before the first one and has ``seconds`` and ``at`` (UTC) after it.
KEYS: dict[str, type] = {
    "cluster": str, "role": str, "state": str, "reason": str, "boot_id": str, "at": str, "model": str, "endpoint": str, "token": dict,
}  # fmt: skip

DOCUMENT = Document("glance", "a glance", 1, lambda glance: lacking(glance, KEYS), "Run the playbook status, which asks the engine itself.")

Glance = dict[str, t.Any]


def path_of(state_dir: str, cluster: str) -> str:
    """Return where a cluster's glance lies on a node."""
    return os.path.join(state_dir, cluster, FILE)


def write(state_dir: str, glance: Glance) -> None:
    """Write a glance for everybody to read. Raises OSError."""
    DOCUMENT.write(path_of(state_dir, glance["cluster"]), {**glance, "reason": clean(glance["reason"])})


def read(path: str) -> Glance | None:
    """Return a glance, None when there is none. Raises :class:`UnknownState` when it cannot be read or holds something else."""
    content = DOCUMENT.read(path)
    return {key: content[key] for key in KEYS} if content else None


def on_node(state_dir: str) -> list[Glance]:
    """Return the glances of all clusters of a node. Raises as :func:`read` does."""
    found = [read(path_of(state_dir, cluster)) for cluster in files.names(state_dir)]
    return [one for one in found if one]
