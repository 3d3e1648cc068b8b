# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of cuda_zombie_check: prints how memory is freed, which a module cannot do while it runs."""

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.validation import check_type_int
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.plugin_utils._progress.progress import line

MODULE = "gb10.cluster.cuda_zombie_check"

#: Minimum seconds between two lines. A call of the module takes as many samples as fit.
LINE_SECONDS = 10

DEFAULTS = {"settle_sleep": 5, "settle_timeout": 240}

display = Display()


def slice_seconds(settle_sleep: int) -> int:
    """Return the seconds for which one call watches memory: a whole number of samples, about :data:`LINE_SECONDS`."""
    return max(settle_sleep, LINE_SECONDS // settle_sleep * settle_sleep)


def moves(result: dict[str, t.Any]) -> bool:
    """Return whether memory was watched and had not settled when the call ended, for any verdict."""
    return (result.get("reclaim") or {}).get("state") in ("rising", "falling")


def carried(result: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the values of this call that the next call needs."""
    return {"samples_mb": result["reclaim"]["samples_mb"], "why": result["reclaim"]["why"], "ended": result.get("ended", [])}


class ActionModule(ActionBase):
    """Calls the module, and again while memory still changes and time is left."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        base = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        arguments = dict(self._task.args)
        sleep, timeout = self._seconds(arguments, "settle_sleep"), self._seconds(arguments, "settle_timeout")
        node, started = str(task_vars.get("inventory_hostname", "")), time.monotonic()
        part = {"seconds": slice_seconds(max(1, sleep))}
        earlier: dict[str, t.Any] = {}
        watched = 0
        while True:
            result = self._execute_module(module_name=MODULE, module_args={**arguments, "earlier": {**part, **earlier}}, task_vars=task_vars)
            watched += part["seconds"]
            if not moves(result) or watched + part["seconds"] > max(timeout, part["seconds"]):
                return {**base, **result}
            earlier = carried(result)
            reclaim = result["reclaim"]
            stage = "memory is coming back" if reclaim["state"] == "rising" else "memory is being taken"
            display.display(line(node, stage, f"(+{reclaim['risen_mb']} MiB)", "", reclaim["samples_mb"][-1], time.monotonic() - started))

    @staticmethod
    def _seconds(arguments: dict[str, t.Any], name: str) -> int:
        """Return one of the options that the controller side needs too."""
        try:
            return check_type_int(arguments.get(name, DEFAULTS[name]))
        except TypeError as error:
            raise AnsibleActionFail(f"{name} is not a whole number: {error}") from error
