# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make ``ansible_collections.gb10.cluster`` importable, the way Ansible does it, wherever pytest is started.

``--share 1/2`` and ``--share 2/2`` run one half of the files in this directory each; a file that is not in the share is not imported.
"""

from __future__ import annotations

import functools
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


@functools.cache
def left_out(share: str) -> frozenset[Path]:
    """Return the files of tests that are not in a share."""
    number, shares = map(int, share.split("/"))
    return frozenset(path for index, path in enumerate(sorted(HERE.rglob("test_*.py"))) if index % shares != number - 1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return collection_path in left_out(config.getoption("--share")) or None
