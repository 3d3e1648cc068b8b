# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records what happened to each setting of a recipe. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import canonical
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._redact import HIDDEN
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import schema
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import CONTROLLER

#: Characters of a value that a row shows.
SHOWN = 120

TAKEN, CHANGED, DROPPED, REFUSED = "taken", "changed", "dropped", "refused"
#: The message of a row by its outcome, which is also the end of its finding's id.
_MESSAGES = {
    "taken": "{field}: {found} is {became}",
    "changed": "{field}: {found} becomes {became}: {why}",
    "dropped": "{field}: {found} is left out: {why}",
    "refused": "{field}: {found} is refused: {why}",
}


class RecipeError(ClusterError):
    """A file is not a recipe that can be read, or a part of one cannot be in a profile."""


class Row(t.NamedTuple):
    """One setting of a recipe: its field, its value, its value in the profile, and the reason."""

    outcome: str
    field: str
    found: str
    became: str = ""
    why: str = ""
    #: What to type if it is refused, or to change the result.
    remedy: str = ""
    #: Whether a person should check it: the profile does not do what the recipe does.
    differs: bool = False

    @property
    def verdict(self) -> str:
        """Return the verdict of the row's finding."""
        return "block" if self.outcome == REFUSED else "warn" if self.differs else "pass"


def shown(value: t.Any) -> str:
    """Return the beginning of a value as one line."""
    text = " ".join((value if isinstance(value, str) else canonical(value)).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class Ledger:
    """The rows of one import, in the order in which they were added."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def taken(self, field: str, value: t.Any, became: str) -> None:
        """Note a value that the profile takes from the recipe unchanged, apart from its spelling."""
        self.rows.append(Row(TAKEN, field, shown(value), became))

    def changed(self, field: str, value: t.Any, became: str, why: str, *, remedy: str = "", differs: bool = True) -> None:
        """Note a value that the profile writes differently."""
        self.rows.append(Row(CHANGED, field, shown(value), became, why, remedy, differs))

    def dropped(self, field: str, value: t.Any, why: str, *, remedy: str = "", differs: bool = True) -> None:
        """Note a value that the profile leaves out; ``differs`` is false where the collection does the same, or nothing depends on it."""
        self.rows.append(Row(DROPPED, field, shown(value), "", why, remedy, differs))

    def refused(self, field: str, value: t.Any, why: str, remedy: str) -> None:
        """Note why there is no profile."""
        self.rows.append(Row(REFUSED, field, shown(value), "", why, remedy, True))

    def secret(self, field: str) -> None:
        """Note a secret, without its value."""
        self.dropped(
            field,
            HIDDEN,
            "it is a secret, which a profile may not hold",
            remedy="use gb10_hf_token_file for the hub's token, and gb10_api_key for the API's key",
        )

    def checked(self, data: dict[t.Any, t.Any], fields: dict[str, t.Any], where: str = "") -> dict[str, t.Any] | None:
        """Return the fields of a mapping that a schema describes, with defaults; None when one is refused."""
        values, problems = schema.check({name: data[name] for name in fields if name in data}, {"type": "dict", "options": fields}, where)
        for problem in problems:
            self.refused(problem.where, problem.what, f"expected {problem.expected}", "correct the recipe")
        return None if problems else values

    def unknown(self, data: dict[t.Any, t.Any], known: t.Collection[str], where: str = "") -> None:
        """Report the fields of a mapping that are not known."""
        for key in [key for key in data if key not in known]:
            self.dropped(f"{where}{key}", data[key], f"it is not a known field{schema.near(key, known)}", remedy="see in the recipe's repository what it does")

    @property
    def is_refused(self) -> bool:
        """Return whether there is no profile."""
        return any(row.outcome == REFUSED for row in self.rows)

    def findings(self) -> list[dict[str, t.Any]]:
        """Return the rows as findings."""
        return [
            finding(f"import.{row.outcome}", CONTROLLER, row.verdict, _MESSAGES[row.outcome].format_map(row._asdict()), remedy=row.remedy, source=row.field)
            for row in self.rows
        ]
