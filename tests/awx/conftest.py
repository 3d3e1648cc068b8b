# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests about AWX share. None of them needs a lab, a node or an AWX."""

from __future__ import annotations

import typing as t

import awx_job
import pytest


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, t.Any]]]:
    """The data of awx/, evaluated with what an administrator has to say and nothing else."""
    return awx_job.data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory, objects: dict[str, list[dict[str, t.Any]]]) -> awx_job.Jobs:
    return awx_job.Jobs(tmp_path_factory.mktemp("jobs"), objects)
