# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which processes get the API's key: real sockets of real processes, in the namespaces from a tree of /proc."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_key, engine_state, health, interruption, token_probe
from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_key import ApiKey, KeyForElsewhere, Withheld
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import checks

KEY = "planted-k3y"
HOST, INSIDE, USERS = "pid:[1]", "pid:[77]", "user:[5]"
#: Listens on the port from its argument, next to any other listener, and prints this. It never answers.
LISTENER = """
import socket, sys
server = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind((sys.argv[1], int(sys.argv[2])))
server.listen(64)
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def process(address="127.0.0.1", port=0):
    """A process that listens; yields its pid and port."""
    with subprocess.Popen([sys.executable, "-c", LISTENER, address, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listening:
        try:
            yield listening.pid, int(listening.stdout.readline())
        finally:
            listening.stdin.close()


class Tree:
    """A tree of /proc with the machine's own sockets, and processes in the namespaces that a test gives them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net").symlink_to("/proc/self/net")
        (root / "self/ns").mkdir(parents=True)
        (root / "self/ns/pid").symlink_to(HOST)
        (root / "self/ns/user").symlink_to(USERS)

    def add(self, pid: int, namespace: str = INSIDE, sees: bool = True) -> int:
        place = self.root / str(pid)
        (place / "ns").mkdir(parents=True)
        (place / "ns/pid").symlink_to(namespace)
        (place / "ns/user").symlink_to(USERS)
        (place / "cmdline").write_text(f"thief\0--port\n\x1b[2J\0{pid}\0")
        if sees:
            (place / "fd").symlink_to(f"/proc/{pid}/fd")
        return pid


@pytest.fixture
def proc(tmp_path):
    return Tree(tmp_path)


def sent(key, port, address="127.0.0.1"):
    """Return the headers that a connection to a port gets."""
    with contextlib.closing(_http.connection_to(_http.base_url(address, port), 5)) as connection:
        return dict(connection.key_headers(key))


def refused(key, port, address="127.0.0.1"):
    with pytest.raises(Withheld) as caught:
        sent(key, port, address)
    assert KEY not in f"{caught.value} {caught.value.remedy} {key!r}" and caught.value.remedy and caught.value.verdict == "unknown"
    return str(caught.value)


def test_only_the_engines_container_gets_the_key(proc):
    with process() as (pid, port):
        # The engine's own process is a different process in its container.
        key = ApiKey(KEY, proc.add(4_000_000, sees=False), str(proc.root))
        proc.add(pid)
        assert sent(key, port) == {"Authorization": f"Bearer {KEY}"} and key
    assert KEY not in f"{key} {key!r}"


def test_a_connection_that_was_taken_is_judged_by_who_took_it(proc):
    """The listener is the engine's, and the process with the accepted socket is not: only that end reads what is sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        key = ApiKey(KEY, proc.add(4_000_000, sees=False), str(proc.root))
        with contextlib.closing(_http.connection_to(f"http://127.0.0.1:{port}", 5)) as connection:
            connection.connect()
            taken, _peer = server.accept()
            with taken:
                own = os.getpid()
                (proc.root / str(own) / "fd").mkdir(parents=True)
                (proc.root / str(own) / "ns").mkdir()
                (proc.root / str(own) / "ns/pid").symlink_to(INSIDE)
                (proc.root / str(own) / "fd/3").symlink_to(os.readlink(f"/proc/self/fd/{server.fileno()}"))
                with pytest.raises(Withheld, match="may not be seen"):
                    key.headers(connection._connected)
                (proc.root / str(own) / "fd/4").symlink_to(os.readlink(f"/proc/self/fd/{taken.fileno()}"))
                assert key.headers(connection._connected)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_stranger_does_not_get_it_wherever_it_listens(proc, address):
    with process(address) as (pid, port):
        key = ApiKey(KEY, proc.add(4_000_000, sees=False), str(proc.root))
        proc.add(pid, HOST)
        message = refused(key, port, "::1" if ":" in address else "127.0.0.1")
    assert f"thief --port [2J {pid} (pid {pid}) listens at http://" in message and message.isprintable() and "not in the engine's container" in message


@pytest.mark.parametrize("other", ["127.0.0.1", "0.0.0.0"])
def test_who_listens_beside_the_engine_could_take_the_connection(proc, other):
    with process("0.0.0.0") as (pid, port):
        with process(other, port) as (thief, _port):
            key = ApiKey(KEY, proc.add(pid), str(proc.root))
            proc.add(thief, "pid:[99]")
            assert f"(pid {thief})" in refused(key, port)


def test_a_socket_shared_with_another_process_is_refused(proc):
    with process() as (pid, port):
        key = ApiKey(KEY, proc.add(pid), str(proc.root))
        assert sent(key, port)
        (proc.add(4_000_001, HOST, sees=False))
        (proc.root / "4000001/fd").symlink_to(f"/proc/{pid}/fd")
        assert "(pid 4000001)" in refused(key, port)


def test_where_the_owner_may_not_be_seen_it_is_not_sent(proc, monkeypatch):
    with process() as (pid, port):
        key = ApiKey(KEY, proc.add(4_000_000, sees=False), str(proc.root))
        proc.add(pid, sees=False)
        assert "may not be seen" in refused(key, port)
        (proc.root / "net").unlink()
        assert "is unknown" in refused(key, port)
        (proc.root / "net").mkdir()
        (proc.root / "net/tcp").write_text("sl\n  0: rubbish\n")
        assert "is unknown" in refused(key, port)
        (proc.root / "net/tcp").write_text("sl\n")
        assert "no visible program on this node" in refused(key, port), "another machine, or another network"

        def denied(_path):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(api_key.os, "readlink", denied)
        assert "Permission denied" in refused(key, port)


def test_the_key_is_withheld_without_an_engine_in_a_container(proc):
    with process() as (pid, port):
        proc.add(pid, HOST)
        for engine in (None, 4_000_000):
            assert "does not run in a container" in refused(ApiKey(KEY, engine, str(proc.root)), port)
        assert "no namespace of processes of its own" in refused(ApiKey(KEY, pid, str(proc.root)), port)


def test_what_an_account_made_to_look_like_a_container_does_not_get_it(proc):
    with process() as (pid, port):
        proc.add(pid)
        (proc.root / str(pid) / "ns/user").unlink()
        (proc.root / str(pid) / "ns/user").symlink_to("user:[6]")
        assert "a namespace of users of its own" in refused(ApiKey(KEY, pid, str(proc.root)), port)


def test_without_a_key_no_process_is_read(proc):
    with process() as (_pid, port):
        key = ApiKey("", None, str(proc.root))
        assert not key and sent(key, port) == {} and key.why_withheld(f"http://127.0.0.1:{port}", 5) == ""


def test_the_key_for_another_machine_is_named_as_that():
    with process() as (_pid, port):
        key = KeyForElsewhere(KEY)
        assert sent(key, port) == {"Authorization": f"Bearer {KEY}"} and key.why_withheld("http://nowhere.invalid", 1) == ""
        key.require("http://nowhere.invalid", 1)


def test_why_it_is_withheld_is_a_text_or_an_error(proc):
    with process() as (pid, port):
        url = f"http://127.0.0.1:{port}"
        key = ApiKey(KEY, proc.add(4_000_000, sees=False), str(proc.root))
        proc.add(pid, HOST)
        assert "ss -ltnp" in key.why_withheld(url, 5)
        with pytest.raises(Withheld):
            key.require(url, 5)
        (proc.root / str(pid) / "ns/pid").unlink()
        (proc.root / str(pid) / "ns/pid").symlink_to(INSIDE)
        assert key.why_withheld(url, 5) == ""
        key.require(url, 5)
    assert "Connection refused" in key.why_withheld(url, 5)
    with pytest.raises(Withheld, match="Connection refused"):
        key.require(url, 5)


# --- every question ---------------------------------------------------------------------------------------------------


class Thief(threading.Thread):
    """Took the port: answers its health route, requires a key for all other routes, and keeps all that it receives."""

    def __init__(self):
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port, self.came = self.server.getsockname()[1], b""

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                taken, _peer = self.server.accept()
                with taken:
                    taken.settimeout(5)
                    with contextlib.suppress(OSError):
                        request = taken.recv(65536)
                        self.came += request
                        status = b"200 OK" if request.startswith(b"GET /health") else b"401 No"
                        taken.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")


@pytest.fixture
def thief():
    made = Thief()
    made.start()
    yield made
    made.server.close()


@pytest.fixture
def engine(thief, tmp_path):
    """A live engine, as seen on its node, while another process has its port."""
    (tmp_path / "gb10").mkdir()
    (tmp_path / "gb10/api_key").write_text(f"{KEY}\n")
    return {"pid": os.getpid(), "api_address": "127.0.0.1", "api_port": thief.port, "run_id": "r1", "argv": [], "log_path": "/nowhere"}


def test_no_request_sends_the_key_to_a_foreign_listener(thief, engine, tmp_path):
    path, url = str(tmp_path / "gb10/api_key"), f"http://127.0.0.1:{thief.port}"
    key = api_key.of(engine, path)
    requests = interruption.requests_of(engine, 5, path)
    assert requests.count is None and "the API's key was not sent" in requests.unknown
    assert token_probe.progress_of(url, key, 5) is None and engine_state.engine_version(url, 5, key) == ""
    config = {"secrets_dir": str(tmp_path), "state_dir": str(tmp_path), "token_s": 5, "roots": {"proc_root": "/proc", "sysfs_root": "/sys"}}
    for outcome in (token_probe.ask(url, None, key, 5, 5), checks.ask(config, "gb10", engine)):
        judged = health.verdict(health.Probe(outcome.api, bool(outcome.completion), **outcome.progress), {})
        assert judged.state == health.UNKNOWN and "it was not asked for a token: the API's key was not sent" in judged.text
    with pytest.raises(Withheld):
        engine_state.first_token(url, None, key, 5)
    assert _http.ask(f"{url}/v1/models", 5, key=key).status is None
    assert thief.came.count(b"GET /metrics") >= 2 and b"authorization" not in thief.came.lower() and KEY.encode() not in thief.came


def test_who_answers_all_questions_without_a_key_is_sent_none(tmp_path, monkeypatch):
    """Metrics and version are requested without the key: an engine that needs none for them is not sent it."""
    calls = []

    def ask(url, _timeout, key=None, **_more):
        calls.append((url.rpartition("/")[2], key))
        return _http.Answer(200, b'{"version": "1"}')

    monkeypatch.setattr(_http, "ask", ask)
    key = ApiKey(KEY, 1)
    assert engine_state.engine_version("http://h", 1, key) == "1" and engine_state.asked("http://h/metrics", 1, key).status == 200
    assert calls == [("version", None), ("metrics", None)]
