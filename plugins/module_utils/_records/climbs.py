# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of the ladder: how far ``bench --tags ladder`` raised the context on a node. This module util is PRIVATE to the collection.

A climb is valid for the same image, profile (by the digest of the values that memory depends on), driver, kernel and MemTotal, and while other processes
hold no more memory than then. It is written before each rung, so that after a node's crash the record shows the rung.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import lacking
from ansible_collections.gb10.cluster.plugins.module_utils._records import records

#: Climbs that a node keeps per cluster.
KEEP = 16

Climb = dict[str, t.Any]

#: The outcome of a climb: it is running or was interrupted; the last rung was good; a bad sign ended it and the last good rung serves; it ended with no
#: engine.
CLIMBING, TOP, RETURNED, OFF = "climbing", "top", "returned", "off"
OUTCOMES = (CLIMBING, TOP, RETURNED, OFF)

#: The keys of every climb, with their types. ``rung`` is the last good length in tokens and ``trying`` the one that is being tried, 0 for none.
#: ``tenants_mb`` is the GPU memory of foreign processes before the first rung.
KEYS: dict[str, type] = {
    "climb_id": str, "image_id": str, "profile": str, "profile_digest": str, "driver": str, "kernel": str, "boot_id": str, "began_at": str,
    "outcome": str, "reason": str, "total_mb": int, "tenants_mb": int, "rung": int, "trying": int, "tenants": list, "rungs": list,
}  # fmt: skip
#: The keys that each entry of ``rungs`` has at least.
RUNG_KEYS: dict[str, type] = {"context": int, "good": bool, "reasons": list, "curve": list}

#: MiB by which MemTotal may differ, and by which the memory of foreign processes may have grown.
SAME_TOTAL_MB, MORE_TENANTS_MB = 64, 1024


class Now(t.NamedTuple):
    """A node's present state. ``image_id`` is empty while the image is absent; ``tenants_mb`` is None if the memory of foreign processes is unknown."""

    image_id: str
    driver: str
    kernel: str
    total_mb: int
    tenants_mb: int | None


def problem_of(climb: t.Any) -> str:
    """Return what is missing or of another type in a climb, empty if nothing is."""
    if problem := lacking(climb, KEYS):
        return problem
    if climb["outcome"] not in OUTCOMES:
        return f"outcome is {climb['outcome']!r}, expected one of {', '.join(OUTCOMES)}"
    return "" if not any(lacking(rung, RUNG_KEYS) for rung in climb["rungs"]) else f"rungs: each has {', '.join(RUNG_KEYS)}"


#: Their file. 4 MiB is many times the size of :data:`KEEP` climbs with their memory curves.
FILE = records.RecordFile(
    "ladder", "climbs", 4 << 20, problem_of, "bench --tags ladder writes it again, and until then the profile's own length is served",
    KEEP, lambda climb: tuple(climb[name] for name in ("image_id", "profile_digest", "driver", "kernel")),
)  # fmt: skip


def short(climb: Climb) -> Climb:
    """Return a climb without its memory curves."""
    return {**climb, "rungs": [{key: value for key, value in rung.items() if key != "curve"} for rung in climb["rungs"]]}


def on_node(state_dir: str) -> list[Climb]:
    """Return the climbs of all clusters of a node without their curves, each with its ``cluster``. Raises as :class:`records.RecordFile` does."""
    return [short(climb) for climb in FILE.on_node(state_dir)]


def with_climb(climbs: t.Sequence[Climb], new: Climb) -> list[Climb]:
    """Return the climbs with a new one, which replaces its own earlier record and those of the same image, profile, driver and kernel."""
    return FILE.with_new((climb for climb in climbs if climb["climb_id"] != new["climb_id"]), new)


# -- the valid rung ------------------------------------------------------------------------------------------------------


def differences(climb: Climb, now: Now) -> list[str]:
    """Return, in words, what changed since this climb."""
    pairs = [("image", now.image_id[:19], climb["image_id"][:19]), ("driver", now.driver, climb["driver"]), ("kernel", now.kernel, climb["kernel"])]
    changes = [f"the {name} is {value or 'none'}, and was {before or 'none'}" for name, value, before in pairs if value != before]
    if abs(climb["total_mb"] - now.total_mb) > SAME_TOTAL_MB:
        changes.append(f"MemTotal is {now.total_mb} MiB, and was {climb['total_mb']}")
    if now.tenants_mb is None:
        changes.append("the memory of other processes is unknown")
    elif now.tenants_mb > climb["tenants_mb"] + MORE_TENANTS_MB:
        changes.append(f"other processes hold {now.tenants_mb} MiB of the GPU, and held {climb['tenants_mb']}")
    return changes


class Rung(t.NamedTuple):
    """The context length that the nodes' climbs confirm, 0 for none; its climb; and, in words, why a climb confirms none."""

    context: int
    climb_id: str = ""
    why_not: str = ""


def chosen(climbs: t.Sequence[Climb], digest: str, now: Now) -> Climb | None:
    """Return the newest valid climb of a profile, else the profile's newest, None without one."""
    known = [climb for climb in climbs if climb["profile_digest"] == digest]
    return next((climb for climb in reversed(known) if not differences(climb, now)), known[-1] if known else None)


def rung_of(nodes: t.Mapping[str, tuple[t.Sequence[Climb], Now]], digest: str) -> Rung:
    """Return the context length that all nodes' climbs confirm. While an image is absent that is none, without a reason."""
    known = {node: climb for node, (climbs, now) in nodes.items() if (climb := chosen(climbs, digest, now)) is not None}
    if not known or any(not now.image_id for _climbs, now in nodes.values()):
        return Rung(0)
    if missing := [node for node in nodes if node not in known]:
        return Rung(0, why_not=f"{', '.join(missing)} has no record of it")
    if len({climb["climb_id"] for climb in known.values()}) > 1:
        return Rung(0, why_not="the nodes' records are of different climbs")
    if changed := [f"on {node} {text}" for node, climb in known.items() for text in differences(climb, nodes[node][1])]:
        return Rung(0, why_not="; ".join(changed))
    climb = next(iter(known.values()))
    rung = min(record["rung"] for record in known.values())
    if rung < 1:
        ended = f"it was interrupted while {climb['trying']} was tried" if climb["outcome"] == CLIMBING else climb["reason"]
        return Rung(0, climb["climb_id"], f"it has no good rung: {ended}")
    return Rung(rung, climb["climb_id"])
