# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a container's variable passes from the profile to the check in the live rank, as CONTRIBUTING.md lists them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: At most so many files read or change the value.
FILES = 12
STEP = re.compile(r"^  \d+\. `([^`]+)`: ", re.MULTILINE)


def test_the_path_of_a_variable_is_short_and_its_files_exist():
    listed = STEP.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert 0 < len(listed) <= FILES
    files = [ROOT / name.replace("/ID.yml", "/nemotron_3_super_tp2.yml") for name in listed]
    assert [str(path) for path in files if "env" not in path.read_text(encoding="utf-8") and "container_options" not in path.read_text(encoding="utf-8")] == []
