# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One transfer over the links: its commands and measurements, and the messages between two nodes about it. This module util is PRIVATE to the collection."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import hmac
import json
import re
import socket
import struct
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult, run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds that one pair is loaded at most, whatever the options say.
MOST_SECONDS = 10.0
#: Seconds of one transfer at most; an RDMA transfer always takes this long, since its tool counts whole seconds.
TRANSFER_SECONDS = 1.0
#: Seconds that a transfer takes in addition to its bytes: RDMA starts two programs that set up a connection, TCP opens connections.
OVERHEAD = {"rdma": 0.35, "tcp": 0.1}
#: Seconds kept for the pings and the handshake, and those below which no transfer is started.
RESERVE, LEAST_SECONDS = 1.2, 0.2
#: Bytes of a challenge and of its answer, of one write or read, and of one message at most.
CHALLENGE, CHUNK, LINE_LIMIT = 32, 1 << 20, 1 << 16
#: Headers of an echo request without options: IPv4 has 20 bytes, ICMP 8.
PING_HEADERS = 28
#: Connections at once: streams times links, and one for control.
MOST_CONNECTIONS = 128
#: Why the other node may have ended the connection.
ENDED = "the other node ended the connection: the token was wrong, it has a peer already, or its time is over"
_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_ROW = re.compile(rf"^\s*\d{{1,12}}\s+\d{{1,12}}\s+(?P<peak>{_NUMBER})\s+(?P<average>{_NUMBER})(?:\s+{_NUMBER})*\s*$", re.ASCII)
_RECEIVED = re.compile(r"(\d{1,9}) packets transmitted, (\d{1,9}) (?:packets )?received", re.ASCII)
_ROUND_TRIP = re.compile(r"(?:rtt|round-trip) min/avg/max(?:/mdev)? = (\d{1,9}(?:\.\d{1,6})?)/", re.ASCII)
_TOO_LONG = re.compile(r"message too long, mtu[=:]? ?(\d{1,6})|Frag needed and DF set \(mtu = (\d{1,6})\)", re.ASCII | re.IGNORECASE)


class Transfer(t.NamedTuple):
    """One transfer: over which links (by number), and in which directions, ``out`` of the measuring node, ``in`` to it."""

    links: tuple[int, ...]
    directions: tuple[str, ...]


def transfers(links: int, method: str, seconds: float) -> list[Transfer]:
    """Return the transfers: each link alone, then all at once where there are several, in both directions.

    The two directions are measured one after the other. Where ``seconds`` are too few for that, they run at once: the links are full duplex.
    """
    groups = [(number,) for number in range(links)] + ([tuple(range(links))] if links > 1 else [])
    one_way = [Transfer(group, (way,)) for group in groups for way in ("out", "in")]
    if each_seconds(len(one_way), method, seconds) >= (TRANSFER_SECONDS if method == "rdma" else TRANSFER_SECONDS / 2):
        return one_way
    return [Transfer(group, ("out", "in")) for group in groups]


def each_seconds(count: int, method: str, seconds: float) -> float:
    """Return how many seconds one of ``count`` transfers may take so that all end within ``seconds``."""
    return min(TRANSFER_SECONDS, (seconds - RESERVE) / max(count, 1) - OVERHEAD[method])


def gbits(count: int, seconds: float) -> float:
    """Return bytes in seconds as Gbit/s, to two decimals. Raises :class:`UnknownState` when nothing arrived."""
    if count <= 0 or seconds <= 0:
        raise UnknownState(f"{count} bytes arrived in {seconds:.3f} s")
    return round(count * 8 / seconds / 1e9, 2)


def parse_ib_write_bw(text: str) -> float:
    """Return the average Gbit/s that ``ib_write_bw --report_gbits`` prints. Raises :class:`UnknownState` for anything else.

    The header names the unit, and one row of figures follows it: bytes, iterations, peak (0.00 when it runs by time), average, messages.
    """
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if "BW average[" in line]
    rows = [match for line in lines[heads[0] + 1:] if (match := _ROW.match(line))] if heads else []
    if len(heads) != 1 or "BW average[Gb/sec]" not in lines[heads[0]] or len(rows) != 1:
        raise UnknownState("ib_write_bw does not print one bandwidth in Gbit/s", reason="output not understood", raw=text[:4000])
    return float(rows[0]["average"])


def ib_result(result: ToolResult) -> float:
    """Return the Gbit/s of a run of ``ib_write_bw``. Raises :class:`UnknownState` with its last line of output when it failed."""
    if result.rc != 0:
        last = (result.raw.splitlines() or ["nothing"])[-1].strip()
        raise UnknownState(f"ib_write_bw ended with {result.rc}: {last[:200]}", reason="tool failed", raw=result.raw[:4000])
    return parse_ib_write_bw(result.stdout)


def parse_ping(result: ToolResult) -> dict[str, t.Any]:
    """Return ``{passes, path_mtu, rtt_ms}`` of a do-not-fragment ping.

    ``path_mtu`` is the MTU that something on the way names, else None; ``rtt_ms`` the shortest round trip in milliseconds, None without one.

    Raises :class:`UnknownState` when the tool does not print how many packets came back.
    """
    counted = _RECEIVED.search(result.stdout)
    narrow = _TOO_LONG.search(result.raw)
    if not counted and not narrow:
        raise UnknownState(f"ping does not print what came back: {result.raw[:200]}", reason="output not understood", raw=result.raw[:4000])
    named = next((int(group) for group in narrow.groups() if group), None) if narrow else None
    shortest = _ROUND_TRIP.search(result.stdout)
    return {"passes": bool(counted and int(counted[2])), "path_mtu": named, "rtt_ms": float(shortest[1]) if shortest else None}


def ping_argv(ping: str, source: str, target: str, mtu: int) -> list[str]:
    """Return the command of a ping that fills ``mtu`` and must not be fragmented on the way."""
    return [ping, "-n", "-q", "-M", "do", "-s", str(mtu - PING_HEADERS), "-c", "3", "-i", "0.2", "-W", "1", "-I", source, target]


def ib_argv(program: str, end: t.Mapping[str, t.Any], port: int, server: str = "") -> list[str]:
    """Return the command of one end of an RDMA transfer: of the server, or of the client of the ``server`` at an address.

    Four queue pairs fill a link. ``-F`` keeps it from failing because of CPU frequency scaling.
    """
    argv = [program, "-d", end["device"], "-x", str(end["gid"]), "-p", str(port), "-q", "4", "-F", "--report_gbits", "-D", str(int(TRANSFER_SECONDS))]
    return [*argv, "--bind_source_ip", end["address"], *([server] if server else [])]


def listens(table: str, port: int) -> bool:
    """Return whether a ``/proc/net/tcp`` text has a listener on a port."""
    return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in table.splitlines()[1:] if len(line.split()) > 3)


class Deadline:
    """The time at which everything must have ended."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self, what: str = "the probe") -> float:
        """Return the remaining seconds. Raises :class:`UnknownState` when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise UnknownState(f"the time of {what} is over", reason="time over")
        return left


def token_proof(token: str, challenge: bytes) -> bytes:
    """Return the answer to a challenge that proves knowledge of the token."""
    return hmac.new(token.encode(), challenge, hashlib.sha256).digest()


def receive_exactly(sock: socket.socket, count: int) -> bytes:
    """Return ``count`` bytes. Raises ConnectionError when the other side ends earlier, OSError like any socket."""
    received = b""
    while len(received) < count:
        more = sock.recv(count - len(received))
        if not more:
            raise ConnectionError(ENDED)
        received += more
    return received


def send_message(sock: socket.socket, message: t.Mapping[str, t.Any]) -> None:
    """Send one message: its length, then JSON."""
    text = json.dumps(message).encode()
    sock.sendall(struct.pack("!I", len(text)) + text)


def receive_message(sock: socket.socket) -> dict[str, t.Any]:
    """Return the next message. Raises :class:`UnknownState` for anything else, ConnectionError or OSError like any socket."""
    (length,) = struct.unpack("!I", receive_exactly(sock, 4))
    text = receive_exactly(sock, length) if length <= LINE_LIMIT else b""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise UnknownState("the other node sent something that is not a message", reason="message not understood", raw=f"{length} bytes: {text[:200]!r}")
    return message


def receive_answer(sock: socket.socket) -> dict[str, t.Any]:
    """Return the next message of the listening node. Raises :class:`UnknownState` also when it reports an error."""
    message = receive_message(sock)
    if "error" in message:
        raise UnknownState(f"the listening node reports: {message['error']}", reason="peer failed")
    return message


def connect(source: str, target: tuple[str, int], token: str, what: t.Mapping[str, t.Any], deadline: Deadline) -> socket.socket:
    """Return a connection to the listening node, from an address of this one, that has passed the token check."""
    with contextlib.ExitStack() as unless_greeted:
        sock = unless_greeted.enter_context(socket.create_connection(target, timeout=deadline.left(), source_address=(source, 0)))
        sock.settimeout(deadline.left())
        sock.sendall(token_proof(token, receive_exactly(sock, CHALLENGE)))
        send_message(sock, what)
        unless_greeted.pop_all()
    return sock


def send_zeros(sock: socket.socket, seconds: float, deadline: Deadline) -> None:
    """Send zeros for some seconds, then close the sending direction."""
    buffer, end = memoryview(bytes(CHUNK)), time.monotonic() + seconds
    while time.monotonic() < end:
        sock.settimeout(deadline.left())
        sock.sendall(buffer)
    sock.shutdown(socket.SHUT_WR)


def receive_all(sock: socket.socket, deadline: Deadline) -> tuple[int, float, float]:
    """Receive until the other side closes; return the bytes, and when the first and the last came."""
    buffer, count, first, last = bytearray(CHUNK), 0, 0.0, 0.0
    while True:
        sock.settimeout(deadline.left())
        more = sock.recv_into(buffer)
        if not more:
            return count, first, last
        last = time.monotonic()
        first = first or last
        count += more


def gbits_by_link(streams: t.Mapping[int, list[tuple[int, float, float]]]) -> dict[int, float]:
    """Return the Gbit/s of every link from what its streams received: all bytes, from the first to the last."""
    by_link = {}
    for link, seen in streams.items():
        active = [stream for stream in seen if stream[0]]
        duration = max(stream[2] for stream in active) - min(stream[1] for stream in active) if active else 0
        by_link[link] = gbits(sum(stream[0] for stream in active), duration)
    return by_link


def exchange(sockets: t.Mapping[tuple[int, str], list[socket.socket]], sends: str, seconds: float, deadline: Deadline) -> dict[int, float]:
    """Send on the connections of the direction ``sends``, receive on the others, all at once; return the Gbit/s received, by link."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=MOST_CONNECTIONS) as pool:
        senders = [pool.submit(send_zeros, sock, seconds, deadline) for (_link, way), socks in sockets.items() if way == sends for sock in socks]
        receivers = [(link, pool.submit(receive_all, sock, deadline)) for (link, way), socks in sockets.items() if way != sends for sock in socks]
        streams: dict[int, list[tuple[int, float, float]]] = {}
        for link, future in receivers:
            streams.setdefault(link, []).append(future.result())
        for future in senders:
            future.result()
    return gbits_by_link(streams)


def free_port(address: str) -> int:
    """Return a port that is free on an address at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.bind((address, 0))
        return sock.getsockname()[1]


@contextlib.contextmanager
def rdma_servers(program: str, ends: t.Mapping[int, t.Mapping[str, t.Any]], deadline: Deadline) -> t.Iterator[dict[int, int]]:
    """Run servers of ``ib_write_bw`` on this node, one a link, and yield their ports once all listen. Waits for their end, at the latest their timeout.

    Raises :class:`UnknownState` when one ended too early, or never listens.
    """
    ports = {link: free_port(end["address"]) for link, end in ends.items()}
    limit = min(deadline.left(), TRANSFER_SECONDS + 2.0)
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(ends))) as pool:
        runs = [pool.submit(run_tool, ib_argv(program, end, ports[link]), limit) for link, end in ends.items()]
        _await_servers(runs, ports.values(), limit / 2)
        yield ports


def _await_servers(runs: t.Collection[concurrent.futures.Future[ToolResult]], ports: t.Collection[int], seconds: float) -> None:
    for _waited in clock(seconds, 0.02):
        for run in (run for run in runs if run.done()):
            ib_result(run.result())
        with open("/proc/net/tcp", encoding="ascii", errors="replace") as stream:
            table = stream.read()
        if all(listens(table, port) for port in ports):
            return
    raise UnknownState("ib_write_bw does not listen", reason="tool hangs")


def rdma_clients(
    program: str, ends: t.Mapping[int, t.Mapping[str, t.Any]], ports: t.Mapping[int, float], peers: t.Mapping[int, str], deadline: Deadline
) -> dict[int, float]:
    """Send to the servers of the other node, over all links at once; return the Gbit/s by link."""
    limit = min(deadline.left(), TRANSFER_SECONDS + 1.5)
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(ends))) as pool:
        runs = {link: pool.submit(run_tool, ib_argv(program, end, int(ports[link]), peers[link]), limit) for link, end in ends.items()}
        return {link: ib_result(run.result()) for link, run in runs.items()}


def figures_by_link(message: t.Mapping[str, t.Any], key: str, links: t.Iterable[int]) -> dict[int, float]:
    """Return the figure of every link in a message's ``key``; JSON turned the numbers of the links into text.

    Raises :class:`UnknownState` when a link is missing or its figure is not a number.
    """
    figures = message.get(key)
    by_link = {link: figures.get(str(link)) for link in links} if isinstance(figures, dict) else {None: None}
    if any(isinstance(figure, bool) or not isinstance(figure, (int, float)) or not 0 <= figure < 1e6 for figure in by_link.values()):
        raise UnknownState(f"the other node sent no {key}", reason="message not understood", raw=str(message)[:200])
    return by_link
