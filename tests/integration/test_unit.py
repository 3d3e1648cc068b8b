# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of a single-node service brings it back after a reboot, once after a power cut, gives the reason when it does not, and leaves other files alone."""

from __future__ import annotations

import contextlib
import json
import time
import typing as t

import pytest

from .lab import INVENTORY, WORKER, Lab
from .making import cut_power, reboot

#: The service's node and its settings. The other node of the lab is not contacted.
NODE = WORKER
SINGLE = {"gb10_single": NODE, "gb10_profile": "lab_tiny_one"}

SETTLED = ("active", "failed")


def unit(cluster: str) -> str:
    return f"gb10-engine-{cluster}.service"


def active(lab: Lab, host: str, name: str) -> str:
    return lab.run(host, "systemctl", "is-active", name, check=False).strip()


def state(lab: Lab, host: str, cluster: str) -> dict[str, t.Any]:
    return lab.json(host, f"/var/lib/gb10/{cluster}/unit/state.json")


def await_state(lab: Lab, host: str, name: str, wanted: t.Callable[[], bool], seconds: float = 300) -> None:
    """Wait until ``wanted`` is true. The error message contains the journal of the unit ``name``."""
    end = time.monotonic() + seconds
    while not wanted():
        journal = lab.run(host, "journalctl", "--no-pager", "--lines=40", "--output=cat", "-u", name, check=False)
        assert time.monotonic() < end, f"{host}: {active(lab, host, name)}\n{journal}"
        time.sleep(2)


def await_settled(lab: Lab, host: str, name: str) -> str:
    """Wait until the unit on a booting node is active or failed, and return its state."""
    await_state(lab, host, name, lambda: active(lab, host, name) in SETTLED)
    return active(lab, host, name)


#: The node's record of its unclean boots.
BOOTS = "/var/lib/gb10/unclean_boots.json"
SECOND = "it is the second unclean boot in a row"


def forget_boots(lab: Lab, *hosts: str) -> None:
    """Remove the records of unclean boots, so that the next one is the first."""
    for host in hosts:
        lab.run(host, "rm", "-f", BOOTS)


def outlast(lab: Lab, host: str) -> None:
    """Change the record of unclean boots as a unit does that has run for an hour."""
    record = lab.json(host, BOOTS)
    lab.write(host, BOOTS, json.dumps({**record, "boots": [{**boot, "over": True} for boot in record["boots"]]}))


def serves(lab: Lab, **variables: t.Any) -> bool:
    played = lab.play("status", **variables)
    assert played.rc == 0, played.failures
    return played.stat("gb10_health") == "serving"


@pytest.fixture(scope="module")
def single(lab: Lab) -> t.Iterator[None]:
    """A single-node service with the unit that every bring-up sets up."""
    lab.clear()
    played = lab.play("serve", **SINGLE)
    assert played.rc == 0, played.failures
    yield
    gone = lab.play("teardown", **SINGLE, gb10_allow="interrupt")
    assert gone.rc == 0, gone.failures
    assert lab.run(NODE, "sh", "-c", f"ls /etc/systemd/system/{unit(NODE)} /var/lib/gb10/{NODE}/unit 2>/dev/null || echo none").strip() == "none"
    assert lab.run(NODE, "docker", "ps", "--all", "--quiet").strip() == ""


@pytest.mark.usefixtures("single")
def test_a_second_run_changes_nothing_and_root_alone_reads_the_specification(lab: Lab) -> None:
    assert active(lab, NODE, unit(NODE)) == "active"
    again = lab.play("serve", **SINGLE)
    assert (again.rc, again.changed) == (0, {}), again.said
    checked = lab.play("serve", check=True, **SINGLE)
    assert (checked.rc, checked.changed) == (0, {}), checked.said
    assert lab.run(NODE, "systemctl", "is-enabled", unit(NODE)).strip() == "enabled"
    modes = lab.run(NODE, "stat", "--format=%a %U", f"/var/lib/gb10/{NODE}/unit", f"/var/lib/gb10/{NODE}/unit/specification.json").split("\n")
    assert modes[:2] == ["700 root", "600 root"]
    key = lab.run(NODE, "cat", f"/etc/gb10/secrets/{NODE}/api_key").strip()
    assert key and key not in lab.run(NODE, "cat", f"/var/lib/gb10/{NODE}/unit/specification.json")


@pytest.mark.usefixtures("single")
def test_a_clean_reboot_comes_back_to_a_token_without_anybody(lab: Lab) -> None:
    before = state(lab, NODE, NODE)["boot_id"]
    reboot(NODE)
    assert await_settled(lab, NODE, unit(NODE)) == "active"
    after = state(lab, NODE, NODE)
    assert (after["state"], after["tries"]) == ("running", 1) and after["boot_id"] != before
    assert serves(lab, **SINGLE)
    assert lab.play("serve", **SINGLE).changed == {}


#: A specification that is written long after its service has started, as by a service that is triggered again, and one that is never written.
LATE, NEVER = ("exec", "sleep 15; install -D -m 0644 /usr/share/gb10-lab/cdi/nvidia.yaml /run/cdi/nvidia.yaml"), ("oneshot", "false")


@contextlib.contextmanager
def writing(lab: Lab, how: tuple[str, str]) -> t.Iterator[None]:
    """Change how the GPU's specification is written at the next boots."""
    place = "/etc/systemd/system/nvidia-cdi-refresh.service.d"
    lab.run(NODE, "mkdir", place)
    lab.write(NODE, f"{place}/lab.conf", f'[Service]\nType={how[0]}\nExecStart=\nExecStart=/bin/sh -c "{how[1]}"\n')
    try:
        yield
    finally:
        lab.run(NODE, "rm", "-r", place)
        lab.run(NODE, "systemctl", "daemon-reload")


@pytest.mark.skipif(INVENTORY.name == "lab", reason="this lab's engine knows no devices by CDI")
@pytest.mark.usefixtures("single")
def test_the_gpu_comes_by_its_specification_after_every_boot(lab: Lab) -> None:
    """As with NVIDIA's toolkit 1.19.0, it is on a tmpfs and written after multi-user.target, so a unit that the target waits for never sees it."""

    def given() -> str:
        return lab.inspect(NODE, f"gb10-{NODE}-head")["HostConfig"]["DeviceRequests"][0]["Driver"]

    assert given() == "cdi"
    reboot(NODE)
    assert (await_settled(lab, NODE, unit(NODE)), given()) == ("active", "cdi")
    with writing(lab, LATE):
        reboot(NODE)
        assert (await_settled(lab, NODE, unit(NODE)), given()) == ("active", "cdi")
    with writing(lab, NEVER):
        reboot(NODE)
        # The ended container stays, and still shows how it got its GPU.
        assert (await_settled(lab, NODE, unit(NODE)), given()) == ("failed", "cdi")
        assert "still has no nvidia.com/gpu=all among its devices" in state(lab, NODE, NODE)["reason"]
    lab.run(NODE, "systemctl", "restart", "nvidia-cdi-refresh.service")
    lab.run(NODE, "systemctl", "start", unit(NODE))
    assert given() == "cdi" and serves(lab, **SINGLE)


@pytest.mark.usefixtures("single")
def test_after_a_power_cut_it_comes_back_once_and_after_a_second_one_it_stays_down_and_says_why(lab: Lab) -> None:
    forget_boots(lab, NODE)
    cut_power(NODE)
    assert await_settled(lab, NODE, unit(NODE)) == "active"
    reason = state(lab, NODE, NODE)["reason"]
    assert "did not shut down cleanly" in reason and "the unit starts once, because a boot returns leaked memory" in reason
    journal = lab.run(NODE, "journalctl", "--no-pager", "--boot", "--output=cat", "-u", unit(NODE))
    assert reason in journal and "zombies: " in journal and "memory: " in journal
    (boot,) = lab.json(NODE, BOOTS)["boots"]
    assert not boot["over"]
    shown = lab.play("status", **SINGLE)
    assert shown.stat("gb10_health") == "serving" and "did not shut down cleanly" in shown.said and f"unclean boot at {boot['at']}" in shown.said
    for check in (True, False):
        assert lab.play("serve", check=check, **SINGLE).changed == {}

    # A clean reboot between them changes nothing.
    reboot(NODE)
    assert await_settled(lab, NODE, unit(NODE)) == "active" and state(lab, NODE, NODE)["reason"] == ""
    cut_power(NODE)
    assert await_settled(lab, NODE, unit(NODE)) == "failed"
    assert f"{SECOND}: after the one of {boot['at']} no unit has run for 60 minutes" in state(lab, NODE, NODE)["reason"]
    assert lab.run(NODE, "docker", "ps", "--quiet").strip() == ""
    shown = lab.play("status", **SINGLE)
    assert SECOND in shown.said and f"systemctl start {unit(NODE)}" in shown.said
    reboot(NODE)
    assert await_settled(lab, NODE, unit(NODE)) == "failed"
    lab.run(NODE, "systemctl", "start", unit(NODE))
    assert state(lab, NODE, NODE)["state"] == "running" and serves(lab, **SINGLE)

    # After an hour of a unit the next one is the first again.
    outlast(lab, NODE)
    cut_power(NODE)
    assert await_settled(lab, NODE, unit(NODE)) == "active"
    assert [entry["over"] for entry in lab.json(NODE, BOOTS)["boots"]] == [True, True, False]


@pytest.mark.usefixtures("single")
def test_a_record_of_boots_that_cannot_be_read_keeps_it_down(lab: Lab) -> None:
    lab.write(NODE, BOOTS, "{")
    try:
        cut_power(NODE)
        assert await_settled(lab, NODE, unit(NODE)) == "failed"
        assert "whether it is the second unclean boot in a row is unknown" in state(lab, NODE, NODE)["reason"]
    finally:
        forget_boots(lab, NODE)
    lab.run(NODE, "systemctl", "start", unit(NODE))
    assert serves(lab, **SINGLE)


@pytest.mark.usefixtures("single")
def test_a_setting_keeps_it_down_after_any_power_cut(lab: Lab) -> None:
    forget_boots(lab, NODE)
    careful = lab.play("serve", **SINGLE, gb10_unclean_boot="never")
    assert careful.rc == 0 and careful.changed == {NODE: 1}, careful.failures
    cut_power(NODE)
    assert await_settled(lab, NODE, unit(NODE)) == "failed" and state(lab, NODE, NODE)["reason"].endswith("gb10_unclean_boot is never")
    assert lab.run(NODE, "docker", "ps", "--quiet").strip() == ""
    lab.run(NODE, "systemctl", "start", unit(NODE))
    back = lab.play("serve", **SINGLE)
    assert back.rc == 0 and back.changed == {NODE: 1} and active(lab, NODE, unit(NODE)) == "active", back.failures


@pytest.mark.usefixtures("single")
def test_a_power_cycle_that_was_announced_starts_it_and_is_no_unclean_boot(lab: Lab) -> None:
    forget_boots(lab, NODE)
    lab.run(NODE, "touch", "/var/lib/gb10/power_cycled")
    cut_power(NODE)
    assert await_settled(lab, NODE, unit(NODE)) == "active"
    assert lab.run(NODE, "sh", "-c", f"ls /var/lib/gb10/power_cycled {BOOTS} 2>/dev/null || echo none").strip() == "none"


@pytest.mark.usefixtures("single")
def test_a_stop_by_a_person_stops_engine_and_container_and_a_start_brings_both_back(lab: Lab) -> None:
    lab.run(NODE, "systemctl", "stop", unit(NODE))
    assert state(lab, NODE, NODE)["state"] == "stopped" and lab.run(NODE, "docker", "ps", "--quiet").strip() == ""
    lab.run(NODE, "systemctl", "start", unit(NODE))
    assert serves(lab, **SINGLE)


@pytest.mark.usefixtures("single")
def test_an_edited_unit_stays_as_it_is(lab: Lab) -> None:
    path = f"/etc/systemd/system/{unit(NODE)}"
    before = lab.run(NODE, "cat", path)
    edited = before.replace("Restart=no", "Restart=always")
    lab.write(NODE, path, edited)
    try:
        ran = lab.play("serve", **SINGLE)
        assert ran.rc != 0 and "was edited by hand" in ran.said and lab.run(NODE, "cat", path) == edited
        assert serves(lab, **SINGLE)
    finally:
        lab.write(NODE, path, before)


@pytest.mark.usefixtures("single")
def test_a_play_that_replaces_the_engine_meets_no_resistance(lab: Lab) -> None:
    other = {"gb10_serve_arguments": {"max_num_seqs": 4}, "gb10_allow": "restart"}
    played = lab.play("serve", **SINGLE, **other)
    assert played.rc == 0, played.failures
    assert active(lab, NODE, unit(NODE)) == "active" and "ended on request" in lab.run(NODE, "journalctl", "--no-pager", "--boot", "-u", unit(NODE))
    assert lab.play("serve", **SINGLE, **other).changed == {}


@pytest.mark.usefixtures("single")
def test_without_a_unit_none_is_set_up_and_one_that_exists_stays(lab: Lab) -> None:
    assert lab.play("serve", **SINGLE, gb10_allow="restart").rc == 0
    kept = lab.play("serve", **SINGLE, gb10_unit="none")
    assert (kept.rc, kept.changed) == (0, {}) and active(lab, NODE, unit(NODE)) == "active", kept.failures
    assert lab.play("teardown", **SINGLE).rc == 0
    bare = lab.play("serve", **SINGLE, gb10_unit="none")
    assert bare.rc == 0 and active(lab, NODE, unit(NODE)) == "inactive", bare.failures
    # On request only, and then as by default.
    for setting, enabled in (("present", "disabled"), ("enabled", "enabled")):
        played = lab.play("serve", **SINGLE, gb10_unit=setting)
        assert played.rc == 0 and played.changed == {NODE: 1}, played.failures
        assert (active(lab, NODE, unit(NODE)), lab.run(NODE, "systemctl", "is-enabled", unit(NODE), check=False).strip()) == ("active", enabled)
    assert lab.play("serve", **SINGLE).changed == {}


@pytest.mark.usefixtures("single")
def test_of_two_units_that_would_start_at_a_boot_the_one_that_does_not_run_is_disabled(lab: Lab) -> None:
    """As of a pair whose engine ended before this node got a service of its own. Its unit is a copy of the single's."""
    other = "gb10-engine-gb10.service"
    lab.run(NODE, "cp", f"/etc/systemd/system/{unit(NODE)}", f"/etc/systemd/system/{other}")
    lab.run(NODE, "systemctl", "daemon-reload")
    lab.run(NODE, "systemctl", "enable", other)
    try:
        for check in (True, False):
            played = lab.play("serve", check=check, **SINGLE)
            assert played.rc == 0 and played.changed == {NODE: 1}, played.failures
        assert lab.run(NODE, "systemctl", "is-enabled", other, check=False).strip() == "disabled" and active(lab, NODE, unit(NODE)) == "active"
        assert lab.play("serve", **SINGLE).changed == {}
    finally:
        lab.run(NODE, "systemctl", "disable", "--quiet", other)
        lab.run(NODE, "rm", f"/etc/systemd/system/{other}")
        lab.run(NODE, "systemctl", "daemon-reload")
