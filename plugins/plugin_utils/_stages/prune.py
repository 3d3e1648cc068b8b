# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The leftovers that could be removed. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.plugin_utils._report import leavings
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Only the answers that the task names.
READS: dict[str, str] = {}


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the leftovers that could be removed. ``settings`` has ``remove``, whether they are."""
    results = {node: answer["found"] for node, answer in answers.items()}
    advice = any(answer["candidates"] for answer in results.values()) and not boolean(run.settings["remove"])
    return Outcome("Prune", lines=[*leavings.lines(results), *(["To remove all of it: -e gb10_allow=remove"] if advice else [])])
