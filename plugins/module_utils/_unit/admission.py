# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an engine fits in the memory that is available now, by the starts of it that are on record. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._memory import components
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts


def taken(known: t.Sequence[starts.Start], image_id: str, profile_digest: str, context: int) -> tuple[float, float] | None:
    """Return the most GiB that recorded starts of this image, profile and context took: once they had answered, and at their peak. None without one.

    The driver may be another after a reboot: what an engine takes was never seen to follow from it as far as to refuse a start.
    """
    return starts.taken_gib([one for one in known if starts.same(one, image_id, profile_digest, one["driver"])], context)


def judge(found: tuple[float, float] | None, available_gib: float) -> str:
    """Return what to say of a start that may begin. Raises :class:`ClusterError` for one that does not fit."""
    if found is None:
        return f"no start of this image and profile is on record: {available_gib:.1f} GiB are available, and nothing more is known"
    peak, floor = max(found), components.CONSTANTS["floor"].value
    if available_gib - peak <= floor:
        raise ClusterError(
            f"the engine took {peak:.1f} GiB at its peak by the starts on record, and {available_gib:.1f} GiB are available",
            remedy="Find what holds the memory (the playbook doctor names it), end it, and start the unit again.",
            reason="memory",
            measured=round(available_gib, 1),
            needed=round(peak, 1),
        )
    return f"{available_gib:.1f} GiB are available, and the engine took {peak:.1f} at its peak"
