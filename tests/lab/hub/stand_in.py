# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for huggingface.co: a server that answers the requests of the hub's client during a download, and misbehaves on request.

  python3 stand_in.py DIRECTORY [--port 8080] [--cdn-port 8081]

DIRECTORY holds ``ORGANIZATION/NAME/…``, the files of each repository, and may hold ``repos.json`` with more about some of them (``commit``, ``gated``,
``private``). README.md beside it describes the protocol and its sources. ``/_control`` takes orders and returns the requests that were seen.
Python's standard library only.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import http.server
import json
import pathlib
import re
import threading
import time
import typing as t
import urllib.parse

#: A file of this size or with such a name is stored separately, as with Git LFS: the hub names it by its sha256, and another server sends it.
LARGE, LARGE_NAMES = 1 << 20, (".safetensors", ".bin", ".gguf")
CHUNK = 1 << 16

COMMIT = re.compile(r"[0-9a-f]{40}")
#: /api/models/REPO/revision/REVISION, /api/models/REPO/tree/REVISION, /api/models/REPO
API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(?:/(?P<what>revision|tree)/(?P<revision>[^/]+))?")
RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")
RESOLVE_CACHE = re.compile(r"/api/resolve-cache/models/(?P<repo>[^/]+/[^/]+)/(?P<revision>[0-9a-f]{40})/(?P<name>.+)")
CDN = re.compile(r"/repos/(?P<repo>[^/]+/[^/]+)/(?P<sha256>[0-9a-f]{64})")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file of a repository."""

    path: pathlib.Path
    size: int
    blob_id: str
    sha256: str | None

    @property
    def etag(self) -> str:
        return self.sha256 or self.blob_id


@dataclasses.dataclass
class Fault:
    """A way to misbehave, for requests whose ``METHOD PATH`` matches, ``times`` times (-1 for always).

    ``status`` answers with an error, with ``headers``; ``cut`` sends so much of the whole file (0 to 1) and closes the connection; ``rate`` sends no
    more bytes a second; ``flip`` changes the first byte that is sent.
    """

    match: str
    times: int = -1
    status: int = 0
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    error: str = ""
    cut: float | None = None
    rate: int = 0
    flip: bool = False


def entry_of(path: pathlib.Path) -> Entry:
    """Return what the hub knows of a file: git's id of small ones, and of large ones the sha256, too."""
    data = path.read_bytes()
    large = len(data) >= LARGE or path.name.endswith(LARGE_NAMES)
    sha256 = hashlib.sha256(data).hexdigest() if large else None
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(data)}\n".encode() if large else data
    return Entry(path, len(data), hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest(), sha256)


class Control:
    """The faults to produce, and the requests that came."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.faults: list[Fault] = []
        self.seen: list[dict[str, t.Any]] = []

    def control(self, order: dict[str, t.Any]) -> None:
        """Do what is ordered: ``reset``, ``faults``."""
        with self.lock:
            if order.get("reset"):
                self.faults, self.seen = [], []
            if "faults" in order:
                self.faults = [Fault(**fault) for fault in order["faults"]]

    def fault(self, request: str) -> Fault | None:
        """Return how to misbehave for a request (``GET /path``), and count it."""
        with self.lock:
            for fault in self.faults:
                if fault.times and re.search(fault.match, request):
                    fault.times -= 1 if fault.times > 0 else 0
                    return fault
        return None


class Hub(Control):
    """The repositories, and who may read them."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__()
        self.root = root
        self.cdn_port = 0
        #: The hub's valid tokens, each with the gated or private repositories that it may read.
        self.tokens: dict[str, list[str]] = {}
        self.load()

    def load(self) -> None:
        """Read the directory."""
        about = self.root / "repos.json"
        self.about: dict[str, dict[str, t.Any]] = json.loads(about.read_text(encoding="utf-8")) if about.exists() else {}
        self.repos: dict[str, dict[str, Entry]] = {}
        for place in sorted(path for path in self.root.glob("*/*") if path.is_dir()):
            files = sorted(path for path in place.rglob("*") if path.is_file())
            self.repos[f"{place.parent.name}/{place.name}"] = {str(path.relative_to(place)): entry_of(path) for path in files}

    def commit(self, repo: str) -> str:
        return str(self.about.get(repo, {}).get("commit") or hashlib.sha1(repo.encode()).hexdigest())

    def control(self, order: dict[str, t.Any]) -> None:
        """Do what is ordered, ``tokens`` beside the rest."""
        super().control(order)
        with self.lock:
            self.tokens = {**({} if order.get("reset") else self.tokens), **order.get("tokens", {})}


class Misbehaving(http.server.BaseHTTPRequestHandler):
    """Answers one request with :meth:`answer_it`, or with a fault."""

    protocol_version = "HTTP/1.1"
    hub: t.Any
    # A client that disconnects leaves no thread behind.
    timeout = 60

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: /_control returns the requests."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if urllib.parse.urlsplit(self.path).path != "/_control":
            return self.refuse(404, error="Not Found")
        self.hub.control(order)
        return self.send_json(200, {})

    def answer(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if path == "/_control":
            with self.hub.lock:
                return self.send_json(200, {"seen": list(self.hub.seen)})
        self.row: dict[str, t.Any] = {
            "client": self.client_address[0], "method": self.command, "path": path, "status": 0, "sent": 0,
            "range": self.headers.get("Range"), "token": "authorization" in self.headers, "agent": self.headers.get("User-Agent", ""),
        }  # fmt: skip
        with self.hub.lock:
            self.hub.seen.append(self.row)
        self.misbehaves = self.hub.fault(f"{self.command} {path}")
        if self.misbehaves and self.misbehaves.status:
            # A limit is also given in the header of the hub's documentation.
            return self.refuse(self.misbehaves.status, error=self.misbehaves.error or "refused", headers=self.misbehaves.headers)
        return self.answer_it(path)

    def answer_it(self, path: str) -> None:
        """Answer a request."""
        raise NotImplementedError

    def send_body(self, read: t.Callable[[int], bytes], length: int, first: int, size: int) -> None:
        """Send ``length`` bytes as they are read, those from ``first`` on of a file of ``size`` bytes."""
        how = self.misbehaves or Fault("")
        end, at = length if how.cut is None else max(0, min(length, int(size * how.cut) - first)), 0
        while at < end and (part := read(min(CHUNK, end - at))):
            if how.flip and at == 0:
                part = bytes([part[0] ^ 1]) + part[1:]
            at += len(part)
            try:
                self.wfile.write(part)
            except OSError:
                self.close_connection = True
                return
            with self.hub.lock:
                self.row["sent"] += len(part)
            if how.rate:
                time.sleep(len(part) / how.rate)
        if at < length:
            self.close_connection = True

    # -- the frame ---------------------------------------------------------------------------------------------------

    def begin(self, status: int, headers: dict[str, str]) -> None:
        if hasattr(self, "row"):
            self.row["status"] = status
        self.send_response(status)
        for name, value in {"X-Request-Id": "Root=1-stand-in", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.begin(status, {"Content-Type": "text/plain; charset=utf-8", **headers, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, status: int, answer: t.Any, headers: dict[str, str] | None = None) -> None:
        self.send(status, json.dumps(answer).encode(), {"Content-Type": "application/json; charset=utf-8", **(headers or {})})

    def refuse(self, status: int, code: str = "", error: str = "", headers: dict[str, str] | None = None) -> None:
        """Refuse as the hub does: the reason is in headers, since the answer to HEAD has no body."""
        about = {**({"X-Error-Code": code} if code else {}), **({"X-Error-Message": error} if error else {}), **(headers or {})}
        self.send_json(status, {"error": error}, about)


class Handler(Misbehaving):
    """Answers as the hub and its content server do."""

    hub: Hub

    def answer_it(self, path: str) -> None:
        if match := CDN.fullmatch(path):
            return self.send_large(match["repo"], match["sha256"])
        if match := RESOLVE_CACHE.fullmatch(path):
            return self.send_small(match["repo"], match["name"])
        if match := API.fullmatch(path):
            return self.describe(match["repo"], match["what"], match["revision"])
        if match := RESOLVE.fullmatch(path):
            return self.resolve(match["repo"], match["revision"], match["name"])
        return self.refuse(404, error="Not Found")

    # -- who may read what -------------------------------------------------------------------------------------------

    def may(self, repo: str, revision: str | None, file: bool) -> bool:
        """Return whether the client may read a repository at a revision; answers with the hub's refusal otherwise."""
        about = self.hub.about.get(repo, {})
        token = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if token and token not in self.hub.tokens:
            self.refuse(401, error="Invalid credentials in Authorization header")
        elif repo not in self.hub.repos or (about.get("private") and repo not in self.hub.tokens.get(token, [])):
            # Clients that are not logged in do not learn whether a repository is private or absent.
            self.refuse(404 if token else 401, "RepoNotFound", "Repository not found" if token else "Invalid username or password.")
        elif revision not in (None, "main", self.hub.commit(repo)):
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif file and about.get("gated") and repo not in self.hub.tokens.get(token, []):
            anonymous = "You must have access to it and be authenticated to access it. Please log in."
            words = "Visit https://huggingface.co/{0} to ask for access." if token else anonymous
            self.refuse(403 if token else 401, "GatedRepo", f"Access to model {repo} is restricted. {words.format(repo)}")
        else:
            return True
        return False

    # -- answers -----------------------------------------------------------------------------------------------------

    def describe(self, repo: str, what: str | None, revision: str | None) -> None:
        """Send a repository's description (its commit and the names of its files), or its tree."""
        if not self.may(repo, revision, file=False):
            return None
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        files = self.hub.repos[repo]
        if what == "tree":
            rows = [
                {"type": "file", "oid": entry.blob_id, "size": entry.size, "path": name}
                | ({"lfs": {"oid": entry.sha256, "size": entry.size, "pointerSize": 134}} if entry.sha256 else {})
                for name, entry in files.items()
            ]
            return self.send_json(200, rows)
        siblings: list[dict[str, t.Any]] = []
        for name, entry in files.items():
            row: dict[str, t.Any] = {"rfilename": name}
            if query.get("blobs", [""])[0].lower() in ("true", "1"):
                row |= {"blobId": entry.blob_id, "size": entry.size}
                row |= {"lfs": {"sha256": entry.sha256, "size": entry.size, "pointerSize": 134}} if entry.sha256 else {}
            siblings.append(row)
        about = self.hub.about.get(repo, {})
        answer = {
            "id": repo, "modelId": repo, "sha": self.hub.commit(repo), "private": bool(about.get("private")), "gated": about.get("gated") or False,
            "disabled": False, "downloads": 0, "likes": 0, "tags": [], "siblings": siblings,
        }  # fmt: skip
        return self.send_json(200, answer)

    def resolve(self, repo: str, revision: str, name: str) -> None:
        """Redirect to a file's bytes: for large files on another server, for small ones at this server's path of the commit."""
        if not self.may(repo, revision, file=True):
            return None
        commit, entry = self.hub.commit(repo), self.hub.repos[repo].get(name)
        if entry is None:
            return self.refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        about = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if entry.sha256:
            # Another origin, so that the client has to leave its token behind.
            host = self.headers.get("Host", "localhost").rpartition(":")[0] or "localhost"
            signed = f"http://{host}:{self.hub.cdn_port}/repos/{repo}/{entry.sha256}?Expires={int(time.time()) + 3600}&Signature=stand-in"
            linked = {"X-Linked-Size": str(entry.size), "X-Linked-Etag": f'"{entry.sha256}"', "Location": signed}
            return self.send(302, f"Found. Redirecting to {signed}".encode(), {**about, **linked})
        place = f"/api/resolve-cache/models/{repo}/{commit}/{urllib.parse.quote(name)}?etag=%22{entry.blob_id}%22"
        linked = {"X-Linked-Size": str(entry.size), "ETag": f'"{entry.blob_id}"', "Location": place}
        return self.send(307, f"Temporary Redirect. Redirecting to {place}".encode(), {**about, **linked})

    def send_small(self, repo: str, name: str) -> None:
        entry = self.hub.repos.get(repo, {}).get(name)
        if entry is None:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": self.hub.commit(repo), "ETag": f'"{entry.blob_id}"', "Accept-Ranges": "bytes"}
        return self.send_file(entry, headers)

    def send_large(self, repo: str, sha256: str) -> None:
        """Send a file as the content server does: without checking a token, and without a repository's headers."""
        entry = next((entry for entry in self.hub.repos.get(repo, {}).values() if entry.sha256 == sha256), None)
        if entry is None:
            return self.refuse(403, error="AccessDenied")
        name = entry.path.name
        headers = {"ETag": f'"{sha256}"', "Accept-Ranges": "bytes", "Content-Disposition": f"inline; filename*=UTF-8''{name}; filename=\"{name}\";"}
        return self.send_file(entry, headers)

    def send_file(self, entry: Entry, headers: dict[str, str]) -> None:
        """Send a file or the requested range of it."""
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last = (int(wanted[1]), int(wanted[2] or entry.size - 1)) if wanted else (0, entry.size - 1)
        if wanted and first >= entry.size:
            return self.refuse(416, error="Range Not Satisfiable", headers={"Content-Range": f"bytes */{entry.size}"})
        last = min(last, entry.size - 1)
        if wanted:
            headers = {**headers, "Content-Range": f"bytes {first}-{last}/{entry.size}"}
        self.begin(206 if wanted else 200, {"Content-Type": "application/octet-stream", **headers, "Content-Length": str(last - first + 1)})
        if self.command == "HEAD":
            return None
        with entry.path.open("rb") as stream:
            stream.seek(first)
            return self.send_body(stream.read, last - first + 1, first, entry.size)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: t.Any, client_address: t.Any) -> None:
        """Report nothing about a client that disconnected."""


def serve(handler: type[Misbehaving], control: Control, address: str, port: int) -> Server:
    """Serve in a thread."""
    server = Server((address, port), type("Bound", (handler,), {"hub": control}))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def start(root: pathlib.Path, address: str = "127.0.0.1", port: int = 0, cdn_port: int = 0) -> tuple[Hub, list[Server]]:
    """Serve in threads; returns the hub and its two servers, that of the hub and that of its content."""
    hub = Hub(root)
    servers = [serve(Handler, hub, address, number) for number in (port, cdn_port)]
    hub.cdn_port = servers[1].server_address[1]
    return hub, servers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--address", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--cdn-port", type=int, default=8081)
    given = parser.parse_args()
    start(given.directory, given.address, given.port, given.cdn_port)
    threading.Event().wait()


if __name__ == "__main__":
    main()
