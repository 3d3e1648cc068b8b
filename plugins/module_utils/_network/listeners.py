# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The listeners on a node's TCP ports, read from ``/proc``. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import struct
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._redact import shown_argv

TCP_ESTABLISHED = 0x01
TCP_SYN_RECEIVED = 0x03
TCP_LISTEN = 0x0A

#: A container's full id in a control group's path: plain below ``docker/``, wrapped as ``docker-ID.scope`` by systemd.
_CONTAINER_ID = re.compile(r"(?:^|[/-])([0-9a-f]{64})(?=\.scope|/|$)")

_SOCKET = re.compile(r"socket:\[(\d{1,18})\]")


class Connection(t.NamedTuple):
    """One TCP socket in any state as the kernel lists it; ``state`` is the kernel's number, one that listens has a peer of zeros.

    ``sent_again`` is the number of retransmissions since the peer's last answer.
    """

    address: str
    port: int
    peer_address: str
    peer_port: int
    state: int
    sent_again: int
    inode: int


def parse_connections(text: str) -> list[Connection]:
    """Return all sockets of a ``/proc/net/tcp`` or ``/proc/net/tcp6`` text.

    Raises :class:`UnknownState` for a line of another shape.
    """
    sockets = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        try:
            (host, port), (peer, peer_port) = (field.split(":") for field in fields[1:3])
            state, sent_again = int(fields[3], 16), int(fields[6], 16)
            sockets.append(Connection(_address(host), int(port, 16), _address(peer), int(peer_port, 16), state, sent_again, int(fields[9])))
        except (IndexError, ValueError, struct.error):
            raise UnknownState(f"the kernel lists a TCP socket in a shape that cannot be read: {line[:200]!r}", raw=line[:2000]) from None
    return sockets


def connections(root: str = "/proc") -> list[Connection]:
    """Return all TCP sockets of the node. Raises OSError, and :class:`UnknownState` for a list that cannot be read."""
    sockets = []
    for name in ("tcp", "tcp6"):
        path = os.path.join(root, "net", name)
        # Without IPv6 there is no second list.
        if name == "tcp" or os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as stream:
                sockets += parse_connections(stream.read())
    return sockets


def _readable_connections(root: str) -> list[Connection]:
    return [entry for name in ("tcp", "tcp6") for entry in parse_connections(_text(os.path.join(root, "net", name)))]


def unanswered(address: str, root: str = "/proc") -> dict[str, int]:
    """Return the peers that owe an answer to an open connection from this node's ``address``, each with the retransmissions since its last answer.

    A peer whose programs are busy still answers, since its kernel does that.
    """
    open_here = (entry for entry in _readable_connections(root) if entry.state == TCP_ESTABLISHED and entry.address == address)
    # Of several connections to one peer the largest count, which comes last, is kept.
    return dict(sorted(((entry.peer_address, entry.sent_again) for entry in open_here if entry.sent_again), key=lambda row: row[1]))


def _address(digits: str) -> str:
    """Return the address written as 32-bit words of the machine's byte order (little-endian on all supported nodes)."""
    words = struct.pack(f"<{len(digits) // 8}I", *(int(digits[at:at + 8], 16) for at in range(0, len(digits), 8)))
    address = ipaddress.ip_address(words)
    return str(getattr(address, "ipv4_mapped", None) or address)


def container_id(cgroup: str) -> str:
    """Return the id of the innermost container named in a ``/proc/PID/cgroup`` text, empty when there is none."""
    ids = _CONTAINER_ID.findall(cgroup)
    return ids[-1] if ids else ""


def _text(path: str) -> str:
    """Return a file of ``/proc`` as text, empty when its process is gone or it may not be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def socket_inodes(links: t.Iterable[str]) -> set[int]:
    """Return the inodes of the sockets among a process's open files."""
    return {int(match[1]) for match in map(_SOCKET.fullmatch, links) if match}


def open_files(pid: int, root: str) -> list[str]:
    """Return the open files of a process, as the links in ``/proc/PID/fd`` name them.

    Raises PermissionError when they may not be read, FileNotFoundError or ProcessLookupError when the process is gone.
    """
    path = f"{root}/{pid}/fd"
    links = []
    for name in os.listdir(path):
        try:
            links.append(os.readlink(f"{path}/{name}"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # closed meanwhile
    return links


def _inodes(root: str, pid: int) -> set[int]:
    """Return the inodes of a process's sockets; none when it is gone or may not be read."""
    with contextlib.suppress(OSError):
        return socket_inodes(open_files(pid, root))
    return set()


def holders(inodes: t.Collection[int], root: str = "/proc") -> dict[int, set[int]]:
    """Return the processes that have these sockets open, by the socket; one whose processes have gone, or may not be seen, is left out."""
    by_inode: dict[int, set[int]] = {}
    for pid in sorted(map(int, filter(str.isdigit, os.listdir(root)))) if inodes else []:
        for inode in _inodes(root, pid).intersection(inodes):
            by_inode.setdefault(inode, set()).add(pid)
    return by_inode


def parse_cmdline(raw: bytes) -> tuple[str, ...]:
    """Return the arguments of a ``/proc/PID/cmdline`` content; a title that overwrote them is one argument."""
    return tuple(raw.decode("utf-8", "replace").rstrip("\0 ").split("\0")) if raw.strip(b"\0 ") else ()


def command_line(pid: int, root: str = "/proc") -> str:
    """Return a process's command line (or the title it gave itself) without secrets, empty when it is gone."""
    return " ".join(shown_argv(parse_cmdline(_text(os.path.join(root, str(pid), "cmdline")).encode()))).strip()


def started_at(pid: int, root: str = "/proc") -> str:
    """Return when a process started, in UTC as ``2026-11-21T01:52:59Z``, empty when it is gone."""
    boot = re.search(r"^btime (\d+)$", _text(os.path.join(root, "stat")), re.MULTILINE)
    # The program's name is in parentheses and may contain any character: count fields after the last one.
    fields = _text(os.path.join(root, str(pid), "stat")).rpartition(")")[2].split()
    if not boot or len(fields) < 20:
        return ""
    return utc_text(int(boot[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK"))


def listeners(ports: t.Collection[int], root: str = "/proc") -> list[dict[str, t.Any]]:
    """Return the listeners on ``ports``, one entry a socket: ``{port, address, pid, process, cmdline, since, container}``.

    ``container`` is the full id of the container the process runs in, empty for a process of the host. ``pid`` is None and
    the other fields are empty when the process cannot be seen, which takes root for processes of other users.
    """
    listening = (entry for entry in _readable_connections(root) if entry.state == TCP_LISTEN and entry.port in ports)
    sockets = sorted(listening, key=lambda entry: (entry.port, entry.address))
    owners = holders({entry.inode for entry in sockets}, root)
    return [_listener(entry, min(owners.get(entry.inode, ()), default=None), root) for entry in sockets]


def _listener(entry: Connection, pid: int | None, root: str) -> dict[str, t.Any]:
    socket_of = {"port": entry.port, "address": entry.address}
    if pid is None:
        return {**socket_of, "pid": None, "process": "", "cmdline": "", "since": "", "container": ""}
    command = command_line(pid, root)
    return {
        **socket_of,
        "pid": pid,
        # The kernel's own short name of a process is that of its main thread, which programs rename.
        "process": os.path.basename(command.split(" ", maxsplit=1)[0]) or _text(os.path.join(root, str(pid), "comm")).strip(),
        "cmdline": command,
        "since": started_at(pid, root),
        "container": container_id(_text(os.path.join(root, str(pid), "cgroup"))),
    }


def answers(address: str, port: int, timeout: float) -> str:
    """Connect to a TCP port within ``timeout`` seconds; return an empty string when it answers, else why it does not."""
    try:
        socket.create_connection((address, port), timeout).close()
    except TimeoutError:
        return f"no answer within {timeout:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return ""
