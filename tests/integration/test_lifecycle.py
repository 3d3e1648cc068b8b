# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of a cluster: one tag at a time, drift, consent, teardown and the next bring-up."""

from __future__ import annotations

import collections
import json
import subprocess

import pytest

from .lab import HEAD, INVENTORY, ROOT, UNIT, WORKER, Lab, Play

#: Files of the role engine, and other roles, that each stage runs; `validate` runs always, the lock around every stage that changes something,
#: `abort_before` notes what existed before, `engine_judge` resolves the engine's arguments.
LOCK = {"lock_acquire", "lock_release"}
STAGES = {
    "preflight": {"doctor"},
    "image": {"image", *LOCK},
    "model": {"model_look", "model_judge", *LOCK},
    "memory": {"memory", *LOCK},
    "ray": {"abort_before", "engine_judge", "ray_head", "ray_worker", "ray_gate", "secrets_make", *LOCK},
    "serve": {"abort_before", "engine_judge", "vllm_server", "engine_unit", *LOCK},
    "proof": {"engine_judge", "proof", "proof_record"},
    "report": {"engine_judge", "report"},
}

#: The queries for the engine's arguments that a stage makes when no earlier stage has made them.
ARGUMENTS = {"Ask what the image holds", "Ask what the ladder recorded, and for what", "Choose the context length"}
#: The queries that a stage makes when the stage that usually makes them did not run.
ASKS_ALONE = {
    "ray": ARGUMENTS,
    "serve": ARGUMENTS,
    "proof": {*ARGUMENTS, "Read each node's counters", "Ask for the sizes of the model", "Ask the engine for a completion"},
    "report": {*ARGUMENTS, "Ask about the engine", "Ask about the node container", "Ask about the image"},
}


def short(role: str) -> str:
    return role.rsplit(".", maxsplit=1)[-1]


@pytest.fixture(scope="module")
def first(lab: Lab) -> Play:
    """A run that brings the cluster up."""
    played = lab.play(gb10_allow="restart")
    assert played.rc == 0, played.failures
    return played


@pytest.fixture(scope="module")
def converged(lab: Lab, first: Play) -> Play:
    """A second run on a serving cluster. It changes nothing, and gives the tasks of every stage."""
    second = lab.play()
    assert (second.rc, second.changed) == (0, {}), second.stdout
    return second


def test_a_converged_run_costs_few_tasks_and_calls(converged):
    """Counted as in bench/converged.py. The calls are those of the node with the most calls."""
    assert sum(event["event"] == "playbook_on_task_start" for event in converged.events) <= 35
    calls = collections.Counter(
        data["host"]
        for event in converged.events
        if event["event"] == "runner_on_ok" and (data := event["event_data"])["task_action"].startswith("gb10.cluster.") and data["host"] != "localhost"
        if data["task_action"] not in ("gb10.cluster.judge", "gb10.cluster.inputs_info")
    )
    assert max(calls.values()) <= 12, calls


def test_check_mode_on_a_converged_cluster_changes_nothing(lab, converged):
    played = lab.play(check=True)
    assert (played.rc, played.changed) == (0, {}), played.stdout


def test_a_bring_up_leaves_a_unit_that_starts_at_boot_on_each_node(lab, converged):
    for host in (HEAD, WORKER):
        shown = lab.run(host, "systemctl", "show", "--property=ActiveState,UnitFileState", UNIT).split()
        assert sorted(shown) == ["ActiveState=active", "UnitFileState=enabled"], host


def test_secrets_are_not_in_the_job_output(lab, first, converged):
    secrets = [lab.run(HEAD, "cat", f"/etc/gb10/secrets/gb10/{name}").strip() for name in ("api_key", "ray_token")]
    for played in (first, converged):
        output = played.stdout + json.dumps(played.events)
        assert "PLAY RECAP" in output
        assert not any(secret in output for secret in secrets)


@pytest.mark.parametrize("stage", STAGES)
def test_a_tag_runs_exactly_its_stage(lab, converged, stage):
    played = lab.play(tags=stage)
    assert (played.rc, played.changed) == (0, {}), played.stdout
    expected = [task for task in converged.tasks() if short(task[0]) in STAGES[stage] | {"validate", ""}]
    assert len(expected) > 2
    assert [task for task in played.tasks() if task in expected] == expected
    # The preflight shows which nodes answer. Without it a separate task checks that.
    alone = ASKS_ALONE.get(stage, set()) | ({"Check which nodes answer"} if stage != "preflight" else set())
    assert {name for _role, name in set(played.tasks()) - set(expected)} == alone


def test_report_is_complete(converged):
    report = converged.stat("gb10_report")
    assert report["engine"]["live"] is True
    # The lock has already seen the live engine, so no caches are dropped and the engine is not asked again.
    assert list(report["stages"]) == ["preflight", "image", "model", "ray", "serve", "proof"]
    assert {proof["verdict"] for proof in report["proofs"]} == {"pass"}
    of_ranks = {"completion", "rank_hosts", "halted", "env", "env_same", "fabric", "secrets"}
    proven = {*of_ranks, "device", "capability", "entrypoint", "memlock", "hub_token", "auth"}
    assert {proof["id"] for proof in report["proofs"]} == {f"proof.{name}" for name in proven}


def ids(lab: Lab) -> dict[str, str]:
    """Ids of the node containers, and the run id of the engine."""
    run = lab.json(HEAD, "/var/lib/gb10/gb10/run/run.json")
    return {"head": lab.containers(HEAD)["gb10-gb10-head"], "worker": lab.containers(WORKER)["gb10-gb10-worker"], "engine": run["run_id"]}


def created(lab: Lab, since: str) -> list[str]:
    """Names of the containers that were created on any node since a time."""
    form = ("--since", since, "--until", "0s", "--filter", "type=container", "--filter", "event=create", "--format", "{{.Actor.Attributes.name}}")
    return [name for host in (HEAD, WORKER) for name in lab.run(host, "docker", "events", *form).split()]


def test_a_known_image_costs_no_container(lab, converged):
    since = lab.run(HEAD, "date", "+%s").strip()
    played = lab.play(tags="image,ray,serve,report")
    assert (played.rc, played.changed) == (0, {}), played.stdout
    assert created(lab, since) == []
    for host in (HEAD, WORKER):
        # The notes about a container's access to the GPU are separate.
        lab.run(host, "find", "/var/lib/gb10/image-contracts", "-name", "*.json", "-not", "-name", "*.gpu.json", "-delete")
    predicted = lab.play(tags="image", check=True)
    assert (predicted.rc, predicted.changed) == (0, {}), predicted.stdout
    assert len(created(lab, since)) == 4, "each node asks its image twice, in check mode too"
    kept = lab.run(HEAD, "sh", "-c", "stat --format '%U %a' /var/lib/gb10/image-contracts/*.json").split("\n")
    assert set(filter(None, kept)) == {"root 644"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"swap_space": 4}, "knows no --swap-space; it was removed in 0.18.0"),
        ({"mamba_cache_mode": "all"}, "does not take --mamba-cache-mode all; it was removed in 0.32.0"),
        ({"enable_sleep_mode": True}, "--enable-sleep-mode true is refused"),
    ],
)
def test_what_the_engine_does_not_take_stops_before_any_container(lab, converged, arguments, message):
    before, since = ids(lab), lab.run(HEAD, "date", "+%s").strip()
    blocked = lab.play(gb10_serve_arguments=arguments, gb10_allow="restart")
    assert blocked.rc != 0 and message in blocked.stdout
    assert created(lab, since) == [] and ids(lab) == before


def test_shared_env_blocks_while_the_engine_lives_and_recreates_all_with_consent(lab, converged):
    before = ids(lab)
    blocked = lab.play(gb10_env={"GB10_TEST_SHARED": "1"})
    assert blocked.rc != 0
    assert "GB10_TEST_SHARED" in blocked.failures
    assert "gb10_allow=restart" in blocked.stdout
    assert ids(lab) == before

    allowed = lab.play(gb10_env={"GB10_TEST_SHARED": "1"}, gb10_allow="restart")
    assert allowed.rc == 0, allowed.failures
    after = ids(lab)
    assert all(after[part] != before[part] for part in before)
    again = lab.play(gb10_env={"GB10_TEST_SHARED": "1"})
    assert (again.rc, again.changed) == (0, {}), again.stdout


def test_a_workers_own_variable_leaves_the_head_alone(lab, converged):
    lab.play(gb10_env={"GB10_TEST_SHARED": "1"})
    before = ids(lab)
    lab.write_host_vars(WORKER, {"gb10_host_env": {"GB10_TEST_OWN": "1"}})
    try:
        blocked = lab.play(gb10_env={"GB10_TEST_SHARED": "1"})
        assert blocked.rc != 0
        assert "GB10_TEST_OWN" in blocked.failures
        assert ids(lab) == before

        allowed = lab.play(gb10_env={"GB10_TEST_SHARED": "1"}, gb10_allow="restart")
        assert allowed.rc == 0, allowed.failures
        after = ids(lab)
        assert after["head"] == before["head"]
        assert after["worker"] != before["worker"]
        assert after["engine"] != before["engine"]
    finally:
        lab.remove_host_vars(WORKER)


def test_a_serve_argument_restarts_the_engine_alone(lab, converged):
    lab.play(gb10_allow="restart")
    before = ids(lab)
    blocked = lab.play(gb10_serve_arguments={"max_num_seqs": 4})
    assert blocked.rc != 0
    assert "max-num-seqs" in blocked.failures
    assert ids(lab) == before

    allowed = lab.play(gb10_serve_arguments={"max_num_seqs": 4}, gb10_allow="restart")
    assert allowed.rc == 0, allowed.failures
    after = ids(lab)
    assert (after["head"], after["worker"]) == (before["head"], before["worker"])
    assert after["engine"] != before["engine"]


def test_status_fits_on_a_screen(converged):
    """The whole output as typed: the command, Ansible's plays and recap, and the lines of each node."""
    done = subprocess.run([ROOT / "gb10", "status", "-i", INVENTORY], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    shown = (done.stderr + done.stdout).splitlines()
    assert done.returncode == 0 and len(shown) <= 18, "\n".join(shown)
    assert "TASK [" not in done.stdout and any(line.startswith(f"{HEAD}: gb10-gb10-head running since ") for line in shown), done.stdout


def test_teardown_leaves_nothing_and_the_next_bring_up_works(lab, converged):
    down = lab.play("teardown")
    assert down.rc == 0, down.failures
    for host in (HEAD, WORKER):
        assert lab.containers(host) == {} and not lab.has_unit(host)
        assert lab.run(host, "pgrep", "--full", "--list-full", "ray start|raylet|gcs_server|vllm", check=False) == ""
        assert ":6379 " not in lab.run(host, "ss", "-Hltn")
    assert lab.play("teardown").changed == {}

    predicted = lab.play(check=True)
    assert predicted.rc == 0, predicted.failures
    assert predicted.changed
    assert lab.containers(HEAD) == {}, "check mode made a container"
    assert not lab.has_unit(HEAD), "check mode made a unit"

    up = lab.play()
    assert up.rc == 0, up.failures


def test_a_proof_alone_stops_nothing(lab, no_cluster):
    """Nothing serves yet, and the proof may be looking at another play's start."""
    up = lab.play(tags="image,model,ray")
    assert up.rc == 0, up.failures
    before = {host: lab.containers(host) for host in (HEAD, WORKER)}
    proof = lab.play(tags="proof")
    assert proof.rc != 0 and "no completion" in proof.failures
    assert {host: lab.containers(host) for host in (HEAD, WORKER)} == before
    for host, name in ((HEAD, "gb10-gb10-head"), (WORKER, "gb10-gb10-worker")):
        assert lab.inspect(host, name)["State"]["Status"] == "running"
