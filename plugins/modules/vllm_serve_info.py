#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_serve_info
short_description: Read the state of a node's vLLM engine once
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads the state of a node's engine - whether its process is alive, how it ended, new log lines, the progress of its
    start, the node's available memory, the number of requests, and the state of the node's container.
  - Nothing is started inside the container, so it takes well under a second and works on a node that is short of memory.
  - With O(probe=true) it also requests one generated token. That is the only proof that an engine serves. If none arrives, it reports whether the engine
    worked meanwhile, and for how long checks have found no progress. For that alone it stores a note, C(no-progress.json) in the cluster's state directory.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._cluster
  - gb10.cluster._cluster.state_dir
options:
  node_role:
    description:
      - Role of this node, which selects the container.
      - With Ray, a worker has no process that was started here. Without Ray it has its part of the engine, which has no API.
    type: str
    choices: [head, worker]
    default: head
  log_offset:
    description:
      - Byte offset in the engine's log from which lines are returned. Pass the RV(log_offset) of the previous call.
      - With V(-1) no lines are returned.
    type: int
    default: -1
  log_run_id:
    description:
      - The run that O(log_offset) belongs to. If another run has begun since, its log is read from the start.
    type: str
  ray_offsets:
    description:
      - Byte offsets, by file, from which lines of Ray's workers in this node's container are returned. Pass the RV(ray_offsets) of the previous call.
      - Without it none are read. A file that is not listed is read from its beginning.
    type: dict
    version_added: 0.2.0
  ray_from_end:
    description:
      - Skip the lines that Ray's workers wrote so far, as for the first call in a run.
    type: bool
    default: false
    version_added: 0.2.0
  kernel_since:
    description:
      - Return the kernel's messages about GPU, fabric, memory and disks since this time, in seconds since the epoch by the node's clock. Without it the log
        is not read.
    type: float
    version_added: 0.2.0
  probe:
    description:
      - Request a token from the API if C(/health) answers. The address is the one that the engine was started with.
      - If a token arrives and O(api_key_file) is set, also request every route of the API without the key, unless O(routes) is off. These requests change
        nothing.
    type: bool
    default: false
  prompt_letters:
    description:
      - Request the token with a prompt of this many random letters, which no cache knows. With V(0) the prompt is one word.
      - More letters make the ranks send more to each other.
    type: int
    default: 0
    version_added: 0.2.0
  routes:
    description:
      - Whether O(probe=true) also requests the API's routes.
    type: bool
    default: true
    version_added: 0.2.0
  probe_timeout:
    description:
      - Seconds to wait for each answer of the API.
    type: int
    default: 5
  first_token_timeout:
    description:
      - Seconds to wait for that token if an engine may have to compile kernels for it. The default is O(probe_timeout).
    type: int
    version_added: 0.2.0
  sample_s:
    description:
      - Seconds between two samples of the processes' processor time, 0 for a single sample. The time of a token request counts toward them.
    type: float
    default: 0
    version_added: 0.2.0
  model:
    description:
      - Name under which the API serves the model. Without it, the first model that the API serves is used.
    type: str
  api_key_file:
    description:
      - File on the node with the API's key. Without it an engine with a key reports neither its version nor its number of requests.
    type: path
  fabric_address:
    description:
      - This node's address on the fabric, to check whether the interface with this address is up.
    type: str
    version_added: 0.2.0
  log_dir:
    description:
      - Directory on the node for the logs of the collection's clusters.
    type: path
    default: /var/log/gb10
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: gb10.cluster.vllm_serve
"""

EXAMPLES = r"""
- name: Read the state of the engine
  gb10.cluster.vllm_serve_info:
  register: engine

- name: Request a token
  gb10.cluster.vllm_serve_info:
    probe: true
    model: nvidia/nemotron-3-super
    api_key_file: /etc/gb10/secrets/api_key
  register: engine

- name: Show the progress of the start
  ansible.builtin.debug:
    msg: "{{ engine.stage }} {{ engine.shards }}"
"""

RETURN = r"""
engine:
  description: The last run of the engine that was started on this node.
  returned: success
  type: dict
  contains:
    live:
      description: Whether its process exists, by pid and start time.
      returned: always
      type: bool
      sample: true
    run_id:
      description: Name of the run. Empty if there was none.
      returned: always
      type: str
      sample: 20261121T015300Z-3f9a
    pid:
      description: The host's pid while it is alive.
      returned: always
      type: int
      sample: 48121
    argv:
      description: Its command line.
      returned: always
      type: list
      elements: str
      sample: [vllm, serve, gb10-lab/tiny-llama, --host, 192.168.100.1, --port, "8000"]
    guarded:
      description: Whether it was started with the collection's own guard, which requires the API's key on every path but C(/health).
      returned: always
      type: bool
      version_added: 0.2.0
      sample: true
    profile:
      description: Id of the profile that it was started for. Empty if unknown.
      returned: always
      type: str
      version_added: 0.2.0
      sample: nemotron_3_super_tp2
    digest:
      description: Digest of the options it was started with.
      returned: always
      type: str
      sample: "1:5a0e6d1c1f9f"
    secret_env:
      description: Names of the variables with secrets, and the files that they were read from.
      returned: always
      type: dict
      sample: {VLLM_API_KEY: /run/secrets/gb10/api_key}
    no_carry_env:
      description: Names of the variables that are not copied to other ranks.
      returned: always
      type: list
      elements: str
      sample: [VLLM_HOST_IP]
    api_address:
      description: Address that the API was started with. Empty on a worker.
      returned: always
      type: str
      sample: 192.168.100.1
    api_port:
      description: Port of the API. Null on a worker.
      returned: always
      type: int
      sample: 8000
    started_at:
      description: When it was started, in seconds since the epoch.
      returned: always
      type: float
      sample: 1795226000.1
    seconds:
      description: Seconds since its start, or the duration of a run that has ended. Null if that was not recorded.
      returned: always
      type: float
      sample: 31.4
    exit_code:
      description: Exit code of a run that has ended. Null if a signal ended it, or if its launcher was killed with it.
      returned: always
      type: int
      sample: 2
    exit_signal:
      description: Signal that ended it.
      returned: always
      type: int
      sample: 9
    ended_at:
      description: When it ended, in seconds since the epoch.
      returned: always
      type: float
      sample: 1795226031.5
    stopped_at:
      description: When a module of this collection asked it to stop, in seconds since the epoch. Null if none did.
      returned: always
      type: float
      version_added: 0.2.0
      sample: 1795226031.5
    ordered:
      description: The last requested run, from the node's own note, which the container cannot write. Empty if there was none.
      returned: always
      type: str
      version_added: 0.2.0
      sample: 20261121T015300Z-3f9a
    stopped_by:
      description:
        - Who requested the stop, from the node's own note, which the container cannot write. Empty if no module of this collection did.
      returned: always
      type: str
      version_added: 0.2.0
      sample: user spark with vllm_serve
    start_error:
      description: Why a later run never began. Empty if there was none.
      returned: always
      type: str
      version_added: 0.2.0
      sample: ""
    log_path:
      description: Its log on the node.
      returned: always
      type: str
      sample: /var/log/gb10/gb10/engine/20261121T015300Z-3f9a.log
last_end:
  description: How the engine ended and the last line of its log. Empty while it is alive, and if there was none.
  returned: success
  type: str
  version_added: 0.2.0
  sample: "run 20261121T015300Z-3f9a ended with exit code 1 at 2026-11-21T01:53:31Z after 31 s, its log ends: RuntimeError: no memory"
last_lines:
  description: The last lines of the log of an engine that ended on its own, with O(probe).
  returned: success
  type: list
  elements: str
  version_added: 0.2.0
  sample: []
container:
  description: The node's container. If there is none, C(exists) is false.
  returned: success
  type: dict
  contains:
    exists:
      description: Whether there is one.
      returned: always
      type: bool
      sample: true
    id:
      description: Its id.
      returned: always
      type: str
      sample: 1f0c2e5b7a99
    name:
      description: Its name.
      returned: always
      type: str
      sample: gb10-gb10-head
    running:
      description: Whether it runs.
      returned: always
      type: bool
      sample: true
    exit_code:
      description: Its exit code if it does not run.
      returned: always
      type: int
      sample: 137
    oom_killed:
      description: Whether the kernel killed it because memory ran out.
      returned: always
      type: bool
      sample: false
fabric:
  description: The interface with O(fabric_address). Null without that option.
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    interface:
      description: Its name. Empty if no interface has the address.
      returned: always
      type: str
      sample: enp1s0f0np0
    operstate:
      description: Its state in the kernel's words.
      returned: always
      type: str
      sample: up
    up:
      description: Whether it has a carrier.
      returned: always
      type: bool
      sample: true
    unanswered:
      description: Peers with unanswered data on an open connection from this address, and how often the same data was sent since their last answer.
      returned: always
      type: dict
      sample: {}
log_lines:
  description: New complete lines of the log, without colors, at most 256 KiB at once.
  returned: success
  type: list
  elements: str
  sample: ["INFO 11-21 01:53:02 [api_server.py:1272] vLLM API server version 0.32.0"]
log_offset:
  description: The offset for the next call.
  returned: success
  type: int
  sample: 4096
ray_lines:
  description: New complete lines of Ray's workers by file, without colors. Empty without O(ray_offsets).
  returned: success
  type: dict
  version_added: 0.2.0
  sample: {"worker-1f0c-01000000-277.err": ["(RayWorkerProc pid=277) INFO 11-21 01:53:02 [gpu_model_runner.py:3] Starting to load model"]}
kernel_lines:
  description: Lines of the kernel's log since O(kernel_since), each with its time. Lines that differ only in numbers count as one.
  returned: success
  type: list
  elements: str
  version_added: 0.2.0
  sample: ["2026-11-21T01:53:02Z NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus."]
kernel_error:
  description: Why the kernel's log could not be read. Empty if it was, or was not requested.
  returned: success
  type: str
  version_added: 0.2.0
  sample: ""
ray_offsets:
  description: The offsets for the next call, by file.
  returned: success
  type: dict
  version_added: 0.2.0
  sample: {"worker-1f0c-01000000-277.err": 4096}
stage:
  description: The stage of the start, from the end of the log. Empty if the log does not show it.
  returned: success
  type: str
  sample: loading weights
shards:
  description: The finished and the total amount of the stage, if the log counts it.
  returned: success
  type: str
  sample: 1/2
processes:
  description: The processes of the engine and of Ray in this node's container, by pid.
  returned: success
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    pid:
      description: Its pid on this node.
      returned: always
      type: int
      sample: 4711
    text:
      description: A name for it.
      returned: always
      type: str
      sample: ray::RayWorkerProc.run (pid 4711)
    kind:
      description: As in RV(gb10.cluster.stack_info#module:processes[].kind).
      returned: always
      type: str
      sample: rank
    state:
      description:
        - C(alive), C(stopped) (by a signal or a debugger, so that the engine hangs), C(uninterruptible) (it waits in the kernel, and no signal reaches it) or
          C(ended) (its parent has not reaped it).
      returned: always
      type: str
      sample: alive
    start_ticks:
      description: When it started, in clock ticks since boot.
      returned: always
      type: int
      sample: 481234
    cpu_s:
      description: Seconds of processor time that it has used, all its threads together.
      returned: always
      type: float
      sample: 81.42
    cpu_percent:
      description: How much of one core it used between the two samples. Null without O(sample_s).
      returned: always
      type: float
      sample: 3.5
    io_mb:
      description: MiB that it has read and written so far, mapped files included. Null if that cannot be read.
      returned: always
      type: int
      sample: 81440
api:
  description:
    - The answer of C(/health), C(answers), C(starting) (no answer, and its log shows no earlier one), C(refused), C(silent) or C(says dead).
    - Empty if it was not asked.
  returned: success
  type: str
  version_added: 0.2.0
  sample: answers
healthy:
  description: Whether C(/health) answers. Only a hint.
  returned: success
  type: bool
  sample: true
engine_version:
  description: Version of the engine. Empty while the API does not answer.
  returned: success
  type: str
  sample: 0.32.0
requests_running:
  description: Number of running and waiting requests of the engine. Null if unknown.
  returned: success
  type: int
  sample: 0
memory_available_mb:
  description: Memory available on the node in MiB.
  returned: success
  type: int
  sample: 42188
memory_total_mb:
  description: Total memory of the node in MiB.
  returned: success
  type: int
  version_added: 0.2.0
  sample: 124546
now:
  description: The node's clock, in seconds since the epoch.
  returned: success
  type: float
  version_added: 0.2.0
  sample: 1795226031.5
key_withheld:
  description:
    - Why the key is not sent to the process at the API's port. Only a process in the engine's container gets it. Empty if it would get it.
    - Null without O(api_key_file), and if nothing answers.
  returned: success
  type: str
  version_added: 0.2.0
  sample: ""
routes:
  description: The API's routes that answer without its key. Null if they were not requested.
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    listed:
      description: Whether the engine listed its routes. A few known ones and one that does not exist are requested in any case.
      returned: always
      type: bool
      sample: true
    asked:
      description: Number of routes requested, with GET, or with a body that every handler rejects.
      returned: always
      type: int
      sample: 41
    left_out:
      description: Routes that act without a body, so that they are not requested.
      returned: always
      type: list
      elements: str
      sample: [POST /scale_elastic_ep]
    open:
      description: Routes that did not require the key.
      returned: always
      type: list
      elements: str
      sample: [GET /metrics]
    unknown:
      description: Routes that did not answer, with the reason.
      returned: always
      type: list
      elements: str
      sample: []
progress:
  description: Whether an engine that returned no token is working. Null if a token arrived, or none was requested.
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    grew:
      description: Whether tokens flowed, cache use grew or the ranks sent by RDMA during the wait for a token. Null if the metrics do not show it.
      returned: always
      type: bool
      sample: false
    still_s:
      description: Seconds for which checks have found no progress.
      returned: always
      type: float
      sample: 15.2
    limit_s:
      description:
        - Seconds without progress that count as a stall, 1800 or more.
        - It is one and a half times the time for a prompt of the engine's context length at the slowest measured prefill, or the longest time that its own
          histogram allows for, if that is longer.
      returned: always
      type: float
      sample: 1800.0
    withheld:
      description: Why no token was requested. The process at the port is not known to be the engine, and so does not get the key. Otherwise empty.
      returned: always
      type: str
      sample: ""
completion:
  description: The generated token. Null if none was requested or none arrived.
  returned: success
  type: dict
  contains:
    tokens:
      description: Generated tokens when the answer arrived, at least 1.
      returned: always
      type: int
      sample: 1
    seconds:
      description: Seconds to the first token.
      returned: always
      type: float
      sample: 0.412
    prompt_tokens:
      description: Tokens of the prompt as counted by the engine, V(0) if it does not report them.
      returned: always
      type: int
      version_added: 0.2.0
      sample: 1
cold_start:
  description: How long the start of the engine took, by its record, or by its log if it is not recorded yet. Null without a generated token.
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    seconds:
      description:
        - Seconds by stage, C(image) (before the engine's process), C(weights), C(compile), C(graphs), C(warmup) (the rest of the engine's initialization),
          C(first_token), and C(ready) (from the process to the token). A stage that was not seen is not listed.
      returned: always
      type: dict
      sample: {"weights": 529.8, "compile": 18.0, "graphs": 15.0, "warmup": 40.5, "first_token": 0.4, "ready": 702.1}
    compiled:
      description: V(kept) if it used the compiled code of an earlier start, V(new) if it had to compile. Empty if its log shows neither.
      returned: always
      type: str
      sample: kept
    last:
      description: C(seconds), C(compiled) and C(recorded_at) of the last recorded start of the same image and profile. Empty if there is none.
      returned: always
      type: dict
      sample: {}
    reported:
      description: Seconds as other owners reported them, and C(by). Empty if unknown.
      returned: always
      type: dict
      sample: {"weights": 606.4, "by": "djangodevreng/dgx-spark-benchmarks"}
    error:
      description: Why the records could not be read. Empty if they could.
      returned: always
      type: str
      sample: ""
"""

import functools
import itertools
import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._docker import engine_api
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_key, engine_log, engine_state, health, interruption
from ansible_collections.gb10.cluster.plugins.module_utils._engine import open_routes, ray_logs, serve_options, token_probe
from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._host import kernel_log
from ansible_collections.gb10.cluster.plugins.module_utils._memory import node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners, net_devices
from ansible_collections.gb10.cluster.plugins.module_utils._records import cold_starts, starts
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: Bytes at the beginning of a log in which its start is looked for: the longest recorded one is far smaller.
START_BYTES = 4 * engine_log.LOG_CHUNK


def container_view(container: dict[str, t.Any] | None) -> dict[str, t.Any]:
    """Return the relevant part of Docker's details of a container, with the same keys when there is none."""
    if container is None:
        return {"exists": False, "id": "", "name": "", "running": False, "exit_code": None, "oom_killed": False}
    state = container["State"]
    return {
        "exists": True,
        "id": container["Id"][:12],
        "name": container["Name"].lstrip("/"),
        "running": state["Running"],
        "exit_code": None if state["Running"] else state["ExitCode"],
        "oom_killed": state.get("OOMKilled", False),
    }


def log_view(engine: dict[str, t.Any], offset: int, run_id: str | None) -> dict[str, t.Any]:
    """Return the log's new lines, and the stage according to its end."""
    if not engine["run_id"]:
        return {"log_lines": [], "log_offset": max(0, offset), "stage": "", "shards": ""}
    lines: list[str] = []
    if offset >= 0:
        begin = 0 if run_id and run_id != engine["run_id"] else offset
        lines, offset = engine_log.read_log(engine["log_path"], begin, to_end=not engine["live"])
    stage = engine_log.log_stage(engine["log_path"]) or engine_log.Stage("starting")
    return {
        "log_lines": lines,
        "log_offset": offset,
        "stage": stage.name if engine["live"] else "",
        "shards": f"{stage.done}/{stage.total}" if stage.total and engine["live"] else "",
    }


def last_lines(engine: dict[str, t.Any]) -> list[str]:
    """Return the last log lines of an engine that ended by itself, none for any other engine."""
    by_itself = engine["run_id"] and not engine["live"] and not engine["stopped_by"]
    return engine_log.log_end(engine["log_path"]) if by_itself else []


def cold_start(engine: dict[str, t.Any], params: dict[str, t.Any], image_id: str) -> cold_starts.Cold:
    """Return how long the start of a live engine took. Records that cannot be read do not prevent the other readings."""
    try:
        known, error = starts.FILE.read(starts.FILE.path_of(params["state_dir"], params["cluster_name"])), ""
    except UnknownState as unread:
        known, error = [], unread.with_remedy()
    lines, _offset = engine_log.read_log(engine["log_path"], 0, START_BYTES, to_end=True)
    # A request can have the same words.
    before = itertools.takewhile(lambda line: "Application startup complete" not in line, lines)
    return {**cold_starts.start_of(before, known, engine["run_id"], image_id, engine["profile"]), "error": error}


def api_view(engine: dict[str, t.Any], params: dict[str, t.Any], stage: str) -> dict[str, t.Any]:
    """Return the answers of a live engine's API. ``stage`` is the stage of its start according to its log."""
    view: dict[str, t.Any] = {
        "api": "",
        "healthy": False,
        "engine_version": "",
        "requests_running": None,
        "completion": None,
        "progress": None,
        "routes": None,
        "key_withheld": None,
    }
    if not engine["live"] or not engine["api_address"]:
        return view
    url, timeout = engine_state.base_url(engine["api_address"], engine["api_port"]), params["probe_timeout"]
    api = token_probe.api_of(url, timeout, stage)
    if api != health.ANSWERS:
        return {**view, "api": api}
    key = api_key.of(engine, params["api_key_file"])
    requests = interruption.requests_of(engine, timeout, params["api_key_file"])
    view.update(api=api, healthy=True, engine_version=engine_state.engine_version(url, timeout, key), requests_running=requests.count)
    view["key_withheld"] = key.why_withheld(url, timeout) if key else None
    if params["probe"]:
        # Not in a directory that the container can write to.
        note = os.path.join(params["state_dir"], params["cluster_name"], "no-progress.json")
        waits = params["first_token_timeout"] or timeout
        prompt = engine_state.random_prompt(params["prompt_letters"]) or engine_state.PROMPT
        fabric = token_probe.fabric_root(engine["argv"], params["roots"]["sysfs_root"])
        view.update(token_probe.ask(url, params["model"], key, timeout, waits, fabric, engine["run_id"], note, prompt).as_result())
        view["routes"] = open_routes.ask(url, key, timeout) if view["completion"] and key and params["routes"] else None
    return view


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    serve_options.check_address("fabric_address", params["fabric_address"])
    paths = engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"])
    api = engine_api.EngineApi(params["docker_socket"], params["docker_timeout"])
    engine = engine_state.engine_state(paths)
    inspected = engine_api.find_node_container(api, params["cluster_name"], params["node_role"])
    container = container_view(inspected)
    look = functools.partial(members_of, api, inspected)
    began, before = time.monotonic(), look()
    log = log_view(engine, params["log_offset"], params["log_run_id"])
    answers = api_view(engine, params, log["stage"])
    processes = before
    if params["sample_s"] > 0 and before:
        time.sleep(max(0.0, began + params["sample_s"] - time.monotonic()))
        processes = at_work.compared(before, look(), time.monotonic() - began)
    memory = node_memory.figures(node_memory.read_meminfo())
    return {
        "msg": "engine live" if engine["live"] else "no live engine",
        "engine": engine,
        "last_end": engine_state.last_end(engine),
        "last_lines": last_lines(engine) if params["probe"] else [],
        "container": container,
        "processes": processes,
        "fabric": fabric_view(params["fabric_address"]) if params["fabric_address"] else None,
        **log,
        **ray_view(inspected, params),
        **kernel_view(params),
        **answers,
        "cold_start": cold_start(engine, params, (inspected or {}).get("Image", "")) if answers["completion"] else None,
        "memory_available_mb": memory["available_mb"],
        "memory_total_mb": memory["total_mb"],
        "now": time.time(),
    }


def fabric_view(address: str) -> dict[str, t.Any]:
    """Return the interface of the fabric's address, and the peers that do not answer connections from there."""
    return {**net_devices.interface_of(address), "unanswered": listeners.unanswered(address)}


def ray_view(container: dict[str, t.Any] | None, params: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the new lines of Ray's workers."""
    lines: dict[str, list[str]] = {}
    offsets = params["ray_offsets"] or {}
    if container and container["State"]["Running"] and params["ray_offsets"] is not None:
        try:
            lines, offsets = ray_logs.read(f"/proc/{container['State']['Pid']}/root", offsets, params["ray_from_end"])
        except (FileNotFoundError, ProcessLookupError):
            pass  # the container ended in the meantime, which the next poll shows
        except PermissionError as error:
            raise UnknownState(f"the logs of Ray's workers cannot be read: {error.strerror}", remedy=BECOME, reason="permission") from error
    return {"ray_lines": lines, "ray_offsets": offsets}


def kernel_view(params: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the kernel's log lines since ``kernel_since``. A log that cannot be read does not prevent the other readings."""
    if params["kernel_since"] is None:
        return {"kernel_lines": [], "kernel_error": ""}
    try:
        events = kernel_log.kernel_log(params["roots"]["kernel_log"], params["roots"]["proc_root"])["events"]
    except (OSError, UnknownState) as error:
        return {"kernel_lines": [], "kernel_error": str(error)}
    # Both are texts in UTC with whole seconds, so they sort like the times.
    since = utc_text(params["kernel_since"])
    return {"kernel_lines": [f"{event['last']} {event['text']}" for event in events if event["last"] and event["last"] >= since], "kernel_error": ""}


def members_of(api: engine_api.EngineApi, container: dict[str, t.Any] | None) -> list[dict[str, t.Any]]:
    """Return the processes of engine and Ray in the node's container, none when no container runs."""
    return at_work.members(api.top(container["Id"])) if container and container["State"]["Running"] else []


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "node_role": {"type": "str", "choices": ["head", "worker"], "default": "head"},
            "log_offset": {"type": "int", "default": -1},
            "log_run_id": {"type": "str"},
            "ray_offsets": {"type": "dict"},
            "kernel_since": {"type": "float"},
            "roots": ROOTS,
            "ray_from_end": {"type": "bool", "default": False},
            "probe": {"type": "bool", "default": False},
            "probe_timeout": {"type": "int", "default": 5},
            "first_token_timeout": {"type": "int"},
            "sample_s": {"type": "float", "default": 0},
            "prompt_letters": {"type": "int", "default": 0},
            "routes": {"type": "bool", "default": True},
            "model": {"type": "str"},
            "api_key_file": {"type": "path", "no_log": False},
            "fabric_address": {"type": "str"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
