#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: calibration
short_description: Write the nodes' answers as one anonymized archive (internal)
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - With O(state=planned) prints the content of a calibration, and refuses a path that exists, before any node is contacted.
  - With O(state=written) collects the results that the tasks of the role P(gb10.cluster.calibrate#role) registered on all nodes, and writes them as one
    compressed archive with the verdicts of this collection.
  - Secrets are left out. Host and user names, addresses, serial numbers, MAC addresses, GUIDs and UUIDs are replaced by pseudonyms, the
    same ones in every file, so that the facts that the rules judge are kept.
  - Missing answers of a node are listed as missing, and are not a failure.
  - Runs on the controller. No node is contacted.
extends_documentation_fragment:
  - gb10.cluster._attributes.internal
  - gb10.cluster._attributes.info_module
attributes:
  action:
    description: Runs on the controller.
    support: full
options:
  state:
    description:
      - V(planned) before, V(written) after the nodes were read.
    type: str
    choices: [planned, written]
    required: true
  path:
    description:
      - The archive, a file that does not exist yet. Its directory must exist. Not written in check mode.
    type: path
    default: ""
  profile:
    description:
      - The profile that the nodes are judged for.
    type: dict
    default: {}
  executor:
    description:
      - The program that distributes the ranks. Empty if only the image can show it.
    type: str
    default: ""
  logs:
    description:
      - The directory on the controller that M(gb10.cluster.node_logs) wrote to.
    type: path
    default: ""
  nodes:
    description:
      - The nodes, in the order in which they are numbered.
    type: list
    elements: str
    default: []
seealso:
  - module: gb10.cluster.node_info
  - module: gb10.cluster.node_logs
"""

EXAMPLES = r"""
- name: Show the content of a calibration
  gb10.cluster.calibration:
    state: planned

- name: Write the archive
  gb10.cluster.calibration:
    state: written
    path: /home/me/spark.tar.gz
    nodes: [spark-1, spark-2]
    profile: "{{ lookup('gb10.cluster.profile', 'nemotron_3_super_tp2') }}"
  run_once: true
"""

RETURN = r"""
path:
  description: The archive.
  returned: when it was written
  type: str
  sample: /home/me/spark.tar.gz
bytes:
  description: Its size.
  returned: when it was written
  type: int
  sample: 482113
files:
  description: Number of files in it. In check mode their names.
  returned: with O(state=written)
  type: raw
  sample: 214
nodes:
  description: Number of nodes in it.
  returned: when it was written
  type: int
  sample: 2
missing:
  description: Number of facts that could not be read. The archive lists them with the reasons.
  returned: when it was written
  type: int
  sample: 0
"""
