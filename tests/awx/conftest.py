# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fixtures of the tests about AWX. None of these tests needs a lab, a node or AWX."""

from __future__ import annotations

import importlib.metadata
import json
import typing as t
from pathlib import Path

import awx_job
import pytest


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, t.Any]]]:
    """The data of awx/, evaluated with only the variables that an administrator has to set."""
    return awx_job.data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def awx_awx() -> Path:
    """Where the collection awx.awx is, as ANSIBLE_COLLECTIONS_PATH wants it. Without it the configuration can't run, and its tests are skipped."""
    done = awx_job.ansible("doc", "--json", "awx.awx.job_template")
    documented = json.loads(done.stdout) if done.returncode == 0 else {}
    if not documented:
        try:
            version = importlib.metadata.version("ansible")
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        pytest.skip(
            f"no awx.awx here (package ansible: {version}, ansible-core: {importlib.metadata.version('ansible-core')}); "
            "ansible 12 and 13 bring it along, elsewhere: ansible-galaxy collection install awx.awx"
        )
    return Path(documented["awx.awx.job_template"]["doc"]["filename"]).parents[5]


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory, objects: dict[str, list[dict[str, t.Any]]]) -> awx_job.Jobs:
    return awx_job.Jobs(tmp_path_factory.mktemp("jobs"), objects)
