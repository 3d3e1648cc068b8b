# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The recorder of GPU situations, on a machine without a GPU: what it writes, what it leaves out, and what it does when it cannot."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / "tests" / "tools" / "record_gpu.py"
RECORDED = ROOT / "tests" / "unit" / "fixtures" / "gpu_situations" / "idle"
spec = importlib.util.spec_from_file_location("record_gpu", TOOL)
record_gpu = importlib.util.module_from_spec(spec)
spec.loader.exec_module(record_gpu)


@pytest.fixture
def nvidia_smi(tmp_path):
    """A tool that answers what a real one did."""
    tool = tmp_path / "nvidia-smi"
    answers = {"-q": "smi.xml", "--query-compute-apps*": "compute_apps.csv", "--query-gpu*": "gpu.csv"}
    tool.write_text("#!/bin/sh\ncase \"$1\" in\n" + "".join(f"{word}) cat {RECORDED / name};;\n" for word, name in answers.items()) + "esac\n")
    tool.chmod(0o755)
    return tool


def run(tmp_path, nvidia_smi, *arguments):
    argv = [sys.executable, str(TOOL), "--out", str(tmp_path / "out"), "--nvidia-smi", str(nvidia_smi), "--pace", "0.1", *arguments]
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}  # without Ansible, as on a machine that only has this file
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=environment, cwd=tmp_path)


def test_an_idle_machine_gives_a_directory_of_the_fixtures_shape(tmp_path, nvidia_smi):
    done = run(tmp_path, nvidia_smi, "--only", "idle")
    assert done.returncode == 0, done.stdout + done.stderr
    described = json.loads((tmp_path / "out/machine.json").read_text())
    fixture = json.loads((RECORDED.parent / "machine.json").read_text())
    assert described.keys() == fixture.keys()
    assert (described["gpu"], described["driver"], described["cuda"]) == (fixture["gpu"], fixture["driver"], fixture["cuda"])
    written = {path.name for path in (tmp_path / "out/idle").iterdir()}
    assert written >= {"smi.xml", "compute_apps.csv", "gpu.csv", "meminfo", "vmstat"}
    assert written <= {path.name for path in RECORDED.iterdir()}


def test_a_situation_that_cannot_be_made_is_reported_and_leaves_nothing_behind(tmp_path, nvidia_smi):
    try:
        record_gpu.ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has a driver")
    done = run(tmp_path, nvidia_smi, "--only", "idle,live,orphan")
    assert done.returncode == 3, done.stdout + done.stderr
    failed = json.loads((tmp_path / "out/machine.json").read_text())["not_recorded"]
    assert failed.keys() == {"live", "orphan"} and "libcuda" in failed["live"]
    assert (tmp_path / "out/idle/smi.xml").exists() and not (tmp_path / "out/live/smi.xml").exists()
    still = [name for name in os.listdir("/proc") if name.isdigit() and str(TOOL).encode() in command(name).split(b"\0")]
    assert still == []


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_without_a_driver_nothing_is_recorded(tmp_path):
    done = run(tmp_path, "/nonexistent/nvidia-smi", "--only", "idle")
    assert done.returncode == 3 and "/nonexistent/nvidia-smi" in done.stderr and not list((tmp_path / "out").iterdir())


def test_an_unknown_situation_is_refused(tmp_path, nvidia_smi):
    done = run(tmp_path, nvidia_smi, "--only", "idle,clean")
    assert done.returncode == 2 and "no such situation: clean" in done.stderr and not (tmp_path / "out").exists()


def test_what_names_the_machine_is_replaced():
    text = (
        "<serial>1652823055</serial><pdi>0x4a</pdi><board_id>N/A</board_id><uuid>GPU-528EEAEB-1b2c-4d5e-8f90-0123456789ab</uuid>"
        f" {'ab' * 32} spark-77 spark-770 {sys.executable} {TOOL}"
    )
    assert record_gpu.redact(text, "spark-77") == (
        "<serial>0</serial><pdi>0</pdi><board_id>N/A</board_id><uuid>GPU-00000000-0000-0000-0000-000000000000</uuid>"
        f" {'0' * 64} node spark-770 /usr/bin/python3 /x/record.py"
    )


def test_ancestors_keep_no_arguments():
    lines = record_gpu.ancestors(os.getpid()).splitlines()
    assert lines[0].split()[0] == str(os.getpid()) and lines[0].split()[2] == str(os.getppid())
    assert all(len(line.split(" ", 3)) == 4 for line in lines) and "test_record_gpu" not in "".join(lines)
    assert record_gpu.ancestors(2**22 + 1) == ""


#: Stands for the driver's library: every call succeeds, memory is the machine's. It lists nothing, so the recorder's fake tool goes on as it is.
LIBCUDA = """
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned f) { return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGet(int *d, int n) { *d = 0; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)1; return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuMemAlloc_v2(unsigned long long *p, size_t n) { *p = (unsigned long long)malloc(n); return 0; }
int cuMemHostAlloc(void **p, size_t n, unsigned f) { *p = malloc(n); return 0; }
int cuMemAllocManaged(unsigned long long *p, size_t n, unsigned f) { *p = (unsigned long long)malloc(n); return 0; }
int cuMemsetD8_v2(unsigned long long p, unsigned char v, size_t n) { memset((void *)p, v, n); return 0; }
int cuCtxSynchronize(void) { return 0; }
"""


def test_every_situation_is_made_as_its_name_says(tmp_path, nvidia_smi, monkeypatch):
    """With a fake driver library: processes that hold memory, are killed, left behind or adopted; none of them remains."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    (tmp_path / "cuda.c").write_text(LIBCUDA)
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "cuda.c")], check=True, timeout=60)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    names = ["idle", "live", "defunct", "orphan", "pinned", "managed", *(["pidns"] if os.geteuid() == 0 else [])]
    done = run(tmp_path, nvidia_smi, "--gib", "0.01", "--only", ",".join(names))
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "out"
    state = {folder.name: (folder / "stat").read_text().rpartition(")")[2].split()[:2] for folder in out.iterdir() if (folder / "stat").exists()}
    assert state.keys() == {"live", "defunct", "defunct_at_once", "orphan_before", "orphan", "pinned", "managed"} | ({"pidns"} & set(names))
    assert {name for name, (letter, _parent) in state.items() if letter == "Z"} == {"defunct", "defunct_at_once"}
    engine = (out / "orphan_before/engine/stat").read_text().split()[0]
    assert state["orphan_before"][1] == engine != state["orphan"][1]
    for situation, title in (("live", "VLLM::Worker_TP0"), ("orphan", "VLLM::EngineCore"), ("orphan_before/engine", "vllm serve")):
        assert (out / situation / "cmdline").read_text().startswith(title)
    if "pidns" in names:
        line = next(line for line in (out / "pidns/status").read_text().splitlines() if line.startswith("NSpid:"))
        assert line.split()[-1] == "1" and len(line.split()) == 3
    assert len((out / "orphan_ended/samples.jsonl").read_text().splitlines()) > 5 and not (out / "orphan_ended/stat").exists()
    # The shape is that of the fixtures: a recording that is put there is tested as it is.
    for folder in out.iterdir():
        if folder.is_dir():
            written = {path.name for path in folder.iterdir()}
            assert written <= {path.name for path in (RECORDED.parent / folder.name).iterdir()} | {"meminfo_before"}, folder.name
    assert [name for name in os.listdir("/proc") if name.isdigit() and str(TOOL).encode() in command(name).split(b"\0")] == []
    cores = [int((out / name / "stat").read_text().split()[0]) for name in ("live", "orphan", "pinned", "managed")]
    assert not any(command(pid) for pid in cores)
