# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One declared mode: off, a model on each node, one over both, and what goes wrong on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import typing as t
from pathlib import Path

import pytest
import yaml

from .lab import HEAD, INVENTORY, ROOT, WORKER, Lab, Once, Play
from .test_models import CACHE, LAY, PARTS, SERVICES, says

#: The profile of the mode cluster, the lab's own, and its model.
PAIR = "gb10"
MODE = "/var/lib/gb10/mode.json"


class Modes:
    """The nodes with a mode of their own, by the inventory of the pair and a profile for each node."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def change(self, mode: str, rc: int = 0, **variables: t.Any) -> Play:
        """Declare a mode."""
        played = self.lab.play("mode", gb10_mode=mode, **variables)
        assert (played.rc == 0) == (rc == 0), played.said[-4000:]
        return played

    def record(self, host: str = HEAD) -> dict[str, t.Any]:
        return self.lab.json(host, MODE)

    def said(self, mode: str) -> None:
        """Assert that exactly what a mode has is there, and that it answers."""
        there = {host: self.clusters(host) for host in (HEAD, WORKER)}
        if mode == "singles":
            assert there == {host: {host} for host in SERVICES}
            for host, (_profile, model) in SERVICES.items():
                assert "the cluster works" in says(self.lab, host, host, model)
        elif mode == "cluster":
            assert there == {host: {PAIR} for host in SERVICES}
            assert "the cluster works" in says(self.lab, HEAD, PAIR, "tiny")
        else:
            assert there == {host: set() for host in SERVICES}
        for host in (HEAD, WORKER):
            record = self.record(host)
            assert (record["mode"], record["phase"]) == (mode, "settled"), record

    def clusters(self, host: str) -> set[str]:
        """The clusters that have a container on a node, running or not."""
        listed = self.lab.run(host, "docker", "ps", "--all", "--filter", "label=io.gb10.owner", "--format", '{{.Label "io.gb10.cluster"}}')
        return set(listed.split())


@pytest.fixture(scope="module")
def modes(tmp_path_factory: pytest.TempPathFactory, lab: Lab) -> t.Iterator[Modes]:
    lab.down()
    directory: Path = tmp_path_factory.mktemp("modes")
    for host in (HEAD, WORKER):
        commit, patterns = PARTS["other"]
        lab.run(host, "python3", "-c", LAY, CACHE, "other", commit, *patterns)
    hosts = {host: {"gb10_single_profile": profile} for host, (profile, _model) in SERVICES.items()}
    # The nodes of all labs share the machine's memory, so what another one takes meanwhile is no leak.
    everywhere = {"hosts": hosts, "vars": {"gb10_memory_tolerance_mb": 16384}}
    (directory / "services.yml").write_text(yaml.safe_dump({"all": everywhere}), encoding="utf-8")
    made = Modes(Lab(directory, [INVENTORY, directory / "services.yml"]))
    yield made
    made.change("off", gb10_interrupt_requests=True, gb10_mode_forget=True)
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-rf", f"{CACHE}/models--gb10-lab--tiny-other", "/var/lib/gb10/model-code")


def test_from_off_to_a_model_on_each_node_to_one_over_both_and_back(modes: Modes) -> None:
    modes.change("off")
    downtimes = {}
    for mode in ("singles", "cluster", "off"):
        played = modes.change(mode)
        report = played.stat("gb10_mode_report")
        assert (report["mode"], report["phase"], played.stat("gb10_verdict")) == (mode, "settled", "pass")
        downtimes[mode] = report["seconds_down"]
        modes.said(mode)
        assert modes.change(mode).changed == {}
        checked = modes.lab.play("mode", check=True, gb10_mode=mode)
        assert checked.rc == 0 and checked.changed == {}, checked.said[-2000:]
    # Nothing served before the first one, and nothing does after the last one.
    assert downtimes["singles"] is None and downtimes["cluster"] > 0 and downtimes["off"] is None, downtimes


def test_check_mode_says_what_it_would_stop_and_start(modes: Modes) -> None:
    modes.change("singles")
    checked = modes.lab.play("mode", check=True, gb10_mode="cluster")
    assert checked.rc == 0 and checked.changed == {}, checked.said[-2000:]
    assert "Mode: singles -> cluster" in checked.said
    assert f"down: {HEAD} on {HEAD} (the mode cluster does not have it)" in checked.said
    assert f"up: {PAIR} on {HEAD}, {WORKER}, profile lab_tiny_tp2" in checked.said
    modes.said("singles")


def test_a_bring_up_of_something_else_is_refused_and_names_the_mode(modes: Modes) -> None:
    modes.change("singles")
    refused = modes.lab.play("serve", skip_tags="proof")
    assert refused.rc != 0 and "the declared mode is singles" in refused.said and "-e gb10_mode=cluster" in refused.said, refused.said[-3000:]
    modes.said("singles")


def test_one_screen_without_sudo_says_mode_models_and_memory(modes: Modes) -> None:
    modes.change("singles")
    played = modes.lab.play("status", tags="glance", ansible_become_exe="/bin/false")
    assert played.rc == 0 and "Mode: singles, settled since" in played.said, played.said[-3000:]
    for host, (_profile, model) in SERVICES.items():
        (one,) = played.stat("gb10_glance")[host]["engines"]
        assert (one["cluster"], one["state"]) == (host, "running") and one["model"].endswith(model) and one["token"]["seconds"] > 0
        # Everybody may read it, and nothing in it is a secret.
        key = modes.lab.run(host, "cat", f"/etc/gb10/secrets/{host}/api_key").strip()
        shown = modes.lab.run(host, "runuser", "-u", "nobody", "--", "cat", MODE, f"/var/lib/gb10/{host}/glance.json")
        assert key and key not in shown


def test_memory_that_does_not_come_back_starts_nothing(modes: Modes) -> None:
    """The note of what was available before the start says 64 GiB more than there was, so that as much seems to be missing."""
    modes.change("singles")
    path = f"/var/lib/gb10/{WORKER}/memory.json"
    note = modes.lab.json(WORKER, path)
    modes.lab.write(WORKER, path, json.dumps({**note, "available_mb": note["available_mb"] + 65536}))
    failed = modes.change("cluster", rc=1, gb10_mode_return=True)
    assert "have not come back" in failed.said and failed.stat("gb10_mode_report")["phase"] == "leak", failed.said[-3000:]
    assert {modes.record(host)["phase"] for host in (HEAD, WORKER)} == {"leak"}
    assert modes.clusters(HEAD) == modes.clusters(WORKER) == set()
    # What holds the memory is gone, as after a reboot: the same command goes on.
    modes.change("cluster")
    modes.said("cluster")


class Broken:
    """The same inventory with a profile whose engine is started with an argument that it does not know."""

    def __init__(self, modes: Modes, name: str, extends: str, variables: t.Callable[[str], dict[str, t.Any]]) -> None:
        scratch = modes.lab.scratch / name
        shutil.copytree(ROOT / "tests" / "lab" / "profiles", scratch)
        profile = {"schema": 1, "id": name, "extends": extends, "serve": {"no_such_argument": True}, "evidence": "untested"}
        (scratch / f"{name}.yml").write_text(yaml.safe_dump(profile), encoding="utf-8")
        (scratch / "hosts.yml").write_text(yaml.safe_dump({"all": variables(str(scratch / f"{name}.yml"))}), encoding="utf-8")
        self.modes = Modes(Lab(scratch, [INVENTORY, modes.lab.scratch / "services.yml", scratch / "hosts.yml"]))


def test_a_service_that_does_not_come_up_gives_way_to_the_pair_before(modes: Modes) -> None:
    modes.change("cluster")
    broken = Broken(modes, "lab_broken_one", SERVICES[WORKER][0], lambda path: {"hosts": {WORKER: {"gb10_single_profile": path}}})
    failed = broken.modes.change("singles", rc=1, gb10_mode_return=True)
    assert "the mode is cluster again, as before" in failed.said, failed.said[-4000:]
    assert failed.stat("gb10_mode_report")["mode"] == "cluster"
    modes.said("cluster")


def test_a_pair_that_does_not_come_up_is_on_record_on_both_nodes_and_gives_way_when_asked(modes: Modes) -> None:
    """A task that fails on one node takes the others out of all plays that follow, unless somebody puts them back."""
    modes.change("singles")
    broken = Broken(modes, "lab_broken_tp2", "lab_tiny_tp2", lambda path: {"hosts": {host: {"gb10_profile": path} for host in (HEAD, WORKER)}})
    failed = broken.modes.change("cluster", rc=1)
    assert failed.stat("gb10_mode_report")["phase"] == "failed", failed.said[-4000:]
    for host in (HEAD, WORKER):
        assert (modes.record(host)["mode"], modes.record(host)["phase"]) == ("cluster", "failed")
        assert modes.lab.run(host, "ls", "/var/lib/gb10", check=False).count("mode.lock.json") == 0
    failed = broken.modes.change("cluster", rc=1, gb10_mode_return=True)
    assert "the mode is singles again, as before" in failed.said, failed.said[-4000:]
    modes.said("singles")


def test_of_two_operators_at_once_one_is_refused(modes: Modes) -> None:
    modes.change("cluster")
    refusals: list[Play] = []
    second = Once("mode : Declare that it changes", lambda: refusals.append(modes.lab.play("mode", gb10_mode="singles")))
    played = modes.lab.play("mode", gb10_mode="off", on_output=second)
    second.join()
    assert played.rc == 0 and refusals[0].rc != 0, (played.said[-2000:], refusals[0].said[-2000:])
    assert "another run works on this cluster" in refusals[0].said, refusals[0].said[-2000:]
    modes.said("off")


class Killer:
    """Kills a play, as a crash of the controller does, as soon as so many tasks of it have changed something."""

    def __init__(self, after: int) -> None:
        self.left, self.task, self.fired = after, "", False
        self._current = ""

    def __call__(self, output: str, pid: int) -> None:
        if "TASK [" in output:
            self._current = output.rsplit("TASK [", 1)[1].split("]")[0]
        if self._current != self.task and "changed: [" in output and not self.fired:
            self.task, self.left = self._current, self.left - 1
            if self.left == 0:
                self.fired = True
                os.killpg(os.getpgid(pid), signal.SIGKILL)


def test_killed_after_every_changing_task_the_next_run_ends_in_the_declared_mode(modes: Modes) -> None:
    """One way and back, and a task later each time, until a run ends before its task comes."""
    modes.change("cluster")
    killed: dict[str, list[str]] = {"singles": [], "cluster": []}
    ended: set[str] = set()
    for number in range(1, 60):
        for mode in ("singles", "cluster"):
            if mode not in ended:
                killer = Killer(number)
                played = modes.lab.play("mode", gb10_mode=mode, on_output=killer)
                if killer.fired:
                    killed[mode].append(killer.task)
                else:
                    assert played.rc == 0, played.said[-3000:]
                    ended.add(mode)
            modes.change(mode)
            modes.said(mode)
            print(f"{mode}: {len(killed[mode])} killed, the last after {killed[mode][-1:]}")
        if len(ended) == 2:
            break
    assert all(len(names) >= 8 for names in killed.values()), killed
