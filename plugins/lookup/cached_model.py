# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: cached_model
short_description: Read the facts about a cached model that a memory plan needs
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads the config.json of a model in a Hugging Face hub cache on the controller, and the size of its weights, from their index or from the existing
    files. Returns the parts of a profile that P(gb10.cluster.memory_plan#filter) uses.
  - Nothing is downloaded, and nothing on any node is contacted. Fails if the model is not in the cache.
options:
  _terms:
    description:
      - Repositories in the hub cache of E(HF_HOME), by default C(~/.cache/huggingface), as C(org/name) or C(org/name@revision), a commit or a ref. The default
        is C(main).
    required: true
    type: list
    elements: str
  nodes:
    description:
      - The nodes over which the model would be distributed, one rank per node, in a form of the option C(nodes) of P(gb10.cluster.memory_plan#filter). The
        default is one node. At most 16.
    type: raw
"""

EXAMPLES = r"""
- name: Show a model's memory on two Sparks
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.cluster.cached_model', 'Qwen/Qwen3-32B', nodes=2) | gb10.cluster.memory_plan | gb10.cluster.memory_plan_lines }}"
"""

RETURN = r"""
_raw:
  description: For each repository the parts of a profile that a plan uses. Its arguments are empty, and C(memory.config) contains the values of config.json.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import cached


class LookupModule(LookupBase):
    """Thin wrapper around :func:`cached.profile_of`."""

    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        try:
            return [cached.profile_of(str(term), self.get_option("nodes")) for term in terms]
        except ClusterError as error:
            raise AnsibleLookupError(error.with_remedy()) from error
