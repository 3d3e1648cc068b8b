#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_zombie_check
short_description: Find GPU memory that is held by the dead, the orphaned, or nobody
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Compares the processes that the NVIDIA driver lists with the processes that the kernel has, and gives each one a class.
  - C(live) runs. RV(processes[].owner) tells whether it is one of this collection's.
  - C(defunct) has ended and waits for its parent; the driver gives its memory back by itself.
  - C(ghost) is listed by the driver while the kernel has no such process; once that lasts, a reboot alone gives its memory back.
  - C(orphan) is an engine's core or worker whose API server, or Ray on this node, is gone, also in a container, where the first process adopts
    it. It holds its memory until somebody ends it, and ending it is enough. A core whose parent is any other living program is not an orphan, since
    that may use the engine as a library.
  - C(unknown) is there but may not be looked at.
  - Looks at memory beside the processes. With C(slow_reclaim) it is still coming back after something ended; the module waits for it until two
    samples agree. With C(leak) memory is missing that nothing explains. With C(suspect) the driver logged in this boot that it got no memory,
    which a busy node does a thousand times a day. That warns beside a leak, and where no account of the memory can be made.
  - The account behind C(leak) is the formula in RV(accounting.formula). It is uncalibrated, since it has not been compared with a known leak on a
    GB10, and it errs towards finding none. A leak blocks only when no container of this collection and no compute process runs, two samples agree,
    and C(gb10.cluster.doctor --tags baseline) recorded what is normal in this boot. Otherwise it warns, and says what is missing.
  - A process that has ended only counts after it stayed for O(wait_timeout), since the driver takes a moment to clear up after it.
  - One process counts once, however often the driver lists it (as one that computes and one that draws).
  - The check is never passed by not knowing. A tool that is missing, hangs, fails or prints what cannot be read is the verdict V(unknown).
  - It reboots nothing, and ends a process with O(kill_orphans=true) alone.
notes:
  - While memory comes back the controller prints a line about it every O(settle_sleep) or ten seconds, whichever is longer.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._look.driver
attributes:
  check_mode:
    support: full
    details:
      - Looks and waits as otherwise. With O(kill_orphans=true) it ends nothing and tells what would be ended.
  diff_mode:
    support: full
  action:
    description: Runs partly on the controller, which shows the progress.
    support: full
options:
  pid_namespace:
    description:
      - The driver counts processes in the machine's own pid namespace, so the check means nothing in any other.
      - With V(auto), the namespace is recognized by its inode, and any other than the machine's own is the verdict V(unknown).
      - With V(host), you assert that the numbers agree. RV(pid_namespace.asserted) and RV(ignore:msg) say so.
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
      - Whether processes that have ended get time to vanish, and memory to come back, before they count. Without it processes are looked at
        twice at once, memory once, and no leak is proven.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds that a process that has ended gets to vanish.
    type: int
    default: 10
  wait_sleep:
    description:
      - Seconds between two looks while waiting for that.
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
      - Seconds that memory gets to come back. Field reports say that it takes up to four minutes.
      - Memory is sampled more than once only when there is a reason, which RV(reclaim.why) names. A process has ended, an engine of ours was
        stopped less than this long ago and memory is not back to what was noted before its start, or too much is unexplained.
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
      - The directory that holds the state of this collection's clusters on the node.
    type: path
    default: /var/lib/gb10
    version_added: 0.2.0
  baseline:
    description:
      - The file with the node's baseline. Defaults to C(baseline.json) below O(state_dir). One of another boot is not used.
    type: path
    version_added: 0.2.0
  kill_orphans:
    description:
      - Whether to end the processes of class C(orphan), and no other. Each gets SIGTERM, and SIGKILL after O(kill_grace).
      - Right before each signal the process is held fast and its start time compared, so that no other one with its number is hit.
      - Only possible where O(roots.proc_root) shows the module's own pid namespace.
    type: bool
    default: false
    version_added: 0.2.0
  kill_grace:
    description:
      - Seconds from SIGTERM to SIGKILL. A killed engine is reported to leak memory on a GB10, so leave it generous.
    type: int
    default: 120
    version_added: 0.2.0
  earlier:
    description:
      - For the controller's half of this module, which calls the other half several times. What the call before found. Leave it empty.
    type: dict
    default: {}
    version_added: 0.2.0
seealso:
  - module: gb10.cluster.cluster_record
  - module: gb10.cluster.node_samples_info
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

- name: See what would be ended
  gb10.cluster.cuda_zombie_check:
    kill_orphans: true
  become: true
  check_mode: true
  diff: true

- name: End engine cores that lost their server, and wait until their memory is back
  gb10.cluster.cuda_zombie_check:
    kill_orphans: true
  become: true
"""

RETURN = r"""
verdict:
  description:
    - V(pass) when all GPU processes are live or there are none and nothing is missing. V(warn) with a defunct one, with memory that is still coming
      back, with a suspicion. V(block) with a ghost, an orphan, or a proven leak. V(unknown) when that cannot be determined.
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
      description: Its number in the machine's pid namespace.
      type: int
      sample: 4711
    name:
      description: Its name as the driver gives it.
      type: str
      sample: "VLLM::EngineCore"
    type:
      description: C(C) for one that computes, C(G) for one that draws, C(C+G) for both. Null where the driver does not say.
      type: str
      sample: C
    used_mib:
      description: The GPU memory it holds in MiB, null where the driver does not say.
      type: int
      sample: 52310
    class:
      description: One of C(live), C(defunct), C(ghost), C(orphan), C(unknown).
      type: str
      sample: orphan
    owner:
      description: C(ours) when it runs in a container of this collection or was started by it, C(foreign) when not, null when that is unknown.
      type: str
      sample: foreign
    container:
      description: The full id of its container, empty for a process of the host.
      type: str
      sample: ""
    title:
      description: Its command line, or the title it gave itself; empty when the kernel does not have it.
      type: str
      sample: "VLLM::EngineCore"
    rss_mb:
      description: What it has in memory beside what the GPU uses, in MiB.
      type: int
      sample: 3120
    start_ticks:
      description: When it started, in the kernel's clock ticks since boot. With its number it names one process.
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
  description: What each class holds. Classes that hold nothing are left out.
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
      description: Their GPU memory, what came back so far, or what is unexplained, in MiB. Null where one does not tell.
      type: int
      sample: 5120
accounting:
  description: The account of the node's memory in MiB. Null when it could not be read; RV(accounting_error) says why.
  returned: always
  type: dict
  contains:
    total_mb:
      description: The node's memory.
      type: int
      sample: 124610
    available_mb:
      description: What of it is available.
      type: int
      sample: 70211
    used_mb:
      description: The difference.
      type: int
      sample: 54399
    explained:
      description: What of that the kernel explains, by kind.
      type: dict
      sample: {"anon_mb": 2105, "shmem_mb": 44, "sunreclaim_mb": 610, "kernel_stack_mb": 20, "page_tables_mb": 60, "hugetlb_mb": 0}
    explained_mb:
      description: The sum of these.
      type: int
      sample: 2839
    beside:
      description: Figures that are told and are no part of the formula.
      type: dict
      sample: {"mapped_mb": 700, "mlocked_mb": 27, "percpu_mb": 30, "vmalloc_mb": 260, "sec_page_tables_mb": 0, "swap_cached_mb": 0}
    unified:
      description: Whether the GPUs use the node's memory, null without a GPU.
      type: bool
      sample: true
    gpu_processes_mb:
      description: What the living GPU processes hold, null when the driver does not tell it of one.
      type: int
      sample: 0
    before_baseline_mb:
      description: What neither the kernel nor a GPU process explains. Null when RV(accounting.gpu_processes_mb) is.
      type: int
      sample: 51560
    baseline_mb:
      description: What was unexplained when this boot began, null when that was not recorded.
      type: int
      sample: 1480
    unexplained_mb:
      description: What is left.
      type: int
      sample: 50080
    formula:
      description: How it was computed.
      type: str
      sample: unexplained = (MemTotal - MemAvailable) - …
    calibrated:
      description: Whether somebody compared the formula with a known leak. Always false so far.
      type: bool
      sample: false
    threshold_mb:
      description: From where on it counts, O(leak_threshold_mb).
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
  description: Why there is no account, empty when there is one.
  returned: always
  type: str
  sample: ""
reclaim:
  description: How the available memory moved.
  returned: always
  type: dict
  contains:
    state:
      description: C(settled), C(rising), C(falling), or C(one sample) when there was no reason to wait.
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
      description: By how much it rose, in MiB.
      type: int
      sample: 57188
kernel_log:
  description: What the kernel's log says about allocations of the driver in this boot.
  returned: always
  type: dict
  contains:
    source:
      description: Where it was read, empty when nobody looked.
      type: str
      sample: /dev/kmsg
    since_boot:
      description: Whether it reaches back to the boot, null when it was not read.
      type: bool
      sample: true
    failures:
      description: How often the driver got no memory, null when it was not read.
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
  description: The pid namespace that was looked at.
  returned: always
  type: dict
  contains:
    namespace:
      description: Its name, null when it cannot be read.
      type: str
      sample: pid:[4026531836]
    asserted:
      description: Whether O(pid_namespace=host) alone says that its numbers are those of the driver.
      type: bool
      sample: false
ended:
  description: How each orphan was ended, with O(kill_orphans=true).
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: Its number.
      type: int
      sample: 4711
    name:
      description: Its name.
      type: str
      sample: "VLLM::EngineCore"
    used_mib:
      description: What it held, in MiB.
      type: int
      sample: 52310
    outcome:
      description:
        - C(term) or C(kill) by that signal, C(gone) when it had ended before, C(another) when its number had another process, which was left alone,
          C(remains) when it did not end, C(would end) in check mode.
      type: str
      sample: term
  sample: []
needs_reboot:
  description: Whether a ghost stayed, a leak is proven or an orphan cannot be ended, so that a reboot alone gives the memory back.
  returned: always
  type: bool
  sample: true
findings:
  description: One finding for each thing that is wrong, or one that says that all is well, and one for each process that was ended.
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
