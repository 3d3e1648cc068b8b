# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every container that this collection starts is listed here, and every helper among them is confined as in confinement.py."""

from __future__ import annotations

import ast
import inspect
import pathlib

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._docker import confinement
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "plugins").rglob("*.py"))
TASKS = sorted(path for top in ("roles", "playbooks") for path in (ROOT / top).rglob("*.yml"))

#: Files that make containers that stay and have their own payload and tests: the engine's. A role makes those of companions.
LASTING = {"module_utils/_node/apply.py"}
#: Files that set a helper's protections differently than confinement.py does, and what they set; the reason is in the file.
EXCEPTIONS = {("module_utils/_gpu/gpu_access.py", "ReadonlyRootfs")}
#: The protections' names in Docker's API, and the settings that would undo them.
PROTECTIONS = {*confinement.CONFINED, "CapAdd", "Privileged", "UsernsMode", "PidMode", "Tmpfs", "Volumes", "Binds"}


def name_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT / "plugins").as_posix()


def calls(attribute: str) -> list[tuple[str, ast.Call]]:
    """Every call of a method of this name, with its file."""
    result = []
    for path in SOURCES:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        called = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == attribute]
        result += [(name_of(path), node) for node in called]
    return result


class Asked(EngineApi):
    """An engine that records its requests."""

    def __init__(self) -> None:
        self.body: dict = {}

    def _call(self, method, path, query=None, body=None, **_more):
        self.body = body or self.body
        return b'{"Id": "c", "StatusCode": 0}' if method == "POST" else b""


def test_a_helper_has_no_capability_gains_none_and_writes_nothing_but_its_own_volume():
    api = Asked()
    api.run_throwaway("image", ["true"], labels={}, timeout=1, env={"A": "1"}, mounts=[{"Source": "/x"}], host={"Memory": 1})
    assert confinement.CONFINED == {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges:true"], "ReadonlyRootfs": True}
    assert api.body["HostConfig"] == {"NetworkMode": "none", "Init": True, "Mounts": [{"Source": "/x"}], "Memory": 1, **confinement.CONFINED}
    assert api.body["Volumes"] == {"/tmp": {}}
    given = dict(entry.split("=", 1) for entry in api.body["Env"])
    assert given.pop("A") == "1" and given and all(value.startswith("/tmp/") for value in given.values())


def test_no_helper_says_otherwise():
    settings = set()
    for path in SOURCES:
        if name_of(path) == "module_utils/_docker/confinement.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            keys = node.keys if isinstance(node, ast.Dict) else []
            settings |= {(name_of(path), key.value) for key in keys if isinstance(key, ast.Constant) and key.value in PROTECTIONS}
    # The volume belongs to that one definition; tests compare the request with it.
    assert settings == {*EXCEPTIONS, ("module_utils/_docker/engine_api.py", "Volumes")}


def test_the_maker_of_a_container_is_known():
    made = {name for name, call in calls("create") if any(word in ast.unparse(call.func) for word in ("docker.create", "containers.create"))}
    assert made == {*LASTING, "module_utils/_docker/sdk.py"}
    assert len(calls("run_throwaway")) >= 6
    makers = [name_of(path) for path in SOURCES if "/containers/create" in path.read_text(encoding="utf-8")]
    assert makers == ["module_utils/_docker/engine_api.py"] and "confinement.CONFINED" in inspect.getsource(EngineApi.run_throwaway)


def tasks(node):
    """Every task in a file, of whatever block."""
    for task in node if isinstance(node, list) else []:
        if isinstance(task, dict):
            yield task
            for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
                yield from tasks(task.get(part))


def containers():
    """Every task that makes a container, with its file."""
    for path in TASKS:
        for task in tasks(yaml.safe_load(path.read_text(encoding="utf-8"))):
            for name, given in task.items():
                if name != "community.docker.docker_container" or (isinstance(given, dict) and given.get("state") in ("absent", "stopped")):
                    continue
                # Companions are not helpers: _companion/container.py makes their options, and has tests of its own.
                if given != "{{ item['options'] }}" or path.relative_to(ROOT).parts[:2] != ("roles", "companions"):
                    yield pytest.param(name, given, id=f"{path.relative_to(ROOT)}: {task['name']}")


@pytest.mark.parametrize(("module", "given"), list(containers()))
def test_a_container_that_a_role_makes_is_a_confined_helper(module, given):
    assert module == "community.docker.docker_container"
    assert given["cap_drop"] == confinement.CONFINED["CapDrop"]
    assert given["security_opts"] == confinement.CONFINED["SecurityOpt"]
    assert given["read_only"] == confinement.CONFINED["ReadonlyRootfs"]
    assert given["volumes"] == [confinement.SCRATCH]
    assert not {"privileged", "pid_mode", "ipc_mode", "userns_mode", "tmpfs", "devices"} & given.keys()
    # Only where the cache is of two owners.
    assert given["capabilities"] == "{{ ['DAC_OVERRIDE'] if __model_answer['download_as']['because'] else [] }}"
    writable = [mount["source"] for mount in given["mounts"] if not mount.get("read_only")]
    assert writable == ["{{ gb10_hf_home }}/hub"]


def test_the_download_is_among_them():
    assert len(list(containers())) == 1
