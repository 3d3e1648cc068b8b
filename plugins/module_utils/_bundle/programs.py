# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the programs that write and read a bundle: rsync, sha256sum and docker. This module util is PRIVATE to the collection.

Each runs as the owner of its directory: a link there gives this user no additional access.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners
from ansible_collections.gb10.cluster.plugins.module_utils._model import copy_target
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import named

#: Seconds between two checks of a program, and for its end after it was killed.
LOOK_SECONDS, KILL_SECONDS = 0.5, 2.0
#: Bytes of a program's output in a message, and most bytes read of it.
SHOWN, OUTPUT_LIMIT = 500, 32 << 20
#: Number of files for one sha256sum.
AT_ONCE = 200
#: Debian's package of each program.
PACKAGES = {"rsync": "rsync", "docker": "docker.io", "sha256sum": "coreutils", "setpriv": "util-linux", "ssh-keygen": "openssh-client"}
ROOT = owners.Owner(0, 0)


def require(*names: str) -> None:
    """Raise :class:`ClusterError` unless this node has these programs."""
    if lost := [name for name in names if not shutil.which(name)]:
        remedy = f"sudo apt-get install {' '.join(PACKAGES[name] for name in lost)}"
        raise ClusterError(f"this node has no {', no '.join(lost)}", remedy=remedy, reason="tool missing")


def as_user(owner: owners.Owner) -> list[str]:
    """Return the command that runs a program as a user, and ends it with this process. Only root can run it as another user."""
    who = [f"--reuid={owner.uid}", f"--regid={owner.gid}", f"--groups={','.join(map(str, owners.groups_of(owner)))}"]
    return ["setpriv", *(who if owner.uid and os.geteuid() == 0 else []), "--pdeathsig=KILL"]


class Done(t.NamedTuple):
    """A program's result: its exit status, its output, and the end of its error output."""

    rc: int
    stdout: str
    words: str


class Watch:
    """Runs programs one after the other, reports their progress, and ends them after a time."""

    def __init__(self, seconds: float, note: t.Callable[[str], None]) -> None:
        self._until, self._note = time.monotonic() + seconds, note

    def run(
        self, argv: t.Sequence[str], owner: owners.Owner = ROOT, *, stdin: t.Any = subprocess.DEVNULL, stdout: t.Any = None,
        cwd: str = "/", far: t.Callable[[], str] | None = None,
    ) -> Done:  # fmt: skip
        """Run a program as a user; ``far`` returns its progress, by default its own last line. Raises :class:`WaitTimeout`."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            # It inherits no pipe of this module, so it cannot block it.
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
                [*as_user(owner), *argv], stdin=stdin, stdout=stdout or out, stderr=err, cwd=cwd, env={**os.environ, "LC_ALL": "C"}, start_new_session=True
            )
            try:
                while process.poll() is None:
                    text = f"{argv[0]}: {far() if far else _end(out, 80).rpartition(chr(13))[2].strip()}"
                    self._note(text)
                    if time.monotonic() > self._until:
                        raise WaitTimeout(
                            f"the bundle was not done in time; {text}",
                            remedy="Run again: it continues with the remaining files. Raise gb10_transfer_timeout for a slow disk.",
                            reason="slow",
                        )
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(LOOK_SECONDS)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(KILL_SECONDS)
            return Done(process.returncode, _end(out, OUTPUT_LIMIT), _end(err, SHOWN).strip() or _end(out, SHOWN).strip())

    def checked(self, name: str, path: str, *arguments: t.Any, **options: t.Any) -> Done:
        """Run a program as :meth:`run` does. Raises :class:`ClusterError` if it fails for ``path``, :class:`WaitTimeout`."""
        done = self.run(*arguments, **options)
        if done.rc != 0:
            raise failed(name, done.words, path)
        return done

    def rsync(self, source: str, target: str, names: t.Collection[str], reader: owners.Owner, writer: owners.Owner, *more: str) -> None:
        """Copy files from a directory into another one, each completely or not at all, and without replacing any. Raises :class:`ClusterError`.

        If a user reads and root writes, or the other way round, each end of rsync runs as its own user: the command of rsync's remote shell
        on the host ``env`` is run by env here.
        """
        if not names:
            return
        argv = ["rsync", "-s", "--times", "--perms", "--chmod=D755,F644", "--omit-dir-times", "--ignore-existing", "--info=progress2", *more,
                "--from0", "--files-from=-"]  # fmt: skip
        ends, local = [f"{source}/", f"{target}/"], writer
        if reader.uid != writer.uid and os.geteuid() == 0:
            if reader.uid and writer.uid:
                raise ClusterError(
                    f"{source} and {target} belong to two users, neither of whom is root",
                    remedy=f"Give the bundle to the user of the models: sudo chown -R --reference={source} {target}",
                    reason="owner",
                )
            argv += ["-e", " ".join(as_user(reader if reader.uid else writer))]
            ends, local = [f"env:{ends[0]}", ends[1]] if reader.uid else [ends[0], f"env:{ends[1]}"], ROOT
        with tempfile.TemporaryFile() as listed:
            listed.write(b"\0".join(map(os.fsencode, names)))
            listed.seek(0)
            self.checked("rsync", target, [*argv, *ends], local, stdin=listed)

    def sha256(self, path: str, names: t.Sequence[str], owner: owners.Owner) -> dict[str, str]:
        """Return the sha256 of files of a directory. Raises :class:`ClusterError`."""
        digests = {}
        for number in range(0, len(names), AT_ONCE):
            done = self.checked("sha256sum", path, ["sha256sum", "--", *names[number:number + AT_ONCE]], owner, cwd=path)
            digests |= {line[66:]: line[:64] for line in done.stdout.splitlines()}
        return digests

    def wrong(self, path: str, sums: t.Mapping[str, str], owner: owners.Owner) -> list[str]:
        """Return the files of a directory whose sha256 differs from the list. Raises :class:`ClusterError`."""
        digests = self.sha256(path, list(sums), owner)
        return [name for name, digest in sums.items() if digests.get(name) != digest]

    def settle(self, path: str, paths: t.Sequence[str]) -> None:
        """Flush a file system to its disk, and drop these files from the page cache. Raises :class:`ClusterError`."""
        self.checked("sync", path, ["sync", "--file-system", path])
        copy_target.drop_pages(paths)


def _end(stream: t.BinaryIO, most: int) -> str:
    """Return the end of a program's output, without changing the program's position in it."""
    return os.pread(stream.fileno(), most, max(0, os.fstat(stream.fileno()).st_size - most)).decode(errors="surrogateescape")


def failed(name: str, words: str, path: str) -> ClusterError:
    """Return the error for a failed program, with its own message."""
    if "no space left on device" in words.lower() or "disk quota exceeded" in words.lower():
        return ClusterError(
            f"the disk of {path} is full: {words}",
            remedy="Free some space, or use a larger disk, and run again: it continues with the remaining files.",
            reason="disk full",
        )
    if "file too large" in words.lower():
        return ClusterError(
            f"the file system of {path} cannot store a file of this size: {words}",
            remedy="Format the disk with ext4, xfs or exFAT: FAT32 allows only 4 GiB per file.",
            reason="file system",
        )
    return ClusterError(
        f"{name} failed for {path}: {words}",
        remedy="Check the permissions and the disk (journalctl -k), and run again: it continues with the remaining files.",
        reason="tool failed",
    )


def damaged(path: str, files: list[str]) -> ClusterError:
    """Return the error for files of a bundle that were changed since the export."""
    return ClusterError(
        f"{len(files)} file(s) of the bundle {path} differ from the export: {named(files)}; none of them was imported",
        remedy="Copy these files again from the original bundle. If they are damaged again, the disk is faulty: see journalctl -k.",
        reason="wrong digest",
        files=files,
    )
