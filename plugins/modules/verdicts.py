#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: verdicts
short_description: Print findings as one table and stop on what must stop
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Every judgement of this collection is a finding of one shape. This action prints a list of them, the gravest first, each with its remedy.
  - Fails when a finding's verdict is V(block) or V(unknown), unless O(fail_on_block) is off, and when O(fail_on_warn) says so with V(warn).
    What could not be found out is never taken for a pass.
  - Runs on the controller. No node is contacted.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
attributes:
  action:
    description: Runs on the controller.
    support: full
options:
  title:
    description:
      - What was judged, the table's first words.
    type: str
    required: true
  findings:
    description:
      - The findings, each with C(id), C(node), C(verdict), C(message) and, where there are any, C(measured), C(needed), C(remedy) and C(source).
      - Mutually exclusive with O(record), and one of the two is required.
    type: list
    elements: dict
  silenced:
    description:
      - Ids of findings that shall not stop anything. They are still listed and counted, as V(silenced).
    type: list
    elements: str
    default: []
  show:
    description:
      - Whether the table lists everything or leaves out what passed.
    type: str
    choices: [all, problems]
    default: all
  record:
    description:
      - The verdict about all nodes, as the filters P(gb10.cluster.preflight_rules#filter) and P(gb10.cluster.doctor_rules#filter) return it.
        Its findings are printed, below a table
        of the rules that did not pass everywhere, and what passed is counted. C(.) stands for a pass, C(-) for a rule that was not judged;
        with more than eight columns the nodes are listed by verdict.
      - Mutually exclusive with O(findings), and one of the two is required.
    type: dict
    version_added: 0.2.0
  record_path:
    description:
      - File on the controller that O(record) is written to as JSON, not in check mode. It is a record and no state - nothing is V(changed) by it.
    type: path
    version_added: 0.2.0
  fail_on_block:
    description:
      - Whether V(block) and V(unknown) fail. Without it the table is all there is, as the playbook C(gb10.cluster.doctor) wants it.
    type: bool
    default: true
    version_added: 0.2.0
  fail_on_warn:
    description:
      - Whether V(warn) fails, too. It implies O(fail_on_block).
    type: bool
    default: false
    version_added: 0.2.0
  note:
    description:
      - A text of any number of lines that is printed below the table as it is, such as the next command to type.
    type: str
    default: ""
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Judge a node by hand
  gb10.cluster.verdicts:
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
  description: The gravest verdict among the findings.
  returned: always
  type: str
  sample: pass
findings:
  description: The findings as they were judged. A record has its own.
  returned: with O(findings)
  type: list
  elements: dict
  sample:
    - id: docker.reachable
      node: spark-1
      verdict: pass
      message: Docker 28.2.2 answers.
"""
