# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine's unit shows to everybody: which model, how it is, and when it last gave a token. This module util is PRIVATE to the collection.

It lies beside the unit's own directory, which root alone may enter, and holds no secret, no argument and no environment.
"""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import files
from ansible_collections.gb10.cluster.plugins.module_utils._memory.records import lacking

SCHEMA = 1
FILE = "glance.json"
#: The form of a glance. ``state`` and ``reason`` are the unit's, ``token`` is empty before the first one and has ``seconds`` and ``at`` (UTC) after it.
KEYS: dict[str, type] = {
    "cluster": str, "role": str, "state": str, "reason": str, "boot_id": str, "at": str, "model": str, "endpoint": str, "token": dict,
}  # fmt: skip

Glance = dict[str, t.Any]


def path_of(state_dir: str, cluster: str) -> str:
    """Return where a cluster's glance lies on a node."""
    return os.path.join(state_dir, cluster, FILE)


def write(state_dir: str, glance: Glance) -> None:
    """Write a glance for everybody to read, whatever the umask is. Raises OSError."""
    path = path_of(state_dir, glance["cluster"])
    files.write_json(path, {"schema": SCHEMA, **glance})
    os.chmod(path, 0o644)


def read(path: str) -> Glance | None:
    """Return a glance, None when there is none. Raises :class:`UnknownState` when it cannot be read or holds something else."""
    try:
        content = json.loads(files.required_text(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise UnknownState(f"{path} cannot be read: {error}", remedy="Run the playbook status, which asks the engine itself.", reason="glance") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or (why := lacking(content, KEYS)):
        raise UnknownState(
            f"{path} is not a glance: {why if isinstance(content, dict) and content.get('schema') == SCHEMA else 'another schema'}",
            remedy="Run the playbook status, which asks the engine itself.",
            reason="glance",
        )
    return {key: content[key] for key in KEYS}


def on_node(state_dir: str) -> list[Glance]:
    """Return the glances of all clusters of a node. Raises as :func:`read` does."""
    found = [read(path_of(state_dir, cluster)) for cluster in files.names(state_dir)]
    return [one for one in found if one]
