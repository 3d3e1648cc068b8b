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
    What was taken, changed, left out or refused, and why, is in RV(rows) and RV(findings).
  - Nothing of a recipe is executed. Its command is taken apart into typed arguments and variables; what only a shell can do is refused.
  - A recipe is refused as a whole when a part of it cannot be in a profile, such as another engine, a script, or code of a repository without a commit.
    That is a result (V(block)) and no failure. Then nothing is written.
  - Code of a repository without a commit is left out where vLLM has the model's code itself.
  - A tag of an image becomes its digest where the registry answers, through the controller's Docker engine and the module
    M(gb10.cluster.image_info). Else it stays a tag, and that is said.
  - Changes of the image (mods) that are patches and pinned packages become layers of the profile. A script that only puts a chat template or a file of the
    model's repository into the working directory is read as what it puts there. Those with other scripts are refused.
  - No secret of a recipe is shown or written.
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
      - A directory on the controller for the profile, C(ID.yml), its patches, C(ID.mods/), and the record, C(ID.import.json). It is made when it is absent.
      - A file that exists is never written over. One with the same content is the same profile, and nothing is V(changed).
      - Nothing is written without it.
    type: path
  image:
    description: The image to use in place of the recipe's.
    type: str
  revisions:
    description:
      - The commit of each model repository (C(org/name)), 40 hexadecimal digits, in place of the recipe's. A recipe that lets code of a repository run
        and does not name its commit is refused without it.
    type: dict
    default: {}
  values:
    description: Values of the recipe's placeholders in place of its defaults, as its own launcher takes them, such as C(tensor_parallel).
    type: dict
    default: {}
  variant:
    description: The variant of a recipe of vllm-project/recipes. The one named C(default) without it.
    type: str
  features:
    description: Features of a recipe of vllm-project/recipes that are off unless they are asked for.
    type: list
    elements: str
    default: []
  without_mods:
    description: Changes of the image (mods) of the recipe to leave out, since the image has them or needs them no more.
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

- name: Show what became of it
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
  description: What the record is, V(gb10.cluster.import).
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
  description: Whose recipe it is - V(eugr/spark-vllm-docker), V(sparkrun) or V(vllm-project/recipes).
  returned: success
  type: str
id:
  description: The profile's id, empty when the recipe was refused.
  returned: success
  type: str
profile:
  description: The profile, empty when the recipe was refused.
  returned: success
  type: dict
files:
  description: The files of the profile, of the record and of patches; empty without O(dest), and when the recipe was refused.
  returned: success
  type: list
  elements: str
rows:
  description:
    - What became of each thing that the recipe says, in its order.
    - C(outcome) is V(taken), V(changed), V(dropped) or V(refused). C(field) is where it stands, C(found) what was found, C(became) what the profile has,
      C(why) the reason, C(remedy) what to do to have it differently. C(differs) is true where the profile does not do what the recipe does.
  returned: success
  type: list
  elements: dict
findings:
  description: The same as findings, with the ids C(import.taken), C(import.changed), C(import.dropped) and C(import.refused).
  returned: success
  type: list
  elements: dict
verdict:
  description: V(block) when the recipe was refused, V(warn) when the profile does not do all that the recipe does, else V(pass).
  returned: always
  type: str
remedy:
  description: What to do when this failed, empty otherwise.
  returned: always
  type: str
reason:
  description: Why, in a word.
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
