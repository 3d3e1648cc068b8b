# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module through Ansible, and the program that it installs, run as the unit runs it.

systemd is played by a script: it keeps what is enabled and started, and starts the service by its own ExecStart. All else is real, a listener on the
loopback among it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import through_ansible
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import channels, sweep_files, unit_text
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import units
from ansible_collections.gb10.cluster.plugins.plugin_utils._unit import archive
from listener import Listener, listening

MEMINFO = "MemTotal: 127600640 kB\nMemFree: 2048 kB\nMemAvailable: 44142592 kB\nBuffers: 0 kB\nCached: 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
OFF = {"mode": "off", "phase": "settled", "reason": "", "clusters": {}, "previous": {}, "changed_at": "2026-11-24T02:00:00Z", "events": []}
TOKEN = "123456789:AAE-planted_token_of_a_bot"

SYSTEMCTL = """#!{python}
import json, os, subprocess, sys
path, words = {state!r}, sys.argv[1:]
known = json.load(open(path)) if os.path.exists(path) else {{"enabled": [], "active": [], "failed": [], "calls": []}}
known["calls"].append(words)
verb, names = words[0], [word for word in words[1:] if not word.startswith("-")]
code = 0
if verb == "show":
    for name in names:
        state = "failed" if name in known["failed"] else "active" if name in known["active"] else "inactive"
        print(f"ActiveState={{state}}\\nUnitFileState={{'enabled' if name in known['enabled'] else 'disabled'}}\\n")
elif verb == "enable":
    known["enabled"] += names
elif verb == "restart":
    known["active"] = sorted({{*known["active"], *names}})
elif verb in ("disable", "stop"):
    known["active"] = [one for one in known["active"] if one not in names]
    known["enabled"] = [one for one in known["enabled"] if one not in names or verb == "stop"]
elif verb == "start":
    text = open({units!r} + "/" + names[0]).read()
    argv = next(line for line in text.splitlines() if line.startswith("ExecStart=")).split("=", 1)[1].split()
    ran = subprocess.run(argv, capture_output=True, text=True)
    open({journal!r}, "a").write(ran.stdout + ran.stderr)
    known["failed"] = names if ran.returncode else []
    code = 1 if ran.returncode else 0
json.dump(known, open(path, "w"))
sys.exit(code)
"""


class Node:
    """A node with a directory of its own for everything."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state, self.secrets, self.etc = root / "state", root / "secrets", root / "etc"
        self.units = self.etc / "systemd" / "system"
        self.journal, self.systemd = root / "journal", root / "systemd.json"
        for path in (self.state, self.secrets / "_sweep", self.units, root / "bin", root / "proc"):
            path.mkdir(parents=True)
        (root / "proc" / "meminfo").write_text(MEMINFO, encoding="ascii")
        tool = root / "bin" / "systemctl"
        fields = {"python": sys.executable, "state": str(self.systemd), "units": str(self.units), "journal": str(self.journal)}
        tool.write_text(SYSTEMCTL.format(**fields), encoding="utf-8")
        tool.chmod(0o755)
        modes.write(str(self.state), OFF)

    @property
    def folder(self) -> Path:
        return self.state / sweep_files.FOLDER

    def secret(self, name: str, text: str) -> None:
        path = Path(channels.secret_path(str(self.secrets), name))
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)

    def options(self, **more: t.Any) -> dict[str, t.Any]:
        proc = self.root / "proc"
        roots = {"proc_root": str(proc), "sysfs_root": str(self.root / "sys"), "etc_root": str(self.etc), "meminfo": str(proc / "meminfo")}
        where = {"state_dir": str(self.state), "log_dir": str(self.root / "log"), "secrets_dir": str(self.secrets), "docker_socket": "/nowhere"}
        return {"node": "spark-1", **where, "roots": roots, **more}

    def task(self, **options: t.Any) -> dict[str, t.Any]:
        """The options as the module has them: most are below the unit's name."""
        given = self.options(**options)
        common = {name: given.pop(name) for name in ("state", "cluster_name", "state_dir", "log_dir", "roots", "tool_timeout") if name in given}
        return {"name": "sweep", **common, "sweep": given}

    def module(self, check: bool = False, **options: t.Any) -> tuple[bool, dict[str, t.Any], str]:
        """Run the module; whether it went well, its result, and all that was printed."""
        arguments = ["localhost", "-m", "gb10.cluster.node_service", "-a", json.dumps(self.task(**options)), "-c", "local", "-vvv"]
        env = {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
        ran = through_ansible.run("adhoc", *arguments, *(["--check", "--diff"] if check else []), env=env)
        match = re.search(r"localhost \| (\w+)!? => (\{.*\n\})", ran.stdout, re.DOTALL)
        assert match, ran.out
        return match[1] in ("SUCCESS", "CHANGED"), json.loads(match[2]), ran.out

    def sweep(self, **env: str) -> tuple[int, str]:
        """Run the program once as the unit does; its exit code and what the journal gets."""
        text = (self.units / sweep_files.SERVICE).read_text(encoding="utf-8")
        argv = next(line for line in text.splitlines() if line.startswith("ExecStart="))[len("ExecStart="):].split()
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **env}, cwd="/")
        return ran.returncode, ran.stdout + ran.stderr

    def install(self, hook: str = "", **options: t.Any) -> None:
        """Have the sweep there without Ansible, with a webhook."""
        params = {
            **self.options(), "cluster_name": "gb10", "minutes": 15, "repeat_hours": 24, "quiet_minutes": 120, "memory_floor_gib": 2, "start_timeout": 3600,
            "token_timeout": 5, "silent_timeout": 600, "endpoints": [], "peers": {}, "sshd_ports": {}, "companions": [], "ca_file": "",
            "channels": [{"type": "webhook"}] if hook else [], **options,
        }  # fmt: skip
        if hook:
            self.secret("webhook", hook)
        self.folder.mkdir(exist_ok=True)
        (self.folder / sweep_files.PROGRAM).write_bytes(archive.content())
        (self.folder / sweep_files.CONFIG).write_text(unit_text.config(params), encoding="utf-8")
        (self.units / sweep_files.SERVICE).write_text(unit_text.service(str(self.folder), sys.executable, params), encoding="utf-8")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def kinds(server: Listener) -> list[str]:
    return [content["kind"] for method, _path, content in server.came if method == "POST"]


def companion(url: str) -> dict[str, t.Any]:
    return {"name": "asr", "port": int(url.rsplit(":", 1)[1]), "health_path": "/health", "modes": ["off"]}


# --- the program --------------------------------------------------------------------------------------------------------


def test_silent_then_one_alert_then_silent_then_well_again(node: Node):
    with listening() as hook, listening() as speech:
        endpoints = [{"name": "alias", "url": f"{speech.url}/v1/models", "status": 200}]
        node.install(f"{hook.url}/planted-hook", companions=[companion(speech.url)], endpoints=endpoints)
        code, journal = node.sweep()
        assert (code, journal) == (0, "all is well\n") and hook.came == []
        speech.status = 503
        journals = [node.sweep() for _again in range(3)]
        assert [outcome[0] for outcome in journals] == [0, 0, 0] and kinds(hook) == ["alert"], journals
        content = hook.came[0][2]
        assert content["subject"] == "gb10 on spark-1: 2 problems" and set(content["problems"]) == {"companion asr", "endpoint alias"}
        assert "status 503, expected 200" in content["problems"]["endpoint alias"]
        speech.status = 200
        assert node.sweep()[0] == 0 and node.sweep()[0] == 0
        assert kinds(hook) == ["alert", "well"]
    printed = "".join(text for _code, text in journals)
    assert "companion asr" in printed and "planted" not in printed
    state = (node.folder / sweep_files.STATE).read_text(encoding="utf-8")
    assert "planted" not in state and stat.S_IMODE((node.folder / sweep_files.STATE).stat().st_mode) == 0o644
    assert "planted" not in (node.folder / sweep_files.CONFIG).read_text(encoding="utf-8")


def test_a_channel_that_is_down_is_named_and_notified_when_it_is_back(node: Node):
    with listening() as hook:
        node.install(f"{hook.url}/planted-hook", memory_floor_gib=1000)
        hook.status = 500
        code, journal = node.sweep()
        assert code == 1 and "webhook: not delivered, status 500" in journal and "planted" not in journal
        assert sweep_files.sweep(sweep_files.unit_of(str(node.state), str(node.etc)))["undelivered"]["webhook"].startswith("status 500")
        hook.status = 200
        assert node.sweep()[0] == 0 and kinds(hook) == ["alert", "alert"]
        assert node.sweep()[0] == 0 and len(hook.came) == 2
    shown = sweep_files.sweep(sweep_files.unit_of(str(node.state), str(node.etc)))
    assert shown["undelivered"] == {} and shown["last_alert"].endswith("gb10 on spark-1: 1 problem") and shown["problems"][0]["id"] == "memory"


def test_a_state_that_cannot_be_read_is_said_and_begun_again(node: Node):
    with listening() as hook:
        node.install(hook.url, memory_floor_gib=1000)
        node.sweep()
        (node.folder / sweep_files.STATE).write_text("{", encoding="utf-8")
        assert sweep_files.sweep(sweep_files.unit_of(str(node.state), str(node.etc)))["error"]
        code, journal = node.sweep()
        assert code == 0 and "earlier alerts are unknown" in journal and kinds(hook) == ["alert", "alert"]
        assert node.sweep()[0] == 0 and len(hook.came) == 2


def test_a_disk_that_refuses_does_not_repeat_the_alert_every_quarter_of_an_hour(node: Node):
    spare = node.root / "run"
    spare.mkdir()
    with listening() as hook:
        node.install(hook.url, memory_floor_gib=1000)
        (node.folder / sweep_files.STATE).mkdir()
        journals = [node.sweep(RUNTIME_DIRECTORY=str(spare)) for _again in range(4)]
        assert kinds(hook) == ["alert", "alert"], journals
        assert list(hook.came[1][2]["problems"]) == ["memory", "sweep"], "that it cannot write is told, too"
        (node.folder / sweep_files.STATE).rmdir()
        node.sweep(RUNTIME_DIRECTORY=str(spare))
        assert not (spare / sweep_files.STATE).exists() and len(hook.came) == 2


def test_a_lock_keeps_it_silent(node: Node):
    with listening() as hook:
        node.install(hook.url, memory_floor_gib=1000)
        path = Path(cluster_locks.path_of(str(node.state), "gb10"))
        path.parent.mkdir()
        path.write_text(json.dumps({"id": "9f", "acquired_at": "2026-11-24T05:50:00Z", "holder": {"user": "me", "hostname": "desk"}}), encoding="utf-8")
        code, journal = node.sweep()
        assert code == 0 and "silent: the lock of cluster gb10 is held by me@desk" in journal and hook.came == []
        path.write_text("{", encoding="utf-8")
        node.sweep()
        assert set(hook.came[0][2]["problems"]) == {"memory", "lock of cluster gb10"}


def test_a_node_that_is_gone_and_docker_that_does_not_answer_are_reported(node: Node):
    modes.write(str(node.state), {**OFF, "mode": "singles", "clusters": {"spark-1": {"profile": "x", "source": "x", "nodes": ["spark-1"]}}})
    with listening() as hook, listening() as other:
        port = int(other.url.rsplit(":", 1)[1])
        peers = {name: ["127.0.0.1"] for name in ("spark-2", "spark-3", "spark-4")}
        node.install(hook.url, peers=peers, sshd_ports={"spark-2": 1, "spark-3": port, "spark-4": 0})
        node.sweep()
    problems = hook.came[0][2]["problems"]
    assert "127.0.0.1 port 1: Connection refused" in problems["node spark-2"]
    assert "sweep" in problems and "the engines of this node are unknown" in problems["sweep"]
    assert "node spark-3" not in problems, "it takes connections: it may only be busy"


def test_a_mode_that_is_broken_is_reported(node: Node):
    (node.state / "mode.json").write_text("{", encoding="utf-8")
    with listening() as hook:
        node.install(hook.url)
        node.sweep()
    assert list(hook.came[0][2]["problems"]) == ["mode"]


def test_settings_that_cannot_be_read_end_it_with_a_code(node: Node):
    node.install()
    (node.folder / sweep_files.CONFIG).write_text("{", encoding="utf-8")
    code, journal = node.sweep()
    assert code == 1 and journal.startswith("failed: ")


# --- the module ---------------------------------------------------------------------------------------------------------


def test_it_is_set_up_once_changed_tested_and_taken_away(node: Node):
    with listening() as hook:
        node.secret("webhook", f"{hook.url}/planted-hook")
        node.secret("old", "planted-old")
        given = {"channels": [{"type": "webhook"}], "companions": [companion(hook.url)]}
        well, result, out = node.module(check=True, **given)
        assert well and result["changed"] and not (node.units / sweep_files.TIMER).exists() and not node.folder.exists() and "planted" not in out
        assert "OnUnitActiveSec=15min" in result["diff"]["after"][str(node.units / sweep_files.TIMER)]

        well, result, out = node.module(**given)
        assert well and result["changed"] and result["sweep"]["active"] and result["sweep"]["enabled"], out
        assert not Path(channels.secret_path(str(node.secrets), "old")).exists()
        assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in node.folder.iterdir()} == {sweep_files.PROGRAM: 0o600, sweep_files.CONFIG: 0o600}
        for check in (False, True):
            well, result, out = node.module(check=check, **given)
            assert well and not result["changed"] and result["actions"] == [], out
        assert hook.came == []

        well, result, out = node.module(test=True, **given)
        assert well and not result["changed"] and result["answers"] == {"webhook": ""} and kinds(hook) == ["test"], out
        hook.status = 418
        well, result, out = node.module(test=True, **given)
        assert not well and "the test was not delivered to 1 of 1 channel(s): webhook: status 418" in result["msg"] and "planted" not in out
        well, result, _out = node.module(check=True, test=True, **given)
        assert well and "a test would be sent" in result["msg"] and len(hook.came) == 2

    well, result, _out = node.module(minutes=5, **given)
    assert well and f"restart {sweep_files.TIMER}" in result["actions"] and len(result["actions"]) == 2
    assert "planted" not in "".join(path.read_text("latin-1") for path in (*node.units.iterdir(), node.journal, node.folder / sweep_files.CONFIG))

    well, result, _out = node.module(check=True, state="absent")
    assert well and result["changed"] and node.folder.exists()
    well, result, _out = node.module(state="absent")
    assert well and result["changed"] and not node.folder.exists() and list(node.units.iterdir()) == [] and not (node.secrets / "_sweep").exists()
    well, result, _out = node.module(state="absent")
    assert well and not result["changed"] and result["msg"] == "there is no sweep"


def test_bad_options_are_refused_before_anything_is_written(node: Node):
    node.secret("clear", "http://10.0.0.9/planted")
    bad: list[tuple[dict[str, t.Any], str]] = [
        ({"minutes": 0}, "minutes is 0, expected 1 or more"),
        ({"minutes": 1441}, "minutes is 1441, expected at most 1440"),
        ({"channels": [{"type": "slack"}]}, "value of type must be one of"),
        ({"channels": [{"type": "telegram"}]}, "channels[0].chat_id: is missing"),
        ({"channels": [{"type": "webhook"}]}, "webhook does not exist; it must contain the url of a channel"),
        ({"channels": [{"type": "telegram", "chat_id": "1", "api_url": "http://10.0.0.9"}]}, "channels[0].api_url: is http to a private address"),
        ({"channels": [{"type": "webhook", "name": "clear"}]}, "clear: is http to a private address"),
        ({"test": True}, "test is true, but there are no channels"),
        ({"endpoints": [{"name": "a", "url": "ftp://x"}]}, "gb10_sweep_endpoints[0].url"),
        ({"sshd_ports": {"spark-2": 70000}}, "sshd_ports.spark-2: is 70000"),
    ]
    for options, message in bad:
        well, result, out = node.module(**options)
        assert not well and message in result["msg"] and "planted" not in out, out
    # A power cut can leave one.
    node.secret("webhook", "")
    well, result, out = node.module(channels=[{"type": "webhook"}])
    assert not well and "webhook is empty; it must contain the url of a channel" in result["msg"], out
    assert not node.folder.exists() and list(node.units.iterdir()) == []


def test_a_foreign_unit_and_an_edited_one_stay(node: Node):
    (node.units / sweep_files.TIMER).write_text("[Unit]\nDescription=mine\n", encoding="utf-8")
    for options in ({}, {"state": "absent"}):
        well, result, _out = node.module(**options)
        assert not well and "is not this collection's" in result["msg"]
    (node.units / sweep_files.TIMER).write_text(unit_text.timer(15).replace("15min", "1min"), encoding="utf-8")
    well, result, _out = node.module()
    assert not well and "was edited by hand" in result["msg"] and not node.folder.exists()


def test_with_a_mail_command_the_unit_leaves_that_program_its_rights():
    params = {"state_dir": "/var/lib/gb10", "channels": [{"type": "webhook"}]}
    strict = unit_text.service("/x", "/usr/bin/python3", params)
    mails = unit_text.service("/x", "/usr/bin/python3", {**params, "channels": [{"type": "mail"}]})
    assert "ProtectSystem=strict" in strict and "NoNewPrivileges=yes" in strict and "CapabilityBoundingSet=" in strict
    assert "ProtectSystem=full" in mails and "NoNewPrivileges" not in mails and "CapabilityBoundingSet" not in mails


# --- what status says ---------------------------------------------------------------------------------------------------

FOUND = {
    "installed": True, "enabled": True, "active": True, "failed": False, "last_sweep": "2026-11-24T06:00:00Z", "quiet": "", "problems": [], "last_alert": "",
    "undelivered": {}, "error": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "sweep: active; last 2026-11-24T06:00:00Z: all is well; no alert yet"),
        ({"active": False, "last_sweep": ""}, "sweep: not active; no sweep yet; no alert yet"),
        (
            {"problems": [{"id": "memory", "text": "1 GiB"}], "last_alert": "2026-11-24T06:00:00Z gb10 on spark-1: 1 problem", "failed": True},
            "sweep: active; last 2026-11-24T06:00:00Z: memory: 1 GiB; the last one failed, see journalctl -u gb10-sweep; "
            "last alert 2026-11-24T06:00:00Z gb10 on spark-1: 1 problem",
        ),
        ({"quiet": "mode off, switching"}, "sweep: active; last 2026-11-24T06:00:00Z: silent, mode off, switching; no alert yet"),
        (
            {"undelivered": {"ops": "status 500"}, "failed": True},
            "sweep: active; last 2026-11-24T06:00:00Z: all is well; the last message to ops was not delivered: status 500; no alert yet",
        ),
        ({"error": "state.json cannot be read", "active": None}, "sweep: state unknown; state.json cannot be read; no alert yet"),
        ({"installed": False}, ""),
    ],
)
def test_one_line_for_status(more: dict[str, t.Any], line: str):
    assert sweep_files.text({**FOUND, **more}) == line


def test_a_teardown_says_where_it_stays():
    assert units.remaining({"spark-1": {"sweep": FOUND}, "spark-2": {}})[0].startswith("The sweep stays on spark-1; ")
    assert units.remaining({"spark-2": {}}) == []
