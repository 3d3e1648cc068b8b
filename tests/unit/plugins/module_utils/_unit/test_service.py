# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of a unit's main process: its record and its messages, without any secret, and that a full disk does not end it."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _redact
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._lease import keeper
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots, glance, journal, program, record, service, unit_files

COLLECTIONS = str(Path(__file__).resolve().parents[5] / "collections")
PLACE = Unit("gb10-x.service", ())
KEY = "theKeyOfThisCluster0123456789"


class Own(service.Service):
    """A unit controlled by a test; ``does`` has the functions that are called when it serves and when it stops."""

    leaves = "it runs on"
    writer = "the play"
    does: dict[str, t.Callable[[], t.Any]] = {}

    def serve(self) -> int:
        return self.does["serve"]()

    def stop(self) -> str:
        return self.does.get("stop", str)()


class Node:
    """A node with such a unit. ``told`` has the notifications to systemd, ``said`` the lines of the journal."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
        self.boot("now")
        self.folder = tmp_path / "unit"
        self.folder.mkdir()
        self.told: list[str] = []
        self.said: list[str] = []
        self.full = ""
        self.wrote: list[str] = []
        monkeypatch.setattr(service, "say", self.said.append)
        monkeypatch.setattr(service, "notify", lambda *lines: self.told.extend(lines))
        monkeypatch.setattr(record, "RUN_DIR", str(tmp_path / "run"))
        real = record.write

        def write(folder: str, boot: str, state: str, reason: str = "", *more: t.Any) -> None:
            self.wrote.append(state)
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([self.full] if self.full != "?" else []))
            real(folder, boot, state, reason, *more)

        monkeypatch.setattr(record, "write", write)
        self.unit = self.again()

    def boot(self, name: str) -> None:
        (self.path / "proc/sys/kernel/random/boot_id").write_text(name)

    def again(self, **does: t.Callable[[], t.Any]) -> Own:
        """The unit as systemd starts it again."""
        given = {"state_dir": str(self.path), "roots": {"proc_root": str(self.path / "proc")}}
        self.unit = Own(given, PLACE._replace(folder=str(self.folder)), lambda *_given: {})
        self.unit.does = does
        return self.unit

    @property
    def state(self) -> tuple[str, str]:
        noted = record.read(str(self.folder))
        return (noted["state"], noted["reason"]) if noted else ("", "")

    def release(self) -> None:
        (self.folder / unit_files.RELEASE).touch()


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(Node, "path", tmp_path, raising=False)
    return Node(tmp_path, monkeypatch)


def ends(code: int) -> t.Callable[[], int]:
    return lambda: code


def raises(error: BaseException) -> t.Callable[[], t.Any]:
    def call() -> t.Any:
        raise error

    return call


@pytest.mark.parametrize("code", [0, 3])
def test_a_unit_records_its_start_and_ends_with_the_code_of_what_it_served(node, code):
    node.release()
    unit = node.again(serve=ends(code))
    assert not unit.asked and unit.unnoted is None
    assert unit.main() == code and node.state == ("starting", "") and node.told == ["STATUS=starting"] and node.said == []
    # A release of another activation does not count.
    assert not (node.folder / unit_files.RELEASE).exists()


def test_a_stop_request_takes_effect_at_the_next_check(node):
    node.unit.check_asked()
    node.unit.ask_to_stop(15, None)
    with pytest.raises(service.StopAsked):
        node.unit.check_asked()


def test_a_stop_is_recorded(node):
    stopped = []
    unit = node.again(serve=raises(service.StopAsked()), stop=lambda: stopped.append(unit.asked) or "")
    unit.ask_to_stop(15, None)
    assert unit.main() == 0 and node.state == ("stopped", "stopped by systemd")
    # What the stop waits for is not cut off by the wish for it.
    assert stopped == [False] and node.said == ["stopped"] and node.told[1:] == ["STOPPING=1", "STATUS=stopped: stopped by systemd"]


def test_a_released_unit_stops_nothing(node):
    unit = node.again(serve=raises(service.StopAsked()), stop=raises(AssertionError()))
    unit.begin()
    node.release()
    assert unit.end() == 0 and node.state == ("stopped", "released: it runs on") and node.said == ["released: it runs on"]
    assert not (node.folder / unit_files.RELEASE).exists() and "STOPPING=1" in node.told


def test_a_stop_that_fails_is_the_units_failure(node):
    assert node.again(serve=raises(service.StopAsked()), stop=lambda: "a container stays").main() == 1
    assert node.state == ("failed", "a container stays") and node.said == ["failed: a container stays"]


@pytest.mark.parametrize(
    ("error", "state", "reason", "line"),
    [
        (ClusterError("no room", remedy="Make some."), "failed", "no room", "failed: no room Remedy: Make some."),
        (ClusterError("look first", reason=record.REFUSED), "refused", "look first", "refused: look first"),
        (UnknownState("who knows"), "failed", "who knows", "failed: who knows"),
        (OSError(5, "Input/output error", "/x"), "failed", "/x: Input/output error", "failed: /x: Input/output error Remedy: Run the play again."),
    ],
)
def test_a_failure_is_recorded_with_its_reason_and_logged_with_its_remedy(node, error, state, reason, line):
    assert node.again(serve=raises(error)).main() == 1
    assert node.state == (state, reason) and node.said[-1].startswith(line)
    assert len(node.said) == 1 and node.told[-1] == f"STATUS={state}: {reason}"


def test_an_error_without_a_file_names_the_folder(node):
    assert node.again(serve=raises(OSError("odd"))).main() == 1 and node.state[1] == f"{node.folder}: odd"


def test_a_start_after_an_unclean_shutdown_is_refused_and_after_our_power_cycle_logged(node, monkeypatch):
    record.write(str(node.folder), "before", record.RUNNING)
    assert node.again(serve=raises(AssertionError())).main() == 1
    assert node.state[0] == "refused" and "systemctl start gb10-x.service" in node.said[-1]
    node.boot("later")
    monkeypatch.setattr(record, "take_power_cycle", lambda state_dir: state_dir == str(node.path))
    record.write(str(node.folder), "now", record.RUNNING)
    assert node.again(serve=ends(0)).main() == 0 and "so the unit starts once" in node.said[-1]


@pytest.mark.parametrize(("value", "code"), [("once", 0), ("never", 1), (None, 1)])
def test_the_specification_says_whether_it_starts_after_an_unclean_shutdown(node, value, code):
    record.write(str(node.folder), "before", record.RUNNING)
    unit = node.again(serve=ends(0))
    unit.given.update({} if value is None else {"unclean_boot": value})
    assert unit.main() == code
    assert node.state == (("starting", unit.came_back) if code == 0 else ("refused", node.state[1]))
    assert ("the unit starts once" in unit.came_back, "gb10_unclean_boot is never" in node.state[1]) == (code == 0, code == 1)
    assert node.said[0].startswith(unit.came_back or "refused: the node did not shut down cleanly")


@pytest.mark.parametrize(("ran", "over"), [(3599.0, False), (3600.0, True)])
def test_an_hour_of_a_unit_ends_what_an_unclean_boot_means(node, monkeypatch, ran, over):
    assert boots.why_not(str(node.path), "now") == ""
    now = 5000.0
    monkeypatch.setattr(service, "boot_seconds", lambda: now)
    unit = node.again()
    unit.catch_up()
    now += ran
    unit.catch_up()
    assert [entry["over"] for entry in boots.read(str(node.path))] == [over] and node.said == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), UnknownState("it is broken")])
def test_an_hour_that_cannot_be_recorded_is_logged_once_and_ends_nothing(node, monkeypatch, error):
    now = 5000.0
    monkeypatch.setattr(service, "boot_seconds", lambda: now)
    monkeypatch.setattr(boots, "outlast", lambda _state_dir: raises(error)())
    unit = node.again()
    now += 4000.0
    unit.catch_up()
    unit.catch_up()
    assert node.said == [f"unclean boots still count: {error}"]


# -- a full disk -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["/var/lib/gb10/state.json", "?"])
def test_a_state_that_cannot_be_written_is_logged_once_and_written_later(node, where):
    unit = node.unit
    unit.note(record.RUNNING)
    node.full = where
    unit.note(record.STARTING, "the rank is gone")
    unit.note(record.RUNNING)
    unit.catch_up()
    assert node.said == [f"not recorded, {where if where != '?' else node.folder}: No space left on device: starting: the rank is gone"]
    assert node.told == ["STATUS=running", "STATUS=starting: the rank is gone", "STATUS=running", "STATUS=running"]
    node.full = ""
    unit.catch_up()
    assert node.state == ("running", "") and node.said[1:] == ["the state is recorded again"]
    count = len(node.wrote)
    unit.catch_up()
    assert len(node.wrote) == count and len(node.said) == 2


def test_nothing_starts_while_the_state_cannot_be_recorded(node):
    node.unit.begin()
    node.unit.require_noted()
    node.full = str(node.folder / "state.json")
    node.unit.begin()
    with pytest.raises(ClusterError, match="state.json: No space left on device") as caught:
        node.unit.require_noted()
    assert caught.value.remedy == f"Free some space and run again: df -h {node.folder}"


def test_a_full_disk_hides_no_failure_and_no_stop(node):
    node.full = "/x"
    assert node.again(serve=raises(ClusterError("no room"))).main() == 1
    assert node.said == ["not recorded, /x: No space left on device: starting", "failed: no room"] and node.told[-1] == "STATUS=failed: no room"
    stopped = []
    assert node.again(serve=raises(service.StopAsked()), stop=lambda: stopped.append(1) or "").main() == 0 and stopped


# -- secrets -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path, monkeypatch):
    """A node whose cluster has an API key."""
    place = tmp_path / "secrets/gb10"
    place.mkdir(parents=True)
    (place / "api_key").write_text(KEY)
    monkeypatch.setattr(_redact, "SECRETS_DIR", str(place.parent))
    return f"the engine ended: Bearer abcdefghijkl and hf_{'a' * 24} and {KEY}"


def test_no_secret_reaches_systemd_the_record_the_glance_or_the_journal(secret, tmp_path, monkeypatch, capsys):
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("now")
    (tmp_path / "unit").mkdir()
    (tmp_path / "gb10").mkdir()
    unit = Own({"state_dir": str(tmp_path), "roots": {"proc_root": str(tmp_path / "proc")}}, PLACE._replace(folder=str(tmp_path / "unit")), lambda *_given: {})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        assert unit.fail(secret, f"curl -H 'Authorization: Bearer {KEY}'", record.FAILED) == 1
        datagram = systemd.recv(65536).decode()
    glance.write(str(tmp_path), {**{name: kind() for name, kind in glance.KEYS.items()}, "cluster": "gb10", "reason": secret})
    noted = record.read(str(tmp_path / "unit"))["reason"]
    shown = glance.on_node(str(tmp_path))[0]["reason"]
    printed = capsys.readouterr().out
    for text in (datagram, noted, shown, printed):
        assert "the engine ended: Bearer <secret> and hf_<secret> and <secret" in text, text
        assert KEY not in text and "abcdefghijkl" not in text and "a" * 24 not in text
    assert "STATUS=failed" in datagram and (tmp_path / "unit" / record.FILE).stat().st_mode & 0o777 == 0o644


def test_an_uncaught_error_is_logged_without_secrets(tmp_path):
    """As the unit's program ends with one: Python itself would print it."""
    code = f"from {journal.__name__} import log_uncaught_errors\nlog_uncaught_errors()\nraise KeyError('Bearer abcdefghijklmnop')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": COLLECTIONS})
    assert ran.returncode == 1 and ran.stderr == "" and "KeyError: 'Bearer <secret>'" in ran.stdout and "abcdefgh" not in ran.stdout
    for main, words in ((program.main, [str(tmp_path / "none")]), (keeper.main, [str(tmp_path)])):
        before, sys.excepthook = sys.excepthook, sys.__excepthook__
        main(words)
        set_up, sys.excepthook = sys.excepthook, before
        assert set_up is not sys.__excepthook__


def test_a_key_added_later_is_redacted_too(tmp_path, monkeypatch):
    monkeypatch.setattr(_redact, "SECRETS_DIR", str(tmp_path))
    assert KEY in journal.clean(f"key {KEY}x")
    (tmp_path / "api_key").write_text(f"{KEY}x")
    assert KEY not in journal.clean(f"key {KEY}x")


@pytest.fixture
def commands(monkeypatch):
    """What a command line of a unit does: the lines that it prints, and which signals stop it."""
    messages, handlers = [], {}
    monkeypatch.setattr(service, "say", messages.append)
    monkeypatch.setattr(service, "log_uncaught_errors", lambda: None)
    monkeypatch.setattr(service.signal, "signal", handlers.__setitem__)
    return messages, handlers


@pytest.mark.parametrize("argv", [[], ["one", "two"]])
def test_a_command_line_without_its_specification_is_refused(commands, argv):
    assert service.run(argv, lambda *_given: pytest.fail("made")) == 2 and commands[0] == ["usage: SPECIFICATION"]


def test_a_specification_that_cannot_be_read_is_the_units_failure(commands):
    def make(path, _run):
        raise ClusterError(f"{path} cannot be read", remedy="Run the bring-up.")

    assert service.run(["/spec"], make) == 1 and commands[0] == ["/spec cannot be read. Remedy: Run the bring-up."]


def test_a_unit_is_asked_to_stop_by_signals_and_ends_with_its_code(commands):
    class Made:
        def ask_to_stop(self, *_given):
            pass

        def main(self):
            return 7

    made = Made()
    assert service.run(["/spec"], lambda _path, _run: made) == 7
    assert commands[1] == {service.signal.SIGTERM: made.ask_to_stop, service.signal.SIGINT: made.ask_to_stop}
