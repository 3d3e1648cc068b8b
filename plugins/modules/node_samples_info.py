#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_samples_info
short_description: Read or take samples of a node's guard, GPU, sshd or memory (internal)
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - O(source=guard) reads the ring file that the node guard (M(gb10.cluster.node_service)) keeps on the node's disk, even if the guard was removed. It returns
    for each boot in the ring when its first and last record was written, whether the guard was then stopped in order, and the records of a window of time. A
    line that a power cut left incomplete is skipped and counted.
  - O(source=guard_summary) reads the ring from a time in this boot on, and returns a summary of some hours, namely the curve of the available memory,
    silences, the guard's actions, and noteworthy lines of the kernel. If the ring has no samples of that time, the figures are null.
  - O(source=gpu) repeatedly reads power and temperature from the driver's tool. A figure that the tool does not report is null. If the tool cannot be asked,
    the sample is missing, and RV(errors) has the reason.
  - O(source=sshd) repeatedly measures on the node itself how long its sshd takes to greet. A node that runs out of memory still answers pings, but no
    logins (reported of several Sparks). A new login first waits for sshd's greeting, for which sshd has to start a process. There is no login.
    sshd logs each connection.
  - O(source=memory) with O(note=true) records how much memory the node has available before anything of a cluster is started. It also records the level that
    the start is expected to stay above, if O(expected) and the node's records provide one. The node's guard acts only below it.
  - O(source=memory) with O(note=false) waits until that much is available again, less O(tolerance_mb), or until it rose and stopped rising. On unified memory
    a GPU process's memory may be freed a minute or more after the process is gone, and sometimes only by a reboot. Memory that is not freed
    gives the verdict V(warn), and is not a failure. Without a note from this boot, the module only waits until memory stops rising, and its verdict is
    V(unknown).
  - Nothing is stopped and nothing is rebooted.
notes:
  - A note is a record and not state of the node, so RV(ignore:changed) stays false.
extends_documentation_fragment:
  - gb10.cluster._attributes.internal
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._cluster
  - gb10.cluster._cluster.state_dir
attributes:
  check_mode:
    details:
      - With O(source=memory), it reads the memory once, and writes nothing.
options:
  source:
    description:
      - The source to read or sample.
    type: str
    choices: [guard, guard_summary, gpu, sshd, memory]
    required: true
  seconds:
    description:
      - With O(source=guard), length of the window in seconds before its end, 1 to 3600, default 60.
      - With O(source=gpu), maximum seconds for sampling, 1 to 28800. Required.
      - With O(source=sshd), maximum seconds for measuring, 1 to 28800, default 1. It is measured at least once.
    type: int
  end:
    description:
      - With O(source=guard), the end of the window, in seconds since 1970. Without it each boot has its own window, which ends with its last record.
    type: float
  since:
    description:
      - With O(source=guard_summary), the start time, in seconds since 1970 by the node's clock. Without it only the clock, the boot and the guard are read.
    type: float
  points:
    description:
      - With O(source=guard_summary), maximum number of points in the curve, 10 to 2000. Each is the minimum of its time segment.
    type: int
    default: 240
  interval:
    description:
      - With O(source=gpu) and O(source=sshd), seconds between two samples, 1 or more.
    type: int
    default: 5
  until:
    description:
      - With O(source=gpu) and O(source=sshd), a file on the node. Sampling continues while it exists.
    type: path
  tool_timeout:
    description:
      - Seconds to wait for one answer from the driver's tool.
    type: int
    default: 10
  addresses:
    description:
      - With O(source=sshd), addresses of this node. The first one whose port accepts a connection is used, because an sshd may listen only on some.
    type: list
    elements: str
    default: [127.0.0.1]
  port:
    description:
      - The port of sshd.
    type: int
    default: 22
  greeting_timeout:
    description:
      - Seconds after which a greeting counts as missing, 1 or more.
    type: int
    default: 30
  note:
    description:
      - With O(source=memory), whether to record the available memory before a start, instead of waiting for it after the end.
    type: bool
    default: false
  expected:
    description:
      - With O(note=true), the start's memory by the memory plan, and the digest that identifies records of the same start, as
        P(gb10.cluster.memory_expected#filter) returns them. Without it no level is recorded.
    type: dict
    default: {}
  image:
    description:
      - With O(note=true), the image to start. Records of a different image do not apply to this start.
    type: str
    default: ""
  tolerance_mb:
    description:
      - How many MiB below the recorded value count as freed, 0 or more. Other programs on the node use memory too.
    type: int
    default: 4096
  settle_mb:
    description:
      - Two samples that differ by less than this many MiB mean that the memory has settled, 1 or more.
    type: int
    default: 256
  wait_timeout:
    description:
      - Maximum seconds to wait for the memory. The wait is that long if less than the recorded value is available and none is freed.
    type: int
    default: 180
  wait_sleep:
    description:
      - Seconds between two samples of the memory, 1 or more.
    type: int
    default: 5
seealso:
  - module: gb10.cluster.node_service
  - module: gb10.cluster.node_info
  - module: gb10.cluster.cuda_zombie_check
"""

EXAMPLES = r"""
- name: Read the last minute of each boot
  gb10.cluster.node_samples_info:
    source: guard
  become: true

- name: Read the node's clock
  gb10.cluster.node_samples_info:
    source: guard_summary
  become: true
  register: before

- name: Read a summary since then
  gb10.cluster.node_samples_info:
    source: guard_summary
    since: "{{ before.now }}"
  become: true

- name: Sample the GPU for a minute
  gb10.cluster.node_samples_info:
    source: gpu
    seconds: 60

- name: Measure sshd for a minute
  gb10.cluster.node_samples_info:
    source: sshd
    seconds: 60

- name: Record the available memory before the start
  gb10.cluster.node_samples_info:
    source: memory
    note: true
  become: true

- name: Wait until the memory is free again
  gb10.cluster.node_samples_info:
    source: memory
    wait_timeout: 300
"""

RETURN = r"""
guard:
  description: The state of the guard on the node.
  returned: with O(source=guard) or O(source=guard_summary)
  type: dict
  contains:
    installed:
      description: Whether its unit exists.
      type: bool
    enabled:
      description: Whether it is started at boot. Null if systemd does not report it.
      type: bool
    active:
      description: Whether it runs. Null if systemd does not report it.
      type: bool
    ring:
      description: Path of its ring.
      type: str
    ring_bytes:
      description: Size of the ring in bytes. Null if the account may not read it.
      type: int
    older:
      description: Whether an older version of this collection set it up, which ends ranks based on the trend only. C(protect --tags guard) renews it.
      type: bool
    said:
      description: Its last action within a day, or the one it would have taken (C(text)), and the time in seconds since 1970 (C(at)). Null if there is none.
      type: dict
  sample:
    installed: true
    enabled: true
    active: true
    ring: /var/lib/gb10/guard/ring
    ring_bytes: 8734021
    older: false
    said: null
boot_id:
  description: The kernel's id of the current boot.
  returned: with O(source=guard) or O(source=guard_summary)
  type: str
  sample: 5f1c2d9e-7b3a-4d0e-9a51-2f0c8f3b7a11
now:
  description: The node's clock, in seconds since 1970.
  returned: with O(source=guard) or O(source=guard_summary)
  type: float
  sample: 1795444512.084
clock:
  description: The kernel's state of the clock.
  returned: with O(source=guard)
  type: dict
  contains:
    synchronized:
      description: Whether it is synchronized. Null if the kernel does not report it.
      type: bool
    offset_s:
      description: Its offset in seconds. Null if the kernel does not report it.
      type: float
  sample:
    synchronized: true
    offset_s: 0.00012
boots:
  description: The boots in the ring, the oldest first, at most six.
  returned: with O(source=guard)
  type: list
  elements: dict
  contains:
    boot_id:
      description: The kernel's id of the boot.
      type: str
    first:
      description: When the first record was written, in seconds since 1970.
      type: float
    last:
      description: When the last record was written.
      type: float
    stopped:
      description: Whether the guard was stopped in order at the end, as at a shutdown.
      type: bool
    current:
      description: Whether it is the current boot.
      type: bool
    records:
      description: The records of the window, as the guard wrote them.
      type: list
      elements: dict
    torn:
      description: Lines in the window's segments that cannot be read.
      type: int
  sample: []
seen:
  description: The ring's content since that time. Null without O(since).
  returned: with O(source=guard_summary)
  type: dict
  contains:
    samples:
      description: Number of samples with the available memory.
      type: int
      sample: 1240
    curve:
      description: C([seconds since then, MiB available]), each the minimum of its time segment.
      type: list
      elements: list
      sample: [[0.4, 118800], [5.1, 96120]]
    lowest_mb:
      description: The lowest available memory in MiB. Null if no sample has it.
      type: int
      sample: 20100
    lowest_after_s:
      description: When that was.
      type: float
      sample: 311.2
    longest_silence_s:
      description: The longest time without a sample. The guard takes one per second, so a long one means that the node stalled.
      type: float
      sample: 2.0
    kernel:
      description: Kind and text of the kernel's lines, each once.
      type: list
      elements: list
      sample: [["xid", "NVRM: Xid (PCI:000f:01:00): 43, pid=7, name=VLLM"]]
    acts:
      description: The guard's actions, or those it would have taken.
      type: list
      elements: str
      sample: []
samples:
  description: The samples in their order, each with C(t) (seconds since the epoch by the node's clock), C(power_w) and C(temperature_c).
  returned: with O(source=gpu)
  type: list
  elements: dict
  sample: [{"t": 1795444323.1, "power_w": 46.6, "temperature_c": 68}]
samples_ms:
  description: Milliseconds from the first packet to the greeting, in order. Null for a missing greeting.
  returned: with O(source=sshd)
  type: list
  elements: int
  sample: [4, 5, 31]
worst_ms:
  description: The longest of them. Null if one is missing, and if no address accepts connections.
  returned: with O(source=sshd)
  type: int
  sample: 31
address:
  description: The measured address. Empty if no address accepts connections.
  returned: with O(source=sshd)
  type: str
  sample: 127.0.0.1
errors:
  description: Why samples or greetings are missing, each reason once.
  returned: with O(source=gpu) or O(source=sshd)
  type: list
  elements: str
  sample: []
available_mb:
  description: Available memory at the end, in MiB.
  returned: with O(source=memory)
  type: int
  sample: 118210
noted_mb:
  description: The value recorded before the start, in MiB. Null without a note from this boot.
  returned: with O(source=memory)
  type: int
  sample: 119004
level_mb:
  description: The level in MiB that the start is expected to stay above. Null if unknown.
  returned: with O(note=true)
  type: int
  sample: 18410
level_why:
  description: The source of the level, or why there is none.
  returned: with O(note=true)
  type: str
  sample: the recorded start of 2026-11-23 took 96.4 GiB, less 1
samples_mb:
  description: Every sample, in MiB.
  returned: with O(source=memory)
  type: list
  elements: int
  sample: [61022, 97113, 118204, 118210]
seconds:
  description: Duration of the wait.
  returned: with O(source=memory)
  type: float
  sample: 15.0
findings:
  description: The judgment, in the format of all findings.
  returned: with O(source=memory) and O(note=false)
  type: list
  elements: dict
  sample: []
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._samples import gpu_power, guard_ring, memory_return, sshd_greeting

#: The function that reads each source.
SOURCES: dict[str, t.Callable[[AnsibleModule], dict[str, t.Any]]] = {
    "guard": guard_ring.records, "guard_summary": guard_ring.summary, "gpu": gpu_power.work, "sshd": sshd_greeting.work, "memory": memory_return.work,
}  # fmt: skip
#: The default of ``seconds`` for the sources that do not require it.
SECONDS = {"guard": 60, "sshd": 1}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    source = module.params["source"]
    if module.params["seconds"] is None:
        module.params["seconds"] = SECONDS.get(source)
    return SOURCES[source](module)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "str", "choices": list(SOURCES), "required": True},
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "seconds": {"type": "int"},
            "end": {"type": "float"},
            "since": {"type": "float"},
            "points": {"type": "int", "default": 240},
            "interval": {"type": "int", "default": 5},
            "until": {"type": "path"},
            "tool_timeout": {"type": "int", "default": 10},
            "addresses": {"type": "list", "elements": "str", "default": ["127.0.0.1"]},
            "port": {"type": "int", "default": 22},
            "greeting_timeout": {"type": "int", "default": 30},
            "note": {"type": "bool", "default": False},
            "expected": {"type": "dict", "default": {}},
            "image": {"type": "str", "default": ""},
            "tolerance_mb": {"type": "int", "default": 4096},
            "settle_mb": {"type": "int", "default": 256},
            "wait_timeout": {"type": "int", "default": 180},
            "wait_sleep": {"type": "int", "default": 5},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
            "roots": ROOTS,
        },
        required_if=[("source", "gpu", ["seconds"])],
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
