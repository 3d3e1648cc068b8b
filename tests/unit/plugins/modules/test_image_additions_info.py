# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A layer that changes what lies below it is found, whatever it does; one that only adds passes."""

from __future__ import annotations

import json
import os
import stat
import types
import typing as t
from pathlib import Path

import pytest
from engine_tree import Engine

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, ExecResult
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_additions
from ansible_collections.gb10.cluster.plugins.modules import image_additions_info

SITE = "usr/lib/python3/dist-packages"
FILES = {f"{SITE}/vllm/envs.py": b"A=1", f"{SITE}/torch/a.py": b"t", "etc/passwd": b"root"}


@pytest.fixture
def engine(tmp_path: Path) -> t.Iterator[Engine]:
    made = Engine(tmp_path)
    made.build("base:1", None, {"etc/passwd": b"older", "etc/low": b"low"}, FILES)
    yield made
    made.close()


def call(engine: Engine, **params: t.Any) -> dict[str, t.Any]:
    given = {"image": "node:1", "base_image": "base:1", "allowed": [], "allowed_env": [], "tool_timeout": 5}
    given |= {"docker_socket": engine.socket, "docker_timeout": 5}
    return image_additions_info.work(types.SimpleNamespace(params={**given, **params}, check_mode=False))


def test_what_only_adds_passes(engine: Engine) -> None:
    engine.build("node:1", "base:1", {f"{SITE}/ray/a.py": b"r", "tmp/gb10/layer.lock": b"l"}, {"tmp/.wh.gb10": b"", f"{SITE}/ray-2.dist-info/METADATA": b"m"})
    result = call(engine)
    assert (result["how"], result["layers"], result["added"], result["changed_paths"]) == ("files", 2, 3, [])
    # The same content once more is no change.
    engine.build("node:1", "base:1", {"etc/passwd": b"root"})
    assert call(engine)["added"] == 0


@pytest.mark.parametrize(
    ("name", "content", "path"),
    [
        ("etc/passwd", b"more", "/etc/passwd"),
        ("./etc/low", b"LOW", "/etc/low"),
        ("etc/.wh.low", b"", "/etc/low"),
        (f"{SITE}/.wh.torch", b"", f"/{SITE}/torch"),
        (f"{SITE}/vllm/.wh..wh..opq", b"", f"/{SITE}/vllm"),
        (f"{SITE}/vllm", b"a file where a directory was", f"/{SITE}/vllm"),
    ],
)
def test_what_changes_the_base_is_named(engine: Engine, name: str, content: bytes, path: str) -> None:
    engine.build("node:1", "base:1", {f"{SITE}/ray/a.py": b"r", name: content})
    with pytest.raises(ClusterError) as caught:
        call(engine)
    assert caught.value.details["changed_paths"] == [path] and path in str(caught.value) and "mod of the profile" in caught.value.remedy


def test_what_a_mod_declares_may_change(engine: Engine) -> None:
    engine.build("node:1", "base:1", {f"{SITE}/vllm/envs.py": b"A=2"})
    assert call(engine, allowed=["vllm"])["changed_paths"] == [f"/{SITE}/vllm/envs.py"]
    engine.build("node:1", "base:1", {f"{SITE}/vllm/envs.py": b"A=2", "etc/vllm": b"new", "etc/passwd": b"x"})
    with pytest.raises(ClusterError, match="changes what its base base:1 has: /etc/passwd"):
        call(engine, allowed=["vllm"])


def test_another_mode_is_a_change(engine: Engine) -> None:
    engine.build("node:1", "base:1", {"etc/low": b"low"})
    (own,) = (path for path in (engine.root / "overlay2").rglob("etc/low") if not (path.parent / "passwd").exists())
    os.chmod(own, 0o777)
    with pytest.raises(ClusterError, match="/etc/low"):
        call(engine)


def test_what_the_base_removed_is_not_there(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal is a device without a number in the layer's directory, which only root can make."""
    whole = image_additions._status

    def status(path: bytes) -> t.Any:
        found = whole(path)
        if found is not None and os.path.getsize(path) == 7 and path.endswith(b"etc/gone"):
            return types.SimpleNamespace(st_mode=stat.S_IFCHR, st_rdev=0)
        return found

    monkeypatch.setattr(image_additions, "_status", status)
    engine.build("base:1", None, {"etc/gone": b"was there"}, {"etc/gone": b"removed"})
    engine.build("node:1", "base:1", {"etc/gone": b"new"})
    assert call(engine)["added"] == 1


def test_the_configuration_is_compared() -> None:
    before = {"Env": ["PATH=/bin", "PIP_INDEX_URL=a", "A=b=c"], "Entrypoint": ["/e"], "Cmd": None, "WorkingDir": ""}
    assert image_additions.config(before, {**before, "Env": [*before["Env"], "NEW=1"], "Cmd": []}, []) == []
    after = {"Env": ["PATH=/bin:/x", "PIP_INDEX_URL=b"], "Entrypoint": None, "Cmd": ["x"], "WorkingDir": "/w"}
    assert image_additions.config(before, after, ["PIP_INDEX_URL"]) == ["the variable PATH", "the variable A", "Entrypoint", "Cmd", "WorkingDir"]


def test_an_engine_of_another_kind_compares_packages(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.driver = "overlayfs"
    engine.build("node:1", "base:1", {"a": b"a"})
    has = {"base:1": {"vllm": "1", "torch": "2", "gone": "1"}, "node:1": {"vllm": "1", "torch": "3", "ray": "4"}}
    answers: dict[str, t.Any] = {name: ExecResult(0, json.dumps(found), "") for name, found in has.items()}
    monkeypatch.setattr(EngineApi, "run_throwaway", lambda _api, image, *_given, **_more: answers[image])
    with pytest.raises(ClusterError, match="gone 1, torch 2 becomes 3"):
        call(engine)
    answers["node:1"] = ExecResult(0, json.dumps({**has["base:1"], "ray": "4"}), "")
    assert (call(engine)["how"], call(engine)["added"]) == ("packages", 1)
    answers["base:1"] = ExecResult(127, "", "no python3")
    with pytest.raises(UnknownState, match="does not say its packages"):
        call(engine)


def test_an_image_of_another_base_is_refused(engine: Engine) -> None:
    engine.build("node:1", None, {"a": b"a"})
    with pytest.raises(ClusterError, match="does not lie on base:1"):
        call(engine)
    with pytest.raises(ClusterError, match="no image other:1"):
        call(engine, image="other:1")
