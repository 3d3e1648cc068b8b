# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets on a node: made once, written when given, never shown."""

from __future__ import annotations

import hashlib
import json
import stat
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _redact
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.modules import cluster_secrets

BOTH = ["ray_token", "api_key"]


@pytest.fixture
def call(tmp_path, monkeypatch):
    containers = {}
    monkeypatch.setattr(cluster_secrets, "SECRETS_DIR", str(tmp_path / "s"))
    monkeypatch.setattr(cluster_secrets, "EngineApi", lambda socket, timeout: None)
    monkeypatch.setattr(cluster_secrets, "find_node_container", lambda api, cluster, role: containers.get(role))

    def call(check=False, container=None, **params):
        containers.update(head={"Name": f"/{container}"} if container else None)
        defaults = {"cluster_name": "c", "secrets_dir": str(tmp_path / "s"), "make": [], "shared": {}, "api_key": None}
        module = types.SimpleNamespace(params={**defaults, "docker_socket": "", "docker_timeout": 1, **params}, check_mode=check)
        return cluster_secrets.work(module)

    return call


def test_what_is_made_stays(call, tmp_path):
    first, second = call(make=BOTH), call(make=BOTH)
    place = tmp_path / "s/c"
    texts = {name: (place / name).read_text() for name in BOTH}
    assert all(len(text) == 43 and text.isalnum() for text in texts.values()) and texts["ray_token"] != texts["api_key"]
    assert {stat.S_IMODE((place / name).stat().st_mode) for name in BOTH} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (place, tmp_path / "s")} == {0o700}
    assert first["changed"] and not second["changed"] and second["diff"]["before"] == second["diff"]["after"]
    assert first["ray_token_digest"] == second["ray_token_digest"] == hashlib.sha256(texts["ray_token"].encode()).hexdigest()
    assert not any(text in json.dumps([first, second]) for text in texts.values())
    assert sorted(path.name for path in place.iterdir()) == sorted(BOTH)


def test_check_mode_makes_nothing(call, tmp_path):
    result = call(check=True, make=BOTH)
    assert result["changed"] and len(result["actions"]) == 4 and result["ray_token_digest"] is result["recover_key_digest"] is None
    assert result["diff"]["after"]["ray_token"] == "made" and not (tmp_path / "s").exists()


def test_a_key_that_is_given_is_written_for_its_owner_alone(call, tmp_path):
    assert call(api_key="plantedKey")["changed"] and not call(api_key="plantedKey")["changed"]
    key = tmp_path / "s/c/api_key"
    assert (key.read_text(), stat.S_IMODE(key.stat().st_mode)) == ("plantedKey", 0o600)


def test_a_token_that_is_given_replaces_another(call, tmp_path):
    call(make=["ray_token"])
    result = call(shared={"ray_token": "theHeads", "recover_key": "", "other": "x"})
    assert result["actions"] == [f"write {tmp_path}/s/c/ray_token"] and (tmp_path / "s/c/ray_token").read_text() == "theHeads"
    assert not call(shared={"ray_token": "theHeads", "recover_key": "", "other": "x"})["changed"]


def test_the_key_of_the_recovery_is_made_once_and_compared_by_its_digest(call, tmp_path):
    made = call(make=["recover_key"])
    text = (tmp_path / "s/c/recover_key").read_text()
    assert made["recover_key_digest"] == hashlib.sha256(text.encode()).hexdigest() and made["ray_token_digest"] is None and len(text) == 43
    given = call(shared={"recover_key": "theHeads"})
    assert given["recover_key_digest"] == hashlib.sha256(b"theHeads").hexdigest() and given["actions"] == [f"write {tmp_path}/s/c/recover_key"]


def test_a_mode_that_others_may_read_is_not_mended_unasked(call, tmp_path):
    """It is the containers' module that refuses it: the secret may have been read."""
    call(make=["ray_token"])
    (tmp_path / "s/c/ray_token").chmod(0o644)
    assert not call(make=["ray_token"])["changed"]
    (tmp_path / "s/c").chmod(0o755)
    assert call()["actions"] == [f"make directory {tmp_path}/s/c"]


def test_secrets_elsewhere_are_known_to_every_module(call, tmp_path, monkeypatch):
    """The redaction of a module without the option looks in the usual place, and finds the way."""
    monkeypatch.setattr(_redact, "SECRETS_DIR", str(tmp_path / "s"))
    elsewhere = {"secrets_dir": str(tmp_path / "own"), "make": ["api_key"]}
    assert call(check=True, **elsewhere)["actions"][-1] == f"link {tmp_path}/s/ELSEWHERE-c to {tmp_path}/own/c" and not (tmp_path / "s").exists()
    first, second = call(**elsewhere), call(**elsewhere)
    assert first["diff"]["after"][f"{tmp_path}/s/ELSEWHERE-c"] == f"{tmp_path}/own/c" and not second["changed"]
    assert _redact.secrets_of({}) == {"api_key": (tmp_path / "own/c/api_key").read_text()}
    moved = call(**{**elsewhere, "secrets_dir": str(tmp_path / "moved")})
    assert moved["changed"] and _redact.secrets_of({}) == {"api_key": (tmp_path / "moved/c/api_key").read_text()}


def test_another_key_is_refused_under_a_container(call, tmp_path):
    call(api_key="first")
    with pytest.raises(ClusterError, match="gb10_api_key_file.* is another one than the cluster's, and gb10-c-head has that one") as error:
        call(api_key="second", container="gb10-c-head")
    assert "playbook teardown" in error.value.remedy and "second" not in str(error.value)
    assert not call(api_key="first", container="gb10-c-head")["changed"]
    assert call(api_key="second")["changed"] and (tmp_path / "s/c/api_key").read_text() == "second"


def test_a_directory_that_may_not_be_made(call, tmp_path):
    (tmp_path / "s").write_text("a file")
    with pytest.raises(ClusterError, match="Not a directory"):
        call(make=BOTH)


@pytest.mark.parametrize("left", [b"", b"\n", b"\0" * 43])
def test_what_a_power_cut_left_of_a_secret_is_none(call, tmp_path, left):
    call(make=BOTH)
    key = tmp_path / "s/c/api_key"
    key.write_bytes(left)
    assert call(make=["api_key"], check=True)["actions"] == [f"make {key}"] and call()["ray_token_digest"] is not None
    assert call(make=BOTH)["actions"] == [f"make {key}"] and len(key.read_text()) == 43 and not call(make=BOTH)["changed"]
    # A given secret is written there; no container can have the removed one.
    key.write_bytes(left)
    assert call(api_key="plantedKey", container="gb10-c-head")["changed"] and key.read_text() == "plantedKey"


def test_a_full_disk_is_named_with_room_as_its_remedy(call, tmp_path, monkeypatch):
    def full(*_given):
        raise OSError(28, "No space left on device")

    call(make=["ray_token"])
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(ClusterError, match="api_key: No space left on device") as caught:
            call(make=BOTH)
    assert caught.value.remedy == f"Free some space and run again: df -h {tmp_path}/s/c" and caught.value.reason == "disk full"
    assert [path.name for path in (tmp_path / "s/c").iterdir()] == ["ray_token"]
    assert call(make=BOTH)["actions"] == [f"make {tmp_path}/s/c/api_key"]
