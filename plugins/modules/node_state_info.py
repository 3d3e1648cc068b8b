#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_state_info
short_description: Show a node's declared mode, its engines, and whether Ansible reaches it
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads the declared mode with its last events, the lease, the reports of the engines' units, unclean boots, the last health sweep, and memory. It asks
    no engine and no driver, needs no C(become) for that, and answers immediately. An engine without a unit is not seen.
  - With V(clusters) in O(want), it also asks Docker which clusters have a container on the node, running or not. That needs access to Docker.
  - With V(reach) in O(want), it first runs a minimal module on the node, with C(become) if the task has it, and reports why that failed -
    the node does not answer, refuses the account, has no Python, no writable home, or sudo requires a password. A node that does not answer is then a result
    and stays in the play, so that all nodes are judged in one table.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._cluster.state_dir
  - gb10.cluster._docker
  - gb10.cluster._look
attributes:
  action:
    description: Runs partly on the controller, which tries the connection for V(reach).
    support: full
options:
  want:
    description:
      - The facts to read.
    type: list
    elements: str
    choices: [reach, mode, lease, engines, unclean_boots, sweep, memory, clusters, units, companions_unit]
    default: [mode, lease, engines, sweep, memory]
  strict:
    description:
      - Whether the module fails if something cannot be read. Otherwise RV(errors) has the reason, and the rest is returned.
    type: bool
    default: false
  log_dir:
    description:
      - Directory on the node for the logs of clusters.
    type: path
    default: /var/log/gb10
seealso:
  - module: gb10.cluster.cluster_record
  - module: gb10.cluster.node_service
  - module: gb10.cluster.vllm_serve_info
    description: Asks the engine itself.
"""

EXAMPLES = r"""
- name: Show the node's engines
  gb10.cluster.node_state_info:
  register: answer

- name: Show the clusters on the node
  gb10.cluster.node_state_info:
    want: [mode, clusters]
    strict: true
  become: true

- name: Show the nodes that answer
  gb10.cluster.node_state_info:
    want: [reach]
  become: true
  register: reach
"""

RETURN = r"""
mode:
  description: The declared mode with its events. Null if none was ever declared.
  returned: when V(mode) is wanted
  type: dict
  sample: {"mode": "off", "phase": settled, "reason": "", "clusters": {}, "previous": {}, "changed_at": "2026-11-24T02:10:00Z", "events": []}
lease:
  description: The lease of the node, as RV(gb10.cluster.node_service#module:lease). Empty if there is none.
  returned: when V(lease) is wanted
  type: dict
  sample: {}
engines:
  description:
    - The report of each engine's unit. C(state) is V(starting), V(running), V(stopped), V(refused), V(failed), or V(unknown) if it was written
      before the node's current boot and not updated since. C(token) has the C(seconds) to the last requested token, and C(at) the time.
      C(start) is how long the start of the engine took, as text.
  returned: when V(engines) is wanted
  type: list
  elements: dict
  sample:
    - cluster: gb10
      role: head
      state: running
      reason: ""
      at: "2026-11-24T02:10:00Z"
      model: nvidia/nemotron-3-super
      endpoint: http://192.168.100.10:8000/v1
      token: {"seconds": 0.41, "at": "2026-11-24T02:10:00Z"}
      start: "start: 702 s (weights 530, compile 18, graphs 15), compile cache used; last: 695 s"
unclean_boots:
  description:
    - The last boots that a unit found unclean (a power cut, a reset, a crash), oldest first. C(at) is the time, C(seen_s) the seconds since the boot
      at that time, and C(over) says that a unit has run for 60 minutes since, so that another one may be followed by a start.
  returned: when V(unclean_boots) is wanted
  type: list
  elements: dict
  sample:
    - boot_id: b6f1e0b4-6a3c-4f0e-9a51-0b0f1f0c2d11
      at: "2026-11-24T02:10:00Z"
      seen_s: 41.2
      over: true
sweep:
  description:
    - The result of the last health sweep of the node, with C(last_sweep), C(quiet), C(problems), C(last_alert) and C(undelivered) of
      RV(gb10.cluster.node_service#module:sweep). Empty if there was none.
  returned: when V(sweep) is wanted
  type: dict
  sample: {"last_sweep": "2026-11-24T02:10:00Z", "quiet": "", "problems": [], "last_alert": "", "undelivered": {}}
memory:
  description: C(total_mb) and C(available_mb) of the node, in MiB.
  returned: when V(memory) is wanted
  type: dict
  sample: {"total_mb": 124610, "available_mb": 18200}
clusters:
  description: The clusters that have a container on the node, by name.
  returned: when V(clusters) is wanted
  type: dict
  contains:
    role:
      description: Whether this node is its C(head) or a C(worker).
      type: str
    running:
      description: Whether the container runs.
      type: bool
    live:
      description: Whether the engine, or this node's part of it, is alive. With Ray only the head knows.
      type: bool
    run_id:
      description: The last run of the engine. Empty if there was none.
      type: str
    argv:
      description: The engine's start options. Empty if unknown.
      type: list
      elements: str
  sample: {"spark-1": {"role": "head", "running": true, "live": true, "run_id": "20261124T020000Z-3f9a", "argv": ["vllm", "serve", "Qwen/Qwen3-8B"]}}
units:
  description: The clusters whose engine has a unit on the node, running or not.
  returned: when V(units) is wanted
  type: list
  elements: str
  sample: [spark-1]
companions_unit:
  description: Whether the unit that starts companions at a boot is on the node.
  returned: when V(companions_unit) is wanted
  type: bool
  sample: false
errors:
  description: What could not be read, as text.
  returned: success, when more than V(reach) is wanted
  type: list
  elements: str
  sample: []
reached:
  description: Whether Ansible can work there. The verdict is V(block) if it cannot.
  returned: when V(reach) is wanted
  type: bool
  sample: true
cause:
  description: Why not - V(answer), V(name), V(host key), V(account), V(home), V(python), V(sudo), V(sudoers) or V(unknown). Empty if it can.
  returned: when V(reach) is wanted
  type: str
  sample: sudo
what:
  description: The same as the end of a sentence.
  returned: when V(reach) is wanted
  type: str
  sample: ""
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._docker import survey
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import EnginePaths, engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._lease import record as leases
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import sweep_files
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots, glance, unit_files

Params = dict[str, t.Any]

#: Roles of a cluster's containers. Other containers of this collection serve no model.
ROLES = ("head", "worker")


def engine(unit: glance.Glance, boot: str) -> dict[str, t.Any]:
    """Return a unit's last report, as far as it is still valid. An engine of an earlier boot counts as unknown until its unit reports again."""
    shown = {key: value for key, value in unit.items() if key != "boot_id"}
    if unit["boot_id"] != boot and unit["state"] in ("starting", "running"):
        return {**shown, "state": "unknown", "reason": f"it was {unit['state']} before the last boot", "token": {}, "start": ""}
    return shown


def sweep(params: Params) -> dict[str, t.Any]:
    state = sweep_files.read_state(sweep_files.folder_of(params["state_dir"]))
    return sweep_files.shown(state) if state else {}


def memory(params: Params) -> dict[str, int]:
    figures = node_memory.read_meminfo(params["roots"]["proc_root"], params["roots"].get("meminfo"))
    return {"total_mb": figures["MemTotal"] // 1024, "available_mb": accounting.available_mb(figures)}


def cluster_of(params: Params, container: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the state of a container's cluster. When the engine's record cannot be read, the engine may be live, so it counts as live."""
    running = container["state"] in ("running", "paused")
    engine = engine_state(EnginePaths.of(params["state_dir"], params["log_dir"], container["cluster"]), lenient=True)
    return {
        "role": container["role"],
        "running": running,
        "live": running and (engine["live"] or bool(engine["unreadable"])),
        "run_id": engine["run_id"],
        "argv": engine["argv"],
    }


def clusters(params: Params) -> dict[str, dict[str, t.Any]]:
    entries = survey.entries_of(EngineApi(params["docker_socket"], params["docker_timeout"]).containers({}))
    there = [container for container in survey.ours(entries) if container["cluster"] and container["role"] in ROLES]
    return {container["cluster"]: cluster_of(params, container) for container in there}


#: The function that reads each topic from the options and the boot id, and the value when it cannot be read.
WANTS: dict[str, tuple[t.Callable[[Params, str], t.Any], t.Any]] = {
    "mode": (lambda params, _boot: modes.read(params["state_dir"]), None),
    "lease": (lambda params, boot: leases.summary(leases.read(params["state_dir"]), boot), {}),
    "engines": (lambda params, boot: [engine(unit, boot) for unit in glance.on_node(params["state_dir"])], []),
    "unclean_boots": (lambda params, _boot: boots.read(params["state_dir"]), []),
    "sweep": (lambda params, _boot: sweep(params), {}),
    "memory": (lambda params, _boot: memory(params), {}),
    "clusters": (lambda params, _boot: clusters(params), {}),
    "units": (lambda params, _boot: unit_files.clusters(params["roots"]["etc_root"]), []),
    "companions_unit": (lambda params, _boot: os.path.lexists(unit_files.of_companions(params["state_dir"]).path), None),
}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    errors: list[str] = []

    def seen(read: t.Callable[[], t.Any], otherwise: t.Any) -> t.Any:
        try:
            return read()
        except (ClusterError, OSError) as error:
            if params["strict"]:
                raise
            errors.append(str(error))
            return otherwise

    boot = seen(lambda: boot_id(params["roots"]["proc_root"]), "")
    facts = {want: seen(lambda read=read: read(params, boot), otherwise) for want, (read, otherwise) in WANTS.items() if want in params["want"]}
    return {**facts, "errors": errors, "msg": "; ".join(errors) or f"read: {', '.join(facts)}"}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            # The action plugin implements ``reach``.
            "want": {"type": "list", "elements": "str", "choices": ["reach", *WANTS], "default": ["mode", "lease", "engines", "sweep", "memory"]},
            "strict": {"type": "bool", "default": False},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
