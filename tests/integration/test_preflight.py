# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The preflight on nodes with a fault: exactly the right rules report it, on the right node, and the remedy fixes it.

The nodes have image and model but no cluster. A fault is real where a container can have it. The driver's tool, the RDMA
device, the kernel's log and memory figures are simulated, as everywhere in the lab.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import typing as t

import jsonschema
import pytest

from .lab import HEAD, RECORD_SCHEMA, WORKER, Lab
from .making import IMAGE, MODEL, SNAPSHOT, build, lab_profile, listener, moved_away, put_back

CLUSTER = "cluster"
BOTH = (HEAD, WORKER)
KERNEL_LOG = "/run/gb10-lab/kernel.log"
SYSFS = "/run/gb10-lab/sys"
NETDEV, DEVICE = "class/net/eth1", "class/infiniband/rocep1s0f0"
UNIT = "gb10-test-sickness"

#: Verdicts of the whole preflight when the driver tool does not answer.
BLIND = {
    **dict.fromkeys(("cuda_zombie.unknown", "gpu.mps", "gpu.present", "tenant.holding"), "unknown"),
    **dict.fromkeys(("container.foreign_gpu", "tenant.desktop", "tenant.idle"), "warn"),
}

Context = t.Callable[[Lab], t.ContextManager[t.Any]]


def look(lab: Lab, **variables: t.Any) -> dict[str, t.Any]:
    """Run the preflight alone and return its record. Assert that the record is valid, nothing changed and every node was judged."""
    skip = variables.pop("skip_tags", "")
    played = lab.play(tags="" if skip else "preflight", skip_tags=skip, **variables)
    record = played.stat("gb10_preflight")
    jsonschema.validate(record, RECORD_SCHEMA)
    assert played.changed == {} or skip
    assert record["nodes"] == list(BOTH)
    assert (played.rc != 0) == (record["verdict"] in ("block", "unknown")), played.failures
    for finding in record["findings"]:
        assert finding["remedy"], finding
        if finding["verdict"] in ("block", "unknown"):
            # Shown once, even if several nodes share it.
            message, remedy, shown = (re.sub(rf"\b{finding['node']}\b", "NODE", text) for text in (finding["message"], finding["remedy"], played.failures))
            assert sum(line.endswith(f"  {message}") for line in shown.splitlines()) == 1, (message, played.failures)
            assert remedy in shown, (remedy, played.failures)
    return record


def answers(record: dict[str, t.Any]) -> dict[tuple[str, str], str]:
    """Verdicts by rule and node, without passes and silenced findings."""
    return {(finding["id"], finding["node"]): finding["verdict"] for finding in record["findings"] if finding["verdict"] != "silenced"}


@pytest.fixture(scope="module")
def healthy(lab: Lab) -> None:
    """Nodes without a fault."""
    lab.clear()
    assert lab.play(tags="image,model").rc == 0
    assert_healthy(lab)


def assert_healthy(lab: Lab) -> None:
    record = look(lab)
    assert answers(record) == {}
    # The lab's inventory silences by id what a container cannot have. Silenced findings are listed and counted.
    silenced = {finding["id"] for finding in record["findings"]}
    assert silenced <= {entry["id"] for entry in record["tuned"]}
    assert record["counts"]["silenced"] == len(record["findings"])


# --- what can be wrong ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def nothing(_lab: Lab) -> t.Iterator[None]:
    """Do nothing: only a variable is wrong."""
    yield


def driver(*hosts: str, **state: t.Any) -> Context:
    return lambda lab: lab.driver(hosts=hosts or BOTH, **state)


def away(host: str, path: str) -> Context:
    return lambda lab: moved_away(lab, host, path)


def taken(host: str, port: int) -> Context:
    return lambda lab: listener(lab, host, port)


def variables(host: str, **values: t.Any) -> Context:
    @contextlib.contextmanager
    def made(lab: Lab) -> t.Iterator[None]:
        lab.write_host_vars(host, values)
        try:
            yield
        finally:
            lab.remove_host_vars(host)

    return made


def logged(host: str, *messages: str) -> Context:
    """Lines in the simulated log of a node's kernel."""

    @contextlib.contextmanager
    def made(lab: Lab) -> t.Iterator[None]:
        before = lab.run(host, "cat", KERNEL_LOG)
        lines = "".join(f"3,{100 + number},{90_000_000 + number},-;{message}\n" for number, message in enumerate(messages))
        lab.write(host, KERNEL_LOG, before + lines)
        try:
            yield
        finally:
            lab.write(host, KERNEL_LOG, before)

    return made


def meminfo(host: str, **figures: int) -> Context:
    """Replace memory figures (kB) of a node."""

    @contextlib.contextmanager
    def made(lab: Lab) -> t.Iterator[None]:
        lines = lab.run(host, "cat", "/proc/meminfo").splitlines()
        changed = [f"{line.split(':')[0]}: {figures[line.split(':')[0]]} kB" if line.split(":")[0] in figures else line for line in lines]
        path = "/run/gb10-lab/meminfo"
        lab.write(host, path, "\n".join(changed) + "\n")
        with variables(host, gb10_node_roots={"kernel_log": KERNEL_LOG, "sysfs_root": SYSFS, "meminfo": path})(lab):
            yield
        lab.run(host, "rm", path)

    return made


def text_in(host: str, path: str, line: str) -> Context:
    """Add a line to a file of a node. A remedy may remove it again."""

    @contextlib.contextmanager
    def made(lab: Lab) -> t.Iterator[None]:
        existed = lab.run(host, "sh", "-c", 'test -e "$1" && echo yes || true', "sh", path).strip()
        before = lab.run(host, "cat", path) if existed else ""
        lab.run(host, "mkdir", "-p", path.rsplit("/", 1)[0])
        lab.write(host, path, f"{before}{line}\n")
        try:
            yield
        finally:
            if existed:
                lab.write(host, path, before)
            else:
                lab.run(host, "rm", "-f", path)

    return made


def service(host: str, program: str, *arguments: str, driver_says: t.Callable[[int], dict[str, t.Any]] | None = None) -> Context:
    """Run another user's process in a unit, which also ends it. ``driver_says`` creates the driver's answer from its pid."""

    @contextlib.contextmanager
    def made(lab: Lab) -> t.Iterator[None]:
        lab.run(
            host, "systemd-run", "--quiet", f"--unit={UNIT}", "--collect", "bash", "-c", 'exec -a "$0" "$@"', program, *(arguments or ("sleep", "infinity"))
        )
        pid = int(lab.run(host, "systemctl", "show", "--property=MainPID", "--value", UNIT))
        try:
            with lab.driver(hosts=(host,), **driver_says(pid)) if driver_says else contextlib.nullcontext():
                yield pid
        finally:
            lab.run(host, "systemctl", "stop", UNIT, check=False)

    return made


def container(host: str, name: str, *options: str) -> Context:
    """A running container of another user."""

    @contextlib.contextmanager
    def made(lab: Lab) -> t.Iterator[None]:
        lab.run(host, "docker", "run", "--detach", f"--name={name}", "--network=none", *options, "--entrypoint=sleep", "gb10-lab/engine:0.32.0", "infinity")
        try:
            yield
        finally:
            lab.run(host, "docker", "rm", "--force", name)

    return made


def attribute(host: str, path: str, value: str) -> Context:
    """Replace a value in the simulated sysfs of a node."""

    @contextlib.contextmanager
    def made(lab: Lab) -> t.Iterator[None]:
        whole = f"{SYSFS}/{path}"
        before = lab.run(host, "cat", whole)
        lab.write(host, whole, f"{value}\n")
        try:
            yield
        finally:
            lab.write(host, whole, before)

    return made


@contextlib.contextmanager
def docker_stopped(lab: Lab) -> t.Iterator[None]:
    lab.run(WORKER, "systemctl", "stop", "docker.socket", "docker.service")
    try:
        yield
    finally:
        lab.run(WORKER, "systemctl", "start", "docker")


@contextlib.contextmanager
def link_down(lab: Lab) -> t.Iterator[None]:
    lab.run(WORKER, "ip", "link", "set", "eth1", "down")
    try:
        yield
    finally:
        lab.run(WORKER, "ip", "link", "set", "eth1", "up")


@contextlib.contextmanager
def small_packets(lab: Lab) -> t.Iterator[None]:
    lab.run(WORKER, "ip", "link", "set", "eth1", "mtu", "1500")
    try:
        yield
    finally:
        lab.run(WORKER, "ip", "link", "set", "eth1", "mtu", "9000")


@contextlib.contextmanager
def small_disk(lab: Lab) -> t.Iterator[None]:
    lab.run(WORKER, "mkdir", "-p", "/mnt/small")
    lab.run(WORKER, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt/small")
    try:
        with variables(WORKER, gb10_hf_home="/mnt/small")(lab):
            yield
    finally:
        lab.run(WORKER, "umount", "/mnt/small")


@contextlib.contextmanager
def other_kernel_parameters(lab: Lab) -> t.Iterator[None]:
    """Replace the kernel parameters in /proc/cmdline."""
    lab.write(WORKER, "/run/gb10-lab/cmdline", "ro quiet nvidia-drm.modeset=0\n")
    lab.run(WORKER, "mount", "--bind", "/run/gb10-lab/cmdline", "/proc/cmdline")
    try:
        yield
    finally:
        lab.run(WORKER, "umount", "/proc/cmdline")


@contextlib.contextmanager
def crowd(lab: Lab) -> t.Iterator[None]:
    program = "import subprocess\nall = [subprocess.Popen(['sleep', 'infinity']) for _ in range(4000)]\nprint('up', flush=True)\nall[0].wait()"
    out = "/run/gb10-lab/crowd"
    unit = ("systemd-run", "--quiet", f"--unit={UNIT}", "--collect", f"--property=StandardOutput=truncate:{out}", "--property=TasksMax=infinity")
    lab.run(WORKER, *unit, "python3", "-c", program)
    try:
        lab.run(WORKER, "timeout", "120", "sh", "-c", f"until [ -s {out} ]; do sleep 0.2; done")
        yield
    finally:
        lab.run(WORKER, "systemctl", "stop", UNIT)


@contextlib.contextmanager
def image_gone(lab: Lab) -> t.Iterator[None]:
    lab.run(WORKER, "docker", "tag", IMAGE, "users/kept:1")
    lab.run(WORKER, "docker", "rmi", "--no-prune", IMAGE)
    try:
        yield
    finally:
        put_back(lab, "users/kept:1")


@contextlib.contextmanager
def image_of_another_base(lab: Lab) -> t.Iterator[None]:
    lab.run(WORKER, "docker", "tag", IMAGE, "users/kept:1")
    build(lab, f"FROM {IMAGE}\nLABEL io.gb10.recipe=another\n", IMAGE)
    try:
        yield
    finally:
        put_back(lab, "users/kept:1")


@contextlib.contextmanager
def another_file_in_the_model(lab: Lab) -> t.Iterator[None]:
    lab.write(WORKER, f"{SNAPSHOT}/extra_tokens.json", '{"added": true}\n')
    try:
        yield
    finally:
        lab.run(WORKER, "rm", "-f", f"{SNAPSHOT}/extra_tokens.json")


@contextlib.contextmanager
def unwaited_child(lab: Lab) -> t.Iterator[None]:
    """A GPU process that has ended, and whose parent does not wait for it."""
    program = "import os, time\npid = os.fork() or os._exit(0)\nprint(pid, flush=True)\ntime.sleep(10**6)"
    out = "/run/gb10-lab/defunct"
    lab.run(HEAD, "systemd-run", "--quiet", f"--unit={UNIT}", "--collect", f"--property=StandardOutput=truncate:{out}", "python3", "-c", program)
    try:
        pid = int(lab.run(HEAD, "timeout", "20", "sh", "-c", f"until [ -s {out} ]; do :; done; cat {out}"))
        with lab.driver(hosts=(HEAD,), processes=[{"pid": pid, "type": "C", "name": "[Not Found]", "used_mib": 0}]):
            yield
    finally:
        lab.run(HEAD, "systemctl", "stop", UNIT, check=False)


def holds(mib: int, name: str) -> t.Callable[[int], dict[str, t.Any]]:
    return lambda pid: {"processes": [{"pid": pid, "type": "C", "name": name, "used_mib": mib}]}


# --- each fault with its verdicts -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sickness:
    """A fault, and the complete verdicts of the preflight by rule and node.

    ``cure`` is a command from a finding's remedy that is run on ``at``. After it everything passes.
    ``remedy`` is the remedy's wording if the remedy cannot contain a concrete name.
    """

    make: Context
    says: dict[tuple[str, str], str]
    settings: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    cure: str = ""
    remedy: str = ""
    at: str = WORKER


def on(hosts: t.Iterable[str], **verdicts: str) -> dict[tuple[str, str], str]:
    return {(id.replace("__", "."), host): verdict for host in hosts for id, verdict in verdicts.items()}


SICK = {
    "docker stopped": Sickness(docker_stopped, on([WORKER], docker__reachable="block"), cure="systemctl start docker"),
    "device of the fabric missing": Sickness(away(WORKER, "/dev/infiniband"), on([WORKER], device__present="block")),
    "small disk": Sickness(small_disk, on([WORKER], disk__free="block", model__ready="warn")),
    "image missing": Sickness(image_gone, on([WORKER], image__present="warn")),
    "image differs": Sickness(image_of_another_base, {("image.same", CLUSTER): "block"}),
    "driver differs": Sickness(driver(WORKER, replace={"580.159.03": "580.95.05"}), {("gpu.driver_same", CLUSTER): "block"}),
    "driver of the 590 line": Sickness(driver(replace={"580.159.03": "590.48.01"}), on(BOTH, gpu__driver_known_bad="warn")),
    "another GPU": Sickness(driver(WORKER, replace={"NVIDIA GB10": "NVIDIA RTX 2000"}), on([WORKER], gpu__present="block")),
    "driver tool missing": Sickness(driver(WORKER, missing=True), {(id, WORKER): verdict for id, verdict in BLIND.items()}),
    "driver tool fails": Sickness(driver(WORKER, exit_code=9), {(id, WORKER): verdict for id, verdict in BLIND.items()}),
    "driver tool prints rubbish": Sickness(driver(HEAD, rubbish=True), {(id, HEAD): verdict for id, verdict in BLIND.items()}),
    "driver tool breaks off": Sickness(driver(WORKER, half=True), {(id, WORKER): verdict for id, verdict in BLIND.items()}),
    "driver tool speaks another language": Sickness(
        driver(WORKER, says="NVIDIA-SMI ist fehlgeschlagen, da keine Verbindung zum NVIDIA-Treiber möglich war."),
        {(id, WORKER): verdict for id, verdict in BLIND.items()},
    ),
    "GPU too hot": Sickness(
        driver(HEAD, replace={"hw_thermal_slowdown>Not Active": "hw_thermal_slowdown>Active"}),
        on([HEAD], gpu__throttled="warn"),
    ),
    "GPU stuck in low power": Sickness(
        driver(WORKER, replace={"<gpu_util>0 %": "<gpu_util>96 %"}),
        on([WORKER], gpu__stuck_low_power="warn"),
    ),
    "CUDA MPS": Sickness(text_in(HEAD, "/etc/environment", "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps"), on([HEAD], gpu__mps="block")),
    "ghost": Sickness(
        driver(WORKER, processes=[{"pid": 4194000, "type": "C", "name": "VLLM::EngineCore", "used_mib": 70000}]),
        on([WORKER], cuda_zombie__ghost="block"),
    ),
    "orphan": Sickness(service(WORKER, "VLLM::EngineCore", driver_says=holds(600, "VLLM::EngineCore")), on([WORKER], cuda_zombie__orphan="block")),
    "defunct": Sickness(unwaited_child, on([HEAD], cuda_zombie__defunct="warn")),
    "tenant with memory": Sickness(
        service(WORKER, "/usr/local/bin/ollama", driver_says=holds(30000, "/usr/local/bin/ollama")), on([WORKER], tenant__holding="block")
    ),
    "idle tenant": Sickness(
        service(HEAD, "/usr/local/bin/ollama"), on([HEAD], tenant__idle="warn"), cure=f"systemctl stop {UNIT}", remedy="systemctl stop NAME", at=HEAD
    ),
    "container with the GPU": Sickness(
        container(WORKER, "users-gpu", "--gpus=all"),
        on([WORKER], container__foreign_gpu="warn"),
        cure="docker stop users-gpu",
    ),
    "another cluster": Sickness(
        container(WORKER, "gb10-other-worker", "--label=io.gb10.owner=gb10.cluster", "--label=io.gb10.cluster=other", "--label=io.gb10.role=worker"),
        on([WORKER], container__other_cluster="block"),
    ),
    "worker without its head": Sickness(
        container(WORKER, "gb10-gb10-worker", "--label=io.gb10.owner=gb10.cluster", "--label=io.gb10.cluster=gb10", "--label=io.gb10.role=worker"),
        on([WORKER], container__orphaned="warn"),
    ),
    "port taken": Sickness(taken(HEAD, 8000), on([HEAD], port__free="block"), cure="systemctl stop gb10-test-listener", remedy="stop it", at=HEAD),
    "variable in /etc/environment": Sickness(text_in(WORKER, "/etc/environment", "NCCL_IB_DISABLE=1"), on([WORKER], env__left="warn")),
    "variable in profile.d": Sickness(text_in(HEAD, "/etc/profile.d/old-engine.sh", "export VLLM_HOST_IP=10.0.0.1"), on([HEAD], env__left="warn")),
    "variable of systemd": Sickness(
        text_in(HEAD, "/etc/systemd/system.conf.d/old-engine.conf", "[Manager]\nDefaultEnvironment=VLLM_USE_V1=0"),
        on([HEAD], env__left="warn"),
    ),
    "shard missing": Sickness(
        away(WORKER, f"{SNAPSHOT}/model-00002-of-00002.safetensors"),
        on([WORKER], model__ready="block"),
        settings={"gb10_offline": True, "gb10_model_copy": "never"},
    ),
    "shard missing, and may be fetched": Sickness(away(WORKER, f"{SNAPSHOT}/model-00002-of-00002.safetensors"), on([WORKER], model__ready="warn")),
    "model differs": Sickness(another_file_in_the_model, {("model.same", CLUSTER): "block"}),
    "link down": Sickness(
        link_down,
        on([WORKER], fabric__carrier="block"),
        cure="ip link set eth1 up",
    ),
    "address on no interface": Sickness(variables(HEAD, gb10_fabric_address="10.255.255.1"), on([HEAD], fabric__address="block")),
    "addresses in two subnets": Sickness(variables(WORKER, gb10_fabric_address="10.77.0.12"), {("fabric.one_network", CLUSTER): "warn"}),
    "interface that is not there": Sickness(nothing, on(BOTH, fabric__interface="block"), settings={"gb10_fabric_interfaces": ["eth9"]}),
    "API on another's address": Sickness(nothing, on([HEAD], api__address="block"), settings={"gb10_api_address": "10.77.0.12"}),
    "RDMA device down": Sickness(attribute(WORKER, f"{DEVICE}/ports/1/state", "1: DOWN"), on([WORKER], rdma__active="block")),
    "RDMA device of another name": Sickness(nothing, on(BOTH, rdma__device="block", rdma__named="warn"), settings={"gb10_rdma_devices": ["mlx5_9"]}),
    "no RDMA device": Sickness(
        away(WORKER, f"{SYSFS}/class/infiniband"),
        {**on(BOTH, container__memlock="warn"), **on([WORKER], rdma__present="block")},
        settings={"gb10_fabric_fallback": "none"},
    ),
    "GID of another kind": Sickness(
        attribute(WORKER, f"{DEVICE}/ports/1/gid_attrs/types/1", "IB/RoCE v1"),
        {**on(BOTH, container__memlock="warn"), **on([WORKER], fabric__gid="block")},
        settings={"gb10_fabric_fallback": "none"},
    ),
    "small packets on one node": Sickness(
        small_packets, {**on([WORKER], fabric__mtu="warn"), ("fabric.mtu_same", CLUSTER): "block"}, cure="ip link set eth1 mtu 9000"
    ),
    "slow link": Sickness(attribute(HEAD, f"{NETDEV}/speed", "100000"), on([HEAD], fabric__speed="warn")),
    "narrow PCIe link": Sickness(attribute(WORKER, f"{NETDEV}/device/current_link_width", "1"), on([WORKER], fabric__pcie="warn")),
    "errors on the link": Sickness(attribute(HEAD, f"{DEVICE}/ports/1/counters/symbol_error", "5000"), on([HEAD], fabric__errors="warn")),
    "firmware of the card differs": Sickness(attribute(WORKER, f"{DEVICE}/fw_ver", "28.39.1002"), {("fabric.firmware_same", CLUSTER): "warn"}),
    "memory differs": Sickness(
        meminfo(WORKER, MemTotal=13_000_000, MemAvailable=12_000_000),
        {("memory.alike", CLUSTER): "block", ("memory.available_alike", CLUSTER): "warn"},
    ),
    "swap in use": Sickness(meminfo(WORKER, SwapTotal=16_000_000, SwapFree=2_000_000), on([WORKER], memory__swap="warn")),
    "memory taken": Sickness(nothing, on(BOTH, memory__available="block"), settings={"gb10_serve_arguments": {"gpu_memory_utilization": 0.99}}),
    "Xid that a reboot clears": Sickness(
        logged(WORKER, "NVRM: Xid (PCI:000f:01:00): 79, pid=1234, name=python3, GPU has fallen off the bus."),
        on([WORKER], log__xid_fatal="block"),
    ),
    "Xid of an application": Sickness(
        logged(HEAD, "NVRM: Xid (PCI:000f:01:00): 43, pid=1234, name=python3, Ch 00000008"),
        on([HEAD], log__xid="warn"),
    ),
    "PCIe error": Sickness(
        logged(WORKER, "mlx5_core 0000:01:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer"),
        on([WORKER], log__aer="block"),
    ),
    "process ended for lack of memory": Sickness(
        logged(WORKER, "Out of memory: Killed process 4711 (python3) total-vm:100kB, anon-rss:90kB, file-rss:0kB"),
        on([WORKER], log__oom="warn"),
    ),
    "kernel at fault": Sickness(
        logged(HEAD, "Internal error: Oops: 0000000096000004 [#1]  SMP"),
        on([HEAD], log__oops="block"),
    ),
    "card's firmware hangs": Sickness(
        logged(WORKER, "mlx5_core 0000:01:00.0: wait_func:1151:(pid 7): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource"),
        on([WORKER], log__firmware="block"),
    ),
    "card complains": Sickness(
        logged(WORKER, "mlx5_core 0000:01:00.0: poll_health:800:(pid 0): device's health compromised - reached miss count"),
        on([WORKER], log__mlx5="warn"),
    ),
    # None of these is a fault: none causes a finding or hides one. Stock DGX OS switches modeset off, and CUDA sees 121.7 GiB.
    "driver without memory": Sickness(logged(HEAD, "NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)"), {}),
    "binary in the kernel's log": Sickness(logged(WORKER, "usb 1-1: \u0000\u0001\ufffd\u001b[31m NVRM"), {}),
    "four thousand processes": Sickness(crowd, {}),
    "modeset off": Sickness(other_kernel_parameters, {}),
}


#: Every tenth fault also runs in `make test`.
NAMES = [pytest.param(name, marks=[pytest.mark.share] if number % 10 == 0 else []) for number, name in enumerate(SICK)]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.replace(" ", "-"))
def test_what_is_wrong_is_reported_on_the_right_node(lab: Lab, healthy: None, name: str) -> None:
    sick = SICK[name]
    with sick.make(lab):
        record = look(lab, **sick.settings)
        assert answers(record) == sick.says
        if sick.cure:
            assert any((sick.remedy or sick.cure) in finding["remedy"] for finding in record["findings"])
            lab.run(sick.at, *sick.cure.split())
            assert_healthy(lab)


def test_a_driver_tool_that_hangs_is_unknown(lab: Lab, healthy: None) -> None:
    with lab.driver(hosts=(WORKER,), hang=True):
        record = look(lab)
    assert answers(record) == {(id, WORKER): verdict for id, verdict in BLIND.items()}
    assert all("did not answer" in finding["message"] for finding in record["findings"] if finding["verdict"] == "unknown")


def test_a_profile_for_larger_nodes(lab: Lab, healthy: None) -> None:
    larger = lab_profile(lab, "lab_larger", ("memory: {}", "memory: {class_gb: 128}"))
    assert answers(look(lab, gb10_profile=larger)) == on(BOTH, memory__class="block")


def test_what_a_left_out_stage_would_repair_blocks(lab: Lab, healthy: None) -> None:
    with image_gone(lab):
        record = look(lab, skip_tags="image")
    assert answers(record) == on([WORKER], image__present="block")


def test_two_sick_nodes_are_judged_together(lab: Lab, healthy: None) -> None:
    with SICK["swap in use"].make(lab), SICK["CUDA MPS"].make(lab), SICK["Xid that a reboot clears"].make(lab):
        record = look(lab)
    assert answers(record) == {**SICK["swap in use"].says, **SICK["CUDA MPS"].says, **SICK["Xid that a reboot clears"].says}


def test_after_all_that_the_nodes_are_healthy(lab: Lab, healthy: None) -> None:
    assert_healthy(lab)
    # These tests left nothing that would affect the next ones.
    for host in BOTH:
        assert lab.run(host, "cat", "/etc/environment", check=False).count("=") == 0
        assert f"{MODEL}.away" not in lab.run(host, "ls", "-d", f"{MODEL}.away", check=False)
