# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The results of a node as evidence for rules; missing evidence is never a pass. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses
import typing as t

Entry = dict[str, t.Any]


class Unseen(Exception):
    """Evidence is missing: ``what`` (a path in the node's answer), ``why`` and ``remedy`` as far as the node reported them."""

    def __init__(self, what: str, why: str = "", remedy: str = "") -> None:
        super().__init__(f"{what}: {why}" if why else what)
        self.what = what
        self.why = why
        self.remedy = remedy


@dataclasses.dataclass(frozen=True)
class Fault:
    """One violation of a rule. ``words`` fill the placeholders of the rule's texts.

    ``node`` is the node that it concerns, if that is not the checked node. ``verdict`` overrides the rule's verdict. ``cannot`` is the reason why the stage
    that repairs such violations would not repair this one.
    """

    measured: t.Any = None
    needed: t.Any = None
    words: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    node: str = ""
    verdict: str = ""
    cannot: str = ""


class Node:
    """One node: its name, the results of ``node_info`` and ``cuda_zombie_check`` there, and its requirements.

    ``needs`` is the result of ``judging.requirements``. ``engine_live``: whether an engine of this cluster serves; its ports, memory and processes are not
    faults.
    """

    def __init__(self, name: str, info: Entry, zombies: Entry, needs: Entry) -> None:
        self.name = name
        self.needs = needs
        self.engine_live = False
        self._errors: list[Entry] = info["errors"]
        self._tree = {**info, "zombies": zombies}

    def get(self, path: str) -> t.Any:
        """Return the value at a dotted ``path``. Raises :class:`Unseen` when the value or a mapping above it is null or missing.

        A list or mapping that is empty because it could not be read is missing, too.
        """
        value, error = within(self._tree, path), self.error(path)
        if value is None or (value in ([], {}) and error):
            raise self._unseen(path, error)
        return value

    def optional(self, path: str) -> t.Any:
        """Return the value at ``path``, None if this machine does not have it. Raises :class:`Unseen` when an error explains the null."""
        return optional(self.get, path)

    def require_whole(self, path: str) -> None:
        """Raise :class:`Unseen` when only a part of the list or mapping at ``path`` could be read."""
        errors = [error for error in self._errors if error["section"] == path or error["section"].startswith(f"{path}.")]
        if errors and isinstance(self.get(path), (list, dict)):
            raise self._unseen(path, errors[0])

    def error(self, path: str) -> Entry | None:
        """Return the error that explains why ``path`` is missing: that of the innermost section that contains it, or that it contains."""
        related = [error for error in self._errors if f"{path}.".startswith(f"{error['section']}.") or error["section"].startswith(f"{path}.")]
        return max(related, key=lambda error: len(error["section"]), default=None)

    @staticmethod
    def _unseen(path: str, error: Entry | None) -> Unseen:
        return Unseen(path, f"{error['section']}: {error['error']}", error.get("remedy", "")) if error else Unseen(path)

    # --- used by several rules --------------------------------------------------------------------------------------------

    def our_containers(self) -> list[Entry]:
        """Return the containers of this cluster."""
        return [container for container in self.get("containers") if container["cluster"] == self.needs["cluster"]]

    def serves(self) -> bool:
        """Return whether a container of this cluster listens on the API's port."""
        ours = {container["name"] for container in self._tree.get("containers") or [] if container["cluster"] == self.needs["cluster"]}
        port = self.needs["ports"].get("gb10_api_port")
        return any(listener["port"] == port and listener["container"] in ours for listener in self._tree.get("listeners") or [])

    def links(self) -> list[Entry]:
        """Return the entries of ``fabric`` that the cluster uses.

        These are the ones that the inventory names, by interface, bond or RDMA device. Without names, it is the one with the fabric address and its twin, or
        else all with carrier.
        """
        fabric = self.get("fabric")
        names, devices = set(self.needs["fabric_interfaces"]), set(self.needs["rdma_devices"])
        named = [link for link in fabric if link["netdev"] in names or link["bond"] in names or link["device"] in devices]
        if named:
            return named
        holders = [link for link in fabric if self.needs["address"] in (link["addresses"] or [])]
        twins = {link["twin"] for link in holders}
        return [link for link in fabric if link in holders or link["netdev"] in twins] or [link for link in fabric if link["carrier"]]


def optional(look: t.Callable[[str], t.Any], field: str) -> t.Any:
    """Return the value that ``look`` returns for a field, None without one. Raises :class:`Unseen` when an error explains the null."""
    try:
        return look(field)
    except Unseen as missing:
        if missing.why:
            raise
        return None


def of_entry(entry: Entry, field: str, where: str) -> t.Any:
    """Return a field of a list's entry; ``where`` names the entry. Raises :class:`Unseen` when it is null."""
    value = within(entry, field)
    if value is None:
        raise Unseen(f"{where}.{field}")
    return value


def within(value: t.Any, path: str) -> t.Any:
    """Return the value at a dotted path of nested mappings, None where there is none."""
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
