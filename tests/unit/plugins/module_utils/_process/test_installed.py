# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is installed where an engine runs."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._process import installed


def test_versions_come_from_where_the_command_lines_point_first(tmp_path):
    for place in (
        "opt/venv/lib/python3.12/site-packages/vllm-0.32.0+cpu.dist-info",
        "usr/lib/python3/dist-packages/ray-2.9.0.egg-info",
        "srv/x/site-packages/ray-2.60.0.dist-info",
    ):
        (tmp_path / place).mkdir(parents=True)
    argvs = [["/srv/x/site-packages/ray/core/src/ray/raylet/raylet"], ["/opt/venv/bin/python3", "/opt/venv/bin/vllm"], []]
    assert installed.versions(str(tmp_path), argvs) == {"ray": "2.60.0", "vllm": "0.32.0+cpu"}
    with pytest.raises(OSError):
        installed.versions(str(tmp_path / "absent"), [])
