# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of the proofs of a cluster's engines. This module util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import lacking
from ansible_collections.gb10.cluster.plugins.module_utils._records import records

#: Proofs that a node keeps per cluster.
KEEP = 32

#: The keys of every record, with their types. ``failed`` are the ids of the failed rules, ``recorded_at`` is in UTC.
KEYS: dict[str, type] = {"run_id": str, "failed": list, "recorded_at": str}

#: Their file. 256 KiB is many times the size of :data:`KEEP` records.
FILE = records.RecordFile(
    "proofs", "proofs", 1 << 18, lambda proof: lacking(proof, KEYS), "the next proof records its result again", KEEP, lambda proof: proof["run_id"]
)
