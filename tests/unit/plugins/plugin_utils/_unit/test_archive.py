# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One program has the commands of all units. It runs without the collection and without Ansible."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import typing as t
import zipfile
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._service import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._unit import archive


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "unit.pyz"
    path.write_bytes(archive.content())
    return path


def run(program: Path, *words: str, **more: t.Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", str(program), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=program.parent, **more)


def test_it_is_the_same_bytes_again_and_holds_nothing_of_ansible(program):
    content = archive.content()
    assert content == program.read_bytes()
    # No file of ansible-core, which may change with its next release.
    names = [name for name in zipfile.ZipFile(io.BytesIO(content)).namelist() if name.startswith("ansible/")]
    assert names == ["ansible/__init__.py", "ansible/module_utils/__init__.py", "ansible/module_utils/basic.py"]


def test_each_unit_is_a_command(program, tmp_path):
    done = run(program)
    assert done.returncode == 2 and done.stderr == f"usage: {' | '.join((*(service.key for service in table.SERVICES), 'module'))}\n"
    assert run(program, "else").returncode == 2
    assert "--config" in run(program, "guard", "--help").stdout
    assert run(program, "sweep").returncode == run(program, "lease").returncode == 2
    for command in ("engine", "companions"):
        missing = run(program, command, str(tmp_path / "none"))
        assert missing.returncode == 1 and f"{tmp_path}/none does not exist" in missing.stdout


def test_its_lease_ends_where_there_is_none_and_names_what_it_cannot_read(program, tmp_path):
    assert run(program, "lease", str(tmp_path)).returncode == 0
    (tmp_path / "lease").mkdir()
    (tmp_path / "lease" / "lease.json").write_text(json.dumps({"schema": 9}), encoding="utf-8")
    done = run(program, "lease", str(tmp_path))
    assert done.returncode == 1 and "its schema is not 1" in done.stdout


def test_it_runs_the_modules_that_units_run(program, tmp_path):
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": {"name": "guard", "state_dir": str(tmp_path), "state": "serving", "_ansible_check_mode": False}})
    done = run(program, "module", "node_service", input=arguments)
    assert done.returncode == 0 and json.loads(done.stdout)["msg"] == "there is no guard on this node"
    assert run(program, "module", "file", input=arguments).returncode == run(program, "module").returncode == 2
