# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables that a node sets for everybody, from trees in place of ``/etc``."""

from __future__ import annotations

import os

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import default_env
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections

#: The leftovers that seed 000 reports, among lines that belong there.
ETC_ENVIRONMENT = """\
PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
# VLLM_USE_V1=1
VLLM_NVFP4_GEMM_BACKEND=marlin
export VLLM_TEST_FORCE_FP8_MARLIN='1'
VLLM_USE_FLASHINFER_MOE_FP4="0"   # for the 235B
HF_TOKEN=hf_abcdefghijklmnopqrstuv
no assignment
"""

#: The unit that Ollama's installer writes, with two lines added by a user.
OLLAMA = """\
[Unit]
Description=Ollama Service
After=network-online.target

[Service]
ExecStart=/usr/local/bin/ollama serve
User=ollama
Environment="PATH=/usr/local/bin:/usr/bin:/bin" "CUDA_VISIBLE_DEVICES=0" HF_HOME='/data/my cache'
EnvironmentFile=-/etc/default/ollama

[Install]
WantedBy=default.target
"""


def write(root, path, text):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


def read(root):
    sections = Sections()
    entries = default_env.environment(str(root), sections.section("environment"))
    return {(entry["where"], entry["name"]): entry["value"] for entry in entries}, sections.errors


def test_what_a_node_sets(tmp_path):
    write(tmp_path, "environment", ETC_ENVIRONMENT)
    write(tmp_path, "environment.d/90-x.conf", "# c\nNCCL_DEBUG=INFO\nQT_X=1\n")
    write(tmp_path, "systemd/system/ollama.service", OLLAMA)
    write(tmp_path, "default/ollama", "CUDA_CACHE_PATH='/tmp/a b'\nVLLM_API_KEY=topsecret1\n")
    write(tmp_path, "systemd/system/ollama.service.d/override.conf", "[Service]\nEnvironment=NCCL_IB_HCA=rocep1s0f0 \\\n# between\n  UCX_TLS=rc\n")
    write(tmp_path, "systemd/system.conf", "[Manager]\n#DefaultEnvironment=NCCL_A=1\nDefaultEnvironment=RAY_memory_monitor_refresh_ms=0\n")
    write(tmp_path, "systemd/system.conf.d/1.conf", "[Manager]\nDefaultEnvironment=\"GLOO_SOCKET_IFNAME=eth0\"\n")
    write(tmp_path, "systemd/user/vllm.service", "[Service]\nEnvironment=VLLM_PORT=1\n")
    write(tmp_path, "profile.d/vllm.sh", 'if true; then export VLLM_ATTENTION_BACKEND="FLASH INFER"; fi\n# NCCL_NET=IB\nX=1 MASTER_ADDR=10.0.0.1 run\n')
    write(tmp_path, "profile.d/readme.txt", "NCCL_NET=IB\n")
    write(tmp_path, "bash.bashrc", "alias v='VLLM_LOGGING_LEVEL=DEBUG vllm serve'\n")
    variables, errors = read(tmp_path)
    assert variables == {
        ("/etc/environment", "VLLM_NVFP4_GEMM_BACKEND"): "marlin",
        ("/etc/environment", "VLLM_TEST_FORCE_FP8_MARLIN"): "1",
        ("/etc/environment", "VLLM_USE_FLASHINFER_MOE_FP4"): "0",
        ("/etc/environment", "HF_TOKEN"): "<secret>",
        ("environment.d:90-x.conf", "NCCL_DEBUG"): "INFO",
        ("shell:bash.bashrc", "VLLM_LOGGING_LEVEL"): "DEBUG",
        ("profile.d:vllm.sh", "VLLM_ATTENTION_BACKEND"): "FLASH INFER",
        ("profile.d:vllm.sh", "MASTER_ADDR"): "10.0.0.1",
        ("systemd:system.conf", "RAY_memory_monitor_refresh_ms"): "0",
        ("systemd:system.conf", "GLOO_SOCKET_IFNAME"): "eth0",
        ("systemd:ollama.service", "CUDA_VISIBLE_DEVICES"): "0",
        ("systemd:ollama.service", "HF_HOME"): "/data/my cache",
        ("systemd:ollama.service", "CUDA_CACHE_PATH"): "/tmp/a b",
        ("systemd:ollama.service", "VLLM_API_KEY"): "<secret>",
        ("systemd:ollama.service", "NCCL_IB_HCA"): "rocep1s0f0",
        ("systemd:ollama.service", "UCX_TLS"): "rc",
        ("systemd:vllm.service", "VLLM_PORT"): "1",
    }
    assert errors == []
    assert "topsecret1" not in str(variables) and "hf_abc" not in str(variables)


def test_each_variable_names_its_file(tmp_path):
    write(tmp_path, "systemd/system/a.service.d/x.conf", "[Service]\nEnvironment=NCCL_NET=IB\n")
    (entry,) = default_env.environment(str(tmp_path))
    assert entry == {"where": "systemd:a.service", "name": "NCCL_NET", "value": "IB", "path": str(tmp_path / "systemd/system/a.service.d/x.conf")}


def test_a_clean_node(tmp_path):
    write(tmp_path, "environment", 'PATH="/usr/bin"\n')
    assert read(tmp_path) == ({}, [])


def test_a_root_that_cannot_be_listed_is_the_sections_failure(tmp_path):
    with pytest.raises(FileNotFoundError):
        default_env.environment(str(tmp_path / "absent"))


def test_masked_units_pipes_and_links_into_nowhere_are_passed_over(tmp_path):
    units = tmp_path / "systemd/system"
    units.mkdir(parents=True)
    (units / "masked.service").symlink_to("/dev/null")
    (units / "gone.service").symlink_to("/nonexistent/x.service")
    (units / "folder.service").mkdir()
    os.mkfifo(units / "pipe.service")
    assert read(tmp_path) == ({}, [])


def test_one_file_that_cannot_be_parsed_does_not_hide_the_others(tmp_path):
    write(tmp_path, "systemd/system/a.service", '[Service]\nEnvironment="VLLM_API_KEY=hunter2\n')
    write(tmp_path, "systemd/system/b.service", "[Service]\nEnvironment=NCCL_NET=Socket\n")
    write(tmp_path, "environment", "NCCL_ALGO=Ring\n" * 100_000)
    variables, errors = read(tmp_path)
    assert variables == {("systemd:b.service", "NCCL_NET"): "Socket"}
    assert [error["verdict"] for error in errors] == ["unknown", "unknown"]
    assert "too large" in errors[0]["error"] and "a.service: a quote is not closed" in errors[1]["error"] and errors[1]["remedy"]
    assert "hunter2" not in str(errors), "where a secret begins in such a text is unknown"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become another account")
def test_a_file_that_may_not_be_read_is_reported(tmp_path):
    write(tmp_path, "systemd/system/a.service", "[Service]\nEnvironmentFile=/etc/secret.env\nEnvironment=NCCL_NET=IB\n")
    write(tmp_path, "secret.env", "HF_TOKEN=x\n").chmod(0o600)
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == "root" and str(path).startswith("/tmp/"):
            path.chmod(0o755)
    os.seteuid(65534)
    try:
        variables, errors = read(tmp_path)
    finally:
        os.seteuid(0)
    assert variables == {("systemd:a.service", "NCCL_NET"): "IB"}
    assert errors[0]["error"].endswith("secret.env: Permission denied") and "become" in errors[0]["remedy"]


def test_an_empty_assignment_takes_back_what_the_file_set():
    lines = default_env.parse_unit("Environment=NCCL_A=1\nEnvironment=\nEnvironment=NCCL_B=2", ("Environment",))
    assert default_env.set_by(lines) == [("NCCL_B", "2")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  a  b ", ["a", "b"]),
        ("'a b'", ["a b"]),
        ('"a \\" b"', ['a " b']),
        ("a\\ b", ["a b"]),
        ("A='x'y", ["A=xy"]),
        ('""', [""]),
    ],
)
def test_words_of_systemd(text, words):
    assert default_env.words(text) == words


@pytest.mark.parametrize(
    "name", ["VLLM_X", "NCCL_IB_HCA", "RAY_memory_monitor_refresh_ms", "HF_HOME", "HUGGING_FACE_HUB_TOKEN", "UCX_TLS", "GLOO_SOCKET_IFNAME"]
)
def test_names_that_count(name):
    assert default_env.is_engine_name(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "OLDVLLM_X", "HFX_Y", "VLLM", "RANKING", "nccl_debug", "TPM_X", "http_proxy"])
def test_names_that_do_not(name):
    assert not default_env.is_engine_name(name)


@st.composite
def mutated(draw):
    text = draw(st.sampled_from([ETC_ENVIRONMENT, OLLAMA, 'export VLLM_A="x y" NCCL_B=\'z\'; RAY_C=1 run\n']))
    for _step in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 60)))
        text = text[:start] + draw(st.one_of(st.text(max_size=20), st.sampled_from(['"', "'", "\\", "\\\n", "\0", "=", "VLLM_", "\r", "\x85"]))) + text[end:]
    return text


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(mutated())
def test_mutated_files_are_read_or_unknown(text):
    parsers = (
        default_env.parse_pam,
        default_env.parse_environment_file,
        default_env.parse_shell,
        lambda text: default_env.set_by(default_env.parse_unit(text, ("Environment", "DefaultEnvironment"))),
    )
    for parse in parsers:
        try:
            pairs = parse(text)
        except UnknownState as error:
            assert str(error)
            continue
        assert all(isinstance(name, str) and name and isinstance(value, str) for name, value in pairs)
