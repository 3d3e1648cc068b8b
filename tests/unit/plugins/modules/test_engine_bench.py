# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The client's container: its arguments, its result, and the places where the key must not be."""

from __future__ import annotations

import json
import os
import socket
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import ExecResult
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_key, bench
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_code
from ansible_collections.gb10.cluster.plugins.module_utils._samples import gpu_power
from ansible_collections.gb10.cluster.plugins.modules import engine_bench

RECORDED = (Path(__file__).resolve().parents[2] / "fixtures" / "bench" / "random.txt").read_text(encoding="utf-8")
SECRET = "k3y-of-the-api"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Docker:
    """An engine that has the image, and runs the client with what was recorded."""

    def __init__(self, rc: int = 0, stdout: str = RECORDED, image: bool = True) -> None:
        self.answer, self.has = ExecResult(rc, stdout, ""), image
        self.ran: list[tuple[t.Any, dict[str, t.Any]]] = []
        self.keys: list[tuple[str, int]] = []

    def image(self, _reference: str) -> dict[str, t.Any] | None:
        return {"Id": "sha256:aa", "Config": {}} if self.has else None

    def run_throwaway(self, image: str, argv: list[str], **options: t.Any) -> ExecResult:
        self.ran.append((argv, options))
        for mount in options["mounts"]:
            if mount["Target"].endswith("api_key"):
                self.keys.append((Path(mount["Source"]).read_text(encoding="utf-8"), os.stat(mount["Source"]).st_mode & 0o777))
        return self.answer


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A hub cache with a tokenizer that is code, as the hub named it."""
    repo, code = tmp_path / "cache/hub/models--org--name", b"x = 1\n"
    blob = repo / "blobs" / model_code.blob_id(code, COMMIT)
    for path in (blob.parent, repo / "snapshots" / COMMIT):
        path.mkdir(parents=True)
    blob.write_bytes(code)
    (repo / "snapshots" / COMMIT / "tokenization_x.py").symlink_to(f"../../blobs/{blob.name}")
    return tmp_path / "cache"


def measure(monkeypatch: pytest.MonkeyPatch, cache: Path, docker: Docker, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
    options = {
        "image": "engine", "url": "http://192.0.2.1:8000", "model": "tiny", "tokenizer": "/t", "hf_home": str(cache), "mounts": [],
        "trust_remote_code": False, "repositories": [{"repo": "org/name", "revision": COMMIT, "side_files": []}], "api_key_file": None,
        "api_key": SECRET, "workload": "random", "concurrency": 2, "prompts": 4, "input_len": 256, "output_len": 32, "texts": [],
        "timeout": 60, "probe_timeout": 1, "memory_mb": 1024, "cluster_name": "gb10", "state_dir": str(cache / "state"), "log_dir": "/l",
        "docker_socket": "/s", "docker_timeout": 1,
    }  # fmt: skip
    monkeypatch.setattr(engine_bench, "EngineApi", lambda *_arguments: docker)
    monkeypatch.setattr(bench, "require_idle", lambda *_arguments: None)
    counted = iter([bench.Counters(10.0, None, None), bench.Counters(17.0, None, None)])
    monkeypatch.setattr(bench, "counters", lambda *_arguments: next(counted))
    return engine_bench.work(types.SimpleNamespace(params={**options, **params}, check_mode=check))


def test_the_key_is_in_a_file_for_root_alone_and_nowhere_else(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    docker = Docker()
    result = measure(monkeypatch, cache, docker)
    ((argv, options),) = docker.ran
    assert docker.keys == [(SECRET, 0o600)] and SECRET not in json.dumps([argv, options, result])
    source = next(mount["Source"] for mount in options["mounts"] if mount["Target"].endswith("api_key"))
    assert not os.path.exists(os.path.dirname(source))
    assert all(mount["ReadOnly"] for mount in options["mounts"]) and options["host"].keys() == {"Memory", "CpuShares"}
    assert result["figures"]["output_tok_s"] == 109.524 and result["foreign_requests"] == 1 and result["image_id"] == "sha256:aa"


@pytest.mark.parametrize("pid", [None, os.getpid()], ids=["gone", "here"])
def test_a_client_does_not_get_the_key_for_who_took_the_port(monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path, pid: int | None) -> None:
    (tmp_path / "api_key").write_text(SECRET, encoding="utf-8")
    monkeypatch.setattr(engine_bench.engine_state, "engine_state", lambda _paths: {"pid": pid})
    docker = Docker()
    with socket.create_server(("127.0.0.1", 0)) as thief, pytest.raises(api_key.Withheld) as raised:
        url = f"http://127.0.0.1:{thief.getsockname()[1]}"
        measure(monkeypatch, cache, docker, url=url, api_key=None, api_key_file=str(tmp_path / "api_key"))
    assert docker.ran == [] and SECRET not in str(raised.value) and raised.value.reason == "key withheld"


def test_check_mode_and_no_time_left_run_nothing(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    docker = Docker()
    assert measure(monkeypatch, cache, docker, check=True)["figures"] == {} and docker.ran == []
    with pytest.raises(ClusterError, match="no time is left for random at 2"):
        measure(monkeypatch, cache, docker, timeout=0)
    with pytest.raises(ClusterError, match="has no image engine"):
        measure(monkeypatch, cache, Docker(image=False))


@pytest.mark.parametrize(
    ("rc", "output", "message", "remedy"),
    [
        (142, "", "was not done within 60 s", "gb10_bench_minutes"),
        (137, "", "was killed", "memory_mb"),
        (1, "OSError: cannot load the tokenizer, offline", "ended with status 1: OSError", "tokenizer in its hub cache"),
        (1, "Traceback\nValueError: no\n", "ended with status 1: ValueError: no", "raw"),
        (1, "", "it said nothing", "raw"),
    ],
)
def test_why_a_client_left_no_result_is_said(monkeypatch: pytest.MonkeyPatch, cache: Path, rc: int, output: str, message: str, remedy: str) -> None:
    with pytest.raises(ClusterError, match=message) as raised:
        measure(monkeypatch, cache, Docker(rc, output))
    assert remedy in raised.value.remedy


def test_code_of_a_model_is_compared_before_a_client_runs_it(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    assert measure(monkeypatch, cache, Docker(), trust_remote_code=True)["figures"]
    (blob,) = cache.glob("hub/*/blobs/*")
    blob.write_bytes(b"import os\n")
    docker = Docker()
    with pytest.raises(ClusterError, match="tokenization_x.py was changed on this node"):
        measure(monkeypatch, cache, docker, trust_remote_code=True)
    assert docker.ran == []
    # Who runs none is not kept from measuring.
    assert measure(monkeypatch, cache, docker)["figures"]


def test_a_client_gets_the_directory_that_was_checked(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    docker, status = Docker(), os.stat(cache / "hub")
    measure(monkeypatch, cache, docker)
    ((argv, _options),) = docker.ran
    assert json.loads(argv[-1])["hub"] == [status.st_dev, status.st_ino]
    (cache / "hub").rename(cache / "gone")
    with pytest.raises(ClusterError, match="hub cannot be used: No such file"):
        measure(monkeypatch, cache, docker)


def test_a_figure_that_one_gpu_does_not_say_is_unknown() -> None:
    assert gpu_power.sample([{"power_w": 3.5, "temperature_c": 36}, {"power_w": 4.0, "temperature_c": 40}], 1.04) == {
        "t": 1.0, "power_w": 7.5, "temperature_c": 40,
    }  # fmt: skip
    assert gpu_power.sample([{"power_w": None, "temperature_c": 36}], 1)["power_w"] is None and gpu_power.sample([], 1)["temperature_c"] is None
