#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_protection
short_description: Keep a node reachable when its memory ends, and take that back
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Sets up measures that keep a node reachable when its memory ends, and its software the same under an engine. The page docs/protect.md of the collection
    has the reason and the source of every number.
  - Each measure is judged by what is live on the node first. What is as it should be already is left alone.
  - Everything that is changed stands in a journal before, with what was there until then. With O(state=absent) it is taken back in the reverse
    order, and the journal goes. A run that was interrupted is completed by the next one, or taken back.
  - A file of somebody else in the place of one of ours, one of ours that was edited since, and a setting that another file has, stay as they are. They are
    named in RV(findings).
  - Restarts C(systemd-journald), which keeps the streams of its services, and C(earlyoom). Nothing that an engine or a login needs is stopped or
    restarted, and no node is rebooted.
  - A measure that cannot be carried out does not stop the others.
requirements:
  - systemd.
  - For the measures V(earlyoom), V(holds) and V(unattended), a distribution with dpkg and apt.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._look
attributes:
  check_mode:
    support: full
    details:
      - Says what would be done. Whether a package can be installed is known only when that is tried.
  diff_mode:
    support: full
options:
  state:
    description:
      - With V(present), the measures are set up. With V(absent), what the journal says of them is taken back.
    type: str
    choices: [present, absent]
    default: present
  measures:
    description:
      - What is set up, or taken back.
      - V(sshd) sees that the sshd that takes connections is never killed for memory. OpenSSH does that by itself, so mostly nothing is changed.
      - V(journal) keeps the journal on the disk, and has it synced every 10 seconds.
      - V(earlyoom) installs earlyoom with arguments with which it acts in time, and prefers the ranks of engines.
      - V(swap) sets C(vm.swappiness) to 1.
      - V(holds) holds the installed packages of kernel, NVIDIA driver, Docker and containerd.
      - V(unattended) reports whether upgrades come unattended, and from where. It changes nothing.
    type: list
    elements: str
    choices: [sshd, journal, earlyoom, swap, holds, unattended]
    default: [sshd, journal, earlyoom, swap, holds, unattended]
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters. The journal is C(protection.json) in it.
    type: path
    default: /var/lib/gb10
  tool_timeout:
    description:
      - Seconds that a tool of the node gets for one answer.
    type: int
    default: 30
  apt_timeout:
    description:
      - Seconds that apt and dpkg get for one change.
    type: int
    default: 600
  fail_on:
    description:
      - The verdicts of RV(findings) that make the module fail. With an empty list the caller looks at them.
    type: list
    elements: str
    choices: [warn, block, unknown]
    default: [block, unknown]
seealso:
  - module: gb10.cluster.node_info
  - module: gb10.cluster.cluster_prune
"""

EXAMPLES = r"""
- name: Keep the node reachable
  gb10.cluster.node_protection:
  become: true

- name: Hold the packages alone
  gb10.cluster.node_protection:
    measures: [holds, unattended]
  become: true

- name: Take everything back
  gb10.cluster.node_protection:
    state: absent
  become: true
"""

RETURN = r"""
findings:
  description: What is as it should be, what was left as it is and why, and what could not be done.
  returned: always
  type: list
  elements: dict
  sample:
    - id: protect.sshd
      node: spark-1
      verdict: pass
      message: "sshd (pid 1204) is never killed: as OpenSSH sets it by itself"
      measured: -1000
      needed: -1000
      remedy: ""
      source: "https://github.com/openssh/openssh-portable: openbsd-compat/port-linux.c and platform.c"
journal:
  description: The journal of what was changed, in short, as it is afterwards.
  returned: always
  type: dict
  contains:
    path:
      description: Where it lies.
      type: str
    measures:
      description: The measures that changed something.
      type: list
      elements: str
    changes:
      description: How many changes it has; null when it cannot be read.
      type: int
    error:
      description: Why it cannot be read, empty otherwise.
      type: str
  sample:
    path: /var/lib/gb10/protection.json
    measures: [earlyoom, holds, journal, swap]
    changes: 12
    error: ""
"""

import functools
import os
import platform
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding, require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._protect import act, machine, measures, plan
from ansible_collections.gb10.cluster.plugins.module_utils._protect import journal as journals
from ansible_collections.gb10.cluster.plugins.module_utils._protect.journal import Journal
from ansible_collections.gb10.cluster.plugins.module_utils._protect.machine import Node
from ansible_collections.gb10.cluster.plugins.module_utils._protect.plan import Action, Finding, Places, Plan
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

CHOICES = tuple(measures.BY_ID)
#: How often what was done is looked at again: what is installed is started and judged by the next look.
ROUNDS = 3

Params = dict[str, t.Any]


# -- reading and planning ----------------------------------------------------------------------------------------------------


def place(node: Node, measure: str) -> Places:
    """Return where the drop-in of a measure goes, what lies there and which directories are missing. Raises OSError."""
    path = node.path(*plan.FILES[measure].split("/"))
    missing, folder = [], os.path.dirname(path)
    while not os.path.lexists(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    return Places(path, missing, journals.look(path))


def plan_of(measure: str, node: Node, journal: Journal, chosen: t.Collection[str], check_mode: bool) -> Plan:
    """Look at what a measure is about, and return what has to be done. Raises :class:`ClusterError` and OSError."""
    name = platform.node()
    if measure == "sshd":
        return plan.sshd(name, machine.sshd(node), journal, node.proc)
    if measure == "journal":
        where = place(node, measure)
        return plan.journald(name, machine.journal(node, where.path), journal, where)
    if measure == "earlyoom":
        return plan.earlyoom(name, machine.earlyoom(node), journal, place(node, measure))
    if measure == "swap":
        where = place(node, measure)
        return plan.swap(name, machine.swap(node, where.path), journal, where, node.swappiness_path)
    if measure == "holds":
        return plan.holds(name, machine.packages(node), journal)
    free = [one.name for one in plan.held_by_pattern(machine.packages(node)) if one.want == "install"]
    return plan.unattended(name, machine.unattended(node), [] if check_mode and "holds" in chosen else free)


def failed(measure: str, error: ClusterError | OSError) -> Finding:
    """Return what went wrong with a measure as a finding."""
    text, remedy = str(error), BECOME if isinstance(error, PermissionError) else "See the message; the next run goes on from there."
    verdict = "block"
    if isinstance(error, ClusterError):
        remedy, verdict = error.remedy or remedy, error.verdict
    raw = error.details.get("raw") if isinstance(error, ClusterError) else None
    return finding(f"protect.{measure}", platform.node(), verdict, text, measured=raw, remedy=remedy)


# -- acting ------------------------------------------------------------------------------------------------------------------


class Work(t.NamedTuple):
    """What was done, or would be, in this order, what is said, and the two sides of the diff."""

    actions: list[Action]
    findings: list[Finding]
    before: dict[str, t.Any]
    after: dict[str, t.Any]


def carry_out(measure: str, actions: list[Action], actor: act.Actor) -> tuple[list[Action], list[Finding]]:
    """Do one after the other until one fails, and return what was done, and what failed or stays. What somebody else changed since stops nothing."""
    done: list[Action] = []
    said: list[Finding] = []
    for action in actions:
        try:
            actor(action)
        except act.Left as left:
            said.append(failed(measure, left))
        except (ClusterError, OSError) as error:
            return done, [*said, failed(measure, error)]
        else:
            done.append(action)
    return done, said


def present(measure: str, look_again: t.Callable[[], Plan], node: Node, actor: act.Actor, check_mode: bool) -> Work:
    """Set up one measure."""
    work = Work([], [], {}, {})
    for _round in range(ROUNDS):
        try:
            wanted = look_again()
            before = act.shape(node, wanted.actions)
        except (ClusterError, OSError) as error:
            work.findings.append(failed(measure, error))
            return work
        work.before.update({name: value for name, value in before.items() if name not in work.before})
        if check_mode or not wanted.actions:
            work.findings.extend(wanted.findings)
            if wanted.actions:
                texts = "; ".join(action.text for action in wanted.actions)
                message = f"not set up yet; would {texts}"
                work.findings.append(finding(f"protect.{measure}", platform.node(), "warn", message, remedy="Run it without --check."))
            work.actions.extend(wanted.actions)
            work.after.update(act.predicted(before, wanted.actions))
            return work
        done, stopped = carry_out(measure, wanted.actions, actor)
        work.actions.extend(done)
        work.after.update(act.shape(node, wanted.actions))
        if stopped:
            work.findings.extend([*wanted.findings, *stopped])
            return work
    texts = "; ".join(action.text for action in wanted.actions)
    message = f"was done and is to be done again: {texts}"
    work.findings.append(finding(f"protect.{measure}", platform.node(), "block", message, remedy="See what takes it back."))
    return work


def absent(measure: str, actions: list[Action], node: Node, actor: act.Actor, check_mode: bool) -> Work:
    """Take back what one measure changed."""
    try:
        before = act.shape(node, actions)
        if check_mode:
            return Work(actions, [], before, act.predicted(before, actions))
        done, stopped = carry_out(measure, actions, actor)
        return Work(done, stopped, before, act.shape(node, actions))
    except (ClusterError, OSError) as error:
        return Work([], [failed(measure, error)], {}, {})


def protect(params: Params, node: Node, journal: Journal, check_mode: bool) -> list[Work]:
    """Set up, or take back, each measure, whatever became of the others."""
    actor = act.Actor(node, journal, params["apt_timeout"])
    chosen = [measure for measure in CHOICES if measure in params["measures"]]
    if params["state"] == "absent":
        gone = plan.revert(journal, chosen)
        return [absent(measure, of, node, actor, check_mode) for measure in reversed(chosen) if (of := plan.actions_of(gone, measure))]
    return [present(one, functools.partial(plan_of, one, node, journal, chosen, check_mode), node, actor, check_mode) for one in chosen]


# -- the module --------------------------------------------------------------------------------------------------------------


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    require_least(params, {"tool_timeout": 1, "apt_timeout": 1})
    node = Node(params["roots"]["etc_root"], params["roots"]["proc_root"], params["tool_timeout"])
    with journals.alone():
        journal = journals.load(params["state_dir"])
        known = len(journal.entries)
        done = protect(params, node, journal, module.check_mode)
    actions = [action.text for one in done for action in one.actions]
    findings = [entry for one in done for entry in one.findings]
    would = "would be " if module.check_mode else ""
    back = params["state"] == "absent"
    what = f"{len(actions)} change(s) {would}{'taken back' if back else 'made'}"
    result = {
        "changed": bool(actions),
        "msg": what if actions else "there is nothing to take back" if back and not known else "nothing to change",
        "reason": "that was asked for" if actions else "it is as it should be",
        "actions": actions,
        "findings": findings,
        "journal": journals.summary(params["state_dir"]),
        "diff": {side: {name: value for one in done for name, value in getattr(one, side).items()} for side in ("before", "after")},
    }
    stopping = [entry for entry in findings if entry["verdict"] in params["fail_on"]]
    if stopping:
        said = "; ".join(f"{entry['id']}: {entry['message']}" for entry in stopping)
        details = {name: value for name, value in result.items() if name not in ("msg", "reason")}
        raise ClusterError(f"{what}, and {len(stopping)} finding(s) stop: {said}", remedy=stopping[0]["remedy"], reason="not protected", **details)
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "measures": {"type": "list", "elements": "str", "choices": list(CHOICES), "default": list(CHOICES)},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "tool_timeout": {"type": "int", "default": 30},
            "apt_timeout": {"type": "int", "default": 600},
            "fail_on": {"type": "list", "elements": "str", "choices": ["warn", "block", "unknown"], "default": ["block", "unknown"]},
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
