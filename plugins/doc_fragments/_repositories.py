# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Option of every module that reads the repositories of an engine. This fragment is PRIVATE to the collection."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  repositories:
    description:
      - The repositories whose files the engine loads. The model's is first, then the additional ones.
      - In the format that P(gb10.cluster.repositories#filter) makes from a profile.
    type: list
    elements: dict
    version_added: 0.2.0
    suboptions:
      name:
        description:
          - Its name in the profile.
        type: str
        default: model
      repo:
        description:
          - The repository, as C(organization/name), or the absolute path of a plain directory on the node.
        type: str
        required: true
      revision:
        description:
          - The commit, or the name of a ref. Without it, the cache's ref C(main) is used.
        type: str
      purpose:
        description:
          - The purpose of the repository. V(model) needs C(config.json), weights and a tokenizer, V(drafter) and V(assistant) need no tokenizer,
            V(tokenizer) needs only a tokenizer, V(adapter) needs its own configuration and weights, V(files) needs only O(repositories[].files).
        type: str
        choices: [model, drafter, assistant, tokenizer, adapter, files]
        default: model
      files:
        description:
          - Names of files that must exist. Patterns (C(*), C(?), C([)), and those that begin with C(!), only select files for a download.
        type: list
        elements: str
        default: []
      side_files:
        description:
          - Further files that must exist. They may have been added by hand, so that the hub has no id of them.
        type: list
        elements: str
        default: []
"""
