# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make ``ansible_collections.gb10.cluster`` importable, the way Ansible does it, wherever pytest is started.

``--share 1/2`` and ``--share 2/2`` run one half of the files in this directory each; a file that is not in the share is not imported.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.plugins.loader import init_plugin_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

if AnsibleCollectionConfig.collection_finder is None:
    init_plugin_loader([str(ROOT / "collections")])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", default="1/1", metavar="I/N", help="of each N files of tests, run the I-th")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    number, shares = map(int, config.getoption("--share").split("/"))
    files = sorted(HERE.rglob("test_*.py"))
    return collection_path in files and files.index(collection_path) % shares != number - 1 or None
