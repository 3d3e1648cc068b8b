#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: inputs_info
short_description: Evaluate and judge the settings of a host (internal)
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Evaluates every setting of the role P(gb10.cluster.gb10#role) for this host, each separately, and judges types, ranges and formats.
  - A setting that cannot be evaluated (an undefined variable, a vault without its password) is named. The others are still evaluated.
  - Never fails because of a setting of the host. Pass the answers of all hosts to P(gb10.cluster.input_findings#filter), as the role
    P(gb10.cluster.engine#role) does. With O(passwords_of) or O(role) it prints what it finds as a table, and fails if anything in it blocks.
  - Runs on the controller. No node is contacted.
extends_documentation_fragment:
  - gb10.cluster._attributes.internal
  - gb10.cluster._attributes.info_module
attributes:
  action:
    description: Runs on the controller.
    support: full
options:
  passwords_of:
    description:
      - Judges the command line and evaluates Ansible's login passwords for these hosts instead. No password is returned or shown.
      - On the command line it finds names that no role reads, and tags that no stage of the playbook has.
      - Ansible evaluates them before any task of a host, so run this for another host, such as C(localhost).
    type: list
    elements: str
  role:
    description:
      - Judges the command line, and the settings that this role of the collection reads, instead. For roles that need no cluster. With O(passwords_of) both are
        judged.
    type: str
  known:
    description:
      - Names of variables that the playbook itself reads, in addition to the settings of the collection's roles. Used with O(passwords_of) and O(role).
    type: list
    elements: str
    default: []
  profile:
    description:
      - Whether to also read and judge the profile, with the arguments over it. Taking a cluster down does not need it.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Load the shared settings
  ansible.builtin.include_role:
    name: gb10.cluster.gb10
    public: true

- name: Evaluate the settings
  gb10.cluster.inputs_info:
  register: answer

- name: Show the problems
  gb10.cluster.judge:
    title: My settings
    findings: "{{ answer.findings }}"

- name: Refuse a password that cannot be read because of a vault
  gb10.cluster.inputs_info:
    passwords_of: "{{ groups['gb10_cluster'] }}"
"""

RETURN = r"""
settings:
  description: The settings that have a usable value, in their types. Secrets are left out, and so are mappings such as C(gb10_env).
  returned: without O(passwords_of) and O(role)
  type: dict
  sample: {"gb10_api_port": 8000, "gb10_cluster_name": gb10}
marks:
  description: For mappings that must match on all hosts, a mark for each key's value. Different marks mean different values. A mark does not reveal its value.
  returned: without O(passwords_of) and O(role)
  type: dict
  sample: {"gb10_env": {"NCCL_DEBUG": 5a1f}}
profile:
  description: The profile that C(gb10_profile) names, with its defaults. Null if it cannot be used, and with O(profile=false).
  returned: without O(passwords_of) and O(role)
  type: dict
  sample: {"id": nemotron_3_super_tp2}
derived:
  description:
    - Values that the role P(gb10.cluster.gb10#role) computes from valid settings (C(profile), C(env), C(own_names), C(executor_choice), C(serve_arguments)).
    - Values that cannot be computed, or only after the image was asked, are left out. With O(profile=false) all are.
  returned: without O(passwords_of) and O(role)
  type: dict
  version_added: 0.2.0
  sample: {"own_names": [VLLM_HOST_IP]}
login:
  description: How Ansible reaches the host.
  returned: without O(passwords_of) and O(role)
  type: dict
  sample: {"connection": ssh, "host": spark-1.example.lan, "port": 22}
findings:
  description: The problems, in the format of M(gb10.cluster.judge). Empty if there are none.
  returned: always
  type: list
  elements: dict
  sample:
    - id: input.port
      node: spark-1
      verdict: block
      message: "gb10_api_port: is 80; expected 1024 to 65535."
      remedy: set gb10_api_port to 1024 to 65535
verdict:
  description: The most severe verdict among the findings.
  returned: always
  type: str
  sample: pass
"""
