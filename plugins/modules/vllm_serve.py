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
  - Starts C(vllm serve) in the node containers that M(gb10.cluster.ray_cluster) or M(gb10.cluster.node_container) runs, and waits for the
    first token.
  - Run one task on head and workers at once. The head starts the engine and watches it. Every worker watches its own container, and with
    O(executor=native) starts and watches its own rank. The first node that fails ends the wait on all nodes within seconds and shows the log line
    with the cause.
  - Ranks start and stop together. With O(executor=native) an engine that lacks a rank is not live, even if its API answers. A rank that died while
    the engine was idle goes unnoticed by the other ranks, and the head would wait for it forever. If one node has to start its rank, the module
    therefore stops all live ranks, the head's first, and then starts all of them.
  - A live engine that was started with the same command line, secrets and names is left alone. A different live engine is never restarted
    automatically. The module blocks and shows the difference and the number of running requests, unless O(allow_restart=true).
  - Stopping is gentle, because a killed engine is reported to leak memory on a GB10. The module sends SIGTERM to the main process, then
    SIGINT, which vLLM handles while it still loads, then SIGTERM to its children, and SIGKILL after O(stop_grace) seconds. It signals only
    processes that the launcher started, in any session.
  - Concurrent starts and stops leave one engine or none. A second start is refused while one is in progress. A stop also ends an engine that is
    starting, and the task that waits for it fails at once and shows who stopped it. A start that finds an engine with a pending stop request lets it
    end, and restarts it without O(allow_restart).
  - An engine that has ended is restarted, and RV(last_end) shows how it ended. The module starts nothing without disk space for its log and notes.
  - With C(VLLM_API_KEY) in O(secret_env), a guard from the collection (C(--middleware)) requires the key on every path but C(/health). vLLM (0.32) alone
    requires it only below C(/v1), C(/v2), C(/inference) and C(/cohere). A live engine that was started without the guard is left alone unless
    O(allow_restart=true). The role P(gb10.cluster.engine#role) warns about it.
  - Secrets are read from files inside the container and set only in the engine's environment. They are not in any command line or
    container configuration, and they are in the list of names that vLLM does not copy to other ranks.
notes:
  - An action plugin with the same name waits on the controller. It needs as many forks as there are nodes, and all nodes in
    one play without C(serial).
  - While it waits, it prints a line at each change of the stage and every 30 seconds.
extends_documentation_fragment:
  - gb10.cluster._repositories
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._cluster
  - gb10.cluster._cluster.state_dir
options:
  state:
    description:
      - V(started) makes sure that the requested engine serves.
      - V(stopped) makes sure that no engine of this cluster and no rank started by this module runs on this node. With Ray, a worker has no such rank.
    type: str
    choices: [started, stopped]
    default: started
  node_role:
    description:
      - Role of this node. With O(executor=ray) a worker only watches its container, because Ray starts its rank.
    type: str
    choices: [head, worker]
    default: head
  executor:
    description:
      - The program that distributes the engine's ranks over the nodes. V(ray) is Ray, V(native) is the engine itself.
      - With V(native) every node starts its own part of the engine. The module adds the arguments that identify each part
        (C(--nnodes), C(--node-rank), C(--master-addr), C(--master-port), C(--headless)) to O(arguments).
    type: str
    choices: [ray, native]
    default: ray
    version_added: 0.2.0
  node_rank:
    description:
      - Number of this node, 0 for the head. Required with O(executor=native) and O(state=started).
    type: int
    version_added: 0.2.0
  node_count:
    description:
      - Number of nodes, with O(executor=native).
    type: int
    default: 1
    version_added: 0.2.0
  master_address:
    description:
      - Address at which the other nodes' ranks reach the head. Required with O(executor=native) and more than one node.
    type: str
    version_added: 0.2.0
  master_port:
    description:
      - Port on the head at which the ranks connect, with O(executor=native).
    type: int
    default: 29501
    version_added: 0.2.0
  fabric_address:
    description:
      - This node's address on the fabric. While the play waits, the interface with this address must stay up on every node. Otherwise the ranks
        wait for each other until a timeout of half an hour or more.
      - Without it the fabric is not watched.
    type: str
    version_added: 0.2.0
  model:
    description:
      - The model to serve, as a hub repository or a path inside the container. Required with O(state=started) on the head, and with
        O(executor=native) on every node.
    type: str
  hf_home:
    description:
      - Hub cache on the node that contains O(repositories). If set, the module compares their code (Python, and JSON that names it) before a start with
        the hub's content ids, on the workers too, and with the ids that M(gb10.cluster.model_info) recorded below O(state_dir). If a file was changed
        or replaced on the node, the module fails.
    type: path
    version_added: 0.2.0
  arguments:
    description:
      - Arguments of C(vllm serve) as typed data. C(max_model_len) becomes C(--max-model-len).
      - V(true) becomes C(--name), V(false) becomes C(--no-name), null leaves the argument out, a list becomes several words, a dict compact
        JSON. Nothing passes through a shell.
    type: dict
    default: {}
  same_arguments:
    description:
      - The same arguments in another form, as a profile writes them for the newest engine. A live engine that was started with these is left alone, too.
    type: dict
    version_added: 0.2.0
  command:
    description:
      - The command in front of the model name.
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
      - File on the node with the API's key. The module sends it with the test request, and to an engine that requires a key for its request count.
      - Without it no key is sent.
    type: path
  secret_env:
    description:
      - Environment variables of the engine, each with the path of the file inside the container that contains its value.
    type: dict
    default: {}
  no_carry_env:
    description:
      - Names of variables that vLLM must not copy from the head to other ranks, such as those that differ per node. The names in
        O(secret_env) are always included. Without Ray nothing is copied.
    type: list
    elements: str
    default: []
  allow_restart:
    description:
      - Stop a live engine that differs from the requested one, and start the requested one. Running requests are lost.
      - An engine that lacks a rank cannot serve and is restarted without this option.
    type: bool
    default: false
  interrupt_requests:
    description:
      - Stop a live engine even if it has running or waiting requests, for O(state=stopped) and for a restart. With V(false) this is refused.
      - An engine that does not report its requests (no answer in time, metrics other than vLLM's, a refusal, TLS) may be busy,
        so stopping it is refused as well. So is one that is still loading, unless O(unready_runs) contains its run.
      - An engine that lacks a rank cannot answer and needs no consent. With Ray the module asks the head whether all required GPUs are still there.
      - With V(true), O(state=stopped) stops the whole container if its launcher does not answer, or if the engine keeps running after the answer.
    type: bool
    default: false
    version_added: 0.2.0
  drain_timeout:
    description:
      - Seconds to wait for a live engine's requests to finish before it is stopped. If some remain, it is handled as without waiting.
      - The number of remaining requests is printed every 30 s.
      - New requests are not blocked meanwhile. The module does not wait for an engine that does not report its requests.
      - Check mode does not wait.
    type: int
    default: 0
    version_added: 0.2.0
  unready_runs:
    description:
      - Ids of runs that were started in this play and returned no token yet. Stopping them cannot lose a request, so they need no consent.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  lacks_rank:
    description:
      - Whether the engine is known to lack a rank, or its main process on the head. Its remaining processes cannot answer and are stopped without
        consent.
    type: bool
    default: false
    version_added: 0.2.0
  lock_id:
    description:
      - Id of the cluster lock that this run acquired (RV(gb10.cluster.cluster_lock#module:lock)). Before it starts, stops or removes anything, the module
        verifies that the lock on this node still has this id. With an empty value nothing is checked.
    type: str
    default: ""
    version_added: 0.2.0
  wait:
    description:
      - Wait for the first token.
    type: bool
    default: true
  begun:
    description:
      - The result of an earlier task of this run with O(wait=false) that started the engine. This task only waits for it, and starts nothing. It returns
        the keys of that result, too.
    type: dict
    default: {}
    version_added: 0.2.0
  wait_timeout:
    description:
      - Seconds to wait for the first token, from the start of the task.
    type: int
    default: 3600
  wait_sleep:
    description:
      - Seconds between two checks of a node.
    type: int
    default: 2
  first_token_timeout:
    description:
      - Maximum seconds between the API's first answer and the first token.
      - Kernels are compiled during this time. 31 s were reported for 4B on an H100 (vllm-project/vllm#39822), 254 s for Nemotron-3-Ultra on a B200
        (aws-do-eks#59). No figure is known for a Spark.
    type: int
    default: 600
  silent_timeout:
    description:
      - Seconds for which a node may be unreachable while the engine starts and nothing proves it dead. A node that stays silent is reported.
      - Nodes that load weights were reported to answer pings and not ssh. It is not recorded how long that lasts. Loads of up to 542 s are recorded.
    type: int
    default: 600
    version_added: 0.2.0
  stall_timeout:
    description:
      - Seconds without any activity on any node (stage, count, log line, input, output or processor time) after which a start counts as stalled.
      - The limit is three times as long with processor time alone, and a minute longer where ranks wait for each other. Loads of 542 s are recorded, and
        NCCL connections that take 120 s.
    type: int
    default: 600
    version_added: 0.2.0
  prompt_letters:
    description:
      - An engine that was already serving is tested with a prompt of this many random letters, after every node has read how much it has sent so far
        (RV(traffic)). The request then shows which path the ranks' traffic takes, for the role P(gb10.cluster.engine#role).
      - With V(0) the prompt is one word.
    type: int
    default: 0
    version_added: 0.2.0
  profile:
    description:
      - Id of the profile that is started. The node notes it, and compares the start with its last one of the same image and profile.
    type: str
    default: ""
    version_added: 0.2.0
  image_seconds:
    description:
      - Seconds that the image took before this task, for the line at the end of the start. Without it they are unknown.
    type: float
    version_added: 0.2.0
  reported_start:
    description:
      - Seconds of a start as other owners reported them (a profile's C(start)), for the same line.
    type: dict
    default: {}
    version_added: 0.2.0
  signature_dirs:
    description:
      - Directories on the controller with your own failure signatures. They are matched with the shipped ones against every line of a start.
      - Relative paths are searched in the current directory, then in the inventory's, then in the playbook's.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
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
      - Size at which the engine's log is truncated. One copy of its content is kept next to it, with the suffix C(.1).
    type: int
    default: 67108864
  log_dir:
    description:
      - Directory on the node for the logs of the collection's clusters.
    type: path
    default: /var/log/gb10
attributes:
  check_mode:
    support: full
    details:
      - Predicts a start, a restart or no change, and does not wait.
  diff_mode:
    support: full
  action:
    description: Runs partly on the controller.
    support: full
seealso:
  - module: gb10.cluster.node_container
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

- name: Serve on head and worker without Ray
  gb10.cluster.vllm_serve:
    executor: native
    node_role: "{{ 'head' if inventory_hostname == gb10_head_host else 'worker' }}"
    node_rank: "{{ 0 if inventory_hostname == gb10_head_host else 1 }}"
    node_count: 2
    master_address: 192.168.100.1
    model: nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4
    api_address: 192.168.100.1
    arguments:
      tensor_parallel_size: 2
  become: true

- name: Stop the engine gently
  gb10.cluster.vllm_serve:
    state: stopped
    stop_grace: 180
  become: true
"""

RETURN = r"""
endpoint:
  description: URL of the API. Empty on a worker.
  returned: where the engine or a part of it is started, with O(state=started)
  type: str
  sample: http://192.168.100.1:8000/v1
argv:
  description: The engine's command line.
  returned: where the engine or a part of it is started, with O(state=started)
  type: list
  elements: str
  sample: [vllm, serve, gb10-lab/tiny-llama, --host, 192.168.100.1, --port, "8000"]
engine_version:
  description: Version of the engine. Empty if the module did not wait.
  returned: where the engine or a part of it is started, with O(state=started)
  type: str
  sample: 0.32.0
run_id:
  description: Name of the run. Empty if there was none, and in check mode before a start.
  returned: where the engine or a part of it is started
  type: str
  sample: 20261121T015300Z-3f9a
started_run:
  description: Id of the run that this task started, or may have started when it failed. Empty if it started none.
  returned: where the engine or a part of it is started
  type: str
  version_added: 0.2.0
  sample: 20261121T015300Z-3f9a
seconds_to_ready:
  description: Seconds from the engine's start to the answer that proved it ready. Null if it served before the task began.
  returned: where the engine or a part of it is started, with O(state=started)
  type: float
  sample: 57.2
seconds_to_first_token:
  description: Seconds from that request to its first token. Null if the module did not wait.
  returned: where the engine or a part of it is started, with O(state=started)
  type: float
  sample: 0.412
longest_silence_seconds:
  description: The longest time during the wait for which the node did not answer.
  returned: after a wait
  type: float
  version_added: 0.2.0
  sample: 1.4
lowest_available_mb:
  description: The lowest available memory on the node during the wait, in MiB. Null if it was not measured.
  returned: after a wait
  type: int
  version_added: 0.2.0
  sample: 20110
finished_at:
  description: When the wait ended, by the controller's clock, in seconds since the epoch.
  returned: after a wait
  type: float
  version_added: 0.2.0
  sample: 1795226031.5
log_path:
  description: The engine's log on the node.
  returned: where the engine or a part of it is started
  type: str
  sample: /var/log/gb10/gb10/engine/20261121T015300Z-3f9a.log
log_lines:
  description: The last lines of the log.
  returned: when the engine failed
  type: list
  elements: str
  sample: ["vllm: error: unrecognized arguments: --no-such-flag"]
last_end:
  description: How the engine before this run ended, and the last line of its log. Empty if it was alive, or if there was none.
  returned: on the head
  type: str
  version_added: 0.2.0
  sample: "run 20261120T095300Z-51c0 was ended by SIGKILL at 2026-11-20T23:11:02Z after 47880 s, its log ends: INFO 11-20 23:10:58 Engine 000"
engine_live:
  description: Whether the engine's process is alive at the end.
  returned: where the engine or a part of it is started
  type: bool
  sample: true
seen:
  description:
    - The last result of M(gb10.cluster.vllm_serve_info) during the wait for the first token (C(engine), C(last_end), C(container), C(api),
      C(engine_version), C(completion), C(progress), C(routes), C(cold_start)). A later task can use it and need not ask again.
  returned: after a wait, where the engine or a part of it is started
  type: dict
  version_added: 0.2.0
  sample: {"healthy": true, "engine_version": 0.32.0, "completion": {"tokens": 1, "seconds": 0.4}}
traffic:
  description:
    - What the node had sent when the module began and when it ended, as RV(gb10.cluster.rank_info#module:traffic). Null if that could not be read.
  returned: with O(state=started)
  type: list
  elements: dict
  version_added: 0.2.0
  sample: []
requests_running:
  description: Number of running and waiting requests of the live engine. Null if unknown.
  returned: when a restart is blocked, or a stop is refused
  type: int
  sample: 3
stopped:
  description:
    - Details of the stop - the signals sent, the seconds it took, the processes that had to be killed, and the run whose start was prevented.
    - C(instead) is the reason why the whole container was stopped. Empty if that was not necessary.
  returned: when an engine was stopped
  type: dict
  sample: {run_id: 20261121T015300Z-3f9a, was_live: true, prevented: "", signals: [SIGTERM], seconds: 3.4, killed: [], remaining: [], instead: ""}
failed_node:
  description: The node whose failure ended the wait.
  returned: when the wait ended in a failure
  type: str
  sample: spark-2
first_failure:
  description:
    - The earliest failure among those of all nodes, by one clock. It has C(node), C(time), C(id), C(cause), C(consequence), C(remedy), C(lines) and
      C(certainty) (C(known), C(suspected) or C(unknown)).
  returned: when the wait ended in a failure
  type: dict
  version_added: 0.2.0
  sample: {"node": spark-2, "time": 1795226031.5, "id": memory-out, "certainty": known}
cause_known:
  description: Whether any node knows why the engine cannot serve. If not, the engine keeps running, because a false alarm can cost a reboot.
  returned: when the wait ended in a failure
  type: bool
  version_added: 0.2.0
  sample: true
findings:
  description: Findings from the engine's log, according to the collection's table of failures. Warnings are included after a success too.
  returned: when something was found
  type: list
  elements: dict
  sample: []
"""

import os
import secrets
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._arguments import serve_arguments
from ansible_collections.gb10.cluster.plugins.module_utils._docker import engine_api
from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, interruption, launch, planted, serve_options
from ansible_collections.gb10.cluster.plugins.module_utils._engine.interruption import Requests
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import broken_note
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import ENGINE_LOGS, LOG_TARGET, ORDER, RUN_TARGET
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_code
from ansible_collections.gb10.cluster.plugins.module_utils._network import traffic
from ansible_collections.gb10.cluster.plugins.module_utils._node import ray
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import existing
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two checks for the launcher's record after a start.
START_SLEEP = 0.2
#: Details of an error after the launcher was asked to start. It may still do so, so the node counts as changed.
MAY_HAVE_STARTED = {"changed": True}
#: Seconds to wait for an answer of the API that is only informational.
API_TIMEOUT = 5
#: Seconds between two queries of an engine while waiting for its requests to end.
DRAIN_SLEEP = 2

Snapshot = dict[str, t.Any]


class Desired(t.NamedTuple):
    """The properties that distinguish one engine from another."""

    argv: list[str]
    secret_env: dict[str, str]
    no_carry_env: list[str]

    @property
    def digest(self) -> str:
        return serve_arguments.digest(self.argv, self.secret_env, self.no_carry_env)


class Plan(t.NamedTuple):
    """Whether to stop the engine, whether to start one, and why."""

    stop: bool
    start: bool
    reason: str

    @property
    def changed(self) -> bool:
        return self.stop or self.start


def desired_engine(params: dict[str, t.Any]) -> Desired:
    """Return the wanted engine, or this node's part of it. Raises :class:`ClusterError` when the arguments cannot form a command line."""
    place = None
    if params["executor"] == "native":
        place = serve_arguments.Place(params["node_rank"], params["node_count"], params["master_address"] or "", params["master_port"])
    argv = serve_arguments.serve_argv(params["command"], params["model"], params["api_address"], params["api_port"], params["arguments"], place)
    return Desired(argv, params["secret_env"], sorted(params["no_carry_env"]))


def plan(state: str, engine: dict[str, t.Any], wanted_digest: str, unguarded: bool = False) -> Plan:
    """Return the plan for a result of :func:`last_run`. ``unguarded``: the live engine lacks the guard of its API, and may be restarted for that."""
    live, remaining = engine["live"], engine["remaining"]
    if state == "stopped":
        if live or remaining:
            return Plan(True, False, "an engine runs" if live else f"{len(remaining)} processes of an engine that is gone remain")
        if engine["starting"]:
            return Plan(True, False, f"run {engine['starting']} is being started")
        return Plan(False, False, "no engine runs")
    if live and engine["stopping"]:
        return Plan(True, True, f"the live engine was asked to stop by {engine['stopped_by'] or 'an unknown process'}")
    if live and engine["digest"] == wanted_digest and unguarded:
        return Plan(True, True, "the live engine was started without the guard of its API")
    if live and engine["digest"] == wanted_digest:
        return Plan(False, False, "the engine is live and has the wanted arguments")
    if live:
        return Plan(True, True, "the live engine has other arguments")
    if remaining:
        return Plan(True, True, f"no engine runs, but {len(remaining)} processes of the last one remain")
    return Plan(False, True, f"no engine runs{engine['last_end'] and '; the last one, '}{engine['last_end']}")


def snapshot(running: bool, argv: list[str], secret_env: dict[str, str], no_carry_env: list[str]) -> Snapshot:
    """Return one side of the diff. An engine that does not run has no arguments."""
    return {
        "state": "started" if running else "stopped",
        "argv": argv if running else [],
        "secret_env": secret_env if running else {},
        "no_carry_env": sorted(no_carry_env) if running else [],
    }


def options(argv: list[str]) -> list[str]:
    """Return argv as one text for each option with its values. Words before the first option are separate texts."""
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
        "guard": launch.guard_of(desired.secret_env),
        "run_id": run_id,
        "profile": params["profile"],
        "digest": desired.digest,
        "run_dir": RUN_TARGET,
        "config_root": f"{RUN_TARGET}/config",
        "log_path": f"{LOG_TARGET}/{ENGINE_LOGS}/{run_id}.log",
        "keep_logs": params["keep_logs"],
        "log_max_bytes": params["log_max_bytes"],
        # A worker's rank has no API.
        "api_address": params["api_address"] if params["node_role"] == "head" else "",
        "api_port": params["api_port"] if params["node_role"] == "head" else None,
    }


def missing_container(cluster: str, role: str, executor: str) -> ClusterError:
    return ClusterError(
        f"the {role}'s container of cluster {cluster} does not exist on this node",
        remedy=f"Bring it up first: run the same playbook with --tags {executor}",
    )


def running_container(container: dict[str, t.Any] | None, params: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the container. Raises :class:`ClusterError` when it does not exist or does not run."""
    if container is None:
        raise missing_container(params["cluster_name"], params["node_role"], params["executor"])
    if not container["State"]["Running"]:
        raise ClusterError(
            f"container {container['Name'].lstrip('/')} does not run: it ended with code {container['State']['ExitCode']}",
            remedy=f"See docker logs of it, then bring it up again: run the same playbook with --tags {params['executor']}",
        )
    if container["State"].get("Paused"):
        name = container["Name"].lstrip("/")
        raise ClusterError(f"container {name} is paused, so nothing in it runs on", remedy=f"Let it go on: docker unpause {name}", reason="paused")
    return container


def start_engine(docker: Docker, paths: engine_state.EnginePaths, container: dict[str, t.Any], spec: dict[str, t.Any]) -> None:
    """Start the launcher in the container and wait until it recorded the engine's process. The launcher outlives this module."""
    program = docker.start_program(container["Id"], launch.run_argv(container["Config"]["Labels"], spec["run_id"]))
    for _elapsed in clock(docker.timeout, START_SLEEP):
        try:
            code = docker.exit_code(program)
        except ClusterError as error:
            error.details.update(MAY_HAVE_STARTED)
            raise
        # In this order, because an engine may end before its start was observed.
        if engine_state.engine_state(paths, lenient=True)["run_id"] == spec["run_id"]:
            return
        if code is not None:
            raise launch.not_started(paths, spec["run_id"], code)
    raise UnknownState(f"the launcher did not note an engine within {docker.timeout} s", **MAY_HAVE_STARTED)


def is_forced(params: dict[str, t.Any]) -> bool:
    """Return whether everything that runs in the container may be ended with it."""
    return params["state"] == "stopped" and params["interrupt_requests"]


def last_run(docker: Docker, paths: engine_state.EnginePaths, container: dict[str, t.Any] | None, forced: bool = False) -> dict[str, t.Any]:
    """Return the state of the last run. A container that does not run has no processes, and a paused one cannot be queried.

    ``remaining`` are processes of a run whose engine may have ended. They use memory and must be stopped. ``starting`` is a run that was
    ordered and did not begin, ``launcher`` the pid of the running launcher, ``stopping`` whether the engine was asked to stop.
    ``last_end`` describes how an engine ended. ``unreadable`` is the reason when its record cannot be read.

    The engine is live when the launcher in the container reports that, or the kernel shows its process. If the launcher does not answer,
    the engine counts as live with ``forced``, where it may be ended anyway. Otherwise that is an error.
    """
    noted = {**engine_state.engine_state(paths, lenient=True), "remaining": [], "starting": "", "launcher": None, "stopping": False}
    state = container["State"] if container else {}
    if container and state["Running"] and state.get("Paused"):
        pass
    elif container and state["Running"] and all(os.path.exists(os.path.join(paths.launch, name)) for name in (launch.LAUNCHER, ORDER)):
        try:
            answer = launch.answer_of(docker.exec(container["Id"], launch.argv("status"), timeout=docker.timeout), launch.STATUS)
        except UnknownState as error:
            if not forced:
                raise
            answer = {"live": True, "unreadable": str(error)}
        unreadable = noted["unreadable"] or engine_state.one_line(answer["unreadable"])
        # Without a readable record, the remaining processes may be the whole engine.
        live = answer["live"] or noted["live"] or bool(unreadable and answer["remaining"])
        noted.update(answer, live=live, unreadable=unreadable)
    else:
        noted["live"] = False
    return {**noted, "last_end": engine_state.last_end(noted)}


def stop_text(stopped: dict[str, t.Any]) -> str:
    """Return a text about how the engine was stopped."""
    if stopped["instead"]:
        return f"stopped the container as a whole: {stopped['instead']}"
    if not stopped["signals"]:
        return f"kept run {stopped['prevented']} from starting" if stopped.get("prevented") else "nothing was left to stop"
    text = f"stopped run {stopped['run_id']} with {', '.join(stopped['signals'])} in {stopped['seconds']} s"
    return f"{text}, {len(stopped['killed'])} processes killed" if stopped["killed"] else text


def blocked(engine: dict[str, t.Any], requests: Requests, before: Snapshot, after: Snapshot) -> ClusterError:
    """Return the refusal to restart a live engine."""
    return ClusterError(
        f"the live engine (run {engine['run_id']}; {requests.text}) has other arguments: {differences(before, after)}",
        remedy="To stop it and start the wanted one: -e gb10_allow=restart",
        reason="restart not allowed",
        diff={"before": before, "after": after},
        requests_running=requests.count,
        run_id=engine["run_id"],
        engine_live=True,
        log_path=engine["log_path"],
    )


def drained(params: dict[str, t.Any], engine: dict[str, t.Any], requests: Requests, check_mode: bool) -> Requests:
    """Wait until a live engine has no requests, at most ``drain_timeout`` seconds, and return them. An engine that reports no number is not waited for."""
    if check_mode or not params["drain_timeout"]:
        return requests
    for _elapsed in clock(params["drain_timeout"], DRAIN_SLEEP):
        if not requests.count:
            break
        requests = interruption.requests_of(engine, API_TIMEOUT, params["api_key_file"])
    return requests


def check_idle(params: dict[str, t.Any], docker: Docker, engine: dict[str, t.Any], container: dict[str, t.Any], check_mode: bool) -> None:
    """Raise :class:`ClusterError` when a live engine has, or may have, requests that must not be lost. An engine that is already stopping is not queried."""
    if params["interrupt_requests"] or not engine["live"] or engine["stopping"]:
        return
    unready = engine["run_id"] in params["unready_runs"]
    situation = interruption.Situation(True, not params["lacks_rank"], unready, interruption.requests_of(engine, API_TIMEOUT, params["api_key_file"]))
    if interruption.why_kept(situation) and params["executor"] == "ray" and params["node_role"] == "head":
        situation = situation._replace(whole=not ray.lacks_rank(docker, existing(container), engine["argv"], API_TIMEOUT))
    if interruption.why_kept(situation):
        situation = situation._replace(requests=drained(params, engine, situation.requests, check_mode))
    interruption.check(situation, False, f"the live engine (run {engine['run_id']}) would be stopped")


def check_start(params: dict[str, t.Any], paths: engine_state.EnginePaths, engine: dict[str, t.Any], before: Snapshot, after: Snapshot) -> None:
    """Raise :class:`ClusterError` when a start would replace a live engine without consent, or another start is under way."""
    if engine["starting"] and engine["launcher"]:
        raise ClusterError(
            f"another start works on this engine (run {engine['starting']})",
            remedy="Wait for it, or end it: run this module with state: stopped.",
            reason="start under way",
        )
    if not engine["live"] or engine["stopping"] or params["allow_restart"]:
        return
    if engine["unreadable"]:
        error = broken_note(os.path.join(paths.run, "run.json"), engine["unreadable"])
        error.remedy += f" Or {interruption.CONSENT},restart: it is stopped, and the wanted one started."
        raise error
    raise blocked(engine, interruption.requests_of(engine, API_TIMEOUT, params["api_key_file"]), before, after)


def check_code(params: dict[str, t.Any]) -> None:
    """Raise :class:`ClusterError` when the code of one of the repositories was changed on this node."""
    if params["hf_home"]:
        model_code.check_repositories(params["state_dir"], params["hf_home"], params["repositories"] or ())


def work_worker(params: dict[str, t.Any], docker: Docker, check_mode: bool) -> dict[str, t.Any]:
    """Check a worker with Ray, where nothing is started: its rank starts and ends with the engine on the head. But it runs the model's code."""
    if params["state"] == "started":
        check_code(params)
    if params["state"] == "started" and not check_mode:
        running_container(engine_api.find_node_container(docker, params["cluster_name"], "worker"), params)
    return {"msg": "a worker starts no engine of its own", "reason": "worker"}


def work_engine(params: dict[str, t.Any], docker: Docker, check_mode: bool) -> dict[str, t.Any]:
    """Bring this node's engine process to the wanted state: with Ray the whole engine, otherwise this node's part of it."""
    cluster, role, state = params["cluster_name"], params["node_role"], params["state"]
    paths = engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], cluster)
    desired = desired_engine(params) if state == "started" else Desired([], {}, [])
    container = engine_api.find_node_container(docker, cluster, role)
    if state == "started" and not check_mode:
        running_container(container, params)
        if role == "head":
            engine_state.read_key(params["api_key_file"])
    engine = last_run(docker, paths, container, is_forced(params))
    if state == "started" and params["same_arguments"] is not None:
        written = desired_engine({**params, "arguments": params["same_arguments"]})
        # The live engine was started with equivalent arguments, so it is the wanted one.
        desired = written if engine["live"] and engine["digest"] == written.digest else desired
    unguarded = bool(launch.guard_of(desired.secret_env)) and not engine["guarded"]
    todo = plan(state, engine, desired.digest, unguarded and params["allow_restart"])
    before = snapshot(engine["live"], engine["argv"], engine["secret_env"], engine["no_carry_env"])
    after = snapshot(state == "started", *desired)
    if todo.start:
        check_code(params)
        check_start(params, paths, engine, before, after)
        planted.check(paths)
        if not check_mode:
            launch.check_room(paths, params["log_max_bytes"])
    if todo.stop:
        check_idle(params, docker, engine, container, check_mode)
    result: dict[str, t.Any] = {
        "changed": todo.changed,
        "reason": todo.reason,
        "actions": [word for word, wanted in (("stop the engine", todo.stop), ("start the engine", todo.start)) if wanted],
        "diff": {"before": before, "after": after},
        "run_id": engine["run_id"],
        "started_run": "",
        "log_path": engine["log_path"],
        "engine_live": engine["live"],
        "last_end": engine["last_end"],
    }
    if state == "started":
        result.update(
            endpoint=f"{engine_state.base_url(params['api_address'], params['api_port'])}/v1" if role == "head" else "",
            argv=desired.argv,
            engine_version="",
            seconds_to_ready=None,
            seconds_to_first_token=None,
        )
    if not todo.changed or check_mode:
        verb = "would be " if todo.changed else ""
        words = {(True, True): "restarted", (True, False): "stopped", (False, True): "started", (False, False): "the engine is as wanted"}
        return {**result, "msg": verb + words[todo.stop, todo.start]}
    if container["State"].get("Paused"):
        docker.unpause(container["Id"])
    return {**result, **act(params, docker, paths, container, todo, desired)}


def act(
    params: dict[str, t.Any], docker: Docker, paths: engine_state.EnginePaths, container: dict[str, t.Any], todo: Plan, desired: Desired
) -> dict[str, t.Any]:
    """Carry out the plan and return the keys to add to the result. The details of an error show how far it got."""
    done: dict[str, t.Any] = {"actions": []}
    try:
        cluster_locks.check_held(cluster_locks.path_of(params["state_dir"], params["cluster_name"]), params["lock_id"])
        if todo.stop:
            stopped = launch.stop_engine(docker, container["Id"], paths, params["stop_grace"], "vllm_serve", is_forced(params))
            done.update(stopped=stopped, engine_live=False)
            done["actions"].append(stop_text(done["stopped"]))
        if todo.start:
            run_id = new_run_id()
            spec = engine_spec(params, desired, run_id)
            launch.order(paths, spec)
            # From here on the run may start even if something fails, so its id is needed to clean up.
            done.update(run_id=run_id, started_run=run_id, log_path=paths.log_of(run_id))
            start_engine(docker, paths, container, spec)
            done.update(engine_live=True)
            done["actions"].append(f"started run {run_id}")
    except ClusterError as error:
        error.details = {**done, "changed": bool(done["actions"]) or "stopped" in error.details, **error.details}
        raise
    done["msg"] = "; ".join(done["actions"])
    return done


def sent(params: dict[str, t.Any]) -> dict[str, t.Any] | None:
    """Return a sample of this node's traffic so far, None when it cannot be read. The proof judges that."""
    try:
        return traffic.sample(params["roots"]["sysfs_root"], params["roots"]["proc_root"])
    except (ClusterError, OSError):
        return None


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    serve_options.check(params)
    docker = Docker(params["docker_socket"], params["docker_timeout"])
    here = serve_options.has_engine(params) or params["state"] == "stopped"
    before = sent(params)
    result = (work_engine if here else work_worker)(params, docker, module.check_mode)
    if params["state"] == "started":
        after = sent(params)
        result["traffic"] = [before, after] if before and after else None
    if result.get("stopped", {}).get("instead"):
        module.warn(stop_text(result["stopped"]))
    return result


def main() -> None:
    module = AnsibleModule(argument_spec=serve_options.ARGUMENT_SPEC, supports_check_mode=True)
    _module.run(module, work)


if __name__ == "__main__":
    main()
