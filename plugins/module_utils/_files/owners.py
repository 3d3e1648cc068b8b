# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The owner of a directory, and how root works in a directory of another user. This module util is PRIVATE to the collection.

The owner of a directory can create a link there at any moment. So root works there with that user's rights, who gains no access by such a link; and as root
only if root owns every directory and link in the path and no other account may write to them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

#: Most links in one path, as for the kernel.
LINKS = 40


class Owner(t.NamedTuple):
    """The user and group to act as."""

    uid: int
    gid: int


class Step(t.NamedTuple):
    """A directory, link or file in a path: its own path without links, and its own status."""

    path: str
    status: os.stat_result


def _steps(path: str) -> list[Step]:
    """Return the steps of an absolute path up to the last that exists. Raises :class:`ClusterError` for a dangling link, OSError."""
    steps, at, link, behind = [Step("/", os.lstat("/"))], "/", "", -1
    names, links = path.split("/")[::-1], 0
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        # ``at`` has no links.
        here = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        try:
            status = os.lstat(here)
        except (FileNotFoundError, NotADirectoryError):
            if link and len(names) >= behind:
                raise ClusterError(
                    f"{link} is a link to {os.readlink(link)}, which does not exist",
                    expected="a directory, or none yet",
                    remedy=f"Mount or make {here}, or remove the link: rm {link}",
                    reason="link",
                ) from None
            return steps
        steps.append(Step(here, status))
        if not stat.S_ISLNK(status.st_mode):
            at = here
            continue
        links += 1
        if links > LINKS:
            raise ClusterError(f"{path} leads through more than {LINKS} links", remedy=f"Remove the circular link: rm {here}", reason="link")
        # Any further names come from the link.
        behind = len(names) if behind < 0 else min(behind, len(names))
        link, target = here, os.readlink(here)
        at = "/" if target.startswith("/") else at
        names += target.split("/")[::-1]
    return steps


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def groups_of(owner: Owner) -> list[int]:
    """Return all groups of a user; without an account, only the given one."""
    try:
        return os.getgrouplist(pwd.getpwuid(owner.uid).pw_name, owner.gid)
    except KeyError:
        return [owner.gid]


def _group(status: os.stat_result) -> int:
    """Return the group to act as in a directory: the directory's own if its owner is a member, else the owner's. A directory gives no user a group."""
    try:
        account = pwd.getpwuid(status.st_uid)
    except KeyError:
        return status.st_gid
    return status.st_gid if status.st_gid in os.getgrouplist(account.pw_name, account.pw_gid) else account.pw_gid


def owner_of(path: str) -> Owner:
    """Return the owner of a directory, or of the nearest existing one above it: the user to act as there.

    Raises :class:`ClusterError` if another user could change the path that root, or the owner, would follow; OSError.
    """
    steps = _steps(os.path.join(os.getcwd(), path))
    where = [step for step in steps if stat.S_ISDIR(step.status.st_mode)][-1]
    owner = Owner(where.status.st_uid, _group(where.status))
    if os.geteuid() != 0:
        return owner  # Another user than root has only their own rights.
    if any(step.status.st_uid not in (0, owner.uid) for step in steps):
        raise _mixed(steps, where)
    for at, status in steps if owner.uid == 0 else ():
        # With the sticky bit no user can replace the entries of another.
        is_free = status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid)
        if stat.S_ISDIR(status.st_mode) and is_free and (at == where.path or not status.st_mode & stat.S_ISVTX):
            raise ClusterError(
                f"{at} belongs to root, and other users may write to it: root follows no path that they can change ({path})",
                remedy=f"Give it to its user (sudo chown USER: {at}), or let only root write to it: sudo chmod go-w {at}",
                reason="owner",
            )
    return owner


def _mixed(steps: t.Sequence[Step], where: Step) -> ClusterError:
    """Return the error for a directory whose path another user can change."""
    theirs = [step for step in steps if step.status.st_uid not in (0, where.status.st_uid)]
    links = [step for step in theirs if stat.S_ISLNK(step.status.st_mode)]
    above = [step for step in theirs if where.path.startswith(f"{step.path}/")]
    at, status = [*theirs, *links, *above][-1]
    at_owner, where_owner = _name(status.st_uid), _name(where.status.st_uid)
    if above:
        return ClusterError(
            f"{where.path} belongs to {where_owner}, and {at} above it to {at_owner}, who could replace it by a link",
            expected="one owner",
            remedy=f"sudo chown -R --reference={at} {where.path}",
            reason="owner",
        )
    return ClusterError(
        f"{at} belongs to {at_owner}, and leads to {where.path}, which belongs to {where_owner}: a link of another user is not followed",
        expected="links of root, or of their target's owner",
        remedy=f"Find out why it leads there. Remove it (rm {at}), or set {where.path} itself in the settings.",
        reason="owner",
    )


def one_owner(top: str, paths: t.Iterable[str]) -> Owner:
    """Return the owner of a directory and of the existing ``paths`` below it. Raises as :func:`owner_of` does, and for two owners."""
    owner = owner_of(top)
    for path in paths:
        other = owner_of(path)
        if other.uid != owner.uid and os.geteuid() == 0:
            raise ClusterError(
                f"{path} belongs to {_name(other.uid)}, and {top} to {_name(owner.uid)}",
                expected="one owner",
                remedy=f"sudo chown -R --reference={top} {path}",
                reason="owner",
            )
    return owner


@contextlib.contextmanager
def acting_as(owner: Owner) -> t.Iterator[None]:
    """Act as a user during the block. Only root can; for another user it does nothing."""
    if os.geteuid() != 0 or owner.uid == 0:
        yield
        return
    groups, gid = os.getgroups(), os.getegid()
    # Files stay readable for all users as in the source's cache: the engine's container reads them as another user.
    mask = os.umask(0o022)
    os.setgroups(groups_of(owner))
    os.setegid(owner.gid)
    os.seteuid(owner.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)
        os.umask(mask)


def require_readable(path: str, opened: int) -> None:
    """Raise :class:`ClusterError` if a link of a user in the path leads root to a file that this user may not read.

    ``opened`` is the descriptor that root opened there: the links must lead to that file, since they may have changed. Raises OSError if it is absent.
    """
    if os.geteuid() != 0:
        return
    file, steps = os.fstat(opened), _steps(os.path.join(os.getcwd(), path))
    if not os.path.samestat(steps[-1].status, file):
        raise _replaced(path)
    for at, status in steps:
        if not stat.S_ISLNK(status.st_mode) or status.st_uid in (0, file.st_uid):
            continue
        try:
            with acting_as(Owner(status.st_uid, _group(status))):
                seen = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError as error:
            raise ClusterError(
                f"{at} belongs to {_name(status.st_uid)}, and leads to {os.path.realpath(path)}, which that user may not read",
                remedy=f"Find out why it leads there, and remove it: rm {at}",
                reason="link",
            ) from error
        try:
            if not os.path.samestat(os.fstat(seen), file):
                raise _replaced(path)
        finally:
            os.close(seen)


def _replaced(path: str) -> ClusterError:
    return ClusterError(f"{path} was replaced meanwhile", remedy=f"Find out by whom: ls -ld {path}", reason="owner")


@contextlib.contextmanager
def held(path: str) -> t.Iterator[str]:
    """Open a directory as its owner, and yield a path that leads to it even after it was renamed. Raises as :func:`owner_of` does."""
    owner = owner_of(path)
    with acting_as(owner):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.geteuid() == 0 and os.fstat(handle).st_uid != owner.uid:
            raise _replaced(path)
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
