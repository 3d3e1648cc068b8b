# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts, describes and stops the engine inside a node's container. This module util is PRIVATE to the collection.

The collection writes this file as ``launcher.py`` into a directory that the container sees read-only, with the engine's
description ``engine.json`` beside it. It is a program of its own: standard library only, Python 3.10 or newer, whatever the
image has. No second command line of the engine exists anywhere.

    launcher.py run --spec engine.json               start the engine, wait for it, note how it ended
    launcher.py status --spec engine.json            print what runs as JSON
    launcher.py stop --spec engine.json --grace 120  stop it gently, print what was needed as JSON

``engine.json`` holds ``argv, run_id, digest, run_dir, log_path, config_root, keep_logs, log_max_bytes, api_address, api_port``,
``secret_env`` (variable to file) and ``no_carry_env`` (names). ``run`` writes ``run.json`` and ``exit.json`` into ``run_dir``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import typing as t

#: Seconds between two looks at the log's size while the engine runs.
LOG_CHECK_SECONDS = 5.0
#: Seconds between two looks at the processes while the engine ends.
STOP_CHECK_SECONDS = 0.2
#: How an engine is asked to end: seconds after the first signal, the signal, whether its children are asked too.
ASKING = ((0.0, signal.SIGTERM, False), (1.0, signal.SIGINT, False), (3.0, signal.SIGTERM, True))
#: Seconds that the kernel gets to end killed processes. One that is still there then hangs in the kernel.
KILL_SECONDS = 10.0

EXIT_LIVE = 3
EXIT_REMAINS = 4
#: The shell's exit codes for a program that could not be started, and for one that does not exist.
EXIT_CANNOT_START = 126
EXIT_NO_PROGRAM = 127

Spec = dict[str, t.Any]


class Process(t.NamedTuple):
    """One line of the kernel's process table. ``start_ticks`` (clock ticks since boot) tells apart two users of one pid."""

    pid: int
    state: str
    session: int
    start_ticks: int


class CannotStart(Exception):
    """The engine could not be started; ``code`` is the exit code to note."""

    def __init__(self, message: str, code: int = EXIT_CANNOT_START) -> None:
        super().__init__(message)
        self.code = code


# -- files -----------------------------------------------------------------------------------------------------------


def read_json(path: str) -> dict[str, t.Any] | None:
    """Return the content of a JSON file, None when there is no such file."""
    try:
        with open(path, encoding="utf-8") as handle:
            return json.load(handle)
    except FileNotFoundError:
        return None


def write_json(path: str, content: t.Any) -> None:
    """Write a JSON file so that a reader sees the old or the new content, never a part."""
    new = f"{path}.new"
    with open(new, "w", encoding="utf-8") as handle:
        json.dump(content, handle, indent=1, sort_keys=True)
        handle.write("\n")
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(new, path)


def run_file(spec: Spec) -> str:
    return os.path.join(spec["run_dir"], "run.json")


def exit_file(spec: Spec) -> str:
    return os.path.join(spec["run_dir"], "exit.json")


# -- processes -------------------------------------------------------------------------------------------------------


def process(pid: int, proc: str = "/proc") -> Process | None:
    """Return the process with this pid, None when there is none."""
    try:
        with open(os.path.join(proc, str(pid), "stat"), encoding="utf-8", errors="replace") as handle:
            text = handle.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name stands in parentheses and may hold anything, parentheses and spaces included.
    fields = text.rpartition(")")[2].split()
    return Process(pid, fields[0], int(fields[3]), int(fields[19]))


def processes(proc: str = "/proc") -> t.Iterator[Process]:
    """Yield every process; those that end meanwhile are left out."""
    for name in os.listdir(proc):
        if name.isdigit():
            found = process(int(name), proc)
            if found:
                yield found


def container_start() -> int:
    """Return when this pid namespace began, in clock ticks since boot: it tells one start of a container from the next."""
    first = process(1)
    return first.start_ticks if first else 0


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
        return handle.read().strip()


def engine(run: dict[str, t.Any] | None) -> Process | None:
    """Return the main process of the noted run while it lives: same pid and same start, in the same start of the container."""
    if not run or run["container_start"] != container_start():
        return None
    found = process(run["pid"])
    if found is None or found.start_ticks != run["start_ticks"] or found.state in "ZX":
        return None
    return found


def ours(run: dict[str, t.Any] | None) -> list[Process]:
    """Return every living process of the noted run: the engine leads a session, and its children stay in it.

    The kernel gives the number of a session to no one else while the session has members, so a leader that is gone
    leaves its children recognisable. When the number has a new owner, nothing of ours is left.
    """
    if not run or run["container_start"] != container_start():
        return []
    leader = process(run["pid"])
    if leader and leader.start_ticks != run["start_ticks"]:
        return []
    return [one for one in processes() if one.session == run["pid"] and one.start_ticks >= run["start_ticks"] and one.state not in "ZX"]


def send(one: Process, number: int) -> None:
    """Signal a process if it is still the one that was looked at."""
    now = process(one.pid)
    if now and now.start_ticks == one.start_ticks:
        try:
            os.kill(one.pid, number)
        except ProcessLookupError:
            pass


# -- run -------------------------------------------------------------------------------------------------------------


def engine_environment(spec: Spec) -> dict[str, str]:
    """Return the engine's environment: the container's, the secrets, and where vLLM finds the list of names not to copy."""
    environment = dict(os.environ)
    # setproctitle writes a process title over the environment in /proc; without that, a proof can still read it there.
    environment.setdefault("SPT_NOENV", "1")
    environment.setdefault("PYTHONUNBUFFERED", "1")
    environment["VLLM_CONFIG_ROOT"] = spec["config_root"]
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
    names = sorted({*spec["no_carry_env"], *spec["secret_env"]})
    write_json(os.path.join(spec["config_root"], "ray_non_carry_over_env_vars.json"), names)


def open_log(path: str) -> int:
    """Return the log, opened for appending: only then can it be cut while the engine writes to it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)


def bound_log(path: str, limit: int) -> bool:
    """When the log has ``limit`` bytes or more, move its content to ``.1`` and start it anew; True when that was done.

    What is written between the copy and the cut is lost. The engine holds the file open, so there is no other way.
    """
    if os.path.getsize(path) < limit:
        return False
    shutil.copyfile(path, f"{path}.1")
    os.truncate(path, 0)
    return True


def prune_logs(directory: str, keep: int, current: str) -> list[str]:
    """Delete the logs of all but the last ``keep`` runs, ``current`` among them; run ids sort by time. Returns the paths."""
    runs = {name.split(".log", 1)[0] for name in os.listdir(directory) if name.endswith((".log", ".log.1"))}
    kept = {*sorted(runs - {current}, reverse=True)[: max(0, keep - 1)], current}
    gone = []
    for run_id in sorted(runs - kept):
        for path in (os.path.join(directory, run_id + end) for end in (".log", ".log.1")):
            if os.path.exists(path):
                os.remove(path)
                gone.append(path)
    return gone


def start(spec: Spec) -> subprocess.Popen[bytes]:
    """Start the engine as the leader of its own session, so that it outlives this program. Raises :class:`CannotStart`."""
    environment = engine_environment(spec)
    write_names_not_to_copy(spec)
    log = open_log(spec["log_path"])
    # A parent that ignores SIGINT hands that on, and an engine that still loads hears nothing else.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        # There is no module here: this program runs in the container, and its child outlives it.
        return subprocess.Popen(  # pylint: disable=ansible-bad-function
            spec["argv"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    except FileNotFoundError:
        raise CannotStart(f"the image has no program {spec['argv'][0]}", EXIT_NO_PROGRAM) from None
    except OSError as error:
        raise CannotStart(f"cannot start {spec['argv'][0]}: {error.strerror}") from None
    finally:
        os.close(log)


def note_exit(spec: Spec, returncode: int, error: str = "") -> None:
    """Write how the engine ended; a negative ``returncode`` is the signal that ended it."""
    write_json(
        exit_file(spec),
        {
            "run_id": spec["run_id"],
            "code": returncode if returncode >= 0 else None,
            "signal": -returncode if returncode < 0 else None,
            "error": error,
            "ended_at": time.time(),
        },
    )


def run(spec: Spec) -> int:
    """Start the engine, keep its log bounded, wait for its end and note it. Returns the exit code of this program."""
    live = engine(read_json(run_file(spec)))
    if live:
        sys.stderr.write(f"an engine runs already, pid {live.pid}\n")
        return EXIT_LIVE
    try:
        child = start(spec)
    except CannotStart as error:
        note_exit(spec, error.code, str(error))
        sys.stderr.write(f"{error}\n")
        return error.code
    begun = process(child.pid)
    kept = ("run_id", "argv", "digest", "secret_env", "no_carry_env", "api_address", "api_port", "log_path")
    write_json(
        run_file(spec),
        {
            **{key: spec[key] for key in kept},
            "pid": child.pid,
            "start_ticks": begun.start_ticks if begun else 0,
            "started_at": time.time(),
            "boot_id": boot_id(),
            "container_start": container_start(),
        },
    )
    prune_logs(os.path.dirname(spec["log_path"]), spec["keep_logs"], spec["run_id"])
    while True:
        try:
            returncode = child.wait(timeout=LOG_CHECK_SECONDS)
            break
        except subprocess.TimeoutExpired:
            bound_log(spec["log_path"], spec["log_max_bytes"])
    note_exit(spec, returncode)
    return 0


# -- status and stop -------------------------------------------------------------------------------------------------


def status(spec: Spec) -> dict[str, t.Any]:
    """Return what is known of the last run. ``remaining`` are its living processes, also when the engine itself is gone."""
    noted = read_json(run_file(spec))
    ended = read_json(exit_file(spec)) or {}
    own_end = ended if noted is None or ended.get("run_id") == noted["run_id"] else {}
    return {
        **(noted or {}),
        "live": engine(noted) is not None,
        "remaining": sorted(one.pid for one in ours(noted)),
        "exit_code": own_end.get("code"),
        "exit_signal": own_end.get("signal"),
        "exit_error": own_end.get("error", ""),
        "ended_at": own_end.get("ended_at"),
    }


def wait_gone(noted: dict[str, t.Any] | None, deadline: float) -> bool:
    """Wait until the run has no living process any more; False when it has one at ``deadline`` (monotonic)."""
    while ours(noted):
        if time.monotonic() >= deadline:
            return False
        time.sleep(STOP_CHECK_SECONDS)
    return True


def stop(spec: Spec, grace: float) -> dict[str, t.Any]:
    """Ask the engine to end, and kill what is left of it after ``grace`` seconds.

    The main process is asked first and alone: it ends its own children in order, and so frees their memory. But vLLM (0.32)
    loses a SIGTERM while it loads, and would serve minutes later; there it hears SIGINT. And a core that lost its ranks
    hangs at its end until it is asked itself. Asking more often does no harm: once it shuts down, it takes no notice.
    Nothing is signalled but members of the engine's own session.
    """
    noted = read_json(run_file(spec))
    began = time.monotonic()
    was_live = engine(noted) is not None
    used = []
    for after, number, everyone in ASKING:
        if after >= grace or wait_gone(noted, began + after):
            break
        leader = engine(noted)
        for one in [leader] if leader and not everyone else ours(noted):
            send(one, number)
        used.append(number.name)
    wait_gone(noted, began + grace)
    killed = ours(noted)
    for one in killed:
        send(one, signal.SIGKILL)
    if killed:
        used.append(signal.SIGKILL.name)
        wait_gone(noted, time.monotonic() + KILL_SECONDS)
    return {
        "run_id": noted["run_id"] if noted else "",
        "was_live": was_live,
        "signals": used,
        "killed": sorted(one.pid for one in killed),
        "remaining": sorted(one.pid for one in ours(noted)),
        "seconds": round(time.monotonic() - began, 3),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Start, describe or stop the engine of this container.")
    parser.add_argument("command", choices=["run", "status", "stop"])
    parser.add_argument("--spec", required=True, help="path of engine.json")
    parser.add_argument("--grace", type=float, default=120, help="seconds between SIGTERM and SIGKILL")
    chosen = parser.parse_args(arguments)
    spec = read_json(chosen.spec)
    if spec is None:
        sys.stderr.write(f"there is no {chosen.spec}\n")
        return EXIT_CANNOT_START
    if chosen.command == "run":
        return run(spec)
    answer = status(spec) if chosen.command == "status" else stop(spec, chosen.grace)
    sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
    return EXIT_REMAINS if chosen.command == "stop" and answer["remaining"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
