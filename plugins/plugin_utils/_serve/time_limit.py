# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A deadline for one question to a node: a lost connection can hang forever. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import signal
import typing as t

from ansible.errors import AnsibleError


class PollTimeout(AnsibleError):
    """A poll of a node took too long."""


@contextlib.contextmanager
def time_limit(seconds: int) -> t.Iterator[None]:
    """Raise :class:`PollTimeout` in the block after ``seconds``; a task with a ``timeout`` of its own keeps its alarm."""
    if signal.getsignal(signal.SIGALRM) not in (signal.SIG_DFL, None):
        yield
        return

    def ring(_number: int, _frame: object) -> t.NoReturn:
        raise PollTimeout(f"no answer within {seconds} s")

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
