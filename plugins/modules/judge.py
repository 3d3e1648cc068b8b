#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: judge
short_description: Judge the nodes' answers, print the result once, and stop on problems (internal)
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Every judgment of this collection is a finding with the same format. This action prints findings as one table, the most severe first, each with its remedy.
    A finding shared by several nodes is one entry that names them.
  - With O(stage) it collects the nodes' answers and judges them as the roles of this collection do. With O(findings) it uses the given findings.
  - Fails if a finding's verdict is V(block) or V(unknown), unless O(fail_on_block) is off, and with O(fail_on_warn) also for V(warn).
    An unknown fact never counts as a pass.
  - Runs on the controller. No node is contacted.
extends_documentation_fragment:
  - gb10.cluster._attributes.internal
  - gb10.cluster._attributes.info_module
attributes:
  action:
    description: Runs on the controller.
    support: full
options:
  stage:
    description:
      - The stage to judge. The roles of this collection use it, each with the answers and settings of its own tasks.
      - Mutually exclusive with O(findings).
    type: str
    choices:
      - abort
      - abort_plan
      - answers
      - baseline
      - bench
      - bench_rows
      - bundle
      - cache
      - catalogue
      - companions
      - companions_plan
      - doctor
      - download
      - engine
      - fabric
      - fabric_plan
      - glance
      - guard
      - image
      - known_answers
      - ladder
      - ladder_down
      - ladder_plan
      - ladder_rung
      - logs
      - memory
      - mode
      - mode_declared
      - mode_plan
      - mode_return
      - model
      - models
      - postmortem
      - postmortem_when
      - preflight
      - proof
      - protect
      - protect_plan
      - prune
      - ray
      - reach
      - report
      - rung
      - status
      - sweep
      - teardown
    version_added: 0.2.0
  nodes:
    description: The nodes whose answers are collected. By default those of the cluster, by the settings of the role P(gb10.cluster.gb10#role).
    type: list
    elements: str
    version_added: 0.2.0
  answers:
    description:
      - The stage's name for an answer, with the name of the variable that contains it on every node, such as a registered result.
      - A variable is evaluated as in a task on that node, including those of roles. One that is not defined there counts as no answer.
    type: dict
    default: {}
    version_added: 0.2.0
  settings:
    description: Further facts that the stage needs.
    type: dict
    default: {}
    version_added: 0.2.0
  path:
    description:
      - File or directory on the controller that the stage writes its JSON to, not in check mode. It is a record and not state - it changes nothing.
    type: path
    default: ""
    version_added: 0.2.0
  title:
    description:
      - The subject of the judgment, the table's first words. Required with O(findings).
    type: str
  findings:
    description:
      - The findings, each with C(id), C(node), C(verdict), C(message) and optionally C(measured), C(needed), C(remedy) and C(source).
      - Mutually exclusive with O(stage).
    type: list
    elements: dict
  silenced:
    description:
      - Ids of findings that must not stop anything. They are still listed and counted, as V(silenced).
    type: list
    elements: str
    default: []
  show:
    description:
      - Whether the table lists everything or leaves out passed checks.
    type: str
    choices: [all, problems]
    default: all
  fail:
    description:
      - Whether the task fails if it stops. Ansible passes on a stage's values (as M(ansible.builtin.set_stats) does) only from tasks that did not fail.
        Without it, a later task must fail if RV(stops).
    type: bool
    default: true
    version_added: 0.2.0
  fail_on_block:
    description:
      - Whether V(block) and V(unknown) stop. Without it the table is the only result, as the playbook C(gb10.cluster.doctor) requires.
    type: bool
    default: true
    version_added: 0.2.0
  fail_on_warn:
    description:
      - Whether V(warn) also stops. It implies O(fail_on_block).
    type: bool
    default: false
    version_added: 0.2.0
  note:
    description:
      - A text of any number of lines that is printed unchanged below the table, such as the next command.
      - One of O(stage), O(findings) and O(note) is required.
    type: str
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Judge a node with your own rule
  gb10.cluster.judge:
    title: My own rule
    findings:
      - id: kernel.known_bad
        node: "{{ inventory_hostname }}"
        verdict: block
        message: Kernel 7.0.0-1019 is known to lose the fabric.
        remedy: Boot the previous kernel.
"""

RETURN = r"""
verdict:
  description: The most severe verdict among the findings.
  returned: always
  type: str
  sample: pass
stops:
  description: Whether a finding stops the play. C(msg) then shows their number, and where they were printed.
  returned: always
  type: bool
  sample: false
finished_at:
  description: When it was judged, in seconds since the epoch.
  returned: always
  type: float
  version_added: 0.2.0
  sample: 1795226031.5
findings:
  description: The judged findings. A record of all nodes has its own.
  returned: when the task did not fail, and there is no such record
  type: list
  elements: dict
  sample:
    - id: docker.reachable
      node: spark-1
      verdict: pass
      message: Docker 28.2.2 answers.
"""
