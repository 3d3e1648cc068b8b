# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Probing a pair: what tools print, what fits into ten seconds, and two ends on loopback addresses."""

from __future__ import annotations

import contextlib
import hypothesis
import hypothesis.strategies as st
import pathlib
import socket
import stat
import struct
import threading
import time

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._network import fabric_probe, fabric_transfer
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures"
TOKEN = "a token that is never guessed"

CLIENT = (FIXTURES / "ib_write_bw/composed_client.txt").read_text()
ROUTER = (FIXTURES / "ping/composed_router.txt").read_text()

#: A fake of ib_write_bw: a server that waits for one client on the given address, a client that prints the file ``says``.
IB_WRITE_BW = """#!/usr/bin/env python3
import pathlib, socket, sys
argv = sys.argv[1:]
def of(name): return argv[argv.index(name) + 1]
folder = pathlib.Path(__file__).parent
with open(folder / "calls", "a") as stream: stream.write(" ".join(argv) + "\\n")
if (folder / "broken").exists():
    sys.exit("Couldn't allocate MR\\n")
source, port = of("--bind_source_ip"), int(of("-p"))
if argv[-1] == source:
    with socket.create_server((source, port)) as server:
        connection, _peer = server.accept()
        connection.recv(1)
else:
    with socket.create_connection((argv[-1], port), source_address=(source, 0), timeout=5) as sock:
        sock.sendall(b"x")
    print((folder / "says").read_text())
"""

PING = """#!/bin/sh
echo "$@" >> {folder}/pings
cat {answer}
exit 0
"""


# -- what tools print ------------------------------------------------------------------------------------------------


def test_the_average_of_ib_write_bw():
    assert fabric_transfer.parse_ib_write_bw(CLIENT) == 92.57
    assert fabric_transfer.parse_ib_write_bw((FIXTURES / "ib_write_bw/composed_capped.txt").read_text()) == 13.23


@pytest.mark.parametrize(
    "text",
    [
        "",
        (FIXTURES / "ib_write_bw/composed_mib.txt").read_text(),
        CLIENT.partition(" 65536")[0],
        CLIENT + CLIENT,
        CLIENT.replace("92.57", "-92.57"),
        CLIENT.replace("92.57", "inf"),
        CLIENT.replace("92.57", "9" * 4000),
        CLIENT.replace(" 65536", " 2 5 1.0 2.0\n 65536"),
    ],
)
def test_no_bandwidth_is_guessed(text):
    with pytest.raises(UnknownState):
        fabric_transfer.parse_ib_write_bw(text)


def test_a_failed_run_says_its_last_line():
    with pytest.raises(UnknownState, match="ended with 1: Couldn't allocate MR"):
        fabric_transfer.ib_result(ToolResult(1, CLIENT, "something\nCouldn't allocate MR\n"))
    assert fabric_transfer.ib_result(ToolResult(0, CLIENT, "")) == 92.57


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=200, deadline=None)
def test_mutated_answers_are_read_or_unknown(data):
    answers = ((CLIENT, fabric_transfer.parse_ib_write_bw), (ROUTER, lambda output: fabric_transfer.parse_ping(ToolResult(0, output, ""))))
    for text, read in answers:
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 80)))
        mutated = text[:start] + data.draw(st.text(max_size=40)) + text[end:]
        try:
            value = read(mutated)
        except UnknownState:
            continue
        assert isinstance(value, dict) or 0 <= value < 1e10


@pytest.mark.parametrize(
    ("name", "passes", "path_mtu", "rtt_ms"),
    [("passes", True, None, 0.061), ("silence", False, None, None), ("own_mtu", False, 1500, None), ("router", False, 1500, None)],
)
def test_ping(name, passes, path_mtu, rtt_ms):
    text = (FIXTURES / f"ping/composed_{name}.txt").read_text()
    assert fabric_transfer.parse_ping(ToolResult(0 if passes else 1, text, "")) == {"passes": passes, "path_mtu": path_mtu, "rtt_ms": rtt_ms}


def test_a_ping_that_cannot_be_read_is_unknown():
    with pytest.raises(UnknownState, match="invalid option"):
        fabric_transfer.parse_ping(ToolResult(1, "", "ping: invalid option -- 'M'"))


def test_a_ping_fills_the_mtu():
    argv = fabric_transfer.ping_argv("ping", "192.168.100.11", "192.168.100.12", 9000)
    assert argv[argv.index("-s") + 1] == "8972" and argv[argv.index("-M") + 1] == "do" and argv[-3:] == ["-I", "192.168.100.11", "192.168.100.12"]


def test_the_listeners_table():
    table = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 0\n   1: 0100007F:1F91 0100007F:1F90 01 0\nhalf\n"
    assert fabric_transfer.listens(table, 8080) and not fabric_transfer.listens(table, 8081) and not fabric_transfer.listens("", 8080)


# -- ten seconds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["rdma", "tcp"])
@pytest.mark.parametrize("links", [1, 2, 3, 4, 8])
def test_all_transfers_fit_into_the_time(links, method):
    planned = fabric_transfer.transfers(links, method, 10)
    each = fabric_transfer.each_seconds(len(planned), method, 10)
    assert len(planned) * (each + fabric_transfer.OVERHEAD[method]) + fabric_transfer.RESERVE <= 10.0001
    seen = {(transfer.links, way) for transfer in planned for way in transfer.directions}
    groups = [(number,) for number in range(links)] + ([tuple(range(links))] if links > 1 else [])
    assert seen == {(group, way) for group in groups for way in ("out", "in")}


def test_the_two_twins_of_a_cage_have_time_for_each_way_alone():
    for method in ("rdma", "tcp"):
        planned = fabric_transfer.transfers(2, method, 10)
        assert len(planned) == 6 and all(len(transfer.directions) == 1 for transfer in planned)
        assert fabric_transfer.each_seconds(6, method, 10) == 1.0


def test_gbits():
    assert fabric_transfer.gbits(125_000_000, 1.0) == 1.0
    for count, seconds in ((0, 1.0), (5, 0.0), (5, -1.0)):
        with pytest.raises(UnknownState):
            fabric_transfer.gbits(count, seconds)


@pytest.mark.parametrize("figures", [None, [], {}, {"1": 2.0}, {"0": "x"}, {"0": True}, {"0": -1}, {"0": float("nan")}, {"0": 1e9}, {"0": None}])
def test_a_missing_or_invalid_figure_is_unknown(figures):
    with pytest.raises(UnknownState, match="sent no gbits"):
        fabric_transfer.figures_by_link({"gbits": figures}, "gbits", [0])
    assert fabric_transfer.figures_by_link({"gbits": {"0": 1.5, "1": 2}}, "gbits", [0]) == {0: 1.5}


# -- two ends --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Fakes of ib_write_bw and ping; the first prints the composed output of a healthy link. A transfer takes a fourth of its time."""
    monkeypatch.setattr(fabric_transfer, "TRANSFER_SECONDS", 0.25)
    (tmp_path / "says").write_text(CLIENT)
    program = tmp_path / "ib_write_bw"
    program.write_text(IB_WRITE_BW)
    ping = tmp_path / "ping"
    ping.write_text(PING.format(folder=tmp_path, answer=FIXTURES / "ping/composed_passes.txt"))
    for tool in (program, ping):
        tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    return tmp_path


class Pair:
    """A listener in a thread, and the data that a prober needs about it."""

    def __init__(self, tools, links=2, wait=5, seconds=10, token=TOKEN):
        self.tools = tools
        ends = [{"link": f"b{number}", "address": f"127.0.2.{number + 1}", "device": f"rb{number}", "gid": 3} for number in range(links)]
        self.listener = fabric_probe.Listener(ends, token, str(tools / "ib_write_bw"), wait, seconds)
        self.ports = self.listener.ports
        self.ended = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        self.links = [
            {
                "link": f"a{number}", "address": f"127.0.1.{number + 1}", "device": f"ra{number}", "gid": 4, "mtu": 9000,
                "peer_address": end["address"], "peer_port": port,
            }
            for number, (end, port) in enumerate(zip(ends, self.ports))
        ]  # fmt: skip

    def _serve(self):
        try:
            self.listener.serve()
            self.ended.append("ended")
        except (OSError, UnknownState) as error:
            self.ended.append(str(error))

    def probe(self, token=TOKEN, method="tcp", seconds=10.0, **changes):
        options = {"method": method, "streams": 2, "seconds": seconds, "program": str(self.tools / "ib_write_bw"), "ping": str(self.tools / "ping"), **changes}
        prober = fabric_probe.Prober(self.links, token, **options)
        prober.run()
        self.thread.join(20)
        assert not self.thread.is_alive()
        return prober


def test_tcp_over_two_links_both_ways_and_together(tools):
    pair = Pair(tools)
    # A transfer that outlives its time is an error.
    prober = pair.probe(seconds=10)
    assert prober.errors == [] and prober.method == "tcp" and prober.why == "" and pair.ended == ["ended"]
    for link in prober.links:
        assert link["out_gbits"] > 0.01 and link["in_gbits"] > 0.01
        assert link["ping"]["passes"] and link["ping"]["path_mtu"] is None and link["ping"]["rtt_ms"] > 0
    assert prober.together["out_gbits"] > 0.01 and prober.together["in_gbits"] > 0.01
    assert "-s 8972" in (tools / "pings").read_text()


def test_one_link_has_no_together(tools):
    prober = Pair(tools, links=1).probe(seconds=3)
    assert prober.errors == [] and prober.together is None and prober.links[0]["in_gbits"] > 0.01


def test_both_ways_at_once_where_time_is_short(tools):
    prober = Pair(tools, links=4).probe(seconds=3)
    assert prober.errors == []
    assert all(link[way] > 0.001 for link in prober.links for way in ("out_gbits", "in_gbits"))


def test_rdma_over_two_links(tools, monkeypatch):
    monkeypatch.setattr(fabric_transfer, "TRANSFER_SECONDS", 1.0)
    pair = Pair(tools)
    prober = pair.probe(method="rdma")
    assert prober.errors == [] and prober.method == "rdma" and pair.ended == ["ended"]
    assert [(link["out_gbits"], link["in_gbits"]) for link in prober.links] == [(92.57, 92.57)] * 2
    assert prober.together == {"out_gbits": 185.14, "in_gbits": 185.14}
    calls = (tools / "calls").read_text().splitlines()
    # Six transfers, the two over both links with two servers and two clients each.
    assert len(calls) == 2 * (4 + 2 * 2)
    assert all(f"--bind_source_ip 127.0.{1 if 'ra' in call else 2}." in call and "-D 1" in call and "--report_gbits" in call for call in calls)
    assert not any("0.0.0.0" in call for call in calls)


def test_rdma_that_fails_is_measured_by_tcp_and_reported(tools):
    (tools / "broken").touch()
    prober = Pair(tools, links=1).probe(method="rdma")
    assert prober.method == "tcp" and "Couldn't allocate MR" in prober.why and prober.errors == []
    assert prober.links[0]["out_gbits"] > 0.01 and prober.links[0]["in_gbits"] > 0.01


def test_what_rdma_carried_is_not_reported_as_tcp(tools, monkeypatch):
    """RDMA breaks off at the last transfer, and no time is left to measure by TCP."""

    def rdma(prober, control, transfer):
        if prober.together["out_gbits"] is None and len(transfer.links) == 1:
            return {way: {transfer.links[0]: 97.28} for way in transfer.directions}
        raise UnknownState("it hangs")

    def tcp(*_args):
        raise UnknownState("the time of the probe is over", reason="time over")

    monkeypatch.setattr(fabric_probe.Prober, "_rdma", rdma)
    monkeypatch.setattr(fabric_probe.Prober, "_tcp", tcp)
    prober = Pair(tools).probe(method="rdma")
    assert prober.method == "tcp" and prober.why == "it hangs" and "time of the probe is over" in prober.errors[0]
    assert {link[way] for link in [*prober.links, prober.together] for way in ("out_gbits", "in_gbits")} == {None}


def test_rdma_whose_answer_cannot_be_parsed_is_measured_by_tcp(tools):
    (tools / "says").write_text("Segmentation fault\n")
    prober = Pair(tools, links=1).probe(method="rdma")
    assert prober.method == "tcp" and "does not print one bandwidth" in prober.why and prober.errors == []


def test_a_wrong_token_gets_nothing(tools):
    pair = Pair(tools, wait=2)
    prober = pair.probe(token="another token of the length")
    assert len(prober.errors) == 1 and "token was wrong" in prober.errors[0]
    assert all(link["out_gbits"] is None and link["in_gbits"] is None for link in prober.links)
    # The one that it was meant for may still come, until the time is over.
    assert pair.ended and "time" in pair.ended[0]


def test_a_foreign_peer_does_not_block_the_right_one(tools):
    pair = Pair(tools, links=1)
    foreign = socket.create_connection(("127.0.2.1", pair.ports[0]))
    silent = socket.create_connection(("127.0.2.1", pair.ports[0]))
    foreign.sendall(b"GET / HTTP/1.1\r\n" + b"x" * 64)
    prober = pair.probe(seconds=6)
    assert prober.errors == [] and prober.links[0]["out_gbits"] > 0.01
    foreign.close()
    silent.close()


def test_the_listener_ends_when_no_peer_connects(tools):
    began = time.monotonic()
    pair = Pair(tools, links=1, wait=1)
    pair.thread.join(5)
    assert not pair.thread.is_alive() and time.monotonic() - began < 3
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.2.1", pair.ports[0]), timeout=2)


def test_the_listener_binds_to_its_address_alone_and_serves_one_peer(tools):
    pair = Pair(tools, links=1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", pair.ports[0]), timeout=2)
    assert pair.probe(seconds=3).errors == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.2.1", pair.ports[0]), timeout=2)


def test_without_a_listener_the_prober_reports_an_error(tools):
    pair = Pair(tools, links=1, wait=1)
    pair.thread.join(5)
    prober = pair.probe(seconds=3)
    assert len(prober.errors) == 1 and "refused" in prober.errors[0]


def test_an_address_that_this_node_does_not_have(tools):
    with pytest.raises(UnknownState, match="cannot listen on 192.0.2.77"):
        fabric_probe.Listener([{"link": "x", "address": "127.0.2.1"}, {"link": "y", "address": "192.0.2.77"}], TOKEN, "x", 1, 2)


def talk(text):
    """A listening node that proves nothing and sends a given text, then nothing more."""
    server = socket.create_server(("127.0.2.1", 0))

    def serve():
        sock, _peer = server.accept()
        with sock, server:
            sock.sendall(b"c" * fabric_transfer.CHALLENGE)
            sock.sendall(text)
            with contextlib.suppress(ConnectionResetError):
                while sock.recv(4096):
                    pass

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        struct.pack("!I", 1 << 30),
        struct.pack("!I", 4) + b"\xff\xfe[{",
        struct.pack("!I", 2) + b"[]",
        struct.pack("!I", 16) + b'{"error": "nope"}'[:16],
        struct.pack("!I", 17) + b'{"error": "nope"}',
        struct.pack("!I", 2) + b"{}" + struct.pack("!I", 2) + b"{}",
    ],
)
def test_a_peer_that_sends_garbage_or_nothing_is_reported_in_time(tools, text):
    link = {"link": "a0", "address": "127.0.1.1", "device": "", "gid": None, "mtu": 9000, "peer_address": "127.0.2.1", "peer_port": talk(text)}
    began = time.monotonic()
    prober = fabric_probe.Prober([link], TOKEN, method="tcp", streams=1, seconds=3.0, program="x", ping=str(tools / "ping"))
    prober.run()
    assert len(prober.errors) == 1 and time.monotonic() - began < 5
    assert prober.links[0]["out_gbits"] is None


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"do": "tcp", "links": [7], "ways": ["out"], "seconds": 1, "streams": 1, "peers": {}},
        {"do": "tcp", "links": [], "ways": ["out"], "seconds": 1, "streams": 1, "peers": {}},
        {"do": "tcp", "links": "x", "ways": 5, "seconds": "soon", "streams": None, "peers": []},
        {"do": "rdma", "links": [0], "ways": ["out"], "seconds": 1, "streams": 1, "peers": {"one": "x"}},
    ],
)
def test_an_invalid_order_is_answered(tools, order):
    pair = Pair(tools, links=1, seconds=4)
    deadline = fabric_transfer.Deadline(4)
    with fabric_transfer.connect("127.0.1.1", ("127.0.2.1", pair.ports[0]), TOKEN, {"kind": "control"}, deadline) as control:
        fabric_transfer.receive_answer(control)
        fabric_transfer.send_message(control, order)
        with pytest.raises(UnknownState, match="something unknown"):
            fabric_transfer.receive_answer(control)
        fabric_transfer.send_message(control, {"do": "end"})
    pair.thread.join(5)
    assert pair.ended == ["ended"]


def test_a_measuring_node_that_stops_in_the_middle_ends_the_listener(tools):
    pair = Pair(tools, links=1, seconds=3)
    began = time.monotonic()
    with fabric_transfer.connect("127.0.1.1", ("127.0.2.1", pair.ports[0]), TOKEN, {"kind": "control"}, fabric_transfer.Deadline(3)) as control:
        fabric_transfer.receive_answer(control)
        fabric_transfer.send_message(control, {"do": "tcp", "links": [0], "ways": ["out"], "seconds": 1, "streams": 2, "peers": {"0": "127.0.1.1"}})
        pair.thread.join(6)
    assert not pair.thread.is_alive() and time.monotonic() - began < 5
    assert pair.ended and pair.ended != ["ended"]


def test_no_transfer_outlives_the_deadline(tools):
    """A peer that accepts all and reads nothing: the sender ends when the time is over."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        began = time.monotonic()
        with pytest.raises((UnknownState, OSError)):
            fabric_transfer.exchange({(0, "out"): [ours]}, "out", 30.0, fabric_transfer.Deadline(1))
        assert time.monotonic() - began < 3
