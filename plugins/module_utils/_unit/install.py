# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A unit of ours with its files: written where something differs, started, let go, and taken away. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._guard.look import content, write
from ansible_collections.gb10.cluster.plugins.module_utils._host.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._unit import look

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
    """A unit that a module sets up: what it leaves running when it is let go, and what else is there of it."""

    place: look.Place
    leaves: str
    beside: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """Return where its program lies, which is known by its digest alone."""
        return os.path.join(self.place.folder, look.PROGRAM)


def digest(path: str) -> str:
    """Return the SHA-256 of a file, empty where there is none."""
    found = content(path)
    return hashlib.sha256(found).hexdigest() if found is not None else ""


def systemctl(params: Params, place: look.Place, *words: str, seconds: float = 0) -> None:
    """Run systemctl. Raises :class:`ClusterError` with what the unit recorded when that fails."""
    answer = run_tool(["systemctl", *words], seconds or params["tool_timeout"])
    if answer.rc:
        noted = look.unit(place, params["tool_timeout"])
        raise ClusterError(
            f"systemctl {' '.join(words)} ended with {answer.rc}: {noted['reason'] or answer.raw[:300]}",
            remedy=f"See on the node: journalctl -u {place.name}",
            reason="unit",
        )


def release(params: Params, place: look.Place) -> None:
    """Let a unit that runs go: it ends and leaves what it started as it is."""
    look.write_private(os.path.join(place.folder, look.RELEASE), b"")
    systemctl(params, place, "stop", place.name)


def present(module: AnsibleModule, unit: Unit, texts: t.Mapping[str, bytes], check_held: t.Callable[[], None]) -> dict[str, t.Any]:
    """Write what differs of the files by path, the unit itself among them, and have the unit run. ``check_held`` is called before anything is changed."""
    params, (name, folder, path) = module.params, unit.place
    look.require_ours(path)
    before = {one: content(one) for one in texts}
    differing = [one for one in texts if before[one] != texts[one]]
    needs_program = digest(unit.program) != params["program_digest"]
    now = look.unit(unit.place, params["tool_timeout"])
    actions = [f"write {one}" for one in [*([unit.program] if needs_program else []), *differing]]
    if now["enabled"] is not params["enabled"]:
        actions.append(f"{'enable' if params['enabled'] else 'disable'} {name}")
    stale = bool(differing or needs_program)
    # One that is only starting may wait for another node, or for the lock of the run that asks: it begins again, and finds what that run brought up.
    released = bool(now["active"] and stale or now["starting"])
    if stale or not now["active"]:
        actions.append(f"restart {name}, which leaves {unit.leaves} running" if released else f"start {name}")
    result = {
        "actions": actions,
        "needs_program": needs_program,
        "diff": {"before": {one: shown(before[one]) for one in differing}, "after": {one: shown(texts[one]) for one in differing}},
    }
    if not actions or module.check_mode or (needs_program and not params["program"]):
        return result
    check_held()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    if released:
        release(params, unit.place)
    if needs_program:
        bring_program(params, unit.program)
    for one in differing:
        if one == path:
            write(one, texts[one])
        else:
            look.write_private(one, texts[one])
    if path in differing:
        systemctl(params, unit.place, "daemon-reload")
    if now["enabled"] is not params["enabled"]:
        systemctl(params, unit.place, "enable" if params["enabled"] else "disable", "--quiet", name)
    if stale or not now["active"]:
        systemctl(params, unit.place, "start", name, seconds=params["start_timeout"])
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


def kept(module: AnsibleModule, unit: Unit, check_held: t.Callable[[], None]) -> dict[str, t.Any]:
    """Have a unit that is there neither run nor start at boot, and leave its files and what it started as they are."""
    params, (name, _folder, path) = module.params, unit.place
    there = look.require_ours(path)
    now = look.unit(unit.place, params["tool_timeout"])
    actions = [f"stop {name}, which leaves {unit.leaves} running"] if now["active"] or now["starting"] else []
    actions += [f"disable {name}"] if now["enabled"] else []
    if there is not None and not module.check_mode:
        check_held()
        # Also one that is only starting, or stopping.
        release(params, unit.place)
        systemctl(params, unit.place, "disable", "--quiet", name)
    return {"actions": actions, "needs_program": False, "diff": {}}


def absent(module: AnsibleModule, unit: Unit, check_held: t.Callable[[], None]) -> dict[str, t.Any]:
    """Take the unit away, and leave what it started as it is. ``check_held`` is called before anything is changed."""
    params, (name, folder, path) = module.params, unit.place
    there = look.require_ours(path)
    now = look.unit(unit.place, params["tool_timeout"])
    gone = [one for one in (path, folder, *unit.beside) if os.path.lexists(one)]
    actions = [f"stop {name}, which leaves {unit.leaves} running"] if now["active"] or now["starting"] else []
    actions += [f"remove {one}" for one in gone]
    if actions and not module.check_mode:
        check_held()
        if there is not None:
            # Also one that is only starting, or stopping.
            os.makedirs(folder, mode=0o700, exist_ok=True)
            release(params, unit.place)
            systemctl(params, unit.place, "disable", "--quiet", name)
            os.unlink(path)
            systemctl(params, unit.place, "daemon-reload")
        if os.path.lexists(folder):
            shutil.rmtree(folder)
        for one in unit.beside:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(one)
    return {"actions": actions, "needs_program": False, "diff": {"before": {path: shown(there)} if there else {}, "after": {}}}


def bring(module: AnsibleModule, unit: Unit, texts: t.Callable[[], t.Mapping[str, bytes]], check_held: t.Callable[[], None] = lambda: None) -> dict[str, t.Any]:
    """Bring a unit to the state that a module's options ask for, and return the module's result. ``texts`` returns the files that are wanted, by path."""
    params = module.params
    require_least(params, {"start_timeout": 1, "tool_timeout": 1})
    try:
        if params["state"] == "present":
            done = present(module, unit, texts(), check_held)
        else:
            done = {"kept": kept, "absent": absent}[params["state"]](module, unit, check_held)
    except OSError as error:
        remedy = BECOME if isinstance(error, PermissionError) else "See the message; the next run goes on from there."
        raise ClusterError(f"{error.filename or unit.place.folder}: {error.strerror or error}", remedy=remedy) from error
    would = "would " if module.check_mode else ""
    what = f"{would}{'; '.join(done['actions'])}" if done["actions"] else "there is no unit" if params["state"] == "absent" else "the unit is as it should be"
    return {**done, "changed": bool(done["actions"]), "msg": what, "unit": look.unit(unit.place, params["tool_timeout"])}
