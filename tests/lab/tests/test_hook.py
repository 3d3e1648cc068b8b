# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the simulated runtime hook gives to a container."""

from __future__ import annotations

import importlib.util
import os
import pathlib

import pytest

HOOK = pathlib.Path(__file__).resolve().parent.parent / "node/files/nvidia_container_runtime_hook.py"


@pytest.fixture(name="hook")
def fixture_hook(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("hook", HOOK)
    assert spec is not None and spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    monkeypatch.setattr(hook, "DRIVER", tmp_path / "driver")
    (tmp_path / "driver").mkdir()
    for name in ("libcuda", "libnvidia-ml"):
        (tmp_path / f"driver/{name}.so.580.159.03").write_text(name)
    return hook


@pytest.fixture(name="root")
def fixture_root(tmp_path):
    root = tmp_path / "root"
    (root / f"usr/lib/{os.uname().machine}-linux-gnu").mkdir(parents=True)
    return root


def given(root):
    return sorted(path.name for path in (root / f"usr/lib/{os.uname().machine}-linux-gnu").iterdir())


LIBRARIES = ["libcuda.so.1", "libcuda.so.580.159.03", "libnvidia-ml.so.1", "libnvidia-ml.so.580.159.03"]


@pytest.mark.parametrize(("state", "libraries", "lost"), [({}, LIBRARIES, False), ({"lost": True}, LIBRARIES, True), ({"withheld": True}, [], False)])
def test_a_container_gets_the_driver_unless_the_state_says_otherwise(hook, root, state, libraries, lost):
    hook.give(root, state)
    assert given(root) == libraries and (root / "var/lib/gb10-lab/gpu-lost").exists() is lost
    hook.give(root, state)
    assert given(root) == libraries, "a container that is started again has it already"
