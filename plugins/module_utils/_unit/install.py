# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units that run modules of the collection: set up with the program that the controller sends, let go, and taken away.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import plain_content, write_whole
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import setup
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.ask import State
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files

Params = dict[str, t.Any]

#: The options of a module that sets up a unit. One that can keep a unit which does not run has ``kept`` among the choices of ``state``.
ARGUMENT_SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "enabled": {"type": "bool", "default": False},
    "specification": {"type": "dict"},
    "state_dir": {"type": "path", "default": "/var/lib/gb10"},
    "start_timeout": {"type": "int", "default": 300},
    "tool_timeout": {"type": "int", "default": 60},
    "program_digest": {"type": "str", "default": ""},
    "program": {"type": "path"},
    "roots": ROOTS,
}


class Unit(t.NamedTuple):
    """A unit that a module sets up: what it leaves running when it is let go, and what else is there of it.

    ``locks`` says whether it works under the lock of the cluster, for which it may wait while it starts.
    """

    place: unit_files.Place
    leaves: str
    beside: tuple[str, ...] = ()
    locks: bool = False

    @property
    def program(self) -> str:
        """Return where its program lies, which is known by its digest alone."""
        return os.path.join(self.place.folder, unit_files.PROGRAM)


def digest(path: str) -> str:
    """Return the SHA-256 of a file, empty where there is none."""
    found = plain_content(path)
    return hashlib.sha256(found).hexdigest() if found is not None else ""


def let_go(params: Params, unit: Unit) -> None:
    """Let a unit go that runs, or starts: it ends once a module that it runs has ended, and leaves what it started as it is."""
    write_whole(os.path.join(unit.place.folder, unit_files.RELEASE), b"")
    unit.place.unit.systemctl(max(params["tool_timeout"], params["start_timeout"]), "stop", unit.place.name)


def present(module: AnsibleModule, unit: Unit, texts: t.Mapping[str, bytes], check_held: t.Callable[[], None]) -> dict[str, t.Any]:
    """Write what differs of the files by path, the unit itself among them, and have the unit run. ``check_held`` is called before anything is changed."""
    params, folder, ours = module.params, unit.place.folder, unit.place.unit
    files = setup.Files(ours, texts)
    needs_program = digest(unit.program) != params["program_digest"]
    stale = bool(files.differing or needs_program)
    # One that is only starting may wait for the lock of the run that asks: it begins again, and finds what that run brought up.
    start = setup.Start(ours, params["tool_timeout"], stale, params["enabled"], unit.leaves, unit.locks)
    actions = [*([f"write {unit.program}"] if needs_program else []), *files.actions, *start.actions]
    result = {"actions": actions, "needs_program": needs_program, "diff": files.diff}
    if not actions or module.check_mode or (needs_program and not params["program"]):
        return result
    check_held()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    if start.again:
        let_go(params, unit)
    if needs_program:
        bring_program(params, unit.program)
    files.write(params["tool_timeout"])
    start.apply("start", params["start_timeout"])
    return result


def bring_program(params: Params, path: str) -> None:
    """Put the program that the controller sent into its place. Raises :class:`ClusterError` when it is another."""
    with open(params["program"], "rb") as stream:
        sent = stream.read()
    if hashlib.sha256(sent).hexdigest() != params["program_digest"]:
        raise ClusterError(f"{params['program']} is not the program that the controller made", remedy="Run again.", reason="program")
    write_whole(path, sent)


def stopping(unit: Unit, now: State) -> list[str]:
    """Return what has to be done so that a unit does not run."""
    return [f"stop {unit.place.name}{setup.leaving(unit.leaves)}"] if now.active or now.starting else []


def kept(module: AnsibleModule, unit: Unit, check_held: t.Callable[[], None]) -> dict[str, t.Any]:
    """Have a unit that is there neither run nor start at boot, and leave its files and what it started as they are."""
    params, ours = module.params, unit.place.unit
    there = ours.require_ours()
    now = ours.state(params["tool_timeout"])
    actions = [*stopping(unit, now), *([f"disable {ours.name}"] if now.enabled else [])]
    if there and not module.check_mode:
        check_held()
        # Also one that is only starting, or stopping.
        let_go(params, unit)
        ours.systemctl(params["tool_timeout"], "disable", "--quiet", ours.name)
    return {"actions": actions, "needs_program": False, "diff": {}}


def absent(module: AnsibleModule, unit: Unit, check_held: t.Callable[[], None]) -> dict[str, t.Any]:
    """Take the unit away, and leave what it started as it is. ``check_held`` is called before anything is changed."""
    params, folder, ours = module.params, unit.place.folder, unit.place.unit
    there = ours.require_ours()
    gone = [one for one in (ours.path, folder, *unit.beside) if os.path.lexists(one)]
    actions = [*stopping(unit, ours.state(params["tool_timeout"])), *(f"remove {one}" for one in gone)]
    if actions and not module.check_mode:
        check_held()
        if there:
            # Also one that is only starting, or stopping.
            os.makedirs(folder, mode=0o700, exist_ok=True)
            let_go(params, unit)
            setup.remove(ours, params["tool_timeout"])
        if os.path.lexists(folder):
            shutil.rmtree(folder)
        for one in unit.beside:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(one)
    return {"actions": actions, "needs_program": False, "diff": setup.gone(there)}


def bring(module: AnsibleModule, unit: Unit, texts: t.Callable[[], t.Mapping[str, bytes]], check_held: t.Callable[[], None] = lambda: None) -> dict[str, t.Any]:
    """Bring a unit to the state that a module's options ask for, and return the module's result. ``texts`` returns the files that are wanted, by path."""
    params = module.params
    require_least(params, {"start_timeout": 1, "tool_timeout": 1})
    with setup.failures(unit.place.folder):
        if params["state"] == "present":
            done = present(module, unit, texts(), check_held)
        else:
            done = {"kept": kept, "absent": absent}[params["state"]](module, unit, check_held)
    nothing = "there is no unit" if params["state"] == "absent" else "the unit is as it should be"
    return {**done, **setup.said(done["actions"], module.check_mode, nothing), "unit": unit_files.unit(unit.place, params["tool_timeout"])}
