#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: log_explain
short_description: Say what logs on the controller say about a failure (internal)
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads a log, or all logs below a directory, and compares their lines with the collection's signatures of failures. The logs may be from anyone's
    cluster - what this collection gathered, what C(docker logs), C(journalctl) or C(dmesg) printed, a session directory of Ray.
  - Findings stand with the first cause first, by the times in the logs. An error that no signature knows is the finding V(unknown), with its last lines.
  - Files packed by gzip are unpacked. Of a long file beginning and end are read. Links below a directory are not followed. What is no text is named.
  - Secrets are taken out of everything that is returned or written.
  - Runs on the controller. No node is contacted.
extends_documentation_fragment:
  - gb10.cluster._attributes.internal
  - gb10.cluster._attributes.info_module
attributes:
  action:
    description: Runs on the controller.
    support: full
options:
  path:
    description: A log, or a directory with logs, on the controller. The first directory below it, or the log's name, stands for the node.
    type: path
    required: true
  dest:
    description:
      - A new file on the controller for the record, as JSON, readable by the user alone. Fails when it exists. Not written in check mode.
      - It is a record and no state - nothing is V(changed) by it.
    type: path
  signature_dirs:
    description:
      - Directories on the controller with signatures of your own, tried together with the shipped ones. One with the id of a shipped signature takes its place.
      - Relative paths are seen from the current directory, then from the inventory's, then from the playbook's.
    type: list
    elements: str
    default: []
seealso:
  - module: gb10.cluster.judge
  - module: gb10.cluster.node_logs
"""

EXAMPLES = r"""
- name: Say why the engine ended
  gb10.cluster.log_explain:
    path: ~/.cache/gb10/gb10-failures/20261121T154854Z
    dest: ./why.json
"""

RETURN = r"""
findings:
  description:
    - What the logs say, the first cause first. Besides the common fields (C(id), C(node), C(verdict), C(message), C(remedy), C(source), …) each has C(rank)
      and C(time) (null where the log does not say), C(log), C(cause), C(consequence), C(certainty) (V(known), V(suspected) or V(unknown)), C(needs_reboot),
      C(of_peer) (whether the line only says that another rank failed) and C(lines), the line with those just before it.
    - C(explain.cut) and C(explain.unread) name what was not looked at.
  returned: success
  type: list
  elements: dict
files:
  description: What was read - C(name), C(node), C(bytes) on the disk, C(lines), and C(cut) where a part was left out.
  returned: success
  type: list
  elements: dict
unread:
  description: What was not read - C(name) and C(why).
  returned: success
  type: list
  elements: dict
path:
  description: What was asked for.
  returned: success
  type: str
dest:
  description: The file of the record, empty without one.
  returned: success
  type: str
schema:
  description: The version of the record.
  returned: success
  type: int
kind:
  description: What the record is, V(gb10.cluster.explain).
  returned: success
  type: str
verdict:
  description: The gravest verdict of the findings, V(pass) without any.
  returned: always
  type: str
remedy:
  description: What to do when this failed, empty otherwise.
  returned: always
  type: str
reason:
  description: Why, in a word.
  returned: always
  type: str
actions:
  description: Always empty.
  returned: always
  type: list
  elements: str
duration:
  description: Seconds that this took.
  returned: always
  type: float
"""
