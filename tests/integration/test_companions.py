# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services beside the engine: a container (by image id) and an owner's unit start, count as claims, and stop. A process in the way is named.

Both are stand-ins (tests/lab/companion) that use memory and a port, without a model and without traffic.
"""

from __future__ import annotations

import json
import typing as t

import pytest

from .lab import HEAD, ROOT, WORKER, Lab, Play
from .making import BARE_IMAGE, cut_power, reboot
from .test_unit import SECOND, await_settled, forget_boots, unit

SOURCES = ROOT / "tests" / "lab" / "companion"
PLACE, TAG = "/var/lib/gb10-lab/companion", "gb10-lab/companion-stand-in:1"
UNIT = "gb10lab-speech.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
#: A unit as an owner writes it, with Restart=no. Systemd kills it after its own timeout.
UNIT_TEXT = f"""[Unit]
Description=Stand-in for speech recognition
[Service]
ExecStart=/usr/bin/python3 {PLACE}/standin.py --port 8765 --path /health --hold-mib 64
TimeoutStopSec=20
"""
#: The collection's unit that restarts containers after a boot.
OURS = "gb10-companions.service"
SPEECH = {"name": "speech", "unit": UNIT, "port": 8765, "health_path": "/health", "memory_gib": 0.25, "modes": ["cluster", "singles", "off"]}


@pytest.fixture(scope="module")
def ollama(lab: Lab) -> t.Iterator[dict[str, t.Any]]:
    """The declaration of a stand-in for Ollama, with the id of an image that was built on the head. A unit exists beside it."""
    lab.clear()
    lab.run(HEAD, "mkdir", "-p", PLACE)
    for name in ("Dockerfile", "standin.py"):
        lab.write(HEAD, f"{PLACE}/{name}", (SOURCES / name).read_text(encoding="utf-8"))
    lab.write(HEAD, UNIT_FILE, UNIT_TEXT)
    lab.run(HEAD, "systemctl", "daemon-reload")
    image = lab.run(HEAD, "docker", "build", "--quiet", "--build-arg", f"BASE={BARE_IMAGE}", "--tag", TAG, PLACE).strip()
    yield {
        "name": "ollama", "image": image, "port": 11434, "health_path": "/api/tags", "memory_gib": 0.5, "modes": ["off"],
        "arguments": ["--port", 11434, "--path", "/api/tags", "--hold-mib", 128], "env": {"OLLAMA_MAX_LOADED_MODELS": 1}, "health_timeout": 60,
    }  # fmt: skip
    remove(lab)
    lab.run(HEAD, "systemctl", "kill", "--signal=SIGKILL", UNIT, check=False)
    lab.run(HEAD, "rm", "-rf", UNIT_FILE, PLACE)
    lab.run(HEAD, "systemctl", "daemon-reload")
    lab.run(HEAD, "docker", "rmi", TAG, check=False)


def remove(lab: Lab) -> None:
    names = lab.run(HEAD, "docker", "ps", "-aq", "--filter", "label=io.gb10.role=companion").split()
    if names:
        lab.run(HEAD, "docker", "rm", "--force", *names)


@pytest.fixture(autouse=True)
def nothing_beside(lab: Lab, ollama: dict[str, t.Any]) -> t.Iterator[None]:
    yield
    lab.run(HEAD, "systemctl", "disable", "--now", OURS, check=False)
    lab.run(HEAD, "rm", "-rf", f"/etc/systemd/system/{OURS}", "/var/lib/gb10/companions")
    lab.run(HEAD, "systemctl", "daemon-reload")
    remove(lab)
    lab.run(HEAD, "systemctl", "stop", UNIT, check=False)


def play(lab: Lab, do: str, mode: str, *companions: dict[str, t.Any], check: bool = False, **variables: t.Any) -> Play:
    """Bring the head's companions up or down, without a unit of the collection. The worker has none."""
    declared = {HEAD: list(companions), WORKER: []}
    inventory = {"gb10_companions": f"{{{{ {json.dumps(declared)}[inventory_hostname] }}}}"}
    given = {"gb10_unit": "none", "companions_do": do, "__companions_mode": mode, **inventory, **variables}
    return lab.play("../tests/lab/tasks/companions", check=check, **given)


def active(lab: Lab) -> bool:
    return lab.run(HEAD, "systemctl", "is-active", UNIT, check=False).strip() == "active"


def running(lab: Lab) -> list[str]:
    return lab.run(HEAD, "docker", "ps", "--filter", "label=io.gb10.role=companion", "--format", "{{.Names}}").split()


def test_both_come_up_once_and_end_with_their_mode(lab: Lab, ollama: dict[str, t.Any]) -> None:
    checked = play(lab, "up", "off", ollama, SPEECH, check=True)
    assert checked.rc == 0 and set(checked.changed) == {HEAD}, checked.failures
    assert not running(lab) and not active(lab)

    first = play(lab, "up", "off", ollama, SPEECH)
    assert first.rc == 0 and first.changed == {HEAD: 2}, first.failures
    assert running(lab) == ["gb10-companion-ollama"] and active(lab)
    reports = {report["name"]: report for report in first.stat("gb10_companions_report")["nodes"][HEAD]["companions"]}
    assert all(report["healthy"] for report in reports.values()) and reports["ollama"]["anon_mb"] >= 128 and reports["speech"]["anon_mb"] >= 64, reports
    enabled = lab.run(HEAD, "systemctl", "is-enabled", UNIT, check=False).strip()

    second = play(lab, "up", "off", ollama, SPEECH)
    assert second.rc == 0 and second.changed == {}, second.failures

    # The mode `cluster` has only the unit.
    down = play(lab, "down", "cluster", ollama, SPEECH)
    assert down.rc == 0 and down.changed == {HEAD: 1} and running(lab) == [] and active(lab), down.failures
    assert play(lab, "down", "cluster", ollama, SPEECH).changed == {}
    # Without a mode there are no companions.
    none = play(lab, "down", "", ollama, SPEECH)
    assert none.rc == 0 and not active(lab), none.failures
    assert lab.run(HEAD, "cat", UNIT_FILE) == UNIT_TEXT and lab.run(HEAD, "systemctl", "is-enabled", UNIT, check=False).strip() == enabled


def test_another_variable_makes_another_container_and_the_log_stays(lab: Lab, ollama: dict[str, t.Any]) -> None:
    assert play(lab, "up", "off", ollama).rc == 0
    changed = play(lab, "up", "off", {**ollama, "env": {"OLLAMA_MAX_LOADED_MODELS": 2}})
    # The old container is stopped, its log is kept, and the new one is started.
    assert changed.rc == 0 and changed.changed[HEAD] in (3, 4), changed.failures
    assert "changed: env.OLLAMA_MAX_LOADED_MODELS" in changed.said
    assert "answers" in lab.run(HEAD, "cat", "/var/log/gb10/companions/gb10-companion-ollama.log")
    again = play(lab, "up", "off", {**ollama, "env": {"OLLAMA_MAX_LOADED_MODELS": 2}})
    assert again.rc == 0 and again.changed == {}, again.failures
    assert lab.inspect(HEAD, "gb10-companion-ollama")["HostConfig"]["RestartPolicy"]["Name"] in ("", "no")


def test_claims_over_the_budget_start_nothing(lab: Lab, ollama: dict[str, t.Any]) -> None:
    refused = play(lab, "up", "off", {**ollama, "memory_gib": 4000}, SPEECH)
    assert refused.rc != 0 and "companion ollama 4000 GiB declared, companion speech 0.25 GiB declared" in refused.said
    assert not running(lab) and not active(lab)


def test_beside_an_engine_the_claims_count_in_its_admission(lab: Lab, ollama: dict[str, t.Any]) -> None:
    many = {**ollama, "memory_gib": 4000, "modes": ["cluster"]}
    refused = lab.play("doctor", gb10_companions=[many])
    assert refused.rc != 0 and "companion ollama 4000 GiB declared" in refused.said, refused.failures


@pytest.mark.parametrize("mode", ["cluster", "singles"])
def test_the_engine_of_the_mode_counts_before_they_start(lab: Lab, ollama: dict[str, t.Any], mode: str) -> None:
    profile = {"companions_single": "lab_tiny_one"} if mode == "singles" else {}
    refused = play(lab, "up", mode, {**ollama, "memory_gib": 4000, "modes": [mode]}, **profile)
    assert refused.rc != 0 and "companion ollama 4000 GiB declared" in refused.said and not running(lab)
    goes = play(lab, "up", mode, {**ollama, "modes": [mode]}, **profile)
    assert goes.rc == 0 and running(lab) == ["gb10-companion-ollama"], goes.failures


def test_a_unit_that_is_not_there_starts_nothing(lab: Lab, ollama: dict[str, t.Any]) -> None:
    refused = play(lab, "up", "off", ollama, {**SPEECH, "unit": "gb10lab-missing.service"})
    assert refused.rc != 0 and "companion speech: this node has no unit gb10lab-missing.service" in refused.said
    assert not running(lab)


def test_ports_of_others_are_refused(lab: Lab, ollama: dict[str, t.Any]) -> None:
    clash = play(lab, "up", "off", {**ollama, "port": 8000, "modes": ["cluster"]})
    assert clash.rc != 0 and "gb10_companions[0].port: is 8000, and gb10_api_port is 8000" in clash.said
    lab.run(HEAD, "systemctl", "start", UNIT)
    taken = play(lab, "up", "off", {**ollama, "port": 8765, "health_path": "/health"})
    assert taken.rc != 0 and "port 8765 of the companion ollama is taken by python3" in taken.said
    assert running(lab) == [] and active(lab)


def test_one_that_ended_is_started_again_and_one_that_ends_at_once_shows_its_log(lab: Lab, ollama: dict[str, t.Any]) -> None:
    assert play(lab, "up", "off", ollama).rc == 0
    before = lab.inspect(HEAD, "gb10-companion-ollama")["Id"]
    lab.run(HEAD, "docker", "stop", "gb10-companion-ollama")
    again = play(lab, "up", "off", ollama)
    assert again.rc == 0 and again.changed == {HEAD: 1}, again.failures
    assert lab.inspect(HEAD, "gb10-companion-ollama")["Id"] == before
    assert play(lab, "down", "", ollama).rc == 0
    ended = play(lab, "up", "off", {**ollama, "arguments": ["--no-such-option"], "health_timeout": 300})
    assert ended.rc != 0 and "companion ollama on" in ended.said and "the following arguments are required" in ended.said, ended.said[-3000:]


def test_one_that_ignores_its_stop_is_reported_and_killed_by_consent_alone(lab: Lab, ollama: dict[str, t.Any]) -> None:
    deaf = {**ollama, "arguments": [*ollama["arguments"], "--deaf"]}
    assert play(lab, "up", "off", deaf).rc == 0
    kept = play(lab, "down", "cluster", deaf, gb10_stop_grace=3)
    assert kept.rc != 0 and "got its stop signal and still runs after 3 s; it was not killed" in kept.said and "gb10_allow=kill_companions" in kept.said
    assert running(lab) == ["gb10-companion-ollama"]
    killed = play(lab, "down", "cluster", deaf, gb10_stop_grace=3, gb10_allow="kill_companions")
    assert killed.rc == 0 and running(lab) == [], killed.failures


def test_prune_lists_an_undeclared_container(lab: Lab, ollama: dict[str, t.Any]) -> None:
    assert play(lab, "up", "off", ollama).rc == 0
    assert play(lab, "down", "", ollama).rc == 0
    kept = lab.play("prune", gb10_companions=[ollama])
    assert kept.rc == 0 and "gb10-companion-ollama" not in kept.said, kept.failures
    listed = lab.play("prune")
    assert listed.rc == 0 and "gb10-companion-ollama" in listed.said, listed.failures


def test_the_containers_of_the_mode_come_back_after_a_clean_reboot_and_no_others(lab: Lab, ollama: dict[str, t.Any]) -> None:
    up = play(lab, "up", "off", ollama, gb10_unit="enabled")
    assert up.rc == 0 and up.changed == {HEAD: 2}, up.failures
    assert play(lab, "up", "off", ollama, gb10_unit="enabled").changed == {}
    modes = lab.run(HEAD, "stat", "--format=%a %U", "/var/lib/gb10/companions", "/var/lib/gb10/companions/specification.json").split("\n")
    assert modes[:2] == ["700 root", "600 root"]
    reboot(HEAD)
    assert await_settled(lab, HEAD, OURS) == "active" and running(lab) == ["gb10-companion-ollama"]
    again = play(lab, "up", "off", ollama, gb10_unit="enabled")
    assert again.rc == 0 and again.changed == {}, again.failures
    reports = {report["name"]: report for report in again.stat("gb10_companions_report")["nodes"][HEAD]["companions"]}
    assert reports["ollama"]["healthy"], reports

    assert play(lab, "down", "cluster", ollama).rc == 0 and running(lab) == []
    reboot(HEAD)
    assert await_settled(lab, HEAD, OURS) == "active" and running(lab) == []
    gone = play(lab, "up", "cluster", ollama, gb10_unit="enabled")
    assert gone.rc == 0 and gone.changed == {HEAD: 1}, gone.failures
    assert lab.run(HEAD, "sh", "-c", f"ls /etc/systemd/system/{OURS} /var/lib/gb10/companions 2>/dev/null || echo none").strip() == "none"


def test_after_a_power_cut_they_come_back_once_and_after_a_second_one_they_stay_down_and_say_why(lab: Lab, ollama: dict[str, t.Any]) -> None:
    forget_boots(lab, HEAD)
    assert play(lab, "up", "off", ollama, gb10_unit="enabled").rc == 0
    cut_power(HEAD)
    assert await_settled(lab, HEAD, OURS) == "active" and running(lab) == ["gb10-companion-ollama"]
    assert "did not shut down cleanly" in lab.json(HEAD, "/var/lib/gb10/companions/state.json")["reason"]
    assert play(lab, "up", "off", ollama, gb10_unit="enabled").changed == {}
    cut_power(HEAD)
    assert await_settled(lab, HEAD, OURS) == "failed" and running(lab) == []
    shown = lab.play("status", gb10_companions=[ollama])
    assert SECOND in shown.said and f"systemctl start {OURS}" in shown.said, shown.said[-3000:]
    lab.run(HEAD, "systemctl", "start", OURS)
    assert running(lab) == ["gb10-companion-ollama"]
    forget_boots(lab, HEAD)


def began(lab: Lab, name: str, what: str) -> int:
    """When a unit on the head reached a state, in microseconds since its machine booted."""
    return int(lab.run(HEAD, "systemctl", "show", "--value", f"--property={what}TimestampMonotonic", name))


def test_the_declared_mode_comes_back_after_a_reboot_of_both_nodes_with_its_companions(lab: Lab, ollama: dict[str, t.Any]) -> None:
    declared = {HEAD: [{**ollama, "modes": ["cluster"]}], WORKER: []}
    # The nodes of all labs share the machine's memory, so memory that another lab takes meanwhile is not a leak.
    given = {"gb10_companions": f"{{{{ {json.dumps(declared)}[inventory_hostname] }}}}", "__gb10_shared_tolerance_mb": 16384}
    try:
        up = lab.play("mode", gb10_mode="cluster", **given)
        assert up.rc == 0 and running(lab) == ["gb10-companion-ollama"], up.said[-3000:]
        reboot(HEAD, WORKER)
        assert [await_settled(lab, HEAD, OURS), *(await_settled(lab, host, unit("gb10")) for host in (HEAD, WORKER))] == ["active"] * 3
        assert running(lab) == ["gb10-companion-ollama"]
        assert began(lab, OURS, "ActiveEnter") <= began(lab, unit("gb10"), "InactiveExit")
        again = lab.play("mode", gb10_mode="cluster", **given)
        assert (again.rc, again.changed) == (0, {}), again.said[-3000:]
    finally:
        off = lab.play("mode", gb10_mode="off", gb10_allow="forget,interrupt", **given)
    assert off.rc == 0 and running(lab) == [], off.said[-3000:]
    assert lab.run(HEAD, "sh", "-c", f"ls /etc/systemd/system/{OURS} /var/lib/gb10/companions 2>/dev/null || echo none").strip() == "none"
