# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts and stops all ranks together: head and workers decide jointly. This plugin util is PRIVATE to the collection.

Without Ray every node starts its own rank of an engine, and only a restart of all ranks brings a missing one back. So
each node publishes what it would do, all come to the same decision, and every live rank has ended before the first new
one starts: a new rank must not connect to an old head.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.run_board import RunBoard

#: The topics that the nodes publish.
PLAN, STOPPED = "plan", "stopped"

#: Seconds that all nodes have to publish their plans.
PLAN_SECONDS = 120.0
#: Seconds beyond the engine's grace that a node has to publish that its rank has ended.
STOP_MARGIN = 120.0

Result = dict[str, t.Any]

#: Runs the module on this node with: the desired state, whether it only predicts, and options in addition to those of the task.
Run = t.Callable[[str, bool, dict[str, t.Any]], Result]
#: A plan interrupts nothing: whether requests can still be answered is known once all plans are published.
PLANNED = {"interrupt_requests": True}


def reason_to_start(plans: t.Mapping[str, t.Mapping[str, t.Any]]) -> str:
    """Return why all ranks have to be started, empty when all are live as wanted.

    ``plans`` maps each node to ``changed`` (whether it would do anything), ``live`` (whether its rank is live) and ``reason``.
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
    """Return the result of check mode for a node with its own plan ``plan``, when all ranks are started for ``reason``."""
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


class JointStart:
    """One node's part in starting all ranks together. ``count`` is the number of nodes, ``grace`` the seconds an engine gets to end."""

    def __init__(self, board: RunBoard, head: bool, count: int, grace: float, run: Run) -> None:
        self._board = board
        self._head = head
        self._count = count
        self._grace = grace
        self._run = run

    def start(self, result: Result, check_mode: bool) -> None:
        """Start all ranks unless they are live; ``result`` is filled as far as possible, even when this raises.

        Raises :class:`ClusterError` when another node failed, or does not take part. A failure of this node is in ``result``.
        """
        plan = self._run("started", True, PLANNED)
        if plan.get("failed"):
            result.update(plan)
            return
        self._board.publish(PLAN, {"changed": plan["changed"], "live": plan["engine_live"], "reason": plan["reason"]})
        plans = self._wait_for(PLAN, PLAN_SECONDS, self._all_published)
        reason, dead = reason_to_start(plans), bool(missing_ranks(plans))
        # A worker's rank has no API: only the head can count the engine's requests.
        if reason and not dead and self._head:
            check = self._run("started", True, {})
            if check.get("failed"):
                result.update(check)
                return
        if not reason or check_mode:
            result.update(predicted(plan, reason) if reason else plan)
            return
        result.update(predicted(plan, reason), actions=[], changed=False)
        # Requests to an engine without all its ranks are never answered, so stopping it loses none.
        if self._stop(result, dead):
            self._start_rank(result)

    def _stop(self, result: Result, dead: bool) -> bool:
        """Stop this node's rank when its turn has come, and wait until all have ended; return False when this node failed."""
        if not self._head:
            self._wait_for(STOPPED, self._grace + STOP_MARGIN, lambda published: any(entry["role"] == "head" for entry in published.values()))
        # The head's rank has ended by now, and without it no other rank answers a request.
        done = self._run("stopped", False, {"lacks_rank": dead or not self._head})
        keep(result, done)
        if done.get("failed"):
            return False
        self._board.publish(STOPPED, {})
        self._wait_for(STOPPED, self._grace + STOP_MARGIN, self._all_published)
        return True

    def _start_rank(self, result: Result) -> None:
        done = self._run("started", False, {})
        after = {name: value for name, value in done.items() if name not in ("actions", "changed", "diff", "reason")}
        keep(result, done)
        result.update(after)

    def _all_published(self, published: t.Mapping[str, t.Any]) -> bool:
        return len(published) >= self._count

    def _wait_for(self, topic: str, seconds: float, is_enough: t.Callable[[t.Mapping[str, t.Any]], bool]) -> dict[str, dict[str, t.Any]]:
        """Return the nodes' entries on a topic as soon as they are enough. Raises :class:`ClusterError` when that becomes impossible."""
        return self._board.wait_for(topic, seconds, is_enough, self._count)


def keep(result: Result, done: Result) -> None:
    """Add the result of one run of the module to ``result``; a failure replaces it."""
    actions = [*result["actions"], *done.get("actions", [])]
    changed = result["changed"] or done.get("changed", False)
    if done.get("failed"):
        result.update(done)
    elif "stopped" in done:
        result["stopped"] = done["stopped"]
    result.update(actions=actions, changed=changed)
