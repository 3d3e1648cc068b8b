# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make ``ansible_collections.gb10.cluster`` importable, the way Ansible does it, wherever pytest is started.

``--share 1/2`` and ``--share 2/2`` run one half of the tests each.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.plugins.loader import init_plugin_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig

ROOT = Path(__file__).resolve().parents[2]

if AnsibleCollectionConfig.collection_finder is None:
    init_plugin_loader([str(ROOT / "collections")])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", default="1/1", metavar="I/N", help="of each N tests, run the I-th")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number, shares = map(int, config.getoption("--share").split("/"))
    left_out = [item for index, item in enumerate(items, 1) if index % shares != number % shares]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = items[number - 1 :: shares]
