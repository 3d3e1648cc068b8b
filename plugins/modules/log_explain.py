#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: log_explain
short_description: Explain a failure from logs on the controller (internal)
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads a log, or all logs below a directory, and compares their lines with the collection's signatures of failures. The logs may be from any
    cluster - gathered by this collection, printed by C(docker logs), C(journalctl) or C(dmesg), a session directory of Ray.
  - Findings are ordered with the first cause first, by the times in the logs. An error without a signature is the finding V(unknown), with its last lines.
  - Files packed by gzip are unpacked. Of a long file the beginning and the end are read. Links below a directory are not followed. Non-text files are named.
  - Secrets are removed from everything that is returned or written.
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
    description: A log, or a directory with logs, on the controller. The first directory below it, or the log's name, identifies the node.
    type: path
    required: true
  dest:
    description:
      - A new file on the controller for the record, as JSON, readable only by the user. Fails if it exists. Not written in check mode.
      - It is a record and not state - it changes nothing.
    type: path
  signature_dirs:
    description:
      - Directories on the controller with your own signatures, tried together with the shipped ones. One with the id of a shipped signature replaces it.
      - Relative paths are searched in the current directory, then in the inventory's, then in the playbook's.
    type: list
    elements: str
    default: []
seealso:
  - module: gb10.cluster.judge
  - module: gb10.cluster.node_logs
"""

EXAMPLES = r"""
- name: Explain why the engine ended
  gb10.cluster.log_explain:
    path: ~/.cache/gb10/gb10-failures/20261121T154854Z
    dest: ./why.json
"""

RETURN = r"""
findings:
  description:
    - The findings, the first cause first. In addition to the common fields (C(id), C(node), C(verdict), C(message), C(remedy), C(source), …) each has C(rank)
      and C(time) (null if the log does not show it), C(log), C(cause), C(consequence), C(certainty) (V(known), V(suspected) or V(unknown)), C(needs_reboot),
      C(of_peer) (whether the line only reports that another rank failed) and C(lines), the line with those just before it.
    - C(explain.cut) and C(explain.unread) name the parts that were not read.
  returned: success
  type: list
  elements: dict
files:
  description: The files read - C(name), C(node), C(bytes) on the disk, C(lines), and C(cut) if a part was left out.
  returned: success
  type: list
  elements: dict
unread:
  description: The files not read - C(name) and C(why).
  returned: success
  type: list
  elements: dict
path:
  description: The requested path.
  returned: success
  type: str
dest:
  description: The file of the record. Empty without one.
  returned: success
  type: str
schema:
  description: The version of the record.
  returned: success
  type: int
kind:
  description: The kind of the record, V(gb10.cluster.explain).
  returned: success
  type: str
verdict:
  description: The most severe verdict of the findings, V(pass) without any.
  returned: always
  type: str
remedy:
  description: What to do if this failed. Empty otherwise.
  returned: always
  type: str
reason:
  description: The reason, in a word.
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
