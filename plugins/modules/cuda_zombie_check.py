#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_zombie_check
short_description: Find GPU processes that are gone but still hold memory
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Compares the processes that the NVIDIA driver lists with the processes that the kernel has, and gives each one a class.
  - C(live) runs. C(defunct) has ended and waits for its parent; the driver gives its memory back by itself.
    C(ghost) is listed by the driver while the kernel has no such process; once that lasts, a reboot alone gives its memory back.
    C(unknown) is there but may not be looked at.
  - A process that has ended only counts after it stayed for O(wait_timeout), since the driver takes a moment to clear up after it.
  - The check is never passed by not knowing. A tool that is missing, hangs, fails or prints what cannot be read is the verdict V(unknown).
  - It only reads. It ends no process and reboots nothing.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
options:
  nvidia_smi:
    description:
      - The driver's tool, as a path or as a name to be found on C(PATH).
    type: str
    default: nvidia-smi
  tool_timeout:
    description:
      - Seconds to wait for one answer of O(nvidia_smi). It hangs when the driver does.
    type: int
    default: 30
  proc_root:
    description:
      - Where the proc file system is mounted.
    type: path
    default: /proc
  pid_namespace:
    description:
      - The driver counts processes in the machine's own pid namespace, so the check means nothing in any other.
      - With V(auto), the namespace is recognised by its inode, and any other than the machine's own is the verdict V(unknown).
      - With V(host), you assert that the numbers agree.
    type: str
    choices: [auto, host]
    default: auto
  fail_on:
    description:
      - The verdicts that make the module fail. With an empty list it always returns normally, and the caller looks at RV(verdict).
    type: list
    elements: str
    choices: [warn, block, unknown]
    default: [block, unknown]
  wait:
    description:
      - Whether processes that have ended get time to vanish before they count. Without it they are looked at twice at once.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds that a process that has ended gets to vanish.
    type: int
    default: 10
  wait_sleep:
    description:
      - Seconds between two looks while waiting.
    type: int
    default: 1
"""

EXAMPLES = r"""
- name: Refuse to start an engine on a GPU whose memory is held by the dead
  gb10.cluster.cuda_zombie_check:

- name: Look, and decide later
  gb10.cluster.cuda_zombie_check:
    fail_on: []
    wait_timeout: 120
  register: zombies

- name: Say what was found
  ansible.builtin.debug:
    var: zombies.findings
"""

RETURN = r"""
verdict:
  description:
    - V(pass) when all GPU processes are live or there are none, V(warn) with a defunct one, V(block) with a ghost, V(unknown) when nobody can tell.
  returned: always
  type: str
  sample: block
processes:
  description: The GPU processes, each once.
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: Its number in the machine's pid namespace.
      type: int
      sample: 4711
    name:
      description: Its name as the driver gives it.
      type: str
      sample: "VLLM::EngineCore"
    used_mib:
      description: The GPU memory it holds in MiB, null where the driver does not say.
      type: int
      sample: 52310
    class:
      description: One of C(live), C(defunct), C(ghost), C(unknown).
      type: str
      sample: ghost
classes:
  description: The pids of each class.
  returned: always
  type: dict
  sample: {"live": [1203], "defunct": [], "ghost": [4711], "unknown": []}
needs_reboot:
  description: Whether a ghost stayed, so that a reboot alone gives the memory back.
  returned: always
  type: bool
  sample: true
findings:
  description: One finding for each process that is not live, or one that says that all is well.
  returned: always
  type: list
  elements: dict
  sample:
    - id: cuda_zombie.ghost
      node: spark-1
      verdict: block
      message: GPU process 4711 (VLLM::EngineCore) is gone, and the driver still counts 52310 MiB as its own
      measured: ghost
      needed: live
      remedy: Reboot this node when nobody uses it.
      source: nvidia-smi and /proc
raw:
  description: What the driver's tool printed, when it could not be used.
  returned: when the tool gave no usable answer
  type: str
  sample: No devices were found
"""

import platform
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _gpu
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding, run
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: From best to worst; the worst finding is the verdict.
VERDICTS = ("pass", "warn", "unknown", "block")

VERDICT_OF_CLASS = {"live": "pass", "defunct": "warn", "ghost": "block", "unknown": "unknown"}

REMEDY_OF_CLASS = {
    "defunct": "Nothing to do: its memory comes back when its parent ends. When it stays, see who the parent is: ps -o ppid= -p {pid}",
    "ghost": "Reboot this node when nobody uses it: nothing else gives this memory back.",
    "unknown": "Run the task with become: true.",
}

MESSAGE_OF_CLASS = {
    "defunct": "GPU process {pid} ({name}) has ended and waits for its parent; the driver still counts {memory} as its own",
    "ghost": "GPU process {pid} ({name}) is gone, and the driver still counts {memory} as its own",
    "unknown": "GPU process {pid} ({name}) may not be looked at, so nobody can tell whether it lives",
}


def judge(processes: list[dict[str, t.Any]], node: str) -> list[dict[str, t.Any]]:
    """Return one finding for each process that is not live, or a single passing one."""
    source = "nvidia-smi and /proc"
    findings = []
    for process in processes:
        kind = process["class"]
        if kind == "live":
            continue
        memory = "an unknown amount of memory" if process["used_mib"] is None else f"{process['used_mib']} MiB"
        findings.append(
            finding(
                f"cuda_zombie.{kind}",
                node,
                VERDICT_OF_CLASS[kind],
                MESSAGE_OF_CLASS[kind].format(**process, memory=memory),
                measured=kind,
                needed="live",
                remedy=REMEDY_OF_CLASS[kind].format(**process),
                source=source,
            )
        )
    if findings:
        return findings
    message = f"{len(processes)} GPU process(es), all live" if processes else "no GPU process"
    return [finding("cuda_zombie.none", node, "pass", message, measured=len(processes), source=source)]


def outcome(processes: list[dict[str, t.Any]], node: str) -> dict[str, t.Any]:
    """Return the module's result for processes that carry their class."""
    findings = judge(processes, node)
    worst = max(findings, key=lambda entry: VERDICTS.index(entry["verdict"]))
    return {
        "verdict": worst["verdict"],
        "msg": "; ".join(entry["message"] for entry in findings),
        "remedy": worst["remedy"],
        "reason": worst["id"],
        "processes": processes,
        "classes": {kind: [process["pid"] for process in processes if process["class"] == kind] for kind in _gpu.CLASSES},
        "needs_reboot": has_class(processes, "ghost"),
        "findings": findings,
    }


def not_known(error: UnknownState, node: str) -> dict[str, t.Any]:
    """Return the module's result when there is no usable answer."""
    return {
        **outcome([], node),
        "verdict": error.verdict,
        "msg": str(error),
        "remedy": error.remedy,
        "reason": error.reason,
        "findings": [finding("cuda_zombie.unknown", node, error.verdict, str(error), remedy=error.remedy, source="nvidia-smi and /proc")],
        **error.details,
    }


def look(params: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the GPU processes of this moment with their classes."""
    return [
        {"pid": process.pid, "name": process.name, "used_mib": process.used_mib, "class": _gpu.classify(process.pid, params["proc_root"])}
        for process in _gpu.query_processes(params["nvidia_smi"], params["tool_timeout"])
    ]


def has_class(processes: list[dict[str, t.Any]], *kinds: str) -> bool:
    return any(process["class"] in kinds for process in processes)


def look_until_settled(params: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Look until no process that has ended is listed, at most for the time that such are given, but never once only.

    The driver lists a process for a moment after it was killed, and one that ends between the driver's answer and the look at /proc
    seems to be a ghost; the second look clears both.
    """
    processes = look(params)
    if has_class(processes, "defunct", "ghost"):
        for _waited in clock(params["wait_timeout"] if params["wait"] else 0, params["wait_sleep"]):
            processes = look(params)
            if not has_class(processes, "defunct", "ghost"):
                break
    return processes


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    node = platform.node()
    try:
        _gpu.require_host_processes(params["proc_root"], asserted=params["pid_namespace"] == "host")
        result = outcome(look_until_settled(params), node)
    except UnknownState as error:
        result = not_known(error, node)
    if result["verdict"] in params["fail_on"]:
        raise ClusterError(result.pop("msg"), remedy=result.pop("remedy"), reason=result.pop("reason"), **result)
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
            "tool_timeout": {"type": "int", "default": 30},
            "proc_root": {"type": "path", "default": "/proc"},
            "pid_namespace": {"type": "str", "choices": ["auto", "host"], "default": "auto"},
            "fail_on": {"type": "list", "elements": "str", "choices": ["warn", "block", "unknown"], "default": ["block", "unknown"]},
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "int", "default": 10},
            "wait_sleep": {"type": "int", "default": 1},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
