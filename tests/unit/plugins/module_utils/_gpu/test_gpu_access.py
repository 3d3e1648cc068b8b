# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a container requests the GPU, chosen by the facts of Docker's engine, and whether it reaches the GPU."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import ExecResult
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access, gpu_probe

YAML = (pathlib.Path(__file__).parents[3] / "fixtures/cdi/composed_nvidia_yaml.txt").read_text(encoding="utf-8")

#: An excerpt of ``docker info`` from DGX OS 7.5: runc alone, and the CDI devices.
DGX_OS = {
    "ServerVersion": "29.2.1",
    "Runtimes": {"io.containerd.runc.v2": {}, "runc": {}},
    "DefaultRuntime": "runc",
    "CDISpecDirs": ["/nonexistent/cdi"],
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}, {"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
}
#: The lab's engine 20.10, recorded.
OLD = {"ServerVersion": "20.10.24+dfsg1", "Runtimes": {"io.containerd.runc.v2": {}, "runc": {}}, "DefaultRuntime": "runc"}

BY_DRIVER = {"driver": "nvidia", "capabilities": [["gpu"]]}


def engine(info):
    return types.SimpleNamespace(get=lambda path: info if path == "/info" else None)


@pytest.mark.parametrize(
    ("gpus", "devices", "requests"),
    [
        ("none", ["nvidia.com/gpu=all"], []),
        ([], ["nvidia.com/gpu=all"], []),
        ("all", [], [{**BY_DRIVER, "count": -1}]),
        ([0, "GPU-1f2e"], [], [{**BY_DRIVER, "device_ids": ["0", "GPU-1f2e"]}]),
        ("all", ["nvidia.com/gpu=0", "nvidia.com/gpu=all"], [{"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]}]),
        ([0], ["nvidia.com/gpu=0", "nvidia.com/gpu=all"], [{"driver": "cdi", "device_ids": ["nvidia.com/gpu=0"]}]),
        ([0, "GPU-1f2e"], ["nvidia.com/gpu=0"], [{**BY_DRIVER, "device_ids": ["0", "GPU-1f2e"]}]),
        ("all", ["nvidia.com/gpu=0", "amd.com/gpu=all"], [{**BY_DRIVER, "count": -1}]),
    ],
)
def test_cdi_is_asked_where_it_has_all_of_them(gpus, devices, requests):
    assert gpu_access.device_requests(gpus, devices) == requests


@pytest.mark.parametrize(("info", "devices"), [(DGX_OS, ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]), (OLD, [])])
def test_the_engine_is_asked_which_devices_it_has(info, devices):
    assert gpu_access.cdi_devices(engine(info)) == devices


def test_an_engine_that_lists_none_reads_specifications(tmp_path):
    """Before API 1.50 the answer names the directories alone."""
    place = tmp_path / "cdi"
    place.mkdir()
    (place / "nvidia.yaml").write_text(YAML)
    (place / "broken.yaml").write_text("devices:\n- x\n")
    info = {"CDISpecDirs": ["/etc/cdi", "/var/run/cdi-missing"]}
    assert "nvidia.com/gpu=all" in gpu_access.cdi_devices(engine(info), str(tmp_path))


class Booting:
    """A DGX OS engine whose GPU devices appear at a given look, and a systemd with the state of the unit that writes them."""

    def __init__(self, monkeypatch, comes=None, refresh="enabled\n", dirs=("/etc/cdi", "/var/run/cdi")):
        self.looks, self.comes, self.dirs, self.asked = 0, comes, list(dirs), []
        monkeypatch.setattr(gpu_access, "run_tool", self.systemctl)
        # No look waits for the next, and the last one is the fifth.
        monkeypatch.setattr(gpu_access, "clock", lambda timeout, sleep: iter([0.0, 1.0, 2.0, 3.0, timeout]))
        self.refresh = refresh

    def systemctl(self, argv, timeout):
        self.asked.append((list(argv), timeout))
        if self.refresh is None:
            raise UnknownState("systemctl cannot be run")
        return types.SimpleNamespace(stdout=self.refresh)

    def get(self, path):
        self.looks += path == "/info"
        there = self.comes is not None and self.looks >= self.comes
        return {**DGX_OS, "CDISpecDirs": self.dirs, "DiscoveredDevices": DGX_OS["DiscoveredDevices"] if there else []}


def test_devices_that_are_there_are_not_waited_for(monkeypatch):
    engine = Booting(monkeypatch, comes=0)
    assert "nvidia.com/gpu=all" in gpu_access.await_cdi_devices(engine, "all", True) and (engine.looks, engine.asked) == (1, [])


@pytest.mark.parametrize(("before", "refresh"), [(True, "disabled\n"), (False, "enabled\n"), (True, None)], ids=["as before", "by its unit", "no systemd"])
def test_devices_that_come_late_are_waited_for(monkeypatch, before, refresh):
    engine = Booting(monkeypatch, comes=4, refresh=refresh)
    assert "nvidia.com/gpu=all" in gpu_access.await_cdi_devices(engine, "all", before)
    assert all(argv == (["systemctl", "is-enabled", "nvidia-cdi-refresh.service"], 30.0) for argv in engine.asked) and len(engine.asked) <= 1


@pytest.mark.parametrize(("refresh", "dirs"), [("disabled\n", ["/c"]), ("masked\n", ["/c"]), (None, ["/c"]), ("enabled\n", [])])
def test_devices_that_nothing_announces_are_not_waited_for(monkeypatch, refresh, dirs):
    engine = Booting(monkeypatch, refresh=refresh, dirs=dirs)
    assert gpu_access.await_cdi_devices(engine, "all") == []
    assert gpu_access.await_cdi_devices(Booting(monkeypatch), "none", True) == [], "who wants none waits for none"


@pytest.mark.parametrize(
    ("before", "why"), [(True, "the container before had its GPU by CDI"), (False, "nvidia-cdi-refresh.service writes them at boot")], ids=["before", "unit"]
)
def test_missing_devices_do_not_change_the_request(monkeypatch, before, why):
    with pytest.raises(WaitTimeout) as caught:
        gpu_access.await_cdi_devices(Booting(monkeypatch), [0], before)
    assert str(caught.value) == f"after 120 s the Docker engine still has no nvidia.com/gpu=0 among its devices, and {why}"
    assert caught.value.remedy.startswith("sudo systemctl restart nvidia-cdi-refresh, which writes /var/run/cdi/nvidia.yaml")


@pytest.mark.parametrize(
    ("host", "by_cdi"),
    [
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, True),
        ({"DeviceRequests": [{"Driver": "nvidia", "Count": -1}]}, False),
        ({"DeviceRequests": None}, False),
        (None, False),
    ],
)
def test_how_a_container_was_given_its_gpu(host, by_cdi):
    assert gpu_access.given_by_cdi({"HostConfig": host}) is by_cdi


@pytest.mark.parametrize("info", [None, [], {"CDISpecDirs": 3}, {"DiscoveredDevices": [3]}])
def test_rubbish_is_unknown(info):
    with pytest.raises(UnknownState):
        gpu_access.cdi_devices(engine(info))


# -- the proof -------------------------------------------------------------------------------------------------------

IMAGE = {"Id": "sha256:abc"}
COMPAT = "/usr/local/cuda/compat/lib.real/libcuda.so.595.45.04"
REACHED = {"error": "", "driver": "580.159.03", "gpus": 1, "cuda": "13.2", "libcuda": [COMPAT], "image_cuda": "13.2"}


def proving(stdout="", error=None, info=None):
    """An engine whose throw-away container prints this, or that refuses the container."""
    runs = []

    def run_throwaway(image, argv, **options):
        runs.append((image, argv, options))
        if error:
            raise error
        return ExecResult(0, stdout, "")

    return types.SimpleNamespace(get=lambda path: info or DGX_OS, run_throwaway=run_throwaway, runs=runs)


def answered(**changes):
    return f"banner\n{gpu_probe.MARK}{json.dumps({**REACHED, **changes})}\n"


def test_the_proof_is_a_container_as_a_node_s_is():
    """Under the image's own entrypoint, with the GPU asked for the same way and the same protections, without network."""
    engine = proving(answered())
    assert gpu_access.prove(engine, IMAGE, ["/opt/nvidia/nvidia_entrypoint.sh"], "all", 7) == {**REACHED, "why": "", "remedy": ""}
    ((image, argv, options),) = engine.runs
    assert image == "sha256:abc" and argv[:3] == ["/opt/nvidia/nvidia_entrypoint.sh", "python3", "-c"] and "network" not in options
    assert options["labels"] == {"io.gb10.owner": "gb10.cluster", "io.gb10.role": "probe"} and options["timeout"] == 7
    assert options["host"] == {
        "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}],
        "ReadonlyRootfs": False,
    }


def test_an_older_engine_is_asked_for_its_driver():
    engine = proving(answered(), info=OLD)
    gpu_access.prove(engine, IMAGE, [], "all", 7)
    assert engine.runs[0][2]["host"]["DeviceRequests"] == [{"Driver": "nvidia", "Capabilities": [["gpu"]], "Count": -1}]


@pytest.mark.parametrize(
    ("words", "why", "remedy"),
    [
        # NVIDIA Container Toolkit's troubleshooting, its issues 1671 and 48, moby, runc.
        ("Failed to initialize NVML: Unknown Error", "may not use its devices", "docker.gpu_kept"),
        ("Failed to initialize NVML: Driver/library version mismatch", "of two versions", "Reboot"),
        ("Failed to initialize NVML: Driver Not Loaded", "no GPU that works", "nvidia-smi"),
        ("CUDA error 100: no CUDA-capable device is detected", "no GPU that works", "dmesg"),
        ("CUDA error 803: system has unsupported display driver / cuda driver combination", "of two versions", "Reboot"),
        ("CUDA error 804: forward compatibility was attempted on non supported HW", "does not support this GPU", "image.base"),
        ("libnvidia-ml.so.1: cannot open shared object file: No such file or directory", "none of the driver's libraries", "sudo nvidia-ctk cdi generate"),
    ],
)
def test_what_the_container_says_is_explained(words, why, remedy):
    answer = gpu_access.prove(proving(answered(error=words, gpus=0, cuda="", libcuda=[])), IMAGE, [], "all", 7)
    assert answer["error"] == words and why in answer["why"] and remedy in answer["remedy"]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', "Container Toolkit"),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all", "sudo nvidia-ctk cdi generate"),
        ("OCI runtime create failed: nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open", "reboot the node"),
    ],
)
def test_what_docker_refuses_is_explained(words, remedy):
    answer = gpu_access.prove(proving(error=ClusterError("refused POST", raw=words)), IMAGE, [], "all", 7)
    assert answer["error"] == words and remedy in answer["remedy"] and answer["gpus"] == 0


def test_devices_that_do_not_come_are_a_gpu_that_is_not_reached(monkeypatch):
    answer = gpu_access.prove(Booting(monkeypatch), IMAGE, [], "all", 7)
    assert "still has no nvidia.com/gpu=all" in answer["error"] and "CDI" in answer["why"] and "nvidia-cdi-refresh" in answer["remedy"]


def test_an_engine_that_hangs_is_unknown():
    with pytest.raises(UnknownState, match="no answer"):
        gpu_access.prove(proving(error=UnknownState("no answer within 7 s")), IMAGE, [], "all", 7)


@pytest.mark.parametrize(
    "stdout",
    [
        "",
        "banner\n",
        f"{gpu_probe.MARK}{{",
        f"{gpu_probe.MARK}[]",
        answered(gpus="1"),
        answered(error=None),
        answered(libcuda=[3]),
        answered(cuda="13"),
        answered(image_cuda="13.2; rm"),
        answered(more=1),
    ],
)
def test_another_answer_is_unknown(stdout):
    with pytest.raises(UnknownState, match="does not report whether it reaches the GPU"):
        gpu_access.prove(proving(stdout), IMAGE, [], "all", 7)


def test_an_answer_holds_for_its_boot_and_its_driver(tmp_path):
    proc = tmp_path / "proc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "driver/nvidia").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text("one\n")
    (proc / "driver/nvidia/version").write_text("NVRM version: 580.159.03\n")
    path, key = gpu_access.proof_path(str(tmp_path), IMAGE), gpu_access.proof_key("all", str(proc))
    assert gpu_access.read_proof(path, key) is None
    answer = {**gpu_access.NOT_REACHED, **REACHED}
    gpu_access.write_proof(path, key, answer)
    assert gpu_access.read_proof(path, gpu_access.proof_key("all", str(proc))) == answer == gpu_access.read_proof(path)
    assert gpu_access.read_proof(path, gpu_access.proof_key([0], str(proc))) is None
    for name, text in (("sys/kernel/random/boot_id", "two"), ("driver/nvidia/version", "NVRM version: 580.173.02")):
        before = (proc / name).read_text()
        (proc / name).write_text(text)
        assert gpu_access.read_proof(path, gpu_access.proof_key("all", str(proc))) is None
        (proc / name).write_text(before)


@pytest.mark.parametrize("content", ["garble", "[]", "{}", '{"answer": {}, "key": {}}', '{"answer": null, "key": {}}'])
def test_an_answer_that_cannot_be_used_is_none(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text(content)
    assert gpu_access.read_proof(str(path), {}) is None


# -- what runs in the container ----------------------------------------------------------------------------------------

DRIVER_C = pathlib.Path(__file__).parents[4] / "lab/node/files/driver.c"


@pytest.fixture(scope="module", name="driver")
def fixture_driver(tmp_path_factory):
    """The lab's simulated driver, compiled; its marker of a lost GPU is next to it."""
    place = tmp_path_factory.mktemp("driver")
    own = place / "driver.c"
    own.write_text(DRIVER_C.read_text(encoding="utf-8").replace("/var/lib/gb10-lab/gpu-lost", f"{place}/lost"), encoding="utf-8")
    library = place / "libcuda.so.1"
    options = ['-DDRIVER="580.159.03"', "-DCUDA=13000", "-w", "-shared", "-fPIC"]
    subprocess.run(["cc", *options, "-o", str(library), str(own)], check=True, timeout=60)
    (place / "libnvidia-ml.so.1").symlink_to(library.name)
    return place


def probed(place, **env):
    """Run the probe as in a container."""
    given = {"LD_LIBRARY_PATH": str(place), **env}
    done = subprocess.run([sys.executable, gpu_probe.__file__], env=given, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout.strip().removeprefix(gpu_probe.MARK))


def test_the_probe_asks_the_libraries_that_a_process_gets(driver):
    result = probed(driver, CUDA_VERSION="13.2.1.011")
    assert result == {"error": "", "driver": "580.159.03", "gpus": 1, "cuda": "13.0", "libcuda": [f"{driver}/libcuda.so.1"], "image_cuda": "13.2"}
    assert gpu_access.checked(result) == result


def test_the_probe_says_what_nvml_says_of_a_gpu_that_is_lost(driver):
    (driver / "lost").touch()
    try:
        assert probed(driver)["error"] == "Failed to initialize NVML: Unknown Error"
    finally:
        (driver / "lost").unlink()


def test_the_probe_without_a_driver(tmp_path):
    assert "cannot open shared object file" in probed(tmp_path)["error"]


@pytest.mark.parametrize(
    ("text", "cuda"),
    [("__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\nhip = None\n", "13.0"), ("cuda: Optional[str] = None\n", "")],
)
def test_without_a_variable_pytorch_says_what_it_was_built_with(tmp_path, text, cuda):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('PyTorch is not loaded for that')")
    (tmp_path / "torch/version.py").write_text(text)
    assert probed(tmp_path, PYTHONPATH=str(tmp_path))["image_cuda"] == cuda
    assert probed(tmp_path, PYTHONPATH=os.devnull)["image_cuda"] == ""
