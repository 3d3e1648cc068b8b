# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an engine fits in the available memory, judged by its recorded starts. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._memory import components
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts


def taken(known: t.Sequence[starts.Start], image_id: str, profile_digest: str, context: int) -> tuple[float, float] | None:
    """Return the most GiB that recorded starts of this image, profile and context took: after they had answered, and at their peak. None without one.

    The driver may have changed with a reboot: no report shows that this changes an engine's memory enough to refuse a start.
    """
    return starts.taken_gib([start for start in known if starts.same(start, image_id, profile_digest, start["driver"])], context)


def judge(peaks: tuple[float, float] | None, available_gib: float) -> str:
    """Return the log line for a start that fits. Raises :class:`ClusterError` for one that does not."""
    if peaks is None:
        return f"no start of this image and profile is recorded; {available_gib:.1f} GiB are available"
    peak = max(peaks)
    if available_gib - peak <= components.CONSTANTS["floor"].value:
        raise ClusterError(
            f"the engine took {peak:.1f} GiB at its peak in recorded starts, and {available_gib:.1f} GiB are available",
            remedy="Run the playbook doctor, which names the processes that hold memory; end them, and start the unit again.",
            reason="memory",
            measured=round(available_gib, 1),
            needed=round(peak, 1),
        )
    return f"{available_gib:.1f} GiB are available, and the engine took {peak:.1f} at its peak"
