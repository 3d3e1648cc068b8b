# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a bundle is written and read with: rsync, sha256sum and docker. This module util is PRIVATE to the collection.

Each acts as the user whose directory it is: a link that this user puts there leads to nothing that they could not reach themselves.
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

#: Seconds between two looks at a program, and that one gets to end once it was killed.
LOOK_SECONDS, KILL_SECONDS = 0.5, 2.0
#: Bytes of a program's output that a message has, and that are read of it.
SHOWN, OUTPUT_LIMIT = 500, 32 << 20
#: Files that one sha256sum is given by name.
AT_ONCE = 200
#: Debian's package of each program.
PACKAGES = {"rsync": "rsync", "docker": "docker.io", "sha256sum": "coreutils", "setpriv": "util-linux", "ssh-keygen": "openssh-client"}
ROOT = owners.Owner(0, 0)


def require(*names: str) -> None:
    """Raise :class:`ClusterError` unless this node has these programs."""
    lost = [name for name in names if not shutil.which(name)]
    if lost:
        packages = " ".join(PACKAGES[name] for name in lost)
        raise ClusterError(f"this node has no {', no '.join(lost)}", remedy=f"sudo apt-get install {packages}", reason="tool missing")


def as_user(owner: owners.Owner) -> list[str]:
    """Return what runs a program as a user, and ends it when this process is killed. Who is not root is who they are."""
    who = [f"--reuid={owner.uid}", f"--regid={owner.gid}", f"--groups={','.join(map(str, owners.groups_of(owner)))}"]
    return ["setpriv", *(who if owner.uid and os.geteuid() == 0 else []), "--pdeathsig=KILL"]


class Done(t.NamedTuple):
    """How a program ended: its exit status, what it printed, and its last words."""

    rc: int
    stdout: str
    words: str


class Watch:
    """Runs one program after the other, says how far each is, and ends what takes too long."""

    def __init__(self, seconds: float, note: t.Callable[[str], None]) -> None:
        self._until, self._note = time.monotonic() + seconds, note

    def run(
        self, argv: t.Sequence[str], owner: owners.Owner = ROOT, *, stdin: t.Any = subprocess.DEVNULL, stdout: t.Any = None,
        cwd: str = "/", far: t.Callable[[], str] | None = None,
    ) -> Done:  # fmt: skip
        """Run a program as a user; ``far`` says how far it is, else its own last line does. Raises :class:`WaitTimeout`."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            # It inherits no pipe of this module, so it cannot hang it.
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
                            remedy="Run again: it continues with the complete files. Raise gb10_transfer_timeout for a slow disk.",
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

    def rsync(self, source: str, target: str, names: t.Collection[str], reader: owners.Owner, writer: owners.Owner, *more: str) -> None:
        """Copy files from a directory into another one, each whole or not at all, and none over another one. Raises :class:`ClusterError`.

        Where a user reads and root writes, or the other way round, each end of rsync runs as its own user: what rsync would start by a remote
        shell on the host ``env`` is started by env here.
        """
        if not names:
            return
        argv = ["rsync", "-s", "--times", "--perms", "--chmod=D755,F644", "--omit-dir-times", "--ignore-existing", "--info=progress2", *more]
        argv += ["--from0", "--files-from=-"]
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
            done = self.run([*argv, *ends], local, stdin=listed)
        if done.rc != 0:
            raise failed("rsync", done.words, target)

    def sha256(self, path: str, names: t.Sequence[str], owner: owners.Owner) -> dict[str, str]:
        """Return the sha256 of files of a directory. Raises :class:`ClusterError`."""
        found = {}
        for number in range(0, len(names), AT_ONCE):
            done = self.run(["sha256sum", "--", *names[number:number + AT_ONCE]], owner, cwd=path)
            if done.rc != 0:
                raise failed("sha256sum", done.words, path)
            found |= {line[66:]: line[:64] for line in done.stdout.splitlines()}
        return found

    def wrong(self, path: str, sums: t.Mapping[str, str], owner: owners.Owner) -> list[str]:
        """Return the files of a directory that do not have the sha256 that was listed. Raises :class:`ClusterError`."""
        found = self.sha256(path, list(sums), owner)
        return [name for name, digest in sums.items() if found.get(name) != digest]

    def settle(self, path: str, paths: t.Sequence[str]) -> None:
        """Have what was written to a file system on its disk, and these files out of the page cache. Raises :class:`ClusterError`."""
        done = self.run(["sync", "--file-system", path])
        if done.rc != 0:
            raise failed("sync", done.words, path)
        copy_target.drop_pages(paths)


def _end(stream: t.BinaryIO, most: int) -> str:
    """Return the end of a program's output, whose position is the program's own."""
    size = os.fstat(stream.fileno()).st_size
    return os.pread(stream.fileno(), most, max(0, size - most)).decode(errors="surrogateescape")


def failed(name: str, words: str, path: str) -> ClusterError:
    """Return the error for a program that did not do what it was asked, by its own words."""
    if "no space left on device" in words.lower() or "disk quota exceeded" in words.lower():
        return ClusterError(
            f"the disk of {path} is full: {words}",
            remedy="Free some, or take a larger disk, and run again: it goes on with what is whole.",
            reason="disk full",
        )
    if "file too large" in words.lower():
        return ClusterError(
            f"the file system of {path} cannot hold a file of this size: {words}",
            remedy="Format the disk with ext4, xfs or exFAT: FAT32 ends at 4 GiB a file.",
            reason="file system",
        )
    return ClusterError(
        f"{name} failed for {path}: {words}",
        remedy="See what stands in its way (a mode, a disk: journalctl -k), and run again: it goes on with what is whole.",
        reason="tool failed",
    )


def damaged(path: str, files: list[str]) -> ClusterError:
    """Return the error for files of a bundle that were changed since the export."""
    return ClusterError(
        f"{len(files)} file(s) of the bundle {path} are not what was exported: {named(files)}; nothing of them was imported",
        remedy="Copy these files again from where the bundle was made. When they come back damaged, the disk is at fault: see journalctl -k.",
        reason="wrong digest",
        files=files,
    )
