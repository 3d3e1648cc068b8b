# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides a sweep's messages, from its results and its earlier messages. This module util is PRIVATE to the collection.

This file reads and sends nothing. The state has what each channel confirmed, so a failed message is sent again, and a channel that was never alerted
about a problem gets no message about its end.
"""

from __future__ import annotations

import calendar
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import UTC, utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots, record

#: The kinds of a message: a new problem, an unresolved one, and all problems are resolved.
ALERT, STILL, WELL = "alert", "still", "well"
#: The most characters of one problem in a message.
SHOWN = 500

Seen = dict[str, t.Any]
Declared = t.Mapping[str, t.Any]
State = dict[str, t.Any]


class Trouble(t.NamedTuple):
    """A difference from the declared state. The ``id`` stays the same while it lasts, also when the ``text`` changes.

    It counts after ``grace_s`` seconds, of which ``age_s`` are known to be over. While a trouble that ``quiets`` does not count yet, no message is sent:
    a person or a play works on the node.
    """

    id: str
    text: str
    grace_s: float = 0
    age_s: float = 0
    quiets: bool = False


class Message(t.NamedTuple):
    """A message for a channel. ``problems`` are the problems, by id, that the channel was notified of once it confirms it."""

    kind: str
    subject: str
    lines: list[str]
    problems: dict[str, str]


class Judged(t.NamedTuple):
    """The outcome of a sweep: troubles that count, troubles that do not count yet, the reason of its silence (empty without one), the message for each
    channel, and the state before any of them is delivered.
    """

    firing: list[Trouble]
    pending: list[Trouble]
    quiet: str
    messages: dict[str, Message]
    after: State


def age_of(text: str, now: float) -> float:
    """Return the seconds since a UTC time of a record; 0 for a time in the future or of another form."""
    try:
        return max(0.0, now - calendar.timegm(time.strptime(text, UTC)))
    except ValueError:
        return 0.0


def nothing(memory: t.Mapping[str, t.Any], errors: list[str]) -> Seen:
    """Return the result of a sweep before its checks."""
    return {"mode": None, "mode_error": "", "unclean_boot": "", "locks": [], "engines": [], "asked": [], "memory": memory, "errors": errors}


# -- what is expected ------------------------------------------------------------------------------------------------


def clusters_of(mode: modes.Record | None, node: str) -> dict[str, str] | None:
    """Return this node's role in each cluster of the declared mode; none while the mode changes, None without a declared mode."""
    if mode is None or mode["mode"] == modes.SERVE:
        return None
    clusters = mode["clusters"].items() if mode_of(mode) else ()
    return {name: "head" if cluster["nodes"][0] == node else "worker" for name, cluster in clusters if node in cluster["nodes"]}


def mode_of(mode: modes.Record | None) -> str:
    """Return the declared mode, empty while it changes and without one."""
    return str(mode["mode"]) if mode and mode["mode"] != modes.SERVE and mode["phase"] in (modes.SETTLED, modes.FAILED) else ""


# -- what is wrong ---------------------------------------------------------------------------------------------------


def of_mode(mode: modes.Record | None, error: str, quiet_s: float, now: float) -> t.Iterator[Trouble]:
    """Yield the troubles of the declared mode itself."""
    if error:
        yield Trouble("mode", f"the declared mode is unknown: {error}")
    if mode is None or mode["phase"] == modes.SETTLED:
        return
    text = f"mode {mode['mode']}, {mode['phase']} since {mode['changed_at']}{': ' if mode['reason'] else ''}{mode['reason']}"
    switching = mode["phase"] == modes.SWITCHING
    yield Trouble(f"mode {mode['changed_at']}", text, quiet_s, age_of(mode["changed_at"], now), quiets=True) if switching else Trouble("mode", text)


def of_boot(at: str) -> list[Trouble]:
    """Return the trouble of an unclean boot while it is recent. ``at`` is its time, empty without one."""
    text = f"the node came back after an unclean boot, seen {at}; until a unit has run for {boots.SECONDS / 60:.0f} minutes, another one keeps the units down"
    return [Trouble("boot", text)] if at else []


def of_lock(lock: Seen, quiet_s: float) -> Trouble:
    """Return the trouble of a held or unreadable lock."""
    if lock["error"]:
        return Trouble(f"lock {lock['name']}", lock["error"])
    return Trouble(f"lock {lock['name']} {lock['id']}", f"the lock {lock['name']} is held by {lock['who']}", quiet_s, lock["age_s"], quiets=True)


def of_engine(entry: Seen, starting_s: float) -> Trouble | None:
    """Return the trouble of an engine, or of this node's part of one; None without one."""
    name, unit, engine = f"engine {entry['cluster']}", entry["unit"], entry["engine"]
    if entry["error"]:
        return Trouble(name, entry["error"])
    if verdict := entry["health"]:
        if verdict["state"] in (health.SERVING, health.BUSY):
            return None
        # A start may take long, and one check without progress does not prove a stall.
        grace = {health.STARTING: starting_s, health.UNKNOWN: verdict["limit_s"]}.get(verdict["state"], 0.0)
        return Trouble(name, verdict["text"], grace, engine["seconds"] or 0.0 if verdict["state"] == health.STARTING else 0.0)
    if unit["installed"] and unit["state"] == record.STARTING:
        return Trouble(name, f"{unit['name']} has been starting it since {unit['at']}", starting_s)
    on_request = unit["state"] == record.STOPPED if unit["installed"] else bool(engine["stopped_by"])
    if entry["runs"] or (on_request and not entry["of_mode"]):
        return None
    by_unit = f"{unit['name']} {unit['state']} {unit['at']}: {unit['reason']}" if unit["installed"] and unit["reason"] else ""
    return Trouble(name, f"it does not run; {by_unit or engine['last_end'] or entry['container'] or 'nothing of it is on this node'}")


def of_memory(memory: Seen, floor_gib: float) -> list[Trouble]:
    """Return the trouble of the available memory."""
    low = memory["available_mb"] < floor_gib * 1024
    text = memory["error"] or (f"{memory['available_mb'] / 1024:.1f} GiB are available, expected {floor_gib:g} or more" if low else "")
    return [Trouble("memory", text)] if text else []


def troubles(seen: Seen, declared: Declared, now: float) -> list[Trouble]:
    """Return all differences from the declared state."""
    quiet_s = declared["quiet_minutes"] * 60
    all_troubles = [
        *of_mode(seen["mode"], seen["mode_error"], quiet_s, now),
        *of_boot(seen["unclean_boot"]),
        *(of_lock(lock, quiet_s) for lock in seen["locks"]),
        *filter(None, (of_engine(engine, declared["starting_s"]) for engine in seen["engines"])),
        *(Trouble(answer["id"], answer["text"], declared["silent_s"] if answer["silent"] else 0) for answer in seen["asked"] if not answer["well"]),
        *of_memory(seen["memory"], declared["floor_gib"]),
        *([Trouble("sweep", "; ".join(seen["errors"]))] if seen["errors"] else []),
    ]
    return [trouble._replace(text=" ".join(trouble.text.split())) for trouble in all_troubles]


# -- messages --------------------------------------------------------------------------------------------------------


def sound(before: State | None, channels: t.Collection[str], now: float) -> State:
    """Return the earlier state, empty without one: only of existing channels, and without times in the future.

    Otherwise a clock that was set back would delay messages until it reaches these times again.
    """
    known = before or {}
    confirmed = {name: {**entry, "at": min(entry["at"], now)} for name, entry in known.get("told", {}).items() if name in channels}
    return {"since": {id: min(at, now) for id, at in known.get("since", {}).items()}, "told": confirmed, "last": known.get("last", {})}


def many(count: int) -> str:
    return f"{count} problem{'' if count == 1 else 's'}"


def message_for(confirmed: State, current: t.Mapping[str, str], since: t.Mapping[str, float], where: str, repeat_s: float, now: float) -> Message | None:
    """Return the message for a channel, None without news. ``confirmed`` has the problems that it confirmed, and when; ``current`` those that count, by id."""
    before = confirmed.get("problems", {})
    new = [id for id in current if id not in before]
    if not current:
        ended = [f"over: {id}: {text}"[:SHOWN] for id, text in before.items()]
        return Message(WELL, f"{where}: well again", ended, {}) if before else None
    if not new and not (repeat_s and now - confirmed["at"] >= repeat_s):
        return None
    lines = [f"{id}: {text}"[:SHOWN] + f" (since {utc_text(since.get(id, now))}{', new' if before and id in new else ''})" for id, text in current.items()]
    return Message(ALERT if new else STILL, f"{where}: {'' if new else 'still '}{many(len(current))}", lines, dict(current))


def judge(seen: Seen, declared: Declared, before: State | None, now: float) -> Judged:
    """Decide a sweep's messages. ``before`` is the state of the last sweep, None without one or when it cannot be read; ``now`` in seconds.

    ``declared`` has the names of ``cluster``, ``node`` and ``channels``, ``quiet_minutes`` for work on the node, ``starting_s`` for the start of an engine,
    ``silent_s`` for another node that is too busy to answer, ``floor_gib`` of memory, and ``repeat_hours`` (0: never).
    """
    state = sound(before, declared["channels"], now)
    all_troubles = troubles(seen, declared, now)
    since = {trouble.id: state["since"].get(trouble.id, now) for trouble in all_troubles}
    firing = [trouble for trouble in all_troubles if max(trouble.age_s, now - since[trouble.id]) >= trouble.grace_s]
    pending = [trouble for trouble in all_troubles if trouble not in firing]
    quiet = next((trouble.text for trouble in pending if trouble.quiets), "")
    kept = {id: at for id, at in state["since"].items() if any(id in entry["problems"] for entry in state["told"].values())}
    after: State = {
        "at": now,
        "quiet": quiet,
        "since": {**kept, **since},
        "problems": [] if quiet else [{"id": trouble.id, "text": trouble.text} for trouble in firing],
        "told": state["told"],
        "last": state["last"],
    }
    if quiet:
        return Judged(firing, pending, quiet, {}, after)
    where, messages = f"{declared['cluster']} on {declared['node']}", {}
    for name in declared["channels"]:
        confirmed = state["told"].get(name, {})
        # A known problem that does not count yet again is not over.
        waits = {trouble.id: confirmed["problems"][trouble.id] for trouble in pending if trouble.id in confirmed.get("problems", {})}
        current = {**waits, **{trouble.id: trouble.text for trouble in firing}}
        message = message_for(confirmed, current, after["since"], where, declared["repeat_hours"] * 3600, now)
        if message:
            messages[name] = message
        elif confirmed:
            # A problem that is over while others last is new when it returns.
            after["told"][name] = {**confirmed, "problems": {id: text for id, text in confirmed["problems"].items() if id in current}}
    return Judged(firing, pending, quiet, messages, after)


def delivered(state: State, channel: str, message: Message, now: float) -> State:
    """Return the state after a channel confirmed a message."""
    others = {name: entry for name, entry in state["told"].items() if name != channel}
    confirmed = {channel: {"at": now, "problems": message.problems}} if message.problems else {}
    return {**state, "told": {**others, **confirmed}, "last": {"at": now, "subject": message.subject}}
