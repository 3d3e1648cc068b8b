# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a sweep says, from what it saw and what it said before. This module util is PRIVATE to the collection.

Nothing is read and nothing sent here. What each channel was told is known by what it took, so that one that failed is told again, and one that was
never told of a trouble hears nothing of its end.
"""

from __future__ import annotations

import calendar
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import UTC, utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record

#: The kinds of a message: something is wrong that the channel was not told of, the same still is, and nothing is any more.
ALERT, STILL, WELL = "alert", "still", "well"
#: Most characters of one trouble in a message.
SHOWN = 500

Seen = dict[str, t.Any]
Declared = t.Mapping[str, t.Any]
State = dict[str, t.Any]


class Trouble(t.NamedTuple):
    """Something that is not as declared. The ``id`` stays the same while it lasts, whatever the ``text`` says of it.

    It counts once it has lasted for ``grace_s`` seconds, of which ``age_s`` are known to be over. While one that ``quiets`` does not count yet, nothing else
    is said either: somebody is at work on the node.
    """

    id: str
    text: str
    grace_s: float = 0
    age_s: float = 0
    quiets: bool = False


class Message(t.NamedTuple):
    """What a channel is to be told. ``problems`` is what it has been told of, by id, once it took this."""

    kind: str
    subject: str
    lines: list[str]
    problems: dict[str, str]


class Judged(t.NamedTuple):
    """The outcome of a sweep: what counts, what does not count yet, why nothing is said (empty when it is), what each channel is to be told, and the state
    to keep while none of them has taken it.
    """

    firing: list[Trouble]
    pending: list[Trouble]
    quiet: str
    messages: dict[str, Message]
    after: State


def age_of(text: str, now: float) -> float:
    """Return the seconds since a moment that a record has in UTC; 0 for one that is in the future or cannot be read."""
    try:
        return max(0.0, now - calendar.timegm(time.strptime(text, UTC)))
    except ValueError:
        return 0.0


# -- what is expected ------------------------------------------------------------------------------------------------


def clusters_of(mode: modes.Record | None, node: str) -> dict[str, str] | None:
    """Return the role of this node in each cluster that the declared mode has here; none while the mode changes, None where no mode is declared."""
    if mode is None:
        return None
    if mode["phase"] not in (modes.SETTLED, modes.FAILED):
        return {}
    return {name: "head" if one["nodes"][0] == node else "worker" for name, one in mode["clusters"].items() if node in one["nodes"]}


def mode_of(mode: modes.Record | None) -> str:
    """Return the mode whose companions are expected to be up, empty for none: one that changes, or where none is declared."""
    return str(mode["mode"]) if mode and mode["phase"] in (modes.SETTLED, modes.FAILED) else ""


# -- what is wrong ---------------------------------------------------------------------------------------------------


def of_mode(mode: modes.Record | None, error: str, quiet_s: float, now: float) -> t.Iterator[Trouble]:
    """Yield what is wrong with the declared mode itself."""
    if error:
        yield Trouble("mode", f"the declared mode is not known: {error}")
    if mode is None:
        return
    said = f"mode {mode['mode']}, {mode['phase']} since {mode['changed_at']}{': ' if mode['reason'] else ''}{mode['reason']}"
    if mode["phase"] == modes.SWITCHING:
        yield Trouble(f"mode {mode['changed_at']}", said, quiet_s, age_of(mode["changed_at"], now), quiets=True)
    elif mode["phase"] != modes.SETTLED:
        yield Trouble("mode", said)


def of_locks(locks: t.Iterable[Seen], quiet_s: float) -> t.Iterator[Trouble]:
    """Yield the locks that somebody holds, and those that cannot be read."""
    for lock in locks:
        if lock["error"]:
            yield Trouble(f"lock {lock['name']}", lock["error"])
        else:
            yield Trouble(f"lock {lock['name']} {lock['id']}", f"the lock {lock['name']} is held by {lock['who']}", quiet_s, lock["age_s"], quiets=True)


def of_engine(one: Seen, starting_s: float) -> Trouble | None:
    """Return what is wrong with an engine, or this node's part of one; None when it is as it should be."""
    name, unit, engine = f"engine {one['cluster']}", one["unit"], one["engine"]
    if one["error"]:
        return Trouble(name, one["error"])
    if found := one["health"]:
        if found["state"] in (health.SERVING, health.BUSY):
            return None
        # A start may take its time, and the first look that waits in vain proves no stall.
        grace = {health.STARTING: starting_s, health.UNKNOWN: found["limit_s"]}.get(found["state"], 0.0)
        age = engine["seconds"] or 0.0 if found["state"] == health.STARTING else 0.0
        return Trouble(name, found["text"], grace, age)
    if unit["installed"] and unit["state"] == record.STARTING:
        return Trouble(name, f"{unit['name']} starts it since {unit['at']}", starting_s)
    if one["runs"]:
        return None
    on_request = unit["state"] == record.STOPPED if unit["installed"] else bool(engine["stopped_by"])
    if on_request and not one["of_mode"]:
        return None
    by_unit = f"{unit['name']} {unit['state']} {unit['at']}: {unit['reason']}" if unit["installed"] and unit["reason"] else ""
    return Trouble(name, f"it does not run; {by_unit or engine['last_end'] or one['container'] or 'nothing of it is on this node'}")


def of_memory(memory: Seen, floor_gib: float) -> t.Iterator[Trouble]:
    """Yield what is wrong with the memory that is available."""
    if memory["error"]:
        yield Trouble("memory", memory["error"])
    elif memory["available_mb"] < floor_gib * 1024:
        yield Trouble("memory", f"{memory['available_mb'] / 1024:.1f} GiB are available, and {floor_gib:g} should be")


def troubles(seen: Seen, declared: Declared, now: float) -> list[Trouble]:
    """Return all that is not as declared."""
    quiet_s = declared["quiet_minutes"] * 60
    found = [*of_mode(seen["mode"], seen["mode_error"], quiet_s, now), *of_locks(seen["locks"], quiet_s)]
    found += [trouble for one in seen["engines"] if (trouble := of_engine(one, declared["starting_s"]))]
    found += [Trouble(one["id"], one["text"], declared["silent_s"] if one["silent"] else 0) for one in seen["asked"] if not one["well"]]
    found += of_memory(seen["memory"], declared["floor_gib"])
    found += [Trouble("sweep", "; ".join(seen["errors"]))] if seen["errors"] else []
    return [one._replace(text=" ".join(one.text.split())) for one in found]


# -- what is said ----------------------------------------------------------------------------------------------------


def sound(before: State | None, channels: t.Collection[str], now: float) -> State:
    """Return what is known from before, empty where nothing is: of channels that there are, and of no moment that is still to come.

    A clock that was set back would else hold back what is due until it is there again.
    """
    known = before or {}
    told = {name: {**one, "at": min(one["at"], now)} for name, one in known.get("told", {}).items() if name in channels}
    return {"since": {id: min(at, now) for id, at in known.get("since", {}).items()}, "told": told, "last": known.get("last", {})}


def counted(found: t.Sequence[Trouble], since: t.Mapping[str, float], now: float) -> tuple[list[Trouble], list[Trouble]]:
    """Return the troubles that count, and those that have not lasted long enough."""
    firing = [one for one in found if max(one.age_s, now - since[one.id]) >= one.grace_s]
    return firing, [one for one in found if one not in firing]


def many(count: int) -> str:
    return f"{count} problem{'' if count == 1 else 's'}"


def message_for(told: State, current: t.Mapping[str, str], since: t.Mapping[str, float], where: str, repeat_s: float, now: float) -> Message | None:
    """Return what a channel is to be told that was ``told`` before, None when it knows all. ``current`` is what counts, by id."""
    before = told.get("problems", {})
    new = [id for id in current if id not in before]
    if not current:
        ended = [f"over: {id}: {text}"[:SHOWN] for id, text in before.items()]
        return Message(WELL, f"{where}: well again", ended, {}) if before else None
    if not new and not (repeat_s and now - told["at"] >= repeat_s):
        return None
    lines = [f"{id}: {text}"[:SHOWN] + f" (since {utc_text(since.get(id, now))}{', new' if before and id in new else ''})" for id, text in current.items()]
    return Message(ALERT if new else STILL, f"{where}: {'' if new else 'still '}{many(len(current))}", lines, dict(current))


def judge(seen: Seen, declared: Declared, before: State | None, now: float) -> Judged:
    """Decide what a sweep says. ``before`` is the state that the last one kept, None where there is none or it cannot be read; ``now`` in seconds.

    ``declared`` has ``cluster`` and ``node`` by name, ``channels`` by name, ``quiet_minutes`` for which somebody may work on the node, ``starting_s`` for which
    an engine may start, ``silent_s`` for which another node may be too busy to answer, ``floor_gib`` of memory and ``repeat_hours`` (0: never).
    """
    state = sound(before, declared["channels"], now)
    found = troubles(seen, declared, now)
    since = {one.id: state["since"].get(one.id, now) for one in found}
    firing, pending = counted(found, since, now)
    quiet = next((one.text for one in pending if one.quiets), "")
    kept = {id: at for id, at in state["since"].items() if any(id in one["problems"] for one in state["told"].values())}
    after: State = {
        "at": now,
        "quiet": quiet,
        "since": {**kept, **since},
        "problems": [] if quiet else [{"id": one.id, "text": one.text} for one in firing],
        "told": state["told"],
        "last": state["last"],
    }
    if quiet:
        return Judged(firing, pending, quiet, {}, after)
    where, messages = f"{declared['cluster']} on {declared['node']}", {}
    for name in declared["channels"]:
        told = state["told"].get(name, {})
        # What only waits to count again is not over.
        waits = {one.id: told["problems"][one.id] for one in pending if one.id in told.get("problems", {})}
        current = {**waits, **{one.id: one.text for one in firing}}
        message = message_for(told, current, after["since"], where, declared["repeat_hours"] * 3600, now)
        if message:
            messages[name] = message
        elif told:
            # What is over while other things last is told when it comes back.
            after["told"][name] = {**told, "problems": {id: text for id, text in told["problems"].items() if id in current}}
    return Judged(firing, pending, quiet, messages, after)


def delivered(state: State, channel: str, message: Message, now: float) -> State:
    """Return the state once a channel took a message."""
    told = {name: one for name, one in state["told"].items() if name != channel}
    if message.problems:
        told[channel] = {"at": now, "problems": message.problems}
    return {**state, "told": told, "last": {"at": now, "subject": message.subject}}
