# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pair is recovered as a whole or given up loudly: each fault has one outcome and one message, with Ray and without."""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

import pytest

from .lab import HEAD, WORKER, Lab
from .leased import Judge
from .recovering import CLUSTER, FAULTS, RECOVER, UNIT, Fault, Pair, lack
from .test_unit import active, state

#: Asks a node for its state as another node does, with a key and a number of 64 digits, and prints whether the signature is right, and the answer.
ASK = """
import hashlib, hmac, sys, urllib.request
address, key, nonce = sys.argv[1:]
body = urllib.request.urlopen(f"http://{address}:20302/{nonce}", timeout=10).read().decode()
signed, _line, said = body.partition("\\n")
made = hmac.new(key.encode(), "\\n".join(("gb10.cluster recovery 1", nonce, said)).encode(), hashlib.sha256).hexdigest()
print(hmac.compare_digest(made, signed), said)
"""


#: What does not depend on Ray.
WITHOUT_RAY = pytest.mark.parametrize("pair", ["native"], indirect=True)


@pytest.fixture(scope="module", params=["native", "ray"])
def pair(lab: Lab, request: pytest.FixtureRequest) -> t.Iterator[Pair]:
    made = Pair(lab, request.param)
    made.begin()
    yield made
    made.end()


@pytest.fixture
def well(pair: Pair) -> t.Iterator[Pair]:
    pair.well()
    yield pair
    pair.broken.close()


def test_a_second_run_changes_nothing_and_each_node_has_what_it_needs(pair: Pair) -> None:
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


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_has_its_outcome(well: Pair, fault: Fault) -> None:
    """On the last of its nodes without Ray, and on the first with it."""
    outcome = fault.run(well, fault.hosts[-1 if well.executor == "native" else 0])
    print(f"{fault.name}: {outcome.named}; named after {outcome.named_s:.0f} s, over after {outcome.seconds:.0f} s (times divided by {well.scale})")
    assert well.serves() and well.play().changed == {}


def test_at_its_real_period_a_fault_is_named_by_the_first_look_and_acted_on_by_the_third(well: Pair) -> None:
    well.shorten(period=60)
    try:
        well.rest()
        looks, began = {host: well.look(host)["seq"] for host in (HEAD, WORKER)}, time.monotonic()
        well.signal(HEAD, "KILL")
        well.await_kind("fault")
        # A look may have begun before the fault.
        assert all(well.look(host)["seq"] <= looks[host] + 2 for host in looks)
        named = time.monotonic() - began
        well.await_that(lambda host: bool(well.look(host)["history"]))
        print(f"{well.executor}: named on both nodes after {named:.0f} s, acted on after {time.monotonic() - began:.0f} s")
        assert all(well.look(host)["seq"] <= looks[host] + 4 for host in looks)
        well.await_outcome("runs again")
    finally:
        well.shorten()
    for host in (HEAD, WORKER):
        (kept,) = well.evidence(host)
        text = well.lab.run(host, "cat", f"/var/log/gb10/{CLUSTER}/recover/{kept}")
        assert {"== stacks", "== evidence", "== counters"} <= set(text.splitlines()) and f"(times divided by {well.scale})" in well.journal(host)
        for secret in ("api_key", "recover_key"):
            value = well.lab.run(HEAD, "cat", f"/etc/gb10/secrets/{CLUSTER}/{secret}").strip()
            assert value and value not in text and value not in well.journal(host)


@WITHOUT_RAY
def test_what_was_given_up_stays_down_until_a_person_starts_it(well: Pair) -> None:
    lack(well, WORKER)
    well.await_outcome("stopped: ")
    shown = well.lab.play("status", **well.variables)
    assert f"Reboot {WORKER}, then run mode" in shown.said
    seen = well.look(HEAD)["seq"]
    well.await_that(lambda host: well.look(host)["seq"] > seen + 5, HEAD)
    for host in (HEAD, WORKER):
        assert active(well.lab, host, UNIT) == "inactive" and state(well.lab, host, CLUSTER)["reason"].startswith("recovery: ")
    well.broken.close()
    well.play()
    well.await_kind("well")
    assert well.look(HEAD)["stopped"] == ""


@WITHOUT_RAY
def test_a_lease_comes_first(well: Pair, tmp_path: Path) -> None:
    """The caller of a lease is frozen while a rank is stopped: nothing is recovered before the lease is over."""

    def look() -> None:
        well.signal(WORKER, "STOP")
        try:
            assert "restart would take all nodes down and up again, but" in well.await_text("3 looks agree")
            well.quiet()
        finally:
            well.go_on(WORKER)

    judge = Judge(tmp_path, look)
    leased = well.lab.play("mode", gb10_mode="cluster", gb10_lease=judge.command, on_output=judge.on_output, **well.variables)
    judge.join()
    assert leased.rc == 0, leased.failures


@WITHOUT_RAY
def test_the_budget_ends_and_says_so(well: Pair) -> None:
    # Six hours in twelve minutes, so that two recoveries are within them.
    well.shorten(scale=30)
    try:
        for _recovery in (1, 2):
            well.rest()
            earlier = well.recoveries()
            well.signal(WORKER, "STOP")
            well.await_outcome("runs again", earlier)
        well.rest()
        well.signal(WORKER, "STOP")
        assert "the budget of 2 recoveries within 6 h is used up. Run the doctor, then mode" in well.await_text("budget")
        assert len(well.look(HEAD)["history"]) == 2
    finally:
        well.go_on(WORKER)
        well.shorten()


@WITHOUT_RAY
def test_an_operator_comes_first(well: Pair) -> None:
    """A play that works on the cluster keeps the recovery away, and a fault that the play ends is not well."""
    well.signal(WORKER, "STOP")
    well.await_kind("fault", HEAD)
    played = well.lab.play("teardown", gb10_allow="interrupt", **well.variables)
    if played.rc:
        # The recovery was first, and the play says who holds the lock.
        assert f"{RECOVER}.service" in played.failures, played.failures
        well.await_outcome("runs again")
        return
    assert well.lab.containers(HEAD) == well.lab.containers(WORKER) == {}
    assert well.lab.run(HEAD, "sh", "-c", f"ls /etc/systemd/system/{RECOVER}* 2>/dev/null || echo none").strip() == "none"


@WITHOUT_RAY
@pytest.mark.parametrize("act", ["observe", "paused 2h upgrading the switch"])
def test_a_pause_and_observe_only_say_it(well: Pair, act: str) -> None:
    well.play(gb10_recover=act)
    well.signal(WORKER, "STOP")
    text = well.await_text("3 looks agree")
    why = "gb10_recover is observe" if act == "observe" else "a person paused it for"
    assert "restart would take all nodes down and up again, but" in text and why in text
    well.quiet()
    well.go_on(WORKER)
    assert set(well.play().changed) == {HEAD, WORKER}


@WITHOUT_RAY
def test_a_forged_and_a_replayed_answer_count_as_none(well: Pair) -> None:
    lab = well.lab
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
        well.signal(HEAD, "STOP")
        text = well.await_text("not signed with the key of this cluster for this question")
        assert WORKER in text and well.look(HEAD)["kind"] == "unknown"
        time.sleep(20)
        well.quiet()
    finally:
        well.go_on(HEAD)
        lab.run(WORKER, "systemctl", "stop", "gb10-test-replay", check=False)
        lab.run(WORKER, "systemctl", "start", f"{RECOVER}.timer")
    well.await_kind("well")


@WITHOUT_RAY
def test_a_wrong_key_on_one_node_confirms_nothing(well: Pair) -> None:
    path = f"/etc/gb10/secrets/{CLUSTER}/recover_key"
    right = well.lab.run(WORKER, "cat", path)
    well.lab.write(WORKER, path, "x" * 43)
    try:
        well.signal(WORKER, "STOP")
        well.await_kind("unknown")
        time.sleep(20)
        well.quiet()
    finally:
        well.lab.write(WORKER, path, right)
        well.go_on(WORKER)
    well.await_kind("well")


def test_none_removes_it(pair: Pair) -> None:
    pair.well()
    gone = pair.play(gb10_recover="none")
    assert set(gone.changed) == {HEAD, WORKER}
    for host in (HEAD, WORKER):
        assert pair.lab.run(host, "sh", "-c", f"ls /var/lib/gb10/{CLUSTER}/recover 2>/dev/null || echo none").strip() == "none"
        assert active(pair.lab, host, UNIT) == "active"
    assert pair.play(gb10_recover="none").changed == {}
