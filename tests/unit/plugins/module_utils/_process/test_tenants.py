# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else uses the GPU, on composed proc trees. Command lines of Ray and vLLM are as they ran with Ray 2.60 and vLLM 0.32."""

from __future__ import annotations

import os
import pathlib
import time

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, tenants
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, Scan
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections

OURS, THEIRS = "ab" * 32, "cd" * 32
RAY = "/opt/venv/lib/python3.11/site-packages/ray"


def process(pid, *argv, name=None, container="", state="S", rss=2048):
    return Process(pid, 1, state, name or (os.path.basename(argv[0])[:15] if argv else "kthread"), argv, container, 0, rss)


def opened(root, pid, *targets, cwd=None):
    """Give a process of a proc tree open files."""
    fd = root / str(pid) / "fd"
    fd.mkdir(parents=True)
    for number, target in enumerate(targets):
        (fd / str(number)).symlink_to(target)
    if cwd:
        (root / str(pid) / "cwd").symlink_to(cwd)


def look(root, processes, listed=(), own=(OURS,), hidden=0, names=None):
    sections = Sections()
    seen = Scan({entry.pid: entry for entry in processes}, hidden)
    for entry in processes:
        if not (root / str(entry.pid)).exists():
            opened(root, entry.pid)
    listing = tenants.tenants(seen, listed, own, names or {}, str(root), sections.section("tenants"))
    return listing, sections.errors


@pytest.mark.parametrize(
    ("kind", "argv"),
    [
        ("ollama", ["/usr/local/bin/ollama", "serve"]),
        ("ollama", ["/usr/local/bin/ollama", "runner", "--ollama-engine", "--model", "/x"]),
        ("vllm", ["/opt/venv/bin/python3", "/opt/venv/bin/vllm", "serve", "gb10-lab/tiny-llama", "--host", "10.77.0.11"]),
        ("vllm", ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "x"]),
        ("vllm", ["VLLM::EngineCore"]),
        ("vllm", ["VLLM::Worker_TP0"]),
        ("vllm", ["ray::RayWorkerProc"]),
        ("ray", ["ray::IDLE"]),
        ("ray", [f"{RAY}/core/src/ray/raylet/raylet", "--raylet_socket_name=x"]),
        ("ray", [f"{RAY}/core/src/ray/gcs/gcs_server", "--log_dir=x"]),
        ("ray", ["/opt/venv/bin/python3", f"{RAY}/dashboard/dashboard.py", "--host=127.0.0.1"]),
        ("ray", ["/opt/venv/bin/python3", "-u", f"{RAY}/_private/log_monitor.py"]),
        ("ray", ["/opt/venv/bin/python3", "-m", "ray.util.client.server", "--port=20106"]),
        ("comfyui", ["/home/u/ComfyUI/venv/bin/python", "main.py", "--listen"]),
        ("comfyui", ["python3.12", "/opt/comfyui/main.py"]),
        ("tts", ["/opt/chatterbox/.venv/bin/python", "server.py"]),
        ("tts", ["python", "-m", "TTS.server.server"]),
        ("tts", ["/usr/bin/python3", "/usr/bin/uvicorn", "kokoro_server:app", "--port", "8882"]),
        ("asr", ["python3", "/srv/parakeet/app.py"]),
        ("asr", ["/opt/whisper.cpp/build/bin/whisper-server", "-m", "x"]),
        ("asr", ["python3", "-m", "faster_whisper"]),
        ("desktop", ["/usr/lib/xorg/Xorg", ":0"]),
        ("desktop", ["/usr/bin/gnome-shell"]),
        ("llama_cpp", ["/usr/bin/llama-server", "-m", "x.gguf"]),
        ("sglang", ["python3", "-m", "sglang.launch_server"]),
    ],
)
def test_known_users_of_the_gpu(kind, argv):
    assert (classify.judge(argv) or (None, None))[1] == kind


@pytest.mark.parametrize(
    "argv",
    [
        ["vim", "/home/u/vllm.py"],
        ["tail", "-f", "/var/log/ollama.log"],
        ["bash", "-c", "ollama serve"],
        ["python3", "-c", "import vllm"],
        ["python3", "train.py"],
        ["/home/u/vllm/.venv/bin/python", "train.py"],
        ["grep", "whisper"],
        ["/usr/bin/rsync", "/models/tts"],
        ["/usr/bin/nvidia-persistenced"],
        ["sshd: ray [priv]"],
        [],
    ],
)
def test_innocent_processes(argv):
    assert classify.judge(argv) is None


def test_holders_and_known_users_outside_our_containers(tmp_path):
    processes = [
        process(10, "/usr/local/bin/ollama", "serve", rss=50 * 1024),
        process(11, "python3", "train.py", "--api-key", "sk-verysecret", rss=900 * 1024),
        process(12, "python3", "app.py"),
        process(13, "VLLM::EngineCore", container=OURS),
        process(14, "VLLM::EngineCore", container=THEIRS),
        process(15, "/usr/bin/nvidia-persistenced"),
        process(16, "/usr/bin/nvidia_gpu_exporter"),
        process(17, "ollama", state="Z"),
        process(18, name="nvidia-uvm", rss=0),
        process(19, "/usr/bin/gnome-shell"),
        process(20, "/usr/share/cursor/cursor"),
    ]
    opened(tmp_path, 11, "/dev/null", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "socket:[7]")
    opened(tmp_path, 12, "/dev/nvidia-uvm", cwd="/srv/ComfyUI")
    opened(tmp_path, 13, "/dev/nvidia-uvm")
    opened(tmp_path, 15, "/dev/nvidiactl", "/dev/nvidia0")
    opened(tmp_path, 16, "/dev/nvidiactl")
    listed = [
        {"pid": 14, "gpu": 0, "type": "C", "name": "x", "used_mib": 60000},
        {"pid": 19, "gpu": 0, "type": "G", "name": "x", "used_mib": 90},
        # Type and size as in a recorded table of a desktop session (driver 580.159.03): whatever draws belongs to the desktop.
        {"pid": 20, "gpu": 0, "type": "G", "name": "/usr/share/cursor/cursor", "used_mib": 168},
        {"pid": 99, "gpu": 0, "type": "C", "name": "[Not Found]", "used_mib": 5},
    ]
    listing, errors = look(tmp_path, processes, listed, names={THEIRS: "eugr-vllm"})
    assert [(tenant["pid"], tenant["kind"], tenant["cuda"], tenant["gpu_mib"]) for tenant in listing] == [
        (14, "vllm", True, 60000),
        (20, "desktop", False, 168),
        (19, "desktop", False, 90),
        (11, "other", True, None),
        (10, "ollama", False, None),
        (12, "comfyui", True, None),
    ]
    assert errors == []
    assert listing[0]["container"] == "eugr-vllm" and listing[4] == {
        "pid": 10,
        "name": "ollama",
        "cmdline": "/usr/local/bin/ollama serve",
        "user": "root",
        "kind": "ollama",
        "container": "",
        "cuda": False,
        "gpu_mib": None,
        "rss_mb": 50,
    }
    assert "verysecret" not in str(listing) and "--api-key <secret>" in listing[3]["cmdline"]


def test_a_recorded_process_that_holds_cuda_memory(tmp_path):
    links = (pathlib.Path(__file__).parents[3] / "fixtures/proc/recorded_h100_cuda_open_files.txt").read_text().split()
    opened(tmp_path, 425, *links)
    opened(tmp_path, 426, *[link for link in links if link != "/dev/nvidia-uvm"])
    assert tenants.holds_cuda(425, str(tmp_path)) is True and tenants.holds_cuda(426, str(tmp_path)) is False


def test_a_quiet_node(tmp_path):
    assert look(tmp_path, [process(1, "/sbin/init"), process(2, "VLLM::EngineCore", container=OURS)]) == ([], [])


def test_memory_of_a_process_on_two_gpus_and_listed_twice():
    listed = [
        {"pid": 1, "gpu": 0, "used_mib": 100},
        {"pid": 1, "gpu": 0, "used_mib": 100},
        {"pid": 1, "gpu": 1, "used_mib": 50},
        {"pid": 2, "gpu": 0, "used_mib": None},
        {"pid": 3, "gpu": 0, "used_mib": None},
        {"pid": 3, "gpu": 1, "used_mib": 7},
    ]
    assert tenants.gpu_memory(listed) == {1: 150, 2: None, 3: 7}


def test_processes_that_may_not_be_asked_are_reported(tmp_path, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied", path)

    processes = [process(1, "/sbin/init"), process(10, "ollama"), process(18, name="kworker", rss=0), process(20, "python3", "x.py")]
    listed = [{"pid": 20, "gpu": 0, "used_mib": 9}]
    for entry in processes:
        opened(tmp_path, entry.pid)
    monkeypatch.setattr(tenants, "open_files", lambda _pid, root: denied(root))
    monkeypatch.setattr(tenants, "read_bytes", lambda path, _limit: denied(path))
    listing, (error,) = look(tmp_path, processes, listed)
    assert [(tenant["pid"], tenant["cuda"]) for tenant in listing] == [(20, True), (10, None)]
    assert "2 processes" in error["error"] and "init (1)" in error["error"] and "become" in error["remedy"]


def test_maps_are_read_where_open_files_may_not_be_seen(tmp_path, monkeypatch):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/maps").write_text("7f0000000000-7f0000001000 rw-s 00000000 00:06 512 /dev/nvidia-uvm\n")

    def refuse(_pid, root):
        raise PermissionError(13, "no", root)

    monkeypatch.setattr(tenants, "open_files", refuse)
    assert tenants.holds_cuda(7, str(tmp_path)) is True
    (tmp_path / "7/maps").write_text("7f0000000000-7f0000001000 rw-s 00000000 00:06 512 /dev/nvidia-uvm-tools\n")
    assert tenants.holds_cuda(7, str(tmp_path)) is False


@pytest.mark.parametrize(("hidden", "says"), [(3, "3 processes"), (None, "hidepid")])
def test_hidden_processes_are_reported(tmp_path, hidden, says):
    listing, (error,) = look(tmp_path, [process(1, "/sbin/init")], hidden=hidden)
    assert listing == [] and says in error["error"] and error["verdict"] == "unknown"


def test_a_process_that_ends_meanwhile_is_not_a_tenant(tmp_path, monkeypatch):
    processes = [process(1, "/sbin/init"), process(10, "ollama")]
    for entry in processes:
        opened(tmp_path, entry.pid)

    def gone(pid, _root):
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(tenants, "holds_cuda", gone)
    assert look(tmp_path, processes) == ([], [])


def test_files_that_are_closed_meanwhile_are_passed_over(tmp_path, monkeypatch):
    opened(tmp_path, 5, "/dev/null", "/dev/nvidia-uvm")
    readlink = os.readlink

    def closing(path):
        if path.endswith("/0"):
            raise FileNotFoundError(2, "No such file", path)
        return readlink(path)

    monkeypatch.setattr(tenants.os, "readlink", closing)
    assert tenants.holds_cuda(5, str(tmp_path)) is True


def status(root, pid, text):
    (root / str(pid)).mkdir()
    (root / str(pid) / "status").write_text(text)


RANK = "Name:\tVLLM\nVmRSS:\t  900 kB\nRssAnon:\t 512000 kB\nRssFile:\t 400 kB\n"


def test_what_a_cluster_holds_comes_from_the_driver_and_the_kernel(tmp_path):
    """Pages of files and shared memory are left out, and so are processes outside of this collection's containers."""
    seen = Scan({row.pid: row for row in (process(5, "VLLM::Worker", container=OURS), process(6, "x", container=OURS), process(7, "y", container=THEIRS))}, 0)
    for pid in (5, 6, 7):
        status(tmp_path, pid, RANK)
    listed = [{"pid": 5, "used_mib": 88000, "gpu": 0}, {"pid": 7, "used_mib": 4000, "gpu": 0}]
    assert tenants.held(seen, listed, {OURS: "gb10"}, str(tmp_path)) == {"gb10": {"gpu_mib": 88000, "anon_mb": 1000}}
    assert tenants.held(seen, [{"pid": 5, "used_mib": None}], {OURS: "gb10"}, str(tmp_path))["gb10"]["gpu_mib"] is None
    assert tenants.held(seen, None, {OURS: "gb10"}, str(tmp_path))["gb10"] == {"gpu_mib": None, "anon_mb": 1000}
    assert tenants.held(seen, listed, {}, str(tmp_path)) == {}


def test_a_process_that_is_gone_holds_nothing_and_one_that_says_nothing_is_unknown(tmp_path):
    seen = Scan({5: process(5, "VLLM::Worker", container=OURS)}, 0)
    assert tenants.held(seen, [], {OURS: "gb10"}, str(tmp_path)) == {"gb10": {"gpu_mib": 0, "anon_mb": 0}}
    status(tmp_path, 5, "Name:\tVLLM\nState:\tZ (zombie)\n")
    assert tenants.anonymous_kib(5, str(tmp_path)) == 0
    (tmp_path / "5" / "status").write_text("VmRSS:\t 900 kB\n")
    with pytest.raises(UnknownState, match="does not report how much anonymous memory process 5 has"):
        tenants.held(seen, [], {OURS: "gb10"}, str(tmp_path))


def test_four_thousand_processes(tmp_path):
    processes = [process(pid, "/usr/bin/sleep", "9") for pid in range(1, 4001)]
    for entry in processes[:50]:
        opened(tmp_path, entry.pid, *["/dev/null"] * 20)
    for entry in processes[50:]:
        opened(tmp_path, entry.pid)
    began = time.monotonic()
    assert look(tmp_path, processes) == ([], [])
    assert time.monotonic() - began < 10


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(st.lists(st.one_of(st.text(max_size=12), st.sampled_from(["python3", "-m", "-c", "uvicorn", "vllm", "/", "-", " ", ":"])), max_size=6))
def test_no_command_line_is_too_strange(argv):
    known = classify.judge(argv, "/srv")
    assert known is None or known[0] in classify.KINDS
