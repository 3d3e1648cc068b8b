# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of a single-node service restarts it after a clean reboot, gives the reason when it does not, and leaves other files alone."""

from __future__ import annotations

import contextlib
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


def serves(lab: Lab, **variables: t.Any) -> bool:
    played = lab.play("status", **variables)
    assert played.rc == 0, played.failures
    return played.stat("gb10_health") == "serving"


@pytest.fixture(scope="module")
def single(lab: Lab) -> t.Iterator[None]:
    """A single-node service with an enabled unit."""
    lab.clear()
    played = lab.play("serve", **SINGLE, gb10_unit="enabled")
    assert played.rc == 0, played.failures
    yield
    gone = lab.play("teardown", **SINGLE, gb10_allow="interrupt")
    assert gone.rc == 0, gone.failures
    assert lab.run(NODE, "sh", "-c", f"ls /etc/systemd/system/{unit(NODE)} /var/lib/gb10/{NODE}/unit 2>/dev/null || echo none").strip() == "none"
    assert lab.run(NODE, "docker", "ps", "--all", "--quiet").strip() == ""


@pytest.mark.usefixtures("single")
def test_a_second_run_changes_nothing_and_root_alone_reads_the_specification(lab: Lab) -> None:
    assert active(lab, NODE, unit(NODE)) == "active"
    again = lab.play("serve", **SINGLE, gb10_unit="enabled")
    assert (again.rc, again.changed) == (0, {}), again.said
    checked = lab.play("serve", check=True, **SINGLE, gb10_unit="enabled")
    assert (checked.rc, checked.changed) == (0, {}), checked.said
    plain = lab.play("serve", **SINGLE)
    assert (plain.rc, plain.changed) == (0, {}) and active(lab, NODE, unit(NODE)) == "active"
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
    assert lab.play("serve", **SINGLE, gb10_unit="enabled").changed == {}


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
def test_after_a_power_cut_it_stays_down_says_why_and_starts_when_a_person_says_so(lab: Lab) -> None:
    cut_power(NODE)
    assert await_settled(lab, NODE, unit(NODE)) == "failed"
    assert "did not shut down cleanly" in lab.run(NODE, "journalctl", "--no-pager", "--boot", "-u", unit(NODE))
    assert lab.run(NODE, "docker", "ps", "--quiet").strip() == ""
    shown = lab.play("status", **SINGLE)
    assert "did not shut down cleanly" in shown.said and f"systemctl start {unit(NODE)}" in shown.said
    reboot(NODE)
    assert await_settled(lab, NODE, unit(NODE)) == "failed"
    lab.run(NODE, "systemctl", "start", unit(NODE))
    assert state(lab, NODE, NODE)["state"] == "running" and serves(lab, **SINGLE)


@pytest.mark.usefixtures("single")
def test_a_power_cycle_that_was_announced_starts_it_once(lab: Lab) -> None:
    lab.run(NODE, "touch", "/var/lib/gb10/power_cycled")
    cut_power(NODE)
    assert await_settled(lab, NODE, unit(NODE)) == "active"
    assert lab.run(NODE, "sh", "-c", "ls /var/lib/gb10/power_cycled 2>/dev/null || echo none").strip() == "none"


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
        ran = lab.play("serve", **SINGLE, gb10_unit="enabled")
        assert ran.rc != 0 and "was edited by hand" in ran.said and lab.run(NODE, "cat", path) == edited
        assert serves(lab, **SINGLE)
    finally:
        lab.write(NODE, path, before)


@pytest.mark.usefixtures("single")
def test_a_play_that_replaces_the_engine_meets_no_resistance(lab: Lab) -> None:
    other = {"gb10_serve_arguments": {"max_num_seqs": 4}, "gb10_allow": "restart"}
    played = lab.play("serve", **SINGLE, **other, gb10_unit="enabled")
    assert played.rc == 0, played.failures
    assert active(lab, NODE, unit(NODE)) == "active" and "ended on request" in lab.run(NODE, "journalctl", "--no-pager", "--boot", "-u", unit(NODE))
    assert lab.play("serve", **SINGLE, **other, gb10_unit="enabled").changed == {}
