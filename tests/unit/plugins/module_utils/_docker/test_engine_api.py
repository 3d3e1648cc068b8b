# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Docker engine's API: its answers, and what the collection and the SDK make of them."""

from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import socket
import socketserver
import threading
import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker import engine_api, sdk
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, ExecResult, NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

VERSION = {"Version": "20.10.24+dfsg1", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}

# Recorded from engine 20.10: sh -c "echo out; echo problem >&2; sleep 0.2; echo done".
STREAM = b"\x02\x00\x00\x00\x00\x00\x00\x08problem\n\x01\x00\x00\x00\x00\x00\x00\x04out\n\x01\x00\x00\x00\x00\x00\x00\x05done\n"

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "fixtures" / "docker"
# Both recorded from an engine without support for API versions before 1.44.
MINIMUM_1_44 = (200, (FIXTURES / "recorded_version_minimum_1_44.json").read_bytes())
TOO_OLD = (400, (FIXTURES / "recorded_too_old.json").read_bytes())

Answer = tuple[int, bytes]


@contextlib.contextmanager
def engine(tmp_path: pathlib.Path, answers: dict[str, Answer | list[Answer]]) -> t.Iterator[tuple[EngineApi, list[str]]]:
    """An engine with recorded answers, and the list of its requests; an unknown request hangs until the end."""
    seen: list[str] = []
    done = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            seen.append(f"{self.command} {self.path}")
            answer = answers.get(f"{self.command} {self.path.partition('?')[0]}")
            if answer is None:
                done.wait(10)
                return
            status, body = answer.pop(0) if isinstance(answer, list) else answer
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = handle_any

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *arguments: t.Any) -> None:
            pass

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    path = str(tmp_path / "docker.sock")
    with Server(path, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield EngineApi(path, timeout=5), seen
        finally:
            done.set()
            server.shutdown()
            thread.join()


def ok(content: t.Any) -> Answer:
    return 200, json.dumps(content).encode()


@pytest.fixture
def dripping() -> t.Iterator[t.Callable[[str, bytes], None]]:
    """Serve a socket at a path that sends a beginning, and then a byte now and then until the test ends."""
    with contextlib.ExitStack() as stack:
        done = threading.Event()

        def serve(path: str, beginning: bytes) -> None:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(path)
            listener.listen()

            def run() -> None:
                connection, _address = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(4096)
                    connection.sendall(beginning)
                    while not done.wait(0.05):
                        connection.sendall(b"X")

            thread = threading.Thread(target=run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(done.set)

        yield serve


@pytest.mark.parametrize(
    ("newest", "oldest", "expected"),
    [("1.41", "1.12", "1.41"), ("1.47", "1.24", "1.41"), ("1.52", "1.44", "1.44"), ("1.100", "1.50", "1.50")],
)
def test_the_version_is_supported_by_both(newest, oldest, expected):
    assert engine_api.negotiated_version({"ApiVersion": newest, "MinAPIVersion": oldest}) == expected


def test_an_engine_too_old_is_refused():
    with pytest.raises(ClusterError, match="speaks API 1.39; expected 1.41"):
        engine_api.negotiated_version({"ApiVersion": "1.39", "MinAPIVersion": "1.12"})


@pytest.mark.parametrize("answer", [{}, {"ApiVersion": "new"}, {"ApiVersion": None}, []])
def test_a_version_that_cannot_be_read_is_unknown(answer):
    with pytest.raises(UnknownState):
        engine_api.negotiated_version(answer)


def test_demultiplex_separates_the_streams():
    assert engine_api.demultiplex(STREAM) == ("out\ndone\n", "problem\n")


def test_frames_keep_the_order_and_a_cut_end():
    assert list(engine_api.frames(STREAM[:-3])) == [(2, b"problem\n"), (1, b"out\n"), (1, b"do")]


@pytest.mark.parametrize("raw", [b"plain text of a terminal", b"\x01\x00\x00", b"\x07\x00\x00\x00\x00\x00\x00\x01x"])
def test_output_that_is_not_a_stream_is_unknown(raw):
    with pytest.raises(UnknownState):
        engine_api.demultiplex(raw)


def test_get_speaks_the_negotiated_version_and_codes_filters(tmp_path):
    with engine(tmp_path, {"GET /version": ok(VERSION), "GET /v1.41/containers/json": ok([{"Id": "a"}])}) as (api, seen):
        assert api.containers({"io.gb10.owner": "gb10.cluster"}) == [{"Id": "a"}]
        assert api.containers({}, statuses=["running"], size=True) == [{"Id": "a"}]
    assert seen[0] == "GET /version"
    assert seen[1] == "GET /v1.41/containers/json?all=1&size=0&filters=%7B%22label%22%3A+%5B%22io.gb10.owner%3Dgb10.cluster%22%5D%7D"
    assert len(seen) == 3


def test_an_engine_that_gave_up_our_oldest_version_is_spoken_to_in_its_own(tmp_path):
    answers = {"GET /version": MINIMUM_1_44, "GET /v1.41/containers/json": TOO_OLD, "GET /v1.44/containers/json": ok([{"Id": "a"}])}
    with engine(tmp_path, answers) as (api, seen):
        assert api.containers({}) == [{"Id": "a"}]
    assert [request.partition("?")[0] for request in seen] == ["GET /version", "GET /v1.44/containers/json"]


def test_a_version_no_longer_supported_has_the_engines_message_and_a_remedy(tmp_path):
    with engine(tmp_path, {"GET /version": ok(VERSION), "GET /v1.41/info": TOO_OLD}) as (api, _seen):
        with pytest.raises(ClusterError, match="client version 1.41 is too old. Minimum supported API version is 1.44") as caught:
            api.get("/info")
    assert caught.value.details["status"] == 400
    assert "Run this again" in caught.value.remedy


def test_an_image_that_is_absent_is_none(tmp_path):
    answers = {"GET /version": ok(VERSION), "GET /v1.41/images/host:5000/a/b:1/json": (404, b'{"message":"No such image: host:5000/a/b:1"}')}
    with engine(tmp_path, answers) as (api, _seen):
        assert api.image("host:5000/a/b:1") is None


def test_a_container_that_is_absent_is_not_found(tmp_path):
    with engine(tmp_path, {"GET /version": ok(VERSION), "GET /v1.41/containers/x/json": (404, b'{"message":"No such container: x"}')}) as (api, _seen):
        with pytest.raises(NotFound, match="No such container: x"):
            api.inspect("x")


def test_invalid_json_is_unknown(tmp_path):
    with engine(tmp_path, {"GET /version": ok(VERSION), "GET /v1.41/info": (200, b"<html>")}) as (api, _seen):
        with pytest.raises(UnknownState) as caught:
            api.get("/info")
    assert caught.value.details["raw"] == "<html>"


def test_an_engine_that_hangs_is_unknown(tmp_path):
    with engine(tmp_path, {}) as (api, _seen):
        api.timeout = 0.1
        with pytest.raises(UnknownState, match="did not answer GET /version within 0.1 s"):
            api.get("/info")


@pytest.mark.parametrize("sent", [b"HTTP/1.0 200 OK\r\n", b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n"])
def test_a_dripping_engine_times_out(tmp_path, sent, dripping):
    path = str(tmp_path / "docker.sock")
    dripping(path, sent)
    with pytest.raises(UnknownState, match="did not answer GET /version within 0.3 s"):
        EngineApi(path, 0.3).get("/info")


def test_an_endless_answer_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_api, "ANSWER_LIMIT", 1000)
    with engine(tmp_path, {"GET /version": ok(VERSION), "GET /v1.41/info": ok(["x" * 2000])}) as (api, _seen):
        with pytest.raises(UnknownState, match="larger than 1000 bytes"):
            api.get("/info")


def test_fewer_lines_of_a_log_are_read_where_they_are_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_api, "LOG_LIMIT", 100)
    line = b"\x01\x00\x00\x00\x00\x00\x00\x3c" + b"x" * 59 + b"\n"
    answers = {"GET /version": ok(VERSION), "GET /v1.41/containers/c/logs": [(200, line * 4), (200, line * 2), (200, line)]}
    with engine(tmp_path, answers) as (api, seen):
        assert api.logs("c", 4) == "x" * 59 + "\n"
    assert [request[-6:] for request in seen[1:]] == ["tail=4", "tail=2", "tail=1"]


def test_a_single_line_without_an_end_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_api, "LOG_LIMIT", 100)
    answers = {"GET /version": ok(VERSION), "GET /v1.41/containers/c/logs": (200, b"\x01\x00\x00\x00\x00\x0f\x00\x00" + b"x" * 500_000)}
    with engine(tmp_path, answers) as (api, _seen):
        assert 0 < len(api.logs("c", 1)) < 200_000


def test_the_log_that_is_kept_has_a_limit(tmp_path, monkeypatch):
    pytest.importorskip("docker")
    monkeypatch.setattr(sdk, "WHOLE_LOG_LIMIT", 10)
    answers = {"GET /version": ok(VERSION), "GET /v1.41/containers/c/json": ok({"Config": {"Tty": False}}), "GET /v1.41/containers/c/logs": (200, STREAM)}
    with engine(tmp_path, answers) as (api, _seen):
        assert b"".join(sdk.Docker(api.socket_path, 5).whole_log("c")) == b"problem\nou\n[the rest is left out: more than 10 bytes]\n"


def test_no_engine_names_the_remedy(tmp_path):
    with pytest.raises(ClusterError, match="no Docker engine listens") as caught:
        EngineApi(str(tmp_path / "none.sock")).get("/info")
    assert "systemctl start docker" in caught.value.remedy


def test_exec_waits_for_the_exit_code(tmp_path):
    answers = {
        "GET /version": ok(VERSION),
        "POST /v1.41/containers/c/exec": ok({"Id": "e"}),
        "POST /v1.41/exec/e/start": (200, STREAM),
        "GET /v1.41/exec/e/json": [ok({"Running": True, "ExitCode": None}), ok({"Running": False, "ExitCode": 3})],
    }
    with engine(tmp_path, answers) as (api, _seen):
        assert api.exec("c", ["sh"], timeout=5) == ExecResult(3, "out\ndone\n", "problem\n")


def test_exec_in_a_container_that_does_not_run(tmp_path):
    answers = {"GET /version": ok(VERSION), "POST /v1.41/containers/c/exec": (409, b'{"message":"Container c is not running"}')}
    with engine(tmp_path, answers) as (api, _seen):
        with pytest.raises(ClusterError, match="is not running") as caught:
            api.exec("c", ["sh"], timeout=5)
    assert caught.value.details["status"] == 409


def test_top_lists_host_pids(tmp_path):
    table = {"Titles": ["PID", "COMMAND"], "Processes": [["17831", "ray"], ["17787", "docker-init"]]}
    with engine(tmp_path, {"GET /version": ok(VERSION), "GET /v1.41/containers/c/top": ok(table)}) as (api, _seen):
        assert api.top("c") == [17787, 17831]


def test_top_of_a_stopped_container_is_empty(tmp_path):
    answers = {"GET /version": ok(VERSION), "GET /v1.41/containers/c/top": (409, b'{"message":"Container c is not running"}')}
    with engine(tmp_path, answers) as (api, _seen):
        assert api.top("c") == []


def test_an_archive_is_read_up_to_its_limit(tmp_path):
    content = bytes(1_000_000)
    with engine(tmp_path, {"GET /version": ok(VERSION), "GET /v1.41/containers/c/archive": (200, content)}) as (api, seen):
        assert api.archive("c", "/tmp/ray", 2_000_000) == content
        assert 100_000 <= len(api.archive("c", "/tmp/ray", 100_000)) < len(content)
    assert seen[1] == "GET /v1.41/containers/c/archive?path=%2Ftmp%2Fray"


def test_a_throwaway_container_is_removed_even_when_it_hangs(tmp_path):
    answers = {
        "GET /version": ok(VERSION),
        "POST /v1.41/containers/create": (201, b'{"Id":"t"}'),
        "POST /v1.41/containers/t/start": (204, b""),
        "DELETE /v1.41/containers/t": (204, b""),
    }
    with engine(tmp_path, answers) as (api, seen):
        with pytest.raises(UnknownState, match="wait within 0.1 s"):
            api.run_throwaway("image", ["true"], labels={}, timeout=0.1)
    assert seen[-1] == "DELETE /v1.41/containers/t?force=1&v=1"


def test_two_containers_of_one_role_are_refused(tmp_path):
    entries = [{"Id": f"{letter * 64}", "Names": [f"/{letter}"], "State": "exited"} for letter in "ab"]
    with engine(tmp_path, {"GET /version": ok(VERSION), "GET /v1.41/containers/json": ok(entries)}) as (api, _seen):
        with pytest.raises(ClusterError, match="has 2 containers labeled as the head of cluster gb10"):
            engine_api.find_node_container(api, "gb10", "head")


def test_no_container_is_none(tmp_path):
    with engine(tmp_path, {"GET /version": ok(VERSION), "GET /v1.41/containers/json": ok([])}) as (api, _seen):
        assert engine_api.find_node_container(api, "gb10", "head") is None


def test_a_missing_sdk_names_the_package(monkeypatch):
    monkeypatch.setattr(sdk, "SDK_MISSING", ImportError("No module named 'docker'"))
    with pytest.raises(ClusterError) as caught:
        sdk.Docker("/var/run/docker.sock", 60)
    assert "python3-docker" in caught.value.remedy


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("Error while fetching server API version: Not supported URL scheme http+docker", "incompatible with the installed requests"),
        ("('Connection aborted.', PermissionError(13, 'Permission denied'))", "become"),
        ("('Connection aborted.', FileNotFoundError(2, 'No such file or directory'))", "systemctl start docker"),
    ],
)
def test_sdk_connection_trouble_has_its_remedy(message, remedy):
    errors = pytest.importorskip("docker.errors")
    with pytest.raises(ClusterError) as caught, sdk.sdk_errors("connecting"):
        raise errors.DockerException(message)
    assert remedy in caught.value.remedy


def test_sdk_refusals_keep_the_engines_words():
    errors = pytest.importorskip("docker.errors")
    with pytest.raises(ClusterError, match="starting x: port is taken") as caught, sdk.sdk_errors("starting x"):
        raise errors.APIError("500 Server Error", explanation="port is taken")
    assert caught.value.details["detail"] == "port is taken"
    assert not caught.value.remedy


def test_the_sdk_speaks_a_version_that_the_engine_still_answers(tmp_path):
    pytest.importorskip("docker")
    answers = {"GET /version": MINIMUM_1_44, "POST /v1.41/containers/c/start": TOO_OLD, "POST /v1.45/containers/c/start": (204, b"")}
    with engine(tmp_path, answers) as (api, seen):
        sdk.Docker(api.socket_path, 5).start("c")
    assert seen == ["GET /version", "POST /v1.45/containers/c/start"]


def test_an_sdk_too_old_for_the_engine_is_named_with_what_is_needed(tmp_path):
    docker = pytest.importorskip("docker")
    with engine(tmp_path, {"GET /v1.41/containers/json": TOO_OLD}) as (api, _seen):
        with contextlib.closing(docker.APIClient(f"unix://{api.socket_path}", version="1.41")) as client:
            with pytest.raises(ClusterError, match="listing: client version 1.41 is too old") as caught, sdk.sdk_errors("listing"):
                client.containers()
    assert f"Docker SDK {docker.__version__} uses API 1.41, and its engine requires 1.44 or newer" in caught.value.remedy
    assert "python3-docker" in caught.value.remedy
    assert caught.value.details["status"] == 400


# -- whose a container is --------------------------------------------------------------------------------------------

OURS = {"io.gb10.owner": "gb10.cluster", "io.gb10.cluster": "gb10", "io.gb10.role": "head"}
BASE, COMMITTED = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def node_labels(image_id, spec, **more):
    return {**OURS, "io.gb10.spec": spec, "io.gb10.fields": json.dumps({"image_id": image_id}), **more}


#: What ``docker commit`` of one of the collection's containers leaves in the image's configuration.
KEPT = node_labels(BASE, "1:kept")


@pytest.mark.parametrize(
    ("labels", "image_id", "image", "ours"),
    [
        # As every version of this collection made them, of an image without our labels, and of one that was committed.
        (KEPT, BASE, {}, True),
        (node_labels(COMMITTED, "1:next"), COMMITTED, KEPT, True),
        # The image is gone (docker rmi --force), but the labels still name it.
        (KEPT, BASE, None, True),
        # docker run of what was committed, with a label of the user's own.
        (KEPT, COMMITTED, KEPT, False),
        ({**KEPT, "mine": "yes"}, COMMITTED, KEPT, False),
        (KEPT, COMMITTED, None, False),
        # Labels that say that it is ours and not how it was made, in an image that has none.
        (OURS, BASE, {}, True),
        # A short-lived container of the collection, from a committed image: it has its own role.
        ({**KEPT, "io.gb10.role": "probe"}, COMMITTED, KEPT, True),
    ],
)
def test_inherited_labels_do_not_make_a_container_the_collections(tmp_path, labels, image_id, image, ours):
    entry = {"Id": "c", "Names": ["/copy"], "Image": "mine:1", "ImageID": image_id, "Labels": labels, "State": "exited"}
    details = {"Id": "c", "Name": "/copy", "Image": image_id, "Config": {"Labels": labels}}
    image_answer = (404, b'{"message":"No such image"}') if image is None else ok({"Id": image_id, "Config": {"Labels": image}})
    answers = {
        "GET /version": ok(VERSION),
        "GET /v1.41/containers/json": ok([entry]),
        "GET /v1.41/containers/c/json": ok(details),
        f"GET /v1.41/images/{image_id}/json": image_answer,
    }
    with engine(tmp_path, answers) as (api, _seen):
        listed, alike = api.containers({}), engine_api.lookalikes(api, "gb10")
        shown, node = api.inspect("c")["Config"], engine_api.find_node_container(api, "gb10", "head")
    if ours:
        assert listed[0]["Labels"] == shown["Labels"] == labels and alike == []
        assert node is not None
        return
    assert node is None
    assert alike == ["copy (of image mine:1)"]
    for seen in (listed[0], shown):
        assert not any(name.startswith("io.gb10.") for name in seen["Labels"])
        assert seen["InheritedLabels"] == {name: value for name, value in labels.items() if name.startswith("io.gb10.")}
    assert ("mine" in labels) is ("mine" in shown["Labels"])


def test_only_doubt_costs_a_question(tmp_path):
    entry = {"Id": "c", "ImageID": BASE, "Labels": KEPT}
    with engine(tmp_path, {"GET /version": ok(VERSION), "GET /v1.41/containers/json": ok([entry])}) as (api, seen):
        assert api.containers({"io.gb10.owner": "gb10.cluster"}) == [entry]
    assert not any("/images/" in request for request in seen)


def test_a_lookalike_is_not_listed(tmp_path):
    """Two containers with one role are refused; another owner's container does not count."""
    own = {"Id": "a", "Names": ["/gb10-gb10-head"], "ImageID": BASE, "Labels": KEPT, "State": "running"}
    copy = {"Id": "c", "Names": ["/copy"], "ImageID": COMMITTED, "Labels": KEPT, "State": "exited"}
    answers = {
        "GET /version": ok(VERSION),
        "GET /v1.41/containers/json": ok([own, copy]),
        "GET /v1.41/containers/a/json": ok({"Id": "a", "Image": BASE, "Config": {"Labels": KEPT}}),
        f"GET /v1.41/images/{COMMITTED}/json": ok({"Id": COMMITTED, "Config": {"Labels": KEPT}}),
    }
    with engine(tmp_path, answers) as (api, _seen):
        assert engine_api.find_node_container(api, "gb10", "head")["Id"] == "a"
