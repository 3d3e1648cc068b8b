# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a module sets up a unit of ours, or takes it away. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import plain_content, write_whole
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import setup
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.ask import State
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit

Params = dict[str, t.Any]

#: By which a module knows the program that the controller makes, and where it lies once it was sent.
PROGRAM_SPEC: dict[str, t.Any] = {"program_digest": {"type": "str", "default": ""}, "program_file": {"type": "path"}}


class Job(t.NamedTuple):
    """A unit that a module sets up. ``texts`` returns its files by path, its unit files among them, in the order in which they are written.

    ``mode`` is that of the other ones. With ``closed``, root alone may enter its folder. ``first`` is what else has to be done, in words and as a call.
    ``stale`` says whether a unit that runs has to begin again because these paths differ. ``gone`` are the paths that go with it.
    An ``enabled`` unit starts at boot.
    A unit with ``release`` leaves ``leaves`` running when it is stopped while that file is there; it gets up to ``seconds`` for a start or stop. One that
    ``locks`` works under the lock of the cluster, for which it may wait while it starts. ``check_held`` is called before anything is changed, and
    ``started`` after a start, with the time before it.
    """

    unit: Unit
    texts: t.Callable[[], t.Mapping[str, bytes]]
    gone: t.Sequence[str]
    mode: int = 0o600
    closed: bool = False
    first: t.Sequence[tuple[str, t.Callable[[], None]]] = ()
    stale: t.Callable[[t.Sequence[str]], bool] = bool
    leaves: str = ""
    release: str = ""
    enabled: bool = True
    seconds: float = 0
    locks: bool = False
    check_held: t.Callable[[], None] = lambda: None
    started: t.Callable[[float], None] = lambda _began: None


def digest(path: str) -> str:
    """Return the SHA-256 of a file, empty where there is none."""
    found = plain_content(path)
    return hashlib.sha256(found).hexdigest() if found is not None else ""


def let_go(params: Params, job: Job) -> None:
    """Let a unit go that runs, or starts: it ends once a module that it runs has ended, and leaves what it started as it is."""
    write_whole(job.release, b"")
    job.unit.systemctl(max(params["tool_timeout"], job.seconds), "stop", job.unit.name)


def present(module: AnsibleModule, job: Job) -> dict[str, t.Any]:
    """Write what differs of the files, the unit itself among them, and have the unit run."""
    params, ours = module.params, job.unit
    private.check(ours.folder, setup.PROGRAMS)
    files = setup.Files(ours, job.texts(), job.mode)
    had, wanted = digest(ours.program), params["program_digest"]
    needs_program = had != wanted
    differing = [*([ours.program] if needs_program else []), *files.differing]
    # One that is only starting may wait for the lock of the run that asks: it begins again, and finds what that run brought up.
    start = setup.Start(ours, params["tool_timeout"], job.stale(differing), job.enabled, job.leaves, job.locks)
    actions = [*(words for words, _do in job.first), *(f"write {path}" for path in differing), *start.actions]
    diff = files.diff
    if needs_program:
        diff = {side: {ours.program: sha and f"sha256 {sha}\n", **diff[side]} for side, sha in (("before", had), ("after", wanted))}
    result = {"actions": actions, "needs_program": needs_program, "diff": diff}
    if not actions or module.check_mode or waits(params, result):
        return result
    job.check_held()
    for _words, do in job.first:
        do()
    os.makedirs(ours.folder, mode=0o700 if job.closed else 0o755, exist_ok=True)
    if job.closed:
        os.chmod(ours.folder, 0o700)
    if start.again and job.release:
        let_go(params, job)
    if needs_program:
        bring_program(params, ours.program, job.mode)
    files.write(params["tool_timeout"])
    began = time.time()
    start.apply("start" if job.release else "restart", job.seconds)
    if start.needed:
        job.started(began)
    return result


def waits(params: Params, done: t.Mapping[str, t.Any]) -> bool:
    """Return whether nothing was done yet, since the controller has to send the program first."""
    return done["needs_program"] and not params["program_file"]


def bring_program(params: Params, path: str, mode: int = 0o600) -> None:
    """Put the program that the controller sent into its place. Raises :class:`ClusterError` when it is another."""
    with open(params["program_file"], "rb") as stream:
        sent = stream.read()
    if hashlib.sha256(sent).hexdigest() != params["program_digest"]:
        raise ClusterError(f"{params['program_file']} is not the program that the controller made", remedy="Run again.", reason="program")
    write_whole(path, sent, mode)


def stopping(job: Job, now: State) -> list[str]:
    """Return what has to be done so that a unit does not run."""
    return [f"stop {job.unit.name}{setup.leaving(job.leaves)}"] if now.active or now.starting else []


def kept(module: AnsibleModule, job: Job) -> dict[str, t.Any]:
    """Have a unit that is there neither run nor start at boot, and leave its files and what it started as they are."""
    params, ours = module.params, job.unit
    there = ours.require_ours()
    now = ours.state(params["tool_timeout"])
    actions = [*stopping(job, now), *([f"disable {ours.name}"] if now.enabled else [])]
    if there and not module.check_mode:
        job.check_held()
        # Also one that is only starting, or stopping.
        let_go(params, job)
        ours.systemctl(params["tool_timeout"], "disable", "--quiet", ours.name)
    return {"actions": actions, "needs_program": False, "diff": {}}


def discard(path: str) -> None:
    """Remove what lies at a path, a directory with all that is in it. Raises OSError."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def absent(module: AnsibleModule, job: Job) -> dict[str, t.Any]:
    """Take the unit away with what goes with it, and leave what it started as it is."""
    params, ours = module.params, job.unit
    there = ours.require_ours()
    gone = [path for path in (*ours.paths, *job.gone) if os.path.lexists(path)]
    actions = [*stopping(job, ours.state(params["tool_timeout"])), *(f"remove {path}" for path in gone)]
    if actions and not module.check_mode:
        job.check_held()
        if there and job.release:
            # Also one that is only starting, or stopping.
            os.makedirs(ours.folder, mode=0o700, exist_ok=True)
            let_go(params, job)
        setup.remove(ours, params["tool_timeout"])
        for path in job.gone:
            discard(path)
        with contextlib.suppress(OSError):
            os.rmdir(ours.folder)  # what stays in it keeps it
    return {"actions": actions, "needs_program": False, "diff": setup.gone(there)}


def bring(module: AnsibleModule, job: Job, what: str = "unit") -> dict[str, t.Any]:
    """Bring a unit to the state that a module's options ask for, and return the module's result."""
    params = module.params
    require_least(params, {name: 1 for name in ("start_timeout", "tool_timeout") if name in params})
    with setup.failures(job.unit.folder):
        done = {"present": present, "kept": kept, "absent": absent}[params["state"]](module, job)
    nothing = f"there is no {what}" if params["state"] == "absent" else f"the {what} is as it should be"
    return {**done, **setup.said(done["actions"], module.check_mode, nothing)}
