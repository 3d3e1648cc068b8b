# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A baseline: taken at rest alone, once a boot, and used by cuda_zombie_check."""

from __future__ import annotations

import json
import pathlib
import types

import process_files
import pytest
import through_ansible
from node_roots import rooted

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._calibrate import baseline as taking

ROOT = pathlib.Path(__file__).resolve().parents[5]
FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures"
IDLE = (FIXTURES / "nvidia_smi/composed_gb10_idle.xml").read_text()
BOOT = "b6f1e0b4-6a3c-4f0e-9a51-0b0f1f0c2d11"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node 100 s after its boot: one process, no container, a GPU without memory of its own that is idle."""
    proc = tmp_path / "proc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text(BOOT + "\n")
    (proc / "uptime").write_text("100.55 399.11\n")
    (proc / "meminfo").write_text((FIXTURES / "meminfo/x86_64.txt").read_text())
    process_files.add(proc, 1, "/sbin/init", ppid=0)
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat {tmp_path}/answer.xml\n")
    tool.chmod(0o755)
    (tmp_path / "answer.xml").write_text(IDLE)
    engine = types.SimpleNamespace(containers=lambda labels, statuses=(): [])
    monkeypatch.setattr(taking, "EngineApi", lambda socket, timeout: engine)
    return types.SimpleNamespace(root=tmp_path, proc=proc, tool=tool, engine=engine, path=tmp_path / "state/baseline.json", answer=tmp_path / "answer.xml")


def options(node, **params):
    return rooted({
        "state_dir": str(node.root / "state"),
        "max_uptime": 1800,
        "force": False,
        "settle_mb": 256,
        "settle_sleep": 1,
        "settle_timeout": 5,
        "nvidia_smi": str(node.tool),
        "tool_timeout": 10,
        "proc_root": str(node.proc),
        "meminfo": None,
        "docker_socket": str(node.root / "docker.sock"),
        "docker_timeout": 1,
        **params,
    })


def call(node, *, check_mode=False, **params):
    return taking.record(options(node, **params), check_mode)


def test_recorded_once_a_boot(node):
    result = call(node)
    # See test__accounting.py: 2797604 - 2248724 KiB of the recorded meminfo.
    assert result["changed"] and result["verdict"] == "pass" and result["record"]["unexplained_mb"] == 536
    assert json.loads(node.path.read_text()) == result["record"] and result["record"]["uptime_s"] == 100
    assert result["diff"] == {"before": {}, "after": {"boot_id": BOOT, "recorded_at": result["record"]["recorded_at"], "unexplained_mb": 536}}
    (node.proc / "uptime").write_text("99999 1\n")
    again = call(node)
    assert not again.get("changed") and again["reason"] == "recorded already" and again["record"] == result["record"] and not again["recorded"]


def test_a_new_boot_is_recorded_again_and_a_broken_file_is_replaced(node):
    call(node)
    (node.proc / "sys/kernel/random/boot_id").write_text("another\n")
    result = call(node)
    assert result["changed"] and result["diff"]["before"]["boot_id"] == BOOT and result["record"]["boot_id"] == "another"
    node.path.write_text("{")
    result = call(node)
    assert result["changed"] and "not JSON" in result["diff"]["before"]["broken"]


def test_check_mode_tells_and_writes_nothing(node):
    result = call(node, check_mode=True)
    assert result["changed"] and result["recorded"] and not node.path.exists()


def live(text):
    entry = (
        "<process_info><gpu_instance_id>N/A</gpu_instance_id><compute_instance_id>N/A</compute_instance_id>"
        "<pid>7</pid><type>C</type><process_name>ollama</process_name><used_memory>5 MiB</used_memory></process_info>"
    )
    start = text.index("<processes>") + len("<processes>")
    return text[:start] + entry + text[start:]


def old_boot(node):
    (node.proc / "uptime").write_text("1801.0 1\n")


def container(node):
    node.engine.containers = lambda labels, statuses=(): [{"Id": "a", "Names": ["/gb10-gb10-head"]}]


def engine(node):
    process_files.add(node.proc, 50, "VLLM::EngineCore")


def no_docker(node):
    def refuse(labels, statuses=()):
        raise ClusterError("no Docker engine answers")

    node.engine.containers = refuse


def computing(node):
    node.answer.write_text(live(IDLE))


def own_memory(node):
    node.answer.write_text((FIXTURES / "nvidia_smi/recorded_h200_idle.xml").read_text())


@pytest.mark.parametrize(
    ("arrange", "says"),
    [
        (old_boot, "1801 s ago"),
        (container, "gb10-gb10-head"),
        (engine, "an engine runs: VLLM::EngineCore"),
        (no_docker, "it is unknown whether"),
        (computing, "ollama"),
        (own_memory, "the GPU has its own memory"),
    ],
)
@pytest.mark.parametrize("check_mode", [False, True])
def test_not_at_rest_is_refused_unless_requested(node, arrange, says, check_mode):
    arrange(node)
    with pytest.raises(ClusterError, match=says) as caught:
        call(node, check_mode=check_mode)
    assert "force: true" in caught.value.remedy and not node.path.exists()
    result = call(node, check_mode=check_mode, force=True)
    assert result["verdict"] == "warn" and says in result["record"]["doubts"][0] and says in result["msg"]
    assert node.path.exists() is not check_mode


def test_memory_that_does_not_settle_is_refused(node, monkeypatch):
    values = iter(range(10, 10000, 10))
    monkeypatch.setattr(taking.node_memory, "read_meminfo", lambda root, path: {"MemTotal": 121 << 20, "MemAvailable": next(values) << 17})
    with pytest.raises(ClusterError, match="did not settle"):
        call(node, settle_timeout=2)
    assert "did not settle" in call(node, settle_timeout=2, force=True)["msg"]


def test_missing_values_are_unknown(node):
    node.answer.write_text("rubbish")
    with pytest.raises(UnknownState):
        call(node, force=True)
    node.answer.write_text(live(IDLE).replace("<used_memory>5 MiB", "<used_memory>N/A"))
    with pytest.raises(UnknownState, match="does not report what"):
        call(node, force=True)


def test_nothing_in_it_names_the_machine(node):
    computing(node)
    baseline = call(node, force=True)["record"]
    assert "GPU-" not in json.dumps(baseline)
    assert set(baseline) == {
        "schema", "boot_id", "recorded_at", "uptime_s", "unexplained_mb", "kernel", "gpus", "processes", "accounting", "meminfo", "samples_mb", "doubts"
    }  # fmt: skip
    assert baseline["processes"] == [{"type": "C", "used_mib": 5}] and set(baseline["gpus"][0]) == {"name", "driver_version", "memory_total_mb"}


def test_a_number_out_of_range(node):
    with pytest.raises(ClusterError, match="max_uptime"):
        call(node, max_uptime=0)


def test_the_roles_tasks_bring_a_file_to_the_controller(node):
    """The role's own tasks and variables, without the role that needs a cluster."""
    play = [
        {
            "hosts": "all",
            "gather_facts": False,
            "connection": "local",
            "vars": {
                "gb10_state_dir": str(node.root / "{{ inventory_hostname }}"),
                "__gb10_allow": ["baseline"],
                "__gb10_records": str(node.root / "kept"),
            },
            "module_defaults": {
                "gb10.cluster.cluster_record": {name: options(node)[name] for name in ("roots", "docker_socket", "docker_timeout", "tool_timeout")}
            },
            "tasks": [{"ansible.builtin.import_tasks": str(node.root / "tasks.yml")}],
        }
    ]
    # The user that runs the test can write there.
    _settings, start, tasks = (ROOT / "roles/doctor/tasks/baseline.yml").read_text().partition("- name: Record the baseline\n")
    (node.root / "tasks.yml").write_text((start + tasks).replace("  become: true\n", ""))
    book = node.root / "play.yml"
    book.write_text(json.dumps(play))

    command = ["playbook", "-i", "spark-1,spark-2,", str(book)]
    checked = through_ansible.run(*command, "--check", "--diff")
    assert checked.rc == 0, checked.out
    assert "would be written to" in checked.stdout and not (node.root / "spark-1").exists() and not (node.root / "kept-baseline").exists()
    done = through_ansible.run(*command)
    assert done.rc == 0, done.out
    files = sorted(path.name for path in (node.root / "kept-baseline").iterdir())
    assert files == ["baseline-spark-1.json", "baseline-spark-2.json"]
    content = json.loads((node.root / "kept-baseline/baseline-spark-1.json").read_text())
    assert content == json.loads((node.root / "spark-1/baseline.json").read_text()) and content["unexplained_mb"] == 536
