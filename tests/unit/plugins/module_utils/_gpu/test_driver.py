# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of nvidia-smi: from the real tool (recorded_*), and composed variations of them."""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver
from ansible_collections.gb10.cluster.plugins.module_utils._gpu.driver import GpuProcess
from ansible_collections.gb10.cluster.plugins.module_utils._process import process_table
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures/nvidia_smi"


def recorded(name: str) -> str:
    return (FIXTURES / name).read_text()


@pytest.mark.parametrize(
    ("name", "pids"),
    [
        ("recorded_h200_idle_compute_apps.csv", []),
        ("recorded_h200_busy_compute_apps.csv", [411]),
        ("recorded_h200_two_compute_apps.csv", [411, 437]),
        ("recorded_h200_two_compute_apps_nounits.csv", [411, 437]),
    ],
)
def test_recorded_processes(name, pids):
    assert driver.parse_processes(recorded(name)) == [GpuProcess(pid, "python3", 2566) for pid in pids]


@pytest.mark.parametrize(
    ("line", "process"),
    [
        ("4711, VLLM::EngineCore, [N/A]", GpuProcess(4711, "VLLM::EngineCore", None)),
        ("4711, [Not Found], 52310 MiB", GpuProcess(4711, "[Not Found]", 52310)),
        # As a real driver listed a process just after it was killed.
        ("405, [No data], 2566 MiB", GpuProcess(405, "[No data]", 2566)),
        ("4711, /opt/my, program, 12 MiB", GpuProcess(4711, "/opt/my, program", 12)),
        ("4711, python3, [Not Supported]", GpuProcess(4711, "python3", None)),
    ],
)
def test_shapes_of_a_process(line, process):
    assert driver.parse_processes(line + "\n") == [process]


def test_a_process_on_two_gpus_is_one_process():
    assert driver.parse_processes("7, python3, 100 MiB\n7, python3, 50 MiB\n3, x, [N/A]\n3, x, [N/A]\n") == [
        GpuProcess(3, "x", None),
        GpuProcess(7, "python3", 150),
    ]


@pytest.mark.parametrize(
    "text",
    [
        recorded("recorded_h200_no_devices.txt"),
        recorded("recorded_h200_bad_field.txt"),
        recorded("recorded_h200_two_compute_apps_header.csv"),
        recorded("recorded_h200_idle.xml"),
        "411, python3, lots\n",
        "411\n",
        "python3, 411, 2566 MiB\n",
    ],
)
def test_processes_in_another_shape_are_unknown_with_the_raw_text(text):
    with pytest.raises(UnknownState) as caught:
        driver.parse_processes(text)
    assert caught.value.details["raw"]


def test_gpus():
    text = "0, NVIDIA H200, GPU-528eeaeb, 580.159.04, 143771, 2575\n1, NVIDIA GB10, GPU-1, 580.95.05, [N/A], [Not Supported]\n"
    first, second = driver.parse_gpus(text)
    assert first["memory_total_mb"] == 143771 and first["driver_version"] == "580.159.04"
    assert second["name"] == "NVIDIA GB10" and second["memory_total_mb"] is None and second["memory_used_mb"] is None


@pytest.mark.parametrize("text", [recorded("recorded_h200_no_devices.txt"), recorded("recorded_h200_list.txt"), "0, a, b, c, d\n"])
def test_gpus_in_another_shape_are_unknown(text):
    with pytest.raises(UnknownState):
        driver.parse_gpus(text)


def test_a_failing_tool_is_unknown_with_its_words(monkeypatch):
    monkeypatch.setattr(driver, "run_tool", lambda argv, timeout: ToolResult(6, recorded("recorded_h200_no_devices.txt"), ""))
    with pytest.raises(UnknownState, match="status 6: No devices were found") as caught:
        driver.query_gpus("nvidia-smi", 5)
    assert caught.value.reason == driver.NO_GPU and "No devices" in caught.value.details["raw"]
    monkeypatch.setattr(driver, "run_tool", lambda argv, timeout: ToolResult(9, "", "NVRM says no"))
    with pytest.raises(UnknownState, match="status 9: NVRM says no") as caught:
        driver.query_gpus("nvidia-smi", 5)
    assert caught.value.reason == "tool failed"


def test_what_became_of_a_listed_process(tmp_path, monkeypatch):
    for pid, state in ((10, "R"), (11, "Z"), (12, "X"), (13, "D")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (python3) {state} 1 " + "0 " * 22)
        (tmp_path / str(pid) / "cmdline").write_text("")
    states = {pid: driver.state_of(pid, str(tmp_path)) for pid in (10, 11, 12, 13, 14)}
    assert states == {10: "live", 11: "defunct", 12: "defunct", 13: "live", 14: "ghost"}

    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(driver, "read_process", denied)
    assert driver.state_of(10, str(tmp_path)) == "unknown"


def namespace(root: pathlib.Path, inode: int) -> str:
    (root / "self/ns").mkdir(parents=True)
    (root / "self/ns/pid").symlink_to(f"pid:[{inode}]")
    return str(root)


def test_the_machines_own_namespace_is_judged(tmp_path):
    driver.require_host_processes(namespace(tmp_path, driver.HOST_PID_NAMESPACE), asserted=False)


def test_another_namespace_is_refused_unless_asserted(tmp_path):
    root = namespace(tmp_path, 4026532837)
    with pytest.raises(UnknownState, match="not the machine's own pid namespace") as caught:
        driver.require_host_processes(root, asserted=False)
    assert "pid_namespace: host" in caught.value.remedy
    driver.require_host_processes(root, asserted=True)


def test_a_missing_namespace_is_refused(tmp_path):
    with pytest.raises(UnknownState, match="cannot be read"):
        driver.require_host_processes(str(tmp_path), asserted=False)


@pytest.mark.parametrize(
    ("options", "hides"),
    [
        ("rw,nosuid,relatime", False),
        ("rw,relatime,hidepid=1", False),
        ("rw,hidepid=2", True),
        ("rw,hidepid=invisible,gid=5", True),
        ("rw,hidepid=ptraceable", True),
    ],
)
def test_hidden_processes_are_noticed(tmp_path, monkeypatch, options, hides):
    mounts = f"sysfs /sys sysfs rw 0 0\nproc /proc proc {options} 0 0\n"
    assert process_table.hides_processes(mounts, "/proc") is hides
    assert process_table.hides_processes(mounts, "/host/proc") is False

    root = namespace(tmp_path, driver.HOST_PID_NAMESPACE)
    (tmp_path / "self/mounts").write_text(mounts.replace(" /proc ", f" {root} "))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    driver.require_host_processes(root, asserted=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if hides:
        with pytest.raises(UnknownState, match="hidepid"):
            driver.require_host_processes(root, asserted=False)
