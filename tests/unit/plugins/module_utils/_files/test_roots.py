# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The setting gb10_node_roots is the option `roots` of the modules."""

from __future__ import annotations

import pathlib

import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS

ROOT = pathlib.Path(__file__).resolve().parents[5]


def test_the_setting_has_the_roots_of_the_modules():
    spec = yaml.safe_load((ROOT / "roles/gb10/meta/argument_specs.yml").read_text())["argument_specs"]["settings"]["options"]["gb10_node_roots"]
    assert {name: option["type"] for name, option in spec["options"].items()} == {name: option["type"] for name, option in ROOTS["options"].items()}
