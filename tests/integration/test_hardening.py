# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes between two plays or during a play: the next run completes, and asks for consent only when work would be lost.

Each test brings up its own cluster if it needs one, and can also run alone. The unit tests of the launcher cover clock jumps,
which are impossible here because the lab has this machine's clock.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest
import yaml

from .fault import BOTH, STATE, Fault
from .lab import HEAD, INVENTORY, ROOT, WORKER, Lab, Once, Play
from .making import BARE_IMAGE, HEAD_CONTAINER, IMAGE, IN_LOAD, MODEL, SNAPSHOT, WORKER_CONTAINER, lab_profile, registry

pytestmark = pytest.mark.usefixtures("without_units")

LAUNCHER = ("docker", "exec", HEAD_CONTAINER, "python3", "/opt/gb10/launch/launcher.py")
SPEC = ("--spec", "/opt/gb10/launch/engine.json")
LOGS = "/var/log/gb10/gb10"


def status(lab: Lab) -> dict[str, t.Any]:
    """Return the status from the launcher in the head's container."""
    return json.loads(lab.run(HEAD, *LAUNCHER, "status", *SPEC))


def serve_module(options: str) -> dict[str, t.Any]:
    """Call vllm_serve on the head outside of any play, and return its result."""
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible"), HEAD, "-i", INVENTORY, "-b", "-m", "gb10.cluster.vllm_serve", "-a", options],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return json.loads(done.stdout[done.stdout.index("{"):])


def engine_pids(lab: Lab) -> list[str]:
    """Pids of all processes that the launcher started, as seen in the head's container."""
    return [str(pid) for pid in status(lab)["remaining"]]


def push(lab: Lab, recipe: str, name: str) -> None:
    """Build an image on the head, push it, and remove the local copy."""
    steps = 'printf %s "$1" | docker build --quiet --tag "$2" - && docker push --quiet "$2" && docker rmi "$2"'
    lab.run(HEAD, "sh", "-c", steps, "sh", recipe, name, timeout=900)


# --- stop during start, start during stop -----------------------------------------------------------------------------------


def test_engine_stopped_by_hand_while_it_loads(lab: Lab, no_cluster: None, fault: Fault) -> None:
    results: list[dict[str, t.Any]] = []

    def stop() -> None:
        fault.now(time.time())
        results.append(serve_module("state=stopped interrupt_requests=true"))

    by_hand = Once(IN_LOAD, stop)
    played = lab.play(on_output=by_hand)
    by_hand.join()
    assert results[0]["changed"], results
    fault.answered(played, "was stopped by user spark with vllm_serve", where=HEAD)
    fault.left(stopped=BOTH)
    fault.completes()


def test_a_rank_that_is_stopped_is_named_at_once(lab: Lab, live_cluster: None, fault: Fault) -> None:
    """Its ports stay open and /health answers. Only a token request and the rank's own state show that the engine hangs."""
    rank = lab.run(WORKER, "pgrep", "--oldest", "--full", "ray::RayWorkerProc").strip()
    lab.run(WORKER, "kill", "-STOP", rank)
    try:
        fault.now(time.time())
        played = lab.play(tags="serve,proof")
        fault.answered(played, f"stopped on {WORKER} by a signal or a debugger, so that the engine hangs: ray::RayWorkerProc.run (pid {rank})", where=WORKER)
        assert "The engine that served before this play was left alone." in played.failures
        lines = lab.play("status", __gb10_status_seconds=5).stat("gb10_status")
        assert any("gave no token in 5 s, 0 request(s) running or waiting: halted: " in line for line in lines[HEAD])
        assert any(f"ray::RayWorkerProc.run (pid {rank}); kill -CONT PID" in line for line in lines[WORKER])
    finally:
        lab.run(WORKER, "kill", "-CONT", rank)
    assert fault.completes().changed == {}


def test_an_engine_that_answers_wrongly_is_left_running_and_asked_once(lab: Lab, live_cluster: None, fault: Fault) -> None:
    """The lab's model always gives the same sentence, so its arithmetic is wrong. With a grammar its answers follow the grammar."""
    profile = lab_profile(lab, "lab_asked", ("requires:", "answers: [arithmetic, structured_output]\n\nrequires:"))
    run = lab.json(HEAD, f"{STATE}/run/run.json")["run_id"]
    fault.now(time.time())
    played = lab.play("serve", tags="proof", gb10_profile=profile)
    fault.answered(played, "a wrong answer, ", where=HEAD)
    assert "answers.arithmetic" in played.said and "answers.structured_output" not in played.said
    kept = lab.json(HEAD, f"{STATE}/answers.json")
    assert kept["run_id"] == run and kept["results"]["arithmetic"]["expected"] in played.said
    assert "a wrong answer, " in lab.play("serve", tags="proof", gb10_profile=profile).said
    assert lab.json(HEAD, f"{STATE}/answers.json") == kept, "it was asked again"
    silenced = lab.play("serve", tags="proof", gb10_profile=profile, gb10_silenced=["answers.arithmetic"])
    assert silenced.rc == 0, silenced.said
    assert lab.json(HEAD, f"{STATE}/run/run.json")["run_id"] == run and lab.engine_lives()


def test_run_while_the_engine_is_being_stopped(lab: Lab, live_cluster: None, fault: Fault) -> None:
    """The engine is halted, so that the stop takes its whole grace. The run meets an engine that is live but does not answer."""
    before = lab.json(HEAD, f"{STATE}/run/run.json")
    lab.run(HEAD, "docker", "exec", HEAD_CONTAINER, "python3", "-c", f"import os; os.kill({before['pid']}, 19)")
    stop = threading.Thread(target=lab.run, args=(HEAD, *LAUNCHER, "stop", *SPEC, "--grace", "180", "--by", "user bob"))
    stop.start()
    lab.run(HEAD, "timeout", "30", "sh", "-c", 'until grep -qF "$1" "$2"; do :; done', "sh", before["run_id"], f"{STATE}/run/stop.json")
    played = fault.completes()
    stop.join()
    reasons = [event["event_data"]["res"].get("reason") for event in played.events if event["event"] == "runner_on_ok"]
    assert "the live engine was asked to stop by user bob" in reasons
    assert lab.json(HEAD, f"{STATE}/run/run.json")["run_id"] != before["run_id"]
    assert set(engine_pids(lab)).isdisjoint({str(before["pid"])})
    fault.row.where, fault.row.left = HEAD, "one engine, the new one"


# --- an engine, or its records, that disappeared ----------------------------------------------------------------------------


def test_launcher_killed_then_the_engine(lab: Lab, live_cluster: None, fault: Fault) -> None:
    """Without its launcher the engine continues to serve. When both are killed, nothing records the engine's end."""
    state = status(lab)
    lab.run(HEAD, "docker", "exec", HEAD_CONTAINER, "python3", "-c", f"import os; os.kill({state['launcher']}, 9)")
    assert not fault.completes().changed
    kill = f"import os; [os.kill(pid, 9) for pid in {state['remaining']}]"
    lab.run(HEAD, "docker", "exec", HEAD_CONTAINER, "python3", "-c", kill)
    shown = lab.play("status")
    assert f"run {state['run_id']} is gone, and nothing noted how it ended" in shown.said
    fault.row.where, fault.row.left = HEAD, "no engine"
    played = fault.completes()
    reasons = [str(event["event_data"]["res"].get("reason")) for event in played.events if event["event"] == "runner_on_ok"]
    assert any(f"no engine runs; the last one, run {state['run_id']} is gone" in reason for reason in reasons)


def test_note_of_the_engine_broken(lab: Lab, live_cluster: None, fault: Fault) -> None:
    lab.run(HEAD, "sh", "-c", f"head -c 100 {STATE}/run/run.json > {STATE}/run/half && mv {STATE}/run/half {STATE}/run/run.json")
    played = lab.play()
    fault.answered(played, "run.json is not JSON", where=HEAD)
    assert "teardown" in played.stdout
    assert status(lab)["live"]
    fault.row.left = "engine serves on"
    # The remedy from the message.
    assert lab.play("teardown", gb10_allow="interrupt").rc == 0
    lab.run(HEAD, "rm", f"{STATE}/run/run.json.broken")
    fault.completes()


# --- containers that were changed by hand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["restarted", "stopped and started"])
def test_head_container_by_hand(lab: Lab, live_cluster: None, fault: Fault, how: str) -> None:
    fault.row.fault = f"head's container {how} by hand"
    before = {host: lab.containers(host) for host in (HEAD, WORKER)}
    for command in ("restart",) if how == "restarted" else ("stop", "start"):
        lab.run(HEAD, "docker", command, HEAD_CONTAINER)
    assert not status(lab)["live"]
    fault.row.where, fault.row.left = HEAD, "Ray's head in a new session"
    fault.completes()
    assert lab.containers(HEAD) == before[HEAD]
    assert lab.containers(WORKER) != before[WORKER], "the worker belongs to the session before"


def test_worker_container_restarted_by_hand(lab: Lab, live_cluster: None, fault: Fault) -> None:
    lab.run(WORKER, "docker", "restart", WORKER_CONTAINER)
    fault.row.where, fault.row.left = WORKER, "the engine lost its rank"
    fault.completes()


def test_head_container_paused(lab: Lab, live_cluster: None, fault: Fault) -> None:
    lab.run(HEAD, "docker", "pause", HEAD_CONTAINER)
    try:
        played = lab.play()
        fault.answered(played, HEAD_CONTAINER, "paused", where=HEAD)
        assert f"docker unpause {HEAD_CONTAINER}" in played.stdout
    finally:
        lab.run(HEAD, "docker", "unpause", HEAD_CONTAINER)
    fault.left(live=True)
    assert not fault.completes().changed


def test_paused_cluster_can_be_taken_down(lab: Lab, live_cluster: None, fault: Fault) -> None:
    lab.run(HEAD, "docker", "pause", HEAD_CONTAINER)
    refused = lab.play("teardown")
    assert refused.rc != 0 and "how many requests it has is unknown" in refused.said
    assert lab.containers(WORKER), "nothing was taken away"
    played = lab.play("teardown", gb10_allow="interrupt")
    assert played.rc == 0, played.failures
    fault.left()
    assert not lab.containers(HEAD) and not lab.containers(WORKER)
    fault.row.where, fault.row.next_run = HEAD, "teardown completes"


def test_containers_by_halves(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """A head that was created but never started, and a worker whose labels give only the owner."""
    owner = "--label=io.gb10.owner=gb10.cluster"
    labels = (owner, "--label=io.gb10.cluster=gb10", "--label=io.gb10.role=head", "--label=io.gb10.fields={}", "--label=io.gb10.spec=1:0")
    lab.run(HEAD, "docker", "create", f"--name={HEAD_CONTAINER}", "--network=none", *labels, IMAGE, "true")
    lab.run(WORKER, "docker", "run", "--detach", f"--name={WORKER_CONTAINER}", "--network=none", "--entrypoint=sleep", owner, IMAGE, "infinity")
    fault.row.where, fault.row.left = "both", "head created, worker running"
    fault.completes()


def test_image_replaced_under_its_tag(lab: Lab, live_cluster: None, fault: Fault) -> None:
    """On both nodes, because they must have the same image. Only its id changes, not its content."""
    ids = {}
    for host in (HEAD, WORKER):
        ids[host] = lab.run(host, "docker", "image", "inspect", "--format", "{{.Id}}", IMAGE).strip()
        lab.run(host, "docker", "tag", IMAGE, "users/kept:1")
        lab.run(host, "sh", "-c", 'printf "FROM %s\\nLABEL users.note=1\\n" "$1" | docker build --quiet --tag "$1" -', "sh", IMAGE)
    try:
        played = lab.play()
        new = lab.run(HEAD, "docker", "image", "inspect", "--format", "{{.Id}}", IMAGE).strip()
        fault.answered(played, "image_id", ids[HEAD][:19], new[:19], where=HEAD)
        assert "gb10_allow=restart" in played.stdout
        fault.left(live=True)
    finally:
        for host in (HEAD, WORKER):
            lab.run(host, "docker", "tag", "users/kept:1", IMAGE)
            lab.run(host, "docker", "rmi", "--no-prune", "users/kept:1")
    assert not fault.completes().changed


def test_image_of_an_earlier_recipe(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """As after an upgrade of the collection: the live engine keeps its image until a person consents. Then both nodes get the same files."""
    for host in (HEAD, WORKER):
        lab.run(host, "sh", "-c", 'printf "FROM %s\nLABEL io.gb10.recipe=earlier\n" "$1" | docker build --quiet --tag "$1" -', "sh", IMAGE)
    assert lab.play(skip_tags="image").rc == 0
    before = {host: lab.run(host, "docker", "image", "inspect", "--format", "{{.Id}}", IMAGE) for host in (HEAD, WORKER)}
    upgraded = lab.play()
    assert upgraded.rc == 0 and not upgraded.changed and "was built by an earlier recipe and stays while its engine serves" in upgraded.said
    assert {host: lab.run(host, "docker", "image", "inspect", "--format", "{{.Id}}", IMAGE) for host in (HEAD, WORKER)} == before
    assert lab.play(gb10_allow="restart").rc == 0
    labels = [json.loads(lab.run(host, "docker", "image", "inspect", "--format", "{{json .Config.Labels}}", IMAGE)) for host in (HEAD, WORKER)]
    assert labels[0] == labels[1] and labels[0]["io.gb10.recipe"] != "earlier" and "ray==2.60.0 --hash=sha256:" in labels[0]["io.gb10.lock"]
    assert not fault.completes().changed


def test_tag_that_moves_in_the_registry(lab: Lab, no_cluster: None) -> None:
    """A node that pulls later than the other gets the other's image, not the tag's new image."""
    recipe = f"FROM {BARE_IMAGE}\nLABEL users.note="
    with registry(lab) as place:
        name = f"{place}/users/moving:1"
        image = ((f"base: {BARE_IMAGE}", f"base: {name}"), ("layers: [ray]", "layers: []"), (f"  tag: {IMAGE}\n", ""))
        profile = lab_profile(lab, "lab_moving", *image, ("executor: ray", "executor: native"))
        alone = {"gb10_profile": profile, "gb10_image_copy": "never"}
        try:
            push(lab, recipe + "first", name)
            first = lab.play(tags="image", **alone)
            assert first.rc == 0, first.failures
            ids = {host: lab.run(host, "docker", "image", "inspect", "--format", "{{.Id}}", name) for host in (HEAD, WORKER)}
            assert ids[HEAD] == ids[WORKER]
            assert not lab.play(tags="image", **alone).changed
            # The tag names another image now, and the worker has lost its copy.
            push(lab, recipe + "second", name)
            digest = json.loads(lab.run(WORKER, "docker", "image", "inspect", "--format", "{{json .RepoDigests}}", name))[0]
            lab.run(HEAD, "docker", "tag", ids[HEAD].strip(), name)
            lab.run(WORKER, "docker", "rmi", "--force", ids[WORKER].strip())
            again = lab.play(tags="image,report", **alone)
            assert again.rc == 0, again.failures
            assert lab.run(WORKER, "docker", "image", "inspect", "--format", "{{.Id}}", name) == ids[HEAD]
            assert {node["base_digest"] for node in again.stat("gb10_report")["images"].values()} == {digest}
        finally:
            for host in (HEAD, WORKER):
                lab.run(host, "sh", "-c", 'docker images --quiet "$1" | sort -u | xargs --no-run-if-empty docker rmi --force', "sh", name.rpartition(":")[0])


def test_code_of_the_model_that_leads_to_another_blob(lab: Lab, live_cluster: None, fault: Fault) -> None:
    """Its content matches the id in its name, but differs from the recorded content of this revision."""
    assert lab.play(tags="model").rc == 0
    content = "import os\n"
    blob = hashlib.sha1(f"blob {len(content)}\0{content}".encode()).hexdigest()
    lab.write(HEAD, f"{MODEL}/blobs/{blob}", content)
    lab.run(HEAD, "ln", "-s", f"../../blobs/{blob}", f"{SNAPSHOT}/modeling_planted.py")
    try:
        fault.answered(lab.play(tags="model"), "modeling_planted.py was replaced on this node", "remove /var/lib/gb10/model-code", where=HEAD)
        restart = lab.play(tags="serve", gb10_allow="restart", gb10_serve_arguments={"max_num_seqs": 4})
        assert restart.rc != 0 and "nothing was started" in restart.said
    finally:
        lab.run(HEAD, "rm", "-f", f"{SNAPSHOT}/modeling_planted.py", f"{MODEL}/blobs/{blob}")
    fault.left(live=True)
    assert not fault.completes().changed


# --- unknown is not idle ----------------------------------------------------------------------------------------------------


def test_a_halted_engine_is_taken_away_with_consent_alone(lab: Lab, live_cluster: None, fault: Fault) -> None:
    """It is live but does not answer. It may continue and answer the waiting requests."""
    before = lab.json(HEAD, f"{STATE}/run/run.json")
    halt = "import os; os.kill({}, {})"
    lab.run(HEAD, "docker", "exec", HEAD_CONTAINER, "python3", "-c", halt.format(before["pid"], 19))
    try:
        for played in (lab.play("teardown"), lab.play(gb10_allow="restart", gb10_serve_arguments={"max_num_seqs": 4})):
            assert played.rc != 0
            assert "how many requests it has is unknown" in played.said and "no answer within 5 s" in played.said
            assert "-e gb10_allow=interrupt" in played.said
        fault.answered(played, "how many requests it has is unknown", where=HEAD)
    finally:
        lab.run(HEAD, "docker", "exec", HEAD_CONTAINER, "python3", "-c", halt.format(before["pid"], 18))
    fault.left(live=True)
    assert lab.json(HEAD, f"{STATE}/run/run.json")["run_id"] == before["run_id"]
    assert not fault.completes().changed


def test_work_by_docker_exec_keeps_its_container(lab: Lab, live_cluster: None, fault: Fault) -> None:
    """The collection's engine reports that it is idle, but it cannot see what a foreign process in the worker's container serves."""
    serve = 'printf "import time\\ntime.sleep(900)\\n" > /tmp/vllm && exec python3 /tmp/vllm serve mine'
    lab.run(WORKER, "docker", "exec", "--detach", WORKER_CONTAINER, "sh", "-c", serve)
    played = lab.play("teardown")
    fault.answered(played, WORKER_CONTAINER, "/tmp/vllm serve mine", "it is not of this cluster's engine", where=WORKER)
    fault.left(live=True)
    restart = lab.play(gb10_allow="restart", gb10_env={"GB10_TEST": "1"})
    assert restart.rc != 0 and "/tmp/vllm serve mine" in restart.said and not restart.changed, restart.said
    fault.left(live=True)
    allowed = lab.play("teardown", gb10_allow="interrupt")
    assert allowed.rc == 0, allowed.failures
    fault.left()
    fault.completes()


# --- one at a time ----------------------------------------------------------------------------------------------------------


def swapped(directory: Path) -> Path:
    """The inventory with the other node as the head."""
    hosts = yaml.safe_load((INVENTORY / "hosts.yml").read_text(encoding="utf-8"))
    groups = hosts["gb10_cluster"]["children"]
    groups["gb10_head"]["hosts"], groups["gb10_workers"]["hosts"] = groups["gb10_workers"]["hosts"], groups["gb10_head"]["hosts"]
    # Its group_vars name files of the clone relative to the inventory.
    for name in ("tests", ".lab"):
        (directory / name).symlink_to(ROOT / name)
    other = directory / "inventories" / "swapped"
    other.mkdir(parents=True)
    (other / "hosts.yml").write_text(yaml.safe_dump(hosts), encoding="utf-8")
    (other / "group_vars").symlink_to(INVENTORY / "group_vars")
    return other


def test_two_inventories_with_swapped_heads(lab: Lab, live_cluster: None, fault: Fault, tmp_path: Path) -> None:
    second: list[Play] = []
    private = tmp_path / "second"
    private.mkdir()
    other = Lab(private, [swapped(tmp_path)])
    during = Once("image : Ask what the node image holds", lambda: second.append(other.play(tags="memory")))
    first = lab.play(on_output=during)
    during.join()
    assert first.rc == 0 and not first.changed, first.failures
    fault.answered(second[0], "another run works on this cluster", where="both")
    assert re.search(r"-e gb10_break_lock=[0-9a-f]{16}\b", second[0].stdout)
    fault.left(live=True)
    # Released on every node.
    for host in (HEAD, WORKER):
        lab.run(host, "test", "!", "-e", f"{STATE}/lock.json")
    fault.completes()


def test_a_lock_that_was_broken_stops_its_old_holder(lab: Lab, live_cluster: None, fault: Fault) -> None:
    """Another run takes the lock during a teardown, so the teardown removes nothing."""

    def take() -> None:
        for host in (HEAD, WORKER):
            lock = lab.json(host, f"{STATE}/lock.json")
            # The holder is on another machine or another boot of this one, so it counts as live.
            lock["id"], lock["holder"] = "0123456789abcdef", {**lock["holder"], "user": "bob", "boot_id": "another"}
            lab.write(host, f"{STATE}/lock.json", json.dumps(lock))

    broken = Once("teardown : Stop the engine", take)
    played = lab.play("teardown", on_output=broken)
    broken.join()
    try:
        fault.answered(played, "this run lost the cluster's lock", "bob@", where=HEAD)
        fault.left(live=True)
        assert lab.json(HEAD, f"{STATE}/lock.json")["id"] == "0123456789abcdef", "the lock of another run is left alone"
        assert "-e gb10_break_lock=0123456789abcdef" in lab.play(tags="memory").said
    finally:
        after = lab.play(tags="memory", gb10_break_lock="0123456789abcdef")
    assert after.rc == 0, after.failures
    fault.completes()


# --- ownership --------------------------------------------------------------------------------------------------------------


def test_a_container_of_a_committed_image_is_not_ours(lab: Lab, live_cluster: None, fault: Fault) -> None:
    lab.run(WORKER, "docker", "commit", "--pause=false", WORKER_CONTAINER, "users/kept:1")
    lab.run(WORKER, "docker", "create", "--name=users-copy", "--network=none", "users/kept:1")
    try:
        assert not lab.play().changed, "the bring-up sees one worker"
        listed = lab.play("prune", gb10_allow="remove")
        assert listed.rc == 0 and "users-copy (of image users/kept:1)" in listed.said, listed.failures
        down = lab.play("teardown")
        assert down.rc == 0, down.failures
        assert "Container users-copy (of image users/kept:1) has the labels of this cluster from its image alone" in down.said
        assert lab.run(WORKER, "docker", "ps", "--all", "--quiet", "--filter=name=users-copy").strip()
        fault.row.where, fault.row.left = WORKER, "the user's container"
        assert lab.play().rc == 0
    finally:
        lab.run(WORKER, "docker", "rm", "--force", "users-copy", check=False)
        lab.run(WORKER, "docker", "rmi", "users/kept:1", check=False)
    fault.completes()


# --- a full disk ------------------------------------------------------------------------------------------------------------


def test_log_directory_full(lab: Lab, no_cluster: None, fault: Fault) -> None:
    lab.run(HEAD, "mkdir", "-p", LOGS)
    lab.run(HEAD, "mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", LOGS)
    try:
        played = lab.play()
        fault.answered(played, f"{LOGS}/engine does not accept the engine's log: No space left on device", "are free", "gb10_log_dir", where=HEAD)
        fault.left(stopped=BOTH)
    finally:
        # After a lazy unmount the file system disappears together with the container that still uses it.
        lab.run(HEAD, "umount", "--lazy", LOGS)
    fault.completes()
