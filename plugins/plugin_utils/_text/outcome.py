# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a stage makes of the answers of all nodes: what is shown, written and passed on. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.module_utils._clock import UTC
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table

#: By node, what it answered under the names that a stage reads; None where it was not asked.
Answers = dict[str, dict[str, t.Any]]


@dataclasses.dataclass
class Outcome:
    """Findings are shown as a table, ``lines`` as they are; ``failure`` fails without any finding."""

    title: str = ""
    findings: list[table.Finding] | None = None
    matrix: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    lines: list[str] = dataclasses.field(default_factory=list)
    failure: str = ""
    #: Path on the controller to what is written there as JSON, not in check mode.
    files: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    #: Whether none of these files may be there yet.
    fresh: bool = False
    #: Mode of these files; that of the umask without one.
    mode: int | None = None
    #: What the play passes on, as ``set_stats`` does.
    stats: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    #: What later tasks read in the registered result.
    returns: dict[str, t.Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Run:
    """The run that is judged: what the task says, and what Ansible knows."""

    settings: dict[str, t.Any]
    silenced: list[str]
    path: str
    tags: list[str]
    skip_tags: list[str]
    now: datetime.datetime
    check_mode: bool

    @property
    def time(self) -> str:
        """The moment of the run, as records have it."""
        return self.now.strftime(UTC)


def answered(answer: dict[str, t.Any] | None) -> bool:
    """Return whether a node gave this answer: it was asked, was reached, and its task did not fail."""
    return bool(answer) and not any(answer.get(word) for word in ("skipped", "failed", "unreachable"))


def variables_of(action: ActionBase, node: str, names: t.Mapping[str, str]) -> dict[str, t.Any]:
    """Return the variables of a node as a task there would see them, None for those that are not defined.

    ``names`` maps a word to the variable that is returned under it. ``hostvars`` lacks what roles define; a task that is delegated there has that, too.
    """
    task = copy.copy(action._task)
    task.delegate_to = node
    found, _name = task.get_variable_manager().get_delegated_vars_and_hostname(action._templar, task, {"inventory_hostname": node})
    variables = found["ansible_delegated_vars"][node]
    templar = action._templar.copy_with_new_env(available_variables=variables)
    return {word: templar.template(variables[name]) if name in variables else None for word, name in names.items()}
