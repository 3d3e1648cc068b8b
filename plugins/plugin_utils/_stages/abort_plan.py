# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the engine and the containers of a play that failed are stopped. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import abort
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

READS = abort.READS


def judge(answers: Answers, run: Run) -> Outcome:
    """Decide whether this play's engine and containers are stopped; nothing is shown."""
    return Outcome(returns={"kept": abort.is_kept(answers), "unready_runs": abort.unready_runs(answers)})
