# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings about the inputs of a play. The plays themselves are in tests/integration/test_inputs.py."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs import cluster, finding_ids, inputs, secrets, settings, values
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.renamed import RENAMED
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles

ROOT = Path(__file__).resolve().parents[5]
DEFAULTS = yaml.safe_load((ROOT / "roles" / "gb10" / "defaults" / "main.yml").read_text(encoding="utf-8"))

#: The evaluated settings of a host in a good inventory.
GOOD = {
    **DEFAULTS,
    "gb10_head_host": "spark-1",
    "gb10_worker_hosts": ["spark-2"],
    "gb10_fabric_address": "192.168.100.1",
    "gb10_fabric_interfaces": ["enp1s0f0np0", "enP2p1s0f0np0"],
    "gb10_control_interface": "enp1s0f0np0",
    "gb10_rdma_devices": ["rocep1s0f0"],
    "gb10_api_address": "192.168.100.1",
    "gb10_container_devices": ["/dev/infiniband"],
    "gb10_api_key_file": "",
    "gb10_hf_token_file": "",
}


def judged(change=None, failures=None, login=None, names=()):
    """Return the findings about one host whose settings are good except for ``change``."""
    return inputs.judge_host("spark-1", {**GOOD, **(change or {})}, failures or {}, login or {}, names)["findings"]


def stopping(findings):
    return {finding["id"] for finding in findings if finding["verdict"] in ("block", "unknown")}


def test_good_settings_raise_nothing():
    answer = inputs.judge_host("spark-1", GOOD, {}, {}, list(GOOD))
    assert answer["findings"] == []
    assert answer["profile"]["id"] == "nemotron_3_super_tp2"
    assert answer["settings"]["gb10_api_port"] == 8000


def test_where_no_profile_is_needed_none_is_judged():
    settings = {**GOOD, "gb10_profile": "no_such_profile", "gb10_serve_arguments": {"api_key": "x"}}
    answer = inputs.judge_host("spark-1", settings, {}, {}, list(GOOD), with_profile=False)
    assert (answer["findings"], answer["profile"]) == ([], None)
    assert inputs.judge_host("spark-1", settings, {}, {}, list(GOOD))["findings"]


@pytest.mark.parametrize(
    "change",
    [
        {"gb10_api_port": "8000"},
        {"gb10_allow": ["restart", "interrupt"]},
        {"gb10_allow": "restart, lost_node"},
        {"gb10_container_gpus": [0, "GPU-1"]},
        {"gb10_container_gpus": "none"},
        {"gb10_shm_size": "512MB"},
        {"gb10_hf_endpoint": "https://hub.example.lan/mirror"},
        {"gb10_container_capabilities": ["SYS_PTRACE", "DAC_OVERRIDE"]},
        {"gb10_env": {"VLLM_USE_RUST_FRONTEND": "0"}},
        {"gb10_env": {"VLLM_USE_RUST_FRONTEND": 1}, "gb10_api_key": "none"},
        {"gb10_serve_arguments": {"config": None, "grpc": False}},
        {"gb10_rdma_devices": []},
        {"gb10_memlock": 8388608},
        {"gb10_env": {"NCCL_DEBUG": "INFO", "TOKENIZERS_PARALLELISM": False, "OMP_NUM_THREADS": 1}},
        {"gb10_host_env": {"VLLM_HOST_IP": "192.168.100.1"}},
        {"gb10_env": {"NCCL_NET": "Socket"}, "gb10_fabric_fallback": "tcp"},
        {"gb10_serve_arguments": {"max-model-len": 4096, "kv_cache_dtype": None}},
        {"gb10_state_dir": "/data/gb10", "gb10_log_dir": "/data/gb10/log", "gb10_secrets_dir": "/data/gb10/secrets", "gb10_hf_home": "/data/gb10/hf"},
        {"gb10_silenced": ["disk.free"]},
        {"gb10_rules": {"memory.swap": {"most_mb": 4096, "verdict": "warn", "why": "old pages"}}},
        {"gb10_kv_cache": "recorded", "gb10_serve_arguments": {"kv_cache_memory_bytes": None}},
        {"gb10_tenants": [{"name": "speech", "node": "spark-2", "gib": 12}, {"name": "ollama", "gib": 0.5}]},
        {"gb10_companions": [{"name": "asr", "unit": "asr.service", "port": 8765, "health_path": "/health", "memory_gib": 4}]},
        {"gb10_sweep_alerts": [{"type": "webhook", "url": "https://hooks.lan/x"}], "gb10_sweep": "test"},
        {"gb10_mode": "day"},
        {
            "gb10_layouts": {"day": {"all": "x"}},
            "gb10_companions": [{"name": "asr", "unit": "asr.service", "port": 8765, "health_path": "/health", "memory_gib": 4, "modes": ["day"]}],
        },
    ],
)
def test_what_is_fine(change):
    assert judged(change) == []


BAD = [
    # types
    ({"gb10_api_port": "eight"}, "input.type", "gb10_api_port: is the text 'eight'; expected a whole number."),
    ({"gb10_api_port": 80.5}, "input.type", "gb10_api_port: is the number '80.5'"),
    ({"gb10_api_port": True}, "input.type", "gb10_api_port: is true; expected a whole number."),
    ({"gb10_ray_version": 2.6}, "input.type", "gb10_ray_version: is the number '2.6'; expected text."),
    ({"gb10_cluster_name": 7}, "input.type", "gb10_cluster_name: is the number '7'; expected text."),
    ({"gb10_allow": "restrt, interrupt"}, "input.choice", "gb10_allow: contains 'restrt' (did you mean 'restart'?); expected restart or interrupt or"),
    ({"gb10_allow": [1]}, "input.choice", "gb10_allow: contains '1'; expected restart or"),
    ({"gb10_fabric_interfaces": "eth1"}, "input.type", "gb10_fabric_interfaces: is the text 'eth1'; expected a list of texts."),
    ({"gb10_fabric_interfaces": [{"name": "eth1"}]}, "input.type", "gb10_fabric_interfaces: is a list of more than texts; expected a list of texts."),
    ({"gb10_env": ["A=1"]}, "input.type", "gb10_env: is a list; expected a mapping."),
    ({"gb10_env": {1: "x"}}, "input.type", "gb10_env: is a mapping with names that are not texts; expected a mapping."),
    ({"gb10_hf_home": None}, "input.type", "gb10_hf_home: has no value; expected text."),
    ({"gb10_fabric_fallback": "rdma"}, "input.choice", "gb10_fabric_fallback: is 'rdma'; expected none or tcp."),
    ({"gb10_kv_cache": "off"}, "input.choice", "gb10_kv_cache: is 'off'; expected profile or recorded."),
    (
        {"gb10_kv_cache": "recorded", "gb10_serve_arguments": {"kv-cache-memory-bytes": "8G"}}, "input.serve_arguments",
        "gb10_serve_arguments.kv-cache-memory-bytes: states the size of the KV cache",
    ),
    ({"gb10_mode": "Day"}, "input.format", "gb10_mode: is 'Day'; expected cluster, singles, 'off' in quotes, or the name of a layout."),
    ({"gb10_layouts": ["day"]}, "input.type", "gb10_layouts: is a list; expected a mapping."),
    (
        {"gb10_companions": [{"name": "asr", "unit": "asr.service", "port": 8765, "health_path": "/health", "memory_gib": 4, "modes": ["day"]}]},
        "input.companions", "gb10_companions[0].modes: is ['day']; expected a list of some of cluster, singles, off.",
    ),
    ({"gb10_companions": "speech"}, "input.type", "gb10_companions: is the text 'speech'; expected a list"),
    (
        {"gb10_companions": [{"name": "asr", "image": "asr:1", "port": 8765, "health_path": "/health", "memory_gib": 4}]}, "input.companions",
        "gb10_companions[0].image: is 'asr:1'; expected repository@sha256:",
    ),
    (
        {"gb10_companions": [{"name": "asr", "unit": "asr.service", "port": 8000, "health_path": "/health", "memory_gib": 4}]}, "input.companions",
        "gb10_companions[0].port: is 8000, and gb10_api_port is 8000; expected a port that the cluster does not need.",
    ),
    (
        {"gb10_companions": [{
            "name": "asr", "image": f"asr@sha256:{'0' * 64}", "port": 1, "health_path": "/", "memory_gib": 4, "env": {"HF_TOKEN": "secret"},
        }]}, "input.env_secret", "gb10_companions[0].env.HF_TOKEN: looks like a secret",
    ),
    ({"gb10_sweep_alerts": "https://planted"}, "input.type", "gb10_sweep_alerts: is the text; expected a list."),
    ({"gb10_sweep_alerts": [{"type": "slack"}]}, "input.sweep", "gb10_sweep_alerts[0].type: is 'slack'; expected webhook, telegram or mail."),
    ({"gb10_sweep_alerts": [{"type": "webhook", "url": "http://10.0.0.9/planted"}]}, "input.sweep", "gb10_sweep_alerts[0].url: is http to a private address"),
    ({"gb10_sweep_endpoints": [{"name": "a", "url": "x"}]}, "input.sweep", "gb10_sweep_endpoints[0].url: has another form"),
    ({"gb10_recover": "paused 2 hours"}, "input.format", "gb10_recover: is 'paused 2 hours'; expected observe, restart, none, or such as 'paused 2h upgrading"),
    ({"gb10_recover": "2h upgrading the switch"}, "input.format", "gb10_recover: is '2h upgrading the switch'; expected observe, restart, none, or"),
    ({"gb10_copy_port": 65534}, "input.port", "gb10_copy_port: is 65534; expected 1024 to 65533."),
    ({"gb10_ray_port": 20302}, "input.same_port", "gb10_ray_port: is 20302, and so is gb10_copy_port + 2; expected a port of its own."),
    ({"gb10_sweep_minutes": 1441}, "input.range", "gb10_sweep_minutes: is 1441; expected 1 to 1440."),
    ({"gb10_bench_tokens": "1024"}, "input.format", "gb10_bench_tokens: is '1024'; expected tokens of a prompt and of its answer"),
    ({"gb10_bench_tokens": "1024/1"}, "input.format", "gb10_bench_tokens: is '1024/1'"),
    ({"gb10_bundle_dir": "spark-2:ssd"}, "input.path", "gb10_bundle_dir: is 'spark-2:ssd'; expected an absolute path"),
    ({"gb10_sweep_ca_file": "ca.pem"}, "input.path", "gb10_sweep_ca_file: is 'ca.pem'; expected an absolute path"),
    ({"gb10_sweep": "off"}, "input.choice", "gb10_sweep: is 'off'; expected present or test or absent."),
    ({"gb10_sweep": "test"}, "input.sweep", "gb10_sweep: is test, and gb10_sweep_alerts has no channel."),
    ({"gb10_tenants": "speech"}, "input.type", "gb10_tenants: is the text 'speech'; expected a list"),
    ({"gb10_tenants": ["speech"]}, "input.tenants", "gb10_tenants[0]: is 'speech'; expected {name, node, gib}."),
    ({"gb10_tenants": [{"name": "a", "gib": 1, "gb": 1}]}, "input.tenants", "gb10_tenants[0].gb: is not a known field; expected name, node and gib."),
    ({"gb10_tenants": [{"name": "a", "gib": "12"}]}, "input.tenants", "gb10_tenants[0].gib: is '12'; expected GiB above 0"),
    ({"gb10_tenants": [{"name": "", "gib": 1}]}, "input.tenants", "gb10_tenants[0].name: is ''; expected the name of its container or program"),
    ({"gb10_tenants": [{"name": "a", "gib": 1, "node": 2}]}, "input.tenants", "gb10_tenants[0].node: is 2; expected the inventory's name of a node"),
    # numbers
    ({"gb10_stop_grace": 0}, "input.range", "gb10_stop_grace: is 0; expected 1 or more."),
    ({"gb10_stop_grace": -5}, "input.range", "gb10_stop_grace: is -5; expected 1 or more."),
    ({"gb10_serve_timeout": "-1"}, "input.range", "gb10_serve_timeout: is -1; expected 30 or more."),
    ({"gb10_ray_gpus": 0}, "input.range", "gb10_ray_gpus: is 0; expected 1 to 16."),
    ({"gb10_object_store_memory": 1}, "input.range", "gb10_object_store_memory: is 1; expected 78643200 or more."),
    ({"gb10_memlock": 0}, "input.range", "gb10_memlock: is 0; expected -1 (unlimited) or 65536"),
    # ports
    ({"gb10_api_port": 80}, "input.port", "gb10_api_port: is 80; expected 1024 to 65535."),
    ({"gb10_ray_port": 70000}, "input.port", "gb10_ray_port: is 70000; expected 1024"),
    ({"gb10_api_port": 6379}, "input.same_port", "gb10_ray_port: is 6379, and so is gb10_api_port; expected a port of its own."),
    ({"gb10_ray_port_range": "20100"}, "input.port_range", "gb10_ray_port_range: is '20100'."),
    ({"gb10_ray_port_range": "20100-20110"}, "input.port_range", "gb10_ray_port_range: 20100-20110 has 11 ports; expected 50 or more"),
    ({"gb10_ray_port_range": "20299-20100"}, "input.port_range", "has 0 ports"),
    ({"gb10_api_port": 20150}, "input.port_range", "gb10_api_port: 20150 lies inside gb10_ray_port_range 20100-20299"),
    # formats
    ({"gb10_cluster_name": "My Cluster"}, "input.cluster_name", "gb10_cluster_name: is 'My Cluster'; expected 1 to 32 of a-z"),
    ({"gb10_cluster_name": "../x"}, "input.cluster_name", "gb10_cluster_name: is '../x'"),
    ({"gb10_cluster_name": "a" * 33}, "input.cluster_name", "expected 1 to 32"),
    ({"gb10_cluster_name": "companions"}, "input.cluster_name", "gb10_cluster_name: is 'companions'; expected"),
    ({"gb10_shm_size": "lots"}, "input.format", "gb10_shm_size: is 'lots'; expected a size as Docker takes it"),
    ({"gb10_ray_version": "latest"}, "input.format", "gb10_ray_version: is 'latest'; expected a version of three numbers"),
    ({"gb10_hf_endpoint": "hub.lan"}, "input.format", "gb10_hf_endpoint: is 'hub.lan'"),
    ({"gb10_container_devices": ["/dev/mem:/dev/mem"]}, "input.format", "gb10_container_devices: holds '/dev/mem:/dev/mem'; expected a path below /dev, not"),
    *(
        ({"gb10_container_devices": [name]}, "input.format", f"gb10_container_devices: holds '{name}'; expected a path below /dev, not")
        for name in ("/dev//mem", "/dev/./kmem:/dev/x", "/dev/x/../port", "/dev/mem/", "/dev/.", "/dev/../etc")
    ),
    *(
        ({"gb10_container_capabilities": [name]}, "input.format", f"gb10_container_capabilities: holds '{name}'; expected one by which a container stays")
        for name in ("ALL", "SYS_ADMIN", "cap_sys_admin", "CAP_SYS_MODULE", "SYS_RAWIO", "DAC_READ_SEARCH")
    ),
    ({"gb10_container_gpus": "0,1"}, "input.format", "gb10_container_gpus: is '0,1'; expected all, none, or a list of GPU ids."),
    ({"gb10_container_devices": ["infiniband"]}, "input.format", "gb10_container_devices: holds 'infiniband'; expected a path below /dev,"),
    ({"gb10_fabric_interfaces": ["a,b"]}, "input.format", "gb10_fabric_interfaces: holds 'a,b'; expected the name of one interface."),
    ({"gb10_rdma_devices": ["rocep1s0f0:1"]}, "input.format", "gb10_rdma_devices: holds 'rocep1s0f0:1'"),
    ({"gb10_fabric_address": ""}, "input.fabric_address", "gb10_fabric_address: is ''; expected the node's IP address"),
    ({"gb10_fabric_address": "spark-1"}, "input.fabric_address", "gb10_fabric_address: is 'spark-1'; expected the node's IP address on the ConnectX-7 link"),
    ({"gb10_fabric_address": "0.0.0.0"}, "input.fabric_address", "gb10_fabric_address: is '0.0.0.0'; expected the node's IP address"),
    # consent and secrets
    ({"gb10_hf_token_file": "token"}, "input.path", "gb10_hf_token_file: is 'token'; expected the absolute path of a file on the controller."),
    ({"gb10_hf_token_file": "/no/such/token"}, "input.secret_file", "gb10_hf_token_file: /no/such/token can't be used: No such file or directory."),
    # places
    ({"gb10_hf_home": "models"}, "input.path", "gb10_hf_home: is 'models'; expected an absolute path"),
    ({"gb10_hf_home": "/models:ro"}, "input.path", "gb10_hf_home: is '/models:ro'; expected an absolute path"),
    ({"gb10_state_dir": "/var/lib/gb10/../x"}, "input.path", "gb10_state_dir: is '/var/lib/gb10/../x'"),
    ({"gb10_secrets_dir": "/etc"}, "input.path", "gb10_secrets_dir: is '/etc'; expected an absolute path"),
    ({"gb10_state_dir": "/"}, "input.path", "gb10_state_dir: is '/'; expected an absolute path"),
    ({"gb10_log_dir": "/var/log/"}, "input.path", "that is not one of the system's directories."),
    ({"gb10_records_dir": "records"}, "input.path", "gb10_records_dir: is 'records'; expected the absolute path of a directory on the controller."),
    ({"gb10_records_dir": __file__}, "input.path", "gb10_records_dir: is '/"),
    # rules
    ({"gb10_rules": {"memory.swop": {"verdict": "warn"}}}, "input.rules", "gb10_rules.memory.swop: no rule has this id (did you mean 'memory.swap'?)"),
    ({"gb10_rules": {"memory.swap": {"most": 1}}}, "input.rules", "gb10_rules.memory.swap.most: is not a limit of this rule; expected most_mb"),
    ({"gb10_rules": {"memory.swap": {"verdict": "pass"}}}, "input.rules", "gb10_rules.memory.swap.verdict: is 'pass'; expected warn or silenced"),
    ({"gb10_hf_token_file": "~no-such-user/t"}, "input.path", "gb10_hf_token_file: is '~no-such-user/t'"),
    ({"gb10_build_ca_file": "ca.pem"}, "input.path", "gb10_build_ca_file: is 'ca.pem'"),
    ({"gb10_log_dir": "/var/lib/gb10"}, "input.same_path", "gb10_log_dir: is /var/lib/gb10, and so is gb10_state_dir; expected a directory of its own."),
    ({"gb10_secrets_dir": "/var/log/gb10/secrets"}, "input.same_path", "gb10_secrets_dir: /var/log/gb10/secrets lies inside gb10_log_dir"),
    ({"gb10_state_dir": "/etc/gb10/secrets/state"}, "input.same_path", "gb10_state_dir: /etc/gb10/secrets/state lies inside gb10_secrets_dir"),
    ({"gb10_cluster_name": "huggingface"}, "input.same_path", "lies in the state of the cluster huggingface"),
    # variables of containers
    ({"gb10_env": {"NOT A NAME": "1"}}, "input.env", "gb10_env.NOT A NAME: is not a valid variable name"),
    ({"gb10_env": {"A": "x\ny"}}, "input.env", "gb10_env.A: holds a line break"),
    ({"gb10_env": {"A": "x\0y"}}, "input.env", "gb10_env.A: holds a line break or a zero byte"),
    ({"gb10_env": {"HF_HOME": "/x"}}, "input.env", "gb10_env.HF_HOME: is set by the collection from gb10_hf_home."),
    ({"gb10_env": {"VLLM_HOST_IP": "192.168.100.1"}}, "input.env_per_host", "gb10_env.VLLM_HOST_IP: differs from node to node"),
    ({"gb10_env": {"HF_TOKEN": "hf_x"}}, "input.env_secret", "gb10_env.HF_TOKEN: is a secret"),
    ({"gb10_host_env": {"VLLM_API_KEY": "k"}}, "input.env_secret", "gb10_host_env.VLLM_API_KEY: is a secret"),
    ({"gb10_env": {"AWS_SECRET_ACCESS_KEY": "/x"}}, "input.env_secret", "gb10_env.AWS_SECRET_ACCESS_KEY: looks like a secret"),
    ({"gb10_host_env": {"db_passwd": "x"}}, "input.env_secret", "gb10_host_env.db_passwd: looks like a secret"),
    ({"gb10_build_pip_env": {"UV_INDEX_PASSWORD": "x"}}, "input.env_secret", "gb10_build_pip_env.UV_INDEX_PASSWORD: looks like a secret, which"),
    # credentials within a value
    ({"gb10_build_pip_env": {"PIP_INDEX_URL": "https://me:pw@index.lan/simple"}}, "input.credential", "gb10_build_pip_env.PIP_INDEX_URL: holds what"),
    ({"gb10_env": {"http_proxy": "http://me:pw@proxy:3128"}}, "input.credential", "gb10_env.http_proxy: holds what looks like a password"),
    ({"gb10_host_env": {"CACHE": "redis://:pw@cache/0"}}, "input.credential", "gb10_host_env.CACHE: holds"),
    ({"gb10_env": {"EXTRA": "--api-key=abc"}}, "input.credential", "gb10_env.EXTRA: holds"),
    ({"gb10_hf_endpoint": "https://tok@hub.lan"}, "input.credential", "gb10_hf_endpoint: holds"),
    ({"gb10_serve_arguments": {"kv_transfer_config": {"url": ["redis://:pw@cache/0"]}}}, "input.credential", "gb10_serve_arguments.kv_transfer_config.url"),
    ({"gb10_ray_version": "2.51.1"}, "input.format", "gb10_ray_version: is '2.51.1'; expected a version of three numbers from 2.52 on"),
    ({"gb10_host_env": {"1A": "x"}}, "input.host_env", "gb10_host_env.1A: is not a valid variable name"),
    ({"gb10_env": {"NCCL_IB_DISABLE": 1}}, "input.fabric_fallback", "gb10_env.NCCL_IB_DISABLE: takes NCCL off InfiniBand"),
    ({"gb10_env": {"VLLM_USE_RUST_FRONTEND": "1"}}, "input.env", "gb10_env.VLLM_USE_RUST_FRONTEND: takes the front end that runs no guard"),
    ({"gb10_host_env": {"VLLM_USE_RUST_FRONTEND": True}}, "input.host_env", "gb10_host_env.VLLM_USE_RUST_FRONTEND: takes the front end"),
    ({"gb10_build_pip_env": {"PIP INDEX": "x"}}, "input.env", "gb10_build_pip_env.PIP INDEX: is not a valid variable name"),
    # profile and arguments
    ({"gb10_profile": "nemotron"}, "input.profile", "gb10_profile: unknown profile 'nemotron'"),
    ({"gb10_profile_dirs": ["/nonexistent/profiles"]}, "input.profile", "gb10_profile_dirs: no directory /nonexistent/profiles on the controller."),
    ({"gb10_signature_dirs": ["/nonexistent/signatures"]}, "input.signatures", "gb10_signature_dirs: no directory /nonexistent/signatures on the controller."),
    ({"gb10_serve_arguments": {"host": "x"}}, "input.serve_arguments", "gb10_serve_arguments.host: is set by the collection"),
    ({"gb10_serve_arguments": {"--max-model-len": 1}}, "input.serve_arguments", "gb10_serve_arguments.--max-model-len: begins with dashes"),
    ({"gb10_serve_arguments": {"max-num-seqs": 1, "max_num_seqs": 2}}, "input.serve_arguments", "gb10_serve_arguments.max_num_seqs: is given twice"),
    ({"gb10_serve_arguments": {"hf_token": "x"}}, "input.serve_arguments", "gb10_serve_arguments.hf_token: is a secret"),
    ({"gb10_serve_arguments": {"config": "/opt/x.yml"}}, "input.serve_arguments", "gb10_serve_arguments.config: reads more arguments from a file"),
    ({"gb10_serve_arguments": {"grpc": True}}, "input.serve_arguments", "gb10_serve_arguments.grpc: has the engine serve gRPC in place of HTTP"),
    ({"gb10_serve_arguments": {"grpc-por": 50051}}, "input.serve_arguments", "gb10_serve_arguments.grpc_por: is the beginning of grpc_port"),
    ({"gb10_serve_arguments": {"middleware": ["a", "--grpc"]}}, "input.serve_arguments", "gb10_serve_arguments.middleware: holds a word that begins with"),
    ({"gb10_serve_arguments": {"grpc-port": 50051}}, "input.serve_arguments", "gb10_serve_arguments.grpc_port: has the engine serve gRPC as well"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "id", "part"), BAD, ids=lambda value: value if isinstance(value, str) and value.startswith("input.") else "")
def test_bad_settings_block_with_variable_value_and_remedy(change, id, part):
    findings = judged(change)
    assert id in stopping(findings)
    assert part in "\n".join(finding["message"] for finding in findings if finding["id"] == id)
    assert all(finding["remedy"] for finding in findings)


@pytest.mark.parametrize(
    ("given", "entries", "flow"),
    [
        ("eth1", '["eth1"]', "[eth1]"),
        # As `-e 'gb10_fabric_interfaces=["eth1", "eth2"]'` gives it.
        ('["eth1", "eth2"]', '["eth1", "eth2"]', "[eth1, eth2]"),
    ],
)
def test_a_text_in_place_of_a_list_gets_the_list_to_type(given, entries, flow):
    (finding,) = [finding for finding in judged({"gb10_fabric_interfaces": given}) if finding["id"] == "input.type"]
    assert f"gb10_fabric_interfaces: {flow}" in finding["remedy"]
    assert f"""-e '{{"gb10_fabric_interfaces": {entries}}}'""" in finding["remedy"]


@pytest.mark.parametrize("name", ["RAY_X_TOKEN_FILE", "SSL_SECRET_PATH", "TOKENIZERS_PARALLELISM", "GOOGLE_APPLICATION_CREDENTIALS"])
def test_what_only_names_a_file_is_no_secret(name):
    assert stopping(judged({"gb10_env": {name: "/etc/x"}})) == set()


def test_a_credential_is_shown_by_no_finding():
    assert "s3cr3t" not in str(judged({"gb10_env": {"A": "https://me:s3cr3t@x", "s3_token": "s3cr3t"}, "gb10_build_pip_env": {"P": "https://s3cr3t@x"}}))


def test_code_of_an_unlisted_repository_runs_nowhere():
    given = {"gb10_serve_arguments": {"tokenizer": "org/words", "trust_remote_code": True}}
    (finding,) = [finding for finding in judged(given) if finding["id"] == "input.offline"]
    assert finding["verdict"] == "block" and "runs code from there, which no commit pins" in finding["message"] and "with its revision" in finding["remedy"]


WARNED = [
    ({"gb10_ray_port_range": "40000-40199"}, "input.port_range", "overlaps 32768-60999"),
    ({"gb10_tenants": [{"name": "a", "gib": 1, "node": "spark-9"}]}, "input.tenants", "gb10_tenants[0].node: spark-9 is not a node of this cluster"),
    ({"gb10_silenced": ["disk.fre"]}, "input.silenced", "no finding has the id 'disk.fre' (did you mean 'disk.free'?)"),
    ({"gb10_serve_arguments": {"tokenizer": "org/words", "trust_remote_code": False}}, "input.offline", "serve.tokenizer: names org/words, which the play"),
    ({"gb10_serve_arguments": {"shutdown_timeout": 120}}, "input.stop_grace", "gb10_stop_grace: 120 s is not more than the engine's own shutdown_timeout"),
]


@pytest.mark.parametrize(("change", "id", "part"), WARNED)
def test_what_is_doubtful_is_reported_and_stops_nothing(change, id, part):
    findings = judged(change)
    assert [finding["id"] for finding in findings] == [id]
    assert stopping(findings) == set()
    assert part in findings[0]["message"]
    assert findings[0]["remedy"]


def test_no_message_shows_a_secret():
    secret = "s3cr3t"
    change = {
        "gb10_env": {"HF_TOKEN": secret, "A": f"{secret}\n", "NO NAME": secret},
        "gb10_host_env": {"VLLM_API_KEY": secret},
        "gb10_build_pip_env": {"PIP_INDEX_URL": f"https://me:{secret}@index.lan"},
        "gb10_serve_arguments": {"hf_token": secret},
    }
    answer = inputs.judge_host("spark-1", {**GOOD, **change}, {}, {}, [])
    assert len(answer["findings"]) == 6
    assert secret not in str(answer)


def test_every_problem_is_listed_at_once():
    findings = judged({"gb10_api_port": 80, "gb10_profile": "nemotron", "gb10_hf_home": None, "gb10_env": {"1": ""}})
    assert stopping(findings) == {"input.port", "input.profile", "input.type", "input.env"}


# Recorded from ansible-core 2.19 and 2.21, whose messages are identical.
NO_PASSWORD = "Error rendering template: Attempt to use undecryptable variable: Attempting to decrypt but no vault secrets found."
WRONG_PASSWORD = (
    "Error rendering template: Attempt to use undecryptable variable: Decryption failed (no vault secrets were found that could decrypt)."
)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (NO_PASSWORD, (True, "Attempting to decrypt but no vault secrets found.")),
        (WRONG_PASSWORD, (True, "Decryption failed (no vault secrets were found that could decrypt).")),
        ("'proxy' is undefined", (False, "'proxy' is undefined")),
        ("Error rendering template: division by zero\nmore", (False, "division by zero")),
    ],
)
def test_what_ansible_says_about_a_variable(text, failure):
    assert settings.Failure.of(text) == failure


def test_passwords_of_all_hosts_are_reported_once():
    failed = {"ansible_become_password": settings.Failure.of(NO_PASSWORD)}
    (finding,) = cluster.judge_passwords({"spark-1": failed, "spark-2": failed})
    assert (finding["id"], finding["node"]) == ("input.vault", "cluster")
    assert cluster.judge_passwords({"spark-1": {}, "spark-2": {}}) == []
    (finding,) = cluster.judge_passwords({"spark-1": {}, "spark-2": failed})
    assert finding["node"] == "spark-2"


def test_a_variable_that_cannot_be_evaluated_is_named():
    failures = {"gb10_hf_endpoint": settings.Failure.of(NO_PASSWORD), "gb10_env": settings.Failure.of("'proxy' is undefined")}
    evaluated = {name: value for name, value in GOOD.items() if name not in failures}
    vault, template = inputs.judge_host("spark-1", evaluated, failures, {}, [])["findings"]
    assert (vault["id"], template["id"]) == ("input.vault", "input.template")
    assert vault["message"].startswith("gb10_hf_endpoint: is encrypted and can't be decrypted: Attempting")
    assert "--ask-vault-pass or --vault-password-file" in vault["remedy"]
    assert template["message"] == "gb10_env: can't be evaluated: 'proxy' is undefined."


def test_a_private_key_that_others_can_read_is_named(tmp_path):
    key = tmp_path / "id"
    key.write_text("x", encoding="utf-8")
    key.chmod(0o600)
    assert judged(login={"ansible_ssh_private_key_file": str(key)}) == []
    key.chmod(0o640)
    (finding,) = judged(login={"ansible_ssh_private_key_file": str(key)})
    assert (finding["id"], finding["remedy"]) == ("input.secret_file", f"chmod 0600 {key}")
    assert "can be read by others (mode 0640)" in finding["message"]
    (finding,) = judged(login={"ansible_private_key_file": str(tmp_path / "none")})
    assert "No such file" in finding["message"]


def test_a_misspelt_setting_is_reported():
    (finding,) = judged(names=["gb10_api_prot", "ansible_host", *GOOD])
    assert (finding["id"], finding["verdict"]) == ("input.unknown_setting", "block")
    assert finding["message"] == "gb10_api_prot: no role reads this variable (did you mean 'gb10_api_port'?)."


def test_a_name_of_the_users_own_is_reported_and_one_that_was_given_for_this_run_stops_it():
    """The common prefix of all settings does not make two names similar."""
    (finding,) = judged(names=["gb10_rack_and_room", *GOOD])
    assert (finding["id"], finding["verdict"], finding["message"]) == ("input.unknown_setting", "warn", "gb10_rack_and_room: no role reads this variable.")
    verdicts = {problem.where: problem.verdict for problem in settings.unknown_settings(["gb10_rack_and_room", "gb10_other_thing"], {"gb10_other_thing"})}
    assert verdicts == {"gb10_rack_and_room": "warn", "gb10_other_thing": "block"}


def test_an_old_name_is_refused_with_what_to_type_instead():
    (finding,) = judged(names=["gb10_allow_restart", *GOOD])
    assert (finding["id"], finding["verdict"], finding["remedy"]) == ("input.unknown_setting", "block", "-e gb10_allow=restart")
    assert not set(RENAMED) & settings.known_settings()


def test_every_setting_that_a_playbook_reads_is_known():
    """Otherwise it could not be set on the command line."""
    places = [*(ROOT / "playbooks").glob("*.yml"), *(ROOT / "playbooks" / "tasks").glob("*.yml"), *(ROOT / "roles").glob("*/*/*.yml")]
    read = {name for path in places for name in re.findall(r"(?<![\w/.-])gb10_[a-z0-9_]+\b(?!['/])", path.read_text(encoding="utf-8"))}
    groups = {"gb10_cluster", "gb10_head", "gb10_workers"}
    unknown = {name for name in read - settings.known_settings() - settings.passed_on() - groups if not name.startswith("gb10_awx_")}
    assert unknown == set()


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization: is 1.5; expected a number above 0, up to 1"),
        ({"gpu_memory_utilization": 95}, "gpu_memory_utilization: is 95; expected a number above 0, up to 1"),
        ({"max_model_len": "huge"}, "max_model_len: is 'huge'; expected a whole number of 1 or more"),
        ({"max_model_len": -5}, "max_model_len: is -5; expected"),
        ({"max_num_batched_tokens": "1.5M"}, "max_num_batched_tokens: is '1.5M'; expected"),
        ({"dtype": "float7"}, "dtype: is 'float7'; expected one of auto, bfloat16, float, float16, float32, half (did you mean 'float'?)"),
        ({"enforce_eager": "yes"}, "enforce_eager: is 'yes'; expected true or false"),
        ({"seed": "x"}, "seed: is 'x'; expected a whole number"),
        ({"block_size": 0}, "block_size: is 0; expected a whole number of 1 or more"),
        ({"block_size": True}, "block_size: is True; expected"),
        ({"watermark": "much"}, "watermark: is 'much'; expected a number"),
        ({"scheduling_policy": ["fcfs", "lifo"]}, "scheduling_policy: is 'lifo'; expected one of fcfs, priority"),
    ],
)
def test_values_that_no_engine_takes_block(change, where):
    findings = [finding for finding in judged({"gb10_serve_arguments": change}) if finding["id"] == "input.serve_arguments"]
    assert [finding["verdict"] for finding in findings] == ["block"] and findings[0]["message"].startswith(f"gb10_serve_arguments.{where}"), findings


@pytest.mark.parametrize(
    "change",
    [
        {"gpu_memory_utilization": "0.75"}, {"max_model_len": "64k"}, {"max_model_len": "auto"}, {"seed": "7"}, {"block_size": 16}, {"dtype": None},
        {"enforce_eager": False}, {"long_prefill_token_threshold": "2k"}, {"max_lora_rank": 64}, {"no_enable_prefix_caching": True},
        {"compilation_config.max_size": 1}, {"hf_overrides": {"a": 1}},
    ],
)  # fmt: skip
def test_values_as_the_engine_reads_them_pass(change):
    assert judged({"gb10_serve_arguments": change}) == []


@pytest.mark.parametrize(
    ("change", "message", "verdict"),
    [
        ({"max_model_length": 4096}, "max_model_length: is an argument of no release of vLLM from 0.19.1 to 0.33.0 (did you mean 'max_model_len'?).", "block"),
        ({"quantum_mode": 1}, "quantum_mode: is an argument of no release of vLLM from 0.19.1 to 0.33.0.", "block"),
        ({"swap_space": 4}, "swap_space: vLLM 0.32.0 knows no --swap-space; it was removed in 0.18.0", "block"),
        ({"disable_eplb": True}, "disable_eplb: is an argument of no release that the profile allows (0.18.0 to 0.32.0): it came after 0.32.0.", "block"),
        ({"kv_cache_dtype": "fp9"}, "kv_cache_dtype: is 'fp9', which no release of vLLM has (did you mean 'fp8'?).", "warn"),
    ],
)
def test_names_are_judged_by_the_releases_that_the_profile_allows(change, message, verdict):
    (finding,) = judged({"gb10_serve_arguments": change})
    assert (finding["id"], finding["verdict"]) == ("input.flags", verdict)
    assert finding["message"].startswith(f"gb10_serve_arguments.{message}"), finding["message"]
    assert finding["remedy"]


def test_a_text_in_place_of_a_mapping_gets_the_mapping_to_type():
    (finding,) = [finding for finding in judged({"gb10_serve_arguments": "gpu_memory_utilization=0.65"}) if finding["id"] == "input.type"]
    assert finding["remedy"].endswith("""-e '{"gb10_serve_arguments": {"gpu_memory_utilization": 0.65}}'""")


def test_what_can_hardly_work_is_said():
    (control,) = judged({"gb10_control_interface": "eth99"})
    assert (control["id"], control["verdict"]) == ("input.control_interface", "warn")
    assert "input.fabric_address" in stopping(judged({"gb10_fabric_address": "fe80::1"}))
    assert "input.fabric_address" not in stopping(judged({"gb10_fabric_address": "169.254.3.1"}))


@pytest.mark.parametrize(("host", "reported"), [("spark-1.example.lan", True), ("node.example.com", True), ("example-1.lan", False), ("10.0.0.1", False)])
def test_names_of_the_example_are_reported(host, reported):
    findings = judged({"gb10_fabric_address": "169.254.3.1", "gb10_api_address": "169.254.3.1"}, login={"ansible_host": host})
    assert [finding["id"] for finding in findings] == (["input.placeholder"] if reported else [])


@pytest.mark.parametrize(
    ("host", "change", "names"),
    [
        ("spark-1.example.lan", {"gb10_fabric_address": "192.168.100.2"}, ["ansible_host", "gb10_fabric_address"]),
        ("spark-1.example.lan", {"gb10_fabric_address": "192.168.100.3"}, ["ansible_host"]),
        ("spark-1.lan", {"gb10_fabric_address": "192.168.100.1"}, []),
        ("spark-1.example.lan", {"gb10_api_address": "10.0.0.11"}, ["ansible_host", "gb10_fabric_address", "gb10_api_address"]),
        ("spark-1.lan", {"gb10_api_address": "10.0.0.11"}, []),
        ("spark-1.example.lan", {"gb10_api_address": "10.0.0.11", "gb10_head_host": "spark-2"}, ["ansible_host", "gb10_fabric_address"]),
        ("spark-1.example.lan", {"gb10_api_address": "10.0.0.12"}, ["ansible_host", "gb10_fabric_address"]),
    ],
)
def test_addresses_of_the_example_are_reported_where_they_are_hardly_an_owners(host, change, names):
    findings = [finding for finding in judged(change, login={"ansible_host": host}) if finding["id"] == "input.placeholder"]
    assert [finding["message"].split(":")[0] for finding in findings] == names
    assert all(finding["verdict"] == "warn" for finding in findings)


def test_the_addresses_of_the_example_are_those_of_its_files():
    example = ROOT / "inventories" / "example"
    assert f"gb10_api_address: {values.EXAMPLE_API}\n" in (example / "group_vars" / "gb10_cluster.yml").read_text(encoding="utf-8")
    hosts = (example / "hosts").read_text(encoding="utf-8")
    assert tuple(re.findall(r"gb10_fabric_address: (\S+)", hosts)) == values.EXAMPLE_FABRIC


# -- a memory plan ---------------------------------------------------------------------------------------------------


def planned(**given):
    findings = inputs.judge_role("plan", "controller", {"gb10_profile": "nemotron_3_super_tp2", **given}, {})
    return [finding["message"] for finding in findings]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gb10_plan_nodes": "121.7,x"}, "gb10_plan_nodes[1].total_gib: is 'x'; expected GiB from 8 to 4096"),
        ({"gb10_plan_nodes": "121.7,119.6,1"}, "gb10_plan_nodes[2].total_gib: is '1'; expected GiB from 8 to 4096"),
        ({"gb10_plan_nodes": [121.7]}, "gb10_plan_nodes: names 1; expected 2, as many as the profile has ranks"),
        ({"gb10_plan_context": "long"}, "gb10_plan_context: is 'long'; expected a whole number of 1 or more"),
        ({"gb10_plan_context": "8k,x"}, "gb10_plan_context: is 'x'; expected a whole number of 1 or more"),
        ({"gb10_plan_concurrency": 0}, "gb10_plan_concurrency: is 0; expected 1 or more"),
        ({"gb10_plan_nodes": 3}, "gb10_plan_nodes: names 3; expected 2, as many as the profile has ranks"),
        ({"gb10_plan_model": "nope"}, "gb10_plan_model: the model is 'nope', expected org/name"),
        ({"gb10_plan_model": "org/name@main"}, "gb10_plan_model: /nowhere/hub/models--org--name: no config.json of org/name at main"),
        ({"gb10_to": "/nowhere/plan.json"}, "gb10_to: there is no directory /nowhere"),
        ({"gb10_tenants": [{"name": "x"}]}, "gb10_tenants[0].gib: is None; expected GiB above 0, up to 4096"),
    ],
)
def test_each_wrong_setting_of_a_plan_is_named(given, message, monkeypatch):
    monkeypatch.setenv("HF_HOME", "/nowhere")
    messages = planned(**given)
    assert any(text.startswith(message) for text in messages) and all(next(iter(given)) in text for text in messages), messages


@pytest.mark.parametrize(
    "given",
    [
        {}, {"gb10_plan_nodes": "121.7, 119.6"}, {"gb10_plan_nodes": 64}, {"gb10_plan_nodes": []}, {"gb10_plan_context": "0"}, {"gb10_plan_context": "1M"},
        {"gb10_plan_context": 4096}, {"gb10_plan_context": "0,8192,64k"}, {"gb10_plan_nodes": "2"}, {"gb10_to": "plan.json"}, {"gb10_to": ""},
        {"gb10_to": "/tmp/plan.json"},
    ],
)  # fmt: skip
def test_good_settings_of_a_plan_raise_nothing(given):
    assert planned(**given) == []


def test_a_name_that_the_playbook_itself_reads_is_known():
    (problem,) = settings.unknown_settings(["gb10_awx_image", "gb10_awx_imag"], known=["gb10_awx_image"])
    assert problem.where == "gb10_awx_imag" and "did you mean 'gb10_awx_image'" in problem.what and problem.verdict == "block"


# -- all hosts together ----------------------------------------------------------------------------------------------


def answer(host, **change):
    number = host[-1]
    evaluated = {**GOOD, "gb10_fabric_address": f"192.168.100.{number}", **change}
    judged_host = inputs.judge_host(host, evaluated, {}, {}, [])
    return {**judged_host, "login": {"connection": "ssh", "host": f"10.0.0.{number}", "port": 22}}


PLAY = {
    "groups": {
        "all": ["spark-1", "spark-2"],
        "gb10_cluster": ["spark-1", "spark-2"],
        "gb10_head": ["spark-1"],
        "gb10_workers": ["spark-2"],
    },
    "hosts": ["spark-1", "spark-2"],
    "batch": ["spark-1", "spark-2"],
    "limit": "",
    "forks": 5,
    "consent": "",
}


def together(change=None, play=None, second=None):
    """Judge two hosts: ``change`` is set for both, ``second`` for the worker alone."""
    answers = {"spark-1": answer("spark-1", **(change or {})), "spark-2": answer("spark-2", **{**(change or {}), **(second or {})})}
    playing = {**PLAY, **(play or {})}
    return cluster.judge_cluster({host: answers[host] for host in playing["batch"]}, playing)


def test_fabric_addresses_of_two_kinds_are_refused():
    (finding,) = together(second={"gb10_fabric_address": "2001:db8::2"})
    assert (finding["id"], finding["verdict"], finding["node"]) == ("input.address_family", "block", "spark-2")
    assert "2001:db8::2 is an address of IPv6, and that of spark-1 one of IPv4" in finding["message"]


def test_a_good_cluster_passes():
    (finding,) = together()
    assert (finding["verdict"], finding["message"]) == ("pass", "nemotron_3_super_tp2 on spark-1, spark-2.")


def test_a_head_alone_is_a_cluster():
    settings = {"gb10_worker_hosts": [], "gb10_fabric_address": "10.0.0.5", "gb10_container_devices": []}
    head = answer("spark-1", **settings)
    head = {**head, "profile": {**head["profile"], "parallel": {"tensor": 1, "pipeline": 1, "data": 1, "expert": False}}}
    play = {**PLAY, "groups": {**PLAY["groups"], "gb10_workers": [], "gb10_cluster": ["spark-1"]}, "hosts": ["spark-1"], "batch": ["spark-1"]}
    (finding,) = cluster.judge_cluster({"spark-1": head}, play)
    assert (finding["verdict"], finding["message"]) == ("pass", "nemotron_3_super_tp2 on spark-1.")


def test_more_nodes_than_were_tried_are_warned_of():
    names = ["spark-1", "spark-2", "spark-3"]
    answers = {name: answer(name, gb10_worker_hosts=names[1:], gb10_fabric_address=f"10.0.0.{number}") for number, name in enumerate(names, 1)}
    sizes = {"tensor": 1, "pipeline": 3, "data": 1, "expert": False}
    answers = {name: {**host, "profile": {**host["profile"], "parallel": sizes}} for name, host in answers.items()}
    play = {**PLAY, "hosts": names, "batch": names}
    play["groups"] = {"all": names, "gb10_cluster": names, "gb10_head": names[:1], "gb10_workers": names[1:]}
    warned = [finding for finding in cluster.judge_cluster(answers, play) if finding["id"] == "input.nodes"]
    assert [(finding["verdict"], finding["measured"]) for finding in warned] == [("warn", 3)]


def groups(**change):
    return {"groups": {**PLAY["groups"], **change}}


@pytest.mark.parametrize(
    ("change", "play", "id", "part"),
    [
        ({"gb10_head_host": ""}, groups(gb10_head=[]), "input.head", "gb10_head_host: '' is not a host of the inventory; expected exactly one head."),
        ({"gb10_head_host": "spark-9"}, {}, "input.head", "gb10_head_host: 'spark-9'"),
        ({}, groups(gb10_head=["spark-1", "spark-2"]), "input.two_heads", "the group gb10_head holds 2 hosts of gb10_cluster: spark-1, spark-2"),
        ({"gb10_worker_hosts": ["spark-1"]}, {}, "input.head_is_worker", "gb10_worker_hosts: spark-1 is the head and a worker."),
        ({"gb10_worker_hosts": ["spark-7"]}, {}, "input.worker", "gb10_worker_hosts: 'spark-7' is not a host of the inventory."),
        ({"gb10_worker_hosts": ["spark-2", "spark-2"]}, {}, "input.worker", "gb10_worker_hosts: spark-2 is listed 2 times."),
        ({"gb10_worker_hosts": []}, {}, "input.no_role", "spark-2 is in gb10_cluster but is neither the head nor a worker."),
        ({"gb10_worker_hosts": []}, {}, "input.parallel", "asks for 2 ranks (tensor 2 x pipeline 1 x data 1), the cluster has 1 GPUs"),
        ({"gb10_ray_gpus": 2}, {}, "input.parallel", "the cluster has 4 GPUs"),
        ({"gb10_cluster_group": "sparks"}, {}, "input.cluster_group", "gb10_cluster_group: the inventory has no hosts in a group sparks."),
        ({}, {"hosts": ["spark-1"], "batch": ["spark-1"], "limit": "spark-1"}, "input.limit", "the play leaves out spark-2"),
        ({}, {"batch": ["spark-1"]}, "input.serial", "the play handles 1 of 2 hosts at once"),
        ({}, {"consent": "teardown"}, "input.confirm", "gb10_allow: lacks teardown, which this job needs"),
        ({}, {"forks": 1}, "input.forks", "forks is 1, the cluster has 2 nodes"),
        ({"gb10_fabric_address": "192.168.100.1"}, {}, "input.same_address", "gb10_fabric_address: 192.168.100.1 is also the address of spark-1."),
        ({"gb10_api_address": "192.168.100.2"}, {}, "input.address", "gb10_api_address: 192.168.100.2 is the address of spark-2"),
        ({"gb10_api_address": "spark-1.lan"}, {}, "input.address", "gb10_api_address: 'spark-1.lan' is not an IP address."),
    ],
)  # fmt: skip
def test_bad_clusters_block_with_a_remedy(change, play, id, part):
    findings = together(change, play)
    assert id in stopping(findings)
    assert part in "\n".join(finding["message"] for finding in findings if finding["id"] == id)
    assert all(finding["remedy"] for finding in findings)


def test_without_ray_data_ranks_are_not_spread():
    profile = {"id": "mine", "executor": "native", "parallel": {"tensor": 1, "pipeline": 1, "data": 2}, "memory": {"config": {}}}
    (problem,) = cluster._sizes(profile, ["spark-1", "spark-2"], 1, False)
    assert (problem.id, problem.measured) == ("input.parallel", 2)
    assert "executor native spreads tensor and pipeline ranks, but data is 2" in str(problem)


@pytest.mark.parametrize(("ranks", "named"), [(1, True), (4, False)])
def test_a_profile_of_one_node_on_two_names_the_setting_for_one_of_them(ranks, named):
    profile = {"id": "mine", "executor": "ray", "parallel": {"tensor": ranks, "pipeline": 1, "data": 1}, "memory": {"config": {}}}
    (problem,) = cluster._sizes(profile, ["spark-1", "spark-2"], 1, False)
    assert (problem.id, problem.where) == ("input.parallel", "profile mine") and ("-e gb10_single=spark-1" in problem.remedy) is named
    (problem,) = cluster._sizes(profile, ["spark-1", "spark-2"], 1, True)
    assert problem.where == "profile mine on spark-1, spark-2" and problem.remedy == "choose other nodes for it, or another profile for these"


def test_a_fault_of_all_hosts_is_reported_once():
    (finding,) = together({"gb10_api_port": 80})
    assert (finding["id"], finding["node"]) == ("input.port", "cluster")


def test_a_fault_of_one_host_names_it():
    (finding,) = together(second={"gb10_shm_size": "lots"})
    assert (finding["id"], finding["node"]) == ("input.format", "spark-2")


def test_hosts_that_disagree_are_reported():
    (finding,) = together(second={"gb10_ray_port": 6380})
    assert (finding["id"], finding["message"]) == (
        "input.differs",
        "gb10_ray_port: has one value for the whole cluster, but differs between hosts: spark-1 6379, spark-2 6380.",
    )


def test_hosts_that_disagree_about_variables_are_reported_by_name_alone():
    (finding,) = together({"gb10_env": {"A": "1", "B": "s3cr3t"}}, second={"gb10_env": {"A": "1", "C": "x"}})
    assert (finding["id"], finding["message"]) == (
        "input.differs",
        "gb10_env: has one value for the whole cluster, but differs between hosts: B, C.",
    )
    assert "gb10_host_env" in finding["remedy"] and "s3cr3t" not in str(finding)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"gb10_serve_arguments": {"max_model_len": 4096}}, {"gb10_serve_arguments": {}}),
        ({"gb10_profile_switches": ["eager"]}, {"gb10_profile_switches": []}),
    ],
)
def test_ranks_of_one_engine_are_not_started_in_two_ways(first, second):
    assert "input.differs" in stopping(together(first, second=second))


PROFILE_ENV = [
    ("HF_TOKEN: hf_x", "input.env_secret", "profile own: env.shared.HF_TOKEN: is a secret"),
    ("HF_HOME: /x", "input.env", "profile own: env.shared.HF_HOME: is set by the collection"),
    ("VLLM_USE_RUST_FRONTEND: 1", "input.env", "profile own: env.shared.VLLM_USE_RUST_FRONTEND: takes the front end"),
    ("NCCL_NET: Socket", "input.fabric_fallback", "profile own: env.shared.NCCL_NET: takes NCCL off InfiniBand"),
    ("NCCL_IB_DISABLE: true", "input.fabric_fallback", "profile own: env.shared.NCCL_IB_DISABLE: takes NCCL off InfiniBand"),
]


@pytest.mark.parametrize(("line", "id", "part"), PROFILE_ENV)
def test_variables_of_a_profile_are_held_to_the_same(tmp_path, line, id, part):
    text = (profiles.SHIPPED / "nemotron_3_super_tp2.yml").read_text(encoding="utf-8")
    path = tmp_path / "own.yml"
    path.write_text(text.replace("id: nemotron_3_super_tp2", "id: own", 1).replace("  shared:\n", f"  shared:\n    {line}\n", 1), encoding="utf-8")
    (finding,) = judged({"gb10_profile": str(path)})
    assert (finding["id"], finding["verdict"]) == (id, "block")
    assert part in finding["message"] and "hf_x" not in str(finding)


def test_a_host_is_not_taken_off_the_fabric_by_its_own_variables():
    (finding,) = judged({"gb10_host_env": {"NCCL_NET": "Socket"}})
    assert (finding["id"], finding["verdict"]) == ("input.fabric_fallback", "block")


def test_one_machine_is_not_two_nodes():
    answers = {host: answer(host) for host in PLAY["batch"]}
    answers["spark-2"]["login"] = copy.deepcopy(answers["spark-1"]["login"])
    (finding,) = cluster.judge_cluster(answers, PLAY)
    assert (finding["id"], finding["message"]) == ("input.same_host", "ansible_host: 10.0.0.1 is also spark-1; one machine can't be two nodes.")
    answers["spark-2"]["login"]["port"] = 2222
    assert stopping(cluster.judge_cluster(answers, PLAY)) == set()


def test_an_open_api_without_a_key_is_reported():
    (finding,) = together({"gb10_api_address": "0.0.0.0", "gb10_api_key": "none"})
    assert (finding["id"], finding["verdict"]) == ("input.address", "warn")
    (finding,) = together({"gb10_api_address": "0.0.0.0"})
    assert (finding["id"], finding["verdict"]) == ("input.address", "warn") and finding["message"].endswith("0.0.0.0 listens on all networks of the head.")


def test_tensor_must_divide_the_heads():
    answers = {host: answer(host) for host in PLAY["batch"]}
    answers["spark-1"]["profile"]["memory"]["config"]["num_attention_heads"] = 3
    (finding,) = cluster.judge_cluster(answers, PLAY)
    assert (finding["id"], finding["needed"]) == ("input.tensor_heads", "a divisor of 3")


# -- the tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(settings.settings()))
def test_every_setting_without_a_value_is_named(name):
    """The value is `NAME:` without anything after it, for a setting of any type."""
    findings = judged({name: None})
    assert [finding["message"] for finding in findings if finding["id"] == "input.type"] == [findings[0]["message"]]
    assert findings[0]["message"].startswith(f"{name}: has no value; expected ")


def test_tables_name_settings_that_exist():
    of_rules = {name for wanted, dummy in values.RULES for name in wanted}
    named = {*of_rules, *values.CLUSTER_WIDE, *values.DIRECTORIES}
    assert named - set(settings.settings()) == set() and set(values.FORMS) - settings.known_settings() == set()


def test_the_readme_explains_every_check():
    text = (ROOT / "roles" / "engine" / "README.md").read_text(encoding="utf-8")
    assert [id for id in sorted(finding_ids.known_ids()) if id.startswith("input.") and f"`{id}`" not in text] == []


# --- what a job controller brings along ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", secrets.SECRET_FILES)
@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (b"hf_planted\n", 0o600, ""),
        (b"hf_planted", 0o400, ""),
        (b"", 0o600, "holds nothing; expected one word"),
        (b"\n", 0o600, "holds nothing; expected one word"),
        (b"two hf_planted", 0o600, "holds 2 words; expected one word"),
        (b"plantd1\n", 0o600, "holds 7 characters; expected 8 or more"),
        ("äöüß\n".encode(), 0o600, "holds 4 characters; expected 8 or more"),
        (b"hf_planted", 0o644, "can be read by others (mode 0644)"),
    ],
)
def test_secret_files_hold_one_word_that_is_never_said(tmp_path, name, content, mode, message):
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    findings = judged({name: str(path)})
    assert [finding["id"] for finding in findings] == (["input.secret_file"] if message else [])
    assert message in str(findings)
    assert "plant" not in str(findings)


def test_an_unknown_key_is_reported(tmp_path):
    path = tmp_path / "key"
    path.write_text("hf_planted")
    path.chmod(0o600)
    (finding,) = judged({"gb10_api_key": "none", "gb10_api_key_file": str(path)})
    assert (finding["id"], finding["verdict"]) == ("input.secret_file", "warn")
    assert "is not read, since gb10_api_key is none" in finding["message"]


def test_what_one_job_passes_on_is_no_unknown_setting_to_the_next():
    assert judged(names=sorted(settings.passed_on())) == [] and {"gb10_mode_report", "gb10_sweep_report"} <= settings.passed_on()
    assert [finding["id"] for finding in judged(names=["gb10_reports"])] == ["input.unknown_setting"]


def test_the_list_of_what_is_passed_on_is_complete_and_no_setting():
    names = set()
    for path in (ROOT / "roles").glob("*/tasks/*.yml"):
        for task in yaml.safe_load(path.read_text(encoding="utf-8")) or []:
            for inner in (task, *task.get("block", []), *task.get("always", [])):
                names |= set(inner.get("ansible.builtin.set_stats", {}).get("data", {}))
    stages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "plugins").glob("*/**/*.py"))
    assert names <= settings.passed_on() and all(f'"{name}"' in stages for name in settings.ARTIFACTS - names)
    assert set(re.findall(r'"(gb10_\w+_report)"', stages)) <= settings.passed_on()
    assert settings.passed_on() & settings.known_settings() == set()


def test_what_is_passed_on_is_never_added_up():
    """By default, Ansible concatenates two texts of the same name."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "roles").glob("*/tasks/*.yml")]
    tasks = [task["ansible.builtin.set_stats"] for text in texts for task in yaml.safe_load(text) or [] if "ansible.builtin.set_stats" in task]
    assert {task["aggregate"] for task in tasks} == {False}


def test_a_users_table_of_signatures_is_judged_before_any_node(tmp_path):
    (tmp_path / "mine.yml").write_text("- {id: x, patterns: ['(a+)+'], cause: c, consequence: c, remedy: r, source: s, examples: [a]}\n")
    (finding,) = (finding for finding in judged({"gb10_signature_dirs": [str(tmp_path)]}) if finding["id"] == "input.signatures")
    assert finding["message"].startswith(f"{tmp_path}/mine.yml[0].patterns[0]: may take forever") and finding["verdict"] == "block"
    assert finding["remedy"] == f"correct {tmp_path}/mine.yml"
