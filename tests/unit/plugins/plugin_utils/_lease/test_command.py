# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command of a lease on the controller."""

from __future__ import annotations

import os
import sys
import time

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._lock.lock_holder import process_start
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease import command

SERVICE = command.Service("gb10", "http://192.0.2.1:8000/v1", "org/pair", "/run/gb10.key")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("./judge.sh --turns 500 'a b'", ["./judge.sh", "--turns", "500", "a b"]),
        ("echo $HOME; rm *", ["echo", "$HOME;", "rm", "*"]),
        (["./judge.sh", "--turns", 500], ["./judge.sh", "--turns", "500"]),
        ("", []),
    ],
)
def test_a_command_is_a_list_of_words_or_a_text_without_a_shell(given, words):
    assert command.words_of(given) == words


@pytest.mark.parametrize("given", [[], [""], {"a": 1}, 7, ["a", None], ["a", ["b"]], "sh -c 'x", ["a\0b"]])
def test_what_is_no_command_is_refused(given):
    with pytest.raises(ValueError):
        command.words_of(given)


def test_a_program_is_one_that_can_be_run_here(tmp_path, monkeypatch):
    (tmp_path / "judge.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert command.program_of("./judge.sh") == "" and command.program_of("/no/such") == ""
    (tmp_path / "judge.sh").chmod(0o755)
    assert command.program_of("./judge.sh") and command.program_of("sh")


def test_the_environment_names_the_engine_and_the_file_of_its_key_and_holds_no_key():
    env = command.environment({"PATH": "/bin", "GB10_API_KEY_FILE": "/other"}, "cluster", [SERVICE], "/run/services.json")
    assert env == {
        "PATH": "/bin", "GB10_MODE": "cluster", "GB10_CLUSTER": "gb10", "GB10_ENDPOINT": SERVICE.endpoint, "GB10_MODEL": "org/pair",
        "GB10_SERVICES_FILE": "/run/services.json", "OPENAI_BASE_URL": SERVICE.endpoint, "GB10_API_KEY_FILE": "/run/gb10.key",
    }  # fmt: skip
    assert "GB10_API_KEY_FILE" not in command.environment({"GB10_API_KEY_FILE": "/other"}, "cluster", [SERVICE._replace(key_file="")], "/s")


def start(tmp_path, *lines, env=None):
    return command.Command([sys.executable, "-c", "\n".join(lines)], {**os.environ, **(env or {})}, str(tmp_path / "logs" / "lease.log"))


def until_ended(running):
    until = time.monotonic() + 30
    while running.exit_code() is None and time.monotonic() < until:
        time.sleep(0.01)
    return running.exit_code()


def test_what_a_command_prints_is_shown_and_kept_for_its_user_alone(tmp_path):
    running = start(tmp_path, "import sys", "print('one')", "sys.stdout.flush()", "sys.stderr.write('two\\nthree')", "raise SystemExit(3)")
    assert until_ended(running) == 3
    assert sorted(running.new_lines() + running.new_lines(last=True)) == ["one", "three", "two"]
    assert os.stat(running.log).st_mode & 0o777 == 0o600 and sorted(open(running.log, encoding="utf-8").read().split()) == ["one", "three", "two"]


def test_a_line_is_shown_when_it_is_whole(tmp_path):
    running = start(tmp_path, "pass")
    until_ended(running)
    with open(running.log, "ab") as stream:
        stream.write(b"a\nb")
        stream.flush()
        assert running.new_lines() == ["a"]
        stream.write("ä\xff\r\nrest".encode("latin-1"))
    assert running.new_lines() == ["b\ufffd\ufffd"] and running.new_lines(last=True) == ["rest"]


def test_a_command_is_ended_with_its_children(tmp_path):
    running = start(tmp_path, "import subprocess, time", "print(subprocess.Popen(['sleep', '600']).pid, flush=True)", "time.sleep(600)")
    lines: list[str] = []
    until = time.monotonic() + 30
    while not lines and time.monotonic() < until:
        lines += running.new_lines()
    running.end()
    assert running.exit_code() == 143
    until = time.monotonic() + 30
    while (left := process_start(int(lines[0]))) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left
    running.end()


def test_an_existing_log_is_not_overwritten(tmp_path):
    start(tmp_path, "pass").end()
    with pytest.raises(ClusterError, match="lease.log cannot be created") as caught:
        start(tmp_path, "pass")
    assert caught.value.remedy


def test_a_program_that_cannot_be_run_is_said(tmp_path):
    with pytest.raises(ClusterError, match="cannot be run on the controller"):
        command.Command(["/no/such/program"], {}, str(tmp_path / "lease.log"))


def test_each_command_has_a_log_of_its_own_beside_the_report():
    assert command.log_path("/home/ada/.cache/gb10/gb10-report.json", "gb10", time.gmtime(0)) == "/home/ada/.cache/gb10/gb10-lease-19700101T000000Z.log"
