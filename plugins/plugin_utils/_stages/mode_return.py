# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The return to the previous mode. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import mode, mode_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

READS = mode.READS


def judge(answers: Answers, run: Run) -> Outcome:
    """Plan the return to the previous mode: after a lease, or after a failure if a return is wanted. Otherwise nothing is shown.

    Nothing is started while memory is not released. Engines without a declaration are not started again: too little is known about them. The answers
    are ``look`` (node_state_info) and ``answer`` (a ping), both read again.
    """
    first = mode.asked_of(answers)
    decided, lost = first["decided"], mode.lost_nodes(answers)
    nothing = mode_plan.as_returns(decided["plan"]["mode"], mode_plan.Plan({}, {}, []), {}, answers)
    idle = Outcome(returns={"plan": nothing, "returns": False, "lost": lost})
    failed = bool(mode.errors(answers, "down") or mode.errors(answers, "up") or set(lost) - set(decided["lost"]))
    leased = bool(decided["lease"]) and not decided["lease"]["keeps"]
    needs_return = leased or (failed and not decided["undeclared"] and boolean(first["return_asked"]))
    if not needs_return or mode.untouched(answers) or mode.leaked(answers):
        return idle
    target, there = modes.former(decided["before"]), mode_plan.on_nodes(answers)
    wanted = {
        name: mode_plan.Part(cluster["source"], cluster["profile"], "", cluster["nodes"], cluster.get("degraded", {}))
        for name, cluster in target["clusters"].items()
        if not set(cluster["nodes"]) & set(lost)
    }
    known = mode_plan.known_clusters(answers, decided["before"])
    # Clusters of the previous mode that still serve were not changed. All others are stopped, also those with the same name and another profile.
    tried = {name: cluster["profile"] for name, cluster in decided["plan"]["clusters"].items()}
    why = "the change failed" if failed else "the lease is over"
    change = mode_plan.Plan({name: why for name in there if name not in wanted or tried.get(name, wanted[name].profile) != wanted[name].profile}, wanted, [])
    return Outcome(
        "Return",
        lines=[f"{why[0].upper()}{why[1:]}; back to the mode before.", *mode_plan.plan_lines(target["mode"], decided["plan"]["mode"], change, there)],
        returns={"plan": mode_plan.as_returns(target["mode"], change, known, answers), "returns": True, "lost": lost},
    )
