# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A layer that changes lower layers is detected, whatever it does. A layer that only adds passes."""

from __future__ import annotations

import io
import json
import tarfile
import types
import typing as t
from pathlib import Path

import pytest
from engine_tree import Engine, tar_of

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, ExecResult
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_additions
from ansible_collections.gb10.cluster.plugins.module_utils._image_facts import image_changes

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
    return image_changes.work(types.SimpleNamespace(params={**given, **params}, check_mode=False))


def test_additions_pass(engine: Engine) -> None:
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
def test_changes_of_the_base_are_named(engine: Engine, name: str, content: bytes, path: str) -> None:
    engine.build("node:1", "base:1", {f"{SITE}/ray/a.py": b"r", name: content})
    with pytest.raises(ClusterError) as caught:
        call(engine)
    assert caught.value.details["changed_paths"] == [path] and path in str(caught.value) and "mod of the profile" in caught.value.remedy


def test_packages_of_a_mod_may_change(engine: Engine) -> None:
    engine.build("node:1", "base:1", {f"{SITE}/vllm/envs.py": b"A=2"})
    assert call(engine, allowed=["vllm"])["changed_paths"] == [f"/{SITE}/vllm/envs.py"]
    engine.build("node:1", "base:1", {f"{SITE}/vllm/envs.py": b"A=2", "etc/vllm": b"new", "etc/passwd": b"x"})
    with pytest.raises(ClusterError, match="changes what its base base:1 has: /etc/passwd"):
        call(engine, allowed=["vllm"])


def test_another_mode_is_a_change(engine: Engine) -> None:
    engine.build("node:1", "base:1", tar_of({"etc/low": b"low"}, mode=0o777))
    with pytest.raises(ClusterError, match="/etc/low"):
        call(engine)


def test_files_that_the_base_removed_are_absent(engine: Engine) -> None:
    engine.build("base:1", None, {"etc/gone": b"was there", "etc/folder/a": b"a"}, {"etc/.wh.gone": b"", "etc/.wh.folder": b""})
    engine.build("node:1", "base:1", {"etc/gone": b"new", "etc/folder": b"a file now"})
    assert call(engine)["added"] == 2


def test_a_hard_link_is_the_file_that_it_leads_to(engine: Engine) -> None:
    def linked(content: bytes) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            about = tarfile.TarInfo("etc/other")
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
            about = tarfile.TarInfo("etc/low")
            about.type, about.linkname = tarfile.LNKTYPE, "etc/other"
            tar.addfile(about)
        return out.getvalue()

    engine.build("node:1", "base:1", linked(b"low"))
    assert call(engine)["added"] == 1
    engine.build("node:1", "base:1", linked(b"LOW"))
    with pytest.raises(ClusterError, match="/etc/low"):
        call(engine)


@pytest.mark.parametrize("kind", ["1.44", "containerd"])
def test_newer_exports_are_compared_as_well(engine: Engine, kind: str) -> None:
    if kind == "containerd":
        engine.use_containerd()
        engine.build("base:1", None, FILES)
    engine.api = "1.44"
    engine.build("node:1", "base:1", {f"{SITE}/ray/a.py": b"r"})
    assert (call(engine)["how"], call(engine)["added"]) == ("files", 1)
    engine.build("node:1", "base:1", {"etc/passwd": b"x"})
    with pytest.raises(ClusterError, match="/etc/passwd"):
        call(engine)


def test_an_export_that_is_cut_proves_nothing(engine: Engine) -> None:
    engine.build("node:1", "base:1", {"a": b"a"})
    engine.exports = lambda content: content[:5000]
    with pytest.raises(UnknownState, match="export of node:1 cannot be read"):
        call(engine)


def test_the_configuration_is_compared() -> None:
    before = {"Env": ["PATH=/bin", "PIP_INDEX_URL=a", "A=b=c"], "Entrypoint": ["/e"], "Cmd": None, "WorkingDir": ""}
    assert image_additions.config(before, {**before, "Env": [*before["Env"], "NEW=1"], "Cmd": []}, []) == []
    after = {"Env": ["PATH=/bin:/x", "PIP_INDEX_URL=b"], "Entrypoint": None, "Cmd": ["x"], "WorkingDir": "/w"}
    assert image_additions.config(before, after, ["PIP_INDEX_URL"]) == ["the variable PATH", "the variable A", "Entrypoint", "Cmd", "WorkingDir"]


def test_of_layers_that_cannot_be_unpacked_the_packages_are_compared(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.build("node:1", "base:1", {"a": b"a"})
    for image in engine.images.values():
        image["packed"] = [engine.put_blob(b"\x28\xb5\x2f\xfd" + blob["digest"].encode()) for blob in image["packed"]]
    has = {"base:1": {"vllm": "1", "torch": "2", "gone": "1"}, "node:1": {"vllm": "1", "torch": "3", "ray": "4"}}
    answers: dict[str, t.Any] = {name: ExecResult(0, json.dumps(packages), "") for name, packages in has.items()}
    monkeypatch.setattr(EngineApi, "run_throwaway", lambda _api, image, *_given, **_more: answers[image])
    with pytest.raises(ClusterError, match="gone 1, torch 2 becomes 3"):
        call(engine)
    answers["node:1"] = ExecResult(0, json.dumps({**has["base:1"], "ray": "4"}), "")
    assert (call(engine)["how"], call(engine)["added"]) == ("packages", 1)
    answers["base:1"] = ExecResult(127, "", "no python3")
    with pytest.raises(UnknownState, match="does not report its packages"):
        call(engine)


def test_an_image_of_another_base_is_refused(engine: Engine) -> None:
    engine.build("node:1", None, {"a": b"a"})
    with pytest.raises(ClusterError, match="was not built on base:1"):
        call(engine)
    with pytest.raises(ClusterError, match="no image other:1"):
        call(engine, image="other:1")
