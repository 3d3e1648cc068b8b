# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts, describes and stops the engine inside a node's container. This module util is PRIVATE to the collection.

The collection writes this file as ``launcher.py`` into a directory that the container sees read-only, with the engine's
description ``engine.json`` next to it. It is a separate program: standard library only, Python 3.10 or newer, whatever the
image has. No second command line of the engine exists anywhere.

    launcher.py run --spec engine.json --run-id ID   start the engine, wait for it, record how it ended
    launcher.py status --spec engine.json            print what runs as JSON
    launcher.py stop --spec engine.json --grace 120  stop the engine gently, print the signals and processes as JSON
    launcher.py hold --spec engine.json              keep a container open until SIGTERM, then stop its engine

``engine.json`` has ``argv, run_id, digest, run_dir, log_path, config_root, keep_logs, log_max_bytes, api_address, api_port``,
``secret_env`` (variable to file), ``no_carry_env`` (names) and ``guard`` (words to add to ``argv`` and a directory of
Python modules, where the collection guards the API). ``run`` writes ``run.json`` and ``exit.json`` into ``run_dir``,
``stop`` writes ``stop.json``.

Two launchers never start two engines: ``run`` keeps a kernel lock on ``run.lock`` while it lives, and starts nothing while a
process of any earlier run lives. No ``stop`` is lost: it first records which runs must end, ``run`` reads that record after it
took the lock, and ``stop`` ends only when the ``run`` that had the lock at its beginning is gone. Wall-clock times are for
people; every decision depends on the boot, on the kernel's clock ticks since then, and on the mark in the engine's environment.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
import typing as t

#: Seconds between two checks of the log's size while the engine runs.
LOG_CHECK_SECONDS = 5.0
#: Seconds between two checks of the processes while the engine ends.
STOP_CHECK_SECONDS = 0.2
#: Which processes get a signal: the engine's main process, its descendants, or all of them.
MAIN, RANKS, ALL = "main", "ranks", "all"
#: The signals that stop an engine: seconds after the first signal, the signal, the processes that get it.
ASKING = ((0.0, signal.SIGTERM, MAIN), (1.0, signal.SIGINT, MAIN), (3.0, signal.SIGTERM, ALL))
#: The same for ranks that were started without an API. Their main process would kill them: on a signal it closes the pipe to its
#: rank, and then vLLM (0.32) leaves the rank waiting for its head, where it ignores SIGTERM, until SIGKILL after nine seconds.
#: A rank that gets the signal itself frees its memory and ends, and its main process follows.
ASKING_RANKS = ((0.0, signal.SIGTERM, RANKS), (20.0, signal.SIGTERM, MAIN), (21.0, signal.SIGINT, MAIN), (23.0, signal.SIGTERM, ALL))
#: Seconds that the kernel gets to end killed processes. A process that outlives them hangs in the kernel.
KILL_SECONDS = 10.0
#: Seconds that a start waits for a launcher that is about to end.
LOCK_SECONDS = 2.0

#: The variable that marks an engine and all its descendants, whatever session they are in; its value is the run's id.
MARK = "GB10_RUN_ID"

#: What ``hold`` prints when it is ready.
HOLDS = "the launcher holds this container open"

#: The keys that the record of a run must have.
RUN_KEYS = frozenset({"run_id", "pid", "start_ticks", "container_start", "boot_id", "log_path"})

#: Bytes that must be free before an engine starts: for its log, and for the records about it.
LOG_ROOM = 16 * 1024 * 1024
NOTE_ROOM = 64 * 1024

#: Most characters of a JSON file that are read: other programs in the container can make one of any length.
JSON_LIMIT = 262144

#: The kernel's ``struct flock`` on 64-bit Linux: type, whence, start, length, pid.
FLOCK = struct.Struct("hhqqi0q")

#: Exit codes of ``run``: another engine or launcher runs; the run was stopped before it began. Of ``stop``: a process remains.
EXIT_LIVE = 3
EXIT_REMAINS = 4
EXIT_STOPPED = 5
#: The shell's exit codes for a program that could not be started, and for one that does not exist.
EXIT_CANNOT_START = 126
EXIT_NO_PROGRAM = 127

#: The records of a run, in its directory, and the file that a launcher locks.
RUN_FILE, EXIT_FILE, STOP_FILE, LOCK_FILE = "run.json", "exit.json", "stop.json", "run.lock"

Spec = dict[str, t.Any]
Run = dict[str, t.Any]


class Process(t.NamedTuple):
    """One line of the kernel's process table. ``start_ticks`` (clock ticks since boot) distinguishes two processes with one pid."""

    pid: int
    state: str
    session: int
    start_ticks: int


class CannotStart(Exception):
    """The engine could not be started; ``code`` is the exit code to record."""

    def __init__(self, message: str, code: int = EXIT_CANNOT_START) -> None:
        super().__init__(message)
        self.code = code


# -- files -----------------------------------------------------------------------------------------------------------


def read_json(path: str) -> dict[str, t.Any] | None:
    """Return the content of a JSON file, None without such a file. Raises ValueError for a link and for anything but JSON."""
    try:
        with open(path, encoding="utf-8", opener=open_regular) as handle:
            text = handle.read(JSON_LIMIT + 1)
        if len(text) > JSON_LIMIT:
            raise ValueError(f"it has more than {JSON_LIMIT} characters")
        return json.loads(text)
    except FileNotFoundError:
        return None
    except (OSError, RecursionError) as error:
        raise ValueError(getattr(error, "strerror", "") or str(error)) from None


def open_regular(path: str, flags: int) -> int:
    """Open a regular file, never one whose opening could wait, such as a FIFO. Raises OSError."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def write_json(path: str, content: t.Any) -> None:
    """Write a JSON file so that a reader sees the old or the new content, never a part, whatever else writes it at the same moment.

    Raises OSError, and leaves nothing then.
    """
    new = f"{path}.{os.getpid()}-{time.monotonic_ns()}.new"
    try:
        with open(new, "w", encoding="utf-8") as handle:
            handle.write(json.dumps(content, indent=1, sort_keys=True) + "\n")
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(new, path)
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.remove(new)
        raise OSError(error.errno, error.strerror, path) from error


def in_run_dir(spec: Spec, name: str) -> str:
    return os.path.join(spec["run_dir"], name)


def read_run(spec: Spec) -> tuple[Run | None, str]:
    """Return the recorded run, None without one, and what is wrong with the record, empty for nothing."""
    path = in_run_dir(spec, RUN_FILE)
    try:
        content = read_json(path)
    except ValueError as error:
        return None, f"{path} cannot be read: {error}"
    if content is None or (isinstance(content, dict) and RUN_KEYS <= set(content)):
        return content, ""
    return None, f"{path} cannot be read: it is not the record of a run"


def set_aside(path: str) -> None:
    """Rename a file that cannot be read, so that a person can inspect it."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(path, f"{path}.broken")


def read_side(path: str) -> dict[str, t.Any]:
    """Return an additional record, empty when it is missing or cannot be read."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def stop_requested(spec: Spec, run_id: str) -> dict[str, t.Any]:
    """Return the last request to stop when it names this run, else an empty one. It has ``run_ids``, ``by`` and ``at``."""
    request = read_side(in_run_dir(spec, STOP_FILE))
    return request if run_id and run_id in request.get("run_ids", []) else {}


def check_room(directory: str, needed: int, what: str) -> None:
    """Raise :class:`CannotStart` unless ``needed`` bytes can be written below the directory now.

    They are reserved for a moment, so that a quota counts too.
    """
    path = os.path.join(directory, f".room.{os.getpid()}-{time.monotonic_ns()}")
    try:
        os.makedirs(directory, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            reserve(handle, directory, needed)
        finally:
            os.close(handle)
            os.remove(path)
    except OSError as error:
        raise no_room(directory, needed, what, error) from None


def no_room(directory: str, needed: int, what: str, error: OSError) -> CannotStart:
    reason = error.strerror or str(error)
    return CannotStart(f"{directory} does not accept {what}: {reason}; needs {needed} bytes, {free_bytes(directory)} are free")


def log_room(log_max_bytes: int) -> int:
    """Return how many bytes must be free for a log that is cut at a size."""
    return min(LOG_ROOM, 2 * log_max_bytes)


def reserve(handle: int, directory: str, needed: int) -> None:
    """Reserve ``needed`` bytes of the disk for a new file in a directory. Raises OSError."""
    try:
        os.posix_fallocate(handle, 0, needed)
    except OSError as error:
        # A file system that cannot reserve still reports its free bytes.
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        if free_bytes(directory) < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), directory) from None


def free_bytes(directory: str) -> int:
    """Return the bytes that an ordinary user may use on the file system of a directory, or of its nearest existing parent."""
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    file_system = os.statvfs(directory)
    return file_system.f_bavail * file_system.f_frsize


# -- lock ------------------------------------------------------------------------------------------------------------


def take_lock(spec: Spec, seconds: float) -> int | None:
    """Return the lock as an open file, None when another launcher keeps it for ``seconds`` more. The kernel frees it with its process.

    A process that has the lock must not open the file a second time: closing it would release the lock.
    """
    handle = os.open(in_run_dir(spec, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= deadline:
                os.close(handle)
                return None
        time.sleep(STOP_CHECK_SECONDS)


def lock_holder(spec: Spec) -> int | None:
    """Return the pid of the launcher that starts or watches an engine, None without one, 0 where the kernel hides it."""
    try:
        handle = open_regular(in_run_dir(spec, LOCK_FILE), os.O_RDONLY)
    except OSError:
        # No launcher locks a link, or anything else that is not a regular file.
        return None
    try:
        answer = FLOCK.unpack(fcntl.fcntl(handle, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)))
    finally:
        os.close(handle)
    return None if answer[0] == fcntl.F_UNLCK else answer[4]


# -- processes -------------------------------------------------------------------------------------------------------


def process(pid: int, proc: str = "/proc") -> Process | None:
    """Return the process with this pid, None without one."""
    try:
        with open(os.path.join(proc, str(pid), "stat"), encoding="utf-8", errors="replace") as handle:
            text = handle.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name is in parentheses and may contain anything, parentheses and spaces included.
    fields = text.rpartition(")")[2].split()
    return Process(pid, fields[0], int(fields[3]), int(fields[19]))


def processes(proc: str = "/proc") -> t.Iterator[Process]:
    """Yield every process except those that end meanwhile."""
    return filter(None, (process(int(name), proc) for name in os.listdir(proc) if name.isdigit()))


def container_start() -> int:
    """Return when this pid namespace began, in clock ticks since boot: it distinguishes two starts of a container."""
    first = process(1)
    return first.start_ticks if first else 0


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
        return handle.read().strip()


def is_here(run: Run | None) -> bool:
    """Return whether a recorded run belongs to this boot of the machine and this start of the container."""
    return bool(run) and run["boot_id"] == boot_id() and run["container_start"] == container_start()


def engine(run: Run | None) -> Process | None:
    """Return the main process of the recorded run while it lives: same pid and same start, in the same start of the container."""
    leader = process(run["pid"]) if run and is_here(run) else None
    return leader if leader and leader.start_ticks == run["start_ticks"] and leader.state not in "ZX" else None


def mark(run_dir: str, run_id: str) -> str:
    """Return the value of :data:`MARK` for a run. The directory distinguishes the engines of two launchers that see each other's processes."""
    return f"{run_dir}:{run_id}"


def marked(candidate: Process, run_dir: str, proc: str = "/proc") -> str:
    """Return the id of the run of this directory that a process descends from, empty without one or when it cannot be read."""
    # A process that hangs in the kernel may keep its memory locked, and its reader would hang too.
    if candidate.state in "DZX":
        return ""
    try:
        with open(os.path.join(proc, str(candidate.pid), "environ"), "rb") as handle:
            entries = handle.read().split(b"\0")
    except OSError:
        return ""
    begin = f"{MARK}={mark(run_dir, '')}".encode()
    return next((entry[len(begin):].decode(errors="replace") for entry in entries if entry.startswith(begin)), "")


def ours(spec: Spec, run: Run | None, run_ids: t.Container[str] | None = None) -> list[Process]:
    """Return every living process of the recorded run, and every other one that carries the mark of one of ``run_ids`` (None: of any run).

    The engine leads a session, and its children stay in it. The kernel gives the number of a session to no other process while
    the session has members, so the children of an ended leader stay recognizable. When the number has a new owner,
    no process of that session is the engine's. The mark finds those that left the session, and an engine whose record is lost.
    """
    session = run if run and is_here(run) else None
    leader = process(session["pid"]) if session else None
    if leader and leader.start_ticks != session["start_ticks"]:
        session = None

    def is_ours(candidate: Process) -> bool:
        if session and candidate.session == session["pid"] and candidate.start_ticks >= session["start_ticks"]:
            return True
        run_id = marked(candidate, spec["run_dir"])
        return bool(run_id) and (run_ids is None or run_id in run_ids)

    return [candidate for candidate in processes() if candidate.state not in "ZX" and is_ours(candidate)]


def send(target: Process, number: int) -> None:
    """Signal a process if it is still the one that was judged. A descriptor keeps its number from passing to another one before the signal."""
    with contextlib.suppress(ProcessLookupError), contextlib.ExitStack() as closing:
        try:
            held = os.pidfd_open(target.pid)
            closing.callback(os.close, held)
        except ProcessLookupError:
            return
        except (AttributeError, OSError):
            held = None  # a kernel, a Python or a seccomp profile without descriptors of processes: use the number
        now = process(target.pid)
        if now and now.start_ticks == target.start_ticks:
            if held is None:
                os.kill(target.pid, number)
            else:
                signal.pidfd_send_signal(held, number)


# -- run -------------------------------------------------------------------------------------------------------------


def engine_environment(spec: Spec) -> dict[str, str]:
    """Return the engine's environment: the container's, the secrets, and the directory where vLLM finds the list of names not to copy."""
    environment = dict(os.environ)
    # setproctitle would write a process title over the environment in /proc, where a proof reads it.
    environment.setdefault("SPT_NOENV", "1")
    environment.setdefault("PYTHONUNBUFFERED", "1")
    environment["VLLM_CONFIG_ROOT"] = spec["config_root"]
    modules = spec.get("guard", {}).get("python_path")
    if modules:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), modules)))
        # An image may set it: the front end in Rust runs no guard.
        environment.pop("VLLM_USE_RUST_FRONTEND", None)
    environment[MARK] = mark(spec["run_dir"], spec["run_id"])
    for name, path in spec["secret_env"].items():
        try:
            with open(path, encoding="utf-8") as handle:
                environment[name] = handle.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CannotStart(f"secret {name}: cannot read {path}: {getattr(error, 'strerror', error)}") from None
        if not environment[name]:
            raise CannotStart(f"secret {name}: {path} is empty")
    return environment


def write_names_not_to_copy(spec: Spec) -> None:
    """vLLM copies the driver's environment to the other ranks, all but the names in this file."""
    os.makedirs(spec["config_root"], exist_ok=True)
    names = sorted({*spec["no_carry_env"], *spec["secret_env"], MARK})
    write_json(os.path.join(spec["config_root"], "ray_non_carry_over_env_vars.json"), names)


def open_log(path: str) -> int:
    """Return the log, opened for appending: only then can it be cut while the engine writes to it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)


def bound_log(path: str, limit: int) -> bool:
    """When the log has ``limit`` bytes or more, move its content to ``.1`` and empty it; return whether that was done.

    Lines that are written between the copy and the cut are lost. The engine keeps the file open, so there is no other way.

    On a full disk the former ``.1`` makes room for the new one. When even that is not enough the log is cut without a copy: an
    engine whose log cannot grow loses its newest lines, which matter more than its oldest. Raises OSError when the log itself
    cannot be read or cut.
    """
    if os.path.getsize(path) < limit:
        return False
    kept = keep_copy(path)
    if not kept:
        with contextlib.suppress(OSError):
            os.remove(f"{path}.1")
        kept = keep_copy(path)
    os.truncate(path, 0)
    if not kept:
        add_line(path, f"the log was cut here: no room for a copy of {limit} bytes, {free_bytes(os.path.dirname(path))} bytes are free")
    return True


def keep_copy(path: str) -> bool:
    """Copy a log to ``.1``; return False, and leave the former ``.1`` as it was, when that is not possible."""
    new = f"{path}.1.new"
    try:
        shutil.copyfile(path, new)
        os.replace(new, f"{path}.1")
        return True
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(new)
        return False


def add_line(path: str, text: str) -> None:
    """Write a line of the launcher into the engine's log, if it is writable."""
    with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as handle:
        handle.write(f"launcher: {text}\n")


def prune_logs(directory: str, keep: int, current: str, previous: str = "") -> None:
    """Delete the logs of all but the last ``keep`` runs.

    The last two are ``current`` and ``previous``: ids of runs sort by time, but a clock that was set back gives the newest ones
    the smallest names.
    """
    runs = {name.split(".log", 1)[0] for name in os.listdir(directory) if name.endswith((".log", ".log.1"))}
    last = [current, *({previous} & runs - {current})]
    for run_id in runs.difference([*last, *sorted(runs - {*last}, reverse=True)][: max(1, keep)]):
        for path in (os.path.join(directory, run_id + end) for end in (".log", ".log.1")):
            # A log that a person removes meanwhile, or that cannot be removed, must not end the engine.
            with contextlib.suppress(OSError):
                os.remove(path)


def start(spec: Spec) -> subprocess.Popen[bytes]:
    """Start the engine as the leader of a new session, so that it outlives this program. Raises :class:`CannotStart`."""
    environment = engine_environment(spec)
    check_room(os.path.dirname(spec["log_path"]), log_room(spec["log_max_bytes"]), "the engine's log")
    check_room(spec["run_dir"], NOTE_ROOM, "the records about the engine")
    try:
        write_names_not_to_copy(spec)
        log = open_log(spec["log_path"])
    except OSError as error:
        raise CannotStart(f"cannot write {error.filename}: {error.strerror}") from None
    # A child inherits an ignored SIGINT, and an engine that loads reacts to no other signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        # No AnsibleModule here: this program runs in the container, and its child outlives it.
        return subprocess.Popen(  # pylint: disable=ansible-bad-function
            [*spec["argv"], *spec.get("guard", {}).get("argv", [])],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise CannotStart(f"the image has no program {spec['argv'][0]}", EXIT_NO_PROGRAM) from None
    except OSError as error:
        raise CannotStart(f"cannot start {spec['argv'][0]}: {error.strerror}") from None
    finally:
        os.close(log)


def note_run(spec: Spec, child: subprocess.Popen[bytes]) -> None:
    """Record the engine's process. Ends the engine and raises :class:`CannotStart` when that is not possible: it could not be found again."""
    begun = process(child.pid)
    kept = ("run_id", "argv", "digest", "secret_env", "no_carry_env", "api_address", "api_port", "log_path")
    try:
        write_json(
            in_run_dir(spec, RUN_FILE),
            {
                **{key: spec[key] for key in kept},
                "pid": child.pid,
                "start_ticks": begun.start_ticks if begun else 0,
                "started_at": time.time(),
                "boot_id": boot_id(),
                "container_start": container_start(),
            },
        )
    except OSError as error:
        child.kill()
        child.wait()
        raise CannotStart(
            f"cannot record the engine in {in_run_dir(spec, RUN_FILE)}: {error.strerror}, {free_bytes(spec['run_dir'])} bytes are free there"
        ) from None


def note_exit(spec: Spec, returncode: int, error: str = "", seconds: float | None = None) -> None:
    """Record how the engine ended after so many seconds; a negative ``returncode`` is the signal that ended it.

    On a disk that accepts no new file the log may still accept a line.
    """
    path = in_run_dir(spec, EXIT_FILE)
    ended = {
        "run_id": spec["run_id"],
        "code": returncode if returncode >= 0 else None,
        "signal": -returncode if returncode < 0 else None,
        "error": error,
        "ended_at": time.time(),
        "seconds": seconds,
    }
    try:
        write_json(path, ended)
    except OSError as trouble:
        # The record of another run must not count for this one.
        with contextlib.suppress(OSError):
            os.remove(path)
        add_line(spec["log_path"], f"cannot write {path} ({trouble.strerror}): {json.dumps(ended)}")


def run(spec: Spec) -> int:
    """Start the engine, bound its log, wait for its end and record it. Returns the exit code of this program."""
    try:
        lock = take_lock(spec, LOCK_SECONDS)
    except OSError as error:
        note_exit(spec, EXIT_CANNOT_START, f"cannot lock {in_run_dir(spec, LOCK_FILE)}: {error.strerror}")
        return EXIT_CANNOT_START
    if lock is None:
        sys.stderr.write(f"another launcher runs already, pid {lock_holder(spec)}\n")
        return EXIT_LIVE
    try:
        return run_alone(spec)
    finally:
        os.close(lock)


def run_alone(spec: Spec) -> int:
    """Do the work of :func:`run` under the lock."""
    previous, unreadable = read_run(spec)
    there = ours(spec, previous)
    if there:
        sys.stderr.write(f"an engine runs already, pid {there[0].pid}\n")
        return EXIT_LIVE
    if unreadable:
        set_aside(in_run_dir(spec, RUN_FILE))
    try:
        request = stop_requested(spec, spec["run_id"])
        if request:
            raise CannotStart(f"stopped by {request['by']} before it began", EXIT_STOPPED)
        child = start(spec)
        note_run(spec, child)
    except CannotStart as error:
        note_exit(spec, error.code, str(error))
        sys.stderr.write(f"{error}\n")
        return error.code
    began = time.monotonic()
    with contextlib.suppress(OSError):
        prune_logs(os.path.dirname(spec["log_path"]), spec["keep_logs"], spec["run_id"], previous["run_id"] if previous else "")
    while True:
        try:
            returncode = child.wait(timeout=LOG_CHECK_SECONDS)
            break
        except subprocess.TimeoutExpired:
            # A missing log or a failing disk must not end this program, which records the engine's end.
            with contextlib.suppress(OSError):
                bound_log(spec["log_path"], spec["log_max_bytes"])
    note_exit(spec, returncode, seconds=round(time.monotonic() - began, 1))
    return 0


# -- status and stop -------------------------------------------------------------------------------------------------


def starting(spec: Spec, noted: Run | None) -> str:
    """Return the id of a run that was ordered and has neither begun nor failed nor been stopped, empty without one."""
    ended, stopped = (read_side(in_run_dir(spec, name)) for name in (EXIT_FILE, STOP_FILE))
    return "" if spec["run_id"] in {(noted or {}).get("run_id"), ended.get("run_id"), *stopped.get("run_ids", [])} else spec["run_id"]


def is_live(spec: Spec, noted: Run | None, left: list[Process]) -> bool:
    """Return whether an engine's main process lives. A record can be lost or name another process: a running launcher has one, which leads a session."""
    is_noted = noted is not None and lock_holder(spec) is None
    return engine(noted) is not None or (not is_noted and any(candidate.pid == candidate.session for candidate in left))


def status(spec: Spec) -> dict[str, t.Any]:
    """Return the state of the last run.

    ``remaining`` are the living processes of any run, also when the engine itself is gone or its record is lost; ``launcher`` is
    the pid of the running launcher; ``starting`` the run that was ordered and has not begun; ``stopping`` whether a living
    engine was asked to stop; ``unreadable`` what is wrong with the record of the run.
    """
    noted, unreadable = read_run(spec)
    ended = read_side(in_run_dir(spec, EXIT_FILE))
    own_end = ended if noted is None or ended.get("run_id") == noted["run_id"] else {}
    left = ours(spec, noted)
    live = is_live(spec, noted, left)
    run_ids = {noted["run_id"]} if noted else {marked(member, spec["run_dir"]) for member in left}
    return {
        **(noted or {}),
        "live": live,
        "remaining": sorted(member.pid for member in left),
        "launcher": lock_holder(spec),
        "starting": "" if left else starting(spec, noted),
        "stopping": bool(left) and any(stop_requested(spec, run_id) for run_id in run_ids),
        "unreadable": unreadable,
        "exit_code": own_end.get("code"),
        "exit_signal": own_end.get("signal"),
        "exit_error": own_end.get("error", ""),
        "ended_at": own_end.get("ended_at"),
    }


class Ending:
    """One order to stop: the runs that must end, and the launcher that ran when the order was given."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        noted, self.unreadable = read_run(spec)
        self.launcher: int | None = None
        there = ours(spec, noted)
        self.was_live = is_live(spec, noted, there)
        self.run_id = noted["run_id"] if noted else next((run_id for run_id in (marked(member, spec["run_dir"]) for member in there) if run_id), "")
        self.prevented = "" if there else starting(spec, noted)
        self.run_ids = {run_id for run_id in (self.run_id, spec["run_id"], *(marked(member, spec["run_dir"]) for member in there)) if run_id}

    def request(self, by: str) -> None:
        """Record the order for a launcher that has not begun yet, and for programs that wait for the engine."""
        path = in_run_dir(self.spec, STOP_FILE)
        try:
            write_json(path, {"run_ids": sorted(self.run_ids), "by": by, "at": time.time()})
        except OSError as error:
            # Stopping the engine matters more than the record.
            sys.stderr.write(f"cannot write {path}: {error.strerror}\n")
        # Only now: a launcher that takes the lock after this reads the order.
        self.launcher = lock_holder(self.spec)

    def noted(self) -> Run | None:
        """Return the record of the run that must end, None for that of a later run."""
        noted, _unreadable = read_run(self.spec)
        return noted if noted and noted["run_id"] in self.run_ids else None

    def left(self) -> list[Process]:
        """Return the living processes of the runs that must end, their launcher included."""
        members = ours(self.spec, self.noted(), self.run_ids)
        # In this order: the launcher that has the lock afterwards is the process that was read, and not the next one with its number.
        holder = process(self.launcher) if self.launcher else None
        return [*members, *([holder] if holder and lock_holder(self.spec) == self.launcher else [])]

    def engine(self) -> tuple[Process | None, list[Process]]:
        """Return the engine's main process (without a record the first that leads a session, None when it is gone), and its other processes."""
        members = [member for member in self.left() if member.pid != self.launcher]
        leaders = (member for member in members if member.pid == member.session)
        leader = engine(self.noted()) or min(leaders, key=lambda member: member.start_ticks, default=None)
        return leader, [member for member in members if leader is None or member.pid != leader.pid]

    def asking(self) -> tuple[tuple[float, signal.Signals, str], ...]:
        """Return the signals that stop this engine."""
        _leader, others = self.engine()
        return ASKING_RANKS if others and "--headless" in (self.noted() or self.spec).get("argv", []) else ASKING

    def ask(self, number: signal.Signals, whom: str) -> bool:
        """Signal a part of the engine's processes, or all when that part is gone; return whether any lives."""
        leader, others = self.engine()
        members = [*([leader] if leader else []), *others]
        for target in {MAIN: [leader] if leader else [], RANKS: others, ALL: members}[whom] or members:
            send(target, number)
        return bool(members)


def kill(ending: Ending) -> tuple[set[int], list[Process]]:
    """Kill the remaining processes of the runs that must end. Returns (killed pids, processes that outlived it).

    The launcher records the engine's end and then exits. One that stays alone hangs before its engine's start.
    """
    killed: set[int] = set()
    began = alone_since = time.monotonic()
    left = ending.left()
    while left and time.monotonic() < began + KILL_SECONDS:
        targets = [member for member in left if member.pid != ending.launcher]
        if targets:
            alone_since = time.monotonic()
        elif time.monotonic() >= alone_since + LOCK_SECONDS:
            targets = left
        for target in targets:
            send(target, signal.SIGKILL)
        killed |= {target.pid for target in targets}
        time.sleep(STOP_CHECK_SECONDS)
        left = ending.left()
    return killed, [member for member in left if member.pid != ending.launcher] or left


def stop(spec: Spec, grace: float, by: str = "launcher.py stop") -> dict[str, t.Any]:
    """Signal the engine to end, and kill its remaining processes after ``grace`` seconds.

    The main process gets the first signal alone: it ends its children in order, and so frees their memory. But vLLM (0.32)
    loses a SIGTERM while it loads, and would serve minutes later; there it reacts to SIGINT. And a core that lost its ranks
    hangs at its end until it gets a signal itself. More signals do no harm: once it shuts down, it ignores them.
    Ranks without an API get a signal before their main process, see :data:`ASKING_RANKS`.
    Only processes that the launcher started get a signal. An engine that is just starting is waited for and stopped too, and a
    launcher that has not started it yet never will: it reads this order.
    """
    ending = Ending(spec)
    ending.request(by)
    began = time.monotonic()
    asked_since: float | None = None
    used: list[str] = []
    steps = [step for step in ending.asking() if step[0] < grace]
    while ending.left() and time.monotonic() < began + grace:
        now = time.monotonic()
        after, number, whom = steps[0] if steps else (grace, signal.SIGKILL, ALL)
        if steps and now >= (asked_since or began) + after and ending.ask(number, whom):
            asked_since = asked_since or now
            used.append(number.name)
            steps.pop(0)
        time.sleep(STOP_CHECK_SECONDS)
    killed, left = kill(ending)
    if killed:
        used.append(signal.SIGKILL.name)
    if ending.unreadable and not left:
        set_aside(in_run_dir(spec, RUN_FILE))
    return {
        "run_id": ending.run_id,
        "was_live": ending.was_live,
        "prevented": ending.prevented,
        "signals": used,
        "killed": sorted(killed),
        "remaining": sorted(member.pid for member in left),
        "seconds": round(time.monotonic() - began, 3),
    }


# -- hold ------------------------------------------------------------------------------------------------------------


def hold(path: str, grace: float) -> int:
    """Run as a container's first program, for an engine that starts in it later: wait for SIGTERM, then stop that engine.

    ``path`` is read only then, since the engine's description comes with its start. Returns the exit code of this program.
    """
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    sys.stdout.write(f"{HOLDS}\n")
    sys.stdout.flush()
    number = signal.Signals(signal.sigwait(ends))
    if not os.path.exists(path):
        return 0
    answer = stop(read_spec(path), grace, f"{number.name} to the container")
    sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
    return EXIT_REMAINS if answer["remaining"] else 0


# -- the program -----------------------------------------------------------------------------------------------------


def read_spec(path: str) -> Spec:
    """Return the engine's description. Raises :class:`CannotStart` when it is missing or cannot be read."""
    try:
        spec = read_json(path)
    except ValueError as error:
        raise CannotStart(f"{path} cannot be read: {error}") from None
    if spec is None:
        raise CannotStart(f"there is no {path}")
    return spec


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Start, describe or stop the engine of this container, or hold the container open for it.")
    parser.add_argument("command", choices=["run", "status", "stop", "hold"])
    parser.add_argument("--spec", required=True, help="path of engine.json")
    parser.add_argument("--run-id", help="start only this run: another start may have written engine.json meanwhile")
    parser.add_argument("--grace", type=float, default=120, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--by", default="launcher.py stop", help="who stops the engine, for programs that wait for it")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "hold":
            return hold(chosen.spec, chosen.grace)
        spec = read_spec(chosen.spec)
    except CannotStart as error:
        sys.stderr.write(f"{error}\n")
        if chosen.command == "run":
            return error.code
        # Status and stop need no description: the run's records are in the directory next to it.
        spec = {"run_id": "", "run_dir": os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(chosen.spec))), "run")}
    if chosen.command == "run":
        if chosen.run_id not in (None, spec["run_id"]):
            sys.stderr.write(f"run {spec['run_id']} was ordered since\n")
            return EXIT_LIVE
        return run(spec)
    answer = status(spec) if chosen.command == "status" else stop(spec, chosen.grace, chosen.by)
    sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
    return EXIT_REMAINS if chosen.command == "stop" and answer["remaining"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
