# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What could go. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.plugin_utils._report import leavings
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Nothing but what the task names.
READS: dict[str, str] = {}


def judge(answers: Answers, run: Run) -> Outcome:
    """Show what could go. ``settings`` has ``remove``, whether it goes."""
    found = {node: answer["found"] for node, answer in answers.items()}
    advice = any(answer["candidates"] for answer in found.values()) and not boolean(run.settings["remove"])
    return Outcome("Prune", lines=[*leavings.lines(found), *(["To remove all of it: -e gb10_allow=remove"] if advice else [])])
