# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What root in a container put in place of the programs' files is named and removed, and nothing else is removed."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import socket

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import planted
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import EnginePaths
from ansible_collections.gb10.cluster.plugins.module_utils._files.untrusted import Tampered
from ansible_collections.gb10.cluster.plugins.module_utils._launcher import launcher

RUN = "20260101T000000Z-0001"
IMAGE = "0.20.1-arm64-1f0c1f0c1f0c1f0c"
SECRET = "not yours\n"


@pytest.fixture
def node(tmp_path):
    """A cluster whose container is gone, as its programs left it, and a file outside."""
    paths = EnginePaths.of(str(tmp_path / "state"), str(tmp_path / "log"), "gb10")
    for folder in (paths.launch, f"{paths.run}/config", f"{paths.cache}/{IMAGE}/triton/ab", f"{paths.log}/engine", f"{paths.log}/containers"):
        os.makedirs(folder)
    for name in ("exit.json", "stop.json", "run.lock", "config/ray_non_carry_over_env_vars.json"):
        pathlib.Path(paths.run, name).write_text("{}")
    noted = {"run_id": RUN, "pid": 57, "start_ticks": 1, "container_start": 1, "boot_id": "b", "log_path": f"/var/log/gb10/engine/{RUN}.log"}
    pathlib.Path(paths.run, "run.json").write_text(json.dumps(noted))
    for name in (f"{RUN}.log", f"{RUN}.log.1", "of-a-person.txt"):
        pathlib.Path(paths.engine_log, name).write_text("a line\n")
    pathlib.Path(paths.cache, IMAGE, "triton/ab/kernel.so").write_text("x")
    pathlib.Path(paths.log, "containers/gb10-gb10-head-1f0c.log").write_text("kept")
    pathlib.Path(paths.launch, "engine.json").write_text(json.dumps({"run_id": RUN}))
    pathlib.Path(paths.launch, "container.json").write_text(json.dumps({"image": "local/vllm:1", "image_id": "sha256:aa"}))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text(SECRET)
    return paths


def outside(paths):
    return pathlib.Path(paths.run).parents[2] / "outside/file"


def link(path, target):
    path.symlink_to(target)


def circle(path, _target):
    path.symlink_to(path.name)


def fifo(path, _target):
    os.mkfifo(path)


def local_socket(path, _target):
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def hard_link(path, target):
    path.hardlink_to(target)


def folder(path, _target):
    path.mkdir()
    (path / "below").symlink_to("/")


def device(path, _target):
    os.mknod(path, 0o20666, os.makedev(1, 5))


KINDS = [link, circle, fifo, local_socket, hard_link, folder, pytest.param(device, marks=pytest.mark.skipif(os.geteuid() != 0, reason="takes root"))]


def every_path(paths):
    """Every path that the collection's programs write in a container."""
    return [
        *(pathlib.Path(paths.run, name) for name in planted.NOTES),
        *(pathlib.Path(paths.engine_log, f"{RUN}.log{end}") for end in ("", ".1", ".1.new")),
    ]


def put(path, plant, target):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    plant(path, target)


def left(paths):
    """Everything below the cluster's directories."""
    tops = (paths.run, paths.cache, paths.log)
    return sorted(os.path.join(where, name) for top in tops for where, folders, names in os.walk(top) for name in [*folders, *names])


def test_what_our_programs_leave_is_nothing_planted(node):
    planted.check(node)
    assert planted.found(node) == []


def test_nor_is_a_node_where_nothing_ran_yet(tmp_path):
    planted.check(EnginePaths.of(str(tmp_path), str(tmp_path), "gb10"))


@pytest.mark.parametrize("number", range(len(planted.NOTES) + 3))
@pytest.mark.parametrize("plant", KINDS)
def test_each_entry_is_named_with_its_container_and_remedy(node, plant, number):
    path = every_path(node)[number]
    put(path, plant, outside(node))
    with pytest.raises(Tampered, match=f"{path} was tampered with: ") as caught:
        planted.check(node)
    assert f"image local/vllm:1 (sha256:aa), run {RUN}" in str(caught.value) and "playbook teardown" in caught.value.remedy
    planted.clear(node)
    planted.check(node)
    assert outside(node).read_text() == SECRET


@pytest.mark.parametrize("plant", KINDS)
def test_with_all_of_it_replaced_a_teardown_leaves_what_the_next_start_needs(node, plant):
    for path in [*every_path(node), pathlib.Path(node.run, "config"), pathlib.Path(node.cache, IMAGE, "triton/ab/kernel.so")]:
        put(path, plant, outside(node))
    with pytest.raises(Tampered, match=r"and \d more"):
        planted.check(node)
    planted.clear(node)
    assert planted.found(node) == [] and outside(node).read_text() == SECRET
    # A user's file and the host's own files must not be removed.
    kept = {f"{node.log}/engine", f"{node.log}/engine/of-a-person.txt", f"{node.log}/containers", f"{node.log}/containers/gb10-gb10-head-1f0c.log"}
    caches = {f"{node.cache}/{IMAGE}", *(f"{node.cache}/{IMAGE}/triton{end}" for end in ("", "/ab", "/ab/kernel.so", "/ab/kernel.so/below"))}
    assert kept <= set(left(node)) <= kept | caches
    spec = {"run_dir": node.run, "run_id": RUN}
    os.close(launcher.take_lock(spec, 0))


def test_logs_that_are_plain_files_stay(node):
    put(pathlib.Path(node.run, "run.lock"), circle, None)
    planted.clear(node)
    assert {f"{RUN}.log", f"{RUN}.log.1", "of-a-person.txt"} == set(os.listdir(node.engine_log)) and os.listdir(node.run) == []
    assert os.path.exists(f"{node.cache}/{IMAGE}/triton/ab/kernel.so")


def test_where_the_host_keeps_logs_is_cleared_and_keeps_no_start_away(node):
    put(pathlib.Path(node.log, "containers"), link, outside(node).parent)
    planted.check(node)
    assert [plant.path for plant in planted.found(node)] == ["containers"]
    planted.clear(node)
    assert planted.found(node) == [] and outside(node).read_text() == SECRET


def test_a_file_where_a_directory_belongs_is_called_one(node):
    put(pathlib.Path(node.run, "config"), lambda path, _target: path.write_text(""), None)
    with pytest.raises(Tampered, match="a file is in the place of a directory"):
        planted.check(node)


@pytest.mark.parametrize(("path", "what"), [("engine", "log"), (f"{IMAGE}/triton", "cache"), ("config", "run")])
def test_a_directory_that_was_replaced_is_one_of_them(node, path, what):
    place = pathlib.Path(getattr(node, what), path)
    put(place, link, outside(node).parent)
    with pytest.raises(Tampered, match=f"{place} was tampered with: a link is in the place of a directory"):
        planted.check(node)
    planted.clear(node)
    assert not place.is_symlink() and outside(node).read_text() == SECRET and planted.found(node) == []


def test_a_note_without_an_end_is_one_of_them(node):
    with open(f"{node.run}/run.json", "wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(Tampered, match="more than 262144 bytes"):
        planted.check(node)
    planted.clear(node)
    planted.check(node)


@pytest.mark.parametrize("text", ["{", "[]", '{"run_id": "../../root/x", "pid": 1}', "{}"])
def test_a_forged_record_yields_to_consent_and_to_a_teardown(node, text):
    pathlib.Path(node.run, "run.json").write_text(text)
    planted.check(node)
    assert [(plant.path, "not that of the launcher" in plant.what) for plant in planted.found(node)] == [("run.json", True)]
    planted.clear(node)
    assert os.listdir(node.run) == [] and planted.found(node) == []


def test_a_setuid_program_is_removed_too(node):
    pathlib.Path(node.engine_log, "program").write_text("")
    os.chmod(pathlib.Path(node.engine_log, "program"), 0o4755)
    os.chmod(pathlib.Path(node.cache, IMAGE, "triton/ab/kernel.so"), 0o6755)
    put(pathlib.Path(node.run, "exit.json"), link, outside(node))
    planted.clear(node)
    assert not os.path.exists(f"{node.engine_log}/program") and not os.path.exists(f"{node.cache}/{IMAGE}")


def test_the_image_of_an_older_container_is_unknown(node):
    os.unlink(f"{node.launch}/container.json")
    os.unlink(f"{node.launch}/engine.json")
    put(pathlib.Path(node.run, "exit.json"), link, outside(node))
    with pytest.raises(Tampered, match="an image that no note names, no run of an engine"):
        planted.check(node)
