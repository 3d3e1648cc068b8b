# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated nvidia-smi against recorded output of the real one."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from xml.etree import ElementTree

import pytest

LAB = pathlib.Path(__file__).resolve().parent.parent
FILES = LAB / "node" / "files"
FIXTURES = LAB.parent / "unit" / "fixtures" / "nvidia_smi"

TWO = {
    "processes": [
        {"pid": 411, "type": "C", "name": "python3", "used_mib": 2566},
        {"pid": 437, "type": "C", "name": "python3", "used_mib": 2566},
        {"pid": 500, "type": "G", "name": "/usr/lib/xorg/Xorg", "used_mib": 43},
    ]
}


@pytest.fixture(name="smi")
def fixture_smi(tmp_path):
    """Call the simulator with a state; returns the finished process."""

    def call(state, *arguments, timeout=20):
        path = tmp_path / "gpu.json"
        if state is not None:
            path.write_text(json.dumps(state), encoding="utf-8")
        environment = {**os.environ, "GB10_LAB_GPU_STATE": str(path), "GB10_LAB_GPU_TEMPLATE": str(FILES / "nvidia_smi.xml")}
        argv = [sys.executable, str(FILES / "nvidia_smi.py"), *arguments]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=timeout, check=False)

    return call


@pytest.mark.parametrize(
    ("options", "recording"),
    [
        ("csv,noheader", "recorded_h200_two_compute_apps.csv"),
        ("csv,noheader,nounits", "recorded_h200_two_compute_apps_nounits.csv"),
        ("csv", "recorded_h200_two_compute_apps_header.csv"),
    ],
)
def test_compute_apps_as_recorded(smi, options, recording):
    answer = smi(TWO, "--query-compute-apps=pid,process_name,used_memory", f"--format={options}")
    assert answer.stdout == (FIXTURES / recording).read_text(encoding="utf-8")


def test_idle_card_prints_nothing(smi):
    answer = smi(None, "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader")
    assert (answer.returncode, answer.stdout) == (0, "")


def test_unknown_field_as_recorded(smi):
    answer = smi(None, "--query-gpu=bogus", "--format=csv")
    assert answer.returncode == 2
    assert answer.stdout == (FIXTURES / "recorded_h200_bad_field.txt").read_text(encoding="utf-8")


def test_gpu_memory_is_not_available(smi):
    answer = smi(None, "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader")
    assert answer.stdout == "NVIDIA GB10, [N/A], [N/A]\n"


def elements(root):
    """Names of all elements in document order."""
    return [element.tag for element in root.iter()]


def test_xml_has_the_recorded_shape(smi):
    """Same elements in the same order, except for the clock table, which a GB10 does not report."""
    real = ElementTree.fromstring((FIXTURES / "recorded_h200_two.xml").read_text(encoding="utf-8"))
    clocks = real.find("gpu/supported_clocks")
    for child in list(clocks):
        clocks.remove(child)
    state = {"processes": TWO["processes"][:2]}
    assert elements(ElementTree.fromstring(smi(state, "-q", "-x").stdout)) == elements(real)


def test_xml_processes(smi):
    root = ElementTree.fromstring(smi(TWO, "-q", "-x").stdout)
    processes = [(info.findtext("pid"), info.findtext("type"), info.findtext("used_memory")) for info in root.iter("process_info")]
    assert processes == [("411", "C", "2566 MiB"), ("437", "C", "2566 MiB"), ("500", "G", "43 MiB")]
    assert root.findtext("gpu/fb_memory_usage/total") == "N/A"


def test_another_driver_and_half_an_answer(smi):
    state = {"replace": {"580.159.03": "590.48.01"}}
    for arguments in (["-q", "-x"], ["--query-gpu=driver_version", "--format=csv,noheader"]):
        whole = smi(state, *arguments).stdout
        assert "590.48.01" in whole and "580.159.03" not in whole
    assert smi({"says": "Kein Gerät"}, "-q", "-x").stdout == "Kein Gerät\n"
    half = smi({"half": True}, "-q", "-x")
    assert half.returncode == 0 and half.stdout.startswith("<?xml") and "</nvidia_smi_log>" not in half.stdout


@pytest.mark.parametrize(("state", "code"), [({"missing": True}, 127), ({"rubbish": True}, 0), ({"exit_code": 9}, 9)])
def test_ordered_failures(smi, state, code):
    assert smi(state, "-q", "-x").returncode == code


def test_ordered_hang(smi):
    with pytest.raises(subprocess.TimeoutExpired):
        smi({"hang": True}, "-L", timeout=1)
