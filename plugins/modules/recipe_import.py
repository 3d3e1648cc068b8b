#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: recipe_import
short_description: Make a profile from a recipe for another launcher (internal)
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads a recipe of eugr/spark-vllm-docker, of sparkrun or of vllm-project/recipes on the controller, and writes it as a profile of this collection.
    RV(rows) and RV(findings) show what was taken, changed, left out or refused, and why.
  - Nothing in a recipe is executed. Its command is split into typed arguments and variables. Parts that only a shell can run are refused.
  - A recipe is refused as a whole if a part of it cannot be in a profile, such as another engine, a script, or code from a repository without a commit.
    That is a result (V(block)) and not a failure. Then nothing is written.
  - Code from a repository without a commit is left out if vLLM itself includes the model's code.
  - An image's tag becomes its digest if the registry answers, through the controller's Docker engine and the module
    M(gb10.cluster.image_info). Otherwise it stays a tag, and this is reported.
  - Changes of the image (mods) that are patches and pinned packages become layers of the profile. A script that only copies a chat template or a file of the
    model's repository into the working directory is treated as that file. Mods with other scripts are refused.
  - No secret in a recipe is shown or written.
extends_documentation_fragment:
  - gb10.cluster._attributes.internal
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  action:
    description: Runs on the controller.
    support: full
options:
  path:
    description: The recipe, a YAML file on the controller.
    type: path
    required: true
  dest:
    description:
      - A directory on the controller for the profile, C(ID.yml), its patches, C(ID.mods/), and the record, C(ID.import.json). It is created if absent.
      - An existing file is never overwritten. One with the same content is the same profile, and nothing is V(changed).
      - Nothing is written without it.
    type: path
  image:
    description: The image to use instead of the recipe's.
    type: str
  revisions:
    description:
      - The commit of each model repository (C(org/name)), 40 hexadecimal digits, instead of the recipe's. A recipe that runs code from a repository
        and does not name its commit is refused without it.
    type: dict
    default: {}
  values:
    description: Values of the recipe's placeholders instead of its defaults, as its own launcher accepts them, such as C(tensor_parallel).
    type: dict
    default: {}
  variant:
    description: The variant of a recipe from vllm-project/recipes. The default is the one named C(default).
    type: str
  features:
    description: Optional features of a recipe from vllm-project/recipes to turn on.
    type: list
    elements: str
    default: []
  without_mods:
    description: Changes of the image (mods) in the recipe to leave out, because the image includes them or no longer needs them.
    type: list
    elements: str
    default: []
seealso:
  - module: gb10.cluster.image_info
  - module: gb10.cluster.judge
"""

EXAMPLES = r"""
- name: Make a profile from a recipe
  gb10.cluster.recipe_import:
    path: ./spark-vllm-docker/recipes/qwen3.8-27b-nvfp4-dflash2.yaml
    dest: ./profiles
    revisions:
      nvidia/Qwen3.8-27B-NVFP4: 482ca0f3832238542f8f5295dde86b5f22711d80
  register: imported

- name: Show the result of the import
  gb10.cluster.judge:
    title: Import
    findings: "{{ imported.findings }}"
"""

RETURN = r"""
schema:
  description: The version of the record.
  returned: success
  type: int
kind:
  description: The kind of the record, V(gb10.cluster.import).
  returned: success
  type: str
path:
  description: The recipe's file.
  returned: success
  type: str
sha256:
  description: The SHA-256 of the recipe's file.
  returned: success
  type: str
recipe:
  description: The recipe's format - V(eugr/spark-vllm-docker), V(sparkrun) or V(vllm-project/recipes).
  returned: success
  type: str
id:
  description: The profile's id. Empty if the recipe was refused.
  returned: success
  type: str
profile:
  description: The profile. Empty if the recipe was refused.
  returned: success
  type: dict
files:
  description: The files of the profile, of the record and of patches. Empty without O(dest), and if the recipe was refused.
  returned: success
  type: list
  elements: str
rows:
  description:
    - The outcome for each part of the recipe, in its order.
    - C(outcome) is V(taken), V(changed), V(dropped) or V(refused). C(field) is its place, C(found) the value found, C(became) the value in the profile,
      C(why) the reason, C(remedy) how to get a different outcome. C(differs) is true if the profile does not do what the recipe does.
  returned: success
  type: list
  elements: dict
findings:
  description: The same as findings, with the ids C(import.taken), C(import.changed), C(import.dropped) and C(import.refused).
  returned: success
  type: list
  elements: dict
verdict:
  description: V(block) if the recipe was refused, V(warn) if the profile does not do everything that the recipe does, otherwise V(pass).
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
  description: The files that were written, or would be.
  returned: always
  type: list
  elements: str
duration:
  description: Seconds that this took.
  returned: always
  type: float
"""
