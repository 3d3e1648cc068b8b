# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user sees when something is wrong: each fault is real, has its own clear message, and the next run completes.

Faults that the checks before a start find are injected beside a serving cluster, which must continue to serve. The others are injected during bring-up.
Tests with the marker `share` also run in `make test`.
"""

from __future__ import annotations

import json
import re
import textwrap
import time
import typing as t

import pytest

from .fault import BOTH, LEFT_BEHIND, PASSING, SECRETS, STATE, Fault, left_behind
from .injecting import TO_SERVE
from .lab import HEAD, WORKER, Lab, Once, Play, secret_file
from .making import (
    BARE_IMAGE,
    HEAD_CONTAINER,
    HUB,
    IMAGE,
    IN_LOAD,
    MODEL,
    SNAPSHOT,
    WORKER_CONTAINER,
    begun,
    build,
    build_settings,
    endless_hub,
    lab_profile,
    listener,
    lose_ssh,
    moved_away,
    play_losing_ssh,
    put_back,
)

pytestmark = pytest.mark.usefixtures("without_units")

#: Printed by a play when it reaches a stage.
TO_WORKER = "ray_worker : Run Ray's worker"
TO_PROOF = "engine : Read each node's counters"

#: An unused port of the nodes' loopback.
HUB_PORT = 18080


def kill(lab: Lab, host: str, container: str) -> t.Callable[[], None]:
    return lambda: lab.run(host, "docker", "kill", container)


#: The consent that clears a cluster whose other node is lost.
IGNORE = "-e gb10_allow=lost_node"


@pytest.mark.parametrize("words", [*PASSING, "/usr/bin/python3"], ids=lambda words: words.strip("-_/").replace(" ", "-"))
def test_the_search_for_what_is_left_behind_finds_it(lab: Lab, words: str) -> None:
    """It finds a process with these words in its command line, and nothing if there is no such process."""
    unit = "gb10-test-left-behind"
    named = ("bash", "-c", 'exec -a "$0" sleep infinity', f"lab {words}")
    bare = ("bash", "-c", f"sleep infinity | {words}")
    assert left_behind(lab, WORKER) == ""
    lab.run(WORKER, "systemd-run", "--quiet", f"--unit={unit}", "--collect", *(bare if words.startswith("/") else named))
    try:
        lab.run(WORKER, "timeout", "30", "sh", "-c", 'until pgrep --full "$1" > /dev/null; do sleep 0.2; done', "sh", LEFT_BEHIND)
        assert words in left_behind(lab, WORKER)
    finally:
        lab.run(WORKER, "systemctl", "stop", unit)
    assert left_behind(lab, WORKER) == ""


# --- beside a serving cluster -----------------------------------------------------------------------------------------------


def test_ghost_of_a_gpu_process(lab: Lab, live_cluster: None, fault: Fault) -> None:
    with lab.driver(processes=[{"pid": 4194000, "type": "C", "name": "VLLM::EngineCore", "used_mib": 70000}]):
        played = lab.play()
    fault.answered(played, "4194000", "Reboot this node", where="both")
    fault.left(live=True)
    fault.completes()


def test_driver_tool_hangs(lab: Lab, live_cluster: None, fault: Fault) -> None:
    with lab.driver(hang=True):
        played = lab.play()
    fault.answered(played, "nvidia-smi did not answer", where="both")
    fault.left(live=True)
    fault.completes()


def test_shard_of_the_model_missing(lab: Lab, live_cluster: None, fault: Fault) -> None:
    with moved_away(lab, WORKER, f"{SNAPSHOT}/model-00002-of-00002.safetensors"):
        played = lab.play(gb10_offline=True, gb10_model_copy="never")
    fault.answered(played, "model-00002-of-00002.safetensors", WORKER, where=WORKER)
    fault.left(live=True)
    fault.completes()


def test_shard_of_the_model_truncated(lab: Lab, live_cluster: None, fault: Fault) -> None:
    blob = lab.run(WORKER, "readlink", "-f", f"{SNAPSHOT}/model-00002-of-00002.safetensors").strip()
    with moved_away(lab, WORKER, blob):
        lab.run(WORKER, "sh", "-c", 'head -c 1000 "$1.away" > "$1"', "sh", blob)
        played = lab.play(gb10_offline=True, gb10_model_copy="never")
    fault.answered(played, "model-00002-of-00002.safetensors", WORKER, where=WORKER)
    fault.left(live=True)
    fault.completes()


def test_side_file_missing(lab: Lab, live_cluster: None, fault: Fault) -> None:
    with moved_away(lab, HEAD, f"{SNAPSHOT}/lab_reasoning_parser.py"):
        played = lab.play(gb10_offline=True, gb10_model_copy="never")
    fault.answered(played, "lab_reasoning_parser.py", HEAD, where=HEAD)
    fault.left(live=True)
    fault.completes()


def test_hub_unreachable(lab: Lab, live_cluster: None, fault: Fault) -> None:
    token = "hf_planted" + "0123456789" * 3
    absent = lab_profile(lab, "lab_absent_model", ("gb10-lab/tiny-llama", "gb10-lab/absent"))
    played = lab.play(gb10_profile=absent, gb10_hf_token_file=secret_file(lab, token), gb10_hf_endpoint="http://127.0.0.1:9")
    fault.answered(played, "could not be downloaded", "gb10-lab/absent", where="both")
    assert token not in played.stdout + json.dumps(played.events)
    for host in (HEAD, WORKER):
        assert lab.run(host, "grep", "-rlF", token, "/etc/gb10", "/var/lib/gb10", "/var/log", check=False) == ""
        assert all(token not in json.dumps(lab.inspect(host, name)) for name in lab.containers(host))
    fault.left(live=True)
    fault.completes()


def test_hub_that_never_ends_its_answer(lab: Lab, live_cluster: None, fault: Fault) -> None:
    """A download that would never end is ended after the time from the settings."""
    absent = lab_profile(lab, "lab_absent_model", ("gb10-lab/tiny-llama", "gb10-lab/absent"))
    with endless_hub(lab, HEAD, HUB_PORT), endless_hub(lab, WORKER, HUB_PORT):
        played = lab.play(gb10_profile=absent, gb10_hf_endpoint=f"http://127.0.0.1:{HUB_PORT}", gb10_transfer_timeout=30)
        fault.answered(played, "could not be downloaded", "gb10-lab/absent", where="both")
        fault.left(live=True)
    fault.completes()


@pytest.mark.share
def test_disk_full_where_models_lie(lab: Lab, live_cluster: None, fault: Fault) -> None:
    lab.run(WORKER, "mkdir", "-p", "/mnt/small")
    lab.run(WORKER, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt/small")
    lab.write_host_vars(WORKER, {"gb10_hf_home": "/mnt/small"})
    try:
        played = lab.play()
    finally:
        lab.remove_host_vars(WORKER)
        lab.run(WORKER, "umount", "/mnt/small")
    fault.answered(played, "/mnt/small", "GiB", WORKER, where=WORKER)
    fault.left(live=True)
    fault.completes()


def test_device_of_the_fabric_missing(lab: Lab, live_cluster: None, fault: Fault) -> None:
    with moved_away(lab, WORKER, "/dev/infiniband"):
        played = lab.play()
    fault.answered(played, "/dev/infiniband", WORKER, where=WORKER)
    fault.left(live=True)
    fault.completes()


def test_another_play_works_on_the_cluster(lab: Lab, live_cluster: None, fault: Fault) -> None:
    second: list[Play] = []
    during = Once("image : Ask what the node image holds", lambda: second.append(lab.play(tags="memory")))
    first = lab.play(on_output=during)
    during.join()
    assert first.rc == 0, first.failures
    fault.answered(second[0], "another run works on this cluster", where=HEAD)
    assert re.search(r"-e gb10_break_lock=[0-9a-f]{16}\b", second[0].stdout)
    fault.left(live=True)
    fault.completes()


def test_wrong_api_key_file(lab: Lab, live_cluster: None, fault: Fault) -> None:
    lab.run(HEAD, "cp", "-p", f"{SECRETS}/api_key", "/root/api_key")
    lab.run(HEAD, "sh", "-c", f"echo another-key-0123456789 > {SECRETS}/api_key")
    try:
        played = lab.play()
    finally:
        lab.run(HEAD, "sh", "-c", f"cat /root/api_key > {SECRETS}/api_key && rm /root/api_key")
    fault.answered(played, "HTTP 401", "api_key_file", where=HEAD)
    fault.left(live=True)
    fault.completes()


def test_secret_file_readable_by_others(lab: Lab, live_cluster: None, fault: Fault) -> None:
    token = f"{SECRETS}/ray_token"
    lab.run(HEAD, "chmod", "0644", token)
    played = lab.play()
    fault.answered(played, f"{token} has mode 0644", f"chmod 0600 {token}", where=HEAD)
    fault.left(live=True)
    lab.run(HEAD, "chmod", "0600", token)
    fault.completes()


@pytest.mark.share
def test_worker_unreachable(lab: Lab, live_cluster: None, fault: Fault) -> None:
    lose_ssh(lab, WORKER)
    try:
        played = lab.play()
    finally:
        lab.run(WORKER, "systemctl", "start", "ssh")
    fault.answered(played, "port 22: Connection refused", where=WORKER)
    fault.left(live=True)
    fault.completes()


@pytest.mark.parametrize("host", [WORKER, HEAD])
def test_teardown_without_a_node_that_is_lost(lab: Lab, live_cluster: None, fault: Fault, host: str) -> None:
    lose_ssh(lab, host)
    try:
        refused = lab.play("teardown")
        fault.answered(refused, "it cannot be reached, so what runs there is unknown", "port 22: Connection refused", IGNORE, where=host)
        fault.left(live=True)
        cleared = lab.play("teardown", gb10_allow="lost_node")
    finally:
        lab.run(host, "systemctl", "start", "ssh")
    assert cleared.rc != 0 and "it could not be reached, so its containers were left as they are" in cleared.failures and host in cleared.failures
    assert lab.containers({HEAD: WORKER, WORKER: HEAD}[host]) == {} and lab.containers(host) != {}
    whole = lab.play("teardown")
    assert whole.rc == 0 and lab.containers(host) == {}, whole.failures
    fault.completes()


def test_ssh_to_the_head_lost_before_the_proof(lab: Lab, live_cluster: None, fault: Fault) -> None:
    """Whether the engine serves is unknown, so it is left alone, with the rank on the other node."""
    played, cut_at = play_losing_ssh(lab, "engine : Inspect the ranks", HEAD)
    fault.now(cut_at)
    unheard = f"Not reached any more, so what runs there is unknown: {HEAD}. Remedy: See that ssh answers there"
    kept = "Whether the engine that served before this play still serves is unknown, so nothing was stopped."
    fault.answered(played, HEAD, unheard, kept, where=HEAD)
    fault.gathered(played, WORKER)
    fault.left(live=True)
    fault.completes()


@pytest.mark.parametrize(
    ("stage", "task"),
    [
        ("preflight", "doctor : Look at the node"),
        ("image", "image : Ask what the node image holds, and"),
        ("model", "engine : Look for the model"),
        ("proof", "engine : Inspect the ranks"),
        ("report", "engine : Report the result"),
    ],
    ids=["preflight", "image", "model", "proof", "report"],
)
def test_ctrl_c_before_the_start(lab: Lab, live_cluster: None, fault: Fault, stage: str, task: str) -> None:
    fault.row.fault = f"Ctrl-C in stage {stage}"
    fault.interrupted(lab.interrupt(task))
    fault.left(live=True)
    fault.completes()


def relabel(lab: Lab, image: str, like: str, tag: str) -> None:
    """Give an image of the worker the labels of another one, and a tag."""
    labels = json.loads(lab.run(WORKER, "docker", "image", "inspect", "--format", "{{json .Config.Labels}}", like))
    build(lab, f"FROM {image}\n" + "".join(f"LABEL {name}={json.dumps(value)}\n" for name, value in labels.items()), tag)


# --- before the start, on nodes without a cluster ---------------------------------------------------------------------------


def test_image_without_ray(lab: Lab, no_cluster: None, fault: Fault) -> None:
    bare = lab_profile(lab, "lab_without_ray", ("layers: [ray]", "layers: []"), (f"tag: {IMAGE}", f"tag: {BARE_IMAGE}"))
    played = lab.play(gb10_profile=bare)
    fault.answered(played, "holds no Ray", "image.layers", where="both")
    fault.left()
    # The module itself reports it too, for use without the roles.
    alone = lab.play(tags="ray", gb10_profile=bare)
    assert alone.rc != 0 and BARE_IMAGE in alone.failures
    fault.left()
    fault.completes()


def test_ray_versions_differ(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """The worker's image really contains another Ray, but its labels name the same recipe, and each node makes its own image."""
    for version, tag in (("2.59.0", "users/other-ray:1"), ("2.60.0", "users/kept:1")):
        assert lab.play(tags="image", gb10_ray_version=version).rc == 0
        lab.run(WORKER, "docker", "tag", IMAGE, tag)
    relabel(lab, "users/other-ray:1", "users/kept:1", IMAGE)
    try:
        played = lab.play(gb10_image_copy="never")
        fault.answered(played, "2.59.0", WORKER, where=WORKER)
        fault.left()
        alone = lab.play(tags="ray", gb10_image_copy="never")
        fault.answered(alone, "2.59.0", WORKER, where=WORKER)
        fault.gathered(alone, HEAD, WORKER)
        fault.left(stopped=BOTH)
    finally:
        put_back(lab, "users/kept:1", "users/other-ray:1")
    fault.completes()


def test_python_patch_versions_differ(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """Simulated in the image: its python3 reports another patch version in the two places that the collection and Ray read."""
    lab.run(WORKER, "docker", "tag", IMAGE, "users/kept:1")
    line = (
        "import collections, platform, sys; platform.python_version = lambda: '3.11.1'; "
        "sys.version_info = collections.namedtuple('version_info', 'major minor micro releaselevel serial')(3, 11, 1, 'final', 0)"
    )
    program = f"import sysconfig; open(sysconfig.get_path('purelib') + '/other_patch.pth', 'w').write({line!r} + chr(10))"
    recipe = f"FROM {IMAGE}\nRUN {json.dumps(['python3', '-c', program])}\n"
    build(lab, recipe, IMAGE)
    try:
        played = lab.play(gb10_image_copy="never")
        fault.answered(played, "3.11.1", WORKER, where=WORKER)
        fault.left()
        alone = lab.play(tags="ray", gb10_image_copy="never")
        fault.answered(alone, "3.11.1", WORKER, where=WORKER)
        fault.left()
    finally:
        put_back(lab, "users/kept:1")
    fault.completes()


def test_wrong_address_of_the_head(lab: Lab, no_cluster: None, fault: Fault) -> None:
    lab.write_host_vars(HEAD, {"gb10_fabric_address": "10.255.255.1"})
    try:
        played = lab.play()
        alone = lab.play(tags="ray")
    finally:
        lab.remove_host_vars(HEAD)
    fault.answered(played, "10.255.255.1", "on no interface", where=HEAD)
    assert alone.rc != 0 and "10.255.255.1" in alone.failures
    fault.left()
    fault.completes()


@pytest.mark.parametrize(("port", "variable"), [(6379, "gb10_ray_port"), (8000, "gb10_api_port")], ids=["ray", "api"])
def test_port_taken_by_a_foreigner(lab: Lab, no_cluster: None, fault: Fault, port: int, variable: str) -> None:
    fault.row.fault = f"port {port} taken by a foreigner"
    with listener(lab, HEAD, port):
        played = lab.play()
        fault.answered(played, f"port {port}", "python3", variable, where=HEAD)
        if port == 6379:
            alone = lab.play(tags="ray")
            assert alone.rc != 0 and "6379" in alone.failures and "python3" in alone.failures
        fault.left()
        assert lab.run(HEAD, "systemctl", "is-active", "gb10-test-listener").strip() == "active", "a stranger's process was ended"
    fault.completes()


def test_stale_head_of_another_run(lab: Lab, no_cluster: None, fault: Fault) -> None:
    command = ("ray", "start", "--head", "--block", "--include-dashboard=false", "--disable-usage-stats", "--num-cpus=1")
    lab.run(HEAD, "docker", "run", "--detach", "--name=left-over", "--network=host", "--env=RAY_AUTH_MODE=disabled", IMAGE, *command)
    try:
        lab.run(HEAD, "timeout", "60", "sh", "-c", "until ss -Hltn | grep -q ':6379 '; do :; done")
        played = lab.play()
        fault.answered(played, "left-over", "gb10_allow=stale_head", where=HEAD)
        assert lab.inspect(HEAD, "left-over")["State"]["Running"] is True
        fault.row.left = "the stale head runs on"
        fault.completes(gb10_allow="stale_head")
        assert "left-over" not in lab.run(HEAD, "docker", "ps", "--all", "--format", "{{.Names}}")
    finally:
        lab.run(HEAD, "docker", "rm", "--force", "left-over", check=False)


def test_name_of_a_container_taken_by_a_foreigner(lab: Lab, no_cluster: None, fault: Fault) -> None:
    lab.run(WORKER, "docker", "create", f"--name={WORKER_CONTAINER}", "--network=none", IMAGE, "true")
    try:
        played = lab.play()
        fault.answered(played, f"container {WORKER_CONTAINER}", "a foreign container has the name", "docker rename", where=WORKER)
        fault.gathered(played, HEAD)
        fault.left(stopped=BOTH[:1])
    finally:
        lab.run(WORKER, "docker", "rm", WORKER_CONTAINER)
    fault.completes()


def test_docker_stopped_on_one_node(lab: Lab, no_cluster: None, fault: Fault) -> None:
    lab.run(WORKER, "systemctl", "stop", "docker.socket", "docker.service")
    try:
        played = lab.play()
    finally:
        lab.run(WORKER, "systemctl", "start", "docker")
        lab.run(WORKER, "docker", "start", "users-running")
    fault.answered(played, "Docker engine", "systemctl start docker", WORKER, where=WORKER)
    fault.left()
    fault.completes()


# --- on the way up ----------------------------------------------------------------------------------------------------------


def test_arguments_that_the_engine_refuses(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """An unknown argument is refused before any node is contacted. What only the engine refuses, fewer tokens per step than sequences, stops the start."""
    unknown = lab.play(gb10_serve_arguments={"no_such_flag": 1})
    fault.answered(unknown, "gb10_serve_arguments.no_such_flag", "is an argument of no release", where="controller")
    fault.left()
    played = lab.play(gb10_serve_arguments={"max_num_batched_tokens": 1})
    fault.answered(played, "max_num_batched_tokens", where=HEAD)
    fault.gathered(played, HEAD, WORKER)
    fault.left(stopped=BOTH)
    fault.completes()


def test_engine_that_dies_at_its_first_completion(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """The model's side file makes the engine's core fail at its first request, long after the API answers."""
    mortal = f"{HUB}/models--gb10-lab--mortal"
    program = textwrap.dedent(
        """
        import pathlib, sys
        path = next(pathlib.Path(sys.argv[1]).glob("snapshots/*/lab_reasoning_parser.py"))
        text = path.read_text()
        path.unlink()
        path.write_text(text + sys.argv[2])
        """
    )
    # The engine's core and its API both import the file, but only the core adds requests. The delay leaves time for another API request.
    mortality = textwrap.dedent(
        """

        import time

        from vllm.v1.engine.core import EngineCore


        def refuse(self, request, request_wave=0):
            time.sleep(20)
            raise RuntimeError(f"no kernel for the first completion, {request.request_id}")


        EngineCore.add_request = refuse
        """
    )
    profile = lab_profile(lab, "lab_mortal", ("gb10-lab/tiny-llama", "gb10-lab/mortal"))
    models: list[str] = []

    def ask() -> None:
        ours = lab.json(HEAD, f"{STATE}/launch/engine.json")
        program = (
            "import sys, urllib.request as web; "
            "print(web.urlopen(web.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + open(sys.argv[2]).read().strip()}), timeout=10).read().decode())"
        )
        url = f"http://{ours['api_address']}:{ours['api_port']}/v1/models"
        models.append(lab.run(HEAD, "python3", "-c", program, url, f"{SECRETS}/api_key"))

    serving = Once(f"{HEAD}: API is up", ask)
    try:
        for host in (HEAD, WORKER):
            # Otherwise the copy would go into the leftovers of an aborted run.
            lab.run(host, "rm", "-rf", mortal)
            lab.run(host, "cp", "-a", MODEL, mortal)
            lab.run(host, "python3", "-c", program, mortal, mortality)
        played = lab.play(gb10_profile=profile, on_output=serving)
        serving.join()
    finally:
        for host in (HEAD, WORKER):
            lab.run(host, "rm", "-rf", mortal)
    assert "gb10-lab/tiny" in models[0]
    # The engine's last message contains its name of a request of /v1/completions.
    fault.answered(played, HEAD, "no kernel for the first completion, cmpl-", where=HEAD)
    fault.gathered(played, HEAD, WORKER)
    log = (played.logs / HEAD / "engine.log").read_text(encoding="utf-8")
    started, requested, died = (log.index(words) for words in ("Application startup complete", '"POST /v1/completions', "EngineCore encountered a fatal error"))
    assert started < requested and started < died, "it died before it was asked"
    fault.left(stopped=BOTH)
    fault.completes()


@pytest.mark.parametrize(
    ("host", "role", "moment", "when", "text"),
    [
        pytest.param(WORKER, "worker", TO_SERVE, "before load", WORKER_CONTAINER, id="worker-before-load"),
        pytest.param(WORKER, "worker", IN_LOAD, "during load", WORKER_CONTAINER, id="worker-during-load", marks=pytest.mark.share),
        pytest.param(WORKER, "worker", TO_PROOF, "after load", WORKER, id="worker-after-load"),
        pytest.param(HEAD, "head", TO_WORKER, "while the worker joins", WORKER, id="head-while-joining"),
        pytest.param(HEAD, "head", IN_LOAD, "during load", HEAD_CONTAINER, id="head-during-load"),
        pytest.param(HEAD, "head", TO_PROOF, "after load", HEAD, id="head-after-load"),
    ],
)
def test_container_killed(lab: Lab, no_cluster: None, fault: Fault, host: str, role: str, moment: str, when: str, text: str) -> None:
    fault.row.fault = f"{role}'s container killed {when}"
    container = {"worker": WORKER_CONTAINER, "head": HEAD_CONTAINER}[role]
    killed = Once(moment, kill(lab, host, container))
    played = lab.play(on_output=killed)
    killed.join()
    fault.now(killed.at)
    fault.answered(played, text, where=host)
    fault.gathered(played, HEAD, WORKER)
    # Without an answering head no worker's container is created.
    fault.left(stopped=BOTH[:1] if moment == TO_WORKER else BOTH)
    fault.completes()


def test_engine_killed_after_it_was_ready(lab: Lab, no_cluster: None, fault: Fault) -> None:
    def act() -> None:
        # From the node, which sees the processes of its containers. The pattern does not match the command line of pkill itself.
        lab.run(HEAD, "pkill", "-KILL", "--full", "[v]llm serve|[V]LLM::")

    killed = Once(TO_PROOF, act)
    played = lab.play(on_output=killed)
    killed.join()
    fault.now(killed.at)
    fault.answered(played, HEAD, where=HEAD)
    fault.gathered(played, HEAD, WORKER)
    fault.left(stopped=BOTH)
    fault.completes()


def test_ssh_lost_during_load(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """Nothing proves that the engine is dead, and it may be ready long before the node answers again, so it is left alone."""
    played, cut_at = play_losing_ssh(lab, IN_LOAD, WORKER, gb10_stall_seconds=60)
    fault.now(cut_at)
    unheard = f"Not reached any more, so what runs there is unknown: {WORKER}. Remedy: See that ssh answers there"
    fault.answered(played, WORKER, "it has been silent for 01:", unheard, "The engine runs on: nothing proves that it cannot serve", where=WORKER)
    fault.gathered(played, HEAD)
    fault.left(live=True)
    fault.completes()


def test_fabric_interface_down_during_load(lab: Lab, no_cluster: None, fault: Fault) -> None:
    down = Once(IN_LOAD, lambda: lab.run(WORKER, "ip", "link", "set", "eth1", "down"))
    try:
        played = lab.play(on_output=down)
        down.join()
    finally:
        lab.run(WORKER, "ip", "link", "set", "eth1", "up")
    fault.now(down.at)
    fault.answered(played, "eth1", WORKER, where=WORKER)
    fault.gathered(played, HEAD, WORKER)
    fault.left(stopped=BOTH)
    fault.completes()


@pytest.mark.parametrize(
    ("name", "text"),
    [("memory", "engine : Drop the model's files"), ("ray", TO_WORKER), ("serve", IN_LOAD), ("proof", TO_PROOF)],
    ids=["memory", "ray", "serve", "proof"],
)
def test_ctrl_c_on_the_way_up(lab: Lab, no_cluster: None, fault: Fault, name: str, text: str) -> None:
    fault.row.fault = f"Ctrl-C in stage {name}, on the way up"
    fault.interrupted(lab.interrupt(text))
    fault.left_running()
    fault.completes()


def test_ctrl_c_while_the_image_is_built(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """Nodes that build the node image themselves. A variable that only changes pip's logs makes the build step miss every cache."""
    fault.row.fault = "Ctrl-C while the image is built"
    for host in (HEAD, WORKER):
        lab.run(host, "docker", "tag", IMAGE, "users/kept:1")
        lab.run(host, "docker", "rmi", "--no-prune", IMAGE)
    left: dict[str, str] = {}
    try:
        settings = build_settings(PIP_USER_AGENT_USER_DATA=f"lab{time.time_ns()}")
        building = begun(lab, "[-]-root-user-action=ignore")
        fault.interrupted(lab.interrupt("image : Build the node image", when=building, gb10_build_pip_env=settings, gb10_image_copy="never"))
        fault.left_running()
        assert fault.row.left == "nothing of ours"
        # The build may have completed by itself. Then the image has another recipe, and the next run does not use it.
        left = {host: lab.run(host, "docker", "image", "inspect", "--format", "{{.Id}}", IMAGE, check=False).strip() for host in (HEAD, WORKER)}
        fault.completes()
        assert all(lab.run(host, "docker", "image", "inspect", "--format", "{{.Id}}", IMAGE).strip() != left[host] for host in left)
    finally:
        for host in (HEAD, WORKER):
            lab.run(host, "docker", "rmi", "--no-prune", "users/kept:1")
            if left.get(host):
                # Its layers are in no other image, so each run of this test would leave more of them.
                lab.run(host, "docker", "rmi", left[host], check=False)


def test_ctrl_c_while_the_model_is_downloaded(lab: Lab, no_cluster: None, fault: Fault) -> None:
    """The download then runs on the node without the play. The next run or teardown ends it, for whichever model, and removes its token."""
    fault.row.fault = "Ctrl-C while the model is downloaded"
    token = "hf_planted" + "0123456789" * 3
    absent = lab_profile(lab, "lab_absent_model", ("gb10-lab/tiny-llama", "gb10-lab/absent"))
    with endless_hub(lab, HEAD, HUB_PORT), endless_hub(lab, WORKER, HUB_PORT):
        run = lab.interrupt(
            "engine : Download what is missing from the hub",
            when=begun(lab, "[s]napshot_download"),
            gb10_profile=absent,
            gb10_hf_token_file=secret_file(lab, token),
            gb10_hf_endpoint=f"http://127.0.0.1:{HUB_PORT}",
            gb10_model_copy="never",
        )
        fault.interrupted(run)
        assert token not in run.output
        fault.bystanders.assert_untouched()
        for host in (HEAD, WORKER):
            # The cache belongs to a user, and so do the files that are downloaded into it.
            assert lab.inspect(host, "gb10-gb10-download")["Config"]["User"] == "1000:1000"
        # The hub still sends bytes, so only a run can end the download. Teardown ends it too, and prune lists it.
        listed = lab.play("prune")
        assert listed.rc == 0 and "gb10-gb10-download" in listed.said and "/etc/gb10/secrets/gb10/hf_token" in listed.said
        assert lab.play("teardown").rc == 0
        for host in (HEAD, WORKER):
            assert lab.run(host, "docker", "ps", "--all", "--quiet", "--filter", "label=io.gb10.role=download") == ""
            assert lab.run(host, "grep", "-rlF", token, "/etc/gb10", check=False) == "", f"the token stays on {host}"
        fault.completes()
        for host in (HEAD, WORKER):
            assert lab.run(host, "grep", "-rlF", token, "/etc/gb10", "/var/lib/gb10", "/var/log/gb10", check=False) == "", f"the token stays on {host}"
        fault.left(live=True)
        fault.row.left = "a download, ended by the next run"
