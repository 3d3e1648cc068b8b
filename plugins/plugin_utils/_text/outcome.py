# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The outcome of a stage from the answers of all nodes: its output, its files and its results. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.module_utils._clock import UTC
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table

#: By node, the values under the names that a stage reads; None where the node has none.
Answers = dict[str, dict[str, t.Any]]


@dataclasses.dataclass
class Outcome:
    """The outcome of a stage. Findings are shown as a table, ``lines`` unchanged; ``failure`` is a failure without findings."""

    title: str = ""
    findings: list[table.Finding] | None = None
    matrix: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    lines: list[str] = dataclasses.field(default_factory=list)
    #: Shown in place of ``lines`` with -v, if any.
    details: list[str] = dataclasses.field(default_factory=list)
    failure: str = ""
    #: Path on the controller to content that is written there as JSON, except in check mode.
    files: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    #: Whether all of these files must be new.
    fresh: bool = False
    #: Mode of these files; None for the default of the umask.
    mode: int | None = None
    #: Statistics that the play passes on, as ``set_stats`` does.
    stats: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    #: Values in the registered result for later tasks.
    returns: dict[str, t.Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Run:
    """The run that is judged: settings of the task, and the state of Ansible."""

    settings: dict[str, t.Any]
    silenced: list[str]
    path: str
    tags: list[str]
    skip_tags: list[str]
    now: datetime.datetime
    check_mode: bool

    @property
    def time(self) -> str:
        """The time of the run in the format of records."""
        return self.now.strftime(UTC)


def answered(answer: dict[str, t.Any] | None) -> bool:
    """Return whether a task of a node succeeded: it was not skipped, the node was reachable, and the task did not fail."""
    return bool(answer) and not any(answer.get(word) for word in ("skipped", "failed", "unreachable"))


def variables_of(action: ActionBase, node: str, names: t.Mapping[str, str]) -> dict[str, t.Any]:
    """Return the variables of a node as a task there would see them, None for those that are not defined.

    ``names`` maps each key of the result to a variable. ``hostvars`` lacks the variables that roles define; a task that is delegated to the node has them.
    """
    task = copy.copy(action._task)
    task.delegate_to = node
    delegated, _name = task.get_variable_manager().get_delegated_vars_and_hostname(action._templar, task, {"inventory_hostname": node})
    variables = delegated["ansible_delegated_vars"][node]
    templar = action._templar.copy_with_new_env(available_variables=variables)
    return {word: templar.template(variables[name]) if name in variables else None for word, name in names.items()}
