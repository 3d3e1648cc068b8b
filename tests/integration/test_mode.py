# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One declared mode: off, a model on each node, one over both, and what goes wrong on the way."""

from __future__ import annotations

import datetime
import json
import re
import typing as t

import pytest
import yaml

from .lab import HEAD, INVENTORY, WORKER, Lab, Once, Play
from .making import boot, full_state_disk, play_losing_ssh, reboot, shut_down
from .modes import MODE, PAIR, Modes, profiles_with
from .recovering import Pair, lack, spend
from .test_models import SERVICES, says
from .test_unit import active, await_state, state, unit


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
    # Nothing served before the first mode, and nothing serves after the last one.
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
        (engine,) = played.stat("gb10_glance")[host]["engines"]
        assert (engine["cluster"], engine["state"]) == (host, "running") and engine["model"].endswith(model) and engine["token"]["seconds"] > 0
        assert re.match(r"start: \d+ s \(.*weights \d+, warmup \d+, first token \d+\)", engine["start"]) and engine["start"] in played.said, engine
        # All accounts may read these files, which contain no secret.
        key = modes.lab.run(host, "cat", f"/etc/gb10/secrets/{host}/api_key").strip()
        shown = modes.lab.run(host, "runuser", "-u", "nobody", "--", "cat", MODE, f"/var/lib/gb10/glance-{host}.json")
        assert key and key not in shown
    screen = played.stdout[played.stdout.index("Mode: singles") :].partition("PLAY RECAP")[0]
    assert len(list(filter(str.strip, screen.splitlines()))) <= 18, screen


def test_memory_that_does_not_come_back_starts_nothing(modes: Modes) -> None:
    """The note of the memory before the start is increased by 64 GiB, so that this much seems to be missing."""
    modes.change("singles")
    path = f"/var/lib/gb10/{WORKER}/memory.json"
    note = modes.lab.json(WORKER, path)
    modes.lab.write(WORKER, path, json.dumps({**note, "available_mb": note["available_mb"] + 65536}))
    failed = modes.change("cluster", rc=1, gb10_mode_return=True)
    assert "have not come back" in failed.said and failed.stat("gb10_mode_report")["phase"] == "leak", failed.said[-3000:]
    assert {modes.record(host)["phase"] for host in (HEAD, WORKER)} == {"leak"}
    assert modes.clusters(HEAD) == modes.clusters(WORKER) == set()
    # The memory is free again, as after a reboot, so the same command continues.
    modes.change("cluster")
    modes.said("cluster")


class Broken:
    """The same inventory with a profile whose settings the engine refuses: fewer tokens per step than sequences."""

    def __init__(self, modes: Modes, name: str, extends: str, variables: t.Callable[[str], dict[str, t.Any]]) -> None:
        scratch = profiles_with(modes.lab.scratch / name, {name: {"extends": extends, "serve": {"max_num_batched_tokens": 1}}})
        (scratch / "hosts.yml").write_text(yaml.safe_dump({"all": variables(str(scratch / f"{name}.yml"))}), encoding="utf-8")
        self.modes = Modes(Lab(scratch, [INVENTORY, modes.lab.scratch / "services.yml", scratch / "hosts.yml"]))


def test_a_service_that_does_not_come_up_gives_way_to_the_pair_before(modes: Modes) -> None:
    modes.change("cluster")
    broken = Broken(modes, "lab_broken_one", SERVICES[WORKER][0], lambda path: {"hosts": {WORKER: {"gb10_single_profile": path}}})
    failed = broken.modes.change("singles", rc=1, gb10_mode_return=True)
    assert "the mode is cluster again, as before" in failed.said, failed.said[-4000:]
    assert failed.stat("gb10_mode_report")["mode"] == "cluster"
    modes.said("cluster")


def test_a_pair_that_does_not_come_up_is_recorded_on_both_nodes_and_gives_way_when_asked(modes: Modes) -> None:
    """When a task fails on one node, Ansible drops the other nodes from all later plays unless the playbook restores them."""
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
    second = Once("mode : Record that the mode changes", lambda: refusals.append(modes.lab.play("mode", gb10_mode="singles")))
    played = modes.lab.play("mode", gb10_mode="off", on_output=second)
    second.join()
    assert played.rc == 0 and refusals[0].rc != 0, (played.said[-2000:], refusals[0].said[-2000:])
    assert "another run works on this cluster" in refusals[0].said, refusals[0].said[-2000:]
    modes.said("off")


# --- layouts --------------------------------------------------------------------------------------------------------------

#: Another model over both nodes, and a profile that the engine refuses: fewer tokens per step than sequences.
PAIRS = {
    "lab_other_tp2": {
        "extends": "lab_tiny_native_tp2", "model": {"repo": "gb10-lab/tiny-other", "revision": "f" * 40, "served_names": ["gb10-lab/other"]},
    },
    "lab_refused_tp2": {"extends": "lab_tiny_native_tp2", "serve": {"max_num_batched_tokens": 1}},
}  # fmt: skip


@pytest.fixture(scope="module", name="layouts")
def fixture_layouts(modes: Modes) -> Modes:
    """The same nodes with layouts in place of profiles for each node."""
    scratch = profiles_with(modes.lab.scratch / "layouts", PAIRS)
    path = {name: str(scratch / f"{name}.yml") for name in PAIRS}
    layouts = {
        "day": {host: profile for host, (profile, _model) in SERVICES.items()},
        "big": {"all": "lab_tiny_tp2"},
        "other": {f"{HEAD},{WORKER}": path["lab_other_tp2"]},
        "refused": {"all": path["lab_refused_tp2"]},
    }
    shared = {"gb10_layouts": layouts, "__gb10_shared_tolerance_mb": 16384}
    (scratch / "hosts.yml").write_text(yaml.safe_dump({"gb10_cluster": {"vars": shared}}), encoding="utf-8")
    return Modes(Lab(scratch, [INVENTORY, scratch / "hosts.yml"]))


def started_at(lab: Lab, host: str) -> datetime.datetime:
    """When the engine of a node's own service was started, by its run."""
    return datetime.datetime.strptime(lab.json(host, f"/var/lib/gb10/{host}/run/run.json")["run_id"].split("-")[0], "%Y%m%dT%H%M%SZ")


def test_two_singles_a_pair_a_pair_of_another_model_and_nothing(layouts: Modes) -> None:
    layouts.change("off")
    lab = layouts.lab
    both, none = {HEAD: {PAIR}, WORKER: {PAIR}}, {HEAD: set(), WORKER: set()}
    expected = {"day": ({host: {host} for host in SERVICES}, SERVICES), "big": (both, {PAIR: ("", "tiny")}), "other": (both, {PAIR: ("", "gb10-lab/other")})}
    for mode, (clusters, models) in {**expected, "off": (none, {})}.items():
        played = layouts.change(mode)
        report = played.stat("gb10_mode_report")
        assert (report["mode"], report["phase"], report["services"]) == (mode, "settled", dict.fromkeys(models, "serves")), played.said[-3000:]
        assert {host: layouts.clusters(host) for host in (HEAD, WORKER)} == clusters
        for name, (_profile, model) in models.items():
            assert "the cluster works" in says(lab, name if name in SERVICES else HEAD, name, model)
        if mode == "day":
            took = re.search(rf"{HEAD}: ready after (\d+):(\d+)", played.said)
            assert took, played.said[-3000:]
            ready = started_at(lab, HEAD) + datetime.timedelta(minutes=int(took[1]), seconds=int(took[2]))
            assert started_at(lab, WORKER) < ready, "the second service loads while the first one does"
        assert layouts.change(mode).changed == {}


def test_a_layout_that_fails_gives_way_to_the_one_before(layouts: Modes) -> None:
    layouts.change("day")
    failed = layouts.change("refused", rc=1, gb10_mode_return=True)
    assert "the mode is day again, as before" in failed.said, failed.said[-4000:]
    assert failed.stat("gb10_mode_report")["services"] == dict.fromkeys(SERVICES, "serves")
    assert {host: layouts.clusters(host) for host in SERVICES} == {host: {host} for host in SERVICES}
    assert all((layouts.record(host)["mode"], layouts.record(host)["phase"]) == ("day", "settled") for host in SERVICES)


def test_what_serve_brought_up_is_returned_to_and_its_teardown_leaves_no_record(layouts: Modes) -> None:
    layouts.change("off", gb10_allow="forget")
    served = layouts.lab.play("serve")
    assert served.rc == 0 and {layouts.record(host)["mode"] for host in SERVICES} == {"serve"}, served.failures
    assert layouts.lab.play("serve").changed == {}
    failed = layouts.change("refused", rc=1, gb10_mode_return=True)
    assert "the mode is serve again, as before" in failed.said, failed.said[-4000:]
    assert "the cluster works" in says(layouts.lab, HEAD, PAIR, "tiny")
    down = layouts.lab.play("teardown")
    assert down.rc == 0 and "declared mode remains" not in down.said, down.failures
    assert all(layouts.lab.run(host, "ls", "/var/lib/gb10").split().count("mode.json") == 0 for host in SERVICES)


@pytest.fixture(name="degraded")
def fixture_degraded(layouts: Modes) -> t.Iterator[dict[str, t.Any]]:
    """The settings with which a pair that is given up leaves one node serving alone."""
    day = {host: profile for host, (profile, _model) in SERVICES.items()}
    yield {"gb10_layouts": {"day": day, "big": {"all": "lab_tiny_tp2", "degraded": "day"}}, "gb10_recover": "restart", "gb10_serve_timeout": 300}
    Pair(layouts.lab, "ray").lengthen()


def has_unit(lab: Lab, host: str) -> bool:
    """Return whether a node has the unit of its own service, which must not start at a boot."""
    listed = lab.run(host, "systemctl", "is-enabled", unit(host), check=False).strip()
    assert listed in ("disabled", "not-found", ""), listed
    return listed == "disabled"


def running(lab: Lab, host: str) -> set[str]:
    """The clusters whose container runs on a node."""
    return set(lab.run(host, "docker", "ps", "--filter", "label=io.gb10.owner", "--format", '{{.Label "io.gb10.cluster"}}').split())


def test_a_pair_that_is_given_up_leaves_one_node_serving_alone_until_the_mode_is_typed(layouts: Modes, degraded: dict[str, t.Any]) -> None:
    lab, pair = layouts.lab, Pair(layouts.lab, "ray")
    layouts.change("off")
    unready = layouts.change("big", **degraded)
    assert f"degraded: {HEAD} has no unit of day; run mode day once" in unready.said, unready.said[-3000:]
    layouts.change("day", **degraded)
    ready = layouts.change("big", **degraded)
    assert "has no unit of day" not in ready.said and all(has_unit(lab, host) for host in SERVICES), ready.said[-3000:]
    assert layouts.change("big", **degraded).changed == {}
    pair.shorten()
    pair.rest()
    # The memory of the worker seems not to come back.
    lack(pair, WORKER)
    pair.await_outcome("stopped: ")
    said = pair.await_text(f"; meanwhile {HEAD} serves alone, until it reboots", HEAD)
    assert f"{WORKER} lacks " in said and f"Reboot {WORKER}, then run mode" in said and "serves alone" not in pair.says(WORKER)
    assert (running(lab, HEAD), running(lab, WORKER)) == ({HEAD}, set()) and active(lab, WORKER, unit(WORKER)) == "inactive"
    assert "the cluster works" in says(lab, HEAD, HEAD, SERVICES[HEAD][1]) and has_unit(lab, HEAD)
    shown = lab.play("status", tags="glance", **degraded)
    assert f"degraded: {HEAD} serves alone" in shown.said and "Mode: big, settled since" in shown.said, shown.said[-3000:]
    # The pair's recovery leaves it alone.
    looks = {host: pair.look(host)["seq"] for host in SERVICES}
    pair.await_that(lambda host: pair.look(host)["seq"] > looks[host] + 5)
    assert all(len(pair.look(host)["history"]) == 1 for host in SERVICES) and running(lab, HEAD) == {HEAD}
    # After a reboot of the worker its memory is no longer missing.
    pair.broken.close()
    layouts.change("big", **degraded)
    pair.await_kind("well")
    assert layouts.clusters(HEAD) == layouts.clusters(WORKER) == {PAIR} and "the cluster works" in says(lab, HEAD, PAIR, "tiny")
    assert pair.look(HEAD)["stopped"] == "" and has_unit(lab, HEAD) and layouts.change("big", **degraded).changed == {}
    # With its budget used up, the pair is given up for the engines of both nodes.
    pair.rest()
    spend(pair)
    pair.signal(WORKER, "STOP")
    for host in SERVICES:
        said = pair.await_text(f"; meanwhile {host} serves alone, until it reboots", host)
        assert "the budget of 2 recoveries within 6 h is used up. Run the doctor, then mode; meanwhile" in said and running(lab, host) == {host}
    layouts.change("big", **degraded)
    assert layouts.clusters(HEAD) == layouts.clusters(WORKER) == {PAIR} and "the cluster works" in says(lab, HEAD, PAIR, "tiny")
    layouts.change("off", **degraded)
    assert not any(has_unit(lab, host) for host in SERVICES)


def test_an_unknown_mode_names_the_layouts(layouts: Modes) -> None:
    refused = layouts.change("night", rc=1)
    assert "gb10_mode is night; expected one of cluster, singles, off, big, day, other, refused." in refused.said, refused.said[-3000:]


# --- faults during a change ---------------------------------------------------------------------------------------------

#: Printed by a play when a change begins, when its stop of services begins, and when its start of services begins.
BEGUN, GOES_DOWN, COMES_UP = "mode : Record that the mode changes", "teardown : Stop the engine", "mode_begin.yml for "


def test_ssh_to_the_worker_lost_on_the_way_is_named_and_the_next_run_goes_on(modes: Modes) -> None:
    modes.change("singles")
    played, _at = play_losing_ssh(modes.lab, GOES_DOWN, WORKER, "mode", gb10_mode="cluster")
    assert played.rc != 0 and played.stat("gb10_mode_report")["phase"] == "failed", played.said[-4000:]
    assert f"{WORKER} it could not be reached" in played.said and modes.record(HEAD)["phase"] == "failed", played.said[-4000:]
    modes.change("cluster")
    modes.said("cluster")


def test_a_worker_that_reboots_on_the_way_is_named_and_the_next_run_goes_on(modes: Modes) -> None:
    modes.change("singles")
    rebooted = Once(COMES_UP, lambda: reboot(WORKER))
    played = modes.lab.play("mode", gb10_mode="cluster", on_output=rebooted)
    rebooted.join()
    if played.rc:
        assert played.stat("gb10_mode_report")["phase"] == "failed" and WORKER in played.failures, played.said[-4000:]
        modes.change("cluster")
    modes.said("cluster")


def test_a_node_that_never_comes_back_is_named_and_the_rest_is_cleared_by_consent(modes: Modes) -> None:
    modes.change("cluster")
    shut_down(WORKER)
    try:
        refused = modes.lab.play("mode", gb10_mode="off")
        assert refused.rc != 0 and "-e gb10_allow=lost_node" in refused.said and WORKER in refused.failures, refused.said[-3000:]
        assert PAIR in modes.clusters(HEAD)
        cleared = modes.lab.play("mode", gb10_mode="off", gb10_allow="lost_node")
        assert cleared.rc != 0 and f"{WORKER} it could not be reached" in cleared.said, cleared.said[-3000:]
        assert modes.clusters(HEAD) == set() and modes.record(HEAD)["phase"] == "failed"
    finally:
        boot(WORKER)
    # Its unit waits for a head that is gone. Meanwhile it does not keep the cluster's lock.
    await_state(modes.lab, WORKER, unit(PAIR), lambda: state(modes.lab, WORKER, PAIR)["reason"] == f"waits for {HEAD}")
    modes.change("off")
    modes.said("off")


def test_a_full_disk_is_said_before_anything_stops(modes: Modes) -> None:
    modes.change("singles")
    with full_state_disk(modes.lab, WORKER):
        refused = modes.lab.play("mode", gb10_mode="cluster")
        assert refused.rc != 0 and "No space left on device" in refused.failures and "/var/lib/gb10" in refused.failures, refused.said[-3000:]
        modes.said("singles")
    modes.change("cluster")
    modes.said("cluster")
