# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage model before its first byte, through Ansible itself, with composed answers of the nodes and without a hub."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import typing as t
from pathlib import Path

import pytest
import through_ansible
import yaml

REPO, GIB = "org/tiny", 1024**3
#: A user that has no account.
ONE = 4711
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become another account")
PROFILE = {
    "schema": 1,
    "id": "tiny",
    "model": {"repo": REPO, "size_gb": 20, "gated": True, "license": {"id": "tiny-license", "url": "https://example.com/tiny", "accept": True}},
    "image": {"base": "registry.example/vllm:1", "layers": []},
    "parallel": {"tensor": 2},
    "executor": "native",
}


def answer(free_gib: int, complete: bool) -> dict[str, t.Any]:
    """The answer of model_info on a node with this free space, with the whole model or without any of it."""
    row = {"name": "model", "repo": REPO, "revision": None, "complete": complete, "missing": [], "size_bytes": 0, "unfinished_bytes": 0}
    return {
        "complete": complete,
        "verdict": "pass" if complete else "block",
        "size_bytes": 0,
        "cache_exists": True,
        "token_left": False,
        "free_bytes": free_gib * GIB,
        "repositories": [row],
        "download_as": {"uid": 0, "gid": 0, "because": ""},
    }


def fetch(
    place: Path, *answers: dict[str, t.Any], copy: str = "never", home: Path | None = None, check: bool = True, **settings: t.Any
) -> tuple[int, str]:
    """Run the role's download tasks in check mode on two nodes; return the exit code and the output.

    Without ``check`` the download starts on all nodes, none of which lacks anything.
    """
    (place / "tiny.yml").write_text(yaml.safe_dump(PROFILE), encoding="utf-8")
    tasks, when = ("get", "not __model_answer['complete']") if check else ("start", True)
    get = {"ansible.builtin.include_role": {"name": "gb10.cluster.engine", "tasks_from": f"model_{tasks}"}, "when": when}
    have = {"ansible.builtin.include_role": {"name": "gb10.cluster.gb10", "public": True}}
    play = {"hosts": "gb10_cluster", "gather_facts": False, "any_errors_fatal": True, "tasks": [have, get]}
    (place / "book.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False, "gb10_fabric_address": "10.0.0.1"}
    hosts = {
        group: {"hosts": {name: {"__model_answer": reply, "gb10_hf_home": str(home or place / name)}}}
        for (group, name), reply in zip((("gb10_head", "spark-1"), ("gb10_workers", "spark-2")), answers)
    }
    inventory = {"gb10_cluster": {"vars": {**local, "gb10_profile": str(place / "tiny.yml"), "gb10_model_copy": copy, **settings}, "children": hosts}}
    (place / "hosts.yml").write_text(json.dumps(inventory), encoding="utf-8")
    done = through_ansible.run("playbook", "-i", str(place / "hosts.yml"), str(place / "book.yml"), *(["--check"] if check else []))
    return done.rc, " ".join(done.out.split())


@pytest.fixture
def theirs() -> t.Iterator[Path]:
    """A directory that all users may enter, with a user's home and a directory of root's."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    (place / "etc").mkdir()
    (place / "home").mkdir()
    os.chown(place / "home", ONE, ONE)
    yield place
    shutil.rmtree(place)


@AS_ROOT
def test_a_cache_in_a_users_home_is_made_by_that_user(tmp_path: Path, theirs: Path) -> None:
    reply = {**answer(100, True), "cache_exists": False, "download_as": {"uid": ONE, "gid": ONE, "because": ""}}
    code, output = fetch(tmp_path, reply, reply, home=theirs / "home/.cache/huggingface", check=False)
    assert code == 0, output
    for path in (theirs / "home/.cache", theirs / "home/.cache/huggingface"):
        assert (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o777) == (ONE, ONE, 0o755)


@AS_ROOT
@pytest.mark.parametrize("link", [".cache", ".cache/huggingface", ".cache/new"])
@pytest.mark.parametrize("target", ["etc", "etc/ssh.service.d"])
def test_a_link_that_a_user_puts_in_the_caches_way_is_not_followed(tmp_path: Path, theirs: Path, link: str, target: str) -> None:
    """The role may have checked the path before the link was made."""
    path = theirs / "home" / link
    path.parent.mkdir(exist_ok=True)
    os.chown(path.parent, ONE, ONE)
    path.symlink_to(theirs / target)
    os.chown(path, ONE, ONE, follow_symlinks=False)
    reply = {**answer(100, True), "cache_exists": False, "download_as": {"uid": ONE, "gid": ONE, "because": ""}}
    fetch(tmp_path, reply, reply, home=theirs / "home" / {".cache": ".cache/huggingface", ".cache/new": ".cache/new/huggingface"}.get(link, link), check=False)
    assert os.listdir(theirs / "etc") == [] and (theirs / "etc").stat().st_uid == 0


@pytest.mark.parametrize("worker", [answer(10, False), answer(10, True)], ids=["both lack it", "the worker has it"])
def test_no_node_begins_what_one_cannot_hold(tmp_path: Path, worker: dict[str, t.Any]) -> None:
    code, output = fetch(tmp_path, answer(100, False), worker, gb10_hf_token_file="/etc/hostname")
    refused = not worker["complete"]
    assert bool(code) == refused, output
    assert (f"10.0 GiB free under {tmp_path}/spark-2, 18.6 GiB are missing of {REPO}" in output) == refused
    assert "tiny-license" in output and "https://example.com/tiny" in output
    assert ("would download" in output) == (not refused)


def test_a_gate_without_a_token_stops_before_the_hub_is_asked(tmp_path: Path) -> None:
    code, output = fetch(tmp_path, answer(100, True), answer(100, False))
    assert code != 0 and f"{REPO} is gated" in output and "spark-2 would fetch it, and no token is set" in output, output
    assert "gb10_hf_token_file" in output and "would download" not in output


def test_a_finding_that_was_silenced_stops_nothing(tmp_path: Path) -> None:
    code, output = fetch(tmp_path, answer(100, False), answer(100, False), gb10_silenced=["model.gated"])
    assert code == 0 and "would download org/tiny" in output, output


def test_a_node_that_copies_from_another_asks_the_hub_for_nothing(tmp_path: Path) -> None:
    code, output = fetch(tmp_path, answer(100, True), answer(100, False), copy="required")
    assert code == 0 and "gated" not in output and "would download" not in output, output


def test_one_node_alone_downloads_what_the_others_copy(tmp_path: Path) -> None:
    code, output = fetch(tmp_path, answer(100, False), answer(100, False), copy="required", gb10_hf_token_file="/etc/hostname")
    assert code == 0 and output.count("would download org/tiny") == 1 and str(tmp_path / "spark-1") in output, output
