# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pair is recovered as a whole or given up loudly: each fault has one outcome and one message, with Ray and without.

A drop-in shortens the times of the recovery by a factor, which each of its lines in the journal shows.
"""

from __future__ import annotations

import json
import time
import typing as t

import pytest

from .injecting import CORE, RANK
from .lab import HEAD, WORKER, Lab, Play
from .making import HEAD_CONTAINER, WORKER_CONTAINER, busy, cut_power
from .test_unit import active, await_settled, await_state, state, unit

CLUSTER = "gb10"
UNIT, RECOVER = unit(CLUSTER), "gb10-recover-gb10"
STATE = f"/var/lib/gb10/{CLUSTER}/recover/state.json"
KEPT = f"/var/log/gb10/{CLUSTER}/recover"
MEMORY = f"/var/lib/gb10/{CLUSTER}/memory.json"
#: A minute of the recovery's times is a second. A look takes some seconds whatever the factor is.
SCALE = 60
DROPS = {
    f"/etc/systemd/system/{RECOVER}.service.d": f"[Service]\nEnvironment=GB10_RECOVER_TIME_SCALE={SCALE}\n",
    f"/etc/systemd/system/{RECOVER}.timer.d": "[Timer]\nOnUnitInactiveSec=\nOnBootSec=1\nOnUnitInactiveSec=2\nAccuracySec=200ms\n",
}
#: The names of a rank in the process table of a node.
RANKS = {"ray": RANK, "native": "^VLLM::Worker"}
#: Asks a node for its state as another node does, with a key and a number of 64 digits, and prints whether the signature is right, and the answer.
ASK = """
import hashlib, hmac, sys, urllib.request
address, key, nonce = sys.argv[1:]
body = urllib.request.urlopen(f"http://{address}:20302/{nonce}", timeout=10).read().decode()
signed, _line, said = body.partition("\\n")
made = hmac.new(key.encode(), "\\n".join(("gb10.cluster recovery 1", nonce, said)).encode(), hashlib.sha256).hexdigest()
print(hmac.compare_digest(made, signed), said)
"""


class Recovered:
    """The pair with a recovery, under one executor."""

    def __init__(self, lab: Lab, executor: str) -> None:
        self.lab, self.executor = lab, executor
        own = {"gb10_profile": "lab_tiny_native_tp2"} if executor == "native" else {}
        self.variables: dict[str, t.Any] = {"gb10_unit": "enabled", "gb10_recover": "restart", "gb10_serve_timeout": 300, **own}

    def play(self, **more: t.Any) -> Play:
        played = self.lab.play("serve", **{**self.variables, **more})
        assert played.rc == 0, played.failures
        return played

    def shorten(self) -> None:
        """Shorten the times of the recovery on both nodes."""
        for host in (HEAD, WORKER):
            for folder, text in DROPS.items():
                self.lab.run(host, "mkdir", "-p", folder)
                self.lab.write(host, f"{folder}/lab.conf", text)
            self.lab.run(host, "systemctl", "daemon-reload")
            self.lab.run(host, "systemctl", "restart", f"{RECOVER}.timer")

    def fresh(self, **more: t.Any) -> None:
        """Bring the pair up with an unused budget, and wait until its grace is over and both nodes see it well."""
        for host in (HEAD, WORKER):
            self.lab.run(host, "rm", "-rf", STATE, KEPT)
        self.play(gb10_allow="restart,interrupt", **more)
        self.shorten()
        self.await_kind("well")
        # 30 min of grace.
        time.sleep(1800 / SCALE)

    def look(self, host: str) -> dict[str, t.Any]:
        """Return the state of a node's recovery, empty before its first look."""
        return json.loads(self.lab.run(host, "sh", "-c", f"cat {STATE} 2>/dev/null || echo '{{}}'"))

    def await_kind(self, kind: str, *hosts: str, seconds: float = 120) -> None:
        """Wait until the looks of these nodes, by default both, have a result."""
        for host in hosts or (HEAD, WORKER):
            await_state(self.lab, host, f"{RECOVER}.service", lambda host=host: self.look(host).get("kind") == kind, seconds)

    def await_outcome(self, outcome: str, count: int = 1, seconds: float = 400) -> None:
        """Wait until both nodes have recorded this outcome as that of their last of ``count`` recoveries."""

        def there(host: str) -> bool:
            history = self.look(host).get("history", [])
            return len(history) == count and history[-1]["outcome"].startswith(outcome)

        for host in (HEAD, WORKER):
            await_state(self.lab, host, f"{RECOVER}.service", lambda host=host: there(host), seconds)

    def await_text(self, text: str, host: str = HEAD, seconds: float = 200) -> str:
        """Wait until a node's recovery says a text, and return all that it says."""
        await_state(self.lab, host, f"{RECOVER}.service", lambda: text in self.look(host).get("text", "") + self.look(host).get("stopped", ""), seconds)
        return self.look(host)["text"] + self.look(host)["stopped"]

    def serves(self) -> bool:
        played = self.lab.play("status", **self.variables)
        assert played.rc == 0, played.failures
        return played.stat("gb10_health") == "serving"

    def run_ids(self) -> list[str]:
        """The ids of the engine's runs on the head so far."""
        return self.lab.run(HEAD, "sh", "-c", f"ls /var/log/gb10/{CLUSTER}/engine").split()

    def signal(self, host: str, name: str, process: str = "") -> None:
        pid = self.lab.run(host, "timeout", "30", "sh", "-c", 'until pgrep --oldest --full "$1"; do sleep 0.2; done', "sh", process or RANKS[self.executor])
        self.lab.run(host, "kill", f"-{name}", pid.strip())

    def journal(self, host: str) -> str:
        return self.lab.run(host, "journalctl", "--no-pager", "--output=cat", f"--unit={RECOVER}.service")

    def quiet(self) -> None:
        """Nothing was recovered: no history, no evidence, the same unit."""
        for host in (HEAD, WORKER):
            assert self.look(host)["history"] == [] and self.lab.run(host, "sh", "-c", f"ls {KEPT} 2>/dev/null || true").strip() == ""


@pytest.fixture(scope="module", params=["native", "ray"])
def pair(lab: Lab, request: pytest.FixtureRequest) -> t.Iterator[Recovered]:
    lab.clear()
    made = Recovered(lab, request.param)
    made.play()
    yield made
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-rf", *DROPS)
        lab.run(host, "systemctl", "daemon-reload")
    gone = lab.play("teardown", gb10_allow="interrupt", **made.variables)
    assert gone.rc == 0, gone.failures
    for host in (HEAD, WORKER):
        left = f"ls -d /etc/systemd/system/{RECOVER}* /var/lib/gb10/{CLUSTER}/recover 2>/dev/null || echo none"
        assert lab.run(host, "sh", "-c", left).strip() == "none"


@pytest.fixture
def recovered(pair: Recovered) -> Recovered:
    pair.fresh()
    return pair


def test_a_second_run_changes_nothing_and_each_node_has_what_it_needs(pair: Recovered) -> None:
    assert pair.play().changed == {}
    checked = pair.lab.play("serve", check=True, **pair.variables)
    assert (checked.rc, checked.changed) == (0, {}), checked.said
    keys = {pair.lab.run(host, "cat", f"/etc/gb10/secrets/{CLUSTER}/recover_key").strip() for host in (HEAD, WORKER)}
    assert len(keys) == 1 and len(keys.pop()) == 43
    for host in (HEAD, WORKER):
        assert active(pair.lab, host, f"{RECOVER}.timer") == active(pair.lab, host, f"{RECOVER}.socket") == "active"
    shown = pair.lab.play("status", verbosity=1, **pair.variables)
    lines = [line for about in shown.stat("gb10_status").values() for line in about if line.startswith("recovery: ")]
    assert len(lines) == 1 and "recovery: restart, " in lines[0] and "budget left: 2 in 6 h, 3 in 24 h" in lines[0], lines


@pytest.mark.parametrize("host", [HEAD, WORKER])
@pytest.mark.parametrize("name", ["KILL", "STOP"])
def test_a_rank_that_is_killed_or_stopped_is_named_and_recovered(recovered: Recovered, name: str, host: str) -> None:
    before, began = recovered.run_ids(), time.monotonic()
    recovered.signal(host, name)
    recovered.await_kind("fault")
    named = time.monotonic() - began
    recovered.await_outcome("runs again")
    whole = time.monotonic() - began
    print(f"{recovered.executor}, {name} of the rank of {host}: named after {named:.0f} s, recovered after {whole:.0f} s (times divided by {SCALE})")
    recovered.await_kind("well")
    assert recovered.serves() and len(recovered.run_ids()) == len(before) + 1
    for node in (HEAD, WORKER):
        (kept,) = recovered.lab.run(node, "ls", KEPT).split()
        text = recovered.lab.run(node, "cat", f"{KEPT}/{kept}")
        assert {"== stacks", "== evidence", "== counters"} <= set(text.splitlines()) and f"(times divided by {SCALE})" in recovered.journal(node)
        for secret in ("api_key", "recover_key"):
            value = recovered.lab.run(HEAD, "cat", f"/etc/gb10/secrets/{CLUSTER}/{secret}").strip()
            assert value and value not in text and value not in recovered.journal(node)
    assert recovered.play().changed == {}


def test_a_front_end_that_is_killed_is_recovered(recovered: Recovered) -> None:
    recovered.signal(HEAD, "KILL", CORE if recovered.executor == "native" else "vllm serve")
    recovered.await_outcome("runs again")
    recovered.await_kind("well")
    assert recovered.serves()


def test_a_container_of_the_worker_that_is_removed_comes_back(recovered: Recovered) -> None:
    """The worker's unit itself starts it once more; where that does not help, the recovery does."""
    recovered.lab.run(WORKER, "docker", "rm", "--force", WORKER_CONTAINER)
    await_state(recovered.lab, WORKER, UNIT, lambda: WORKER_CONTAINER in recovered.lab.containers(WORKER), 300)
    recovered.await_kind("well", seconds=500)
    assert recovered.serves()


def test_memory_that_does_not_come_back_leaves_all_down_and_says_what_to_type(recovered: Recovered) -> None:
    """The note of the memory before the start is increased by 64 GiB, so that this much seems to be missing."""
    note = recovered.lab.json(WORKER, MEMORY)
    recovered.lab.write(WORKER, MEMORY, json.dumps({**note, "available_mb": note["available_mb"] + 65536}))
    recovered.signal(WORKER, "STOP")
    recovered.await_outcome("stopped: ")
    for host in (HEAD, WORKER):
        stopped = recovered.look(host)["stopped"]
        assert stopped.startswith(f"{WORKER} lacks ") and stopped.endswith(f"GiB. Reboot {WORKER}, then run mode")
        assert active(recovered.lab, host, UNIT) == "inactive" and state(recovered.lab, host, CLUSTER)["reason"].startswith("recovery: ")
        assert recovered.lab.run(host, "docker", "ps", "--quiet").strip() == ""
    shown = recovered.lab.play("status", **recovered.variables)
    assert f"Reboot {WORKER}, then run mode" in shown.said
    # It stays down until a person starts it.
    time.sleep(30)
    assert active(recovered.lab, HEAD, UNIT) == "inactive"
    recovered.play()
    recovered.await_kind("well")
    assert recovered.look(HEAD)["stopped"] == ""


def test_the_budget_ends_and_says_so(recovered: Recovered) -> None:
    for count in (1, 2):
        recovered.signal(WORKER, "STOP")
        recovered.await_outcome("runs again", count)
        recovered.await_kind("well")
        # The grace after a start, and the pause between two recoveries.
        time.sleep(1800 / SCALE)
    recovered.signal(WORKER, "STOP")
    assert "the budget of 2 recoveries within 6 h is used up. Run the doctor, then mode" in recovered.await_text("budget")
    assert len(recovered.look(HEAD)["history"]) == 2
    recovered.signal(WORKER, "CONT")


def test_a_frozen_head_confirms_nothing(recovered: Recovered) -> None:
    recovered.lab.run(HEAD, "systemctl", "stop", f"{RECOVER}.timer", f"{RECOVER}.socket")
    recovered.lab.run(HEAD, "docker", "pause", HEAD_CONTAINER)
    try:
        text = recovered.await_text(f"{HEAD}: no answer from", WORKER)
        assert recovered.look(WORKER)["kind"] == "unknown", text
        time.sleep(30)
        recovered.quiet()
    finally:
        recovered.lab.run(HEAD, "docker", "unpause", HEAD_CONTAINER)
        recovered.lab.run(HEAD, "systemctl", "start", f"{RECOVER}.timer")
    recovered.await_kind("well")


def test_an_operator_comes_first(recovered: Recovered) -> None:
    """A play that works on the cluster keeps the recovery away, and a fault that the play ends is not recovered."""
    recovered.signal(WORKER, "STOP")
    recovered.await_kind("fault", HEAD)
    played = recovered.lab.play("teardown", gb10_allow="interrupt", **recovered.variables)
    if played.rc:
        # The recovery was first, and the play says who holds the lock.
        assert f"{RECOVER}.service" in played.failures, played.failures
        recovered.await_outcome("runs again")
        return
    assert recovered.lab.containers(HEAD) == recovered.lab.containers(WORKER) == {}
    assert recovered.lab.run(HEAD, "sh", "-c", f"ls /etc/systemd/system/{RECOVER}* 2>/dev/null || echo none").strip() == "none"


@pytest.mark.parametrize("act", ["observe", "restart"])
def test_a_pause_and_observe_only_say_it(recovered: Recovered, act: str) -> None:
    recovered.play(gb10_recover=act, gb10_recover_pause="2h upgrading the switch" if act == "restart" else "")
    recovered.signal(WORKER, "STOP")
    text = recovered.await_text("3 looks agree")
    why = "a person paused it for" if act == "restart" else "gb10_recover is observe"
    assert "restart would take all nodes down and up again, but" in text and why in text
    recovered.quiet()
    recovered.signal(WORKER, "CONT")
    recovered.await_kind("well")


def test_a_forged_and_a_replayed_answer_count_as_none(recovered: Recovered) -> None:
    lab = recovered.lab
    key = lab.run(WORKER, "cat", f"/etc/gb10/secrets/{CLUSTER}/recover_key").strip()
    address = lab.run(WORKER, "sh", "-c", f"grep -h ListenStream /etc/systemd/system/{RECOVER}.socket").strip().partition("=")[2].rpartition(":")[0]
    answers = [lab.run(HEAD, "python3", "-c", ASK, address, key, digit * 64) for digit in "ab"]
    assert all(answer.startswith("True ") and '"node": "' + WORKER in answer for answer in answers)
    assert lab.run(HEAD, "python3", "-c", ASK, address, "x" * 43, "c" * 64).startswith("False ")
    # A program that answers in place of the worker, with an answer that was recorded.
    lab.run(WORKER, "systemctl", "stop", f"{RECOVER}.timer", f"{RECOVER}.socket")
    recorded = answers[0].partition(" ")[2].strip()
    replay = f"""
import http.server
class Replays(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("0" * 64 + "\\n" + {recorded!r}).encode())
http.server.HTTPServer(({address!r}, 20302), Replays).serve_forever()
"""
    lab.run(WORKER, "systemd-run", "--quiet", "--collect", "--unit=gb10-test-replay", "python3", "-c", replay)
    try:
        recovered.signal(HEAD, "STOP")
        text = recovered.await_text("not signed with the key of this cluster for this question")
        assert WORKER in text and recovered.look(HEAD)["kind"] == "unknown"
        time.sleep(20)
        recovered.quiet()
    finally:
        recovered.signal(HEAD, "CONT")
        lab.run(WORKER, "systemctl", "stop", "gb10-test-replay", check=False)
        lab.run(WORKER, "systemctl", "start", f"{RECOVER}.timer")
    recovered.await_kind("well")


def test_a_wrong_key_on_one_node_confirms_nothing(recovered: Recovered) -> None:
    path = f"/etc/gb10/secrets/{CLUSTER}/recover_key"
    right = recovered.lab.run(WORKER, "cat", path)
    recovered.lab.write(WORKER, path, "x" * 43)
    try:
        recovered.signal(WORKER, "STOP")
        recovered.await_kind("unknown")
        time.sleep(20)
        recovered.quiet()
    finally:
        recovered.lab.write(WORKER, path, right)
        recovered.signal(WORKER, "CONT")
    recovered.await_kind("well")


def test_a_jump_of_the_clock_changes_nothing(recovered: Recovered) -> None:
    """The nodes share the machine's clock, so the jump is in the records: their times of the day are wrong by ten years."""
    for host in (HEAD, WORKER):
        looked = recovered.look(host)
        recovered.lab.write(host, STATE, json.dumps({**looked, "at": "2036-01-01T00:00:00Z"}))
    recovered.await_kind("well")
    time.sleep(20)
    recovered.quiet()


def test_a_full_batch_and_long_answers_raise_nothing(recovered: Recovered) -> None:
    endpoint = recovered.lab.play("status", **recovered.variables).stat("gb10_endpoint")
    with busy(recovered.lab, endpoint, 8):
        for _look in range(12):
            time.sleep(5)
            assert {recovered.look(host)["kind"] for host in (HEAD, WORKER)} <= {"well", "unknown"}
    recovered.quiet()


def test_a_node_that_lost_its_power_is_a_persons_decision(recovered: Recovered) -> None:
    cut_power(WORKER)
    settled = await_settled(recovered.lab, WORKER, UNIT)
    if settled == "failed":
        recovered.await_kind("off", WORKER)
        recovered.quiet()
        recovered.lab.run(WORKER, "systemctl", "start", UNIT)
    recovered.await_kind("well", seconds=500)
    assert recovered.serves()


def test_none_removes_it(pair: Recovered) -> None:
    pair.fresh()
    gone = pair.play(gb10_recover="none")
    assert set(gone.changed) == {HEAD, WORKER}
    for host in (HEAD, WORKER):
        assert pair.lab.run(host, "sh", "-c", f"ls /var/lib/gb10/{CLUSTER}/recover 2>/dev/null || echo none").strip() == "none"
        assert active(pair.lab, host, UNIT) == "active"
    assert pair.play(gb10_recover="none").changed == {}
