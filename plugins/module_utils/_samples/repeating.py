# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Samples that are taken repeatedly for some time. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, require_most
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

LONGEST = 28800

Params = dict[str, t.Any]


def check(params: Params) -> None:
    """Raise :class:`ClusterError` for a time out of range."""
    require_least(params, {"seconds": 1, "interval": 1})
    require_most(params, {"seconds": LONGEST})


def take(params: Params, sample: t.Callable[[], t.Any]) -> tuple[list[t.Any], list[str]]:
    """Take samples for ``seconds``, as long as the file ``until`` exists. Return them, None for a missing one, and why some are missing, each reason once."""
    samples: list[t.Any] = []
    errors: dict[str, None] = {}
    for _elapsed in clock(params["seconds"], params["interval"]):
        try:
            samples.append(sample())
        except (ClusterError, OSError) as error:
            samples.append(None)
            errors[getattr(error, "strerror", None) or str(error)] = None
        if params["until"] and not os.path.exists(params["until"]):
            break
    return samples, list(errors)
