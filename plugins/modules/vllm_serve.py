#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_serve
short_description: Serve a model with vLLM over a running cluster
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Starts C(vllm serve) in the head's node container, which M(gb10.cluster.ray_cluster) runs, and waits until a token came back.
  - Run one task on head and workers at once. The head starts the engine and watches it, every worker watches its own container. The first
    node in trouble ends the wait on all nodes within seconds, with the line of the log that says why.
  - A live engine that was started with the same command line, secrets and names is left alone. Another one is never restarted by
    itself - the module blocks, shows the difference and how many requests run, unless O(allow_restart=true).
  - Stopping is gentle, because a killed engine can leak memory on this hardware. SIGTERM to the main process first, then
    SIGINT, which vLLM hears while it still loads, then SIGTERM to its children, SIGKILL after O(stop_grace) seconds, and only ever for
    processes of the engine's own session.
  - Secrets are read from files inside the container and become environment of the engine alone. They are in no command line, in no
    container's configuration, and on the list of names that vLLM does not copy to other ranks.
notes:
  - The waiting is done on the controller by an action plugin of the same name. It needs as many forks as there are nodes, and all nodes in
    one play without C(serial).
  - While it waits it prints a line whenever the stage changes, and every 30 seconds.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
options:
  state:
    description:
      - V(started) makes sure that the wanted engine serves.
      - V(stopped) makes sure that no engine of this cluster runs. On a worker it does nothing.
    type: str
    choices: [started, stopped]
    default: started
  node_role:
    description:
      - Role of this node. A worker only watches its container, its rank is started by Ray.
    type: str
    choices: [head, worker]
    default: head
  cluster_name:
    description:
      - Name of the cluster.
    type: str
    default: gb10
  model:
    description:
      - What to serve, a repository of the hub or a path inside the container. Required on the head with O(state=started).
    type: str
  arguments:
    description:
      - Arguments of C(vllm serve) as typed data. C(max_model_len) becomes C(--max-model-len).
      - V(true) becomes C(--name), V(false) becomes C(--no-name), null leaves the argument out, a list becomes several words, a dict compact
        JSON. Nothing passes through a shell.
    type: dict
    default: {}
  command:
    description:
      - The words before the model.
    type: list
    elements: str
    default: [vllm, serve]
  api_address:
    description:
      - Address that the API listens on. Required on the head with O(state=started).
    type: str
  api_port:
    description:
      - Port of the API.
    type: int
    default: 8000
  api_key_file:
    description:
      - File on the node with the API's key, for the request that proves the engine. Without it no key is sent.
    type: path
  secret_env:
    description:
      - Environment variables of the engine with the files inside the container that hold their values.
    type: dict
    default: {}
  no_carry_env:
    description:
      - Names of variables that vLLM must not copy from the head to other ranks, such as those that differ per node. The names in
        O(secret_env) are always among them.
    type: list
    elements: str
    default: []
  allow_restart:
    description:
      - Stop a live engine that differs from what is wanted, and start the wanted one. Its users lose their requests.
    type: bool
    default: false
  wait:
    description:
      - Wait for the first token.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait for the first token, from the start of the task.
    type: int
    default: 3600
  wait_sleep:
    description:
      - Seconds between two looks at a node.
    type: int
    default: 2
  first_token_timeout:
    description:
      - Seconds that may pass between the API answering for the first time and the first token.
    type: int
    default: 120
  stop_grace:
    description:
      - Seconds between SIGTERM and SIGKILL, at least 1. Below 120 a large engine may be killed while it frees its memory.
    type: int
    default: 120
  keep_logs:
    description:
      - Number of runs whose logs are kept, at least 1.
    type: int
    default: 5
  log_max_bytes:
    description:
      - Size at which the engine's log is cut. Its content is kept once, beside it, with the ending C(.1).
    type: int
    default: 67108864
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters.
    type: path
    default: /var/lib/gb10
  log_dir:
    description:
      - Directory on the node that holds the logs of the collection's clusters.
    type: path
    default: /var/log/gb10
attributes:
  check_mode:
    support: full
    details:
      - Predicts a start, a restart or nothing at all, and waits for nothing.
  diff_mode:
    support: full
  action:
    description: Runs partly on the controller.
    support: full
seealso:
  - module: gb10.cluster.ray_cluster
  - module: gb10.cluster.vllm_serve_info
"""

EXAMPLES = r"""
- name: Serve on head and workers
  gb10.cluster.vllm_serve:
    node_role: "{{ 'head' if inventory_hostname == gb10_head_host else 'worker' }}"
    model: nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4
    api_address: 192.168.100.1
    api_key_file: /etc/gb10/secrets/api_key
    secret_env:
      VLLM_API_KEY: /run/secrets/gb10/api_key
    no_carry_env:
      - VLLM_HOST_IP
      - NCCL_IB_HCA
    arguments:
      served_model_name: [nvidia/nemotron-3-super]
      tensor_parallel_size: 2
      distributed_executor_backend: ray
      max_model_len: 262144
      enable_auto_tool_choice: true
      override_generation_config:
        temperature: 0.6
  become: true

- name: Stop the engine gently
  gb10.cluster.vllm_serve:
    state: stopped
    stop_grace: 180
  become: true
"""

RETURN = r"""
endpoint:
  description: URL of the API.
  returned: on the head with O(state=started)
  type: str
  sample: http://192.168.100.1:8000/v1
argv:
  description: The engine's command line.
  returned: on the head with O(state=started)
  type: list
  elements: str
  sample: [vllm, serve, gb10-lab/tiny-llama, --host, 192.168.100.1, --port, "8000"]
engine_version:
  description: Version of the engine, empty when nothing was waited for.
  returned: on the head with O(state=started)
  type: str
  sample: 0.32.0
run_id:
  description: Name of the run, empty when there was none and in check mode before a start.
  returned: on the head
  type: str
  sample: 20261121T015300Z-3f9a
seconds_to_ready:
  description: Seconds from the engine's start to the answer that proved it. Null when it served before the task began.
  returned: on the head with O(state=started)
  type: float
  sample: 57.2
seconds_to_first_token:
  description: Seconds from that request to its first token. Null when nothing was waited for.
  returned: on the head with O(state=started)
  type: float
  sample: 0.412
log_path:
  description: The engine's log on the node.
  returned: on the head
  type: str
  sample: /var/log/gb10/gb10/engine/20261121T015300Z-3f9a.log
log_lines:
  description: The last lines of the log.
  returned: when the engine failed
  type: list
  elements: str
  sample: ["vllm: error: unrecognized arguments: --no-such-flag"]
engine_live:
  description: Whether the engine's process lives at the end.
  returned: on the head
  type: bool
  sample: true
requests_running:
  description: How many requests the live engine works on. Null when it does not say.
  returned: when a restart is blocked
  type: int
  sample: 3
stopped:
  description: What stopping needed - the signals sent, the seconds it took, and the processes that had to be killed.
  returned: when an engine was stopped
  type: dict
  sample: {run_id: 20261121T015300Z-3f9a, was_live: true, signals: [SIGTERM], seconds: 3.4, killed: [], remaining: []}
failed_node:
  description: The node whose failure ended the wait.
  returned: when the wait ended in a failure
  type: str
  sample: spark-2
findings:
  description: What the engine's log tells, as judged by the collection's table of failures. Warnings are there after a success too.
  returned: when something was found
  type: list
  elements: dict
  sample: []
"""

import inspect
import json
import os
import secrets
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _docker, _engine, _launcher, _module, _serve_spec, _vllm_args
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds that the launcher may take beyond the grace: the kernel's time for killed processes, and its own start.
STOP_MARGIN = 60
#: Seconds between two looks for the launcher's note after a start.
START_SLEEP = 0.2
#: Seconds to wait for an answer of the API that only informs.
API_TIMEOUT = 5

Snapshot = dict[str, t.Any]


class Desired(t.NamedTuple):
    """What makes one engine differ from another."""

    argv: list[str]
    secret_env: dict[str, str]
    no_carry_env: list[str]

    @property
    def digest(self) -> str:
        return _vllm_args.digest(self.argv, self.secret_env, self.no_carry_env)


class Plan(t.NamedTuple):
    """What to do about an engine: stop it, start one, and why."""

    stop: bool
    start: bool
    reason: str

    @property
    def changed(self) -> bool:
        return self.stop or self.start


def desired_engine(params: dict[str, t.Any]) -> Desired:
    """Return the wanted engine. Raises :class:`ClusterError` for arguments that cannot be a command line."""
    argv = _vllm_args.serve_argv(params["command"], params["model"], params["api_address"], params["api_port"], params["arguments"])
    return Desired(argv, params["secret_env"], sorted(params["no_carry_env"]))


def plan(state: str, live: bool, remaining: list[int], current_digest: str, wanted_digest: str) -> Plan:
    """Decide. ``remaining`` are living processes of a run whose engine itself may be gone: they hold memory and have to go."""
    if state == "stopped":
        if live or remaining:
            return Plan(True, False, "an engine runs" if live else f"{len(remaining)} processes of an engine that is gone remain")
        return Plan(False, False, "no engine runs")
    if live and current_digest == wanted_digest:
        return Plan(False, False, "the engine is live and has the wanted arguments")
    if live:
        return Plan(True, True, "the live engine has other arguments")
    if remaining:
        return Plan(True, True, f"no engine runs, but {len(remaining)} processes of the last one remain")
    return Plan(False, True, "no engine runs")


def snapshot(running: bool, argv: list[str], secret_env: dict[str, str], no_carry_env: list[str]) -> Snapshot:
    """Return one side of the diff. An engine that does not run has no arguments."""
    return {
        "state": "started" if running else "stopped",
        "argv": argv if running else [],
        "secret_env": secret_env if running else {},
        "no_carry_env": sorted(no_carry_env) if running else [],
    }


def options(argv: list[str]) -> list[str]:
    """Return argv as one text for each option with its values, the words before the first option one by one."""
    grouped: list[str] = []
    for word in argv:
        if word.startswith("-") or not grouped or not grouped[-1].startswith("-"):
            grouped.append(word)
        else:
            grouped[-1] += f" {word}"
    return grouped


def differences(before: Snapshot, after: Snapshot) -> str:
    """Return the options and the other fields in which two snapshots differ, in one line."""
    old, new = options(before["argv"]), options(after["argv"])
    parts = [f"- {text}" for text in old if text not in new] + [f"+ {text}" for text in new if text not in old]
    if before["argv"] != after["argv"] and not parts:
        parts.append("argv has another order")
    parts += [name for name in ("secret_env", "no_carry_env") if before[name] != after[name]]
    return ", ".join(parts)


def new_run_id() -> str:
    """Return a name for a run. Names sort by the time of the start."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + secrets.token_hex(2)


def engine_spec(params: dict[str, t.Any], desired: Desired, run_id: str) -> dict[str, t.Any]:
    """Return the content of ``engine.json``, with paths as the container sees them."""
    return {
        **desired._asdict(),
        "run_id": run_id,
        "digest": desired.digest,
        "run_dir": _engine.RUN_TARGET,
        "config_root": f"{_engine.RUN_TARGET}/config",
        "log_path": f"{_engine.LOG_TARGET}/engine/{run_id}.log",
        "keep_logs": params["keep_logs"],
        "log_max_bytes": params["log_max_bytes"],
        "api_address": params["api_address"],
        "api_port": params["api_port"],
    }


def launcher_argv(command: str, *more: str) -> list[str]:
    target = _engine.LAUNCH_TARGET
    return ["python3", f"{target}/launcher.py", command, "--spec", f"{target}/engine.json", *more]


def launcher_answer(result: _docker.ExecResult, accepted: tuple[int, ...] = (0,)) -> dict[str, t.Any]:
    """Return the JSON that the launcher printed. Raises :class:`UnknownState` with its output when there is none."""
    try:
        if result.rc in accepted:
            return json.loads(result.stdout)
    except ValueError:
        pass
    raise UnknownState(
        f"the launcher in the head's container ended with code {result.rc} and no answer",
        remedy="The image needs python3 (3.10 or newer).",
        raw=(result.stdout + result.stderr)[-2000:],
    )


def missing_container(cluster: str, role: str) -> ClusterError:
    return ClusterError(
        f"the {role}'s container of cluster {cluster} does not exist on this node",
        remedy="Bring it up first: run the same playbook with --tags ray",
    )


def running_container(container: dict[str, t.Any] | None, cluster: str, role: str) -> dict[str, t.Any]:
    """Return the container. Raises :class:`ClusterError` when it does not exist or does not run."""
    if container is None:
        raise missing_container(cluster, role)
    if not container["State"]["Running"]:
        raise ClusterError(
            f"container {container['Name'].lstrip('/')} does not run: it ended with code {container['State']['ExitCode']}",
            remedy="See docker logs of it, then bring it up again: run the same playbook with --tags ray",
        )
    return container


def ship(paths: _engine.EnginePaths, spec: dict[str, t.Any]) -> None:
    """Write the launcher and the engine's description to where the container sees them."""
    source, target = inspect.getsource(_launcher), os.path.join(paths.launch, "launcher.py")
    try:
        with open(f"{target}.new", "w", encoding="utf-8") as handle:
            handle.write(source)
        os.replace(f"{target}.new", target)
        _launcher.write_json(os.path.join(paths.launch, "engine.json"), spec)
    except FileNotFoundError:
        raise ClusterError(f"{paths.launch} does not exist, so the container has no launcher", remedy="Recreate the container: run with --tags ray") from None
    except PermissionError:
        raise ClusterError(f"no permission to write to {paths.launch}", remedy="Run the task with become: true.") from None


def start_engine(params: dict[str, t.Any], paths: _engine.EnginePaths, container_id: str, spec: dict[str, t.Any]) -> None:
    """Start the launcher in the container and wait until it noted the engine's process. It outlives this module."""
    client = _docker.sdk_client(params["docker_socket"], params["docker_timeout"])
    with _docker.sdk_errors(f"starting the launcher in container {container_id[:12]}"):
        run = client.api.exec_create(container_id, launcher_argv("run"), stdout=False, stderr=False)
        client.api.exec_start(run["Id"], detach=True)
    for _elapsed in clock(params["docker_timeout"], START_SLEEP):
        if (_engine.read_note(os.path.join(paths.run, "run.json")) or {}).get("run_id") == spec["run_id"]:
            return
        with _docker.sdk_errors("asking how the launcher does"):
            state = client.api.exec_inspect(run["Id"])
        if not state["Running"] and state["ExitCode"] is not None:
            ended = _engine.read_note(os.path.join(paths.run, "exit.json")) or {}
            if ended.get("run_id") == spec["run_id"] and ended["error"]:
                raise ClusterError(f"the engine could not be started: {ended['error']}", reason="launcher")
            raise UnknownState(
                f"the launcher ended with code {state['ExitCode']} and started nothing",
                remedy="The image needs python3 (3.10 or newer).",
            )
    raise UnknownState(f"the launcher did not note an engine within {params['docker_timeout']} s")


def last_run(api: _docker.EngineApi, paths: _engine.EnginePaths, container: dict[str, t.Any] | None) -> dict[str, t.Any]:
    """Return what the launcher says about the last run; nothing lives in a container that does not run."""
    noted = _engine.engine_state(paths)
    there = container is not None and container["State"]["Running"] and noted["run_id"] and os.path.exists(os.path.join(paths.launch, "launcher.py"))
    if not there:
        return {**noted, "live": False, "remaining": []}
    answer = launcher_answer(api.exec(container["Id"], launcher_argv("status"), timeout=api.timeout))
    return {**noted, "live": answer["live"], "remaining": answer["remaining"]}


def stop_engine(api: _docker.EngineApi, container_id: str, grace: int) -> dict[str, t.Any]:
    """Stop the engine and return what that needed. Raises :class:`ClusterError` when a process cannot be ended."""
    argv = launcher_argv("stop", "--grace", str(grace))
    answer = launcher_answer(api.exec(container_id, argv, timeout=grace + STOP_MARGIN), accepted=(0, _launcher.EXIT_REMAINS))
    if answer["remaining"]:
        raise ClusterError(
            f"processes {answer['remaining']} of the engine (pids of the container) are there {answer['seconds']} s after SIGTERM and SIGKILL",
            remedy="They hang in the kernel. Look at its log (journalctl -k); only a reboot of this node ends them.",
            stopped=answer,
        )
    return answer


def told(stopped: dict[str, t.Any]) -> str:
    """Return in words what stopping needed."""
    text = f"stopped run {stopped['run_id']} with {', '.join(stopped['signals'])} in {stopped['seconds']} s"
    return f"{text}, {len(stopped['killed'])} processes killed" if stopped["killed"] else text


def blocked(engine: dict[str, t.Any], before: Snapshot, after: Snapshot) -> ClusterError:
    """Return the refusal to restart a live engine."""
    running = _engine.requests_running(_engine.base_url(engine["api_address"], engine["api_port"]), API_TIMEOUT)
    busy = "how many requests run is unknown" if running is None else f"requests running: {running}"
    return ClusterError(
        f"the live engine (run {engine['run_id']}, {busy}) has other arguments: {differences(before, after)}",
        remedy="To stop it and start the wanted one: -e gb10_allow_restart=true",
        reason="restart not allowed",
        diff={"before": before, "after": after},
        requests_running=running,
        run_id=engine["run_id"],
        engine_live=True,
        log_path=engine["log_path"],
    )


def work_worker(params: dict[str, t.Any], api: _docker.EngineApi, check_mode: bool) -> dict[str, t.Any]:
    """A worker has nothing to start: its rank comes and goes with the engine on the head."""
    if params["state"] == "started" and not check_mode:
        running_container(_docker.find_node_container(api, params["cluster_name"], "worker"), params["cluster_name"], "worker")
    return {"msg": "a worker starts no engine of its own", "reason": "worker"}


def work_head(params: dict[str, t.Any], api: _docker.EngineApi, check_mode: bool) -> dict[str, t.Any]:
    cluster, state = params["cluster_name"], params["state"]
    paths = _engine.EnginePaths.of(params["state_dir"], params["log_dir"], cluster)
    desired = desired_engine(params) if state == "started" else Desired([], {}, [])
    container = _docker.find_node_container(api, cluster, "head")
    if state == "started" and not check_mode:
        running_container(container, cluster, "head")
        _engine.read_key(params["api_key_file"])
    engine = last_run(api, paths, container)
    todo = plan(state, engine["live"], engine["remaining"], engine["digest"], desired.digest)
    before = snapshot(engine["live"], engine["argv"], engine["secret_env"], engine["no_carry_env"])
    after = snapshot(state == "started", *desired)
    if todo.stop and todo.start and engine["live"] and not params["allow_restart"]:
        raise blocked(engine, before, after)
    result: dict[str, t.Any] = {
        "changed": todo.changed,
        "reason": todo.reason,
        "actions": [word for word, wanted in (("stop the engine", todo.stop), ("start the engine", todo.start)) if wanted],
        "diff": {"before": before, "after": after},
        "run_id": engine["run_id"],
        "log_path": engine["log_path"],
        "engine_live": engine["live"],
    }
    if state == "started":
        result.update(
            endpoint=f"{_engine.base_url(params['api_address'], params['api_port'])}/v1",
            argv=desired.argv,
            engine_version="",
            seconds_to_ready=None,
            seconds_to_first_token=None,
        )
    if not todo.changed or check_mode:
        verb = "would be " if todo.changed else ""
        words = {(True, True): "restarted", (True, False): "stopped", (False, True): "started", (False, False): "the engine is as wanted"}
        return {**result, "msg": verb + words[todo.stop, todo.start]}
    return {**result, **act(params, api, paths, container["Id"], todo, desired)}


def act(
    params: dict[str, t.Any], api: _docker.EngineApi, paths: _engine.EnginePaths, container_id: str, todo: Plan, desired: Desired
) -> dict[str, t.Any]:
    """Carry out the plan and return what it adds to the result."""
    done: dict[str, t.Any] = {"actions": [], "engine_live": False}
    if todo.stop:
        done["stopped"] = stop_engine(api, container_id, params["stop_grace"])
        done["actions"].append(told(done["stopped"]))
    if todo.start:
        run_id = new_run_id()
        spec = engine_spec(params, desired, run_id)
        ship(paths, spec)
        start_engine(params, paths, container_id, spec)
        done.update(run_id=run_id, log_path=paths.on_host(spec["log_path"]), engine_live=True)
        done["actions"].append(f"started run {run_id}")
    done["msg"] = "; ".join(done["actions"])
    return done


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _serve_spec.check(params)
    api = _docker.EngineApi(params["docker_socket"], params["docker_timeout"])
    worker = params["node_role"] == "worker"
    return (work_worker if worker else work_head)(params, api, module.check_mode)


def main() -> None:
    module = AnsibleModule(argument_spec=_serve_spec.ARGUMENT_SPEC, supports_check_mode=True)
    _module.run(module, work)


if __name__ == "__main__":
    main()
