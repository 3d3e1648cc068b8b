# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far a context was raised on a node, on record: the climbs of bench --tags ladder. This module util is PRIVATE to the collection.

A climb is good for what it was made with: the same image, profile (by the digest of what memory follows from), driver, kernel and MemTotal, and no more
held by others than then. It is written before each rung, so that one whose node died tells which rung that was.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import lacking
from ansible_collections.gb10.cluster.plugins.module_utils._records import records

#: Climbs that a node keeps of a cluster; the oldest go.
KEEP = 16

Climb = dict[str, t.Any]

#: How a climb ended, or that it did not: it goes on or was interrupted; the last rung was good; a bad sign ended it and the last good rung serves;
#: it ended with nothing started.
CLIMBING, TOP, RETURNED, OFF = "climbing", "top", "returned", "off"
OUTCOMES = (CLIMBING, TOP, RETURNED, OFF)

#: What every climb has, with its type. ``rung`` is the last good length in tokens and ``trying`` the one that is being tried, 0 for none.
#: ``tenants_mb`` is what foreign processes held of the GPU before the first rung.
KEYS: dict[str, type] = {
    "climb_id": str, "image_id": str, "profile": str, "profile_digest": str, "driver": str, "kernel": str, "boot_id": str, "began_at": str,
    "outcome": str, "reason": str, "total_mb": int, "tenants_mb": int, "rung": int, "trying": int, "tenants": list, "rungs": list,
}  # fmt: skip
#: What each entry of ``rungs`` has at least.
RUNG_KEYS: dict[str, type] = {"context": int, "good": bool, "reasons": list, "curve": list}

#: MiB by which MemTotal may differ, and by which foreign processes may hold more than then.
SAME_TOTAL_MB, MORE_TENANTS_MB = 64, 1024


class Now(t.NamedTuple):
    """What a node is now. ``image_id`` is empty where the image is not there yet; ``tenants_mb`` None where it is not known what others hold."""

    image_id: str
    driver: str
    kernel: str
    total_mb: int
    tenants_mb: int | None


def wrong(climb: t.Any) -> str:
    """Return what is missing or of another type in a climb, empty when nothing is."""
    if problem := lacking(climb, KEYS):
        return problem
    if climb["outcome"] not in OUTCOMES:
        return f"outcome is {climb['outcome']!r}, expected one of {', '.join(OUTCOMES)}"
    return "" if not any(lacking(rung, RUNG_KEYS) for rung in climb["rungs"]) else f"rungs: each has {', '.join(RUNG_KEYS)}"


#: Where they lie: 4 MiB is many times what :data:`KEEP` climbs with their memory curves take.
FILE = records.RecordFile(
    "ladder", "climbs", 4 << 20, wrong, "bench --tags ladder writes it again, and until then the profile's own length is served"
)


def short(climb: Climb) -> Climb:
    """Return a climb without its memory curves."""
    return {**climb, "rungs": [{key: value for key, value in rung.items() if key != "curve"} for rung in climb["rungs"]]}


def on_node(state_dir: str) -> list[Climb]:
    """Return the climbs of all clusters of a node without their curves, each with its ``cluster``. Raises as :class:`records.RecordFile` does."""
    return [short(one) for one in FILE.on_node(state_dir)]


def _key(climb: Climb) -> tuple[t.Any, ...]:
    return tuple(climb[name] for name in ("image_id", "profile_digest", "driver", "kernel"))


def with_climb(climbs: t.Sequence[Climb], new: Climb) -> list[Climb]:
    """Return the climbs with a new one, which takes the place of itself as it was before and of those made with the same things."""
    return [*(one for one in climbs if one["climb_id"] != new["climb_id"] and _key(one) != _key(new)), new][-KEEP:]


# -- which rung holds now ------------------------------------------------------------------------------------------------


def differences(climb: Climb, now: Now) -> list[str]:
    """Return in words what is not as it was when this climb was made."""
    found = []
    if climb["image_id"] != now.image_id:
        found.append(f"the image is {now.image_id[:19]}, and was {climb['image_id'][:19]}")
    for name, value in (("driver", now.driver), ("kernel", now.kernel)):
        if climb[name] != value:
            found.append(f"the {name} is {value or 'none'}, and was {climb[name] or 'none'}")
    if abs(climb["total_mb"] - now.total_mb) > SAME_TOTAL_MB:
        found.append(f"MemTotal is {now.total_mb} MiB, and was {climb['total_mb']}")
    if now.tenants_mb is None:
        found.append("what other processes hold is not known")
    elif now.tenants_mb > climb["tenants_mb"] + MORE_TENANTS_MB:
        found.append(f"other processes hold {now.tenants_mb} MiB of the GPU, and held {climb['tenants_mb']}")
    return found


class Rung(t.NamedTuple):
    """The length that the nodes' climbs stand for, 0 for none; the climb it is from; and in words why there is none although there is a climb."""

    context: int
    climb_id: str = ""
    why_not: str = ""


def chosen(climbs: t.Sequence[Climb], digest: str, now: Now) -> Climb | None:
    """Return the newest climb of a profile that was made with what the node is now, else the newest of that profile, None without one."""
    mine = [one for one in climbs if one["profile_digest"] == digest]
    return next((one for one in reversed(mine) if not differences(one, now)), mine[-1] if mine else None)


def rung_of(nodes: t.Mapping[str, tuple[t.Sequence[Climb], Now]], digest: str) -> Rung:
    """Return the length that all nodes' climbs stand for. An image that is not there yet has none, without a word."""
    found = {node: chosen(climbs, digest, now) for node, (climbs, now) in nodes.items()}
    known = {node: climb for node, climb in found.items() if climb is not None}
    if not known or any(not now.image_id for _climbs, now in nodes.values()):
        return Rung(0)
    missing = [node for node in nodes if node not in known]
    if missing:
        return Rung(0, why_not=f"{', '.join(missing)} took no part in it")
    if len({climb["climb_id"] for climb in known.values()}) > 1:
        return Rung(0, why_not="the nodes' records are of different climbs")
    other = [f"on {node} {text}" for node, climb in known.items() for text in differences(climb, nodes[node][1])]
    if other:
        return Rung(0, why_not="; ".join(other))
    climb = next(iter(known.values()))
    rung = min(one["rung"] for one in known.values())
    if rung < 1:
        ended = f"it was interrupted while {climb['trying']} was tried" if climb["outcome"] == CLIMBING else climb["reason"]
        return Rung(0, climb["climb_id"], f"no rung of it was good: {ended}")
    return Rung(rung, climb["climb_id"])
