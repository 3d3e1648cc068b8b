# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What became of each thing that a recipe says. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import canonical
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._redact import HIDDEN
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import CONTROLLER

#: Characters of a value that a row shows.
SHOWN = 120

TAKEN, CHANGED, DROPPED, REFUSED = "taken", "changed", "dropped", "refused"


class RecipeError(ClusterError):
    """A file is not a recipe that can be read, or a part of one cannot be in a profile."""


class Row(t.NamedTuple):
    """One thing that a recipe says: where it stands, what was found, what it became, and why."""

    outcome: str
    field: str
    found: str
    became: str = ""
    why: str = ""
    #: What to type when it is refused, or to have it differently.
    remedy: str = ""
    #: Whether a person should look: the profile does not do what the recipe does.
    differs: bool = False


def shown(value: t.Any) -> str:
    """Return the beginning of a value as one line."""
    text = " ".join((value if isinstance(value, str) else canonical(value)).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class Ledger:
    """The rows of one import, in the order in which they were found."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def taken(self, field: str, found: t.Any, became: str) -> None:
        """Note what the profile has from the recipe as it is, apart from its spelling."""
        self.rows.append(Row(TAKEN, field, shown(found), became))

    def changed(self, field: str, found: t.Any, became: str, why: str, *, remedy: str = "", differs: bool = True) -> None:
        """Note what the profile says in another way."""
        self.rows.append(Row(CHANGED, field, shown(found), became, why, remedy, differs))

    def dropped(self, field: str, found: t.Any, why: str, *, remedy: str = "", differs: bool = True) -> None:
        """Note what is not in the profile; ``differs`` is false where the collection does the same by itself, or nothing depends on it."""
        self.rows.append(Row(DROPPED, field, shown(found), "", why, remedy, differs))

    def refused(self, field: str, found: t.Any, why: str, remedy: str) -> None:
        """Note why there is no profile."""
        self.rows.append(Row(REFUSED, field, shown(found), "", why, remedy, True))

    def secret(self, field: str) -> None:
        """Note a secret, without its value."""
        why = "it is a secret, which a profile may not hold"
        self.dropped(field, HIDDEN, why, remedy="use gb10_hf_token_file for the hub's token, and gb10_api_key for the API's key")

    @property
    def is_refused(self) -> bool:
        """Return whether there is no profile."""
        return any(row.outcome == REFUSED for row in self.rows)

    def findings(self) -> list[dict[str, t.Any]]:
        """Return the rows as a table reads them."""
        return [_FINDINGS[row.outcome](row) for row in self.rows]


def _verdict(row: Row) -> str:
    return "warn" if row.differs else "pass"


def _taken(row: Row) -> dict[str, t.Any]:
    return finding("import.taken", CONTROLLER, "pass", f"{row.field}: {row.found} is {row.became}", source=row.field)


def _changed(row: Row) -> dict[str, t.Any]:
    message = f"{row.field}: {row.found} becomes {row.became}: {row.why}"
    return finding("import.changed", CONTROLLER, _verdict(row), message, remedy=row.remedy, source=row.field)


def _dropped(row: Row) -> dict[str, t.Any]:
    return finding("import.dropped", CONTROLLER, _verdict(row), f"{row.field}: {row.found} is left out: {row.why}", remedy=row.remedy, source=row.field)


def _refused(row: Row) -> dict[str, t.Any]:
    return finding("import.refused", CONTROLLER, "block", f"{row.field}: {row.found} is refused: {row.why}", remedy=row.remedy, source=row.field)


_FINDINGS = {TAKEN: _taken, CHANGED: _changed, DROPPED: _dropped, REFUSED: _refused}
