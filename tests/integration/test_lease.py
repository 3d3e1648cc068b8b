# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A mode for one command: up, the command, and back, regardless of the command's result and of killed processes."""

from __future__ import annotations

import json
import os
import signal
import time
import typing as t
from pathlib import Path

import pytest
import yaml

from .lab import HEAD, INVENTORY, WORKER, Lab, Once, Play
from .leased import Judge
from .making import reboot
from .test_companions import PLACE, SOURCES, SPEECH, UNIT, UNIT_FILE, UNIT_TEXT, active
from .test_models import says

MODE, LEASE = "/var/lib/gb10/mode.json", "/var/lib/gb10/lease/lease.json"
PAIR = {HEAD: {"gb10"}, WORKER: {"gb10"}}
#: Seconds in which the nodes must notice the end, stop the pair and start a service.
PATIENCE = 600

#: A command that prints a line and then runs longer than any test.
WORK = ["sh", "-c", 'echo "at work"; exec sleep 3600']


class Leases:
    """The nodes with a single-node service on the head, and leases of the pair."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def lease(self, command: list[str] | str, mode: str = "cluster", **variables: t.Any) -> Play:
        return self.lab.play("mode", gb10_mode=mode, gb10_lease=command, **variables)

    def declare(self, mode: str, **variables: t.Any) -> Play:
        played = self.lab.play("mode", gb10_mode=mode, **variables)
        assert played.rc == 0, played.said[-4000:]
        return played

    def record(self, host: str) -> dict[str, t.Any]:
        return self.lab.json(host, MODE)

    def clusters(self, host: str) -> set[str]:
        """The clusters whose containers run on a node."""
        return set(self.lab.run(host, "docker", "ps", "--filter", "label=io.gb10.owner", "--format", '{{.Label "io.gb10.cluster"}}').split())

    def nothing_left(self, mode: str, there: dict[str, set[str]]) -> None:
        """Assert that the mode is settled with its clusters, and that nothing of a lease is left."""
        for host in (HEAD, WORKER):
            record = self.record(host)
            assert (record["mode"], record["phase"]) == (mode, "settled"), record
            assert self.clusters(host) == there.get(host, set())
            left = self.lab.run(host, "sh", "-c", "ls /var/lib/gb10 /etc/systemd/system")
            assert "lease" not in left and "mode.lock.json" not in left, left

    def ended_by_nodes(self, mode: str) -> dict[str, dict[str, t.Any]]:
        """Wait until the nodes have ended a lease by themselves. Return each node's lease record."""
        until = time.monotonic() + PATIENCE
        while True:
            leases = {host: self.lab.json(host, LEASE) for host in (HEAD, WORKER)}
            if {lease["state"] for lease in leases.values()} == {"ended"}:
                break
            assert time.monotonic() < until, [leases, self.lab.run(HEAD, "journalctl", "-u", "gb10-lease", "--no-pager")]
            time.sleep(2)
        for host in (HEAD, WORKER):
            journal = self.lab.run(host, "journalctl", "--unit", "gb10-lease", "--no-pager", "--lines", "40")
            assert (self.record(host)["mode"], self.record(host)["phase"]) == (mode, "settled"), [self.record(host), journal]
            assert "mode.lock.json" not in self.lab.run(host, "ls", "/var/lib/gb10"), journal
        return leases


@pytest.fixture(scope="module")
def leases(tmp_path_factory: pytest.TempPathFactory, lab: Lab) -> t.Iterator[Leases]:
    lab.down()
    directory: Path = tmp_path_factory.mktemp("leases")
    # The nodes of all labs share the machine's memory, so memory that another lab takes meanwhile is not a leak.
    own = {"__gb10_shared_tolerance_mb": 16384, "gb10_records_dir": str(directory)}
    everywhere = {"hosts": {HEAD: {"gb10_single_profile": "lab_tiny_one"}}, "vars": own}
    (directory / "services.yml").write_text(yaml.safe_dump({"all": everywhere}), encoding="utf-8")
    made = Leases(Lab(directory, [INVENTORY, directory / "services.yml"]))
    yield made
    made.declare("off", gb10_allow="interrupt,forget")


def test_from_off_to_the_pair_for_a_command_and_back(leases: Leases) -> None:
    leases.declare("off")
    judge = Judge(leases.lab.scratch)
    checked = leases.lab.play("mode", check=True, gb10_mode="cluster", gb10_lease=judge.command)
    assert checked.rc == 0 and checked.changed == {} and "runs on this controller, then back to off" in checked.said, checked.said[-2000:]
    played = leases.lease(judge.command, on_output=judge.on_output)
    assert played.rc == 0 and "judged: " in played.said and "the cluster works" in played.said, played.said[-4000:]
    judge.join()
    report = played.stat("gb10_mode_report")["lease"]
    assert (report["exit_code"], report["before"], report["during"], report["after"]) == (0, "off", "cluster", "off")
    log = Path(report["log"])
    assert "the cluster works" in log.read_text(encoding="utf-8") and log.stat().st_mode & 0o777 == 0o600
    leases.nothing_left("off", {})


def test_a_command_that_fails_fails_the_play_after_the_service_before_is_back(leases: Leases) -> None:
    leases.declare("singles")
    failed = leases.lease("sh -c 'exit 3'")
    assert failed.rc != 0 and "ended with exit code 3" in failed.said, failed.said[-4000:]
    report = failed.stat("gb10_mode_report")
    assert (report["lease"]["exit_code"], report["mode"], failed.stat("gb10_verdict")) == (3, "singles", "block")
    leases.nothing_left("singles", {HEAD: {HEAD}})
    assert "the cluster works" in says(leases.lab, HEAD, HEAD, "tiny")


def test_what_serves_already_stays_whatever_the_command_does(leases: Leases) -> None:
    leases.declare("singles")
    for code in (0, 4):
        played = leases.lab.play("mode", gb10_mode="singles", gb10_lease=f"sh -c 'exit {code}'")
        assert (played.rc == 0) == (code == 0) and "what serves stays as it is" in played.said, played.said[-3000:]
        assert played.stat("gb10_mode_report")["lease"]["exit_code"] == code
        leases.nothing_left("singles", {HEAD: {HEAD}})


class Killed:
    """Kills a play with all of its workers when it has printed a text the given number of times, as the end of a job's container would."""

    def __init__(self, at: str = "  at work", times: int = 1) -> None:
        self.at, self.left, self.fired = at, times, False

    def __call__(self, output: str, pid: int) -> None:
        self.left -= self.at in output
        if not self.left and not self.fired:
            self.fired = True
            # Workers have their own sessions, so a signal to the play's process group does not reach them.
            workers = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if parent_of(path) == pid]
            os.killpg(os.getpgid(pid), signal.SIGKILL)
            for worker in workers:
                os.kill(worker, signal.SIGKILL)


def parent_of(stat: Path) -> int:
    """The parent's pid of a process, 0 when the process has ended."""
    try:
        return int(stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_when_the_caller_is_killed_the_nodes_end_the_lease_and_start_the_service_before(leases: Leases) -> None:
    leases.declare("singles")
    killed = Killed()
    played = leases.lease(WORK, gb10_lease_lost_seconds=60, on_output=killed)
    assert killed.fired and played.rc != 0
    seen = leases.lab.play("status", tags="glance", ansible_become_exe="/bin/false")
    assert "Mode: cluster, leased since" in seen.said and "for sh, since" in seen.said, seen.said[-2000:]
    over = leases.ended_by_nodes("singles")
    for host, lease in over.items():
        assert "it was not renewed for" in lease["reason"] and "back to singles" in lease["reason"], (host, lease)
    assert leases.clusters(HEAD) == {HEAD} and leases.clusters(WORKER) == set()
    assert "the cluster works" in says(leases.lab, HEAD, HEAD, "tiny")
    assert "enabled" in leases.lab.run(HEAD, "systemctl", "is-enabled", f"gb10-engine-{HEAD}.service")
    # The next run continues from there and removes the leftovers.
    leases.declare("singles")
    leases.nothing_left("singles", {HEAD: {HEAD}})


def test_when_the_caller_is_killed_on_the_way_back_the_nodes_start_the_service_before(leases: Leases) -> None:
    """The lease's clusters are gone, and the previous services are not up yet."""
    leases.declare("singles")
    # This play follows the one that hands over to the nodes. It also runs once on the way to the leased mode.
    killed = Killed("PLAY [Start the companions that the mode has", 2)
    played = leases.lease("sh -c 'exit 0'", gb10_lease_lost_seconds=60, gb10_serve_timeout=300, on_output=killed)
    assert killed.fired and played.rc != 0
    for host in (HEAD, WORKER):
        lease = leases.lab.json(host, LEASE)
        # The second node would wait for the first one's service.
        assert (lease["state"], lease["clusters"], lease["lost_seconds"]) == ("live", [], 60 if host == HEAD else 360) and leases.clusters(host) == set(), lease
    assert leases.record(HEAD)["phase"] == "switching"
    over = leases.ended_by_nodes("singles")
    assert all("back to singles" in lease["reason"] for lease in over.values()), over
    assert leases.clusters(HEAD) == {HEAD} and leases.clusters(WORKER) == set()
    assert "the cluster works" in says(leases.lab, HEAD, HEAD, "tiny")
    leases.declare("singles")
    leases.nothing_left("singles", {HEAD: {HEAD}})


def test_ctrl_c_ends_the_command_and_the_nodes_go_back_at_once(leases: Leases) -> None:
    leases.declare("off")
    own = {"__gb10_shared_tolerance_mb": 16384, "gb10_records_dir": str(leases.lab.scratch)}
    leases.lab.interrupt("  at work", "mode", gb10_mode="cluster", gb10_lease=WORK, gb10_lease_lost_seconds=86400, **own)
    over = leases.ended_by_nodes("off")
    assert all("its caller gave it up before the command had ended" in lease["reason"] for lease in over.values()), over
    assert leases.clusters(HEAD) == leases.clusters(WORKER) == set()
    leases.declare("off")
    leases.nothing_left("off", {})


@pytest.fixture
def speech(lab: Lab) -> t.Iterator[dict[str, t.Any]]:
    """The declaration of a companion that runs on the head only in the mode singles."""
    lab.run(HEAD, "mkdir", "-p", PLACE)
    lab.write(HEAD, f"{PLACE}/standin.py", (SOURCES / "standin.py").read_text(encoding="utf-8"))
    lab.write(HEAD, UNIT_FILE, UNIT_TEXT)
    lab.run(HEAD, "systemctl", "daemon-reload")
    declared = {HEAD: [{**SPEECH, "modes": ["singles"]}], WORKER: []}
    yield {"gb10_companions": f"{{{{ {json.dumps(declared)}[inventory_hostname] }}}}"}
    lab.run(HEAD, "systemctl", "stop", UNIT, check=False)
    lab.run(HEAD, "rm", "-rf", UNIT_FILE, PLACE)
    lab.run(HEAD, "systemctl", "daemon-reload")


def test_the_pair_gives_way_to_a_service_with_its_companion_and_is_back_after_it(leases: Leases, speech: dict[str, t.Any]) -> None:
    leases.declare("cluster", **speech)
    assert not active(leases.lab)

    def look() -> None:
        assert leases.clusters(HEAD) == {HEAD} and leases.clusters(WORKER) == set() and active(leases.lab)

    judge = Judge(leases.lab.scratch, look)
    played = leases.lease(judge.command, "singles", on_output=judge.on_output, **speech)
    assert played.rc == 0 and "the cluster works" in played.said, played.said[-4000:]
    judge.join()
    assert not active(leases.lab)
    leases.nothing_left("cluster", PAIR)
    assert "the cluster works" in says(leases.lab, HEAD, "gb10", "tiny")


def test_a_reboot_of_a_node_ends_the_lease_on_all_and_the_pair_is_back(leases: Leases) -> None:
    """The caller is live and reaches the nodes, but the node lost the lease's state with the boot."""
    leases.declare("cluster")
    booted = Once("  at work", lambda: reboot(HEAD))
    played = leases.lease(WORK, "singles", gb10_lease_lost_seconds=86400, on_output=booted)
    assert played.rc != 0 and "the node was rebooted" in played.said, played.said[-4000:]
    booted.join()
    over = leases.ended_by_nodes("cluster")
    assert "the node was rebooted" in over[HEAD]["reason"] and "its caller gave it up" in over[WORKER]["reason"], over
    for host in (HEAD, WORKER):
        assert leases.clusters(host) == {"gb10"}
        assert leases.lab.run(host, "systemctl", "is-enabled", "gb10-engine-gb10.service").strip() == "enabled"
    assert "the cluster works" in says(leases.lab, HEAD, "gb10", "tiny")
    leases.declare("cluster")
    leases.nothing_left("cluster", PAIR)


def test_a_lease_of_another_run_is_refused(leases: Leases) -> None:
    """The record alone is enough. This controller knows nothing else about the run that has the lease."""
    leases.declare("off")
    boot = leases.lab.run(HEAD, "cat", "/proc/sys/kernel/random/boot_id").strip()
    uptime = float(leases.lab.run(HEAD, "cat", "/proc/uptime").split()[0])
    lease = {
        "schema": 1, "id": "0f3b8a2f6c1d4e57", "holder": {"user": "bob", "hostname": "elsewhere", "pid": 7}, "program": "judge.sh", "mode": "cluster",
        "began_at": "2026-11-24T07:00:00Z", "lost_seconds": 3600, "state": "live", "reason": "", "boot_id": boot, "renewed_s": uptime, "clusters": [],
        "restore": [], "whole": True, "awaits": {}, "memory": {}, "companions": False, "roots": {},
    }  # fmt: skip
    leases.lab.run(HEAD, "mkdir", "-p", str(Path(LEASE).parent))
    leases.lab.write(HEAD, LEASE, json.dumps(lease))
    refused = leases.lab.play("mode", gb10_mode="off")
    assert refused.rc != 0 and "it is leased by bob@elsewhere, process 7, for judge.sh" in refused.said, refused.said[-3000:]
    leases.declare("off", gb10_break_lock=lease["id"])
    leases.nothing_left("off", {})
