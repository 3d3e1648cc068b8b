# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who listens on a port: the kernel's tables, and a process tree as they see it."""

from __future__ import annotations

import os
import pathlib
import socket

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners

# Recorded: a Ray head in a container, and a machine with a Ray head on host network.
RECORDED = pathlib.Path(__file__).parents[3] / "fixtures" / "ray"

OUTER = "72901a9e0c18d3b1c0a5f2f6c9b4e1d05a1b2c3d4e5f60718293a4b5c6d7e8f9"
INNER = "3ff22d443798c21636793a5e7025a1f520d54523c949ae524996ca0f57dd860c"


def listening(name):
    entries = listeners.parse_connections((RECORDED / name).read_text())
    return [entry for entry in entries if entry.state == listeners.TCP_LISTEN]


def test_the_recorded_sockets():
    assert [(entry.address, entry.port, entry.inode) for entry in listening("proc_net_tcp")[:3]] == [
        ("0.0.0.0", 44227, 182279),
        ("0.0.0.0", 44217, 180152),
        ("172.17.0.4", 34393, 182060),
    ]


def test_mapped_addresses_are_written_as_ipv4():
    entries = listening("proc_net_tcp6")
    assert len(entries) == 7
    assert ("::1", 18555) in [(entry.address, entry.port) for entry in entries]
    assert ("172.17.0.1", 20106) in [(entry.address, entry.port) for entry in entries]


@pytest.mark.parametrize("line", ["0: nonsense", "0: 0100007F:18EB x 0A", "0: 0100007F:zz 0:0 0A 0:0 0:0 0 0 0 1"])
def test_sockets_in_another_shape_are_refused(line):
    with pytest.raises(UnknownState) as caught:
        listeners.parse_connections(f"header\n{line}\n")
    assert caught.value.details["raw"] == line


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("0::/user.slice/user-1000.slice\n", ""),
        (f"0::/system.slice/docker-{INNER}.scope\n", INNER),
        (f"13:hugetlb:/docker/{INNER}\n1:name=systemd:/docker/{INNER}\n", INNER),
        (f"4:memory:/docker/{OUTER}/docker/{INNER}\n", INNER),
        (f"0::/docker/{OUTER}/system.slice/docker-{INNER}.scope\n", INNER),
    ],
)
def test_container_id_is_the_innermost(cgroup, expected):
    assert listeners.container_id(cgroup) == expected


def proc_tree(root: pathlib.Path) -> str:
    """A node with a Ray head in a container (pid 17833) and a socket whose process is hidden."""
    (root / "net").mkdir()
    header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    tail = "00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0"
    (root / "net" / "tcp").write_text(f"{header}   0: 00000000:18EB {tail} 23784 1\n   1: 0100007F:4E84 {tail} 99999 1\n   2: 00000000:0016 {tail} 11 1\n")
    (root / "stat").write_text("cpu 1 2 3\nbtime 1795220000\nprocesses 5\n")
    process = root / "17833"
    (process / "fd").mkdir(parents=True)
    os.symlink("/dev/null", process / "fd" / "0")
    os.symlink("socket:[23784]", process / "fd" / "9")
    (process / "comm").write_text("gcs_client_io_s\n")
    (process / "cmdline").write_text("/usr/lib/ray/gcs_server\0--gcs_server_port=6379\0")
    (process / "stat").write_text(f"17833 (gcs) server (x)) S 1 {' '.join('0' * 17)} {243669 * os.sysconf('SC_CLK_TCK') // 100} 1067261952 0\n")
    (process / "cgroup").write_text(f"0::/system.slice/docker-{INNER}.scope\n")
    return str(root)


def test_listeners_name_process_start_and_container(tmp_path):
    assert listeners.listeners([6379, 20100], proc_tree(tmp_path)) == [
        {
            "port": 6379,
            "address": "0.0.0.0",
            "pid": 17833,
            "process": "gcs_server",
            "cmdline": "/usr/lib/ray/gcs_server --gcs_server_port=6379",
            "since": "2026-11-21T00:53:56Z",
            "container": INNER,
        },
        {"port": 20100, "address": "127.0.0.1", "pid": None, "process": "", "cmdline": "", "since": "", "container": ""},
    ]


def test_a_command_line_is_shown_word_by_word_without_secrets(tmp_path):
    root = proc_tree(tmp_path)
    (tmp_path / "17833" / "cmdline").write_bytes(b"vllm\0serve\0m\0--api-key\0a b\0c\0--port\0001\0")
    assert listeners.command_line(17833, root) == "vllm serve m --api-key <secret> <secret> --port 1"


def test_listeners_of_free_ports_are_none(tmp_path):
    assert listeners.listeners([8000], proc_tree(tmp_path)) == []


def test_what_is_gone_is_empty(tmp_path):
    root = proc_tree(tmp_path)
    assert listeners.command_line(4, root) == ""
    assert listeners.started_at(4, root) == ""


def test_answers_distinguishes_a_listener_from_a_closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listeners.answers("127.0.0.1", port, 5) == ""
    assert listeners.answers("127.0.0.1", port, 5) == "Connection refused"


def test_answers_finds_own_socket_in_the_real_proc():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert [entry["pid"] for entry in listeners.listeners([port])] == [os.getpid()]


def test_a_file_that_is_closed_meanwhile_hides_no_socket():
    """The list of this process's files contains the one that the list is read from, which has a lower number than the socket here."""
    lower = os.open(os.devnull, os.O_RDONLY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.close(lower)
        inode = os.fstat(server.fileno()).st_ino
        assert listeners.holders([inode]) == {inode: {os.getpid()}}


#: Connections as the kernel lists them: to a peer that answers, to one that has not since the same was sent six times, and one that is being opened.
CONNECTIONS = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0D034D0A:18EB 0E034D0A:B2A4 01 00000000:00000000 02:000005A1 00000000     0        0 12001 2 0000000000000000 20 4 29 10 -1
   1: 0D034D0A:18EB 0E034D0A:B2A6 01 00000240:00000000 01:00000240 00000006     0        0 12002 3 0000000000000000 12800 4 29 1 -1
   2: 0D034D0A:18EB 0E034D0A:B2A8 01 00000240:00000000 01:00000240 00000002     0        0 12003 3 0000000000000000 12800 4 29 1 -1
   3: 0D034D0A:C2A8 0F034D0A:0016 02 00000001:00000000 01:00000100 00000003     0        0 12004 2 0000000000000000 800 0 0 1 7
   4: 0D024D0A:C2A8 0F024D0A:0016 01 00000001:00000000 01:00000100 00000009     0        0 12005 2 0000000000000000 800 0 0 1 7
"""


def test_who_does_not_answer(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(CONNECTIONS)
    assert listeners.unanswered("10.77.3.13", str(tmp_path)) == {"10.77.3.14": 6}
    assert listeners.unanswered("10.77.2.13", str(tmp_path)) == {"10.77.2.15": 9}
    assert listeners.unanswered("127.0.0.1", str(tmp_path)) == {}
