# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ranks that live and die together: what head and workers decide as one. This plugin util is PRIVATE to the collection.

Without Ray every node starts its own part of an engine, and nothing but a restart of all parts brings a missing one back. So
each node tells the others what it would do, all come to the same decision, and every live rank has ended before the first new
one starts: a new rank must not meet an old head.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.meeting import Meeting

#: What the nodes tell each other.
PLAN, STOPPED = "plan", "stopped"

#: Seconds between two looks for what the others say.
HEAR_SLEEP = 0.25
#: Seconds that all nodes have to tell their plans.
PLAN_SECONDS = 120.0
#: Seconds beyond the engine's grace that a node has to tell that its rank has ended.
STOP_MARGIN = 120.0

Result = dict[str, t.Any]

#: Runs the module on this node: the state it is to bring about, whether it only predicts, and whether requests may be lost that nobody gave.
Run = t.Callable[[str, bool, bool], Result]


def reason_to_start(plans: t.Mapping[str, t.Mapping[str, t.Any]]) -> str:
    """Return why all ranks have to be started, empty when all live as wanted.

    ``plans`` maps each node to ``changed`` (whether it would do anything), ``live`` (whether its rank lives) and ``reason``.
    """
    changed = [plan for plan in plans.values() if plan["changed"]]
    if not changed:
        return ""
    if missing := missing_ranks(plans):
        return f"an engine without all its ranks is not live: none lives on {', '.join(missing)}"
    return changed[0]["reason"]


def missing_ranks(plans: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[str]:
    """Return the nodes without a live rank when others have one."""
    missing = [node for node, plan in plans.items() if not plan["live"]]
    return missing if len(missing) < len(plans) else []


def predicted(plan: Result, reason: str) -> Result:
    """Return what check mode says of a node whose own plan is ``plan`` when all ranks are started for ``reason``."""
    diff = plan["diff"]
    before = {**diff["before"], "state": "incomplete"} if diff["before"] == diff["after"] else diff["before"]
    live = plan["engine_live"]
    return {
        **plan,
        "changed": True,
        "reason": reason,
        "actions": [*(["stop the engine"] if live else []), "start the engine"],
        "diff": {"before": before, "after": diff["after"]},
        "msg": f"would be {'restarted' if live else 'started'}: {reason}",
    }


class Together:
    """One node's part in starting all ranks as one. ``count`` is the number of nodes, ``grace`` the seconds an engine gets to end."""

    def __init__(self, meeting: Meeting, head: bool, count: int, grace: float, run: Run) -> None:
        self._meeting = meeting
        self._head = head
        self._count = count
        self._grace = grace
        self._run = run

    def start(self, result: Result, check_mode: bool) -> None:
        """Bring all ranks to life unless they live; ``result`` is filled as far as this came, also when it raises.

        Raises :class:`ClusterError` when another node failed, or does not take part. A failure of this node is in ``result``.
        """
        # With consent, for whether requests can still be answered is known when all have told.
        plan = self._run("started", True, True)
        if plan.get("failed"):
            result.update(plan)
            return
        self._meeting.tell(PLAN, {"changed": plan["changed"], "live": plan["engine_live"], "reason": plan["reason"]})
        plans = self._hear(PLAN, PLAN_SECONDS, self._all_told)
        reason, dead = reason_to_start(plans), bool(missing_ranks(plans))
        if reason and not dead:
            asked = self._run("started", True, False)
            if asked.get("failed"):
                result.update(asked)
                return
        if not reason or check_mode:
            result.update(predicted(plan, reason) if reason else plan)
            return
        result.update(predicted(plan, reason), actions=[], changed=False)
        # Requests of an engine without all its ranks are never answered: nobody can lose them.
        if self._stop(result, dead):
            self._go(result)

    def _stop(self, result: Result, interrupt: bool) -> bool:
        """End this node's rank when its turn has come, and wait until all have ended; False when this node failed."""
        if not self._head:
            self._hear(STOPPED, self._grace + STOP_MARGIN, lambda told: any(one["role"] == "head" for one in told.values()))
        done = self._run("stopped", False, interrupt)
        keep(result, done)
        if done.get("failed"):
            return False
        self._meeting.tell(STOPPED, {})
        self._hear(STOPPED, self._grace + STOP_MARGIN, self._all_told)
        return True

    def _go(self, result: Result) -> None:
        """Start this node's rank."""
        done = self._run("started", False, False)
        after = {name: value for name, value in done.items() if name not in ("actions", "changed", "diff", "reason")}
        keep(result, done)
        result.update(after)

    def _all_told(self, told: t.Mapping[str, t.Any]) -> bool:
        return len(told) >= self._count

    def _hear(self, topic: str, seconds: float, enough: t.Callable[[t.Mapping[str, t.Any]], bool]) -> dict[str, dict[str, t.Any]]:
        """Return what the nodes told on a topic once it is enough. Raises :class:`ClusterError` when that cannot be any more."""
        told: dict[str, dict[str, t.Any]] = {}
        for _elapsed in clock(seconds, HEAR_SLEEP):
            # In this order: a node may have told, and then be gone.
            gone = self._meeting.gone()
            told = self._meeting.told(topic)
            self._meeting.heed()
            if enough(told):
                return told
            lost = [node for node in gone if node not in told]
            if lost:
                raise ClusterError(f"the part of {', '.join(lost)} in this task ended without a word", remedy="Look at the messages above.")
        raise WaitTimeout(
            f"only {len(told)} of {self._count} nodes took part in this task within {seconds:g} s: {', '.join(told) or 'none'}",
            remedy="Run head and workers in one play, with as many forks as nodes and without serial.",
        )


def keep(result: Result, done: Result) -> None:
    """Add to ``result`` what one run of the module did; a failure takes its place."""
    actions = [*result["actions"], *done.get("actions", [])]
    changed = result["changed"] or done.get("changed", False)
    if done.get("failed"):
        result.update(done)
    elif "stopped" in done:
        result["stopped"] = done["stopped"]
    result.update(actions=actions, changed=changed)
