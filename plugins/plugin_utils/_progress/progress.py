# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Progress lines of a start. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

#: A line is printed after this many seconds even when nothing changed.
REPEAT_SECONDS = 30.0


def minutes(seconds: float) -> str:
    """Return ``MM:SS``, or ``H:MM:SS`` from one hour on."""
    hours, rest = divmod(int(seconds), 3600)
    clock = f"{rest // 60:02d}:{rest % 60:02d}"
    return f"{hours}:{clock}" if hours else clock


def line(node: str, stage: str, shards: str, work: str, memory_mb: int | None, elapsed: float) -> str:
    """Return one line: node, stage, shards, the work of its processes, available memory, time since the task began."""
    fields = [f"{stage} {shards}".strip(), work, "" if memory_mb is None else f"{memory_mb / 1024:.1f} GiB available", minutes(elapsed)]
    return f"{node}: " + ", ".join(field for field in fields if field)


class Progress:
    """Decides when a line is worth printing: when stage or shards changed, and every 30 seconds."""

    def __init__(self, node: str, show: t.Callable[[str], object]) -> None:
        self.node = node
        self.stage = ""
        self._show = show
        self._shown: tuple[str, str] | None = None
        self._shown_at = 0.0

    def update(self, stage: str, shards: str, work: str, memory_mb: int | None, elapsed: float) -> None:
        """Print a line if one is due, ``elapsed`` seconds after the task began. An empty stage means that the stage did not change."""
        stage, shards = (stage, shards) if stage else (self.stage, self._shown[1] if self._shown else "")
        self.stage = stage
        if (stage, shards) != self._shown or elapsed - self._shown_at >= REPEAT_SECONDS:
            self._shown, self._shown_at = (stage, shards), elapsed
            self._show(line(self.node, stage, shards, work, memory_mb, elapsed))
