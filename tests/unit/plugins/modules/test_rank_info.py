# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ranks on a node, with a fake engine."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import types

import pytest
from node_roots import rooted

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned
from ansible_collections.gb10.cluster.plugins.modules import rank_info

STATUS = "Name:\tray\nCapEff:\t{}\nSeccomp:\t2\n"


def test_capabilities():
    assert rank_info.capabilities(STATUS.format(f"{1 << 14:016x}")) == ["IPC_LOCK"]
    assert rank_info.capabilities(STATUS.format("0" * 16)) == []
    everything = rank_info.capabilities(STATUS.format("000001ffffffffff"))
    assert len(everything) == 41 and everything[40] == "CHECKPOINT_RESTORE"


def test_what_the_kernel_does_not_tell_is_unknown():
    with pytest.raises(UnknownState):
        rank_info.capabilities("Name: x\n")


def test_only_asked_values_are_returned_and_secrets_only_by_name():
    environ = {"NCCL_NET": "IB", "HF_TOKEN": "hf_secret", "OTHER": "x", "BOTH": "y"}
    assert rank_info.select(environ, ["NCCL_NET", "MISSING", "BOTH"], ["HF_TOKEN", "API_KEY", "BOTH"]) == {
        "env": {"NCCL_NET": "IB", "MISSING": None},
        "present": ["BOTH", "HF_TOKEN"],
    }


def test_ranks_are_known_by_what_they_show():
    titles = {
        9: "ray::RayWorkerProc.run",
        3: "ray::RayWorkerProc",
        4: "ray::IDLE",
        5: "/usr/bin/python3 raylet ray::RayWorker",
        6: "VLLM::Worker_TP0",
        7: "VLLM::EngineCore",
        8: "",
    }
    processes = {pid: Process(pid, 1, "S", "x", tuple(title.split(" ")), "", 0, 1) for pid, title in titles.items()}
    assert list(rank_info.ranks_among(processes)) == [3, 6, 9]


class Engine:
    """A fake of EngineApi."""

    def __init__(self, containers=None, pids=(), entrypoint=None):
        self.by_role, self.pids, self.entrypoint = containers or {}, list(pids), entrypoint

    def image(self, image_id):
        assert image_id == "sha256:1"
        return {"Id": image_id, "Config": {"Entrypoint": self.entrypoint}}

    def top(self, container_id):
        return self.pids


@pytest.fixture
def call(monkeypatch):
    def call(engine, **params):
        monkeypatch.setattr(rank_info, "EngineApi", lambda socket, timeout: engine)
        monkeypatch.setattr(rank_info, "find_node_container", lambda api, cluster, role: api.by_role.get(role))
        defaults = {
            "cluster_name": "gb10",
            "node_role": None,
            "env_names": [],
            "env_absent_names": [],
            "env_compare_key": None,
            "state_dir": "/nonexistent",
            "log_dir": "/nonexistent",
            "devices": ["/dev/null", "/dev/nonexistent"],
            "proc_root": "/proc",
            "docker_socket": "",
            "docker_timeout": 1,
        }
        return rank_info.work(types.SimpleNamespace(params=rooted({**defaults, **params}), check_mode=False))

    return call


def container(pid, role="head", **labels):
    state = {"Running": pid != 0, "Pid": pid}
    return {"Id": "abc", "Image": "sha256:1", "Name": f"/gb10-gb10-{role}", "Config": {"Labels": {"io.gb10.role": role, **labels}}, "State": state}


@pytest.fixture
def rank():
    """A process that calls itself a rank and sets a variable after its start."""
    program = "import os, sys; os.environ['LATER'] = '1'; os.environ['HF_TOKEN'] = 'hf_secret'; print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        ["ray::RayWorkerProc.run", "-c", program],
        executable=os.path.realpath(sys.executable),
        env={"EARLY": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    yield process.pid
    process.communicate()


def test_tokens_of_the_hub_are_found_and_not_read(tmp_path):
    home = tmp_path / "7/root/root/.cache/huggingface"
    home.mkdir(parents=True)
    assert rank_info.hub_tokens(7, str(tmp_path)) == [] == rank_info.hub_tokens(8, str(tmp_path))
    (home / "token").symlink_to("/etc/shadow")
    assert rank_info.hub_tokens(7, str(tmp_path)) == ["/root/.cache/huggingface/token"]


def test_a_live_rank_is_read_and_no_secret_leaves_it(call, rank):
    result = call(Engine({"head": container(rank)}, [rank, os.getpid()]), env_names=["EARLY", "LATER", "NO"], env_absent_names=["HF_TOKEN", "API_KEY"])
    assert result["verdict"] == "pass" and result["exists"] and result["container"]["running"]
    (entry,) = result["ranks"]
    assert entry["pid"] == rank and entry["source"] == "live" and entry["title"].startswith("ray::RayWorkerProc.run")
    assert entry["env"] == {"EARLY": "1", "LATER": "1", "NO": None} and entry["present"] == ["HF_TOKEN"]
    assert entry["devices"] == result["container"]["devices"] == ["/dev/null"]
    assert isinstance(entry["memlock_bytes"], int)
    assert "hf_secret" not in str({**entry, "title": ""})


def test_a_whole_environment_shows_no_secret_and_whether_two_are_equal(call, rank):
    (entry,) = call(Engine({"head": container(rank)}, [rank]))["ranks"]
    assert entry["environ"] is None
    (entry,) = call(Engine({"head": container(rank)}, [rank]), env_compare_key="k")["ranks"]
    assert (entry["environ"]["EARLY"], entry["environ"]["LATER"]) == ("1", "1") and "hf_secret" not in str(entry["environ"])
    keys = ("k", "k", "other")
    first, same, other_key = (rank_info.comparable({"WANDB_API_KEY": "4f1c9a", "URL": "https://u:4f1c9a@host", "EMPTY_TOKEN": ""}, key) for key in keys)
    assert first == same != other_key and re.fullmatch(r"<secret [0-9a-f]{16}>", first["WANDB_API_KEY"]) and first["EMPTY_TOKEN"] == ""
    assert rank_info.comparable({"WANDB_API_KEY": "4f1c9b"}, "k")["WANDB_API_KEY"] != first["WANDB_API_KEY"]
    # What the frame of every module takes out of results leaves the digests.
    assert cleaned({"environ": first}, {}) == {"environ": first}


def test_what_the_node_sent_is_counted_before_and_after_the_look(call, rank):
    for engine in (Engine({"head": container(rank)}, [rank]), Engine()):
        before, after = call(engine)["traffic"]
        assert before["at"] <= after["at"] and before["interfaces"]["lo"]["sent"] <= after["interfaces"]["lo"]["sent"]


#: As recorded on two Sparks (guardkit/dgx-spark, 2026-08-06); the others have the form of NCCL's source (init.cc, transport/net.cc, net_socket.cc).
NCCL_FOUND = "spark-a:72112:72112 [0] NCCL INFO NET/IB : Using [0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE [RO]; OOB enp1s0f1np1:169.254.207.1<0>"
NCCL_SOCKET = "spark-a:72112:72112 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"
NCCL_CHANNEL = "(RayWorkerProc pid=918) spark-a:72112:72190 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"


@pytest.mark.parametrize(
    ("lines", "nets"),
    [
        (["INFO 11-21 vLLM API server version 0.32.0"], []),
        ([NCCL_FOUND], ["IB"]),
        # Found is not used: the channels say what is.
        ([NCCL_FOUND, NCCL_CHANNEL], ["Socket"]),
        ([NCCL_SOCKET, NCCL_FOUND], ["Socket", "IB"]),
        (["spark-a:1:1 [0] NCCL INFO NET/IB : No device found."], []),
    ],
)
def test_the_network_that_nccl_says_it_uses(lines, nets):
    assert list(rank_info.nccl_nets(lines)) == nets


def test_the_log_of_the_last_engine_is_searched(tmp_path):
    params = {"state_dir": str(tmp_path / "state"), "log_dir": str(tmp_path / "log"), "cluster_name": "gb10"}
    assert rank_info.logged_nets(params) == {}
    paths = rank_info.engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], "gb10")
    log = pathlib.Path(paths.log_of("20261121T015300Z-3f9a"))
    for path in (pathlib.Path(paths.run), log.parent):
        path.mkdir(parents=True)
    (pathlib.Path(paths.run) / "run.json").write_text('{"run_id": "20261121T015300Z-3f9a"}')
    assert rank_info.logged_nets(params) == {}
    log.write_text(f"{NCCL_FOUND}\n")
    assert rank_info.logged_nets(params) == {"IB": NCCL_FOUND[NCCL_FOUND.index("NCCL INFO"):]}


def test_an_environment_of_the_start_is_no_proof(call, rank, monkeypatch):
    monkeypatch.setattr(rank_info, "environment", lambda pid, proc_root: ({}, "exec"))
    result = call(Engine({"worker": container(rank, "worker")}, [rank]))
    assert result["verdict"] == "unknown" and str(rank) in result["msg"] and result["container"]["role"] == "worker"


def test_no_container_a_stopped_one_and_one_without_ranks(call):
    nowhere = call(Engine())
    assert not nowhere["exists"] and nowhere["verdict"] == "block" and nowhere["container"]["devices"] == []
    stopped = call(Engine({"head": container(0)}))
    assert stopped["exists"] and not stopped["container"]["running"] and stopped["container"]["memlock_bytes"] == 0
    idle = call(Engine({"head": container(os.getpid())}, [os.getpid()]))
    assert idle["container"]["running"] and idle["ranks"] == [] and idle["verdict"] == "block"


@pytest.mark.parametrize(
    ("entrypoint", "labels", "bypassed"),
    [
        (None, {}, False),
        (["vllm", "serve"], {}, False),
        (["/opt/nvidia/nvidia_entrypoint.sh"], {"io.gb10.entrypoint": '["/opt/nvidia/nvidia_entrypoint.sh"]'}, False),
        (["/opt/nvidia/nvidia_entrypoint.sh"], {}, True),
    ],
)
def test_whether_the_image_s_entrypoint_was_bypassed(call, entrypoint, labels, bypassed):
    result = call(Engine({"head": container(0, **labels)}, entrypoint=entrypoint))
    assert result["container"]["entrypoint_bypassed"] is bypassed


def test_which_libcuda_a_rank_holds(tmp_path):
    """Lines of the form of proc_pid_maps(5); the paths are those of NGC images and of Ubuntu on ARM."""
    line = "ffff8c000000-ffff8c400000 r-xp 00000000 103:02 {inode} {path}\n"
    compat, own = "/usr/local/cuda/compat/lib.real/libcuda.so.595.45.04", "/usr/lib/aarch64-linux-gnu/libcuda.so.580.159.03"
    (tmp_path / "7").mkdir()
    for paths, expected in (([compat, compat], [compat]), ([own], [own]), (["/usr/lib/libcudart.so.13"], []), ([], [])):
        (tmp_path / "7" / "maps").write_text("".join(line.format(inode=99, path=path) for path in paths))
        assert rank_info.libcuda(7, str(tmp_path)) == expected
    with pytest.raises(UnknownState):
        rank_info.libcuda(8, str(tmp_path))


def test_which_libcuda_belongs_into_it_is_what_its_image_was_proven_to_give(call, tmp_path):
    image = {"Id": "sha256:1"}
    answer = {**gpu_access.NOT_REACHED, "libcuda": ["/usr/local/cuda/compat/lib.real/libcuda.so.595.45.04"]}
    assert call(Engine({"head": container(0)}))["container"]["libcuda"] is None
    gpu_access.write_proof(gpu_access.proof_path(str(tmp_path), image), {}, answer)
    assert call(Engine({"head": container(0)}), state_dir=str(tmp_path))["container"]["libcuda"] == answer["libcuda"]
    assert call(Engine())["container"]["libcuda"] is None


def test_two_roles_on_one_node_must_be_distinguished(call):
    engine = Engine({"head": container(0), "worker": container(0, "worker")})
    with pytest.raises(ClusterError, match="a head's and a worker's"):
        call(engine)
    assert call(engine, node_role="worker")["container"]["role"] == "worker"


def test_a_process_that_may_not_be_looked_at_is_unknown(call, monkeypatch):
    def denied(_path, _root):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(rank_info, "has_device", denied)
    with pytest.raises(UnknownState, match="cannot be looked at") as caught:
        call(Engine({"head": container(os.getpid())}))
    assert "become" in caught.value.remedy
