# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host's side of the launcher: writes it into a node's container, calls it there, and reads its answers.

Nothing else imports the launcher, which is a separate program. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_ENTRYPOINT, ExecResult
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import EnginePaths, engine_state, start_error
from ansible_collections.gb10.cluster.plugins.module_utils._engine.interruption import CONSENT
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._launcher import gb10_api_guard, launcher
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_side
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import ENGINE_LOGS, GUARD_DIRECTORY, LAUNCH_TARGET, ORDER, STOP_NOTE
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import user_name

if t.TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker

LAUNCHER = "launcher.py"
GUARD = gb10_api_guard.__name__.rpartition(".")[2]

#: Seconds beyond its grace that the launcher gets to kill the remaining processes and to answer.
STOP_MARGIN = 60


def argv(command: str, *more: str) -> list[str]:
    """Return the command line of one of the launcher's commands, with the container's paths."""
    return ["python3", f"{LAUNCH_TARGET}/{LAUNCHER}", command, "--spec", f"{LAUNCH_TARGET}/{ORDER}", *more]


def run_argv(labels: t.Mapping[str, str], run_id: str) -> list[str]:
    """Return the command line that starts an engine in a container with these labels, under the image's own entrypoint if the container keeps it."""
    return [*json.loads(labels.get(LABEL_ENTRYPOINT, "[]")), *argv("run", "--run-id", run_id)]


def who(module: str) -> str:
    """Return the user of a module on this node, for programs that wait for an engine that the module stops."""
    return f"user {os.environ.get('SUDO_USER') or user_name(os.getuid())} with {module}"


def refresh(paths: EnginePaths) -> None:
    """Update the launcher of an engine that an older version of the collection started. On a full disk the older one stays."""
    with contextlib.suppress(OSError):
        ship(paths)


def ship(paths: EnginePaths) -> None:
    """Write the launcher and the guard of the API, each completely or not at all, where the container can read them. Raises :class:`OSError`."""
    files.write_text(os.path.join(paths.launch, LAUNCHER), inspect.getsource(launcher))
    directory = os.path.join(paths.launch, GUARD_DIRECTORY)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    files.write_text(os.path.join(directory, f"{GUARD}.py"), inspect.getsource(gb10_api_guard))


def guard_of(secret_env: t.Mapping[str, str]) -> dict[str, t.Any]:
    """Return the launcher's order for the guard of the engine's API; empty if the API has no key.

    The guard is not part of the engine's arguments, so an engine that runs without it has the same arguments.
    """
    if gb10_api_guard.KEY_VARIABLE not in secret_env:
        return {}
    return {"argv": ["--middleware", f"{GUARD}.{gb10_api_guard.ApiGuard.__name__}"], "python_path": f"{LAUNCH_TARGET}/{GUARD_DIRECTORY}"}


def order(paths: EnginePaths, spec: dict[str, t.Any]) -> None:
    """Write the launcher and the engine's description where the container can read them."""
    try:
        ship(paths)
        files.write_json(os.path.join(paths.launch, ORDER), spec)
    except FileNotFoundError:
        raise ClusterError(
            f"{paths.launch} does not exist, so the container has no launcher", remedy="Recreate the container: run with --tags ray or native"
        ) from None
    except PermissionError:
        raise ClusterError(f"no permission to write to {paths.launch}", remedy="Run the task with become: true.") from None
    except OSError as error:
        free = launcher.free_bytes(paths.launch)
        raise ClusterError(f"cannot write to {paths.launch}: {error.strerror}, {free} bytes are free", remedy="Make room there.", reason="no room") from None


def check_room(paths: EnginePaths, log_max_bytes: int) -> None:
    """Raise :class:`ClusterError` unless the node has room for the engine's log and its records: no engine starts without them."""
    try:
        check_room_below(paths.log, ENGINE_LOGS, launcher.log_room(log_max_bytes), "the engine's log")
        check_room_below(paths.run, "", launcher.NOTE_ROOM, "the notes about the engine")
    except launcher.CannotStart as error:
        raise ClusterError(
            f"{error}; no engine was started or stopped",
            remedy="Make room on that file system (the playbook prune removes old logs of this collection), or set another gb10_log_dir or gb10_state_dir.",
            reason="no room",
        ) from None


def check_room_below(top: str, relative: str, needed: int, what: str) -> None:
    """Check the free space as the launcher does, in a directory that the container can write. Raises :class:`launcher.CannotStart`."""
    name = f".room.{os.getpid()}-{time.monotonic_ns()}"
    try:
        os.makedirs(top, exist_ok=True)
        with untrusted.directory(top, relative, create=True) as folder:
            handle = untrusted.create(folder, name)
            try:
                launcher.reserve(handle, top, needed)
            finally:
                os.close(handle)
                os.unlink(name, dir_fd=folder)
    except OSError as error:
        raise launcher.no_room(os.path.join(top, relative).rstrip("/"), needed, what, error) from None


#: The types of the values that the launcher's commands return; for a list, those of its entries.
Forms = dict[str, t.Union[tuple[type, ...], list[type]]]
STATUS: Forms = {"live": (bool,), "remaining": [int], "launcher": (int, type(None)), "starting": (str,), "stopping": (bool,), "unreadable": (str,)}
STOPPED: Forms = {
    "run_id": (str,), "was_live": (bool,), "prevented": (str,), "signals": [str], "killed": [int], "remaining": [int], "seconds": (int, float),
}  # fmt: skip


def _fits(value: t.Any, form: tuple[type, ...] | list[type]) -> bool:
    return isinstance(value, list) and all(isinstance(entry, tuple(form)) for entry in value) if isinstance(form, list) else isinstance(value, form)


def answer_of(result: ExecResult, forms: Forms, accepted: tuple[int, ...] = (0,)) -> dict[str, t.Any]:
    """Return the launcher's JSON answer, with the keys of ``forms``. Raises :class:`UnknownState` with its output for anything else.

    The container's own python3 ran it, so the answer can have any content.
    """
    try:
        if result.rc in accepted:
            answer = json.loads(result.stdout)
            if isinstance(answer, dict) and all(name in answer and _fits(answer[name], form) for name, form in forms.items()):
                return {name: answer[name] for name in forms}
    except (ValueError, RecursionError):
        pass
    raise UnknownState(
        f"the launcher in the node's container ended with code {result.rc} and no answer",
        remedy=f"The image needs python3 (3.10 or newer). To end the container's processes anyway: the playbook teardown with {CONSENT}",
        raw=(result.stdout + result.stderr)[-2000:],
    )


def note_stop(paths: EnginePaths, by: str) -> None:
    """Record on the host, where the container cannot write, that the engine must end. The engine is also stopped if that fails."""
    notes = (read_side(path) for path in (os.path.join(paths.launch, ORDER), os.path.join(paths.run, "run.json")))
    with contextlib.suppress(OSError):
        run_ids = sorted({note["run_id"] for note in notes if note.get("run_id")})
        files.write_json(os.path.join(paths.launch, STOP_NOTE), {"run_ids": run_ids, "by": by, "at": time.time()})


def stop_engine(docker: Docker, container_id: str, paths: EnginePaths, grace: int, module: str, forced: bool = False) -> dict[str, t.Any]:
    """Stop the engine gently, so that its memory is released, and return the launcher's answer.

    The launcher runs in the container, where any program can answer in its place. If it does not answer, or the engine runs on despite its answer,
    Docker stops the whole container, provided that is allowed (``forced``); ``instead`` is then the reason. Raises :class:`ClusterError` if a process
    cannot be ended.
    """
    note_stop(paths, who(module))
    try:
        return {**_stopped_by_launcher(docker, container_id, paths, grace, module), "instead": ""}
    except UnknownState as error:
        if not forced:
            raise
        docker.stop(container_id, grace)
        return {"run_id": "", "was_live": True, "prevented": "", "signals": [], "seconds": 0, "killed": [], "remaining": [], "instead": str(error)}


def _stopped_by_launcher(docker: Docker, container_id: str, paths: EnginePaths, grace: int, module: str) -> dict[str, t.Any]:
    refresh(paths)
    result = docker.exec(container_id, argv("stop", "--grace", str(grace), "--by", who(module)), timeout=grace + STOP_MARGIN)
    stopped = answer_of(result, STOPPED, accepted=(0, launcher.EXIT_REMAINS))
    if stopped["remaining"]:
        raise ClusterError(
            f"processes {stopped['remaining']} of the engine (pids of the container) remain {stopped['seconds']} s after SIGTERM and SIGKILL",
            remedy="They hang in the kernel. Look at its log (journalctl -k); only a reboot of this node ends them.",
            reason="engine remains",
            stopped=stopped,
        )
    living = engine_state(paths, lenient=True)["pid"]
    if living:
        raise UnknownState(
            f"the launcher reports that the engine ended, but its process {living} still runs",
            remedy=f"Something in the container answers in the launcher's place. End it: the playbook teardown with {CONSENT}",
            reason="tampered",
            stopped=stopped,
        )
    return stopped


def not_started(paths: EnginePaths, run_id: str, code: int) -> ClusterError:
    """Return the error for a launcher that ended with ``code`` and started nothing."""
    ended = read_side(os.path.join(paths.run, "exit.json"))
    why = start_error(paths, ended) if ended.get("run_id") == run_id else ""
    if code == launcher.EXIT_STOPPED:
        return ClusterError(why or f"run {run_id} was stopped before it began", remedy="Run again when it should serve.", reason="stopped")
    if code == launcher.EXIT_LIVE:
        return ClusterError("another engine or start of one was quicker than this start", remedy="Run again when that start is over.", reason="start under way")
    if why:
        return ClusterError(f"the engine could not be started: {why}", reason="launcher")
    return UnknownState(f"the launcher ended with code {code} and started nothing", remedy="The image needs python3 (3.10 or newer).")
