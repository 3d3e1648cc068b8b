# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Installation and removal of a unit by a module. This module util is PRIVATE to the collection."""

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

#: The digest of the program that the controller builds, and the path of the copy that it sent.
PROGRAM_SPEC: dict[str, t.Any] = {"program_digest": {"type": "str", "default": ""}, "program_file": {"type": "path"}}


class Job(t.NamedTuple):
    """A unit that a module installs. ``texts`` returns its files by path, its unit files among them, in the order in which they are written.

    ``mode`` is the mode of the other files. With ``closed``, only root may enter its folder. ``first`` has the other actions, each as text and call.
    ``stale`` returns whether a running unit has to restart because these paths differ. ``gone`` are the paths that are removed with it.
    An ``enabled`` unit starts at boot.
    A unit with ``release`` leaves ``leaves`` running when it is stopped while that file exists; a start or stop may take ``seconds``. A unit that ``locks``
    works under the cluster's lock, for which it may wait while it starts. ``check_held`` is called before anything is changed, and ``started`` after a
    start, with the time before it.
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
    content = plain_content(path)
    return hashlib.sha256(content).hexdigest() if content is not None else ""


def release(params: Params, job: Job) -> None:
    """Stop a running or starting unit without what it started: it ends after the module that it runs."""
    write_whole(job.release, b"")
    job.unit.systemctl(max(params["tool_timeout"], job.seconds), "stop", job.unit.name)


def present(module: AnsibleModule, job: Job) -> dict[str, t.Any]:
    """Write the differing files, its unit files among them, and start the unit."""
    params, unit = module.params, job.unit
    private.check(unit.folder, setup.PROGRAMS)
    files = setup.Files(unit, job.texts(), job.mode)
    had, wanted = digest(unit.program), params["program_digest"]
    needs_program = had != wanted
    differing = [*([unit.program] if needs_program else []), *files.differing]
    # A starting unit may wait for the lock of this run: it restarts, and finds what this run started.
    start = setup.Start(unit, params["tool_timeout"], job.stale(differing), job.enabled, job.leaves, job.locks)
    actions = [*(text for text, _call in job.first), *(f"write {path}" for path in differing), *start.actions]
    diff = files.diff
    if needs_program:
        diff = {side: {unit.program: sha and f"sha256 {sha}\n", **diff[side]} for side, sha in (("before", had), ("after", wanted))}
    result = {"actions": actions, "needs_program": needs_program, "diff": diff}
    if not actions or module.check_mode or awaits_program(params, result):
        return result
    job.check_held()
    for _text, call in job.first:
        call()
    os.makedirs(unit.folder, mode=0o700 if job.closed else 0o755, exist_ok=True)
    if job.closed:
        os.chmod(unit.folder, 0o700)
    if start.again and job.release:
        release(params, job)
    if needs_program:
        write_program(params, unit.program, job.mode)
    files.write(params["tool_timeout"])
    began = time.time()
    start.apply("start" if job.release else "restart", job.seconds)
    if start.needed:
        job.started(began)
    return result


def awaits_program(params: Params, result: t.Mapping[str, t.Any]) -> bool:
    """Return whether nothing was changed yet because the controller has to send the program first."""
    return result["needs_program"] and not params["program_file"]


def write_program(params: Params, path: str, mode: int) -> None:
    """Write the program that the controller sent. Raises :class:`ClusterError` when its digest differs."""
    with open(params["program_file"], "rb") as stream:
        sent = stream.read()
    if hashlib.sha256(sent).hexdigest() != params["program_digest"]:
        raise ClusterError(f"{params['program_file']} is not the program that the controller built", remedy="Run again.", reason="program")
    write_whole(path, sent, mode)


def stopping(job: Job, now: State) -> list[str]:
    """Return the action that stops a unit, none for one that does not run."""
    return [f"stop {job.unit.name}{setup.leaving(job.leaves)}"] if now.active or now.starting else []


def kept(module: AnsibleModule, job: Job) -> dict[str, t.Any]:
    """Stop and disable an existing unit; its files and what it started stay."""
    params, unit = module.params, job.unit
    installed, now = unit.require_ours(), unit.state(params["tool_timeout"])
    if installed and not module.check_mode:
        job.check_held()
        # Also a unit that is starting or stopping.
        release(params, job)
        unit.systemctl(params["tool_timeout"], "disable", "--quiet", unit.name)
    return {"actions": [*stopping(job, now), *([f"disable {unit.name}"] if now.enabled else [])], "needs_program": False, "diff": {}}


def discard(path: str) -> None:
    """Remove a file, or a directory with its content. Raises OSError."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def absent(module: AnsibleModule, job: Job) -> dict[str, t.Any]:
    """Remove the unit with its paths; what it started keeps running."""
    params, unit = module.params, job.unit
    installed = unit.require_ours()
    gone = [path for path in (*unit.paths, *job.gone) if os.path.lexists(path)]
    actions = [*stopping(job, unit.state(params["tool_timeout"])), *(f"remove {path}" for path in gone)]
    if actions and not module.check_mode:
        job.check_held()
        if installed and job.release:
            # Also a unit that is starting or stopping.
            os.makedirs(unit.folder, mode=0o700, exist_ok=True)
            release(params, job)
        setup.remove(unit, params["tool_timeout"])
        for path in job.gone:
            discard(path)
        with contextlib.suppress(OSError):
            os.rmdir(unit.folder)  # unless it contains other files
    return {"actions": actions, "needs_program": False, "diff": {"before": {path: setup.shown(text) for path, text in installed.items()}, "after": {}}}


def bring(module: AnsibleModule, job: Job, what: str = "unit") -> dict[str, t.Any]:
    """Bring a unit to the state of the module's options, and return the module's result."""
    params = module.params
    require_least(params, {name: 1 for name in ("start_timeout", "tool_timeout") if name in params})
    with setup.failures(job.unit.folder):
        done = {"present": present, "kept": kept, "absent": absent}[params["state"]](module, job)
    nothing = f"there is no {what}" if params["state"] == "absent" else f"the {what} is as it should be"
    return {**done, **setup.result_of(done["actions"], module.check_mode, nothing)}
