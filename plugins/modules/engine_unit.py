#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_unit
short_description: Set up the systemd unit of an engine on a node, or take it away
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - The unit C(gb10-engine-CLUSTER.service) stops the engine gently, and recreates container and engine after a reboot, without a controller. It runs
    the modules of this collection with the arguments in O(specification), which are those that the roles pass to them. No other command line exists.
  - With O(state=present), specification (mode 0600) and program are written into C(CLUSTER/unit) below O(state_dir), where root alone can look, and the unit is
    started. An engine that lives as specified is taken over as it is. One that the unit's specification changed under is not touched either.
  - With O(state=kept), a unit that is there stays with its files. It does not run, nor start at boot. Engine and container run on.
  - With O(state=absent), the unit and its files go. Engine and container run on.
  - A unit of that name that this collection did not write, or that somebody edited, stays as it is, and the module fails.
  - When the node was not shut down cleanly, the first start of the next boot is refused, with the reason in the journal and in RV(unit). A
    person's C(systemctl start) after that goes ahead. So does the first start when root made the file C(power_cycled) in O(state_dir) before, which is
    removed.
requirements:
  - systemd.
  - Python 3.10 or newer on the node.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._cluster
  - gb10.cluster._look
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  action:
    description: Runs partly on the controller, which makes the program and sends it to the node where that has another.
    support: full
options:
  state:
    description:
      - Whether the unit is there. With V(kept), one that is there can be started later, and none is set up.
    type: str
    choices: [present, kept, absent]
    default: present
  enabled:
    description:
      - Whether systemd starts the unit at boot.
    type: bool
    default: false
  specification:
    description:
      - What the unit does, as the role P(gb10.cluster.engine_unit#role) makes it. Required with O(state=present).
    type: dict
  log_dir:
    description:
      - Directory on the node that holds the logs of the collection's clusters.
    type: path
    default: /var/log/gb10
  lock_id:
    description:
      - Id of the cluster's lock that this run took (RV(gb10.cluster.cluster_lock#module:lock)). Before it writes, starts or removes anything, the module makes
        sure that the lock on this node still is that one. With an empty one nothing is checked.
    type: str
    default: ""
  start_timeout:
    description:
      - Seconds that the unit gets to find the engine as specified.
    type: int
    default: 300
  tool_timeout:
    description:
      - Seconds that systemd gets for one other answer.
    type: int
    default: 60
  program_digest:
    description:
      - SHA-256 of the program that the node shall have. Set by the action plugin.
    type: str
    default: ""
  program:
    description:
      - Where that program lies on the node. Set by the action plugin, where the node has another one.
    type: path
seealso:
  - module: gb10.cluster.vllm_serve
  - module: gb10.cluster.ray_cluster
  - module: gb10.cluster.node_container
"""

EXAMPLES = r"""
- name: Have the engine come back after a clean reboot
  gb10.cluster.engine_unit:
    enabled: true
    specification: "{{ __engine_unit_specification }}"
  become: true

- name: Take the unit away, and leave the engine running
  gb10.cluster.engine_unit:
    state: absent
  become: true
"""

RETURN = r"""
unit:
  description: What of the unit is on the node afterwards, in check mode before.
  returned: success
  type: dict
  contains:
    name:
      description: Its name.
      type: str
    installed:
      description: Whether it is there.
      type: bool
    files:
      description: Whether its specification and program are there.
      type: bool
    enabled:
      description: Whether it is started at boot. Null when systemd does not say.
      type: bool
    active:
      description: Whether it runs. Null when systemd does not say.
      type: bool
    failed:
      description: Whether it failed, or refused to start. Null when systemd does not say.
      type: bool
    state:
      description: What it recorded last, C(starting), C(running), C(stopped), C(refused) or C(failed). Empty when it never ran.
      type: str
    reason:
      description: Why.
      type: str
    at:
      description: When, in UTC.
      type: str
    error:
      description: Why its record cannot be read, empty when it can.
      type: str
  sample:
    name: gb10-engine-gb10.service
    installed: true
    files: true
    enabled: true
    active: true
    failed: false
    state: running
    reason: ""
    at: "2026-11-24T02:10:00Z"
    error: ""
needs_program:
  description: Whether the node has another program than O(program_digest). The action plugin sends it then.
  returned: success
  type: bool
  sample: false
"""

import contextlib
import hashlib
import os
import shutil
import sys
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._guard.look import content, write
from ansible_collections.gb10.cluster.plugins.module_utils._host import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._host.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._unit import glance, look, place, specification, text

Params = dict[str, t.Any]


class Wanted(t.NamedTuple):
    """The files of a unit by path: those that it reads, and the unit itself. The program is known by its digest alone."""

    program: str
    texts: dict[str, bytes]
    unit: str


def paths(params: Params) -> tuple[str, str]:
    """Return where the unit's files lie, and where the unit itself."""
    cluster = params["cluster_name"]
    return look.folder_of(params["state_dir"], cluster), look.unit_path(params["roots"]["etc_root"], cluster)


def wanted(params: Params) -> Wanted:
    """Return the files that are wanted. Raises :class:`ClusterError` for a specification that cannot be used."""
    folder, unit_path = paths(params)
    given = dict(specification.check({**(params["specification"] or {}), "roots": params["roots"]}))
    container = specification.step(given, "start", "container") or {"arguments": {}}
    env, roots = container["arguments"].get("env") or {}, params["roots"]
    given["seen"] = place.seen(given["address"], env, roots["sysfs_root"], roots["proc_root"])
    texts = {
        os.path.join(folder, specification.FILE): specification.dump(given).encode(),
        unit_path: text.unit(folder, sys.executable, given).encode(),
    }
    return Wanted(os.path.join(folder, look.PROGRAM), texts, unit_path)


def digest(path: str) -> str:
    """Return the SHA-256 of a file, empty where there is none."""
    found = content(path)
    return hashlib.sha256(found).hexdigest() if found is not None else ""


def systemctl(params: Params, *words: str, seconds: float = 0) -> None:
    """Run systemctl. Raises :class:`ClusterError` with what the unit recorded when that fails."""
    answer = run_tool(["systemctl", *words], seconds or params["tool_timeout"])
    if answer.rc:
        name = look.unit_name(params["cluster_name"])
        noted = look.unit(params["state_dir"], params["cluster_name"], params["roots"]["etc_root"], params["tool_timeout"])
        raise ClusterError(
            f"systemctl {' '.join(words)} ended with {answer.rc}: {noted['reason'] or answer.raw[:300]}",
            remedy=f"See on the node: journalctl -u {name}",
            reason="unit",
        )


def release(params: Params, folder: str) -> None:
    """Let a unit that runs go: it ends and leaves engine and container as they are."""
    look.write_private(os.path.join(folder, look.RELEASE), b"")
    systemctl(params, "stop", look.unit_name(params["cluster_name"]))


def present(module: AnsibleModule) -> dict[str, t.Any]:
    """Write what differs, and have the unit run."""
    params = module.params
    folder, unit_path = paths(params)
    files = wanted(params)
    look.require_ours(unit_path)
    before = {path: content(path) for path in files.texts}
    differing = [path for path in files.texts if before[path] != files.texts[path]]
    needs_program = digest(files.program) != params["program_digest"]
    now = look.unit(params["state_dir"], params["cluster_name"], params["roots"]["etc_root"], params["tool_timeout"])
    name = now["name"]
    actions = [f"write {path}" for path in [*([files.program] if needs_program else []), *differing]]
    if now["enabled"] is not params["enabled"]:
        actions.append(f"{'enable' if params['enabled'] else 'disable'} {name}")
    stale = bool(differing or needs_program)
    if stale or not now["active"]:
        actions.append(f"restart {name}, which leaves the engine running" if now["active"] else f"start {name}")
    result = {
        "actions": actions,
        "needs_program": needs_program,
        "diff": {
            "before": {path: shown(before[path]) for path in differing},
            "after": {path: shown(files.texts[path]) for path in differing},
        },
    }
    if not actions or module.check_mode or (needs_program and not params["program"]):
        return result
    check_lock(params)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    if now["active"] and stale:
        release(params, folder)
    if needs_program:
        bring_program(params, files.program)
    for path in differing:
        if path == unit_path:
            write(path, files.texts[path])
        else:
            look.write_private(path, files.texts[path])
    if unit_path in differing:
        systemctl(params, "daemon-reload")
    if now["enabled"] is not params["enabled"]:
        systemctl(params, "enable" if params["enabled"] else "disable", "--quiet", name)
    if stale or not now["active"]:
        systemctl(params, "start", name, seconds=params["start_timeout"])
    return result


def bring_program(params: Params, path: str) -> None:
    """Put the program that the controller sent into its place. Raises :class:`ClusterError` when it is another."""
    with open(params["program"], "rb") as stream:
        sent = stream.read()
    if hashlib.sha256(sent).hexdigest() != params["program_digest"]:
        raise ClusterError(f"{params['program']} is not the program that the controller made", remedy="Run again.", reason="program")
    look.write_private(path, sent)


def shown(found: bytes | None) -> str:
    """Return a file's content for a diff."""
    return found.decode("utf-8", "replace") if found is not None else ""


def kept(module: AnsibleModule) -> dict[str, t.Any]:
    """Have a unit that is there neither run nor start at boot, and leave its files, engine and container as they are."""
    params = module.params
    folder, unit_path = paths(params)
    there = look.require_ours(unit_path)
    now = look.unit(params["state_dir"], params["cluster_name"], params["roots"]["etc_root"], params["tool_timeout"])
    actions = [f"stop {now['name']}, which leaves the engine running"] if now["active"] else []
    actions += [f"disable {now['name']}"] if now["enabled"] else []
    if there is not None and not module.check_mode:
        check_lock(params)
        # Also one that is only starting, or stopping.
        release(params, folder)
        systemctl(params, "disable", "--quiet", now["name"])
    return {"actions": actions, "needs_program": False, "diff": {}}


def absent(module: AnsibleModule) -> dict[str, t.Any]:
    """Take the unit away, and leave engine and container as they are."""
    params = module.params
    folder, unit_path = paths(params)
    there = look.require_ours(unit_path)
    now = look.unit(params["state_dir"], params["cluster_name"], params["roots"]["etc_root"], params["tool_timeout"])
    gone = look.left(params["state_dir"], params["cluster_name"], params["roots"]["etc_root"])
    actions = [f"stop {now['name']}, which leaves the engine running"] if now["active"] else []
    actions += [f"remove {path}" for path in gone]
    if actions and not module.check_mode:
        check_lock(params)
        if there is not None:
            # Also one that is only starting, or stopping.
            os.makedirs(folder, mode=0o700, exist_ok=True)
            release(params, folder)
            systemctl(params, "disable", "--quiet", now["name"])
            os.unlink(unit_path)
            systemctl(params, "daemon-reload")
        if os.path.lexists(folder):
            shutil.rmtree(folder)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(glance.path_of(params["state_dir"], params["cluster_name"]))
    return {"actions": actions, "needs_program": False, "diff": {"before": {unit_path: shown(there)} if there else {}, "after": {}}}


def check_lock(params: Params) -> None:
    """Raise :class:`ClusterError` when the lock that this run took is not there any more."""
    cluster_locks.check_held(cluster_locks.path_of(params["state_dir"], params["cluster_name"]), params["lock_id"])


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    require_least(params, {"start_timeout": 1, "tool_timeout": 1})
    try:
        done = {"present": present, "kept": kept, "absent": absent}[params["state"]](module)
    except OSError as error:
        remedy = BECOME if isinstance(error, PermissionError) else "See the message; the next run goes on from there."
        raise ClusterError(f"{error.filename or paths(params)[0]}: {error.strerror or error}", remedy=remedy) from error
    would = "would " if module.check_mode else ""
    what = f"{would}{'; '.join(done['actions'])}" if done["actions"] else "there is no unit" if params["state"] == "absent" else "the unit is as it should be"
    return {
        **done,
        "changed": bool(done["actions"]),
        "msg": what,
        "unit": look.unit(params["state_dir"], params["cluster_name"], params["roots"]["etc_root"], params["tool_timeout"]),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "kept", "absent"], "default": "present"},
            "enabled": {"type": "bool", "default": False},
            "cluster_name": {"type": "str", "default": "gb10"},
            "specification": {"type": "dict"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "lock_id": {"type": "str", "default": ""},
            "start_timeout": {"type": "int", "default": 300},
            "tool_timeout": {"type": "int", "default": 60},
            "program_digest": {"type": "str", "default": ""},
            "program": {"type": "path"},
            "roots": ROOTS,
        },
        required_if=[("state", "present", ["specification"])],
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
