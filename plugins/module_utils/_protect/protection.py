# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A summary of a node's protection record, which the role protect writes. This module util is PRIVATE to the collection."""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.files import optional_text

SCHEMA = 1
#: Its name below the state directory.
NAME = "protection.json"


def short(measures: t.Mapping[str, t.Any], path: str) -> dict[str, t.Any]:
    """Return the measures that changed something, and the number of changes."""
    return {"measures": sorted(measures), "changes": sum(len(entry["changes"]) for entry in measures.values()), "path": path, "error": ""}


def summary(state_dir: str) -> dict[str, t.Any]:
    """Return the summary of a record: ``{measures, changes, path, error}``; ``changes`` is None when it cannot be read."""
    path = os.path.join(state_dir, NAME)
    try:
        text = optional_text(path)
        record = json.loads(text) if text is not None else {"schema": SCHEMA, "measures": {}}
        if record["schema"] != SCHEMA:
            raise ValueError("another schema")
        return short(record["measures"], path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {"measures": [], "changes": None, "path": path, "error": f"{path} cannot be read: {error}"}
