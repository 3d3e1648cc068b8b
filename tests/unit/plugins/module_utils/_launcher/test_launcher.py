# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The launcher with real child processes, run as a program as in the container."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._launcher import launcher as _launcher
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import NOTE_LIMIT
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

WAIT = 15


def wait_for(condition):
    """Return the first true answer of ``condition``."""
    for _elapsed in clock(WAIT, 0.02):
        answer = condition()
        if answer:
            return answer
    pytest.fail("waited in vain")


class Lab:
    """One engine directory, and the launcher's programs on it."""

    def __init__(self, root):
        self.root = root
        self.run_dir = root / "run"
        self.run_dir.mkdir()
        self.spec_path = root / "engine.json"
        self.launchers = []

    def spec(self, argv, run_id="20260101T000000Z-0001", **more):
        spec = {
            "argv": argv,
            "run_id": run_id,
            "digest": "1:abc",
            "run_dir": str(self.run_dir),
            "log_path": str(self.root / "log" / f"{run_id}.log"),
            "config_root": str(self.run_dir / "config"),
            "keep_logs": 5,
            "log_max_bytes": 1000000,
            "api_address": "127.0.0.1",
            "api_port": 8000,
            "secret_env": {},
            "no_carry_env": [],
            **more,
        }
        self.spec_path.write_text(json.dumps(spec))
        return spec

    def run(self, argv, **more):
        """Start an engine and return its note once it is there."""
        spec = self.spec(argv, **more)
        self.begin("run")
        return wait_for(lambda: (self.note("run") or {}).get("run_id") == spec["run_id"] and self.note("run"))

    def begin(self, *words):
        """Start one of the launcher's programs and return it while it runs."""
        argv = [sys.executable, _launcher.__file__, *words, "--spec", str(self.spec_path)]
        self.launchers.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return self.launchers[-1]

    def left(self):
        """Every living process that a launcher of this directory started."""
        return _launcher.ours({"run_dir": str(self.run_dir)}, None)

    def note(self, name):
        return _launcher.read_json(str(self.run_dir / f"{name}.json"))

    def call(self, *words):
        argv = [sys.executable, _launcher.__file__, *words, "--spec", str(self.spec_path)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    def log(self):
        return (self.root / "log" / f"{self.note('run')['run_id']}.log").read_text()

    def end(self):
        for launcher in self.launchers:
            launcher.kill()
            launcher.communicate()
        for process in self.left():
            _launcher.send(process, signal.SIGKILL)


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    yield made
    made.end()


SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
DEAF = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
LOADING = [sys.executable, "-c", DEAF + "print('up', flush=True)\ntime.sleep(600)"]
STUBBORN = [sys.executable, "-c", DEAF + "signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"]
WAITING = (
    "import signal, subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "print('up', flush=True)\n"
    "child.wait()\n"
)
FAMILY = [
    sys.executable,
    "-c",
    "import subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print('up', flush=True)\n"
    "time.sleep(600)",
]


def test_run_notes_the_engine_and_its_end(lab):
    note = lab.run([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"])
    assert lab.launchers[0].wait(WAIT) == 0
    assert {"run_id", "pid", "start_ticks", "argv", "digest", "started_at", "api_address", "api_port", "log_path", "boot_id"} <= set(note)
    ended = lab.note("exit")
    assert (ended["run_id"], ended["code"], ended["signal"], ended["error"]) == (note["run_id"], 7, None, "")
    assert sorted(lab.log().split()) == ["err", "out"]
    _rc, status, _err = lab.call("status")
    assert (status["live"], status["exit_code"], status["remaining"]) == (False, 7, [])


def test_status_of_a_live_engine(lab):
    note = lab.run(SLEEPER)
    _rc, status, _err = lab.call("status")
    assert status["live"]
    assert status["remaining"] == [note["pid"]]
    assert status["exit_code"] is None
    assert _launcher.process(note["pid"]).session == note["pid"]


def test_status_without_any_run(lab):
    lab.spec(SLEEPER)
    rc, status, _err = lab.call("status")
    assert (rc, status["live"], status["remaining"]) == (0, False, [])


def test_a_signal_is_noted_as_one(lab):
    note = lab.run(SLEEPER)
    os.kill(note["pid"], signal.SIGKILL)
    lab.launchers[0].wait(WAIT)
    assert (lab.note("exit")["code"], lab.note("exit")["signal"]) == (None, 9)


def test_stop_is_gentle_when_the_engine_obeys(lab):
    note = lab.run(SLEEPER)
    rc, answer, _err = lab.call("stop", "--grace", "20")
    assert rc == 0
    assert (answer["was_live"], answer["signals"], answer["killed"], answer["remaining"]) == (True, ["SIGTERM"], [], [])
    assert answer["run_id"] == note["run_id"]
    assert answer["seconds"] < 10
    lab.launchers[0].wait(WAIT)
    assert lab.note("exit")["signal"] == signal.SIGTERM


def test_stop_kills_what_ignores_it_after_the_grace(lab):
    note = lab.run(STUBBORN)
    wait_for(lambda: "up" in lab.log())
    rc, answer, _err = lab.call("stop", "--grace", "1")
    assert rc == 0
    assert (answer["signals"], answer["killed"], answer["remaining"]) == (["SIGTERM", "SIGKILL"], [note["pid"]], [])
    assert answer["seconds"] >= 1


def test_stop_is_heard_by_an_engine_that_still_loads(lab):
    lab.run(LOADING)
    wait_for(lambda: "up" in lab.log())
    _rc, answer, _err = lab.call("stop", "--grace", "20")
    assert (answer["was_live"], answer["signals"], answer["killed"], answer["remaining"]) == (True, ["SIGTERM", "SIGINT"], [], [])


def test_stop_asks_the_children_of_a_deaf_engine(lab):
    note = lab.run([sys.executable, "-c", WAITING])
    wait_for(lambda: "up" in lab.log())
    _rc, answer, _err = lab.call("stop", "--grace", "20")
    assert (answer["signals"], answer["killed"], answer["run_id"]) == (["SIGTERM", "SIGINT", "SIGTERM"], [], note["run_id"])
    assert 3 <= answer["seconds"] < 20


def test_stop_ends_children_that_outlive_the_engine(lab):
    note = lab.run(FAMILY)
    wait_for(lambda: "up" in lab.log())
    os.kill(note["pid"], signal.SIGKILL)
    lab.launchers[0].wait(WAIT)
    _rc, status, _err = lab.call("status")
    assert not status["live"]
    assert len(status["remaining"]) == 1
    _rc, answer, _err = lab.call("stop", "--grace", "20")
    assert (answer["was_live"], answer["signals"], answer["killed"], answer["remaining"]) == (False, ["SIGTERM"], [], [])


def test_stop_without_an_engine_does_nothing(lab):
    lab.spec(SLEEPER)
    rc, answer, _err = lab.call("stop")
    assert (rc, answer["was_live"], answer["signals"], answer["run_id"]) == (0, False, [], "")


@pytest.fixture
def stranger():
    """A process that the launcher did not start, the leader of its own session."""
    with subprocess.Popen(SLEEPER, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        yield _launcher.process(process.pid)
        process.kill()


@pytest.mark.parametrize(("key", "value"), [("start_ticks", 1), ("container_start", 1), ("boot_id", "11111111-2222-3333-4444-555555555555")])
def test_a_reused_pid_is_not_the_engine(lab, stranger, key, value):
    note = {"pid": stranger.pid, "start_ticks": stranger.start_ticks, "container_start": _launcher.container_start(), "boot_id": _launcher.boot_id()}
    note.update(lab.spec(SLEEPER))
    assert _launcher.engine(note).pid == _launcher.ours(note, note)[0].pid == stranger.pid
    _launcher.write_json(str(lab.run_dir / "run.json"), {**note, key: value})
    _rc, status, _err = lab.call("status")
    assert (status["live"], status["remaining"]) == (False, [])
    _rc, answer, _err = lab.call("stop", "--grace", "1")
    assert (answer["was_live"], answer["signals"], answer["killed"]) == (False, [], [])
    assert _launcher.process(stranger.pid).state not in "ZX"


def test_the_engine_survives_its_launcher(lab):
    note = lab.run([sys.executable, "-u", "-c", "import sys, time\nfor n in range(6000): print(n); time.sleep(0.05)"])
    lab.launchers[0].kill()
    lab.launchers[0].wait()
    size = len(lab.log())
    wait_for(lambda: len(lab.log()) > size)
    _rc, status, _err = lab.call("status")
    assert status["live"]
    _rc, answer, _err = lab.call("stop", "--grace", "5")
    # Only the machine's first process reaps the engine; a zombie counts as ended all the same.
    assert answer["signals"] == ["SIGTERM"]
    assert _launcher.engine(note) is None
    assert lab.note("exit") is None
    _rc, status, _err = lab.call("status")
    assert (status["live"], status["launcher"], status["exit_code"], status["exit_signal"]) == (False, None, None, None)


def test_a_second_engine_is_refused(lab):
    note = lab.run(SLEEPER)
    lab.spec(SLEEPER, run_id="20260101T000000Z-0002")
    rc, _answer, err = lab.call("run")
    assert rc == _launcher.EXIT_LIVE
    assert f"runs already, pid {lab.launchers[0].pid}" in err
    assert lab.note("run")["run_id"].endswith("0001")
    # Without its launcher it still is an engine.
    lab.launchers[0].kill()
    lab.launchers[0].wait()
    rc, _answer, err = lab.call("run")
    assert (rc, err) == (_launcher.EXIT_LIVE, f"an engine runs already, pid {note['pid']}\n")


def test_secrets_are_the_engines_alone(lab):
    secret = lab.root / "key"
    secret.write_text("planted-secret\n")
    program = "import os; print(len(os.environ['VLLM_API_KEY']), os.environ['VLLM_CONFIG_ROOT'], os.environ['SPT_NOENV'])"
    lab.run([sys.executable, "-c", program], secret_env={"VLLM_API_KEY": str(secret)}, no_carry_env=["VLLM_HOST_IP", "NCCL_IB_HCA"])
    lab.launchers[0].wait(WAIT)
    config = lab.run_dir / "config"
    assert lab.log().split() == ["14", str(config), "1"]
    assert json.loads((config / "ray_non_carry_over_env_vars.json").read_text()) == [_launcher.MARK, "NCCL_IB_HCA", "VLLM_API_KEY", "VLLM_HOST_IP"]
    for path in lab.root.rglob("*"):
        if path.is_file() and path != secret:
            assert b"planted-secret" not in path.read_bytes(), path


@pytest.mark.parametrize(("own", "path"), [(None, "/guard"), ("/own", "/own:/guard")])
def test_the_guard_of_the_api_is_added_to_the_engine_and_to_no_note(lab, monkeypatch, own, path):
    if own:
        monkeypatch.setenv("PYTHONPATH", own)
    else:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    # As shipped in an image.
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    argv = [sys.executable, "-c", "import os, sys; print(os.environ['PYTHONPATH'], os.environ.get('VLLM_USE_RUST_FRONTEND'), *sys.argv[1:])"]
    note = lab.run(argv, guard={"argv": ["--middleware", "gb10_api_guard.ApiGuard"], "python_path": "/guard"})
    lab.launchers[0].wait(WAIT)
    assert lab.log().split() == [path, "None", "--middleware", "gb10_api_guard.ApiGuard"]
    assert note["argv"] == argv


@pytest.mark.parametrize(
    ("content", "words"), [(None, "cannot read"), ("", "is empty"), ("\n", "is empty")]
)
def test_a_missing_secret_starts_nothing(lab, content, words):
    secret = lab.root / "key"
    if content is not None:
        secret.write_text(content)
    lab.spec(SLEEPER, secret_env={"VLLM_API_KEY": str(secret)})
    rc, _answer, _err = lab.call("run")
    assert rc == _launcher.EXIT_CANNOT_START
    assert words in lab.note("exit")["error"]
    assert lab.note("run") is None


def test_a_missing_program_is_named(lab):
    lab.spec(["no-such-engine", "serve"])
    rc, _answer, _err = lab.call("run")
    assert rc == _launcher.EXIT_NO_PROGRAM
    assert lab.note("exit")["error"] == "the image has no program no-such-engine"


def test_a_growing_log_is_cut_while_it_is_written(tmp_path):
    path = str(tmp_path / "engine.log")
    handle = _launcher.open_log(path)
    os.write(handle, b"a" * 100)
    assert not _launcher.bound_log(path, 101)
    assert _launcher.bound_log(path, 100)
    os.write(handle, b"b")
    os.close(handle)
    assert (tmp_path / "engine.log").read_bytes() == b"b"
    assert (tmp_path / "engine.log.1").read_bytes() == b"a" * 100


def test_the_running_launcher_bounds_the_log(lab, monkeypatch):
    spec = lab.spec([sys.executable, "-u", "-c", "import time\nfor n in range(60): print('x' * 99); time.sleep(0.01)"], log_max_bytes=1000)
    monkeypatch.setattr(_launcher, "LOG_CHECK_SECONDS", 0.05)
    assert _launcher.run(spec) == 0
    log = lab.root / "log" / f"{spec['run_id']}.log"
    assert log.stat().st_size < 6000
    assert log.with_name(log.name + ".1").exists()


@pytest.mark.parametrize(("keep", "left"), [(1, ["r4"]), (2, ["r3", "r4"]), (9, ["r1", "r2", "r3", "r4"])])
def test_only_the_last_logs_are_kept(tmp_path, keep, left):
    for name in ("r1.log", "r1.log.1", "r2.log", "r3.log", "r4.log", "r4.log.1", "notes.txt"):
        (tmp_path / name).touch()
    _launcher.prune_logs(str(tmp_path), keep, "r4")
    assert sorted({name.name.split(".")[0] for name in tmp_path.glob("*.log*")}) == left
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "r4.log.1").exists()


def test_a_name_with_parentheses_is_read(tmp_path):
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "stat").write_text("42 (a) b (c)) S 1 42 40 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 1")
    assert _launcher.process(42, str(tmp_path)) == (42, "S", 40, 987654)
    assert _launcher.process(43, str(tmp_path)) is None


def test_a_note_is_replaced_whole(tmp_path):
    path = str(tmp_path / "run.json")
    _launcher.write_json(path, {"a": 1})
    _launcher.write_json(path, {"b": 2})
    assert _launcher.read_json(path) == {"b": 2}
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]


def test_launchers_at_the_same_moment_start_one_engine(lab):
    launchers = []
    for number in range(4):
        lab.spec_path = lab.root / f"{number}.json"
        lab.spec(SLEEPER, run_id=f"20260101T000000Z-000{number}")
        launchers.append(lab.begin("run"))
    wait_for(lambda: sum(launcher.poll() is not None for launcher in launchers) == 3)
    assert sorted(launcher.returncode for launcher in launchers if launcher.returncode is not None) == [_launcher.EXIT_LIVE] * 3
    assert [process.pid for process in lab.left()] == [wait_for(lambda: lab.note("run"))["pid"]]


def test_a_start_that_was_overtaken_starts_nothing(lab):
    lab.spec(SLEEPER, run_id="20260101T000000Z-0002")
    rc, _answer, err = lab.call("run", "--run-id", "20260101T000000Z-0001")
    assert (rc, err) == (_launcher.EXIT_LIVE, "run 20260101T000000Z-0002 was ordered since\n")
    assert lab.note("run") is None


# -- stop during start, start during stop ----------------------------------------------------------------------------


def test_a_stop_before_the_launcher_starts_is_kept(lab):
    run_id = lab.spec(SLEEPER)["run_id"]
    _rc, status, _err = lab.call("status")
    assert (status["starting"], status["launcher"]) == (run_id, None)
    rc, answer, _err = lab.call("stop", "--by", "a tester")
    assert (rc, answer["was_live"], answer["prevented"], answer["signals"]) == (0, False, run_id, [])
    rc, _answer, err = lab.call("run")
    assert (rc, err) == (_launcher.EXIT_STOPPED, "stopped by a tester before it began\n")
    assert lab.note("exit")["error"] == err.strip()
    assert lab.left() == []
    _rc, status, _err = lab.call("status")
    assert (status["starting"], status["live"]) == ("", False)


@pytest.fixture
def hanging(lab):
    """A launcher that has its lock, has checked for an order to stop, and now waits for a secret; and the secret's other end."""
    secret = lab.root / "key"
    os.mkfifo(secret)
    lab.spec(SLEEPER, secret_env={"VLLM_API_KEY": str(secret)})
    launcher = lab.begin("run")

    def reached():
        try:
            return open(os.open(secret, os.O_WRONLY | os.O_NONBLOCK), "w")
        except OSError:
            return None

    with wait_for(reached) as end:
        assert _launcher.lock_holder({"run_dir": str(lab.run_dir)}) == launcher.pid
        yield launcher, end


def test_a_stop_waits_for_an_engine_that_is_just_being_started(lab, hanging):
    launcher, secret = hanging
    stop = lab.begin("stop", "--grace", "20")
    wait_for(lambda: lab.note("stop"))
    secret.write("key")
    secret.close()
    answer = json.loads(stop.communicate(timeout=WAIT)[0])
    assert (answer["was_live"], answer["signals"], answer["killed"], answer["remaining"]) == (False, ["SIGTERM"], [], [])
    assert answer["prevented"] == lab.note("run")["run_id"]
    assert lab.left() == []
    # The engine's end is noted by the time the stop is over.
    assert lab.note("exit")["signal"] == signal.SIGTERM
    assert launcher.wait(WAIT) == 0


def test_a_launcher_that_comes_while_the_order_to_stop_is_written_is_seen(lab, monkeypatch):
    """The order is written first and the lock looked at then, `run` does it the other way round: one of them sees the other."""
    ending, holders = _launcher.Ending(lab.spec(SLEEPER)), []
    monkeypatch.setattr(_launcher, "write_json", lambda _path, _content: holders.append(os.getpid()))
    monkeypatch.setattr(_launcher, "lock_holder", lambda _spec: holders[0] if holders else None)
    ending.request("a tester")
    assert [process.pid for process in ending.left()] == [os.getpid()]


def test_a_launcher_that_hangs_before_its_engine_is_ended(lab, hanging):
    launcher, _secret = hanging
    rc, answer, _err = lab.call("stop", "--grace", "1")
    assert (rc, answer["signals"], answer["killed"], answer["remaining"]) == (0, ["SIGKILL"], [launcher.pid], [])
    assert launcher.wait(WAIT) == -signal.SIGKILL
    assert lab.left() == []


def test_a_start_during_a_stop_is_refused_and_the_next_one_works(lab):
    lab.run(STUBBORN)
    wait_for(lambda: "up" in lab.log())
    assert not lab.call("status")[1]["stopping"]
    stop = lab.begin("stop", "--grace", "5")
    wait_for(lambda: lab.note("stop"))
    assert lab.call("status")[1]["stopping"]
    lab.spec(SLEEPER, run_id="20260101T000000Z-0002")
    assert lab.call("run")[0] == _launcher.EXIT_LIVE
    assert json.loads(stop.communicate(timeout=WAIT)[0])["remaining"] == []
    note = lab.run(SLEEPER, run_id="20260101T000000Z-0003")
    assert [process.pid for process in lab.left()] == [note["pid"]]
    assert not lab.call("status")[1]["stopping"]


def test_two_stops_at_once_both_end(lab):
    note = lab.run(STUBBORN)
    wait_for(lambda: "up" in lab.log())
    stops = [lab.begin("stop", "--grace", grace) for grace in ("1", "2")]
    for stop in stops:
        assert json.loads(stop.communicate(timeout=WAIT)[0])["remaining"] == []
        assert stop.returncode == 0
    assert lab.note("exit")["run_id"] == note["run_id"]


def test_a_stop_needs_no_disk(lab):
    lab.run(SLEEPER)
    (lab.run_dir / "stop.json").mkdir()
    rc, answer, err = lab.call("stop")
    assert (rc, answer["signals"], answer["remaining"]) == (0, ["SIGTERM"], [])
    assert "cannot write" in err and "stop.json" in err
    assert list(lab.run_dir.glob("*.new")) == []


# -- notes that are lost or broken -----------------------------------------------------------------------------------


@pytest.mark.parametrize("half", ['{\n "api_address": "127.0', "[]", "{}", ""])
def test_an_engine_whose_note_is_broken_is_found_and_stopped(lab, half):
    note = lab.run(SLEEPER)
    (lab.run_dir / "run.json").write_text(half)
    _rc, status, _err = lab.call("status")
    assert (status["live"], status["remaining"]) == (True, [note["pid"]])
    assert "run.json cannot be read" in status["unreadable"]
    rc, answer, _err = lab.call("stop", "--grace", "20")
    assert (rc, answer["was_live"], answer["run_id"], answer["signals"]) == (0, True, note["run_id"], ["SIGTERM"])
    assert (lab.run_dir / "run.json.broken").read_text() == half
    assert lab.call("status")[1]["unreadable"] == ""


def test_a_broken_note_without_an_engine_is_set_aside(lab):
    (lab.run_dir / "run.json").write_text("{")
    lab.spec(SLEEPER)
    lab.begin("run")
    wait_for(lambda: (lab.run_dir / "run.json.broken").exists() and (lab.run_dir / "run.json").exists())
    assert lab.call("status")[1]["live"]


def test_an_engine_whose_note_is_lost_keeps_another_from_starting(lab):
    note = lab.run(SLEEPER)
    lab.launchers[0].kill()
    lab.launchers[0].wait()
    (lab.run_dir / "run.json").unlink()
    assert lab.call("run")[0] == _launcher.EXIT_LIVE
    assert lab.call("status")[1]["live"]
    assert lab.call("stop", "--grace", "20")[1]["remaining"] == []
    assert _launcher.process(note["pid"]) is None or _launcher.process(note["pid"]).state == "Z"


@pytest.mark.parametrize("half", ['{"argv": [', None])
def test_an_engine_whose_description_is_broken_or_gone_can_be_stopped(lab, half):
    (lab.root / "launch").mkdir()
    lab.spec_path = lab.root / "launch" / "engine.json"
    note = lab.run(SLEEPER)
    lab.spec_path.unlink()
    if half:
        lab.spec_path.write_text(half)
    rc, answer, err = lab.call("run")
    assert (rc, answer) == (_launcher.EXIT_CANNOT_START, None)
    assert "engine.json" in err
    assert lab.call("status")[1]["remaining"] == [note["pid"]]
    rc, answer, _err = lab.call("stop", "--grace", "20")
    assert (rc, answer["run_id"], answer["signals"], answer["remaining"]) == (0, note["run_id"], ["SIGTERM"], [])


def test_an_engine_without_a_record_is_stopped_with_its_children(lab):
    (lab.root / "launch").mkdir()
    lab.spec_path = lab.root / "launch" / "engine.json"
    note = lab.run(FAMILY)
    wait_for(lambda: len(lab.left()) == 2)
    for path in (lab.spec_path, lab.run_dir / "run.json"):
        path.write_text("{")
    rc, answer, _err = lab.call("stop", "--grace", "20")
    assert (rc, answer["was_live"], answer["run_id"], answer["killed"], answer["remaining"]) == (0, True, note["run_id"], [], [])
    assert lab.left() == []


def test_children_that_left_the_session_are_ended_too(lab):
    program = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print('up', flush=True)\n"
        "time.sleep(600)"
    )
    note = lab.run([sys.executable, "-c", program])
    wait_for(lambda: "up" in lab.log())
    wait_for(lambda: len(lab.call("status")[1]["remaining"]) == 2)
    assert len({process.session for process in lab.left()}) == 2
    os.kill(note["pid"], signal.SIGKILL)
    lab.launchers[0].wait(WAIT)
    rc, answer, _err = lab.call("stop", "--grace", "20")
    assert (rc, answer["was_live"], answer["signals"], answer["killed"], answer["remaining"]) == (0, False, ["SIGTERM"], [], [])
    assert lab.left() == []


# -- a full disk -----------------------------------------------------------------------------------------------------


def no_space(*_args, **_more):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_log_directory_starts_nothing(lab, monkeypatch, capsys):
    spec = lab.spec(SLEEPER)
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    monkeypatch.setattr(_launcher, "free_bytes", lambda directory: 4096)
    assert _launcher.run(spec) == _launcher.EXIT_CANNOT_START
    words = f"{lab.root / 'log'} does not accept the engine's log: No space left on device; needs 2000000 bytes, 4096 are free"
    assert capsys.readouterr().err.strip() == lab.note("exit")["error"] == words
    assert lab.left() == []
    assert list((lab.root / "log").iterdir()) == []


def test_a_file_system_that_cannot_reserve_is_asked_for_its_figures(tmp_path, monkeypatch):
    def unsupported(*_args):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    _launcher.check_room(str(tmp_path / "new"), 4096, "a file")
    with pytest.raises(_launcher.CannotStart, match="does not accept a file: No space left"):
        _launcher.check_room(str(tmp_path), 1 << 60, "a file")


def test_an_engine_that_cannot_be_noted_is_ended(lab, monkeypatch):
    spec = lab.spec(SLEEPER)
    whole = _launcher.write_json
    monkeypatch.setattr(_launcher, "write_json", lambda path, content: no_space() if path.endswith("run.json") else whole(path, content))
    assert _launcher.run(spec) == _launcher.EXIT_CANNOT_START
    assert "cannot record the engine" in lab.note("exit")["error"]
    assert lab.left() == []


def test_an_end_that_cannot_be_recorded_is_in_the_log(lab, monkeypatch):
    spec = lab.spec([sys.executable, "-c", "raise SystemExit(7)"])
    _launcher.write_json(_launcher.in_run_dir(spec, _launcher.EXIT_FILE), {"run_id": "another"})
    whole = _launcher.write_json
    monkeypatch.setattr(_launcher, "write_json", lambda path, content: no_space() if path.endswith("exit.json") else whole(path, content))
    assert _launcher.run(spec) == 0
    assert "launcher: cannot write" in lab.log()
    assert '"code": 7' in lab.log()
    assert lab.note("exit") is None


def test_a_note_that_cannot_be_written_leaves_the_old_one_and_no_other_file(tmp_path, monkeypatch):
    path = str(tmp_path / "run.json")
    _launcher.write_json(path, {"a": 1})
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        _launcher.write_json(path, {"b": "x" * 100000})
    assert _launcher.read_json(path) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]


def test_a_note_without_an_end_is_not_read_to_its_end(lab):
    """What runs in the container can write one; read whole, it would end the launcher, which then could stop nothing."""
    spec = lab.spec(["sleep", "60"])
    path = lab.run_dir / "run.json"
    path.touch()
    os.truncate(path, 1 << 40)
    noted, wrong = _launcher.read_run(spec)
    assert noted is None and wrong == f"{path} cannot be read: it has more than {_launcher.JSON_LIMIT} characters"
    assert _launcher.JSON_LIMIT == NOTE_LIMIT, "the host reads as much"


def test_a_log_is_cut_on_a_full_disk_too(tmp_path, monkeypatch):
    path = tmp_path / "engine.log"
    path.write_bytes(b"a" * 100)
    (tmp_path / "engine.log.1").write_bytes(b"older")
    monkeypatch.setattr(shutil, "copyfile", no_space)
    assert _launcher.bound_log(str(path), 100)
    assert path.read_text().startswith("launcher: the log was cut here: no room for a copy of 100 bytes")
    assert [entry.name for entry in tmp_path.iterdir()] == ["engine.log"]


def test_the_former_part_of_a_log_makes_room_for_the_next(tmp_path, monkeypatch):
    path, former = tmp_path / "engine.log", tmp_path / "engine.log.1"
    path.write_bytes(b"a" * 100)
    former.write_bytes(b"older")
    whole = shutil.copyfile
    monkeypatch.setattr(shutil, "copyfile", lambda source, target: no_space() if former.exists() else whole(source, target))
    assert _launcher.bound_log(str(path), 100)
    assert (path.read_bytes(), former.read_bytes()) == (b"", b"a" * 100)


def test_a_log_that_was_taken_away_does_not_end_the_launcher(lab, monkeypatch):
    spec = lab.spec([sys.executable, "-c", "import os, sys, time; os.remove(sys.argv[1]); time.sleep(0.5)", ""])
    spec["argv"][-1] = spec["log_path"]
    monkeypatch.setattr(_launcher, "LOG_CHECK_SECONDS", 0.05)
    assert _launcher.run(spec) == 0
    assert lab.note("exit")["code"] == 0


# -- a clock that jumps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-86400.0 * 365, 86400.0 * 365])
def test_a_clock_that_jumps_changes_no_duration(lab, monkeypatch, jump):
    spec = lab.spec([sys.executable, "-c", "pass"])
    times = iter([1795226000.0, 1795226000.0 + jump])
    monkeypatch.setattr(_launcher.time, "time", lambda: next(times))
    assert _launcher.run(spec) == 0
    assert lab.note("exit")["ended_at"] - lab.note("run")["started_at"] == jump
    assert 0 <= lab.note("exit")["seconds"] < WAIT


def test_a_clock_set_back_costs_no_new_log(tmp_path):
    for name in ("2099-1.log", "2099-2.log", "2099-3.log", "2026-1.log", "2026-2.log"):
        (tmp_path / name).touch()
    _launcher.prune_logs(str(tmp_path), 3, "2026-2", "2026-1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2026-1.log", "2026-2.log", "2099-3.log"]


def test_one_log_is_the_last_one(tmp_path):
    for name in ("r1.log", "r2.log", "r3.log"):
        (tmp_path / name).touch()
    _launcher.prune_logs(str(tmp_path), 1, "r2", "r1")
    assert [path.name for path in tmp_path.iterdir()] == ["r2.log"]


# -- ranks without an API --------------------------------------------------------------------------------------------

# What vLLM 0.32 does: the main process ends when its rank does, but kills a rank that it was asked to end.
RANK = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("freed", flush=True), sys.exit(0)))
print("up", flush=True)
time.sleep(600)
"""
HEADLESS = f"""
import signal, subprocess, sys
rank = subprocess.Popen([sys.executable, "-c", {RANK!r}])
signal.signal(signal.SIGTERM, lambda *_: (rank.kill(), print("killed", flush=True), sys.exit(0)))
rank.wait()
"""


@pytest.mark.parametrize(("words", "end"), [(["--headless"], "freed"), ([], "killed")])
def test_a_rank_without_an_api_is_asked_before_its_main_process(lab, words, end):
    lab.run([sys.executable, "-c", HEADLESS, *words])
    wait_for(lambda: "up" in lab.log())
    code, answer, _errors = lab.call("stop", "--grace", "60")
    assert (code, answer["signals"], answer["killed"]) == (0, ["SIGTERM"], [])
    assert lab.log().split() == ["up", end]


def test_a_main_process_that_has_no_rank_yet_is_asked_itself(lab):
    lab.run([*SLEEPER, "--headless"])
    _code, answer, _errors = lab.call("stop", "--grace", "60")
    assert answer["signals"] == ["SIGTERM"]
    assert answer["seconds"] < 10


# -- hold ------------------------------------------------------------------------------------------------------------


def test_hold_ends_with_the_container_and_says_when_it_is_there(lab):
    holder = lab.begin("hold")
    assert holder.stdout.readline() == f"{_launcher.HOLDS}\n"
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(WAIT) == 0


def test_hold_stops_the_engine_that_was_started_meanwhile(lab):
    holder = lab.begin("hold")
    assert holder.stdout.readline()
    run = lab.run(SLEEPER)
    holder.send_signal(signal.SIGTERM)
    answer = json.loads(holder.stdout.readline())
    assert (answer["run_id"], answer["was_live"], answer["killed"]) == (run["run_id"], True, [])
    assert holder.wait(WAIT) == 0
    assert lab.left() == []
    assert lab.note("stop")["by"] == "SIGTERM to the container"


# -- one reading for number and start --------------------------------------------------------------------------------


def sleeper():
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


@pytest.mark.parametrize("descriptors", [True, False])
def test_a_signal_reaches_the_process_that_was_looked_at(monkeypatch, descriptors):
    if not descriptors:
        monkeypatch.delattr(os, "pidfd_open")
    child = sleeper()
    _launcher.send(_launcher.process(child.pid), signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL


def test_a_number_that_passed_on_between_look_and_signal_gets_none(monkeypatch):
    """The process looked at has ended, and another has its number by the time of the signal."""
    old, other = sleeper(), sleeper()
    looked_at = _launcher.process(old.pid)
    real = _launcher.process

    def reused(pid, proc="/proc"):
        process = real(pid, proc)
        old.kill()
        old.wait()
        # From here on the number belongs to the other process.
        monkeypatch.setattr(os, "kill", lambda pid, number: signal.pidfd_send_signal(os.pidfd_open(other.pid), number))
        return process

    monkeypatch.setattr(_launcher, "process", reused)
    _launcher.send(looked_at, signal.SIGKILL)
    assert other.poll() is None
    other.communicate(b"\n")
    assert other.returncode == 0


def test_the_next_process_of_a_launchers_number_is_left_alone(tmp_path, monkeypatch):
    ending = object.__new__(_launcher.Ending)
    ending.spec, ending.launcher, ending.run_ids, ending.unreadable = {"run_dir": str(tmp_path)}, os.getpid(), set(), ""
    monkeypatch.setattr(_launcher, "ours", lambda *_args: [])
    monkeypatch.setattr(_launcher.Ending, "noted", lambda self: None)
    looks = []

    def process(pid, proc="/proc"):
        looks.append(pid)
        return _launcher.Process(pid, "S", 1, 99)

    monkeypatch.setattr(_launcher, "process", process)
    # It held the lock until it was looked at; then it ended.
    monkeypatch.setattr(_launcher, "lock_holder", lambda _spec: None if looks else os.getpid())
    assert ending.left() == []


# -- what was planted among its notes -----------------------------------------------------------------------------


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/hostname", path)], ids=["fifo", "directory", "link"])
@pytest.mark.parametrize("name", ["run.json", "exit.json", "stop.json", "run.lock"])
def test_what_is_planted_among_the_notes_hangs_and_breaks_nothing(lab, name, plant):
    """A stop must always work: it is the way out."""
    spec = lab.spec(SLEEPER)
    plant(os.path.join(spec["run_dir"], name))
    assert _launcher.status(spec)["live"] is False
    assert _launcher.stop(spec, 1)["remaining"] == []


def test_a_forged_note_does_not_end_what_lives(lab):
    noted = lab.run(SLEEPER)
    spec = json.loads(lab.spec_path.read_text())
    path = os.path.join(spec["run_dir"], "run.json")
    for forged in ({"pid": 1, "start_ticks": 1}, {"run_id": "another", "pid": os.getpid()}):
        _launcher.write_json(path, {**noted, **forged})
        assert _launcher.status(spec)["live"] and noted["pid"] in _launcher.status(spec)["remaining"]
    stopped = _launcher.stop(spec, 20)
    assert stopped["was_live"] and stopped["remaining"] == [] and _launcher.process(os.getpid())


def test_a_lock_that_cannot_be_taken_is_reported(lab):
    spec = lab.spec(SLEEPER)
    os.symlink("/etc/hostname", os.path.join(spec["run_dir"], "run.lock"))
    assert _launcher.run(spec) == _launcher.EXIT_CANNOT_START
    assert "cannot lock" in lab.note("exit")["error"]


def test_room_is_tried_in_a_file_of_its_own(tmp_path):
    (tmp_path / "victim").write_text("not yours")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / ".room").symlink_to(tmp_path / "victim")
    _launcher.check_room(str(tmp_path / "log"), 4096, "the log")
    assert (tmp_path / "victim").read_text() == "not yours" and os.listdir(tmp_path / "log") == [".room"]
