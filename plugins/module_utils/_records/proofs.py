# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the proof found of a cluster's engines, on record. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import lacking
from ansible_collections.gb10.cluster.plugins.module_utils._records import records

#: Proofs that a node keeps of a cluster; the oldest go.
KEEP = 32

Proof = dict[str, t.Any]

#: What every record has, with its type. ``failed`` are the ids of the rules that the run failed, ``recorded_at`` is in UTC.
KEYS: dict[str, type] = {"run_id": str, "failed": list, "recorded_at": str}

#: Where they lie: 256 KiB is many times what :data:`KEEP` records take.
FILE = records.RecordFile("proofs", "proofs", 1 << 18, lambda proof: lacking(proof, KEYS), "the next proof records what it finds again")


def with_proof(proofs: t.Sequence[Proof], new: Proof) -> list[Proof]:
    """Return the records with a new one, which takes the place of that of the same run."""
    return [*(one for one in proofs if one["run_id"] != new["run_id"]), new][-KEEP:]


def last(state_dir: str, cluster: str) -> dict[str, t.Any]:
    """Return the newest record of a cluster, empty without one. What is wrong with the file is its ``error``."""
    try:
        known = FILE.read(FILE.path_of(state_dir, cluster))
    except UnknownState as error:
        return {"error": f"{error}. Remedy: {error.remedy}"}
    return {**known[-1], "error": ""} if known else {}
