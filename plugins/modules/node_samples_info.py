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
  - O(source=guard) reads the ring that the node guard (M(gb10.cluster.node_service)) keeps on the node's disk, also where the guard was removed. It returns for
    each boot in the ring when its first and last record was written, whether the guard was stopped in order then, and the records of a window of time. A line
    that a power cut left torn is skipped and counted.
  - O(source=guard_summary) reads the ring from a moment of this boot on, and returns what some hours of it come to, namely the curve of the available memory,
    silences, what the guard did, and noteworthy lines of the kernel. A ring without samples of that time leaves the figures null.
  - O(source=gpu) asks the driver's tool for power and temperature again and again. A figure that the tool does not report is null. A tool that cannot be asked
    leaves out its sample, and RV(errors) says why.
  - O(source=sshd) measures from the node itself how long its sshd takes to greet, again and again. A node that runs out of memory still answers pings, but no
    logins (reported of several Sparks). What a new login waits for first is the greeting of sshd, for which sshd has to start a process. There is no login;
    sshd notes each connection in its log.
  - O(source=memory) with O(note=true) records how much memory the node has available, before anything of a cluster is started, and the level that the start
    stays above when it goes as expected, where O(expected) and the records of this node give one. The node's guard acts below it alone.
  - O(source=memory) with O(note=false) waits until that much is available again, less O(tolerance_mb), or until it rose and stopped rising. On unified memory
    what a GPU process used may come back a minute or more after the process is gone, and sometimes only a reboot returns it. Memory that does not come back
    has the verdict V(warn), and is not a failure. Without a note of this boot, the module only waits until memory stops rising, and its verdict is V(unknown).
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
      - With O(source=memory), it looks at the memory once, and writes nothing.
options:
  source:
    description:
      - What is read or sampled.
    type: str
    choices: [guard, guard_summary, gpu, sshd, memory]
    required: true
  seconds:
    description:
      - With O(source=guard), how many seconds before its end the window begins, 1 to 3600, 60 if left out.
      - With O(source=gpu), seconds for which samples are taken at most, 1 to 28800. Required.
      - With O(source=sshd), seconds for which it is asked at most, 1 to 28800, 1 if left out. It is asked once at least.
    type: int
  end:
    description:
      - With O(source=guard), the end of the window, in seconds since 1970. Without it each boot has a window of its own, which ends with its last record.
    type: float
  since:
    description:
      - With O(source=guard_summary), the moment, in seconds since 1970 by the node's clock. Without it only the clock, the boot and the guard are read.
    type: float
  points:
    description:
      - With O(source=guard_summary), points of the curve at most, 10 to 2000. Each is the least of its piece of time.
    type: int
    default: 240
  interval:
    description:
      - With O(source=gpu) and O(source=sshd), seconds between two samples, 1 or more.
    type: int
    default: 5
  until:
    description:
      - With O(source=gpu) and O(source=sshd), a file on the node. Samples are taken as long as it exists.
    type: path
  tool_timeout:
    description:
      - Seconds that the driver's tool gets for one answer.
    type: int
    default: 10
  addresses:
    description:
      - With O(source=sshd), addresses of this node. The first one whose port takes a connection is asked; an sshd may listen on some alone.
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
      - Seconds after which a greeting counts as not come, 1 or more.
    type: int
    default: 30
  note:
    description:
      - With O(source=memory), whether to record what is available before a start, instead of waiting for it after the end.
    type: bool
    default: false
  expected:
    description:
      - With O(note=true), what the start takes by the memory plan, and the digest by which a record of the same start is found, as
        P(gb10.cluster.memory_expected#filter) returns it. Without it no level is noted.
    type: dict
    default: {}
  image:
    description:
      - With O(note=true), the image that is started. Records of another one say nothing of this start.
    type: str
    default: ""
  tolerance_mb:
    description:
      - How many MiB less than noted count as back, 0 or more. Other programs of the node use memory too.
    type: int
    default: 4096
  settle_mb:
    description:
      - Two samples that differ by less than this many MiB mean that the memory has settled, 1 or more.
    type: int
    default: 256
  wait_timeout:
    description:
      - Seconds to wait for the memory at most. It waits that long where less than noted is available and nothing comes back.
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

- name: Read what happened since
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

- name: Note what is available before the start
  gb10.cluster.node_samples_info:
    source: memory
    note: true
  become: true

- name: Wait until it is back
  gb10.cluster.node_samples_info:
    source: memory
    wait_timeout: 300
"""

RETURN = r"""
guard:
  description: What of the guard is on the node.
  returned: with O(source=guard) or O(source=guard_summary)
  type: dict
  contains:
    installed:
      description: Whether its unit is there.
      type: bool
    enabled:
      description: Whether it is started at boot; null when systemd does not say.
      type: bool
    active:
      description: Whether it runs; null when systemd does not say.
      type: bool
    ring:
      description: Where its ring lies.
      type: str
    ring_bytes:
      description: How many bytes the ring has. Null for whoever may not read it.
      type: int
    older:
      description: Whether an older version of this collection set it up, which ends ranks by the trend alone. C(protect --tags guard) renews it.
      type: bool
    said:
      description: What it did, or would have done, last within a day (C(text)), and when in seconds since 1970 (C(at)). Null where there is nothing.
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
  description: The kernel's id of the boot that runs now.
  returned: with O(source=guard) or O(source=guard_summary)
  type: str
  sample: 5f1c2d9e-7b3a-4d0e-9a51-2f0c8f3b7a11
now:
  description: The node's clock, in seconds since 1970.
  returned: with O(source=guard) or O(source=guard_summary)
  type: float
  sample: 1795444512.084
clock:
  description: What the kernel says of the clock.
  returned: with O(source=guard)
  type: dict
  contains:
    synchronized:
      description: Whether it is synchronized; null when the kernel does not say.
      type: bool
    offset_s:
      description: By how many seconds it is off; null when the kernel does not say.
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
      description: Whether the boot runs now.
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
  description: What the ring has of the time since then. Null without O(since).
  returned: with O(source=guard_summary)
  type: dict
  contains:
    samples:
      description: How many samples know the available memory.
      type: int
      sample: 1240
    curve:
      description: C([seconds since then, MiB available]), each the least of its piece of time.
      type: list
      elements: list
      sample: [[0.4, 118800], [5.1, 96120]]
    lowest_mb:
      description: The least MiB that were available; null where no sample knows it.
      type: int
      sample: 20100
    lowest_after_s:
      description: When that was.
      type: float
      sample: 311.2
    longest_silence_s:
      description: The longest time without a sample. The guard takes one a second, so a long one means that the node stood still.
      type: float
      sample: 2.0
    kernel:
      description: Kind and text of the kernel's lines, each once.
      type: list
      elements: list
      sample: [["xid", "NVRM: Xid (PCI:000f:01:00): 43, pid=7, name=VLLM"]]
    acts:
      description: What the guard did, or would have done.
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
  description: Milliseconds from the first packet to the greeting, in their order; null for one that did not come.
  returned: with O(source=sshd)
  type: list
  elements: int
  sample: [4, 5, 31]
worst_ms:
  description: The longest of them. Null where one did not come, and where no address takes connections.
  returned: with O(source=sshd)
  type: int
  sample: 31
address:
  description: The address that was asked, empty when no address takes connections.
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
  description: What was noted before the start, in MiB. Null without a note of this boot.
  returned: with O(source=memory)
  type: int
  sample: 119004
level_mb:
  description: The level in MiB that the start stays above when it goes as expected. Null where none is known.
  returned: with O(note=true)
  type: int
  sample: 18410
level_why:
  description: What it comes from, or why there is none.
  returned: with O(note=true)
  type: str
  sample: the start of 2026-11-23 on record took 96.4 GiB, less 1
samples_mb:
  description: Every sample, in MiB.
  returned: with O(source=memory)
  type: list
  elements: int
  sample: [61022, 97113, 118204, 118210]
seconds:
  description: How long it was waited.
  returned: with O(source=memory)
  type: float
  sample: 15.0
findings:
  description: The judgement, in the shape of all findings.
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

#: What reads each source.
SOURCES: dict[str, t.Callable[[AnsibleModule], dict[str, t.Any]]] = {
    "guard": guard_ring.records, "guard_summary": guard_ring.summary, "gpu": gpu_power.work, "sshd": sshd_greeting.work, "memory": memory_return.work,
}  # fmt: skip
#: Seconds of those that go without.
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
