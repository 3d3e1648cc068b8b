# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: profile
short_description: Read and validate a model profile, with its defaults
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Finds a profile by its id or path, validates it against the profile schema, and returns it with every default filled in.
  - A profile is one model's complete recipe as data. See the files in C(playbooks/profiles/) of this collection.
  - Fails with the path of every invalid field. Nothing on any node is contacted.
  - Relative paths of profiles and of O(directories) are searched in the current directory, then next to the inventory, then
    next to the playbook. The first that exists is used.
options:
  _terms:
    description:
      - Ids of profiles, or paths ending in C(.yml) or C(.yaml) on the controller.
    required: true
    type: list
    elements: str
  directories:
    description:
      - Directories on the controller with your own profiles. They are searched before the shipped ones.
    type: list
    elements: str
    default: []
  switches:
    description:
      - Switches of the profile to turn on. A switch is a named overlay that the profile documents, for instance V(mtp) or V(eager).
      - Several can be combined, unless they set the same thing to different values.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Show the model of the main profile
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.cluster.profile', 'nemotron_3_super_tp2')['model']['repo'] }}"

- name: Show the arguments of your own profile with one of its switches
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.cluster.profile', './profiles/mine.yml', switches=['eager'])['serve'] }}"
"""

RETURN = r"""
_raw:
  description: The profiles, with defaults filled in and C(path) and C(switches_used) added.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import ProfileError
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.profiles import load, roots


class LookupModule(LookupBase):
    """Thin wrapper around :func:`profiles.load`."""

    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        directories = [str(directory) for directory in self.get_option("directories")]
        switches = [str(name) for name in self.get_option("switches")]
        try:
            return [load(str(term), directories, switches, roots(variables or {})) for term in terms]
        except ProfileError as error:
            raise AnsibleLookupError(error.with_remedy()) from error
