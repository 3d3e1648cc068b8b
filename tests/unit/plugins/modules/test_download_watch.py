# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting for a download, with an engine of memory: the output of its program is reported, and any other end is a failure with its message."""

from __future__ import annotations

import json
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._model import downloading
from ansible_collections.gb10.cluster.plugins.modules import download_watch

DONE = json.dumps({"failed": {}, "seconds": 3.5, "bytes": 12_000_000})
WHY = {"what": "the hub answers 401", "where": "https://hub/x", "expected": "a token", "remedy": "Set one."}
REFUSED = json.dumps({"failed": WHY, "seconds": 1, "bytes": 0})


class Engine:
    """Returns the given states of one container, one for each call; the last one repeats."""

    def __init__(self, *looks: t.Any) -> None:
        self.looks, self.asked = list(looks), []

    def _now(self) -> t.Any:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def inspect(self, name: str) -> dict[str, t.Any]:
        self.asked.append(name)
        self.seen = self._now()
        if isinstance(self.seen, Exception):
            raise self.seen
        return {"State": self.seen[0]}

    def logs(self, _name: str, tail: int) -> str:
        return "\n".join(self.seen[1].splitlines()[-tail:])


RUNS, ENDED = {"Running": True}, {"Running": False, "ExitCode": 0}


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., dict[str, t.Any]]:
    def call(engine: Engine, timeout: int = 60) -> dict[str, t.Any]:
        monkeypatch.setattr(download_watch, "EngineApi", lambda socket, timeout: engine)
        monkeypatch.setattr(download_watch, "LOOK_SECONDS", 0.01)
        params = {"container": "gb10-pair-download", "cluster_name": "pair", "repositories": ["org/a", "org/b"], "timeout": timeout, "state_dir": str(tmp_path)}
        return download_watch.work(types.SimpleNamespace(params={**params, "docker_socket": "", "docker_timeout": 1}, check_mode=False))

    return call


def test_what_the_program_says_at_its_end_is_the_result(call: t.Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = []
    monkeypatch.setattr(download_watch, "Note", lambda path: Noted(path, notes))
    engine = Engine((RUNS, ""), (RUNS, '{"progress": 1073741824, "of": 2147483648}\nnoise'), (ENDED, f"noise\n{DONE}\n{{'x'}}"))
    result = call(engine)
    assert (result["seconds"], result["bytes"], result["exit_code"]) == (3.5, 12_000_000, 0) and "org/a and org/b downloaded, 12.0 MB" in result["msg"]
    assert result["container"] == "gb10-pair-download"
    assert notes == ["1.0 of 2.0 GiB", "removed"] and set(engine.asked) == {"gb10-pair-download"}


class Noted:
    """Keeps what is noted."""

    def __init__(self, path: str, notes: list[str]) -> None:
        assert path.endswith("/download-pair.json")
        self.notes = notes

    def __call__(self, text: str) -> None:
        self.notes.append(text)

    def remove(self) -> None:
        self.notes.append("removed")


@pytest.mark.parametrize(
    ("looks", "kind", "words", "remedy"),
    [
        ([(ENDED, REFUSED)], ClusterError, r"org/a and org/b could not be downloaded: the hub answers 401 \(https://hub/x\); expected a token", "Set one."),
        ([({"Running": False, "ExitCode": 137}, "")], ClusterError, "ended with exit code 137: it was ended from outside", "goes on with what came"),
        ([({"Running": False, "ExitCode": 1}, "Traceback\nImportError: x")], ClusterError, "exit code 1: ImportError: x", "way to the hub"),
        ([(RUNS, ""), NotFound("no such container")], ClusterError, "there is no container gb10-pair-download", "goes on with what came"),
        ([({}, "")], UnknownState, "does not say whether gb10-pair-download runs", "docker inspect"),
    ],
)  # fmt: skip
def test_any_other_end_is_a_failure_with_its_words(call: t.Any, looks: list[t.Any], kind: type[ClusterError], words: str, remedy: str) -> None:
    with pytest.raises(kind, match=words) as raised:
        call(Engine(*looks))
    assert remedy in raised.value.remedy and raised.value.details["container"] == "gb10-pair-download"


def test_a_download_that_does_not_end_is_given_up_with_what_was_last_seen(call: t.Any) -> None:
    with pytest.raises(WaitTimeout, match="did not end within 1 s; last seen: 0.5 of 1.0 GiB") as raised:
        call(Engine((RUNS, '{"progress": 536870912, "of": 1073741824}')), timeout=1)
    assert "gb10_transfer_timeout" in raised.value.remedy


@pytest.mark.parametrize("log", ["", "[]", '{"progress": "x", "of": 1}', '{"progress": 1', '{"progress": 1}', '{"failed": {}'])
def test_lines_that_say_nothing_count_for_nothing(log: str) -> None:
    assert downloading.progress(log) is None and downloading.answer(log) is None
