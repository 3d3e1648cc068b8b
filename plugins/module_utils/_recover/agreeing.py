# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides from the evidence of all nodes whether an engine has failed. This module util is PRIVATE to the collection.

These functions read and change nothing. A node that is not seen confirms nothing, and neither does an engine that may be busy.
"""

from __future__ import annotations

import hashlib
import json
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._records.recoveries import FAULT, OFF, STARTING, UNKNOWN, WELL, YOUNG

#: Consecutive looks at one incident that have to find a fault.
LOOKS = 3
#: Seconds after the start of a live engine in which a fault is only named, and for which a node's evidence counts.
GRACE_SECONDS, FRESH_SECONDS = 1800.0, 180.0

#: The states of an engine's unit on a node, beside :data:`STARTING` and :data:`OFF`: a unit that ended on request or refused is off, since its start is a
#: person's decision. It has failed only where its part of the engine does not run either. One that has ended waits for other nodes, to restart it once.
RUNNING, FAILED, ENDED = "running", "failed", "ended"
#: The verdicts that are faults.
FAULTS = (health.DEAD, health.HALTED, health.STALLED)
#: The keys of a node's evidence that change with the boot, the engine's run, its container, and each recovery.
GENERATION = ("boot_id", "run", "container", "last")
#: The verdict without a live engine.
GONE = health.Health(health.UNKNOWN, "no engine lives, and its unit has not ended yet", {})

#: By node, its evidence, or why there is none.
Nodes = t.Mapping[str, "t.Mapping[str, t.Any] | str"]


def named(texts: t.Mapping[str, str]) -> str:
    """Return texts by node as one text."""
    return "; ".join(f"{node}: {text}" for node, text in texts.items())


def judge(nodes: Nodes, head: str, scale: float = 1.0) -> tuple[str, str]:
    """Judge an engine by the evidence of all of its nodes; return the result (see ``recoveries``), and its reason. The first row that applies counts."""
    unseen = {node: entry for node, entry in nodes.items() if isinstance(entry, str)}
    seen = {node: entry for node, entry in nodes.items() if not isinstance(entry, str)}
    probe = health.Probe(*seen[head]["probe"]) if head in seen and seen[head]["probe"] else None
    verdict = health.verdict(probe, {node: entry["processes"] for node, entry in seen.items()}) if probe else GONE
    units = {word: {node: entry["why"] for node, entry in seen.items() if entry["unit"] == word} for word in (OFF, FAILED, STARTING, ENDED)}
    fault = verdict.state in FAULTS
    rows = (
        # Now: what another node saw is older, and a unit can fail without its engine.
        (probe and probe.token, WELL, "a token came"),
        (verdict.state == health.BUSY, WELL, verdict.text),
        (unseen and fault, UNKNOWN, f"{named(unseen)}; {verdict.text}"),
        (unseen, UNKNOWN, named(unseen)),
        (units[OFF], OFF, named(units[OFF])),
        (units[FAILED], FAULT, f"failed: {named(units[FAILED])}"),
        (units[STARTING], STARTING, named(units[STARTING])),
        (units[ENDED], FAULT, f"ended: {named(units[ENDED])}"),
        (fault and seen[head]["seconds"] * scale < GRACE_SECONDS, YOUNG, f"{verdict.text}; it counts {GRACE_SECONDS / 60:.0f} min after the start"),
        (fault, FAULT, verdict.text),
        (verdict.state == health.STARTING, STARTING, verdict.text),
        (True, UNKNOWN, verdict.text),
    )
    return next((kind, text) for applies, kind, text in rows if applies)


def incident(nodes: Nodes) -> str:
    """Return what identifies an incident: it is another one after a boot, a start, another container, or a recovery of any node."""
    generations = {node: entry if isinstance(entry, str) else [entry[key] for key in GENERATION] for node, entry in nodes.items()}
    return hashlib.sha256(json.dumps(generations, sort_keys=True).encode()).hexdigest()[:16]


def counted(kind: str, now: str, before: t.Mapping[str, t.Any]) -> int:
    """Return how many consecutive looks have found this incident, 0 without a fault. ``before`` is the state of the last look."""
    return 0 if kind != FAULT else 1 + (before["count"] if before["incident"] == now else 0)


def intent(count: int, holds: t.Mapping[str, str]) -> str:
    """Return what follows from a fault, as text. ``holds`` are the nodes that would not act, with their reason."""
    what = f"look {count} of {LOOKS}" if count < LOOKS else f"{LOOKS} looks agree"
    return f"{what}; restart would take all nodes down and up again, but {named(holds)}" if holds else f"{what}; then all nodes go down and up again"
