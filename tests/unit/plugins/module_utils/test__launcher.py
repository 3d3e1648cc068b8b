# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The launcher with real child processes, run as the program it is in the container."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _launcher
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
        self.launchers.append(subprocess.Popen([sys.executable, _launcher.__file__, "run", "--spec", str(self.spec_path)], stderr=subprocess.PIPE))
        return wait_for(lambda: (self.note("run") or {}).get("run_id") == spec["run_id"] and self.note("run"))

    def note(self, name):
        return _launcher.read_json(str(self.run_dir / f"{name}.json"))

    def call(self, *words):
        argv = [sys.executable, _launcher.__file__, *words, "--spec", str(self.spec_path)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    def log(self):
        return (self.root / "log" / f"{self.note('run')['run_id']}.log").read_text()

    def end(self):
        for one in _launcher.ours(self.note("run")):
            _launcher.send(one, signal.SIGKILL)
        for launcher in self.launchers:
            launcher.kill()
            launcher.wait()
            launcher.stderr.close()


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


def test_a_reused_pid_is_not_ours(lab):
    note = lab.run(SLEEPER)
    for key, value in (("start_ticks", note["start_ticks"] - 1), ("container_start", note["container_start"] + 1)):
        _launcher.write_json(str(lab.run_dir / "run.json"), {**note, key: value})
        _rc, answer, _err = lab.call("stop", "--grace", "1")
        assert (answer["was_live"], answer["killed"]) == (False, [])
        assert _launcher.process(note["pid"]).state != "Z"
    _launcher.write_json(str(lab.run_dir / "run.json"), note)


def test_the_engine_survives_its_launcher(lab):
    note = lab.run([sys.executable, "-u", "-c", "import sys, time\nfor n in range(6000): print(n); time.sleep(0.05)"])
    lab.launchers[0].kill()
    lab.launchers[0].wait()
    size = len(lab.log())
    wait_for(lambda: len(lab.log()) > size)
    _rc, status, _err = lab.call("status")
    assert status["live"]
    _rc, answer, _err = lab.call("stop", "--grace", "5")
    # Nobody is there to reap the engine but the machine's first process; a zombie counts as ended all the same.
    assert answer["signals"] == ["SIGTERM"]
    assert _launcher.engine(note) is None
    assert lab.note("exit") is None


def test_a_second_engine_is_refused(lab):
    lab.run(SLEEPER)
    lab.spec(SLEEPER, run_id="20260101T000000Z-0002")
    rc, _answer, err = lab.call("run")
    assert rc == _launcher.EXIT_LIVE
    assert "runs already" in err
    assert lab.note("run")["run_id"].endswith("0001")


def test_secrets_are_the_engines_alone(lab):
    secret = lab.root / "key"
    secret.write_text("planted-secret\n")
    program = "import os; print(len(os.environ['VLLM_API_KEY']), os.environ['VLLM_CONFIG_ROOT'], os.environ['SPT_NOENV'])"
    lab.run([sys.executable, "-c", program], secret_env={"VLLM_API_KEY": str(secret)}, no_carry_env=["VLLM_HOST_IP", "NCCL_IB_HCA"])
    lab.launchers[0].wait(WAIT)
    config = lab.run_dir / "config"
    assert lab.log().split() == ["14", str(config), "1"]
    assert json.loads((config / "ray_non_carry_over_env_vars.json").read_text()) == ["NCCL_IB_HCA", "VLLM_API_KEY", "VLLM_HOST_IP"]
    for path in lab.root.rglob("*"):
        if path.is_file() and path != secret:
            assert b"planted-secret" not in path.read_bytes(), path


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


def test_a_name_with_parentheses_is_no_puzzle(tmp_path):
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
