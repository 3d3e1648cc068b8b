#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: reach_info
short_description: See whether Ansible can work on a node
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Runs the smallest module there is on the node, with C(become) where the task has it, and says why that did not work - the node does not answer, refuses the
    account, has no Python, no home that can be written, or sudo wants a password.
  - Never fails because of what it finds, and a node that does not answer stays in the play, so that all nodes are judged in one table.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
attributes:
  action:
    description: Connects to the node from the controller.
    support: full
options: {}
seealso:
  - module: gb10.cluster.judge
"""

EXAMPLES = r"""
- name: See which nodes answer
  gb10.cluster.reach_info:
  become: true
  register: reach
"""

RETURN = r"""
reached:
  description: Whether Ansible can work there.
  returned: always
  type: bool
cause:
  description: Why not - V(answer), V(name), V(host key), V(account), V(home), V(python), V(sudo), V(sudoers) or V(unknown). Empty when it can.
  returned: always
  type: str
what:
  description: The same as a sentence's end.
  returned: always
  type: str
remedy:
  description: What to type. Empty when nothing is wrong.
  returned: always
  type: str
verdict:
  description: V(block) when the node cannot be looked at, else V(pass).
  returned: always
  type: str
"""
