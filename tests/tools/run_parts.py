# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the parts of the test suite (tests/parts.yml), go on after a failure, and end with one table.

Parts that work on the lab's nodes run one after the other, and beside them all others, one after the other, too: the former wait for nodes most of the time.
Output of each part goes to the screen and to .cache/parts/NAME.log. What passed is remembered together with a digest of the files that
count for it, so that ``--resume`` runs only what has not passed on exactly these files.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
PARTS_FILE = ROOT / "tests" / "parts.yml"

#: Exit code of a command that could not run for a reason outside the tree; its last line says which.
SKIP_CODE = 77
#: Seconds between two looks at a running command's output.
POLL = 0.2
#: Seconds between asking a command that ran out of time to end, and ending it.
GRACE = 30


@dataclasses.dataclass(frozen=True)
class Part:
    """One entry of the parts file. ``timeout`` is in minutes and covers all commands together."""

    name: str
    title: str
    commands: tuple[str, ...]
    timeout: float
    suites: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    kind: t.Literal["check", "setup", "cleanup"] = "check"
    lane: t.Literal["main", "nodes"] = "main"
    venv: str = ".venv"
    directory: str = "."
    reads: t.Literal["all", "nodes"] = "all"
    env: t.Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of a part: ``passed``, ``failed`` or ``skipped``; ``note`` says why, or what else is worth knowing."""

    part: str
    outcome: t.Literal["passed", "failed", "skipped"]
    seconds: float = 0
    note: str = ""


def parse_parts(data: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, Part]:
    """Return the parts by name, in the file's order. Raises ValueError on a part that is needed before it is defined."""
    parts: dict[str, Part] = {}
    for name, fields in data.items():
        lists = {key: tuple(fields[key]) for key in ("commands", "suites", "needs") if key in fields}
        lane = {"lane": "nodes"} if fields.get("reads") == "nodes" else {}
        part = Part(name=name, **{**lane, **fields, **lists})
        unknown = [need for need in part.needs if need not in parts]
        if unknown:
            raise ValueError(f"part {name} needs {', '.join(unknown)}, which no earlier part is called")
        parts[name] = part
    return parts


def with_needs(parts: t.Mapping[str, Part], wanted: t.Iterable[str]) -> list[Part]:
    """Return the wanted parts and all that they need, directly or not, in the file's order."""
    chosen: set[str] = set()
    queue = list(wanted)
    while queue:
        name = queue.pop()
        if name not in chosen:
            chosen.add(name)
            queue.extend(parts[name].needs)
    return [part for part in parts.values() if part.name in chosen]


def select(parts: t.Mapping[str, Part], wanted: t.Iterable[str], green: t.Container[str]) -> list[Part]:
    """Return what to run for ``wanted``, in order; checks that are ``green`` stay in the list but pull in no setup."""
    wanted = list(wanted)
    done = [name for name in wanted if name in green and parts[name].kind == "check"]
    to_run = with_needs(parts, [name for name in wanted if name not in done])
    names = {part.name for part in to_run} | set(done)
    return [part for part in parts.values() if part.name in names]


def blocked_by(part: Part, results: t.Mapping[str, Result]) -> str:
    """Return why ``part`` cannot run after ``results``, or an empty string."""
    for need in part.needs:
        before = results[need]
        if before.outcome == "failed":
            return f"{need} failed"
        if before.outcome == "skipped":
            return before.note
    return ""


def table(results: t.Iterable[Result]) -> str:
    """Return the closing table, the skipped parts spelled out, and the counts on a line of their own."""
    results = list(results)
    width = max((len(result.part) for result in results), default=0)
    lines = [f"{'part':{width}}  {'result':7}  {'seconds':>7}  note".rstrip()]
    lines += [f"{r.part:{width}}  {r.outcome:7}  {r.seconds:7.1f}  {r.note}".rstrip() for r in results]
    lines += [f"SKIPPED: {r.part}: {r.note}" for r in results if r.outcome == "skipped"]
    counts = {outcome: sum(r.outcome == outcome for r in results) for outcome in ("passed", "failed", "skipped")}
    lines += ["", ", ".join(f"{count} {outcome}" for outcome, count in counts.items())]
    return "\n".join(lines)


def tree_files(root: Path) -> dict[str, str]:
    """Return every file that git tracks or would track, with a digest over its mode and content."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, check=False, capture_output=True, timeout=60,
    )
    if listing.returncode:
        sys.exit(f"The tests need a git clone: {listing.stderr.decode().strip()}")
    files = {}
    for name in sorted(set(listing.stdout.split(b"\0")) - {b""}):
        path = os.path.join(os.fsencode(root), name)
        if os.path.islink(path):
            content = os.readlink(path)
        elif os.path.isfile(path):
            content = Path(os.fsdecode(path)).read_bytes()
        else:
            continue
        mode = b"x" if os.access(path, os.X_OK) else b"-"
        files[os.fsdecode(name)] = hashlib.sha256(mode + content).hexdigest()
    return files


def digest(part: Part, files: t.Mapping[str, str], not_on_nodes: t.Sequence[str]) -> str:
    """Return a digest over the files that count for a part: all, or without those that no work on nodes reads, unless a command names them."""
    named = {word for command in part.commands for word in shlex.split(command)}

    def counts(name: str) -> bool:
        return part.reads == "all" or name in named or not any(fnmatch.fnmatch(name, pattern) for pattern in not_on_nodes)

    return hashlib.sha256(json.dumps({name: content for name, content in files.items() if counts(name)}, sort_keys=True).encode()).hexdigest()


class Memory:
    """Which parts passed on which files, kept in one JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.passed: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def green(self, digests: t.Mapping[str, str]) -> set[str]:
        """Return the names of the parts that passed on the files with these digests."""
        return {name for name, recorded in self.passed.items() if digests.get(name) == recorded}

    def record(self, part: str, digest: str | None) -> None:
        """Remember that ``part`` passed on the files with this digest, or with None that it did not pass."""
        with self._lock:
            self.passed.pop(part, None)
            if digest is not None:
                self.passed[part] = digest
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.passed, indent=2, sort_keys=True) + "\n", encoding="utf-8")


class TimeUp(Exception):
    """A command was still running at its part's deadline and was ended."""


class Interrupted(Exception):
    """The run was ended, and with it a command."""


class Screen:
    """Shows the output of parts in whole lines; each line names its part when several run at the same time."""

    def __init__(self, named: bool = False) -> None:
        self._named = named
        self._rests: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def show(self, part: str, output: bytes, whole: bool = False) -> None:
        """Print a part's output. An incomplete line waits for its end, unless the output is ``whole``."""
        with self._lock:
            *lines, rest = (self._rests.pop(part, b"") + output).split(b"\n")
            if whole and rest:
                lines, rest = [*lines, rest], b""
            self._rests[part] = rest
            name = f"{part}: ".encode() if self._named else b""
            sys.stdout.buffer.write(b"".join(name + line + b"\n" for line in lines))
            sys.stdout.flush()

    def say(self, part: str, text: str) -> None:
        """Print a line of this program's own about a part."""
        self.show(part, text.encode(), whole=True)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a command and its children: ask, give them :data:`GRACE` seconds, then kill."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_command(
    argv: t.Sequence[str], *, cwd: Path, env: t.Mapping[str, str], log: Path, deadline: float, show: t.Callable[[bytes], None], stop: threading.Event
) -> int:
    """Run one command, show its output while it comes, append it to ``log``, and return the exit code.

    The command writes to the file, not to a pipe: a process that it leaves running may keep its output open, and must not block this one.
    Raises :class:`TimeUp` when ``deadline`` (monotonic seconds) passes, and :class:`Interrupted` once ``stop`` is set.
    """
    with log.open("ab") as sink, log.open("rb") as source:
        source.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            argv, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
        while True:
            try:
                code: int | None = process.wait(timeout=POLL)
            except subprocess.TimeoutExpired:
                code = None
            show(source.read())
            if code is not None:
                return code
            if stop.is_set() or time.monotonic() > deadline:
                end_group(process)
                raise Interrupted if stop.is_set() else TimeUp


def last_line(log: Path) -> str:
    """Return the last line that is not blank, or an empty string."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def run_part(part: Part, common_env: t.Mapping[str, str], screen: Screen, stop: threading.Event) -> Result:
    """Run all commands of a part and judge them together."""
    bin_dir = ROOT / part.venv / "bin"
    env = {
        **os.environ,
        **{key: value.format(root=ROOT) for key, value in {**common_env, **part.env}.items()},
        "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
    }
    log = CACHE / "parts" / f"{part.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    started = time.monotonic()
    failures: list[str] = []
    skipped = ""
    for command in part.commands:
        screen.say(part.name, f"$ {command}")
        try:
            code = run_command(
                shlex.split(command),
                cwd=ROOT / part.directory,
                env=env,
                log=log,
                deadline=started + part.timeout * 60,
                show=lambda output: screen.show(part.name, output),
                stop=stop,
            )
        except TimeUp:
            failures.append(f"{command}: not done after {part.timeout} min")
            break
        except Interrupted:
            failures.append(f"{command}: interrupted")
            break
        except FileNotFoundError as error:
            failures.append(f"{command}: {error.filename} not found")
            continue
        if code == SKIP_CODE:
            skipped = last_line(log)
        elif code:
            failures.append(f"{command}: exit code {code}")
    screen.show(part.name, b"", whole=True)
    seconds = time.monotonic() - started
    if failures:
        return Result(part.name, "failed", seconds, f"{'; '.join(failures)} (log: {log.relative_to(ROOT)})")
    if skipped:
        return Result(part.name, "skipped", seconds, skipped)
    return Result(part.name, "passed", seconds)


class Suite:
    """Chosen parts, in the order of their file. ``run`` runs one; those that are ``green`` passed before and do not run."""

    def __init__(self, parts: t.Sequence[Part], green: t.Container[str], run: t.Callable[[Part], Result], say: t.Callable[[str, str], None]) -> None:
        self.parts = parts
        self._green, self._run, self._say = green, run, say
        self._results: dict[str, Result] = {}
        self._ended = threading.Condition()

    @property
    def results(self) -> list[Result]:
        """The outcomes of the parts, in their order; one without an end was interrupted."""
        return [self._results.get(part.name, Result(part.name, "failed", note="interrupted")) for part in self.parts]

    def lanes(self) -> list[threading.Thread]:
        """Return one thread for each lane. A part waits for the parts that it needs, which come before it in the file, so that no two wait for each other."""
        working = [part for part in self.parts if part.kind != "cleanup"]
        lanes = {part.lane: [other for other in working if other.lane == part.lane] for part in working}
        return [threading.Thread(target=self._run_lane, args=(parts,), name=name) for name, parts in lanes.items()]

    def clean_up(self) -> None:
        """Run the parts that clean up, after all lanes: parts of another lane may still use what they remove."""
        self._run_lane([part for part in self.parts if part.kind == "cleanup"])

    def _run_lane(self, parts: t.Sequence[Part]) -> None:
        for part in parts:
            result = self._result(part)
            self._say(part.name, f"-- {part.name}: {result.outcome} {result.note}".rstrip())
            with self._ended:
                self._results[part.name] = result
                self._ended.notify_all()

    def _result(self, part: Part) -> Result:
        if part.kind == "check" and part.name in self._green:
            return Result(part.name, "passed", note="earlier, on the same files")
        with self._ended:
            self._ended.wait_for(lambda: set(part.needs) <= set(self._results))
            reason = blocked_by(part, self._results)
        self._say(part.name, f"== {part.name}: {part.title}")
        return Result(part.name, "skipped", note=reason) if reason else self._run(part)


def interrupt(signum: int, frame: t.Any) -> t.NoReturn:
    """Handle SIGTERM like Ctrl-C, so that nothing is left running."""
    raise KeyboardInterrupt


def parse_arguments(parts: t.Mapping[str, Part]) -> argparse.Namespace:
    """Return the command line, with ``parts`` as the names to run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(parts)}")
    parser.add_argument("--suite", choices=sorted({suite for part in parts.values() for suite in part.suites}))
    parser.add_argument("--resume", action="store_true", help="leave out what already passed on exactly these files")
    parser.add_argument("--strict", action="store_true", help="fail when a part was skipped")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.parts if name not in parts]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}")
    arguments.parts += [part.name for part in parts.values() if arguments.suite in part.suites]
    if not arguments.parts:
        parser.error("name a part or a suite")
    return arguments


def main() -> int:
    """Run what the command line asks for and return the exit code."""
    file = yaml.safe_load(PARTS_FILE.read_text(encoding="utf-8"))
    parts = parse_parts(file["parts"])
    arguments = parse_arguments(parts)
    signal.signal(signal.SIGTERM, interrupt)
    memory = Memory(CACHE / "parts.json")
    files = tree_files(ROOT)
    digests = {name: digest(part, files, file["not_on_nodes"]) for name, part in parts.items()}
    green = memory.green(digests) if arguments.resume else set()
    chosen = select(parts, arguments.parts, green)
    screen, stop = Screen(named=len({part.lane for part in chosen}) > 1), threading.Event()

    def run(part: Part) -> Result:
        if stop.is_set():
            return Result(part.name, "failed", note="interrupted")
        result = run_part(part, file["common_env"], screen, stop)
        memory.record(part.name, digests[part.name] if result.outcome == "passed" else None)
        return result

    suite = Suite(chosen, green, run, screen.say)
    # In threads of their own, since Ctrl-C comes to this one.
    lanes, cleaning = suite.lanes(), threading.Thread(target=suite.clean_up)
    running = [*lanes, cleaning]
    try:
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        cleaning.start()
        cleaning.join()
    except KeyboardInterrupt:
        stop.set()
        for thread in running:
            if thread.ident is not None:
                thread.join()
    print("\n" + table(suite.results), flush=True)
    if stop.is_set():
        return 130
    bad = {"failed", "skipped"} if arguments.strict else {"failed"}
    return int(any(result.outcome in bad for result in suite.results))


if __name__ == "__main__":
    sys.exit(main())
