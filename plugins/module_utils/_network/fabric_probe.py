# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Move bytes between two nodes over each fabric link, for a bounded time. This module util is PRIVATE to the collection.

One node listens, the other measures and decides what is done. The listener binds only to its fabric addresses, to ports that the kernel
chooses, and serves only a peer that knows the token: it sends a random challenge on every connection and expects its HMAC. It serves one
measuring node and ends by itself. Every wait on either side ends at a deadline.

The first half decides from what was read, the second moves bytes.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import signal
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


# -- deciding --------------------------------------------------------------------------------------------------------


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
    rows = [found for line in lines[heads[0] + 1:] if (found := _ROW.match(line))] if heads else []
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


# -- messages --------------------------------------------------------------------------------------------------------


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
    found = b""
    while len(found) < count:
        more = sock.recv(count - len(found))
        if not more:
            raise ConnectionError(ENDED)
        found += more
    return found


def send_message(sock: socket.socket, message: t.Mapping[str, t.Any]) -> None:
    """Send one message: its length, then JSON."""
    text = json.dumps(message).encode()
    sock.sendall(struct.pack("!I", len(text)) + text)


def receive_message(sock: socket.socket) -> dict[str, t.Any]:
    """Return the next message. Raises :class:`UnknownState` for anything else, ConnectionError or OSError like any socket."""
    (length,) = struct.unpack("!I", receive_exactly(sock, 4))
    if length > LINE_LIMIT:
        raise UnknownState("the other node sent something that is not a message", reason="message not understood", raw=str(length))
    text = receive_exactly(sock, length)
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnknownState("the other node sent something that is not a message", reason="message not understood", raw=repr(text[:200])) from error
    if not isinstance(message, dict):
        raise UnknownState("the other node sent something that is not a message", reason="message not understood", raw=repr(text[:200]))
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


# -- moving bytes ----------------------------------------------------------------------------------------------------


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
    found = {}
    for link, seen in streams.items():
        active = [stream for stream in seen if stream[0]]
        duration = max(stream[2] for stream in active) - min(stream[1] for stream in active) if active else 0
        found[link] = gbits(sum(stream[0] for stream in active), duration)
    return found


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


class RdmaServers:
    """Servers of ``ib_write_bw`` on this node, one a link. A ``with`` block waits for their end, at the latest their timeout."""

    def __init__(self, program: str, ends: t.Mapping[int, t.Mapping[str, t.Any]], deadline: Deadline) -> None:
        self.ports = {link: free_port(end["address"]) for link, end in ends.items()}
        self._pool = concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(ends)))
        limit = min(deadline.left(), TRANSFER_SECONDS + 2.0)
        self._runs = {link: self._pool.submit(run_tool, ib_argv(program, end, self.ports[link]), limit) for link, end in ends.items()}
        self._limit = limit

    def __enter__(self) -> RdmaServers:
        return self

    def __exit__(self, *_error: t.Any) -> None:
        self._pool.shutdown(wait=True)

    def wait(self) -> None:
        """Wait until all listen. Raises :class:`UnknownState` when one ended before that, or never listens."""
        for _waited in clock(self._limit / 2, 0.02):
            for run in self._runs.values():
                if run.done():
                    ib_result(run.result())
            with open("/proc/net/tcp", encoding="ascii", errors="replace") as stream:
                table = stream.read()
            if all(listens(table, port) for port in self.ports.values()):
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
    found = {link: figures.get(str(link)) for link in links} if isinstance(figures, dict) else {None: None}
    if any(isinstance(figure, bool) or not isinstance(figure, (int, float)) or not 0 <= figure < 1e6 for figure in found.values()):
        raise UnknownState(f"the other node sent no {key}", reason="message not understood", raw=str(message)[:200])
    return found


# -- the listening node ----------------------------------------------------------------------------------------------


class Listener:
    """What the listening node does: checks the token, and does its half of each transfer that it is asked for."""

    def __init__(self, links: t.Sequence[dict[str, t.Any]], token: str, program: str, wait: float, seconds: float) -> None:
        self._links, self._token, self._program, self._seconds = links, token, program, seconds
        self._deadline = Deadline(wait)
        self._sockets: list[socket.socket] = []
        try:
            for link in links:
                sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                self._sockets.append(sock)
                sock.bind((link["address"], 0))
                sock.listen(MOST_CONNECTIONS)
        except OSError as error:
            self.close()
            remedy = "Correct the address, or give the interface its address."
            raise UnknownState(f"cannot listen on {link['address']}: {error.strerror}", remedy=remedy, reason="address") from error

    @property
    def ports(self) -> list[int]:
        return [sock.getsockname()[1] for sock in self._sockets]

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()

    def _accept(self, number: int) -> tuple[socket.socket, dict[str, t.Any]] | None:
        """Return the next connection on a link, and its purpose, once it proved the token; None for a foreign one, which is closed."""
        listening = self._sockets[number]
        listening.settimeout(self._deadline.left("the listening node"))
        sock, _peer = listening.accept()
        try:
            # A foreign peer that sends nothing costs no more than a second.
            sock.settimeout(min(1.0, self._deadline.left()))
            challenge = secrets.token_bytes(CHALLENGE)
            sock.sendall(challenge)
            if not hmac.compare_digest(receive_exactly(sock, CHALLENGE), token_proof(self._token, challenge)):
                sock.close()
                return None
            what = receive_message(sock)
            sock.settimeout(self._deadline.left())
            return sock, what
        except (OSError, UnknownState):
            sock.close()
            return None

    def serve(self) -> None:
        """Wait for the measuring node on the first link, and do what it asks until it ends or the time is over; then close all."""
        try:
            accepted = None
            while accepted is None:
                accepted = self._accept(0)
            control, _what = accepted
            # From here on the network is loaded.
            self._deadline = Deadline(self._seconds)
            with control:
                control.settimeout(self._deadline.left())
                send_message(control, {"hello": True})
                self._serve_orders(control)
        finally:
            self.close()

    def _serve_orders(self, control: socket.socket) -> None:
        while True:
            control.settimeout(self._deadline.left())
            order = receive_message(control)
            if order.get("do") == "end":
                return
            try:
                self._transfer(control, order)
            except UnknownState as error:
                send_message(control, {"error": str(error)})

    def _transfer(self, control: socket.socket, order: dict[str, t.Any]) -> None:
        try:
            links, ways, seconds = [int(link) for link in order["links"]], tuple(order["ways"]), float(order["seconds"])
            streams = min(int(order["streams"]), MOST_CONNECTIONS // (2 * len(links)))
            peers = {link: str(order["peers"][str(link)]) for link in links}
            ends = {link: self._links[link] for link in links}
            method = order["do"]
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, ZeroDivisionError) as error:
            raise UnknownState(f"the measuring node asks for something unknown: {order}", reason="message not understood") from error
        if method == "rdma":
            self._rdma(control, ways, ends, peers)
        else:
            self._tcp(control, links, ways, min(seconds, TRANSFER_SECONDS), streams)

    def _tcp(self, control: socket.socket, links: t.Sequence[int], ways: t.Sequence[str], seconds: float, streams: int) -> None:
        wanted = {(link, way): streams for link in links for way in ways}
        sockets: dict[tuple[int, str], list[socket.socket]] = {key: [] for key in wanted}
        with contextlib.ExitStack() as stack:
            for link in links:
                while any(len(sockets[link, way]) < streams for way in ways):
                    accepted = self._accept(link)
                    if accepted:
                        sock, what = accepted
                        stack.enter_context(sock)
                        if (link, what.get("way")) not in sockets:
                            raise UnknownState("an unexpected connection came", reason="message not understood")
                        sockets[link, what["way"]].append(sock)
            send_message(control, {"ready": True})
            send_message(control, {"gbits": exchange(sockets, "in", seconds, self._deadline)})

    def _rdma(self, control: socket.socket, ways: t.Sequence[str], ends: dict[int, dict[str, t.Any]], peers: dict[int, str]) -> None:
        with contextlib.ExitStack() as stack:
            ports = {}
            if "out" in ways:
                servers = stack.enter_context(RdmaServers(self._program, ends, self._deadline))
                servers.wait()
                ports = servers.ports
            send_message(control, {"ready": True, "ports": ports})
            order = receive_message(control)
            sends = "in" in ways and order.get("ports")
            theirs = figures_by_link(order, "ports", ends) if sends else {}
            send_message(control, {"gbits": rdma_clients(self._program, ends, theirs, peers, self._deadline) if sends else {}})


def detach(listener: Listener, seconds: int) -> None:
    """Serve in a detached process, which ends after ``seconds`` whatever happens."""
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        listener.close()
        return
    # The measuring node, which then misses this one, reports what goes wrong from here on: the output of this process goes nowhere.
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        # This also ends a process that hangs in Python.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        listener.serve()
    finally:
        # Skip the exit handlers: nothing of the parent's may be flushed or removed twice.
        os._exit(0)


# -- the measuring node ----------------------------------------------------------------------------------------------


class Prober:
    """What the measuring node does with one peer. What the other node or the network does wrong does not raise: it is recorded in ``errors``."""

    def __init__(self, links: t.Sequence[dict[str, t.Any]], token: str, *, method: str, streams: int, seconds: float, program: str, ping: str) -> None:
        self._links, self._token, self._streams, self._program, self._ping = links, token, streams, program, ping
        self.method, self.why = method, ""
        self._seconds = min(seconds, MOST_SECONDS)
        self._deadline = Deadline(self._seconds)
        self.errors: list[str] = []
        self.links = [
            {
                "link": link["link"],
                "address": link["address"],
                "peer_address": link["peer_address"],
                "mtu": link["mtu"],
                "out_gbits": None,
                "in_gbits": None,
                "ping": {"passes": None, "path_mtu": None, "rtt_ms": None},
            }
            for link in links
        ]
        self.together: dict[str, float | None] | None = {"out_gbits": None, "in_gbits": None} if len(links) > 1 else None

    def run(self) -> None:
        """Ping over all links at once, then transfer."""
        with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(self._links))) as pool:
            for future in [pool.submit(self._ping_link, number) for number in range(len(self._links))]:
                future.result()
        first = self._links[0]
        try:
            with connect(first["address"], (first["peer_address"], first["peer_port"]), self._token, {"kind": "control"}, self._deadline) as control:
                receive_answer(control)
                self._transfers(control)
                send_message(control, {"do": "end"})
        except (ConnectionResetError, BrokenPipeError):
            self.errors.append(f"{first['peer_address']}: {ENDED}")
        except (OSError, UnknownState) as error:
            self.errors.append(f"{first['peer_address']}: {error}")

    def _ping_link(self, number: int) -> None:
        link, seen = self._links[number], self.links[number]
        if link["mtu"] is None:
            self.errors.append(f"{link['link']}: its MTU is not known")
            return
        try:
            argv = ping_argv(self._ping, link["address"], link["peer_address"], link["mtu"])
            seen["ping"] = parse_ping(run_tool(argv, min(3.0, self._deadline.left())))
        except UnknownState as error:
            self.errors.append(f"{link['link']}: {error}")

    def _transfers(self, control: socket.socket) -> None:
        todo = transfers(len(self._links), self.method, self._seconds)
        while todo:
            try:
                self._transfer(control, todo[0], each_seconds(len(todo), self.method, self._deadline.left() + RESERVE / 2))
            except UnknownState as error:
                if self.method == "rdma" and error.reason != "time over":
                    # Measure the rest by other means, and report why.
                    self.method, self.why = "tcp", str(error)
                    self._discard_figures()
                    todo = transfers(len(self._links), "tcp", self._deadline.left())
                    continue
                raise
            todo.pop(0)

    def _discard_figures(self) -> None:
        """Discard the figures so far: they were measured by other means than ``method`` now says."""
        for link in [*self.links, *([self.together] if self.together else [])]:
            link.update(out_gbits=None, in_gbits=None)

    def _transfer(self, control: socket.socket, transfer: Transfer, seconds: float) -> None:
        if seconds < LEAST_SECONDS:
            raise UnknownState("the time of the probe is over", reason="time over")
        control.settimeout(self._deadline.left())
        peers = {link: self._links[link]["address"] for link in transfer.links}
        order = {"do": self.method, "links": transfer.links, "ways": transfer.directions, "seconds": seconds, "streams": self._streams, "peers": peers}
        send_message(control, order)
        found = self._rdma(control, transfer) if self.method == "rdma" else self._tcp(control, transfer, seconds)
        for way in transfer.directions:
            if len(transfer.links) == 1:
                self.links[transfer.links[0]][f"{way}_gbits"] = found[way][transfer.links[0]]
            elif self.together is not None:
                self.together[f"{way}_gbits"] = round(sum(found[way].values()), 2)

    def _tcp(self, control: socket.socket, transfer: Transfer, seconds: float) -> dict[str, dict[int, float]]:
        streams = min(self._streams, MOST_CONNECTIONS // (2 * len(transfer.links)))
        with contextlib.ExitStack() as stack:
            sockets: dict[tuple[int, str], list[socket.socket]] = {}
            for number in transfer.links:
                link = self._links[number]
                for way in transfer.directions:
                    sockets[number, way] = [
                        stack.enter_context(connect(link["address"], (link["peer_address"], link["peer_port"]), self._token, {"way": way}, self._deadline))
                        for _stream in range(streams)
                    ]
            receive_answer(control)
            mine = exchange(sockets, "out", seconds, self._deadline)
            theirs = figures_by_link(receive_answer(control), "gbits", transfer.links if "out" in transfer.directions else ())
        return {"in": mine, "out": theirs}

    def _rdma(self, control: socket.socket, transfer: Transfer) -> dict[str, dict[int, float]]:
        ends = {link: self._links[link] for link in transfer.links}
        peers = {link: self._links[link]["peer_address"] for link in transfer.links}
        theirs = figures_by_link(receive_answer(control), "ports", transfer.links if "out" in transfer.directions else ())
        mine, ports, failed = {}, {}, None
        with contextlib.ExitStack() as stack:
            # Whatever fails here, finish the exchange: the other node waits for the ports and sends its figures.
            try:
                if "in" in transfer.directions:
                    servers = stack.enter_context(RdmaServers(self._program, ends, self._deadline))
                    servers.wait()
                    ports = servers.ports
            except UnknownState as error:
                failed = error
            send_message(control, {"ports": ports})
            try:
                if "out" in transfer.directions:
                    mine = rdma_clients(self._program, ends, theirs, peers, self._deadline)
            except UnknownState as error:
                failed = failed or error
            answer = receive_answer(control)
        if failed:
            raise failed
        return {"out": mine, "in": figures_by_link(answer, "gbits", transfer.links if "in" in transfer.directions else ())}
