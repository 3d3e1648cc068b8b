# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: profile_catalogue
short_description: List model profiles and their requirements
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads and judges the profiles of the collection and of your own directories. Nothing on any node is contacted.
  - An invalid profile is listed with its problems, and the others are still listed.
options:
  _terms:
    description:
      - Ids of profiles, or paths ending in C(.yml) or C(.yaml) on the controller. Without any, all profiles.
    type: list
    elements: str
    default: []
  directories:
    description:
      - Directories on the controller with your own profiles. They are searched before the shipped ones.
      - Relative paths are searched in the current directory, then in the inventory's, then in the playbook's.
    type: list
    elements: str
    default: []
seealso:
  - plugin: gb10.cluster.profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Show the requirements of every profile
  ansible.builtin.debug:
    msg: "{{ dict(catalogue | map(attribute='id') | zip(catalogue | map(attribute='needs'))) }}"
  vars:
    catalogue: "{{ query('gb10.cluster.profile_catalogue', directories=['./profiles']) }}"
"""

RETURN = r"""
_raw:
  description:
    - One mapping per profile, sorted by id.
    - C(id) and C(path) of the file. C(problems), a list of texts, empty if the profile is valid.
    - C(needs), texts on the C(model), the C(license) and the C(gate) of its repositories, the additional ones (C(beside)), the C(download), C(nodes),
      C(weights), C(image), C(versions), C(executor), C(context), C(switches) and C(evidence). C(profile), the profile itself as
      P(gb10.cluster.profile#lookup) reads it.
      Both are empty if there are problems.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.catalogue import catalogue
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import ProfileError
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.profiles import roots


class LookupModule(LookupBase):
    """Thin wrapper around :func:`catalogue.catalogue`."""

    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        directories = [str(directory) for directory in self.get_option("directories")]
        try:
            return catalogue([str(term) for term in terms], directories, roots(variables or {}))
        except ProfileError as error:
            raise AnsibleLookupError(error.with_remedy()) from error
