# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: profile
short_description: Read a model profile, judged and with its defaults
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Finds a profile by its id or path, validates it against the profile schema, and returns it with every default filled in.
  - A profile is one model's whole recipe as data, see the files in C(playbooks/profiles/) of this collection.
  - Fails with the path of every wrong field. Nothing on any node is contacted.
options:
  _terms:
    description:
      - Ids of profiles, or paths ending in C(.yml) or C(.yaml) on the controller.
    required: true
    type: list
    elements: str
  directories:
    description:
      - Directories on the controller with profiles of your own, searched before the shipped ones.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show what the main profile serves
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.cluster.profile', 'nemotron_3_super_tp2')['model']['repo'] }}"
"""

RETURN = r"""
_raw:
  description: The profiles, with defaults filled in and C(path) added.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import ProfileError, load


class LookupModule(LookupBase):
    """Thin skin over :func:`_profile.load`."""

    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        try:
            return [load(str(term), [str(directory) for directory in self.get_option("directories")]) for term in terms]
        except ProfileError as error:
            raise AnsibleLookupError(str(error)) from error
