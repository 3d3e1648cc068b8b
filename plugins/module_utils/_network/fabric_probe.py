# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Move bytes between two nodes over each fabric link, for a bounded time. This module util is PRIVATE to the collection.

One node listens, the other measures and decides what is done. The listener binds only to its fabric addresses, to ports that the kernel
chooses, and serves only a peer that has the token: it sends a random challenge on every connection and expects its HMAC. It serves one
measuring node and then exits. Every wait on either side ends at a deadline.

The first half decides from what was read, the second moves bytes.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hmac
import os
import secrets
import signal
import socket
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._network.fabric_transfer import CHALLENGE, ENDED, LEAST_SECONDS, MOST_CONNECTIONS, MOST_SECONDS
from ansible_collections.gb10.cluster.plugins.module_utils._network.fabric_transfer import RESERVE, TRANSFER_SECONDS, Deadline, Transfer, connect
from ansible_collections.gb10.cluster.plugins.module_utils._network.fabric_transfer import each_seconds, exchange, figures_by_link, parse_ping, ping_argv
from ansible_collections.gb10.cluster.plugins.module_utils._network.fabric_transfer import rdma_clients, rdma_servers, receive_answer, receive_exactly
from ansible_collections.gb10.cluster.plugins.module_utils._network.fabric_transfer import receive_message
from ansible_collections.gb10.cluster.plugins.module_utils._network.fabric_transfer import send_message, token_proof, transfers
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool


# -- the listening node ----------------------------------------------------------------------------------------------


class Listener:
    """The listening node's part: checks the token, and does its half of each requested transfer."""

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
        sockets: dict[tuple[int, str], list[socket.socket]] = {(link, way): [] for link in links for way in ways}
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
                ports = stack.enter_context(rdma_servers(self._program, ends, self._deadline))
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
    """The measuring node's part, with one peer. Faults of the other node or the network do not raise: they are recorded in ``errors``."""

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
        """Discard the figures so far: they were measured by other means than the current ``method``."""
        for link in [*self.links, *([self.together] if self.together else [])]:
            link.update(out_gbits=None, in_gbits=None)

    def _transfer(self, control: socket.socket, transfer: Transfer, seconds: float) -> None:
        if seconds < LEAST_SECONDS:
            raise UnknownState("the time of the probe is over", reason="time over")
        control.settimeout(self._deadline.left())
        peers = {link: self._links[link]["address"] for link in transfer.links}
        order = {"do": self.method, "links": transfer.links, "ways": transfer.directions, "seconds": seconds, "streams": self._streams, "peers": peers}
        send_message(control, order)
        figures = self._rdma(control, transfer) if self.method == "rdma" else self._tcp(control, transfer, seconds)
        for way in transfer.directions:
            if len(transfer.links) == 1:
                self.links[transfer.links[0]][f"{way}_gbits"] = figures[way][transfer.links[0]]
            elif self.together is not None:
                self.together[f"{way}_gbits"] = round(sum(figures[way].values()), 2)

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
                    ports = stack.enter_context(rdma_servers(self._program, ends, self._deadline))
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
