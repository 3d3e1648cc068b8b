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
  - Evaluates every setting of the role P(gb10.cluster.gb10#role) for this host, each on its own, and judges types, ranges and formats.
  - A setting that can't be evaluated (an undefined variable, a vault without its password) is named; it does not hide the others.
  - Never fails because of what it finds. Give the answers of all hosts to P(gb10.cluster.input_findings#filter), as the role
    P(gb10.cluster.engine#role) does.
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
      - Judges the command line and evaluates the passwords that Ansible logs in to these hosts with instead. No password is returned or shown.
      - Of the command line it judges names that no role reads, and tags that no stage of the playbook has.
      - Ansible evaluates them before any task of a host, so this is asked for another host, such as C(localhost).
    type: list
    elements: str
  role:
    description:
      - Judges the command line, and what this role of the collection reads, instead. For roles that need no cluster. With O(passwords_of) both are judged.
    type: str
  known:
    description:
      - Names of variables that the playbook itself reads, beside the settings of the collection's roles. Of use with O(passwords_of) and O(role).
    type: list
    elements: str
    default: []
  profile:
    description:
      - Whether the profile is read and judged, too, with the arguments over it. What takes a cluster down needs none.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Have the settings at hand
  ansible.builtin.include_role:
    name: gb10.cluster.gb10
    public: true

- name: Evaluate the settings
  gb10.cluster.inputs_info:
  register: answer

- name: Show what is wrong with them
  gb10.cluster.judge:
    title: My settings
    findings: "{{ answer.findings }}"

- name: See whether a vault is in the way of a password
  gb10.cluster.inputs_info:
    passwords_of: "{{ groups['gb10_cluster'] }}"
  register: passwords
"""

RETURN = r"""
settings:
  description: The settings that have a usable value, in their types. Secrets are left out, and so are mappings such as C(gb10_env).
  returned: without O(passwords_of) and O(role)
  type: dict
  sample: {"gb10_api_port": 8000, "gb10_cluster_name": gb10}
marks:
  description: For mappings that are alike on all hosts, a mark for each key's value. Two values with other marks differ; no value can be told from its mark.
  returned: without O(passwords_of) and O(role)
  type: dict
  sample: {"gb10_env": {"NCCL_DEBUG": 5a1f}}
profile:
  description: The profile that C(gb10_profile) names, with its defaults. Null when it can't be used, and with O(profile=false).
  returned: without O(passwords_of) and O(role)
  type: dict
  sample: {"id": nemotron_3_super_tp2}
derived:
  description:
    - What the role P(gb10.cluster.gb10#role) computes from sound settings (C(profile), C(env), C(own_names), C(executor_choice), C(serve_arguments)).
    - What can't be computed, or not before the image was asked, is left out, and all of it with O(profile=false).
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
  description: What is wrong, as M(gb10.cluster.judge) takes it. Empty when all is well.
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
  description: The gravest verdict among the findings.
  returned: always
  type: str
  sample: pass
"""
