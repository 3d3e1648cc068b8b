# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The number of nodes in a plan, and the memory that tenants, companions and an inventory declare. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._companion import declared

#: The fields of a tenant.
_TENANT = ("name", "node", "gib")
#: Fields of a node in GiB, with the minimum and maximum of each.
NODE_RANGES = {"total_gib": (8, 4096), "tenants_gib": (0, 4096), "available_gib": (0, 4096), "free_at_start_gib": (0, 4096)}


#: Where a fault is, what is wrong, and what was expected.
Fault = tuple[str, str, str]
#: The largest number that is a number of nodes; a larger one is a size in GiB. No Spark is that small.
MOST_COUNTED = 16


def counted(given: t.Any) -> int:
    """Return the number of nodes if it is given instead of their sizes, else 0."""
    return int(given) if str(given).isdecimal() and int(given) <= MOST_COUNTED else 0


def count_of(given: t.Any) -> int:
    """Return the number of nodes in ``gb10_plan_nodes``: 1 for a single size, or without a value."""
    return counted(given) or len(given if isinstance(given, list) else str(given or "").split(",")) or 1


def tenant_faults(tenants: t.Any) -> list[Fault]:
    """Return the faults of declared tenants (``gb10_tenants``)."""
    if not isinstance(tenants, list):
        return [("gb10_tenants", f"is {tenants!r}", "a list of {name, node, gib}")]
    faults = []
    for index, tenant in enumerate(tenants):
        where, most = f"gb10_tenants[{index}]", NODE_RANGES["tenants_gib"][1]
        name, on, size = (tenant.get(word) for word in _TENANT) if isinstance(tenant, dict) else ("-", None, most)
        is_size = isinstance(size, (int, float)) and not isinstance(size, bool) and 0 < size <= most
        checks = (
            (isinstance(tenant, dict), where, f"is {tenant!r}", "{name, node, gib}"),
            *((word in _TENANT, f"{where}.{word}", "is not a known field", "name, node and gib") for word in (tenant if isinstance(tenant, dict) else ())),
            (isinstance(name, str) and name.strip(), f"{where}.name", f"is {name!r}", "the name of its container or program"),
            (on is None or isinstance(on, str) and on, f"{where}.node", f"is {on!r}", "the inventory's name of a node, or no node for one on each"),
            (is_size, f"{where}.gib", f"is {size!r}", f"GiB above 0, up to {most}"),
        )
        faults += [fault for is_right, *fault in checks if not is_right]
    return list(map(tuple, faults))


def claimed(tenants: t.Iterable[t.Mapping[str, t.Any]], node: str) -> dict[str, float]:
    """Return the GiB that declared tenants claim on a node, by name. A tenant without a node claims them on every node."""
    claims: dict[str, float] = {}
    for tenant in tenants:
        if tenant.get("node") in (None, node):
            claims[tenant["name"]] = claims.get(tenant["name"], 0.0) + tenant["gib"]
    return claims


def companion_claims(companions: t.Iterable[t.Mapping[str, t.Any]], mode: str) -> dict[str, float]:
    """Return the GiB that the companions of a node claim in a mode, by name (``gb10_companions``). Only companions that are up in that mode count."""
    return {companion["name"]: companion["memory_gib"] for companion in declared.up_in(companions, mode)}


def who(claims: t.Mapping[str, float], now: t.Mapping[str, float] | None = None) -> str:
    """Return the claims in words: the GiB that each one declared, and the GiB that it uses ``now``, where that was measured."""
    texts = []
    for name, size in claims.items():
        seen = (now or {}).get(name)
        texts.append(f"{name} {size:g} GiB declared" + (f" ({seen:.1f} held now)" if seen else ""))
    return ", ".join(texts)


def gib(value: t.Any) -> float | None:
    """Return a number of GiB, also from text; None for anything that is not a number."""
    with contextlib.suppress(TypeError, ValueError):
        return None if isinstance(value, bool) else float(value)
    return None


def of_inventory(sizes: t.Mapping[str, t.Any], number: int) -> list[dict[str, t.Any]]:
    """Return the smallest nodes of an inventory to plan for; none if it lacks the size of a node, or has too few nodes."""
    if len(sizes) < number or not all(sizes.values()):
        return []
    gib = {name: round(int(size) / 1024, 2) for name, size in sizes.items()}
    least = sorted(gib, key=lambda name: gib[name])[:number]
    return [{"node": name, "total_gib": gib[name]} for name in gib if name in least]
