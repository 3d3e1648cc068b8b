# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of the preflight: each is met by one change to a healthy node, and by no other."""

from __future__ import annotations

import copy
import re
import string
import typing as t
from pathlib import Path

import jsonschema
import pytest
import yaml
from healthy_pair import HEALTHY, PROFILE, RUN, SCHEMA, SETTINGS, asked, ids, judged, node, second

from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import checks, judging, rule_table
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import tuning as tunings

ROOT = Path(__file__).resolve().parents[5]
RAW = yaml.safe_load(rule_table.TABLE.read_text(encoding="utf-8"))["rules"]
ALL_ROWS = [*RAW, *yaml.safe_load(rule_table.DOCTOR_TABLE.read_text(encoding="utf-8"))["rules"]]
CLUSTER = "cluster"


def reported(kind: str, verdict: str) -> dict[str, t.Any]:
    """Return a finding as cuda_zombie_check makes it, with the machine's own hostname."""
    message = f"GPU process 4711 is {kind}"
    finding = {"id": f"cuda_zombie.{kind}", "node": "dgx", "verdict": verdict, "message": message, "measured": kind, "needed": "live"}
    return {**finding, "remedy": "Do this.", "source": "nvidia-smi and /proc"}


def event(kind: str, text: str) -> dict[str, t.Any]:
    return {"time": "2026-11-21T09:30:00Z", "kind": kind, "text": text, "count": 3}


def listener(**changes: t.Any) -> dict[str, t.Any]:
    held = {
        "port": 6379,
        "address": "0.0.0.0",
        "pid": 7,
        "process": "redis-server",
        "cmdline": "redis-server",
        "since": "2026-11-20T10:00:00Z",
        "container": "",
    }
    return {**held, **changes}


def container(**changes: t.Any) -> dict[str, t.Any]:
    ours = {"id": "4b1d", "name": "gb10-gb10-head", "image": "x", "cluster": "gb10", "role": "head", "spec": "1:9f", "state": "running", "status": "Up 3 hours"}
    return {**ours, **changes}


def drawing(pid: int, name: str, mib: int) -> dict[str, t.Any]:
    """Return a process that the driver lists with type G."""
    return tenant(pid=pid, name=name, kind="desktop", user="owner", cuda=False, gpu_mib=mib)


def tenant(**changes: t.Any) -> dict[str, t.Any]:
    ollama = {"pid": 901, "name": "ollama", "cmdline": "ollama serve", "user": "ollama", "kind": "ollama", "container": "", "gpu_mib": 21000, "rss_mb": 900}
    return {**ollama, **changes}


OLLAMA = {"name": "ollama", "unit": "ollama.service", "port": 11434, "health_path": "/api/tags", "memory_gib": 20}


def companion(**changes: t.Any) -> dict[str, t.Any]:
    there = {"name": "ollama", "declared": True, "running": True, "state": "active", "container": "", "pids": [901], "gpu_mib": 0, "anon_mb": 0}
    return {**there, **changes}


FOREIGN = {
    "id": "77aa",
    "name": "vllm_node",
    "image": "eugr/spark-vllm:latest",
    "state": "running",
    "command": "sleep infinity",
    "created": "2026-11-20T10:00:00Z",
    "gpu": True,
    "pids": [],
    "host_network": True,
    "env_names": [],
    "ports": [],
}
ARM_BASE = "images__nvcr.io/nvidia/vllm:26.05.post1-py3"
TAG = "images__local/vllm-ray:26.05.post1"
NETWORK_101 = [{"family": "ipv4", "address": "192.168.100.21", "prefix": 24, "network": "192.168.100.0/24", "scope": "global"}]
UNPINNED = {**PROFILE, "model": {**PROFILE["model"], "revision": None}}


GATED = {**PROFILE, "model": {**PROFILE["model"], "gated": True}}
LICENSED = {**PROFILE, "model": {**PROFILE["model"], "license": {"id": "some-license", "url": "https://example.com/license", "accept": True}}}


def driver(version: str) -> dict[str, t.Any]:
    """Return the changes of a node with another driver."""
    return {"gpus__0__driver_version": version, "docker__cdi_libcuda": [{"path": "/etc/cdi/nvidia.yaml", "libcuda": [version]}]}


#: Rule → the change that meets this rule and no other. Keys: `one` and `other` change the answer of node_info on spark-1 and
#: spark-2; `settings` those of spark-1; `zombies` the findings of cuda_zombie_check; `profile`; `node` that is concerned (spark-1);
#: `verdict` (the rule's own); `words` in message or remedy.
TRIGGERS: dict[str, dict[str, t.Any]] = {
    "docker.reachable": {
        "one": {"docker": {"reachable": False, "python_docker": None}, "errors": [{"section": "docker", "error": "no such file", "remedy": ""}]},
        "words": ["no such file", "systemctl start docker"],
    },
    "docker.sdk": {"one": {"docker__python_docker": None}, "words": ["SDK for Python is missing", "python3-docker"]},
    "docker.runtime": {"one": {"docker__nvidia": "none"}, "words": ["nvidia-ctk"]},
    "docker.snap": {"one": {"docker__snap": True}},
    "docker.cgroup_driver": {"one": {"docker__cgroup_driver": "cgroupfs"}, "node": CLUSTER, "words": ["spark-1 cgroupfs, spark-2 systemd"]},
    "docker.gpu_kept": {"one": {"docker__nvidia": "runtime"}, "words": ["daemon-reload", "cgroupfs", "nvidia-ctk cdi generate"]},
    "docker.cdi_stale": {
        "one": {"docker__cdi_libcuda": [{"path": "/etc/cdi/nvidia.yaml", "libcuda": ["580.95.05"]}]},
        "words": ["/etc/cdi/nvidia.yaml", "580.95.05", "580.159.03", "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"],
    },
    "docker.cdi_twice": {
        "one": {"docker__cdi_libcuda": [{"path": f"{place}/nvidia.yaml", "libcuda": ["580.159.03"]} for place in ("/etc/cdi", "/var/run/cdi")]},
        "words": ["/etc/cdi/nvidia.yaml and /var/run/cdi/nvidia.yaml describe", "sudo mv /etc/cdi/nvidia.yaml /etc/cdi/nvidia.yaml.away"],
    },
    "docker.store_same": {
        "one": {"docker__image_store": "containerd"},
        "node": CLUSTER,
        "words": ["spark-1 containerd, spark-2 classic", "pulled again", "gb10_image_copy=never"],
    },
    "docker.version": {"one": {"docker__version": "27.0.1"}, "node": CLUSTER},
    "docker.memlock": {"one": {"limits__docker_memlock_bytes": 65536}, "words": ["65536", "unlimited", "LimitMEMLOCK"]},
    "container.memlock": {"settings": {"memlock": 67108864}},
    "container.capabilities": {
        "profile": {**PROFILE, "needs": {"capabilities": ["SYS_PTRACE"]}},
        "node": "both",
        "words": ["needs the capability SYS_PTRACE", "gb10_container_capabilities: [SYS_PTRACE]"],
    },
    "device.present": {"one": {"devices": {"/dev/infiniband": False}}, "words": ["/dev/infiniband is missing"]},
    "disk.free": {"one": {"docker__root_free_bytes": 3 * checks.GIB}, "words": ["3.0 GiB free under /var/lib/docker"]},
    "image.present": {"one": {TAG: None}, "verdict": "warn", "words": ["stage image will fix this"]},
    "image.disk": {"one": {TAG: None, "docker__root_free_bytes": 25 * checks.GIB}, "beside": {"image.present"}},
    "image.architecture": {"one": {f"{TAG}__architecture": "amd64"}, "words": ["is for amd64, this node is arm64"]},
    "image.same": {"one": {f"{TAG}__labels": {"io.gb10.base": "sha256:01d", "io.gb10.recipe": "4ec1be"}}, "node": CLUSTER, "words": ["base image"]},
    "gpu.present": {"one": {"gpus__0__name": "NVIDIA H200"}, "words": ["it shows NVIDIA H200"]},
    "gpu.driver_known_bad": {"one": driver("590.48.01"), "other": driver("590.48.01"), "node": "both"},
    "gpu.driver_same": {"other": driver("580.95.05"), "node": CLUSTER, "words": ["spark-2 580.95.05"]},
    "gpu.vbios_same": {"other": {"gpus__0__vbios": "9A.0B.29.00.01"}, "node": CLUSTER},
    "gpu.stuck_low_power": {
        "one": {"gpus__0__utilisation_percent": 96, "gpus__0__sm_clock_mhz": 800, "gpus__0__power_w": 19.5},
        "words": ["96 %", "800 MHz", "unplug"],
    },
    "gpu.throttled": {"one": {"gpus__0__throttle": ["sw_thermal_slowdown"]}},
    "gpu.mps": {
        "one": {"environment": [{"where": "/etc/environment", "name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/tmp/mps"}]},
        "words": ["CUDA_MPS_PIPE_DIRECTORY in /etc/environment"],
    },
    "driver.loaded": {"one": {"kernel__modules__nvidia__installed": "580.173.02"}, "words": ["580.159.03", "580.173.02", "reboot"]},
    "driver.open": {"one": {"kernel__nvidia_flavor": "proprietary"}, "words": ["Xid 169", "-open"]},
    "driver.modprobe": {
        "one": {"kernel__nvidia_modprobe": "610.43.02-1ubuntu1"},
        "words": ["nvidia-modprobe is 610.43.02-1ubuntu1, the driver 580.159.03", "nvidia-modprobe=580.159.03*"],
    },
    "kernel.cma": {"one": {"memory__cma_total_mb": 0}, "words": ["CmaTotal is 0 kB", "ibv_reg_mr_iova2"]},
    "machine.id": {"one": {"kernel__machine": "0" * 16}, "other": {"kernel__machine": "0" * 16}, "node": CLUSTER, "words": ["spark-1 and spark-2 have"]},
    "driver.next_boot": {"one": {"kernel__next_boot": {"release": "7.0.0-1021-nvidia", "has_nvidia_driver": False}}},
    "kernel.known_bad": {
        "one": {"kernel__release": "7.0.0-1019-nvidia"},
        "other": {"kernel__release": "7.0.0-1019-nvidia"},
        "node": "both",
        "words": ["ENOMEM"],
    },
    "kernel.same": {"one": {"kernel__release": "6.17.0-1026-nvidia"}, "node": CLUSTER},
    "kernel.doubtful": {
        "one": {"kernel__release": "6.17.0-1008-nvidia"},
        "other": {"kernel__release": "6.17.0-1008-nvidia"},
        "node": "both",
        "words": ["panic", "many Sparks served on it"],
    },
    "log.xid_fatal": {"one": {"kernel_log__events": [event("xid", "NVRM: Xid (PCI:000f:01:00): 79, pid=1, GPU has fallen off the bus.")]}, "words": ["79"]},
    "log.xid": {"one": {"kernel_log__events": [event("xid", "NVRM: Xid (PCI:000f:01:00): 43, pid=4711, name=python3")]}},
    "log.gpu": {"one": {"kernel_log__events": [event("gpu", "NVRM: RmInitAdapter failed! (0x62:0x65:2028)")]}},
    "log.nvrm": {"one": {"kernel_log__events": [event("nvrm", "NVRM: krcWatchdogCallbackPerf_IMPL: something")]}},
    "log.aer": {"one": {"kernel_log__events": [event("aer", "pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error received")]}},
    "log.aer_card": {
        "one": {"kernel_log__events": [event("aer", "pcieport 0000:00:00.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:01:00.1")]}
    },
    "log.aer_other": {"one": {"kernel_log__events": [event("aer", "pcieport 0004:00:00.0: AER: Uncorrectable (Fatal) error received")]}},
    "log.pcie": {"one": {"kernel_log__events": [event("pcie", "pcieport 0002:00:00.0: retraining failed")]}},
    "log.removed": {"one": {"kernel_log__events": [event("removed", "cx7-pcie-hotplug MTKP0001:00: Cable removal")]}},
    "log.firmware": {"one": {"kernel_log__events": [event("firmware", "mlx5_core 0000:01:00.0: wait_func: ACCESS_REG(0x805) timeout.")]}},
    "log.smmu": {"one": {"kernel_log__events": [event("smmu", "arm-smmu-v3 arm-smmu-v3.0.auto: CMD_SYNC timeout at 0x0000b1b7")]}},
    "log.hardware": {"one": {"kernel_log__events": [event("hardware", "[Hardware Error]: event severity: fatal")]}},
    "log.suspend": {"one": {"kernel_log__events": [event("suspend", "PM: suspend entry (s2idle)")]}},
    "log.oops": {"one": {"kernel_log__events": [event("oops", "Internal error: Oops: 0000000096000004 [#1]  SMP")]}},
    "log.wifi": {"one": {"kernel_log__events": [event("wifi", "pc : mt7925_sta_set_decap_offload+0xd3/0x180 [mt7925_common]")]}, "words": ["by wire"]},
    "log.stall": {"one": {"kernel_log__events": [event("stall", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks")]}},
    "log.reserved": {
        "one": {"kernel_log__events": [event("memory", "Memory: 117722720K/133828484K available (1K code, 16079992K reserved, 0K cma-reserved)")]},
        "words": ["15.3", "12.0"],
    },
    "log.oom": {"one": {"kernel_log__events": [event("oom", "Out of memory: Killed process 4711 (VLLM::Worker_TP)")]}},
    "log.mlx5": {"one": {"kernel_log__events": [event("mlx5", "mlx5_core 0000:01:00.0: health compromised - reached miss count")]}},
    "fabric.address": {"settings": {"address": "10.255.255.1"}, "words": ["10.255.255.1 is on no interface", "found: lo 127.0.0.1, enP7s7 10.0.0.11"]},
    "fabric.carrier": {"one": {"interfaces__2__carrier": False}, "words": ["has no carrier"]},
    "fabric.interface": {"settings": {"fabric_interfaces": ["enp1s0f0np0", "enP2p1s0f0np0", "bond0"]}, "words": ["names bond0"]},
    "fabric.interface_carrier": {"one": {"interfaces__3__carrier": False}},
    "fabric.one_network": {"one": {"interfaces__2__networks__0__network": "192.168.100.0/30"}, "node": CLUSTER},
    "api.address": {"settings": {"api_address": "10.0.0.99"}, "words": ["10.0.0.99 is on no interface of the head"]},
    "rdma.present": {"one": {"fabric": []}},
    "rdma.device": {"settings": {"rdma_devices": ["rocep1s0f0", "roceP2p1s0f0", "mlx5_0"]}, "words": ["names mlx5_0"]},
    "rdma.active": {"one": {"fabric__0__port_state": "DOWN"}, "words": ["rocep1s0f0 (enp1s0f0np0) is DOWN"]},
    "rdma.named": {"settings": {"rdma_devices": ["rocep1s0f0"]}, "words": ["roceP2p1s0f0"]},
    "fabric.twins_apart": {"one": {"fabric__1__networks": NETWORK_101, "fabric__1__gids__1__address": "192.168.100.21"}, "words": ["192.168.100.0/24"]},
    "fabric.twin_address": {"one": {"fabric__1__networks": [], "fabric__1__addresses": []}, "words": ["enP2p1s0f0np0, the twin of enp1s0f0np0"]},
    "fabric.mtu": {
        "one": {"fabric__0__mtu": 1500, "fabric__1__mtu": 1500},
        "other": {"fabric__0__mtu": 1500, "fabric__1__mtu": 1500},
        "node": "both",
    },
    "fabric.mtu_same": {"one": {"fabric__0__mtu": 9216, "fabric__1__mtu": 9216}, "node": CLUSTER, "words": ["spark-1 9216, spark-2 9000"]},
    "fabric.speed": {"one": {"fabric__0__speed_mbps": 100000}},
    "fabric.pcie": {"one": {"fabric__1__pcie__width": 2}, "words": ["x2 at 32 GT/s", "x4 at 32 GT/s"]},
    "fabric.gid": {"one": {"fabric__0__gids__1": ...}, "words": ["rocep1s0f0 has no RoCE v2 GID for 192.168.100.11"]},
    "fabric.errors": {"one": {"fabric__0__counters__symbol_error": 250000}, "words": ["symbol_error 250000"]},
    "fabric.firmware_same": {"other": {"fabric__0__firmware": "28.43.1000", "fabric__1__firmware": "28.43.1000"}, "node": CLUSTER},
    "firewall.open": {
        "one": {"firewall": {"source": "ufw", "default_deny": True, "interfaces": [], "networks": ["10.0.0.0/24"]}},
        "words": ["192.168.100.12", "ufw allow in on enp1s0f0np0"],
    },
    "port.free": {"one": {"listeners": [listener()]}, "words": ["port 6379 (gb10_ray_port)", "redis-server (pid 7) since 2026-11-20", "another port"]},
    "port.stale_head": {"one": {"listeners": [listener(process="gcs_server", container="node-1731")]}, "words": ["node-1731", "gb10_allow=stale_head"]},
    "memory.class": {
        "one": {"memory__total_mb": 60200, "memory__available_mb": 58000},
        "other": {"memory__total_mb": 60200, "memory__available_mb": 58000},
        "node": "both",
        "words": ["58.8 GiB of memory; the profile is for Sparks of 128 GB"],
    },
    "memory.alike": {"one": {"memory__total_mb": 118000}, "node": CLUSTER, "words": ["the smallest would fill up first"]},
    "memory.available": {
        "one": {"memory__available_mb": 88000},
        "other": {"memory__available_mb": 88000},
        "node": "both",
        "beside": {"plan.fits"},
        "words": ["85.9 GiB of memory are available, 91.3 GiB needed"],
    },
    "memory.available_alike": {"one": {"memory__available_mb": 110000}, "node": CLUSTER, "beside": {"plan.fits"}},
    "memory.kv_offload": {
        "settings": {"serve_arguments": {"kv_transfer_config": {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}}},
        "words": ["kv_transfer_config moves the KV cache out", "expandable_segments"],
    },
    "plan.recorded": {
        "settings": {"kv_cache": "recorded"},
        "words": ["no start of this image, profile and driver with", "is recorded", "-e gb10_kv_cache=profile"],
    },
    "plan.fits": {
        "settings": {"serve_arguments": {"max_num_seqs": 2048}},
        "words": ["no: ", "the state of 2048 sequences takes", """What would go: -e '{"gb10_serve_arguments": {"max_num""", "gb10_silenced: [plan.fits]"],
    },
    "companion.claims": {
        "settings": {"companions": [{**OLLAMA, "memory_gib": 116}], "mode": "cluster"},
        "one": {"companions": [companion(gpu_mib=2048)]},
        "beside": {"plan.fits"},
        "words": ["still to start need 114.0 of 116.0", "companion ollama 116 GiB declared (2.0 held now)"],
    },
    "companion.unit": {
        "settings": {"companions": [{**OLLAMA, "memory_gib": 1}], "mode": "cluster"},
        "one": {"companions": [companion(running=False, state="not-found", unit="ollama.service", pids=[])]},
        "words": ["companion ollama: this node has no unit ollama.service"],
    },
    "companion.undeclared": {
        "one": {"companions": [companion(declared=False, container="gb10-companion-ollama", gpu_mib=2048)]},
        "words": ["gb10-companion-ollama runs and holds 2.0 GiB", "docker stop gb10-companion-ollama"],
    },
    "memory.swap": {"one": {"memory__swap_free_mb": 8000}, "words": ["8383 MiB"]},
    "memory.pressure": {"one": {"memory__pressure__full__avg60": 31.5}},
    "cuda_zombie.ghost": {"zombies": [reported("ghost", "block")], "words": ["4711 is ghost", "Do this."]},
    "cuda_zombie.orphan": {"zombies": [reported("orphan", "block")]},
    "cuda_zombie.leak": {"zombies": [reported("leak", "block")]},
    "cuda_zombie.slow_reclaim": {"zombies": [reported("slow_reclaim", "warn")]},
    "cuda_zombie.suspect": {"zombies": [reported("suspect", "warn")]},
    "cuda_zombie.defunct": {"zombies": [reported("defunct", "warn")]},
    "cuda_zombie.memory": {"zombies": [reported("memory", "unknown")], "verdict": "unknown"},
    "cuda_zombie.kernel_log": {"zombies": [reported("kernel_log", "warn")]},
    "cuda_zombie.unknown": {"zombies": [reported("unknown", "unknown")], "verdict": "unknown"},
    "tenant.holding": {"one": {"tenants": [tenant()]}, "words": ["ollama (pid 901, ollama, user ollama) holds 21000 MiB"]},
    "tenant.ipc_removed": {
        "one": {"tenants": [tenant(kind="vllm", name="VLLM::Worker_TP1", user="owner", gpu_mib=None)]},
        "beside": {"tenant.idle"},
        "words": ["VLLM::Worker_TP1 (pid 901) runs as owner", "sudo loginctl enable-linger owner"],
    },
    "tenant.desktop": {
        "one": {"tenants": [drawing(3346134, "gnome-shell", 349), drawing(3345981, "Xorg", 559), drawing(2011225, "cursor", 168)]},
        "words": ["1076 MiB", "gnome-shell 349 MiB, Xorg 559 MiB, cursor 168 MiB", "set-default multi-user.target", "log out"],
    },
    "tenant.idle": {
        "one": {"tenants": [tenant(gpu_mib=None), tenant(pid=902, gpu_mib=None)]},
        "words": ["and 1 more", "no memory that the driver lists"],
    },
    "container.foreign_gpu": {"one": {"foreign_containers": [FOREIGN]}, "words": ["vllm_node", "docker stop vllm_node"]},
    "container.other_cluster": {"one": {"containers": [container(cluster="judges", name="gb10-judges-head")]}, "words": ["gb10-judges-head"]},
    "mode.serves": {
        "one": {"mode": {"mode": "singles", "clusters": {"spark-1": {"profile": "gpt_oss_120b_one"}}}},
        "words": ["the declared mode is singles (spark-1 with gpt_oss_120b_one)", "the playbook mode"],
    },
    "container.orphaned": {"other": {"containers": [container(role="worker", name="gb10-gb10-worker")]}, "node": "spark-2", "words": ["teardown"]},
    "env.left": {
        "one": {"environment": [{"where": "/etc/environment", "name": "VLLM_NVFP4_GEMM_BACKEND", "value": "marlin"}]},
        "words": ["/etc/environment sets VLLM_NVFP4_GEMM_BACKEND=marlin"],
    },
    "limits.sshd": {"one": {"limits__sshd": {"pid": 911, "oom_score_adj": 0}}},
    "limits.earlyoom": {
        "one": {"limits__earlyoom": {"running": True, "args": "-r 3600", "mem_percent": 10, "swap_percent": 10, "effective": False, "why": "swap never falls"}},
        "words": ["swap never falls"],
    },
    "clock.synchronized": {"one": {"kernel__clock__synchronized": False}},
    "clock.offset": {"one": {"kernel__clock__offset_ms": -1812.0}},
    "model.ready": {
        "one": {"models__0__complete": False, "models__0__missing": ["model-00017-of-00017.safetensors"]},
        "verdict": "warn",
        "words": ["model-00017-of-00017.safetensors", "stage model will"],
    },
    "model.disk": {"one": {"models": [], "disk__/models__free_bytes": 40 * checks.GIB}, "beside": {"model.ready"}, "words": ["74.9 GiB are missing"]},
    "model.gated": {
        "one": {"models": []},
        "profile": GATED,
        "node": CLUSTER,
        "beside": {"model.ready"},
        "words": ["is gated", "spark-1 would fetch it", "no token is set", "gb10_hf_token_file", f"https://huggingface.co/{GATED['model']['repo']}"],
    },
    "model.license": {
        "one": {"models": []},
        "profile": LICENSED,
        "node": CLUSTER,
        "beside": {"model.ready"},
        "words": ["is under some-license", "before spark-1 can fetch it", "https://example.com/license"],
    },
    "model.same": {"one": {"models__0__bytes": 80371298049}, "node": CLUSTER},
    "model.pinned": {"profile": UNPINNED, "node": CLUSTER},
}


def triggered(trigger: dict[str, t.Any], **run: t.Any) -> dict[str, t.Any]:
    first = asked(node(**trigger.get("one", {})), trigger.get("zombies", ()), **trigger.get("settings", {}))
    return judged(first, second(node(**trigger.get("other", {}))), trigger.get("profile"), **run)


def test_a_healthy_cluster_meets_no_rule():
    record = judged()
    assert record["findings"] == []
    assert record["verdict"] == "pass"
    assert record["counts"]["pass"] > 120
    assert {entry["id"] for entry in record["not_judged"]} == {"api.address", "plan.recorded"}


def test_there_are_enough_rules_and_each_has_a_trigger():
    assert len(rule_table.shipped()) >= 40
    assert set(TRIGGERS) == {rule.id for rule in rule_table.shipped()}


@pytest.mark.parametrize("rule", rule_table.shipped(), ids=lambda rule: rule.id)
def test_each_rule_answers_alone_on_the_right_node(rule):
    trigger = TRIGGERS[rule.id]
    record = triggered(trigger)
    assert ids(record) == {rule.id} | trigger.get("beside", set())
    findings = [finding for finding in record["findings"] if finding["id"] == rule.id]
    concerned = trigger.get("node", "spark-1")
    assert {finding["node"] for finding in findings} == ({"spark-1", "spark-2"} if concerned == "both" else {concerned})
    for finding in findings:
        assert finding["verdict"] == trigger.get("verdict", rule.verdict)
        assert all(word in f"{finding['message']} {finding['remedy']}" for word in trigger.get("words", [])), finding
        # Every placeholder was filled in.
        assert not re.search(r"\{\w", finding["message"] + finding["remedy"]), finding
        assert "None" not in finding["message"] + finding["remedy"], finding
        assert finding["remedy"] and finding["source"]
        assert record["matrix"][rule.id][finding["node"]] == finding["verdict"]


@pytest.mark.parametrize("row", RAW, ids=lambda row: row["id"])
def test_each_row_is_well_formed(row):
    assert row["compares"] in rule_table.COMPARES
    assert row["verdict"] in ("block", "warn")
    assert row["title"] and row["message"] and row["remedy"] and row["source"] and row["tags"]
    assert row["title"][0].isupper() and not row["title"].endswith(".")
    for text in (row["message"], row["remedy"]):
        # Only names are allowed: no attribute, index or conversion.
        assert all(name is None or name.isidentifier() for _text, name, spec, conversion in string.Formatter().parse(text) if not (spec or conversion))
    if row["compares"] == "nodes":
        assert row["check"] in checks.COMPARISONS
    if row["compares"] == "known_bad":
        assert all(bad["match"] and bad["why"] and bad["known"] for bad in row["limits"]["bad"])


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row["id"])
def test_what_a_rule_names_exists(row):
    settings = judging.requirements(PROFILE, SETTINGS, 2)
    for name, relation, _value, why in row.get("only_if", ()):
        assert name in settings and relation in checks.RELATIONS and why
    arguments = row.get("with", {})
    for left, relation, *right in arguments.get("where", ()):
        assert relation in checks.RELATIONS and len(right) == (relation not in checks.OF_NULL)
        for side in (left, *right):
            assert_operand(side, row)
    for side in (arguments.get("measures"), arguments.get("needed"), *arguments.get("words", {}).values()):
        assert_operand(side, row)


#: Requirements that :func:`judging.requirements` does not return: they follow from all nodes, or only the doctor sets them.
NEEDS_OF_ALL = {"start_lacks", "failure", "remedy"}


def assert_operand(side: t.Any, row: dict[str, t.Any]) -> None:
    """A limit has to be a limit of the rule, and a need has to be a requirement of a node."""
    if isinstance(side, dict):
        ((kind, name),) = side.items()
        known = {"limit": set(row.get("limits", {})), "need": {*judging.requirements(PROFILE, SETTINGS, 2), *NEEDS_OF_ALL}, "of": {name}}
        assert name in known[kind], row["id"]


def test_every_check_is_used_by_a_rule():
    used = {rule.check for rule in rule_table.every()}
    assert used == set(checks.CHECKS) | set(checks.COMPARISONS)


# --- missing evidence -------------------------------------------------------------------------------------------------------

#: Verdict on a node that does not report what the rule needs, by the rule's own verdict.
NOT_KNOWN = {"block": "unknown", "warn": "warn"}

SECTIONS = sorted({path.split(".")[0] for rule in rule_table.shipped() for path in rule.evidence} - {"zombies"})


@pytest.mark.parametrize("empty", [None, []], ids=["null", "empty"])
@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_that_could_not_be_read_never_passes(section, empty):
    """Every rule that needs the section is unknown or warns with the reason, or waits for such a rule."""
    error = {"section": section, "verdict": "unknown", "error": "permission denied", "remedy": "Run the task with become: true."}
    record = judged(asked(node(**{section: empty, "errors": [error]})))
    waiting = {entry["id"] for entry in record["not_judged"] if entry["node"] == "spark-1"}
    for rule in rule_table.shipped():
        if any(path.split(".")[0] == section for path in rule.evidence) and rule.id not in waiting:
            cells = record["matrix"][rule.id]
            assert cells["spark-1"] == NOT_KNOWN[rule.verdict], rule.id
    unknown = [finding for finding in record["findings"] if " is unknown, since " in finding["message"]]
    assert unknown
    assert all(finding["node"] == "spark-1" and "permission denied" in finding["message"] and "become" in finding["remedy"] for finding in unknown)


@pytest.mark.parametrize("rule", [rule for rule in rule_table.shipped() if rule.evidence], ids=lambda rule: rule.id)
def test_null_evidence_is_unknown_and_says_what_is_missing(rule):
    for path in rule.evidence:
        if path.startswith("zombies"):
            continue
        record = judged(asked(node(**{path.replace(".", "__"): None})))
        waiting = {entry["id"]: entry["why"] for entry in record["not_judged"] if entry["node"] == "spark-1"}
        if rule.id in waiting:
            assert waiting[rule.id].endswith("comes first")
            continue
        (finding,) = [finding for finding in record["findings"] if finding["id"] == rule.id]
        assert finding["verdict"] == NOT_KNOWN[rule.verdict]
        assert finding["needed"].startswith(path)
        assert f"{finding['needed']} is missing" in finding["message"]


def test_an_unread_part_does_not_pass_and_a_fault_in_the_rest_counts():
    hidden = {"section": "listeners", "verdict": "unknown", "error": "it is unknown whose process listens on port 8000", "remedy": "become"}
    record = judged(asked(node(listeners=[listener(pid=None, port=8000)], errors=[hidden])))
    assert {(finding["id"], finding["verdict"]) for finding in record["findings"]} == {("port.free", "unknown"), ("port.stale_head", "unknown")}
    record = judged(asked(node(listeners=[listener(), listener(pid=None, port=8000)], errors=[hidden])))
    assert ("port.free", "block") in {(finding["id"], finding["verdict"]) for finding in record["findings"]}


def test_a_figure_that_the_driver_does_not_tell_matters_only_where_it_decides():
    idle = judged(asked(node(gpus__0__power_w=None)))
    busy = judged(asked(node(gpus__0__utilisation_percent=97, gpus__0__sm_clock_mhz=600, gpus__0__power_w=None)))
    assert ids(idle) == set()
    assert [(finding["id"], finding["verdict"], finding["needed"]) for finding in busy["findings"]] == [
        ("gpu.stuck_low_power", "warn", "gpus[NVIDIA GB10].power_w")
    ]


def test_a_driver_that_does_not_tell_its_firmware_is_not_judged_by_it():
    assert ids(judged(asked(node(gpus__0__vbios=None)))) == set()
    record = judged(asked(node(gpus__0__driver_version=None)))
    assert ("gpu.driver_same", "cluster", "unknown") in {(finding["id"], finding["node"], finding["verdict"]) for finding in record["findings"]}


def test_a_kernel_without_psi_is_not_judged_by_it():
    assert ids(judged(asked(node(memory__pressure=None)))) == set()
    error = {"section": "memory.pressure", "verdict": "unknown", "error": "rubbish", "remedy": ""}
    assert ids(judged(asked(node(memory__pressure=None, errors=[error])))) == {"memory.pressure"}


def test_a_log_that_could_only_be_read_in_part_passes_nothing():
    error = {"section": "kernel_log", "verdict": "unknown", "error": "the ring was cut", "remedy": ""}
    record = judged(asked(node(kernel_log__events=[event("oom", "Killed process 7")], errors=[error])))
    verdicts = {finding["id"]: finding["verdict"] for finding in record["findings"]}
    assert verdicts.pop("log.oom") == "warn"
    own = {rule.id: NOT_KNOWN[rule.verdict] for rule in rule_table.shipped()}
    assert verdicts == {id: own[id] for id in verdicts} and all(id.startswith("log.") for id in verdicts)
    assert set(verdicts.values()) == {"unknown", "warn"}


@pytest.mark.parametrize(("ways", "ids_"), [("both", set()), ("cdi", set()), ("hook", {"docker.gpu_kept"}), ("runtime", {"docker.gpu_kept"})])
def test_what_has_its_gpu_by_cdi_keeps_it(ways, ids_):
    """A container uses CDI wherever it is available, whatever else Docker offers and whatever its version."""
    systemd = {"docker__nvidia": ways, "docker__version": "28.3.3"}
    assert ids(judged(asked(node(**systemd)), second(node(**systemd)))) == ids_
    own = {**systemd, "docker__cgroup_driver": "cgroupfs"}
    assert ids(judged(asked(node(**own)), second(node(**own)))) == set()


SPEC_OF = [{"path": f"{place}/cdi/nvidia.yaml", "libcuda": [version]} for place, version in (("/etc", "580.95.05"), ("/var/run", "580.159.03"))]


@pytest.mark.parametrize(
    ("specs", "ids_"),
    [([], set()), (SPEC_OF, {"docker.cdi_twice"}), (SPEC_OF[:1], {"docker.cdi_stale"}), (SPEC_OF[::-1], {"docker.cdi_stale", "docker.cdi_twice"})],
)
def test_of_two_specifications_the_later_one_counts(specs, ids_):
    """nvidia-cdi-refresh writes /var/run/cdi at every update; an older file in /etc/cdi then blocks nothing, and is reported."""
    assert ids(judged(asked(node(docker__cdi_libcuda=specs)))) == ids_


def test_a_power_cap_by_software_is_not_throttling():
    """By a recording, the cap is active in 46 % of idle time."""
    assert "gpu.throttled" not in ids(judged(asked(node(gpus__0__throttle=["sw_power_cap", "gpu_idle"]))))


@pytest.mark.parametrize(
    ("arguments", "met"),
    [
        ({"kv_offloading_size": 20}, True),
        ({"kv-offloading-backend": "native"}, True),
        ({"kv_transfer_config": {"kv_connector": "NixlConnector"}}, False),
        ({"kv_offloading_size": None}, False),
    ],
)
def test_what_moves_the_cache_out(arguments, met):
    assert ("memory.kv_offload" in ids(judged(asked(serve_arguments=arguments), second(serve_arguments=arguments)))) is met


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel__arch": "x86_64", "memory__cma_total_mb": 0},
        {"memory__cma_total_mb": None},
        {"kernel__nvidia_modprobe": None, "kernel__nvidia_flavor": None},
        {"tenants": [tenant(kind="vllm", user="root", gpu_mib=None)]},
        {"tenants": [tenant(kind="vllm", user="owner", container="theirs", gpu_mib=None)]},
        {"tenants": [tenant(kind="ollama", user="owner", gpu_mib=None)]},
    ],
    ids=["another machine", "no account of it", "no package, no module", "root's", "in a container", "no ranks"],
)
def test_what_says_nothing_of_a_spark_meets_no_new_rule(changes):
    met = ids(judged(asked(node(**changes)), second(node(**{name: value for name, value in changes.items() if name == "kernel__arch"}))))
    assert not met & {"kernel.cma", "driver.modprobe", "driver.open", "tenant.ipc_removed"}


@pytest.mark.parametrize(("granted", "met"), [([], True), (["IPC_LOCK"], True), (["IPC_LOCK", "SYS_PTRACE"], False)])
def test_a_capability_is_granted_by_the_inventory_alone(granted, met):
    profile = profiles.load("qwen3_8_flash_next_nvfp4_one")
    findings = judging.judge({"spark-1": asked(capabilities=granted, peers=[])}, profile, RUN)["findings"]
    (finding,) = [finding for finding in findings if finding["id"] == "container.capabilities"] or [None]
    assert bool(finding) is met
    if finding:
        assert finding["verdict"] == "block" and f"[{', '.join([*granted, 'SYS_PTRACE'])}]" in finding["remedy"]
    assert profiles.load("qwen3_8_flash_next_nvfp4_tp2")["needs"]["capabilities"] == []


def test_stores_matter_where_images_are_copied():
    other = node(docker__image_store="containerd")
    for copy_, tag, met in (("required", "local/x:1", True), ("preferred", "local/x:1", False), ("required", "local/x@sha256:1", False)):
        profile = {**PROFILE, "image": {**PROFILE["image"], "tag": tag}}
        finding_ids = ids(judged(asked(other, image_copy=copy_), second(image_copy=copy_), profile))
        assert ("docker.store_same" in finding_ids) is met, (copy_, tag)


def test_a_node_without_sshd_has_nothing_to_protect():
    absent = {"pid": None, "oom_score_adj": None}
    assert ids(judged(asked(node(limits__sshd=absent)))) == set()
    error = {"section": "limits", "verdict": "unknown", "error": "permission denied", "remedy": "become"}
    assert ids(judged(asked(node(limits__sshd=absent, errors=[error])))) == {"limits.sshd"}


def test_docker_that_does_not_answer_is_one_finding():
    record = triggered(TRIGGERS["docker.reachable"])
    waiting = {entry["id"] for entry in record["not_judged"] if entry["why"] == "docker.reachable comes first"}
    assert {"docker.sdk", "image.present", "port.free", "container.other_cluster"} <= waiting


# --- tuning -----------------------------------------------------------------------------------------------------------------

SWAP = TRIGGERS["memory.swap"]["one"]


def test_a_silenced_rule_is_listed_and_counted():
    record = judged(asked(node(**SWAP), silenced=["memory.swap", "page_cache.sync"]))
    (finding,) = record["findings"]
    assert (finding["verdict"], finding["was"]) == ("silenced", "warn")
    assert (record["verdict"], record["counts"]["silenced"], record["counts"]["lowered"]) == ("silenced", 1, 1)
    assert record["tuned"] == [{"id": "memory.swap", "by": ["gb10_silenced"], "verdict": "silenced", "limits": {}, "why": "", "nodes": ["spark-1"]}]


def test_a_block_can_be_lowered_and_unknown_with_it():
    rules = {"disk.free": {"verdict": "warn", "why": "a spare disk comes on Monday"}}
    record = judged(asked(node(docker__root_free_bytes=1), rules=rules))
    assert [(finding["verdict"], finding["was"]) for finding in record["findings"]] == [("warn", "block")]
    record = judged(asked(node(disk={"/models": None}), rules=rules))
    assert ("disk.free", "warn", "unknown") in [(finding["id"], finding["verdict"], finding["was"]) for finding in record["findings"]]
    assert record["tuned"][0]["why"] == "a spare disk comes on Monday"


def test_the_inventory_wins_over_the_profile():
    profile = {**PROFILE, "rules": {"memory.swap": {"most_mb": 9000, "why": "it swaps idle pages"}}}
    assert ids(judged(asked(node(**SWAP)), profile=profile)) == set()
    record = judged(asked(node(**SWAP), rules={"memory.swap": {"most_mb": 100}}), profile=profile)
    assert ids(record) == {"memory.swap"}
    assert record["tuned"][0] == {
        "id": "memory.swap",
        "by": ["profile", "gb10_rules"],
        "verdict": None,
        "limits": {"most_mb": 100},
        "why": "it swaps idle pages",
        "nodes": ["spark-1"],
    }


def test_a_list_of_known_bad_versions_can_be_extended():
    bad = [*RAW_LIMITS["kernel.known_bad"]["bad"], {"match": "6.17.0-1032*", "unless": "", "why": "it hung", "known": "seen here"}]
    record = judged(asked(rules={"kernel.known_bad": {"bad": bad}}))
    assert [finding["message"] for finding in record["findings"]] == ["kernel 6.17.0-1032-nvidia: it hung (seen here)."]


RAW_LIMITS = {row["id"]: row.get("limits", {}) for row in RAW}


@pytest.mark.parametrize(
    ("tuning", "words"),
    [
        ({"memory.swop": {}}, "rules.memory.swop: no rule has this id"),
        ({"memory.swap": 7}, "expected a mapping"),
        ({"memory.swap": {"most": 7}}, "rules.memory.swap.most: is not a limit of this rule; expected most_mb"),
        ({"memory.swap": {"most_mb": "7"}}, "rules.memory.swap.most_mb: is '7'; expected something like 8192"),
        ({"memory.swap": {"most_mb": True}}, "expected something like 8192"),
        ({"memory.swap": {"verdict": "pass"}}, "expected warn or silenced"),
        ({"memory.swap": {"why": 7}}, "expected text"),
        ({"kernel.known_bad": {"bad": ["7.1*"]}}, "rules.kernel.known_bad.bad"),
    ],
)
def test_tuning_that_means_nothing_is_refused(tuning, words):
    (problem,) = tunings.tuning_problems(tuning, "rules", "input.rules")
    assert words in str(problem)


def test_every_shipped_limit_fits_itself():
    assert tunings.tuning_problems({id: limits for id, limits in RAW_LIMITS.items() if limits}, "rules", "input.rules") == []


# --- what a later stage repairs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "skip_tags", "stages"),
    [
        (["all"], [], list(judging.STAGES)),
        (["preflight"], [], list(judging.STAGES)),
        (["preflight", "always"], [], list(judging.STAGES)),
        (["preflight", "serve"], [], ["serve"]),
        (["ladder"], [], list(judging.STAGES)),
        (["all"], ["image", "model"], ["memory", "ray", "native", "serve"]),
    ],
)
def test_which_stages_a_run_has(tags, skip_tags, stages):
    assert judging.stages_of_run(tags, skip_tags) == stages


@pytest.mark.parametrize(
    ("id", "settings", "run", "verdict", "words"),
    [
        ("image.present", {}, {}, "warn", "stage image will fix this"),
        ("image.present", {"offline": True}, {}, "warn", "stage image will fix this"),
        ("image.present", {}, {"skip_tags": ["image"]}, "block", "run with --tags image (stage image does not: stage image is not part of this run)"),
        ("model.ready", {}, {}, "warn", "stage model will"),
        ("model.ready", {"offline": True}, {}, "block", "gb10_offline is true"),
        ("model.ready", {}, {"tags": ["preflight", "serve"]}, "block", "not part of this run"),
        ("port.stale_head", {}, {}, "block", "gb10_allow lacks stale_head"),
        ("port.stale_head", {"allow": ["stale_head"]}, {}, "warn", "stage ray will stop and remove it"),
        ("port.stale_head", {"allow": ["stale_head"]}, {"skip_tags": ["ray"]}, "block", "not part of this run"),
    ],
)
def test_what_a_stage_repairs_blocks_only_where_it_does_not(id, settings, run, verdict, words):
    trigger = TRIGGERS[id]
    (finding,) = triggered({**trigger, "settings": settings}, **run)["findings"]
    assert (finding["id"], finding["verdict"]) == (id, verdict)
    assert words in finding["remedy"]


def test_without_the_base_an_image_cannot_be_made_offline():
    record = judged(asked(node(**{TAG: None, ARM_BASE: None}), offline=True, image_copy="never"))
    (finding,) = record["findings"]
    assert (finding["id"], finding["verdict"]) == ("image.present", "block")
    assert "is not on this node either" in finding["remedy"]


@pytest.mark.parametrize(("copy", "verdict"), [("preferred", "warn"), ("never", "block")])
def test_an_image_that_another_node_gives_is_not_lost_offline(copy, verdict):
    """After an import of a bundle, one node has the image, and the others have no base to build it from."""
    settings = {"image_copy": copy, "offline": True}
    record = judged(asked(node(), **settings), second(node(**{TAG: None, ARM_BASE: None}), **settings))
    assert [finding["verdict"] for finding in record["findings"] if finding["id"] == "image.present"] == [verdict]


# --- a live engine, and who holds what ----------------------------------------------------------------------------------------


def test_what_a_live_engine_of_this_cluster_holds_is_ours():
    full = {"memory__available_mb": 11000, "containers": [container()], "listeners": [listener(port=8000, container="gb10-gb10-head")]}
    poor = node(memory__available_mb=21000, containers=[container(role="worker", name="gb10-gb10-worker")])
    assert ids(judged(asked(node(**full)), second(poor))) == set()


def test_memory_that_others_hold_is_not():
    full = {"memory__available_mb": 11000, "containers": [], "listeners": [listener(port=8000, container="someone")]}
    assert ids(judged(asked(node(**full)))) == {"memory.available", "plan.fits", "port.free"}


def test_an_image_inspection_is_not_another_cluster():
    """It may belong to another play or to an interrupted one. It ends by itself, and no playbook could stop it."""
    assert ids(judged(asked(node(containers=[container(cluster=None, role="probe", name="quiet_turing")])))) == set()


def test_other_revisions_may_be_next_to_the_served_one():
    old = {**node()["models"][0], "revision": "b" * 40, "refs": []}
    two = asked(node(models=[old, *node()["models"]]))
    assert ids(judged(two)) == set()
    assert ids(judged(two, profile=UNPINNED)) == {"model.pinned"}
    assert ids(judged(two, second(node(models=[old, {**node()["models"][0], "complete": False}])), UNPINNED)) == {"model.pinned", "model.ready"}
    other = second(node(models=[{**old, "refs": ["main"]}]))
    assert ids(judged(two, other, UNPINNED)) == {"model.pinned", "model.same"}


def test_a_node_alone_needs_no_fabric():
    """Without a cable, the card may be missing on the bus, and a single node does not need it."""
    dark = {"fabric": [], "devices": {"/dev/infiniband": {"exists": False}}}
    single = asked(node(**dark), peers=[], fabric_interfaces=[], rdma_devices=[], address="10.0.0.5")
    record = judging.judge({"spark-1": single}, PROFILE, RUN)
    assert {finding["id"] for finding in record["findings"]} <= {"model.disk", "model.ready"}
    left_out = {row["id"] for row in record["not_judged"] if row["why"] == "the cluster has one node"}
    assert {"fabric.address", "rdma.present", "device.present"} <= left_out
    assert "rdma.present" in {finding["id"] for finding in judging.judge({"spark-1": single, "spark-2": second()}, PROFILE, RUN)["findings"]}


WITH_DRAFTER = {**PROFILE, "repositories": {"drafter": {"repo": "org/d", "revision": "d" * 40, "purpose": "drafter", "files": [], "size_gb": 10.0}}}


@pytest.mark.parametrize(
    ("drafter", "free_gib", "expected"),
    [
        # A drafter has no tokenizer of its own.
        ({"complete": False, "missing": ["tokenizer.json"]}, 40, set()),
        ({"complete": False, "missing": ["model.safetensors"]}, 40, {"model.ready"}),
        ({"revision": "e" * 40}, 40, {"model.ready"}),
        (None, 40, {"model.ready"}),
        (None, 4, {"model.ready", "model.disk", "disk.free"}),
    ],
)
def test_further_repositories_are_needed_too(drafter, free_gib, expected):
    complete = {"repo": "org/d", "revision": "d" * 40, "refs": [], "complete": True, "missing": [], "bytes": 10, "unfinished": 0, "path": "/models"}
    models = [*node()["models"], *([{**complete, **drafter}] if drafter else [])]
    first = asked(node(models=models, **{"disk__/models__free_bytes": free_gib * checks.GIB}))
    record = judged(first, second(node(models=[*node()["models"], complete])), WITH_DRAFTER)
    assert ids(record) - {"model.disk"} == expected - {"model.disk"}
    named = [finding["message"] for finding in record["findings"] if finding["id"] == "model.ready"]
    assert len(named) == len(expected & {"model.ready"}) and all("org/d" in message for message in named)


@pytest.mark.parametrize(
    ("copy", "offline", "expected"),
    [("required", True, set()), ("required", False, set()), ("never", True, {"model.ready"}), ("never", False, {"model.gated"})],
)
def test_what_another_node_gives_is_not_asked_of_the_hub(copy, offline, expected):
    settings = {"model_copy": copy, "offline": offline}
    record = judged(asked(node(), **settings), second(node(models=[]), **settings), GATED)
    assert {finding["id"] for finding in record["findings"] if finding["verdict"] == "block" and finding["id"].startswith("model.")} == expected


@pytest.mark.parametrize(
    ("lies", "settings", "expected"),
    [
        # A repository that is on the disk needs neither a token nor consent.
        (True, {}, set()),
        (False, {"hub_token": True}, {"model.license"}),
        (False, {}, {"model.gated", "model.license"}),
        (False, {"offline": True}, set()),
    ],
)
def test_a_gated_repository_needs_a_token_where_it_is_fetched(lies, settings, expected):
    terms = {"gated": True, "license": {"id": "x", "url": None, "accept": True}}
    gated = {**PROFILE, "repositories": {"drafter": {**WITH_DRAFTER["repositories"]["drafter"], **terms}}}
    row = {"repo": "org/d", "revision": "d" * 40, "refs": [], "complete": True, "missing": [], "bytes": 10, "unfinished": 0, "path": "/models"}
    models = [*node()["models"], *([row] if lies else [])]
    record = judged(asked(node(models=models), **settings), second(node(models=models), **settings), gated)
    assert ids(record) - {"model.ready"} == expected
    messages = [finding["message"] for finding in record["findings"] if finding["id"] in expected]
    assert all("org/d" in message and "spark-1, spark-2" in message for message in messages)


@pytest.mark.parametrize(
    ("entry", "free_gib", "missing"),
    [
        ({"bytes": 4 * checks.GIB, "unfinished_bytes": 0}, 40, "70.9 GiB are missing"),
        # The hub's client resumes an interrupted download.
        ({"bytes": 4 * checks.GIB, "unfinished_bytes": 10 * checks.GIB}, 40, "60.9 GiB are missing"),
        ({"bytes": 4 * checks.GIB, "unfinished_bytes": 35 * checks.GIB}, 40, None),
        # Files beyond the size in the profile do not count against another repository.
        ({"bytes": 400 * checks.GIB, "unfinished_bytes": 0}, 40, None),
    ],
)
def test_what_lies_on_the_disk_already_needs_no_space(entry, free_gib, missing):
    begun = {**node()["models"][0], "complete": False, "missing": ["model-00017-of-00017.safetensors"], **entry}
    record = judged(asked(node(models=[begun], **{"disk__/models__free_bytes": free_gib * checks.GIB})))
    messages = [finding["message"] for finding in record["findings"] if finding["id"] == "model.disk"]
    assert len(messages) == (missing is not None) and all(missing in message for message in messages)


def test_what_is_known_of_the_size_is_the_least_that_is_needed():
    """The drafter does not fit by itself, and the size of the model is unknown."""
    unsaid = {**WITH_DRAFTER, "model": {**PROFILE["model"], "size_gb": None}, "memory": {**PROFILE["memory"], "weights_gb": None}}
    rules = {"disk.free": {"least_gib": 0, "why": "a test"}}
    record = judged(asked(node(models=[], **{"disk__/models__free_bytes": 4 * checks.GIB}), rules=rules), second(node(models=[])), unsaid)
    (finding,) = [finding for finding in record["findings"] if finding["id"] == "model.disk"]
    assert "9.3 GiB are missing of org/d" in finding["message"] and PROFILE["model"]["repo"] not in finding["message"]


def test_a_drafter_of_another_size_is_another_one_and_a_tokenizer_is_not():
    row = {"repo": "org/d", "revision": "d" * 40, "refs": [], "complete": True, "missing": [], "bytes": 10, "unfinished": 0, "path": "/models"}
    first, other = asked(node(models=[*node()["models"], row])), second(node(models=[*node()["models"], {**row, "bytes": 11}]))
    assert ids(judged(first, other, WITH_DRAFTER)) == {"model.same"}
    words = {**WITH_DRAFTER, "repositories": {"words": {**WITH_DRAFTER["repositories"]["drafter"], "purpose": "tokenizer"}}}
    assert ids(judged(first, other, words)) == set()


def test_a_foreign_process_next_to_a_stale_head_is_named_with_it():
    stale = listener(process="gcs_server", container="node-1731")
    record = judged(asked(node(listeners=[stale, listener()]), replace_stale=True))
    (finding,) = record["findings"]
    assert (finding["id"], finding["verdict"]) == ("port.free", "block")
    assert "node-1731" in finding["message"] and "redis-server" in finding["message"]
    assert ids(judged(asked(node(listeners=[{**stale, "container": ""}]), replace_stale=True))) == {"port.free"}


def test_a_container_that_holds_memory_is_named_once():
    info = node(foreign_containers=[FOREIGN], tenants=[tenant(name="VLLM::EngineCore", kind="vllm", container="vllm_node")])
    assert ids(judged(asked(info))) == {"tenant.holding"}


# --- the fabric ---------------------------------------------------------------------------------------------------------------


def test_a_bond_is_a_topology_of_its_own():
    """The bond has an address, its members have none."""
    address = HEALTHY["interfaces"][2]
    bond = {**address, "name": "bond0"}
    changes: dict[str, t.Any] = {
        f"fabric__{index}__{key}": value for index in (0, 1) for key, value in (("bond", "bond0"), ("addresses", []), ("networks", []))
    }
    info = node(interfaces=[*HEALTHY["interfaces"][:2], bond], **changes)
    record = judged(asked(info, fabric_interfaces=["bond0"], rdma_devices=[]), second(copy.deepcopy(info), fabric_interfaces=["bond0"], rdma_devices=[]))
    assert ids(record) == set()


def test_without_names_the_link_with_the_address_and_its_twin_count():
    changes = {"fabric_interfaces": [], "rdma_devices": []}
    record = judged(asked(node(fabric__1__speed_mbps=100000), **changes), second(**changes))
    assert ids(record) == {"fabric.speed"}
    assert ids(judged(asked(node(fabric__2__speed_mbps=100000), **changes), second(**changes))) == set()


def test_a_cluster_without_rdma_that_may_use_tcp_is_not_asked_for_it():
    lab = {"fabric_fallback": "tcp", "fabric_interfaces": ["enp1s0f0np0"], "rdma_devices": []}
    assert ids(judged(asked(node(fabric=[]), **lab), second(node(fabric=[]), **lab))) == set()


@pytest.mark.parametrize(
    ("firewall", "met"),
    [
        ({"default_deny": False}, False),
        ({"default_deny": True}, True),
        ({"default_deny": True, "interfaces": ["enp1s0f0np0"]}, False),
        ({"default_deny": True, "networks": ["192.168.100.0/24"]}, False),
        ({"default_deny": True, "networks": ["192.168.100.12/32"]}, False),
        ({"default_deny": True, "networks": ["192.168.101.0/24"]}, True),
    ],
)
def test_which_firewall_blocks_the_fabric(firewall, met):
    info = node(firewall={"source": "nft", "interfaces": [], "networks": [], **firewall})
    assert ("firewall.open" in ids(judged(asked(info)))) is met


def test_where_the_api_can_listen():
    for address in ("0.0.0.0", "::", "127.0.0.1", "192.168.100.11"):
        assert ids(judged(asked(api_address=address))) == set()
    assert ids(judged(asked(api_address="spark-1.lan"))) == {"api.address"}


# --- memory -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total_mb", "class_gb", "met"), [(124620, 128, False), (122536, 128, False), (60200, 64, False), (24000, None, False), (60200, 128, True)]
)
def test_memory_of_the_profiles_class_or_more_is_enough(total_mb, class_gb, met):
    profile = {**PROFILE, "memory": {**PROFILE["memory"], "class_gb": class_gb}}
    changes = {"memory__total_mb": total_mb, "memory__available_mb": total_mb - 2000}
    assert ("memory.class" in ids(judged(asked(node(**changes)), second(node(**changes)), profile))) is met


@pytest.mark.parametrize(
    ("arguments", "available_mb", "met"),
    [
        ({"gpu_memory_utilization": 0.9}, 110000, True),
        ({"gpu-memory-utilization": 0.5}, 70000, False),
        ({"kv_cache_memory_bytes": "20G"}, 70000, False),
        ({"kv_cache_memory_bytes": 20 * 10**9}, 60000, True),
        ({"gpu_memory_utilization": None}, 100, False),
    ],
)
def test_what_the_engine_will_take_follows_from_its_arguments(arguments, available_mb, met):
    changes = {"memory__available_mb": available_mb}
    record = judged(asked(node(**changes), serve_arguments=arguments), second(node(**changes), serve_arguments=arguments))
    assert ids(record) - {"plan.fits"} == ({"memory.available"} if met else set())


@pytest.mark.parametrize(("name", "value"), [("max_model_len", "huge"), ("kv_cache_memory_bytes", "much"), ("gpu_memory_utilization", "95%")])
def test_a_value_that_the_engine_would_not_read_is_unknown_and_named(name, value):
    record = judged(asked(node(), serve_arguments={name: value}), second(node(), serve_arguments={name: value}))
    findings = [finding for finding in record["findings"] if finding["id"] in ("plan.fits", "memory.available")]
    assert {(finding["id"], finding["verdict"]) for finding in findings} == {("plan.fits", "unknown"), ("memory.available", "unknown")}
    assert all(f"{name}: is {value!r}" in finding["message"] and "gb10_serve_arguments" in finding["remedy"] for finding in findings), findings


def test_a_share_as_text_is_the_share():
    arguments = {"gpu_memory_utilization": "0.75"}
    record = judged(asked(node(memory__available_mb=80 * 1024), serve_arguments=arguments), second(node(), serve_arguments=arguments))
    (finding,) = [finding for finding in record["findings"] if finding["id"] == "memory.available"]
    assert (finding["node"], finding["verdict"]) == ("spark-1", "block") and "0.75 of" in finding["message"]


# --- many nodes ---------------------------------------------------------------------------------------------------------------


def test_of_many_nodes_the_odd_one_is_named():
    nodes = {f"spark-{number}": second(node(kernel__machine=f"{number}" * 16)) for number in range(2, 6)}
    nodes["spark-4"] = second(node(kernel__machine="4" * 16, **driver("580.95.05")))
    record = judging.judge({"spark-1": asked(), **nodes}, PROFILE, RUN)
    assert [(finding["id"], finding["node"]) for finding in record["findings"]] == [("gpu.driver_same", "spark-4")]


def test_an_unhealthy_node_is_judged_together_with_the_others():
    record = triggered({"one": {"gpus": [], "errors": [{"section": "gpus", "error": "nvidia-smi did not answer within 30 s"}]}, "other": SWAP})
    assert {(finding["id"], finding["node"]) for finding in record["findings"] if finding["node"] == "spark-2"} == {("memory.swap", "spark-2")}
    assert any(finding["id"] == "gpu.present" and "did not answer" in finding["message"] for finding in record["findings"])


def test_what_the_module_for_processes_finds_beyond_the_rules_is_passed_on():
    record = judged(asked(zombies=[reported("unheard_of", "block")]))
    assert [(finding["id"], finding["node"], finding["verdict"]) for finding in record["findings"]] == [("cuda_zombie.unheard_of", "spark-1", "block")]


def test_the_record_has_a_version_that_the_schema_knows():
    assert SCHEMA["properties"]["schema"]["const"] == judging.RECORD_SCHEMA


def test_a_record_that_lacks_something_does_not_pass_its_schema():
    record = judged()
    for key in SCHEMA["required"]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({name: value for name, value in record.items() if name != key}, SCHEMA)


# --- the memory plan --------------------------------------------------------------------------------------------------------


def of_plan(record: dict[str, t.Any]) -> list[tuple[str, str]]:
    return sorted((finding["node"], finding["verdict"]) for finding in record["findings"] if finding["id"] == "plan.fits")


def test_each_node_is_judged_by_its_own_memory():
    """The smaller node of the pair has 119.6 GiB; on the other node a tenant uses 20 GiB."""
    arguments = {"gpu_memory_utilization": 0.8}
    first, other = {"memory__total_mb": 122470, "memory__available_mb": 116000}, {"memory__available_mb": 99000}
    record = judged(asked(node(**first), serve_arguments=arguments), second(node(**other), serve_arguments=arguments))
    assert of_plan(record) == [("spark-1", "warn"), ("spark-2", "block")]
    (finding,) = [finding for finding in record["findings"] if finding["id"] == "plan.fits" and finding["node"] == "spark-2"]
    assert (
        "of 121.69" in finding["message"]
        and """-e '{"gb10_serve_arguments": {"gpu_memory_utilization": 0.""" in finding["remedy"]
        and finding["needed"] == 8.0
    )


def test_what_is_tight_warns_and_names_why():
    record = judged(asked(serve_arguments={"gpu_memory_utilization": 0.85}), second(serve_arguments={"gpu_memory_utilization": 0.85}))
    assert of_plan(record) == [("spark-1", "warn"), ("spark-2", "warn")] and record["verdict"] == "warn"
    (message,) = {finding["message"] for finding in record["findings"] if finding["id"] == "plan.fits"}
    assert message.startswith("tight: ") and "expected 8 until a start is recorded" in message


def test_what_may_leave_less_than_nothing_or_is_left_to_the_engine_stops_until_a_start_is_recorded():
    for arguments, words in (({"gpu_memory_utilization": 0.9}, "0.0 +/- 3.6 left"), ({"gpu_memory_utilization": None}, "is left to the engine")):
        plain = judged(asked(serve_arguments=arguments), second(serve_arguments=arguments))
        assert of_plan(plain) == [("spark-1", "block"), ("spark-2", "block")]
        assert all(words in finding["message"] for finding in plain["findings"] if finding["id"] == "plan.fits"), plain["findings"]
        digest = planning.digest(PROFILE, arguments)
        known = {"starts": [recorded(profile_digest=digest, steady_mb=60000, lowest_mb=60000)]}
        borne = judged(asked(node(**known), serve_arguments=arguments), second(serve_arguments=arguments))
        assert of_plan(borne) == [("spark-1", "warn"), ("spark-2", "block")]


def test_an_override_of_the_plan_is_in_the_record():
    changes = {"serve_arguments": {"max_num_seqs": 2048}, "silenced": ["plan.fits"]}
    record = judged(asked(**changes), second(**changes))
    assert {(finding["verdict"], finding["was"]) for finding in record["findings"]} == {("silenced", "block")}
    assert [(row["id"], row["by"], row["nodes"]) for row in record["tuned"]] == [("plan.fits", ["gb10_silenced"], ["spark-1", "spark-2"])]


def test_a_profile_without_the_facts_of_its_model_passes_no_plan():
    profile = {**PROFILE, "model": {**PROFILE["model"], "repo": "someone/something"}, "memory": {**PROFILE["memory"], "config": {}}}
    record = judged(profile=profile)
    assert set(record["matrix"]["plan.fits"].values()) == {"not_judged"} and not of_plan(record)
    assert [entry["node"] for entry in record["not_judged"] if entry["id"] == "plan.fits" and "is unknown" in entry["why"]] == ["spark-1", "spark-2"]


def test_memory_of_this_clusters_engine_does_not_count_against_it():
    live = {"memory__available_mb": 21000, "containers": [container()], "listeners": [listener(port=8000, container="gb10-gb10-head")]}
    assert not of_plan(judged(asked(node(**live)), second(node(memory__available_mb=21000))))


LIVE = {"memory__available_mb": 21000, "containers": [container()], "listeners": [listener(port=8000, container="gb10-gb10-head")]}
HOLDING = {"held": {"gb10": {"gpu_mib": 88000, "anon_mb": 7000}}}


def test_a_restart_is_admitted_with_what_the_live_engine_holds() -> None:
    """21000 MiB are available while the engine serves. Without the memory that its stop frees, no plan would fit."""
    wish = {"allow": ["restart"]}
    assert not ids(judged(asked(node(**LIVE, **HOLDING), **wish), second(node(memory__available_mb=21000, **HOLDING), **wish)))
    larger = {**wish, "serve_arguments": {"max_num_seqs": 2048}}
    record = judged(asked(node(**LIVE, **HOLDING), **larger), second(node(memory__available_mb=21000, **HOLDING), **larger))
    assert of_plan(record) == [("spark-1", "block"), ("spark-2", "block")]
    poor = {"held": {"gb10": {"gpu_mib": 40000, "anon_mb": 7000}}}
    record = judged(asked(node(**LIVE, **poor), **wish), second(node(memory__available_mb=21000, **HOLDING), **wish))
    assert {(finding["id"], finding["node"], finding["verdict"]) for finding in record["findings"]} == {
        ("memory.available", "spark-1", "block"),
        ("plan.fits", "spark-1", "block"),
    }


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"held": {"gb10": {"gpu_mib": None, "anon_mb": 7000}}}, "the driver does not say what the live engine holds"),
        ({"held": None, "errors": [{"section": "held", "error": "/proc/7/status cannot be read", "remedy": "x"}]}, "/proc/7/status cannot be read"),
    ],
)
def test_what_a_live_engine_holds_is_unknown_and_no_pass(changes: dict[str, t.Any], word: str) -> None:
    record = judged(asked(node(**LIVE, **changes), allow=["restart"]), second(node(memory__available_mb=21000, **HOLDING), allow=["restart"]))
    assert of_plan(record) == [("spark-1", "unknown")]
    assert all(word in finding["message"] for finding in record["findings"] if finding["id"] == "plan.fits")


def test_what_others_claim_counts_once_and_by_name() -> None:
    """40 GiB are declared. On one node nothing is used yet; on the other, 30 GiB are in use and not available."""
    claims = {"tenants": [{"name": "speech", "gib": 40.0}, {"name": "ocr", "node": "spark-9", "gib": 90.0}]}
    holds = tenant(container="Speech", gpu_mib=30 * 1024)
    first = asked(node(), **claims)
    other = second(node(memory__available_mb=HEALTHY["memory"]["available_mb"] - 30 * 1024, tenants=[holds, tenant()]), **claims)
    record = judged(first, other)
    by_node = {entry["node"]: entry for entry in record["findings"] if entry["id"] == "plan.fits"}
    assert {name: entry["verdict"] for name, entry in by_node.items()} == {"spark-1": "block", "spark-2": "block"}
    assert by_node["spark-1"]["measured"] == pytest.approx(by_node["spark-2"]["measured"], abs=0.1)
    assert "others there: speech 40 GiB declared." in by_node["spark-1"]["message"]
    assert "others there: speech 40 GiB declared (30.0 held now), ollama 20.5 GiB undeclared." in by_node["spark-2"]["message"]
    assert not of_plan(judged(asked(node(), tenants=[{"name": "speech", "gib": 2}]), second(tenants=[{"name": "speech", "gib": 2}])))


def test_a_companion_counts_once_with_the_larger_of_its_claim_and_what_it_holds() -> None:
    """40 GiB are claimed. On one node the companion does not run yet; on the other it uses 30 GiB, and the driver lists a part of them."""
    wish: dict[str, t.Any] = {"companions": [{**OLLAMA, "memory_gib": 40}], "mode": "cluster"}
    left = HEALTHY["memory"]["available_mb"] - 30 * 1024
    holds = {"companions": [companion(gpu_mib=20 * 1024, anon_mb=10 * 1024)], "tenants": [tenant(gpu_mib=20 * 1024)]}
    record = judged(asked(node(companions=[companion(running=False, pids=[])]), **wish), second(node(memory__available_mb=left, **holds), **wish))
    by_node = {entry["node"]: entry for entry in record["findings"] if entry["id"] == "plan.fits"}
    assert by_node["spark-1"]["measured"] == pytest.approx(by_node["spark-2"]["measured"], abs=0.1)
    assert "others there: companion ollama 40 GiB declared." in by_node["spark-1"]["message"]
    # It is a known tenant, so it counts only under its own name.
    assert "others there: companion ollama 40 GiB declared (30.0 held now)." in by_node["spark-2"]["message"]
    assert not {"tenant.holding", "tenant.idle"} & ids(record)

    # It already uses more than it claims, so nothing is added. In another mode it claims nothing.
    more = {"companions": [{**OLLAMA, "memory_gib": 1}], "mode": "cluster"}
    assert ids(judged(asked(node(companions=[companion(anon_mb=2048)]), **more), second(node(companions=[companion(anon_mb=2048)]), **more))) == set()
    other = {**wish, "companions": [{**OLLAMA, "memory_gib": 40, "modes": ["off"]}]}
    assert ids(judged(asked(node(companions=[]), **other), second(node(companions=[]), **other))) == set()


def test_a_companion_that_could_not_be_seen_is_unknown_where_it_counts() -> None:
    wish: dict[str, t.Any] = {"companions": [{**OLLAMA, "memory_gib": 1}], "mode": "cluster"}
    blind = {"companions": None, "errors": [{"section": "companions", "error": "systemd does not answer", "remedy": "x"}]}
    record = judged(asked(node(**blind), **wish), second(node(companions=[companion()]), **wish))
    assert ("spark-1", "unknown") in of_plan(record)
    assert ids(judged(asked(node(**blind)))) == set()


def test_the_size_of_the_cache_is_applied_where_every_node_has_a_recorded_start() -> None:
    wish: dict[str, t.Any] = {"kv_cache": "recorded"}
    usual = {"steady_mb": 30000, "lowest_mb": 30000}
    start = {"starts": [recorded(**usual)]}
    both = judged(asked(node(**start), **wish), second(node(**start), **wish))
    assert not ids(both) and {entry["id"] for entry in both["not_judged"]} == {"api.address"}
    lacking = judged(asked(node(**start), **wish), second(**wish))
    assert {(finding["id"], finding["node"], finding["verdict"]) for finding in lacking["findings"]} == {("plan.recorded", "spark-2", "block")}
    shorter = {"starts": [recorded(context=1024, **usual)]}
    (finding,) = judged(asked(node(**start), **wish), second(node(**shorter), **wish))["findings"]
    assert "the longest had 1024" in finding["message"] and finding["verdict"] == "block"
    broken = {"starts": None, "errors": [{"section": "starts", "error": "starts.json is not JSON", "remedy": "Remove it."}]}
    record = judged(asked(node(**start), **wish), second(node(**broken), **wish))
    assert ("plan.recorded", "spark-2") in {(finding["id"], finding["node"]) for finding in record["findings"]}


def test_the_size_of_the_cache_is_the_same_whatever_runs() -> None:
    """A second run has to get the size of the first: before the start, while the engine serves, and with another tenant."""
    start = {"starts": [recorded(steady_mb=30000, lowest_mb=30000)]}
    sizes = set()
    for changes in ({}, LIVE, {"memory__available_mb": 90000, "tenants": [tenant()]}):
        wish = {"one": asked(node(**start, **changes), kv_cache="recorded"), "two": second(node(**start), kv_cache="recorded")}
        pin, findings = judging.judge_cache(wish, PROFILE)
        assert pin is not None and not findings
        sizes.add(pin.size)
    assert len(sizes) == 1 and sizes.pop() % (checks.GIB // 4) == 0
    claimed = asked(node(**start), kv_cache="recorded", tenants=[{"name": "a", "gib": 70}])
    pin, findings = judging.judge_cache({"one": claimed, "two": second(node(**start), kv_cache="recorded")}, PROFILE)
    assert pin is not None and pin.size is None and "leaves no room" in findings[0]["message"]


def test_no_cache_size_was_requested() -> None:
    assert judging.judge_cache({"one": asked(), "two": second()}, PROFILE) == (None, [])


def recorded(**changes: t.Any) -> dict[str, t.Any]:
    """Return a recorded start with the same image, profile and driver as requested."""
    image = HEALTHY["images"][PROFILE["image"]["tag"]]["id"]
    start = {
        "cluster": "gb10", "image_id": image, "profile": PROFILE["id"], "profile_digest": planning.digest(PROFILE), "driver": "580.159.03", "kernel": "6.17",
        "boot_id": "b", "run_id": "r", "recorded_at": "now", "context": PROFILE["serve"]["max_model_len"], "total_mb": 124610, "before_mb": 118800,
        "lowest_mb": 3000, "steady_mb": 4000,
    }  # fmt: skip
    return {**start, **changes}


def test_what_a_start_took_counts_where_it_is_more_than_the_plan():
    assert not of_plan(judged(asked(node(starts=[recorded()])))), "4 GiB were left by a start of its own"
    record = judged(asked(node(starts=[recorded(steady_mb=900, lowest_mb=900)])))
    assert of_plan(record) == [("spark-1", "warn")]
    (finding,) = record["findings"]
    assert "0.9 +/- 1.0 left of 121.69" in finding["message"]
    others: list[dict[str, t.Any]] = [
        {"cluster": "b"}, {"image_id": "sha256:2"}, {"profile_digest": "e"}, {"driver": "590"}, {"context": 2**23}, {"steady_mb": 60000, "lowest_mb": 60000},
    ]  # fmt: skip
    assert not of_plan(judged(asked(node(starts=[recorded(**other) for other in others]))))


def test_a_cache_in_bytes_is_tight_until_a_start_is_recorded():
    arguments = {"kv_cache_memory_bytes": "8G"}
    starts = {"starts": [recorded(steady_mb=60000, lowest_mb=60000)]}
    record = judged(asked(node(**starts), serve_arguments=arguments), second(serve_arguments=arguments))
    assert of_plan(record) == [("spark-2", "warn")]
    (finding,) = [finding for finding in record["findings"] if finding["id"] == "plan.fits"]
    assert "takes a recorded start" in finding["message"]
    longer = {**arguments, "max_model_len": 2**20}
    assert ("spark-1", "warn") in of_plan(judged(asked(node(**starts), serve_arguments=longer), second(serve_arguments=longer)))


def test_records_that_cannot_be_read_pass_nothing():
    error = {"section": "starts", "verdict": "unknown", "error": "/var/lib/gb10/gb10/starts.json is not JSON", "remedy": "Remove it."}
    record = judged(asked(node(starts=None, errors=[error])))
    assert of_plan(record) == [("spark-1", "unknown")] and "Remove it." in record["findings"][0]["remedy"]
