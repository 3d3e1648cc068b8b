# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which Python runs units of root's."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import python
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult, run_tool

DIRECTORY, PROGRAM, LINK = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755, stat.S_IFLNK | 0o777


class Tree:
    """A file system: by path, its mode and owner, and where a link leads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[str, tuple[int, int, str]] = {}
        libraries = ("/usr/lib", "/usr/lib/python3.12", "/usr/lib/python3", "/usr/lib/python3/dist-packages", "/opt/venv/lib", "/opt/venv/lib/site-packages")
        for path in ("/", "/usr", "/usr/bin", "/opt", "/opt/venv", "/opt/venv/bin", "/home", "/home/ada", *libraries):
            self.put(path, DIRECTORY)
        self.put("/usr/bin/python3.12", PROGRAM)
        self.put("/usr/bin/python3", LINK, to="python3.12")
        self.put("/opt/venv/bin/python", LINK, to="/usr/bin/python3")
        self.executable = "/opt/venv/bin/python"
        self.put("/opt/venv/pyvenv.cfg", stat.S_IFREG | 0o644)
        self.answer = ToolResult(0, "3 12\n/usr/lib/python312.zip\n/usr/lib/python3.12\n/usr/lib/python3/dist-packages\n/usr/pyvenv.cfg\n", "")
        self.own = ToolResult(0, "3 12\n/usr/lib/python312.zip\n/usr/lib/python3.12\n/opt/venv/lib/site-packages\n/opt/venv/pyvenv.cfg\n", "")
        self.refusals: list[ClusterError] = []
        self.asked: list[list[str]] = []
        paths = types.SimpleNamespace(dirname=os.path.dirname, normpath=os.path.normpath, join=os.path.join, exists=self.exists)
        monkeypatch.setattr(python, "os", types.SimpleNamespace(lstat=self.lstat, readlink=lambda path: self.found[path][2], path=paths))
        monkeypatch.setattr(python, "sys", types.SimpleNamespace(executable=self.executable))
        monkeypatch.setattr(python, "run_tool", self.tool)

    def put(self, path: str, mode: int, uid: int = 0, to: str = "") -> None:
        self.found[path] = (mode, uid, to)

    def lstat(self, path: str) -> t.Any:
        if path not in self.found:
            raise FileNotFoundError(2, "No such file or directory", path)
        return types.SimpleNamespace(st_mode=self.found[path][0], st_uid=self.found[path][1])

    def exists(self, path: str) -> bool:
        return path in self.found and (not self.found[path][2] or self.exists(os.path.join(os.path.dirname(path), self.found[path][2])))

    def tool(self, argv: list[str], seconds: float) -> ToolResult:
        assert seconds == python.SECONDS
        self.asked.append(argv)
        for refusal in self.refusals:
            raise refusal
        return self.own if argv[0] == self.executable else self.answer


@pytest.fixture
def tree(monkeypatch):
    return Tree(monkeypatch)


def test_the_one_that_runs_the_module_runs_the_unit_where_root_alone_can_change_it(tree):
    assert python.of_units("docker") == "/opt/venv/bin/python"
    assert [argv[:3] for argv in tree.asked] == [["/opt/venv/bin/python", "-I", "-c"]] and tree.asked[0][4:] == ["docker"]


@pytest.mark.parametrize(
    ("path", "mode", "uid"),
    [
        ("/opt/venv/lib", DIRECTORY, 1000),
        ("/opt/venv/lib/site-packages", DIRECTORY | 0o020, 0),
        ("/opt/venv/pyvenv.cfg", stat.S_IFREG | 0o644, 1000),
    ],
)
def test_one_that_imports_what_another_account_can_change_does_not(tree, path, mode, uid):
    """A file NAME.pth there runs as who runs the Python, with -I too."""
    tree.put(path, mode, uid)
    assert python.of_units("docker") == "/usr/bin/python3"
    tree.put("/usr/lib/python3", DIRECTORY, 1000)
    other = "can be changed by another account"
    with pytest.raises(ClusterError, match=rf"python {other} \({path}\), and /usr/bin/python3 {other} \(/usr/lib/python3\)"):
        python.of_units("docker")


@pytest.mark.parametrize(
    ("path", "mode", "uid"),
    [
        ("/opt", DIRECTORY, 1000),
        ("/opt/venv", DIRECTORY | 0o020, 0),
        ("/opt/venv/bin", DIRECTORY | 0o002, 0),
        ("/opt/venv/bin/python", LINK, 1000),
    ],
)
def test_one_that_another_account_can_change_does_not(tree, path, mode, uid):
    tree.put(path, mode, uid, tree.found[path][2])
    assert python.changeable("/opt/venv/bin/python") == path
    assert python.of_units("docker") == "/usr/bin/python3"
    assert [argv[:3] for argv in tree.asked] == [["/usr/bin/python3", "-I", "-c"]] and tree.asked[0][4:] == ["docker"]


def test_the_way_of_a_link_counts_as_well(tree):
    """Root's own link leads through a directory of a user's, and back."""
    tree.put("/home/ada/python", LINK, 0, "../../usr/bin/python3")
    tree.put("/opt/venv/bin/python", LINK, 0, "../../../home/ada/python")
    assert python.changeable("/opt/venv/bin/python") == ""
    tree.put("/home/ada", DIRECTORY, 1000)
    assert python.changeable("/opt/venv/bin/python") == "/home/ada"


def test_a_path_that_cannot_be_followed_has_no_owner(tree):
    tree.put("/opt/venv/bin/python", LINK, 0, "/opt/venv/bin/python")
    assert python.changeable("/opt/venv/bin/python") == "/opt/venv/bin/python"
    tree.put("/opt/venv/bin/python", LINK, 0, "gone")
    with pytest.raises(FileNotFoundError):
        python.changeable("/opt/venv/bin/python")
    assert python.of_units() == "/usr/bin/python3"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda tree: tree.found.pop("/usr/bin/python3"), "/usr/bin/python3 does not exist"),
        (lambda tree: tree.put("/usr/bin", DIRECTORY | 0o020), r"/usr/bin/python3 can be changed by another account \(/usr/bin\)"),
        (lambda tree: setattr(tree, "answer", ToolResult(0, "3 9\n", "")), "/usr/bin/python3 is 3.9; expected 3.10 or newer with the Python package docker"),
        (lambda tree: setattr(tree, "answer", ToolResult(1, "", "Traceback\nModuleNotFoundError: No module named 'docker'\n")), "No module named 'docker'"),
        (lambda tree: setattr(tree, "answer", ToolResult(0, "", "")), "prints: nothing"),
        (lambda tree: tree.refusals.append(UnknownState("it hangs")), "does not answer: it hangs"),
    ],
)
def test_without_a_python_of_roots_no_unit_is_written(tree, change, why):
    tree.put("/opt/venv", DIRECTORY, 1000)
    change(tree)
    with pytest.raises(ClusterError, match=why) as caught:
        python.of_units("docker")
    assert caught.value.reason == "python" and "(/opt/venv)" in str(caught.value) and "ansible_python_interpreter" in caught.value.remedy


@pytest.mark.parametrize("version", ["3 10", "3 13", "4 0"])
def test_the_systems_own_is_taken_from_the_oldest_that_will_do(tree, version):
    tree.put("/opt/venv", DIRECTORY, 1000)
    tree.answer = ToolResult(0, f"{version}\n", "")
    assert python.of_units() == python.SYSTEM and tree.asked[0][4:] == []


def test_this_machines_own_answers():
    """Its question runs on a real Python."""
    version, *places = run_tool([sys.executable, "-I", "-c", python._ASK, "json"], 30).stdout.splitlines()
    assert version.split() == [str(part) for part in sys.version_info[:2]]
    assert {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), os.path.join(sys.prefix, "pyvenv.cfg")} <= set(places)


def test_only_root_chooses_a_python_for_a_unit():
    """What runs at once, in a unit that ends with its play or beside the module itself, may run what the module runs in."""
    plugins = Path(__file__).resolve().parents[5] / "plugins"
    at_once = {"image_copying.py", "keeping.py", "lock_probe.py", "steps.py", "copy_source.py", "wheel_part.py", "python.py"}
    assert {path.name for path in plugins.rglob("*.py") if "sys.executable" in path.read_text(encoding="utf-8")} == at_once
