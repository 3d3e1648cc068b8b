# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that loads repositories in a container, with the lab's stand-in for the hub and as much of the hub's client as it uses.

The real client runs in tests/integration/test_download.py.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import importlib.util
import json
import subprocess
import sys
import types
import typing as t
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPO, NAME = "org/tiny", "model-00001-of-00001.safetensors"
DATA = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(DATA).hexdigest()
WANTED = {"repo_id": REPO, "revision": "main", "allow_patterns": None, "ignore_patterns": None}


def loaded(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


stand_in = loaded("hub_stand_in", ROOT / "tests" / "lab" / "hub" / "stand_in.py")
download = loaded("hub_download", ROOT / "roles" / "engine" / "files" / "download.py")


class Refused(Exception):
    """The client's exception for an error response of the hub."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(f"{status} Client Error for url: https://hub.lan/x?Signature=secret")
        self.response = types.SimpleNamespace(status_code=status, headers=headers)


class RemoteProtocolError(Exception):
    """The exception of the client's transport when a connection ends early."""


def get(url: str, headers: dict[str, str]) -> t.Any:
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10)
    except urllib.error.HTTPError as error:
        raise Refused(error.code, dict(error.headers)) from error


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.Any]:
    """A hub that serves, and a client that finds it."""
    place = tmp_path / "served" / REPO
    place.mkdir(parents=True)
    (place / NAME).write_bytes(DATA)
    (place / "config.json").write_text("{}", encoding="utf-8")
    made, servers = stand_in.start(tmp_path / "served")
    url = f"http://127.0.0.1:{servers[0].server_address[1]}"

    def model_info(_self: object, repo: str, revision: str, files_metadata: bool) -> t.Any:
        with get(f"{url}/api/models/{repo}/revision/{revision}?blobs={files_metadata}", {}) as answer:
            info = json.load(answer)
        lfs = {sibling["rfilename"]: types.SimpleNamespace(**sibling["lfs"]) if "lfs" in sibling else None for sibling in info["siblings"]}
        return types.SimpleNamespace(sha=info["sha"], siblings=[types.SimpleNamespace(rfilename=name, lfs=value) for name, value in lfs.items()])

    def http_get(url: str, stream: t.Any, *, resume_size: int, headers: dict[str, str], expected_size: int) -> None:
        ranged = {"Range": f"bytes={resume_size}-"} if resume_size else {}
        with get(url, {**headers, **ranged}) as answer:
            while part := answer.read1(1 << 14):
                stream.write(part)
        if stream.tell() != expected_size:
            raise RemoteProtocolError(f"peer closed the connection, see {url}?Expires=1")

    def filtered(names: t.Iterable[str], allow_patterns: t.Any, ignore_patterns: t.Any) -> t.Iterator[str]:
        return (name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in ignore_patterns or []))

    ended: list[dict[str, t.Any]] = []
    modules = {
        "huggingface_hub": {
            "constants": types.SimpleNamespace(HF_HUB_CACHE=str(tmp_path / "cache")),
            "HfApi": type("HfApi", (), {"model_info": model_info}),
            "hf_hub_url": lambda repo, name, revision: f"{url}/{repo}/resolve/{revision}/{name}",
            "snapshot_download": lambda **wanted: ended.append(wanted),
        },
        "huggingface_hub.file_download": {"http_get": http_get},
        "huggingface_hub.utils": {"build_hf_headers": lambda: {"user-agent": "unit"}, "filter_repo_objects": filtered},
    }
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(download.time, "sleep", lambda _seconds: None)
    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.delenv("HF_TOKEN_PATH", raising=False)
    yield types.SimpleNamespace(made=made, blobs=tmp_path / "cache" / "models--org--tiny" / "blobs", ended=ended)
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_large_file_gets_its_name_when_its_digest_is_the_hubs(hub: t.Any) -> None:
    assert download.main([WANTED]) == {}
    assert (hub.blobs / SHA256).read_bytes() == DATA and [path.name for path in hub.blobs.iterdir()] == [SHA256]
    assert hub.ended == [WANTED]
    hub.made.seen.clear()
    assert download.main([WANTED]) == {} and not [request for request in hub.made.seen if "/repos/" in request["path"]]


@pytest.mark.parametrize("have", [1, len(DATA) // 2, len(DATA)])
def test_what_is_there_of_a_file_goes_on(hub: t.Any, have: int) -> None:
    hub.blobs.mkdir(parents=True)
    (hub.blobs / f"{SHA256}.incomplete").write_bytes(DATA[:have])
    (hub.blobs / f"{SHA256}.0a1b2c3d.incomplete").write_bytes(b"left by a client that was killed")
    assert download.main([WANTED]) == {}
    assert (hub.blobs / SHA256).read_bytes() == DATA and len(list(hub.blobs.iterdir())) == 1
    assert sum(request["sent"] for request in hub.made.seen if "/repos/" in request["path"]) == len(DATA) - have


def test_nothing_is_written_in_a_container_that_got_another_directory_than_the_hub_cache(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "other").mkdir()
    status, other = (tmp_path / "hub").stat(), (tmp_path / "other").stat()

    def run(identity: str) -> dict[str, str]:
        argv = [sys.executable, download.__file__, json.dumps([]), identity]
        modules = tmp_path / "modules" / "huggingface_hub"
        modules.mkdir(parents=True, exist_ok=True)
        (modules / "__init__.py").write_text("class constants: pass\n", encoding="utf-8")
        env = {"HF_HOME": str(tmp_path), "PYTHONPATH": str(modules.parent)}
        return json.loads(subprocess.run(argv, env=env, capture_output=True, check=True, timeout=60).stdout)["failed"]

    assert run(f"{status.st_dev}:{status.st_ino}") == {}
    failed = run(f"{other.st_dev}:{other.st_ino}")
    assert "the hub cache was replaced" in failed["what"] and failed["remedy"]


def test_a_file_that_came_otherwise_gets_no_name(hub: t.Any) -> None:
    hub.made.control({"faults": [{"match": SHA256, "flip": True, "times": 1}]})
    failed = download.main([WANTED])
    assert f"{NAME} came with the sha256" in failed["what"] and list(hub.blobs.iterdir()) == [] and hub.ended == []
    assert download.main([WANTED]) == {}


def test_more_than_the_file_has_is_not_appended_to(hub: t.Any) -> None:
    hub.blobs.mkdir(parents=True)
    (hub.blobs / f"{SHA256}.incomplete").write_bytes(b"x" * (len(DATA) + 1))
    assert download.main([WANTED]) == {} and (hub.blobs / SHA256).read_bytes() == DATA


def test_a_server_that_begins_again_is_begun_again(tmp_path: Path) -> None:
    with open(tmp_path / "file", "a+b") as stream:
        stream.write(b"old")
        partial = download.Partial(stream)
        assert partial.digest() == hashlib.sha256(b"old").hexdigest()
        partial.seek(0)
        partial.truncate()
        partial.write(b"new")
        assert (partial.size, partial.digest()) == (3, hashlib.sha256(b"new").hexdigest())


def test_what_is_not_wanted_is_not_loaded(hub: t.Any) -> None:
    assert download.main([{**WANTED, "ignore_patterns": ["*.safetensors"]}]) == {} and not hub.blobs.exists()


def test_a_cut_keeps_what_came_and_says_so_without_the_signature(hub: t.Any) -> None:
    hub.made.control({"faults": [{"match": SHA256, "cut": 0.5}]})
    failed = download.main([WANTED])
    assert "the connection was cut" in failed["what"] and "?" not in failed["what"] and "goes on" in failed["remedy"]
    assert (hub.blobs / f"{SHA256}.incomplete").stat().st_size == len(DATA) // 2


def test_a_hub_that_asks_to_wait_is_asked_again(hub: t.Any) -> None:
    faults = [{"match": "/api/", "status": 429, "headers": {"Retry-After": "2"}, "times": 1}, {"match": "/resolve/", "status": 503, "times": 1}]
    hub.made.control({"faults": faults})
    assert download.main([WANTED]) == {}
    hub.made.control({"faults": [{"match": "/api/", "status": 429, "headers": {"Retry-After": "3600"}}]})
    assert "(in 3600 s)" in download.main([WANTED])["remedy"]


def test_a_connection_that_is_cut_now_and_then_is_taken_up_again(hub: t.Any) -> None:
    hub.made.control({"faults": [{"match": SHA256, "cut": share, "times": 1} for share in (0.1, 0.1, 0.4, 0.9)]})
    assert download.main([WANTED]) == {} and (hub.blobs / SHA256).read_bytes() == DATA
    assert sum(request["sent"] for request in hub.made.seen if "/repos/" in request["path"]) == len(DATA)


def test_of_a_file_that_never_came_nothing_stays(hub: t.Any) -> None:
    hub.made.control({"faults": [{"match": "/resolve/", "status": 403}]})
    assert "403" in download.main([WANTED])["what"] and list(hub.blobs.iterdir()) == []


@pytest.mark.parametrize(
    ("status", "headers", "token", "words"),
    [
        (401, {"X-Error-Code": "GatedRepo"}, False, "no token was given"),
        (403, {"X-Error-Code": "GatedRepo"}, True, "was not given access"),
        (401, {"X-Error-Message": "Invalid credentials in Authorization header"}, True, "does not know this token"),
        (401, {"X-Error-Code": "RepoNotFound"}, False, "there is no repository org/tiny, or it is private"),
        (404, {"X-Error-Code": "RevisionNotFound"}, False, "has no revision main"),
        (404, {"X-Error-Code": "EntryNotFound"}, False, "a file of org/tiny is not there"),
        (429, {}, False, "too many requests"),
        (502, {}, False, "out of order"),
        (403, {"X-Error-Message": "Blocked by policy"}, False, "403: Blocked by policy"),
    ],
)
def test_a_refusal_in_words(monkeypatch: pytest.MonkeyPatch, status: int, headers: dict[str, str], token: bool, words: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://someone:secret@hub.lan/")
    if token:
        monkeypatch.setenv("HF_TOKEN_PATH", "/run/secrets/token")
    else:
        monkeypatch.delenv("HF_TOKEN_PATH", raising=False)
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = Refused(status, headers)
    explanation = download.explain(WANTED, wrapped)
    assert words in explanation["what"] and explanation["where"].startswith("https://hub.lan/org/tiny") and all(explanation.values())
    assert "secret" not in json.dumps(explanation)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied", "/cache/x"), "Permission denied: /cache/x"),
        (type("ConnectError", (Exception,), {})("[Errno 111] Connection refused"), "cannot be reached ([Errno 111] Connection refused)"),
        (type("ReadTimeout", (Exception,), {})(""), "the connection was cut (ReadTimeout)"),
        (ValueError("of its own"), "of its own"),
    ],
)
def test_other_failures_in_words(error: Exception, words: str) -> None:
    explanation = download.explain(WANTED, error)
    assert words in explanation["what"] and all(explanation.values())
