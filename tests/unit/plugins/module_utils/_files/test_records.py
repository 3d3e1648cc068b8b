# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets and records are complete and on the disk before they get their name. A full disk leaves them unchanged."""

from __future__ import annotations

import ast
import errno
import json
import os
import stat
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content as bundles
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import files, owners
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_contract
from ansible_collections.gb10.cluster.plugins.module_utils._launcher import launcher
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._lease import record as leases
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting
from ansible_collections.gb10.cluster.plugins.module_utils._model import manifest, model_code
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import sweep_files as sweeps
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import setup, unit
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots, glance, record
from ansible_collections.gb10.cluster.plugins.modules import cluster_secrets
from ansible_collections.gb10.cluster.plugins.plugin_utils._bench import history

ROOT = Path(__file__).resolve().parents[5]

#: Who renames, and no secret or record of a node: logs, wheels and files of a bundle, which their list names, and notes of one run on the controller.
OTHERS = {
    "module_utils/_files/files.py": "the one function",
    "module_utils/_launcher/launcher.py": "one file that runs in the container, with a function of its own",
    "module_utils/_node/removal.py": "the log of a container that goes",
    "module_utils/_bundle/image_part.py": "the image of a bundle",
    "module_utils/_bundle/model_part.py": "a file of a bundle",
    "plugin_utils/_serve/run_board.py": "what the nodes of one run tell each other",
    "action/node_logs.py": "a log on the controller",
}


def renames(path: Path) -> bool:
    """Whether a file calls os.replace, os.rename or Path.rename; a text is replaced with two arguments."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_os = isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
            if node.func.attr in ("replace", "rename") and (of_os or len(node.args) == 1 and not node.keywords):
                return True
    return False


def test_secrets_and_records_are_renamed_by_one_function():
    plugins = ROOT / "plugins"
    assert {str(path.relative_to(plugins)) for path in plugins.rglob("*.py") if renames(path)} == set(OTHERS)


# -- the order ---------------------------------------------------------------------------------------------------------------


class Recording:
    """An ``os`` that records its syncs and renames in order, and fails at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.full = ""
        for name in ("fsync", "replace", "link", "write"):
            monkeypatch.setattr(os, name, self.told(name, getattr(os, name)))

    def told(self, name: str, real: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def call(*args: t.Any, **more: t.Any) -> t.Any:
            what = name
            if name == "fsync":
                what = "directory" if stat.S_ISDIR(os.fstat(args[0]).st_mode) else "file"
            if what == self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.seen.append(what)
            return real(*args, **more)

        return call


@pytest.fixture
def recording(monkeypatch):
    return Recording(monkeypatch)


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (lambda path: files.write_whole(path, b"x"), "replace"),
        (lambda path: files.write_whole(path, b"x", replace=False), "link"),
        (lambda path: files.write_text(path, "x"), "replace"),
        (lambda path: files.write_json(path, {}, 0o644), "replace"),
        (lambda path: launcher.write_json(path, "x"), "replace"),
    ],
)
def test_a_file_is_on_the_disk_before_its_name_and_its_name_after_it(tmp_path, recording, act, named):
    act(str(tmp_path / "a"))
    assert recording.seen == ["file", named, "directory"] and os.listdir(tmp_path) == ["a"]


def test_a_link_has_its_name_on_the_disk(tmp_path, recording):
    (tmp_path / "a").symlink_to("before")
    files.write_link(str(tmp_path / "a"), "after")
    assert recording.seen == ["replace", "directory"] and os.readlink(tmp_path / "a") == "after" and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(("mode", "umask", "is_mode"), [(0o600, 0, 0o600), (0o644, 0o077, 0o644), (None, 0o027, 0o640)])
def test_the_mode_is_the_requested_one(tmp_path, mode, umask, is_mode):
    before = os.umask(umask)
    try:
        files.write_whole(str(tmp_path / "a"), b"x", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == is_mode


def test_an_existing_file_stays_without_replace(tmp_path):
    (tmp_path / "a").write_text("theirs")
    with pytest.raises(FileExistsError) as caught:
        files.write_whole(str(tmp_path / "a"), b"x", replace=False)
    assert caught.value.filename == str(tmp_path / "a") and (tmp_path / "a").read_text() == "theirs" and os.listdir(tmp_path) == ["a"]


GONE = 4194305  # above the kernel's highest process number


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    others = ["b.1-2.new", f"a.{os.getpid()}-5.new", "a.new", "a.bak.4194305-1.new", "a"]
    for name in (f"a.{GONE}-17.new", "a.gb10-new", *others):
        (tmp_path / name).write_text("half")
    files.write_whole(str(tmp_path / "a"), b"whole")
    # Another live writer is at work, and a file with another name belongs to another program.
    assert sorted(os.listdir(tmp_path)) == sorted(others) and (tmp_path / "a").read_text() == "whole"


# -- a full disk -------------------------------------------------------------------------------------------------------------

MODE = {"mode": "off", "phase": "settled", "reason": "", "clusters": {}, "previous": {}, "changed_at": "", "events": []}
GLANCE = {
    "cluster": "c", "role": "head", "state": "running", "reason": "", "boot_id": "b", "at": "", "model": "", "endpoint": "", "token": {}, "start": "",
}  # fmt: skip
LEASE = {name: kind() for name, kind in leases.KEYS.items()}
SWEEP: dict[str, t.Any] = {"at": 1.0, "quiet": "", "since": {}, "problems": [], "told": {}, "last": {}, "undelivered": {}}
OPEN = open


def unit_file(place: str, word: str) -> None:
    ours = unit.Unit("x.service", (os.path.join(place, "x.service"),))
    with setup.failures(place):
        setup.Files(ours, {ours.path: unit.marked(f"[Unit]\nDescription={word}\n").encode()}).write(1)


def bundle_list(place: str, word: str) -> None:
    bundles.write(place, bundles.SUMS, word.encode(), owners.owner_of(place))


def sent_program(place: str, word: str) -> None:
    sent = os.path.join(os.path.dirname(place), "sent")
    Path(sent).write_text(word)
    install.write_program({"program_file": sent, "program_digest": install.digest(sent)}, os.path.join(place, "unit.pyz"), 0o600)


def secret(place: str, word: str) -> None:
    params = {"cluster_name": "c", "secrets_dir": place, "make": [], "shared": {"ray_token": word}, "api_key": None}
    cluster_secrets.work(t.cast(t.Any, types.SimpleNamespace(params=params, check_mode=False)))


#: Every writer of a secret or record of a node or the controller: it writes below a place what follows from a word.
WRITERS: dict[str, t.Callable[[str, str], t.Any]] = {
    "the mode": lambda place, word: modes.write(place, {**MODE, "changed_at": word}),
    "a unit's record": lambda place, word: record.write(place, "b", record.RUNNING, word),
    "a glance": lambda place, word: (os.makedirs(f"{place}/c", exist_ok=True), glance.write(place, {**GLANCE, "reason": word})),
    "unclean boots": lambda place, word: boots.DOCUMENT.write(f"{place}/{boots.FILE}", {"boots": [], "word": word}),
    "a lease": lambda place, word: leases.write(place, {**LEASE, "reason": word}),
    "a lock that is taken over": lambda place, word: cluster_locks.write(f"{place}/lock.json", word, replace=True),
    "the state of a sweep": lambda place, word: sweeps.write_state(place, {**SWEEP, "quiet": word}),
    "recorded starts": lambda place, word: starts.FILE.write(starts.FILE.path_of(place, "c"), [{"word": word}]),
    "a baseline": lambda place, word: accounting.write_baseline(f"{place}/baseline.json", {"word": word}),
    "a note of a module": lambda place, word: files.write_json(f"{place}/note.json", {"word": word}),
    "an image's contract": lambda place, word: image_contract.write_cache(f"{place}/contract.json", t.cast(t.Any, {"engine_error": "", "word": word})),
    "how the GPU is reached": lambda place, word: gpu_access.write_proof(f"{place}/gpu.json", {"word": word}, {}),
    "a model's digests": lambda place, word: manifest.write(f"{place}/manifest.json", word, {}),
    "a model's code": lambda place, word: model_code.write_note(f"{place}/code.json", {"word": word}),
    "a secret": secret,
    "a unit file": unit_file,
    "a unit's program": sent_program,
    "a bundle's list": bundle_list,
    "the rows of a bench": lambda place, word: files.write_text(f"{place}/{history.JSON}", word, history.MODE),
    "a note in the container": lambda place, word: launcher.write_json(f"{place}/run.json", word),
}


def content_of(place: Path) -> dict[str, str]:
    return {str(path.relative_to(place)): path.read_text() for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("full", ["file", "replace", "directory", "content"])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_loses_nothing_is_named_once_and_the_next_run_completes(tmp_path, monkeypatch, recording, writer, full):
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.setattr(cluster_secrets, "SECRETS_DIR", str(place))
    monkeypatch.setattr(setup.Unit, "systemctl", lambda *_given: None)
    act = WRITERS[writer]
    act(str(place), "before")
    before = content_of(place)
    with monkeypatch.context() as patch:
        if full == "content":
            patch.setattr("builtins.open", full_open)
        recording.full = full
        with pytest.raises((ClusterError, OSError)) as caught:
            act(str(place), "after")
    recording.full = ""
    error = caught.value
    message = str(error)
    assert "No space left on device" in message and str(place) in message, message
    if isinstance(error, ClusterError):
        assert error.remedy.startswith("Free some space and run again: df -h /") and "become" not in error.remedy and error.reason == "disk full"
    # A file that has its name before the directory is synced is complete, too.
    assert full == "directory" or content_of(place) == before
    act(str(place), "after")
    after = content_of(place)
    assert after.keys() == before.keys() and after != before and not [name for name in after if ".new" in name or "gb10-new" in name]


class Full:
    """A file that accepts no byte."""

    def __init__(self, stream: t.Any) -> None:
        self._stream = stream

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *_given: t.Any) -> None:
        self._stream.close()

    def write(self, _content: t.Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_open(path: t.Any, mode: str = "r", *args: t.Any, **more: t.Any) -> t.Any:
    stream = OPEN(path, mode, *args, **more)
    return Full(stream) if "w" in mode else stream


def test_a_module_that_finds_the_disk_full_has_not_crashed():
    from ansible_collections.gb10.cluster.plugins.module_utils import _module

    left: dict[str, t.Any] = {}
    module = types.SimpleNamespace(params={}, no_log_values=set(), exit_json=None, fail_json=lambda **result: left.update(result))

    def work(_module):
        raise OSError(errno.EDQUOT, "Disk quota exceeded", "/var/lib/gb10/note.json")

    _module.run(t.cast(t.Any, module), work)
    assert (left["msg"], left["reason"]) == ("/var/lib/gb10/note.json: Disk quota exceeded", "disk full")
    assert left["remedy"] == "Free some space and run again: df -h /var/lib/gb10" and "traceback" not in left
    assert json.dumps(left)
