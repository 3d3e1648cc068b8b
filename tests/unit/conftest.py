# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make ``ansible_collections.gb10.cluster`` importable, the way Ansible does it, wherever pytest is started.

Tests that start Ansible as a process of its own take most of the time: ``--playbooks 1/2`` and ``--playbooks 2/2`` run one half of them each.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from ansible.plugins.loader import init_plugin_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig

ROOT = Path(__file__).resolve().parents[2]

if AnsibleCollectionConfig.collection_finder is None:
    init_plugin_loader([str(ROOT / "collections")])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--playbooks", default="1/1", metavar="I/N", help="of each N tests in files that start Ansible, run the I-th")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, parts = map(int, config.getoption("--playbooks").split("/"))
    count = itertools.count(1)
    left_out = {item for item in items if hasattr(item.module, "through_ansible") and next(count) % parts != part % parts}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
