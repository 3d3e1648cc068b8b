#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_zombie_check
short_description: Find GPU memory held by dead or orphaned processes, or by no process
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Compares the NVIDIA driver's list of processes with the kernel's, and classifies each process.
  - C(live) runs. RV(processes[].owner) shows whether it belongs to this collection.
  - C(defunct) has ended and waits for its parent. The driver frees its memory automatically.
  - C(ghost) is listed by the driver while the kernel has no such process. If that lasts, only a reboot frees its memory.
  - C(orphan) is an engine's core or worker whose API server, or Ray on this node, is gone. This includes containers, where the first process adopts
    it. It keeps its memory until you end it, and ending it is enough. A core whose parent is any other living program is not an orphan, because
    that program may use the engine as a library.
  - C(unknown) exists but cannot be inspected.
  - Also checks memory. With C(slow_reclaim) memory is still being freed after a process ended, and the module waits until two
    samples agree. With C(leak) memory is missing without an explanation. With C(suspect) the driver logged in this boot that it got no memory,
    which a busy node does a thousand times a day. That warns together with a leak, and where memory cannot be accounted for.
  - The calculation behind C(leak) is the formula in RV(accounting.formula). It is uncalibrated, because it has not been compared with a known leak on a
    GB10, and it errs towards finding none. A leak blocks only if no container of this collection and no compute process runs, two samples agree,
    and C(gb10.cluster.doctor --tags baseline) recorded the normal state in this boot. Otherwise it warns and names the missing condition.
  - A process that has ended counts only if it is still listed after O(wait_timeout), because the driver needs a moment to clean up.
  - A process counts once, even if the driver lists it more than once (for compute and for graphics).
  - Missing data never passes the check. A tool that is missing, hangs, fails or prints unreadable output gives the verdict V(unknown).
  - It never reboots, and it ends processes only with O(kill_orphans=true).
notes:
  - While memory is being freed, the controller prints a line about it every O(settle_sleep) or ten seconds, whichever is longer.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._look.driver
attributes:
  check_mode:
    support: full
    details:
      - Checks and waits as usual. With O(kill_orphans=true) it ends nothing and reports what it would end.
  diff_mode:
    support: full
  action:
    description: Runs partly on the controller, which shows the progress.
    support: full
options:
  pid_namespace:
    description:
      - The driver counts processes in the machine's own pid namespace, so the check is meaningless in any other.
      - With V(auto), the namespace is recognized by its inode. Any namespace other than the machine's own gives the verdict V(unknown).
      - With V(host), you assert that the numbers agree. RV(pid_namespace.asserted) and RV(ignore:msg) report this.
    type: str
    choices: [auto, host]
    default: auto
  fail_on:
    description:
      - The verdicts that make the module fail. With an empty list it always returns normally, and the caller checks RV(verdict).
    type: list
    elements: str
    choices: [warn, block, unknown]
    default: [block, unknown]
  wait:
    description:
      - Whether to wait for ended processes to disappear and for memory to be freed before they count. Without it the module checks processes
        twice in a row and memory once, and cannot prove a leak.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait for an ended process to disappear.
    type: int
    default: 10
  wait_sleep:
    description:
      - Seconds between two checks during that wait.
    type: int
    default: 1
  settle_mb:
    description:
      - Two samples of the available memory that differ by less than this many MiB agree, 1 or more.
    type: int
    default: 256
    version_added: 0.2.0
  settle_sleep:
    description:
      - Seconds between two samples of the available memory, 1 or more.
    type: int
    default: 5
    version_added: 0.2.0
  settle_timeout:
    description:
      - Seconds to wait for memory to be freed. Field reports say that it takes up to four minutes.
      - Memory is sampled more than once only for a reason, which RV(reclaim.why) names. A process has ended, an engine of this collection was
        stopped less than this long ago and memory is still below the value recorded before its start, or too much is unexplained.
    type: int
    default: 240
    version_added: 0.2.0
  leak_threshold_mb:
    description:
      - MiB of unexplained memory from which on it counts as a leak.
    type: int
    default: 4096
    version_added: 0.2.0
  state_dir:
    description:
      - Directory with the state of this collection's clusters on the node.
    type: path
    default: /var/lib/gb10
    version_added: 0.2.0
  baseline:
    description:
      - The file with the node's baseline. Defaults to C(baseline.json) below O(state_dir). A baseline from another boot is not used.
    type: path
    version_added: 0.2.0
  kill_orphans:
    description:
      - Whether to end the processes of class C(orphan), and no others. Each gets SIGTERM, then SIGKILL after O(kill_grace).
      - Right before each signal the process is pinned and its start time is compared, so that no other process with the same pid is hit.
      - Only possible where O(roots.proc_root) shows the module's own pid namespace.
    type: bool
    default: false
    version_added: 0.2.0
  kill_grace:
    description:
      - Seconds between SIGTERM and SIGKILL. A killed engine is reported to leak memory on a GB10, so keep it generous.
    type: int
    default: 120
    version_added: 0.2.0
  earlier:
    description:
      - Internal. The action plugin passes the previous call's results here. Leave it empty.
    type: dict
    default: {}
    version_added: 0.2.0
seealso:
  - module: gb10.cluster.cluster_record
  - module: gb10.cluster.node_samples_info
"""

EXAMPLES = r"""
- name: Refuse to start an engine on a GPU with memory held by dead processes
  gb10.cluster.cuda_zombie_check:

- name: Check now and decide later
  gb10.cluster.cuda_zombie_check:
    fail_on: []
    wait_timeout: 120
  register: zombies

- name: Show the findings
  ansible.builtin.debug:
    var: zombies.findings

- name: Show which processes would be ended
  gb10.cluster.cuda_zombie_check:
    kill_orphans: true
  become: true
  check_mode: true
  diff: true

- name: End engine cores that lost their server, and wait until their memory is free
  gb10.cluster.cuda_zombie_check:
    kill_orphans: true
  become: true
"""

RETURN = r"""
verdict:
  description:
    - V(pass) if all GPU processes are live or there are none and no memory is missing. V(warn) with a defunct process, with memory that is still being
      freed, or with a suspicion. V(block) with a ghost, an orphan, or a proven leak. V(unknown) if it cannot be determined.
  returned: always
  type: str
  sample: block
processes:
  description: The GPU processes, each once, and engine cores and workers without a server that the driver does not list.
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: Its pid in the machine's pid namespace.
      type: int
      sample: 4711
    name:
      description: Its name according to the driver.
      type: str
      sample: "VLLM::EngineCore"
    type:
      description: C(C) for compute, C(G) for graphics, C(C+G) for both. Null if the driver does not report it.
      type: str
      sample: C
    used_mib:
      description: Its GPU memory in MiB. Null if the driver does not report it.
      type: int
      sample: 52310
    class:
      description: One of C(live), C(defunct), C(ghost), C(orphan), C(unknown).
      type: str
      sample: orphan
    owner:
      description: C(ours) if it runs in a container of this collection or was started by it, C(foreign) if not, null if unknown.
      type: str
      sample: foreign
    container:
      description: The full id of its container. Empty for a process of the host.
      type: str
      sample: ""
    title:
      description: Its command line, or the title it set. Empty if the kernel does not have it.
      type: str
      sample: "VLLM::EngineCore"
    rss_mb:
      description: Its memory in MiB in addition to the GPU memory.
      type: int
      sample: 3120
    start_ticks:
      description: Its start time in the kernel's clock ticks since boot. Together with the pid it identifies one process.
      type: int
      sample: 763367
    listed:
      description: Whether the driver lists it.
      type: bool
      sample: true
    why:
      description: Why an engine's core or worker is an orphan, or is not.
      type: str
      sample: no API server or raylet of it lives; the machine's first process adopted it
classes:
  description: The pids of each class of processes.
  returned: always
  type: dict
  sample: {"live": [1203], "defunct": [], "ghost": [4711], "orphan": [], "unknown": []}
held:
  description: Memory held by each class. Classes that hold none are omitted.
  returned: always
  type: list
  elements: dict
  contains:
    class:
      description: A class of processes, or one of C(slow_reclaim), C(leak), C(suspect).
      type: str
      sample: live
    owner:
      description: As in RV(processes[].owner), for C(live); null for the others.
      type: str
      sample: foreign
    pids:
      description: Its processes.
      type: list
      elements: int
      sample: [1203]
    mib:
      description: Their GPU memory, the memory freed so far, or the unexplained memory, in MiB. Null if one is not reported.
      type: int
      sample: 5120
accounting:
  description: The node's memory accounting in MiB. Null if it could not be read. RV(accounting_error) has the reason.
  returned: always
  type: dict
  contains:
    total_mb:
      description: The node's total memory.
      type: int
      sample: 124610
    available_mb:
      description: The available memory.
      type: int
      sample: 70211
    used_mb:
      description: The difference.
      type: int
      sample: 54399
    explained:
      description: The part of it that the kernel explains, by kind.
      type: dict
      sample: {"anon_mb": 2105, "shmem_mb": 44, "sunreclaim_mb": 610, "kernel_stack_mb": 20, "page_tables_mb": 60, "hugetlb_mb": 0}
    explained_mb:
      description: The sum of these.
      type: int
      sample: 2839
    beside:
      description: Further figures that are not part of the formula.
      type: dict
      sample: {"mapped_mb": 700, "mlocked_mb": 27, "percpu_mb": 30, "vmalloc_mb": 260, "sec_page_tables_mb": 0, "swap_cached_mb": 0}
    unified:
      description: Whether the GPUs use the node's memory. Null without a GPU.
      type: bool
      sample: true
    gpu_processes_mb:
      description: Memory of the living GPU processes. Null if the driver does not report it for one of them.
      type: int
      sample: 0
    before_baseline_mb:
      description: Memory that neither the kernel nor a GPU process explains. Null if RV(accounting.gpu_processes_mb) is.
      type: int
      sample: 51560
    baseline_mb:
      description: Unexplained memory when this boot began. Null if that was not recorded.
      type: int
      sample: 1480
    unexplained_mb:
      description: The remaining unexplained memory.
      type: int
      sample: 50080
    formula:
      description: How it was computed.
      type: str
      sample: unexplained = (MemTotal - MemAvailable) - …
    calibrated:
      description: Whether the formula was compared with a known leak. Always false so far.
      type: bool
      sample: false
    threshold_mb:
      description: The threshold from which on it counts as a leak, O(leak_threshold_mb).
      type: int
      sample: 4096
    leak:
      description: C(none), C(proven), C(suspected) or C(not judged).
      type: str
      sample: proven
    doubts:
      description: Why it is not proven, or not judged.
      type: list
      elements: str
      sample: []
accounting_error:
  description: Why there is no accounting. Empty if there is one.
  returned: always
  type: str
  sample: ""
reclaim:
  description: How the available memory changed.
  returned: always
  type: dict
  contains:
    state:
      description: C(settled), C(rising), C(falling), or C(one sample) if there was no reason to wait.
      type: str
      sample: settled
    why:
      description: Why memory was sampled more than once.
      type: list
      elements: str
      sample: [a GPU process has ended]
    samples_mb:
      description: The samples of the available memory, in MiB.
      type: list
      elements: int
      sample: [61022, 97113, 118204, 118210]
    risen_mb:
      description: How much it rose, in MiB.
      type: int
      sample: 57188
kernel_log:
  description: Messages about driver allocations in the kernel's log of this boot.
  returned: always
  type: dict
  contains:
    source:
      description: The log's source. Empty if it was not read.
      type: str
      sample: /dev/kmsg
    since_boot:
      description: Whether the log reaches back to the boot. Null if it was not read.
      type: bool
      sample: true
    failures:
      description: How often the driver got no memory. Null if the log was not read.
      type: int
      sample: 0
    events:
      description: The messages.
      type: list
      elements: dict
      sample: []
    error:
      description: Why it could not be read.
      type: str
      sample: ""
pid_namespace:
  description: The pid namespace that was checked.
  returned: always
  type: dict
  contains:
    namespace:
      description: Its name. Null if it cannot be read.
      type: str
      sample: pid:[4026531836]
    asserted:
      description: Whether only O(pid_namespace=host) asserts that its pids are the driver's.
      type: bool
      sample: false
ended:
  description: How each orphan was ended, with O(kill_orphans=true).
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: Its pid.
      type: int
      sample: 4711
    name:
      description: Its name.
      type: str
      sample: "VLLM::EngineCore"
    used_mib:
      description: Its GPU memory, in MiB.
      type: int
      sample: 52310
    outcome:
      description:
        - C(term) or C(kill) by that signal, C(gone) if it had ended before, C(another) if its pid belonged to another process, which was left alone,
          C(remains) if it did not end, C(would end) in check mode.
      type: str
      sample: term
  sample: []
needs_reboot:
  description: Whether a ghost remained, a leak is proven or an orphan cannot be ended, so that only a reboot frees the memory.
  returned: always
  type: bool
  sample: true
findings:
  description: One finding for each problem, or one that reports no problem, and one for each process that was ended.
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
      remedy: Reboot this node when it is idle.
      source: nvidia-smi and /proc
raw:
  description: The output of the driver's tool if it was not usable.
  returned: when the tool gave no usable answer
  type: str
  sample: No devices were found
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._gpu.zombie_check import check
from ansible_collections.gb10.cluster.plugins.module_utils._module import run


def work(module: AnsibleModule) -> dict[str, t.Any]:
    result = check(module.params, module.check_mode)
    if result["verdict"] in module.params["fail_on"]:
        raise ClusterError(result.pop("msg"), remedy=result.pop("remedy"), reason=result.pop("reason"), **result)
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "roots": ROOTS,
            "tool_timeout": {"type": "int", "default": 30},
            "pid_namespace": {"type": "str", "choices": ["auto", "host"], "default": "auto"},
            "fail_on": {"type": "list", "elements": "str", "choices": ["warn", "block", "unknown"], "default": ["block", "unknown"]},
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "int", "default": 10},
            "wait_sleep": {"type": "int", "default": 1},
            "settle_mb": {"type": "int", "default": 256},
            "settle_sleep": {"type": "int", "default": 5},
            "settle_timeout": {"type": "int", "default": 240},
            "leak_threshold_mb": {"type": "int", "default": 4096},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "baseline": {"type": "path"},
            "kill_orphans": {"type": "bool", "default": False},
            "kill_grace": {"type": "int", "default": 120},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
            "earlier": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
