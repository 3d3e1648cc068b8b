# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A sweep is set up once and is silent while all is well. It reports once that a companion, a node or an engine is gone, and once that it is back.

Alerts go over the network to a listener on the worker. The companion is a stand-in (tests/lab/companion) that sends nothing.
"""

from __future__ import annotations

import json
import secrets
import time
import typing as t

import pytest

from .lab import HEAD, ROOT, WORKER, Lab, Play
from .making import cut_power
from .test_unit import BOOTS, await_settled, forget_boots, unit

#: The units of the companion and of the listener.
SPEECH, LISTENER = "gb10lab-sweep-speech.service", "gb10lab-listener.service"
PLACE, CAME = "/var/lib/gb10-lab/sweep", "/var/lib/gb10-lab/sweep/came.jsonl"
SPEECH_TEXT = f"""[Unit]
Description=Stand-in for speech recognition
[Service]
ExecStart=/usr/bin/python3 {PLACE}/standin.py --port 8766 --path /health
"""
#: Keeps each posted message as a line of JSON, and answers with the status from the file `status`.
LISTENER_TEXT = f"""
import http.server, os
class Take(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        with open("{CAME}", "ab") as stream:
            stream.write(content + b"\\n")
        self.send_response(int(open("{PLACE}/status").read()) if os.path.exists("{PLACE}/status") else 204)
        self.end_headers()
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("", 9477), Take).serve_forever()
"""
#: Different in each run, so that no journal contains it from an earlier run.
SECRET = f"planted-{secrets.token_hex(8)}"
#: Asks the companion, and prints what it answers.
ASK = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8766/health', timeout=5).read())"
DECLARED = {"name": "asr", "unit": SPEECH, "port": 8766, "health_path": "/health", "memory_gib": 0.25, "modes": ["off"]}


class Swept:
    """The nodes with a sweep, and the listener that gets its alerts."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        # Not the address of Docker's own bridge, which every node has separately.
        address = json.loads(lab.run(WORKER, "ip", "-json", "-4", "address", "show", "eth0"))[0]["addr_info"][0]["local"]
        self.variables: dict[str, t.Any] = {
            "gb10_sweep_alerts": [{"type": "webhook", "url": f"http://{address}:9477/hook/{SECRET}", "allow_http": True}],
            "gb10_companions": f"{{{{ {json.dumps({HEAD: [DECLARED], WORKER: []})}[inventory_hostname] }}}}",
        }

    def play(self, check: bool = False, verbosity: int = 0, **variables: t.Any) -> Play:
        return self.lab.play("protect", tags="sweep", check=check, verbosity=verbosity, **{**self.variables, **variables})

    def sweep(self, host: str) -> str:
        """Run the sweep of a node now, and return its lines in the journal."""
        began = self.lab.run(host, "date", "+%s.%N").strip()
        self.lab.run(host, "systemctl", "start", "gb10-sweep.service", check=False)
        return self.lab.run(host, "journalctl", "--unit=gb10-sweep.service", "--no-pager", "--output=cat", f"--since=@{began}")

    def serve(self, **single: t.Any) -> None:
        """Bring up a service that the sweep finds well, and forget the messages so far."""
        up = self.lab.play("serve", **single)
        assert up.rc == 0, up.failures
        assert self.play().rc == 0
        assert "all is well" in self.sweep(HEAD)
        self.forget()

    def came(self) -> list[dict[str, t.Any]]:
        """All messages that the listener has received so far."""
        return [json.loads(line) for line in self.lab.run(WORKER, "sh", "-c", f"cat {CAME} 2>/dev/null", check=False).splitlines()]

    def told(self, host: str) -> list[str]:
        """The kinds of the messages from a node so far, without tests."""
        return [message["kind"] for message in self.came() if message["node"] == host and message["kind"] != "test"]

    def forget(self) -> None:
        self.lab.run(WORKER, "rm", "-f", CAME, f"{PLACE}/status")


@pytest.fixture(scope="module")
def swept(lab: Lab) -> t.Iterator[Swept]:
    lab.clear()
    for host in (HEAD, WORKER):
        lab.run(host, "mkdir", "-p", PLACE)
    lab.write(HEAD, f"{PLACE}/standin.py", (ROOT / "tests" / "lab" / "companion" / "standin.py").read_text(encoding="utf-8"))
    lab.write(HEAD, f"/etc/systemd/system/{SPEECH}", SPEECH_TEXT)
    lab.run(HEAD, "systemctl", "daemon-reload")
    lab.write(WORKER, f"{PLACE}/listener.py", LISTENER_TEXT)
    lab.run(WORKER, "systemd-run", f"--unit={LISTENER}", "/usr/bin/python3", f"{PLACE}/listener.py")
    made = Swept(lab)
    gone = made.play(gb10_sweep="absent")
    assert gone.rc == 0, gone.failures
    yield made
    made.play(gb10_sweep="absent")
    lab.play("mode", gb10_mode="off", gb10_allow="forget")
    lab.run(WORKER, "systemctl", "stop", LISTENER, check=False)
    lab.run(HEAD, "systemctl", "stop", SPEECH, check=False)
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-rf", PLACE, f"/etc/systemd/system/{SPEECH}")
        lab.run(host, "systemctl", "daemon-reload")


@pytest.fixture
def off(swept: Swept) -> Swept:
    """Nodes in the mode off with its companion and a sweep that reports no problem."""
    changed = swept.lab.play("mode", gb10_mode="off", **swept.variables)
    assert changed.rc == 0, changed.failures
    up = swept.play()
    assert up.rc == 0, up.failures
    for host in (HEAD, WORKER):
        assert "all is well" in swept.sweep(host)
    swept.forget()
    return swept


def test_it_is_set_up_once_tested_and_taken_away(swept: Swept) -> None:
    lab = swept.lab
    checked = swept.play(check=True)
    assert checked.rc == 0 and set(checked.changed) == {HEAD, WORKER}, checked.failures
    assert "no such" in lab.run(HEAD, "sh", "-c", "test -e /etc/systemd/system/gb10-sweep.timer && echo there || echo no such")

    first = swept.play(verbosity=3)
    assert first.rc == 0 and set(first.changed) == {HEAD, WORKER}, first.failures
    assert first.stat("gb10_sweep_report")["nodes"][HEAD]["active"] is True
    for check in (False, True):
        again = swept.play(check=check)
        assert again.rc == 0 and again.changed == {}, again.said
    assert "gb10-sweep.timer" in lab.run(HEAD, "systemctl", "list-timers", "--no-pager")

    tested = swept.play(gb10_sweep="test")
    assert tested.rc == 0 and tested.changed == {}, tested.failures
    assert sorted(message["node"] for message in swept.came() if message["kind"] == "test") == [HEAD, WORKER]
    # A mail program writes to its spool, which the unit must allow.
    mail = {"type": "mail", "command": ["/usr/bin/tee", "-a", f"{PLACE}/mailbox"], "to": "root"}
    mailed = swept.play(gb10_sweep="test", gb10_sweep_alerts=[*swept.variables["gb10_sweep_alerts"], mail])
    assert mailed.rc == 0 and f"Subject: gb10 on {HEAD}: test of an alert" in lab.run(HEAD, "cat", f"{PLACE}/mailbox"), mailed.failures
    swept.forget()
    lab.write(WORKER, f"{PLACE}/status", "503")
    refused = swept.play(gb10_sweep="test")
    assert refused.rc != 0 and "the test was not delivered to 1 of 1 channel(s): webhook: status 503" in refused.said
    swept.forget()

    swept.sweep(HEAD)
    assert "sweep: active; last" in lab.play("status").said
    for host in (HEAD, WORKER):
        assert lab.run(host, "stat", "-c", "%a %U", "/etc/gb10/secrets/_sweep/webhook", "/etc/gb10/secrets/_sweep").split("\n")[:2] == ["600 root", "700 root"]
        # With brackets the pattern does not match the search's own command line.
        pattern = f"{SECRET[:-1]}[{SECRET[-1]}]"
        where = "/etc/systemd /var/lib/gb10/_sweep /var/log/gb10 /proc/[0-9]*/cmdline"
        assert lab.run(host, "sh", "-c", f"grep -rl '{pattern}' {where} 2>/dev/null; journalctl --no-pager | grep '{pattern}'", check=False) == ""
    assert SECRET not in first.stdout + tested.stdout + refused.stdout

    gone = swept.play(gb10_sweep="absent")
    assert gone.rc == 0 and set(gone.changed) == {HEAD, WORKER}, gone.failures
    for path in ("/etc/systemd/system/gb10-sweep.timer", "/var/lib/gb10/_sweep", "/etc/gb10/secrets/_sweep"):
        assert "no such" in lab.run(HEAD, "sh", "-c", f"test -e {path} && echo there || echo no such"), path
    assert swept.play(gb10_sweep="absent").changed == {}


def test_a_companion_that_is_killed_is_reported_once_and_so_is_its_return(off: Swept) -> None:
    lab = off.lab
    lab.run(HEAD, "systemctl", "kill", "--signal=SIGKILL", SPEECH)
    journal = off.sweep(HEAD)
    assert "companion asr: http://127.0.0.1:8766/health: Connection refused" in journal, journal
    (alert,) = off.came()
    assert alert["subject"] == f"gb10 on {HEAD}: 1 problem" and list(alert["problems"]) == ["companion asr"]
    off.sweep(HEAD)
    off.sweep(WORKER)
    assert off.told(HEAD) == ["alert"] and off.told(WORKER) == []
    assert "companion asr: http" in lab.play("status").said

    lab.run(HEAD, "systemctl", "start", SPEECH)
    await_answer(lab)
    assert "all is well" in off.sweep(HEAD) and "all is well" in off.sweep(HEAD)
    assert off.told(HEAD) == ["alert", "well"]


def await_answer(lab: Lab, seconds: float = 20) -> None:
    """Wait until the companion answers."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if "stand_in" in lab.run(HEAD, "python3", "-c", ASK, check=False):
            return
        time.sleep(0.2)
    raise AssertionError(f"{SPEECH} did not answer within {seconds} s")


def test_a_node_that_does_not_greet_is_reported_by_the_other_one(off: Swept) -> None:
    lab = off.lab
    names = [unit for unit in ("ssh.socket", "ssh.service") if lab.run(WORKER, "systemctl", "is-active", unit, check=False).strip() == "active"]
    try:
        lab.run(WORKER, "systemctl", "stop", *names)
        journal = off.sweep(HEAD)
        assert f"node {WORKER}: it does not answer" in journal and "Connection refused" in journal, journal
        assert off.told(HEAD) == ["alert"]
    finally:
        lab.run(WORKER, "systemctl", "start", *names)
    off.sweep(HEAD)
    assert off.told(HEAD) == ["alert", "well"]


def test_a_play_at_work_is_not_disturbed(off: Swept) -> None:
    lab = off.lab
    lock = {"schema": 1, "id": "9f", "acquired_at": "2026-11-24T05:50:00Z", "holder": {"user": "me", "hostname": "desk", "pid": 7}}
    try:
        lab.write(HEAD, "/var/lib/gb10/mode.lock.json", json.dumps(lock))
        lab.run(HEAD, "systemctl", "kill", "--signal=SIGKILL", SPEECH)
        assert "silent: the lock of the mode is held by me@desk" in off.sweep(HEAD)
        assert off.told(HEAD) == []
    finally:
        lab.run(HEAD, "rm", "-f", "/var/lib/gb10/mode.lock.json")
        lab.run(HEAD, "systemctl", "start", SPEECH)


def test_an_engine_that_is_killed_is_reported_once_and_one_that_is_taken_down_is_not_missed(swept: Swept) -> None:
    """Without a declared mode, a running service is expected until a person stops it."""
    lab, single = swept.lab, {"gb10_single": HEAD, "gb10_single_profile": "lab_tiny_one"}
    assert lab.play("mode", gb10_mode="off", gb10_allow="forget", **swept.variables).rc == 0
    try:
        swept.serve(**single)
        lab.run(HEAD, "docker", "kill", f"gb10-{HEAD}-head")
        journal = swept.sweep(HEAD)
        assert f"engine {HEAD}: it does not run" in journal, journal
        swept.sweep(HEAD)
        assert swept.told(HEAD) == ["alert"]
    finally:
        down = lab.play("teardown", **single, gb10_allow="interrupt")
    assert down.rc == 0 and "The sweep stays on" in down.said, down.failures
    assert "all is well" in swept.sweep(HEAD)
    assert swept.told(HEAD) == ["alert", "well"]


def test_a_node_that_came_back_after_a_power_cut_is_reported_once_and_it_is_over_by_itself(swept: Swept) -> None:
    """The hour of a unit is simulated in the record."""
    lab, single = swept.lab, {"gb10_single": HEAD, "gb10_single_profile": "lab_tiny_one"}
    assert lab.play("mode", gb10_mode="off", gb10_allow="forget", **swept.variables).rc == 0
    forget_boots(lab, HEAD)
    try:
        swept.serve(**single)
        cut_power(HEAD)
        assert await_settled(lab, HEAD, unit(HEAD)) == "active"
        journal = swept.sweep(HEAD)
        assert "boot: the node came back after an unclean boot" in journal and f"engine {HEAD}" not in journal, journal
        swept.sweep(HEAD)
        assert swept.told(HEAD) == ["alert"] and [list(message["problems"]) for message in swept.came() if message["node"] == HEAD] == [["boot"]]
        record = lab.json(HEAD, BOOTS)
        lab.write(HEAD, BOOTS, json.dumps({**record, "boots": [{**boot, "seen_s": boot["seen_s"] - 3600} for boot in record["boots"]]}))
        assert "all is well" in swept.sweep(HEAD)
        assert swept.told(HEAD) == ["alert", "well"]
    finally:
        down = lab.play("teardown", **single, gb10_allow="interrupt")
        forget_boots(lab, HEAD)
    assert down.rc == 0, down.failures
