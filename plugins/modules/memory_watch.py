#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: memory_watch
short_description: Record a node's available memory before a start, and wait after the end until it is back
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - With O(state=noted) records how much memory the node has available, before anything of a cluster is started, and the level that the start stays above
    when it goes as expected, where O(expected) and the records of this node say one. The node's guard (M(gb10.cluster.node_guard)) acts below it alone.
  - With O(state=back) waits until that much is available again, less O(tolerance_mb), or until it rose and stopped rising. On unified memory what a
    GPU process held may come back a minute or more after the process is gone, and sometimes only a reboot returns it.
  - Memory that does not come back is reported with the verdict V(warn), not as a failure. Nothing is stopped and nothing is rebooted.
  - Without a note of this boot, the module only waits until memory stops rising, and its verdict is V(unknown).
notes:
  - A note is a record and not state of the node, so RV(ignore:changed) stays false.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._cluster
options:
  state:
    description:
      - V(noted) before a start, V(back) after the end.
    type: str
    choices: [noted, back]
    required: true
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters. The note is below it.
    type: path
    default: /var/lib/gb10
  expected:
    description:
      - With O(state=noted), what the start takes by the memory plan, and the digest by which a record of the same start is found, as
        P(gb10.cluster.memory_expected#filter) returns it. Without it no level is noted.
    type: dict
    default: {}
  image:
    description:
      - With O(state=noted), the image that is started. Records of another one say nothing of this start.
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
      - Seconds to wait at most. It is waited as long as that where less than noted is available and nothing comes back.
    type: int
    default: 180
  wait_sleep:
    description:
      - Seconds between two samples, 1 or more.
    type: int
    default: 5
attributes:
  check_mode:
    support: full
    details:
      - Looks at the memory once, and writes nothing.
  diff_mode:
    support: none
seealso:
  - module: gb10.cluster.cuda_zombie_check
  - module: gb10.cluster.page_cache_drop
"""

EXAMPLES = r"""
- name: Note what is available before the start
  gb10.cluster.memory_watch:
    state: noted
  become: true

- name: Wait until it is back
  gb10.cluster.memory_watch:
    state: back
    wait_timeout: 300
"""

RETURN = r"""
available_mb:
  description: Available memory at the end, in MiB.
  returned: success
  type: int
  sample: 118210
noted_mb:
  description: What was noted before the start, in MiB. Null without a note of this boot.
  returned: success
  type: int
  sample: 119004
level_mb:
  description: The level in MiB that the start stays above when it goes as expected. Null where none is known.
  returned: with O(state=noted)
  type: int
  sample: 18410
level_why:
  description: What it comes from, or why there is none.
  returned: with O(state=noted)
  type: str
  sample: the start of 2026-11-23 on record took 96.4 GiB, less 1
samples_mb:
  description: Every sample, in MiB.
  returned: success
  type: list
  elements: int
  sample: [61022, 97113, 118204, 118210]
seconds:
  description: How long it was waited.
  returned: success
  type: float
  sample: 15.0
findings:
  description: The judgement, in the shape of all findings.
  returned: with O(state=back)
  type: list
  elements: dict
  sample: []
"""

import os
import socket
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id, write_json
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_note
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, ending, node_memory, note
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

MINIMUM = {"tolerance_mb": 0, "settle_mb": 1, "wait_timeout": 1, "wait_sleep": 1}


def available_mb(roots: dict[str, t.Any]) -> int:
    return accounting.available_mb(node_memory.read_meminfo(roots["proc_root"], roots["meminfo"]))


def noted_mb(found: dict[str, t.Any] | None, boot: str) -> int | None:
    """Return the MiB in a note of this boot, None when there is none."""
    if found is None or found.get("boot_id") != boot:
        return None
    return int(found["available_mb"])


def level(params: dict[str, t.Any], available: int) -> note.Level:
    """Return the level that the start stays above. That none is known keeps nobody from starting: the guard does less then."""
    asked = params["expected"]
    if not asked:
        return note.Level(None, "nobody said what is started")
    try:
        known = starts.FILE.read(starts.FILE.path_of(params["state_dir"], params["cluster_name"]))
        image = EngineApi(params["docker_socket"], params["docker_timeout"]).image(params["image"]) if known and params["image"] else None
        found = ending.of_starts(known, image["Id"] if image else "", asked["start_digest"], available)
        if found:
            return found
        total = node_memory.read_meminfo(params["roots"]["proc_root"], params["roots"]["meminfo"])["MemTotal"] // node_memory.KIB_PER_MIB
        return ending.of_plan(asked, total, available)
    except ClusterError as error:
        return note.Level(None, str(error))


def is_back(samples: list[int], noted: int | None, tolerance_mb: int) -> bool:
    """Return whether as much is available as was noted, less the tolerance."""
    return noted is not None and samples[-1] >= noted - tolerance_mb


def rise_is_over(samples: list[int], noted: int | None, settle_mb: int) -> bool:
    """Return whether the rise is over. While memory is still missing, a pause does not count as the end: the rest may come late."""
    rose = samples[-1] - samples[0] >= settle_mb
    return accounting.settled(samples, settle_mb) and (rose or noted is None)


def judged(node: str, samples: list[int], noted: int | None, tolerance_mb: int) -> dict[str, t.Any]:
    """Return the finding about memory that is, or is not, back."""
    now = samples[-1]
    if noted is None:
        return _module.finding(
            "memory.back",
            node,
            "unknown",
            f"{now} MiB available; whether that is all is unknown: nothing was noted in this boot before a start",
            measured=now,
            remedy="See what holds memory: run the playbook preflight. The next bring-up notes what is available before its start.",
        )
    if is_back(samples, noted, tolerance_mb):
        return _module.finding("memory.back", node, "pass", f"{now} MiB available, {noted} before the start", measured=now, needed=noted - tolerance_mb)
    return _module.finding(
        "memory.back",
        node,
        "warn",
        f"{noted - now} MiB have not come back: {now} MiB available, {noted} before the start",
        measured=now,
        needed=noted - tolerance_mb,
        remedy="See what holds it: run the playbook preflight. Memory that no process holds comes back only with a reboot.",
    )


def watched(params: dict[str, t.Any], noted: int | None, once: bool) -> tuple[list[int], float]:
    """Take samples until the memory is back or has settled; return them and the seconds that took."""
    samples: list[int] = []
    seconds = 0.0
    for seconds in clock(0 if once else params["wait_timeout"], params["wait_sleep"]):
        samples.append(available_mb(params["roots"]))
        if is_back(samples, noted, params["tolerance_mb"]) or rise_is_over(samples, noted, params["settle_mb"]):
            break
    return samples, round(seconds, 1)


def write_note(path: str, available: int, boot: str, uptime: int, expected: note.Level) -> None:
    content = {"available_mb": available, "boot_id": boot, "noted_at": time.time(), note.UPTIME: uptime, note.LEVEL: expected.mb, note.WHY: expected.why}
    try:
        private.make(os.path.dirname(path))
        write_json(path, content)
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {error.strerror}", remedy="Run the task with become: true, or free space there.") from error


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _module.require_least(params, MINIMUM)
    path = note.path_of(params["state_dir"], params["cluster_name"])
    boot = boot_id(params["roots"]["proc_root"])
    if params["state"] == "noted":
        now = available_mb(params["roots"])
        above = level(params, now)
        if not module.check_mode:
            write_note(path, now, boot, accounting.uptime(params["roots"]["proc_root"]), above)
        stays = f"the start stays above {above.mb} MiB" if above.mb is not None else "up to where the start goes as expected is not known"
        levels = {"level_mb": above.mb, "level_why": above.why}
        return {"msg": f"{now} MiB available; {stays}: {above.why}", "available_mb": now, "noted_mb": now, "samples_mb": [now], "seconds": 0.0, **levels}
    noted = noted_mb(read_note(path), boot)
    samples, seconds = watched(params, noted, module.check_mode)
    found = judged(socket.gethostname(), samples, noted, params["tolerance_mb"])
    return {
        "msg": found["message"],
        "verdict": found["verdict"],
        "remedy": found["remedy"],
        "available_mb": samples[-1],
        "noted_mb": noted,
        "samples_mb": samples,
        "seconds": seconds,
        "findings": [found],
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["noted", "back"], "required": True},
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "expected": {"type": "dict", "default": {}},
            "image": {"type": "str", "default": ""},
            "tolerance_mb": {"type": "int", "default": 4096},
            "settle_mb": {"type": "int", "default": 256},
            "wait_timeout": {"type": "int", "default": 180},
            "wait_sleep": {"type": "int", "default": 5},
            "roots": ROOTS,
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
