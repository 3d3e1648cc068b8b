# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the parts of the test suite (tests/parts.yml), go on after a failure, and end with one table.

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
    venv: str = ".venv"
    directory: str = "."
    reads: t.Literal["all", "nodes"] = "all"
    env: t.Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Result:
    """What became of a part: ``passed``, ``failed`` or ``skipped``; ``note`` says why, or what else is worth knowing."""

    part: str
    outcome: t.Literal["passed", "failed", "skipped"]
    seconds: float = 0
    note: str = ""


def parse_parts(data: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, Part]:
    """Return the parts by name, in the file's order. Raises ValueError on a part that is needed before it is defined."""
    parts: dict[str, Part] = {}
    for name, fields in data.items():
        lists = {key: tuple(fields[key]) for key in ("commands", "suites", "needs") if key in fields}
        part = Part(name=name, **{**fields, **lists})
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
        self.passed: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def green(self, digests: t.Mapping[str, str]) -> set[str]:
        """Return the names of the parts that passed on the files with these digests."""
        return {name for name, recorded in self.passed.items() if digests.get(name) == recorded}

    def record(self, part: str, digest: str | None) -> None:
        """Remember that ``part`` passed on the files with this digest, or with None that it did not pass."""
        self.passed.pop(part, None)
        if digest is not None:
            self.passed[part] = digest
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.passed, indent=2, sort_keys=True) + "\n", encoding="utf-8")


class TimeUp(Exception):
    """A command was still running at its part's deadline and has been ended."""


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a command and its children: ask, give them :data:`GRACE` seconds, then kill."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_command(argv: t.Sequence[str], *, cwd: Path, env: t.Mapping[str, str], log: Path, deadline: float) -> int:
    """Run one command, show its output while it comes, append it to ``log``, and return the exit code.

    The command writes to the file, not to a pipe: what it leaves running may keep its output open, and must not keep us.
    Raises :class:`TimeUp` when ``deadline`` (monotonic seconds) passes.
    """
    with log.open("ab") as sink, log.open("rb") as source:
        source.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            argv, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            while True:
                try:
                    code: int | None = process.wait(timeout=POLL)
                except subprocess.TimeoutExpired:
                    code = None
                sys.stdout.buffer.write(source.read())
                sys.stdout.flush()
                if code is not None:
                    return code
                if time.monotonic() > deadline:
                    end_group(process)
                    raise TimeUp
        except KeyboardInterrupt:
            end_group(process)
            raise


def last_line(log: Path) -> str:
    """Return the last line with anything on it, or an empty string."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def run_part(part: Part, common_env: t.Mapping[str, str]) -> Result:
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
        print(f"$ {command}", flush=True)
        try:
            code = run_command(
                shlex.split(command), cwd=ROOT / part.directory, env=env, log=log, deadline=started + part.timeout * 60
            )
        except TimeUp:
            failures.append(f"{command}: not done after {part.timeout} min")
            break
        except FileNotFoundError as error:
            failures.append(f"{command}: {error.filename} not found")
            continue
        if code == SKIP_CODE:
            skipped = last_line(log)
        elif code:
            failures.append(f"{command}: exit code {code}")
    seconds = time.monotonic() - started
    if failures:
        return Result(part.name, "failed", seconds, f"{'; '.join(failures)} (log: {log.relative_to(ROOT)})")
    if skipped:
        return Result(part.name, "skipped", seconds, skipped)
    return Result(part.name, "passed", seconds)


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
    results: dict[str, Result] = {}
    try:
        for part in select(parts, arguments.parts, green):
            results[part.name] = Result(part.name, "failed", note="interrupted")
            print(f"\n== {part.name}: {part.title}", flush=True)
            if part.kind == "check" and part.name in green:
                results[part.name] = Result(part.name, "passed", note="earlier, on the same files")
            elif reason := blocked_by(part, results):
                results[part.name] = Result(part.name, "skipped", note=reason)
            else:
                results[part.name] = run_part(part, file["common_env"])
                passed = results[part.name].outcome == "passed"
                memory.record(part.name, digests[part.name] if passed else None)
            print(f"-- {part.name}: {results[part.name].outcome} {results[part.name].note}".rstrip(), flush=True)
    except KeyboardInterrupt:
        print("\n" + table(results.values()), flush=True)
        return 130
    print("\n" + table(results.values()), flush=True)
    bad = {"failed", "skipped"} if arguments.strict else {"failed"}
    return int(any(result.outcome in bad for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
