# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the ladder reads and measures on a node of files and sockets."""

from __future__ import annotations

import socket
import threading
import time
import types

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._guard import ring
from ansible_collections.gb10.cluster.plugins.module_utils._samples import guard_ring, sshd_greeting
from node_roots import rooted

BOOT = "b6f1e0b4-6a3c-4f0e-9a51-0b0f1f0c2d11"


@pytest.fixture
def node(tmp_path):
    """A node with a ring of two boots."""
    proc, folder = tmp_path / "proc", tmp_path / "state" / "guard" / "ring"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text(BOOT + "\n")
    began = time.time() - 100
    for boot, at in (("another", began), (BOOT, began + 10)):
        writer = ring.Writer(str(folder), {"boot": boot, "node": "a", "interval": 1.0, "total": 1})
        writer.write([{"t": at + second, "a": (60 - second) * 1024 * 1024} for second in range(5)], at)
        writer.close()
    return types.SimpleNamespace(began=began, state=tmp_path / "state", proc=proc, etc=tmp_path / "etc")


def summarized(node, **params):
    given = {"state_dir": str(node.state), "since": None, "points": 240, "proc_root": str(node.proc), "etc_root": str(node.etc)}
    return guard_ring.summary(types.SimpleNamespace(params=rooted({**given, **params}), check_mode=False))


def test_the_ring_of_this_boot_is_read_from_a_moment_on(node):
    summary = summarized(node, since=node.began + 11)["seen"]
    assert (summary["samples"], summary["lowest_mb"]) == (4, 56 * 1024)
    assert summarized(node)["seen"] is None and summarized(node)["boot_id"] == BOOT
    assert summarized(node, since=time.time() + 5)["seen"]["samples"] == 0


def test_a_number_of_points_out_of_range_is_refused(node):
    for points in (9, 2001):
        with pytest.raises(ClusterError, match="points is"):
            summarized(node, points=points)


# --- sshd_greeting --------------------------------------------------------------------------------------------------


@pytest.fixture
def sshd():
    """A server on the loopback that sends the configured greeting after some seconds."""
    server_options = types.SimpleNamespace(greeting=b"SSH-2.0-OpenSSH_9.6\r\n", delay=0.0, port=0)
    ending = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))
    server_options.port = server.getsockname()[1]
    server.settimeout(0.1)

    def serve():
        while not ending.is_set():
            try:
                asker, _address = server.accept()
            except TimeoutError:
                continue
            with asker:
                ending.wait(server_options.delay)
                try:
                    asker.sendall(server_options.greeting)
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    yield server_options
    ending.set()
    thread.join()
    server.close()


def measured(port, **params):
    given = {"addresses": ["127.0.0.1"], "port": port, "seconds": 1, "interval": 1, "until": None, "greeting_timeout": 5}
    return sshd_greeting.work(types.SimpleNamespace(params={**given, **params}, check_mode=False))


def test_a_greeting_is_timed(sshd, tmp_path):
    sshd.greeting = b"A foreign banner\r\nSSH-2.0-OpenSSH_9.6\r\n"
    result = measured(sshd.port, until=str(tmp_path / "gone"))
    assert len(result["samples_ms"]) == 1 and result["worst_ms"] == result["samples_ms"][0] and result["errors"] == []


@pytest.mark.parametrize(("greeting", "why"), [(b"HTTP/1.1 200 OK\r\n", "it greets with"), (b"", "closed without a greeting")])
def test_another_text_is_not_a_greeting(sshd, tmp_path, greeting, why):
    sshd.greeting = greeting
    result = measured(sshd.port, until=str(tmp_path / "gone"))
    assert result["samples_ms"] == [None] and result["worst_ms"] is None and why in result["errors"][0]


def test_one_that_takes_too_long_did_not_come(sshd, tmp_path):
    sshd.delay = 3
    result = measured(sshd.port, until=str(tmp_path / "gone"), greeting_timeout=1)
    assert result["samples_ms"] == [None] and "timed out" in result["errors"][0]


def test_the_first_address_that_takes_connections_is_asked(sshd, tmp_path):
    result = measured(sshd.port, addresses=["127.0.0.9", "127.0.0.1"], until=str(tmp_path / "gone"))
    assert result["address"] == "127.0.0.1"
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    none = measured(closed)
    assert none["address"] == "" and none["worst_ms"] is None and f"127.0.0.1:{closed}" in none["errors"][0]


def test_more_seconds_than_a_watch_lasts_are_refused():
    with pytest.raises(ClusterError, match="seconds is 28801"):
        measured(22, seconds=28801)
