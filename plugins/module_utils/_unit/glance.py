# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The public state of an engine: its model, its state, and the time of its last token. This module util is PRIVATE to the collection.

The file is in the state directory itself, since only root may enter a cluster's directory. It contains no secret, no argument and no environment.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import clean

Glance = dict[str, t.Any]

#: The file name around the cluster's name.
BEGIN, END = "glance-", ".json"
#: The keys of a glance. ``state`` and ``reason`` are the unit's, ``token`` is empty before the first token and has ``seconds`` and ``at`` (UTC) after it.
#: ``start`` is the text about the engine's start, and is empty without a token.
KEYS: dict[str, type] = {
    "cluster": str, "role": str, "state": str, "reason": str, "boot_id": str, "at": str, "model": str, "endpoint": str, "token": dict,
    "start": str,
}  # fmt: skip


def _whole(glance: Glance) -> Glance:
    """Return a glance with the keys that those of an older version of the collection lack."""
    return {"start": "", **glance}


DOCUMENT = Document("glance", "a glance", 1, lambda glance: lacking(_whole(glance), KEYS), "Run the playbook status, which asks the engine itself.")


def path_of(state_dir: str, cluster: str) -> str:
    """Return the path of a cluster's glance on a node."""
    return os.path.join(state_dir, f"{BEGIN}{cluster}{END}")


def write(state_dir: str, glance: Glance) -> None:
    """Write a glance, readable by all accounts. Raises OSError."""
    DOCUMENT.write(path_of(state_dir, glance["cluster"]), {**glance, "reason": clean(glance["reason"])})


def on_node(state_dir: str) -> list[Glance]:
    """Return the glances of all clusters of a node, by name. Raises :class:`UnknownState` for one that cannot be read or is invalid."""
    names = sorted(name for name in files.names(state_dir) if name.startswith(BEGIN) and name.endswith(END))
    read = (DOCUMENT.read(os.path.join(state_dir, name)) for name in names)
    return [{key: _whole(content)[key] for key in KEYS} for content in read if content]
