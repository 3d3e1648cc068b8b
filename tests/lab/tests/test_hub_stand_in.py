# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answers of the stand-in for the hub agree with the recording in its README."""

from __future__ import annotations

import hashlib
import http.client
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "hub"))

import stand_in

REPO, DATA = "org/tiny", bytes(range(256)) * 40
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def hub(tmp_path):
    for repo in (REPO, "org/gated", "org/private"):
        (tmp_path / repo).mkdir(parents=True)
        (tmp_path / repo / "model.safetensors").write_bytes(DATA)
        (tmp_path / repo / "config.json").write_text("{}")
    (tmp_path / "repos.json").write_text(json.dumps({"org/gated": {"gated": "auto"}, "org/private": {"private": True}}))
    made, servers = stand_in.start(tmp_path)
    yield made, *(server.server_address[1] for server in servers)
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(port, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    try:
        body = answer.read()
    except http.client.IncompleteRead as cut:
        body = cut.partial
    connection.close()
    return answer, body


def test_a_large_file_lies_on_another_origin(hub):
    made, port, cdn = hub
    answer, _body = ask(port, f"/{REPO}/resolve/main/model.safetensors", "HEAD")
    assert (answer.status, answer.headers["X-Linked-Etag"], answer.headers["X-Linked-Size"]) == (302, f'"{SHA256}"', str(len(DATA)))
    assert answer.headers["X-Repo-Commit"] == made.commit(REPO) and f":{cdn}/" in answer.headers["Location"]
    path = "/" + answer.headers["Location"].split("/", 3)[3]
    assert ask(cdn, path)[1] == DATA
    part, body = ask(cdn, path, Range="bytes=100-")
    assert (part.status, part.headers["Content-Range"], body) == (206, f"bytes 100-{len(DATA) - 1}/{len(DATA)}", DATA[100:])
    assert ask(cdn, path, Range=f"bytes={len(DATA)}-")[0].status == 416


def test_a_small_file_lies_under_its_commit(hub):
    made, port, _cdn = hub
    answer, _body = ask(port, f"/{REPO}/resolve/main/config.json", "HEAD")
    assert answer.status == 307 and answer.headers["Location"].startswith(f"/api/resolve-cache/models/{REPO}/{made.commit(REPO)}/config.json")
    assert ask(port, answer.headers["Location"])[1] == b"{}"


def test_the_list_has_commit_sizes_and_digests(hub):
    made, port, _cdn = hub
    info = json.loads(ask(port, f"/api/models/{REPO}/revision/main?blobs=true")[1])
    large = next(sibling for sibling in info["siblings"] if sibling["rfilename"] == "model.safetensors")
    assert info["sha"] == made.commit(REPO) and large["lfs"]["sha256"] == SHA256 and large["size"] == len(DATA)
    tree = json.loads(ask(port, f"/api/models/{REPO}/tree/{made.commit(REPO)}?recursive=true")[1])
    assert {entry["path"]: entry.get("lfs", {}).get("oid") for entry in tree} == {"config.json": None, "model.safetensors": SHA256}


@pytest.mark.parametrize(
    ("path", "token", "status", "code"),
    [
        ("/org/absent/resolve/main/config.json", None, 401, "RepoNotFound"),
        ("/org/absent/resolve/main/config.json", "hf_known", 404, "RepoNotFound"),
        ("/org/private/resolve/main/config.json", None, 401, "RepoNotFound"),
        ("/org/private/resolve/main/config.json", "hf_member", 307, None),
        ("/org/gated/resolve/main/config.json", None, 401, "GatedRepo"),
        ("/org/gated/resolve/main/config.json", "hf_known", 403, "GatedRepo"),
        ("/org/gated/resolve/main/config.json", "hf_member", 307, None),
        ("/api/models/org/gated", None, 200, None),
        ("/org/tiny/resolve/main/config.json", "hf_unknown", 401, None),
        ("/org/tiny/resolve/absent/config.json", None, 404, "RevisionNotFound"),
        ("/org/tiny/resolve/main/absent.json", None, 404, "EntryNotFound"),
    ],
)
def test_who_may_read_what(hub, path, token, status, code):
    made, port, _cdn = hub
    made.control({"tokens": {"hf_known": [], "hf_member": ["org/gated", "org/private"]}})
    answer, _body = ask(port, path, **({"Authorization": f"Bearer {token}"} if token else {}))
    assert (answer.status, answer.headers["X-Error-Code"]) == (status, code)


def test_it_misbehaves_as_often_as_requested_and_counts(hub):
    made, port, cdn = hub
    faults = [{"match": "^GET /api", "status": 429, "headers": {"Retry-After": "7"}, "times": 1}, {"match": SHA256, "cut": 0.5}]
    made.control({"faults": faults})
    refused, _body = ask(port, f"/api/models/{REPO}")
    assert (refused.status, refused.headers["Retry-After"]) == (429, "7") and ask(port, f"/api/models/{REPO}")[0].status == 200
    half = len(DATA) // 2
    assert ask(cdn, f"/repos/{REPO}/{SHA256}")[1] == DATA[:half]
    assert ask(cdn, f"/repos/{REPO}/{SHA256}", Range=f"bytes={half}-")[1] == b""
    assert [request["sent"] for request in made.seen if "/repos/" in request["path"]] == [half, 0]
    made.control({"reset": True, "faults": [{"match": SHA256, "flip": True}]})
    assert ask(cdn, f"/repos/{REPO}/{SHA256}")[1] == b"\x01" + DATA[1:]
