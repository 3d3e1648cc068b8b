# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of an action plugin that failed on the controller. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError


def failure_result(error: ClusterError) -> dict[str, t.Any]:
    """Return the result for an error. The message contains the remedy, since no table is printed after it."""
    return {"failed": True, "msg": error.with_remedy(), "verdict": error.verdict, "remedy": error.remedy, "reason": error.reason}
