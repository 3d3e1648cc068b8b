# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CDI devices of a Docker engine."""

from __future__ import annotations

import os
import pathlib

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker import cdi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures/cdi"
YAML = (FIXTURES / "composed_nvidia_yaml.txt").read_text()
JSON = (FIXTURES / "composed_nvidia.json").read_text()


def test_specifications():
    assert cdi.parse(YAML) == ["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-4f1c2d3e-0000-0000-0000-000000000000", "nvidia.com/gpu=all"]
    assert cdi.parse(JSON) == ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("kind: vendor.com/net\ndevices:\n  - name: 'a'\n    containerEdits: {}\n  -\n    containerEdits:\n      env: [x]\n    name: b # last\n", ["a", "b"]),
        ("# c\nkind: \"vendor.com/net\"\ndevices: []\n", []),
        ("kind: vendor.com/net\ncdiVersion: 0.6.0\n", []),
    ],
)
def test_other_ways_of_writing_them(text, devices):
    assert cdi.parse(text) == [f"vendor.com/net={name}" for name in devices]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "devices:\n- name: x\n",
        "kind: a/b\ndevices: [{name: x}]\n",
        "kind: a/b\ndevices:\n- containerEdits: {}\n",
        "kind: a/b\ndevices:\n\t- name: x\n",
        "kind: a/b\ndevices:\n- name:\n",
        "{",
        "{}",
        '{"kind": "a/b", "devices": [{}]}',
        '{"kind": 3, "devices": [{"name": "x"}]}',
        '{"kind": "a/b", "devices": 3}',
        "{" * 100_000,
        "<html>",
    ],
)
def test_a_specification_that_cannot_be_read_is_unknown(text):
    with pytest.raises(UnknownState):
        cdi.parse(text)


def test_devices_of_all_directories(tmp_path):
    etc, run = tmp_path / "etc/cdi", tmp_path / "run/cdi"
    etc.mkdir(parents=True)
    run.mkdir(parents=True)
    (etc / "nvidia.yaml").write_text(YAML)
    (etc / "README").write_text("no specification")
    (run / "net.json").write_text('{"kind": "vendor.com/net", "devices": [{"name": "a"}]}')
    (run / "broken.yml").write_text("devices:\n- x\n")
    sections = Sections()
    directories = ["/etc/cdi", str(run), "/nonexistent"]
    specs = cdi.specs(directories, str(tmp_path / "etc"), sections.section("docker.cdi_devices"))
    assert [(spec["path"], spec["libcuda"]) for spec in specs] == [("/etc/cdi/nvidia.yaml", ["580.159.03"]), (str(run / "net.json"), [])]
    devices = cdi.devices(specs)
    assert devices[0] == "nvidia.com/gpu=0" and devices[-1] == "vendor.com/net=a" and len(devices) == 4
    (error,) = sections.errors
    assert "broken.yml" in error["error"] and error["remedy"] == f"Write it again: sudo nvidia-ctk cdi generate --output={run}/broken.yml"


def test_a_pipe_in_a_specifications_place_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "nvidia.yaml")
    with pytest.raises(UnknownState, match="nvidia.yaml is not a file"):
        cdi.specs([str(tmp_path)], "/etc")


def test_a_specification_is_read_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(cdi, "SPEC_LIMIT", YAML.index("kind:"))
    (tmp_path / "nvidia.yaml").write_text(YAML)
    with pytest.raises(UnknownState, match="names no kind"):
        cdi.specs([str(tmp_path)], "/etc")


@st.composite
def mutated(draw):
    text = draw(st.sampled_from([YAML, JSON]))
    for _step in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 80)))
        text = text[:start] + draw(st.one_of(st.text(max_size=15), st.sampled_from(["- ", "\n", "  ", "name:", "devices:", "{", "\t", "'", "\0"]))) + text[end:]
    return text


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(mutated())
def test_mutated_specifications_are_read_or_unknown(text):
    try:
        names = cdi.parse(text)
    except UnknownState:
        return
    assert all(isinstance(name, str) and "=" in name for name in names)
