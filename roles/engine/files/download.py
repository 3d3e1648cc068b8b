# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Load repositories of a hub into its cache. Runs in a container of the node image, with that image's own client.

The client (``huggingface_hub``) does all but this: newer ones (2.4 does) throw away what they have of a file on a failure, and none verifies it. So large
files are loaded here first, by the client's own transfer, under the name that it gave them before (``blobs/DIGEST.incomplete``). What an earlier run
left of one goes on, and a file gets its name when its sha256 is the hub's. The client then finds them, and adds the small ones, links and refs.

Its arguments are a JSON list of what ``snapshot_download`` is given, and the device and inode of the hub cache. Now and then it writes a line with
``progress`` and ``of``, bytes of large files that are there and of all. The last line that it writes is a JSON object, too: ``failed`` is empty or says
``what``, ``where``, ``expected`` and ``remedy``; beside it stand ``seconds`` and ``bytes``, those of large files.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import re
import sys
import threading
import time
import typing as t

#: Files of one repository at once, as the client does it.
WORKERS = 8
#: Beyond this size the hub sends a file by its own protocol alone, which the client knows.
LARGEST = 50 * 1000**3
#: How often a hub that asks to wait is asked again, and the most seconds of such a wait.
ATTEMPTS, LONGEST_WAIT = 3, 300
#: How often in a row a connection may be cut before a new byte came.
CUTS = 3
BLOCK, PART = 1 << 22, 1 << 20

PUBLIC = "https://huggingface.co"


#: Seconds between two lines that say how far it is.
SAID_EVERY = 5
#: Bytes of large files that came, from all threads.
received, COUNTING = 0, threading.Lock()


class Damaged(Exception):
    """A file is not what the hub's digest says."""


class Tally:
    """How many bytes of the large files are there, of how many."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._there: dict[str, t.Callable[[], int]] = {}

    def expect(self, sizes: dict[str, int]) -> None:
        """Have files (sha256 and bytes) be among those that are wanted."""
        with COUNTING:
            self._sizes.update(sizes)

    def count(self, sha256: str, bytes_of: t.Callable[[], int]) -> None:
        """Have a file counted, by what says how many bytes of it are there."""
        with COUNTING:
            self._there[sha256] = bytes_of

    def line(self) -> str:
        with COUNTING:
            return json.dumps({"progress": sum(bytes_of() for bytes_of in self._there.values()), "of": sum(self._sizes.values())})

    def say(self, ended: threading.Event) -> None:
        """Write a line now and then until it has ended."""
        while not ended.wait(SAID_EVERY):
            if self._sizes:
                print(self.line(), flush=True)


TALLY = Tally()


class Partial:
    """A file that is appended to, and its sha256 so far. To the client it is a file."""

    def __init__(self, stream: t.BinaryIO) -> None:
        self._stream = stream
        self.rehash()

    def rehash(self) -> None:
        """Compute the digest of what is there."""
        self._digest = hashlib.sha256()
        self._stream.seek(0)
        while block := self._stream.read(BLOCK):
            self._digest.update(block)
        self.size = self._stream.tell()

    def write(self, data: bytes) -> int:
        global received
        self._digest.update(data)
        self.size += len(data)
        with COUNTING:
            received += len(data)
        return self._stream.write(data)

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def truncate(self, size: int | None = None) -> int:
        """Begin again: the server sends all of it although a part was asked for."""
        left = self._stream.truncate(size)
        self.rehash()
        return left

    def digest(self) -> str:
        return self._digest.hexdigest()


@contextlib.contextmanager
def locked(path: pathlib.Path) -> t.Iterator[None]:
    """Hold the lock that the client takes for a file, so that no other process loads it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cache_of(repo: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Return where a repository lies in the cache, and where its locks do."""
    from huggingface_hub import constants

    hub, name = pathlib.Path(constants.HF_HUB_CACHE), "models--" + repo.replace("/", "--")
    return hub / name, hub / ".locks" / name


def load(repo: str, commit: str, name: str, size: int, sha256: str) -> None:
    """Load one large file, unless it is there. Raises :class:`Damaged` and whatever the client raises."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    base, locks = cache_of(repo)
    blob = base / "blobs" / sha256
    TALLY.count(sha256, lambda: size if blob.exists() else 0)
    if blob.exists():
        return
    with locked(locks / f"{sha256}.lock"):
        if blob.exists():
            return
        blob.parent.mkdir(parents=True, exist_ok=True)
        # What a client that was killed left: it begins from the start under another name each time, and never looks at these again.
        for orphan in blob.parent.glob(f"{sha256}.*.incomplete"):
            orphan.unlink()
        path = blob.with_name(f"{sha256}.incomplete")
        try:
            with open(path, "a+b") as stream:
                if os.fstat(stream.fileno()).st_size > size:
                    stream.truncate(0)
                partial = Partial(stream)
                TALLY.count(sha256, lambda: partial.size)
                url, lost = hf_hub_url(repo, name, revision=commit), 0
                while partial.size < size:
                    had = partial.size
                    try:
                        http_get(url, t.cast("t.BinaryIO", partial), resume_size=had, headers=build_hf_headers(), expected_size=size)
                    except Exception as error:
                        # Clients before 2.0 give up at the first cut, each with an exception of its own HTTP library: other errors are raised again.
                        lost = 0 if partial.size > had else lost + 1
                        if lost == CUTS or not any(map(is_cut, chain(error))):
                            raise
                        # There is nothing to wait for: a hub that cuts at once is not asked again in the same moment.
                        time.sleep(1)
                stream.flush()
                os.fsync(stream.fileno())
        finally:
            # Of what never came nothing stays.
            if path.exists() and not path.stat().st_size:
                path.unlink()
        if partial.digest() != sha256:
            path.unlink()
            raise Damaged(f"{name} came with the sha256 {partial.digest()}")
        os.rename(path, blob)


def fetch(wanted: dict[str, t.Any]) -> None:
    """Load one repository, the large files first."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils import filter_repo_objects

    patterns = {word: wanted[word] for word in ("allow_patterns", "ignore_patterns")}
    info = HfApi().model_info(wanted["repo_id"], revision=wanted["revision"], files_metadata=True)
    files = {one.rfilename: one.lfs for one in info.siblings or [] if one.lfs and one.lfs.size and one.lfs.size <= LARGEST}
    names = list(filter_repo_objects(files, **patterns))
    TALLY.expect({files[name].sha256: files[name].size for name in names})
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        jobs = [pool.submit(load, wanted["repo_id"], info.sha, name, files[name].size, files[name].sha256) for name in names]
        try:
            for job in concurrent.futures.as_completed(jobs):
                job.result()
        except BaseException:
            # What runs is left to end, what waits is not begun.
            for job in jobs:
                job.cancel()
            raise
    snapshot_download(**wanted)


# --- what went wrong, in words --------------------------------------------------------------------------------------------------


def chain(error: BaseException | None) -> t.Iterator[BaseException]:
    """Yield an exception and what it came from; the client wraps the hub's refusals."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_cut(error: BaseException) -> bool:
    """Return whether a connection ended before all bytes came, in the words of whichever transport the client has."""
    kind = type(error).__name__
    return bool(re.search("ReadError|Protocol|ReadTimeout|Chunked|IncompleteRead", kind)) or "Consistency check failed" in str(error)


def response_of(error: BaseException) -> t.Any:
    """Return the hub's answer that an exception is about, None for another exception."""
    return next((one.response for one in chain(error) if getattr(one, "response", None) is not None), None)


def wait_of(error: BaseException) -> float | None:
    """Return the seconds after which the hub may be asked again, None when asking again is useless or the wait is too long."""
    answer = response_of(error)
    if answer is None or answer.status_code not in (429, 500, 502, 503, 504):
        return None
    after = answer.headers.get("Retry-After", "")
    seconds = float(after) if after.isdigit() else 0.0
    return seconds if seconds <= LONGEST_WAIT else None


def explain(wanted: dict[str, t.Any], error: BaseException) -> dict[str, str]:
    """Return what went wrong with a repository, where, what was expected, and what to do."""
    repo, revision = wanted["repo_id"], wanted["revision"] or "main"
    hub = plain(os.environ.get("HF_ENDPOINT", PUBLIC).rstrip("/"))
    page, token = f"{hub}/{repo}", bool(os.environ.get("HF_TOKEN_PATH"))
    answer = response_of(error)
    if answer is not None:
        return refusal(repo, revision, page, token, answer)
    where, cache = f"{repo} at {hub}", f"the hub cache, for {repo}"
    for one in chain(error):
        kind = type(one).__name__
        if isinstance(one, Damaged):
            remedy = "Run again to load the file again; if that does not help, ask the operator of the hub or the proxy."
            return problem(str(one), where, "the sha256 that the hub names", remedy)
        if isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "Make room (the playbooks models and prune list what could go), then run again: it goes on."
            return problem("the disk is full", cache, "room for all files", remedy)
        if isinstance(one, PermissionError):
            remedy = "Correct its owner or mode, then run again."
            return problem(f"{one.strerror}: {one.filename}", cache, "a cache that its owner may write to", remedy)
        if re.search("Connect(ion)?(Error|Timeout)|NewConnection|ProxyError|NameResolution|SSLError", kind):
            remedy = "Test it on the node (curl -I), check gb10_hf_endpoint and gb10_env https_proxy, or set gb10_offline and copy the model there."
            return problem(f"the hub cannot be reached ({plain(one)})", where, "an answer", remedy)
        if is_cut(one):
            return problem(f"the connection was cut ({plain(one)})", where, "all bytes of a file", "Run again: it goes on with what came.")
    return problem(plain(error), where, "a download", "Run again; when that stays, try it on the node with the image's own client: hf download.")


def refusal(repo: str, revision: str, page: str, token: bool, answer: t.Any) -> dict[str, str]:
    """Return what the hub's refusal means."""
    status, code = answer.status_code, answer.headers.get("X-Error-Code", "")
    words = answer.headers.get("X-Error-Message", "")
    said, where = f"the hub answers {status}", page
    give = "set gb10_hf_token_file to a file with a token of an account that may read it"
    if code == "GatedRepo":
        what = f"{said}: {repo} is gated, and " + ("the account of this token was not given access" if token else "no token was given")
        return problem(what, where, "an account that was given access", f"Accept the terms at {page}, and {give}.")
    if "Invalid credentials" in words or (status == 401 and token):
        remedy = "Make a new one at the hub, and put it into gb10_hf_token_file."
        return problem(f"{said}: it does not know this token", where, "a token that is valid", remedy)
    if code == "RevisionNotFound":
        remedy = f"Correct revision in the profile; see {page}/commits/main."
        return problem(f"{said}: {repo} has no revision {revision}", where, "a commit or branch of it", remedy)
    if code == "EntryNotFound":
        remedy = "Run again; correct files in the profile when that stays."
        return problem(f"{said}: a file of {repo} is not there", where, "each file that its list names", remedy)
    if code == "RepoNotFound" or status in (401, 404):
        what = f"{said}: there is no repository {repo}, or it is private"
        return problem(what, where, "a repository that may be read", f"Correct its name in the profile, or {give}.")
    if status == 429:
        after = answer.headers.get("Retry-After", "")
        limit = f" (in {after} s)" if after.isdigit() else ""
        remedy = f"Run again later{limit}: it goes on with what came. A token (gb10_hf_token_file) raises the limit."
        return problem(f"{said}: too many requests", where, "an answer", remedy)
    if status >= 500:
        return problem(f"{said}: it is out of order", where, "an answer", "Run again later: it goes on with what came.")
    return problem(f"{said}{': ' + plain(words) if words else ''}", where, "an answer", f"Open {page}, or {give}.")


def problem(what: str, where: str, expected: str, remedy: str) -> dict[str, str]:
    return {"what": what, "where": where, "expected": expected, "remedy": remedy}


def plain(error: object) -> str:
    """Return an exception's words in one line, without what an address carries behind its path or before its host."""
    words = re.sub(r"//[^\s/@]+@", "//", " ".join(str(error).split())) or type(error).__name__
    return re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\")]*", r"\1", words)[:300]


def replaced(identity: str) -> dict[str, str]:
    """Return that this container got another directory than the hub cache, empty when it did not. Nothing was written yet."""
    hub = os.path.join(os.environ["HF_HOME"], "hub")
    status = os.stat(hub)
    if f"{status.st_dev}:{status.st_ino}" == identity:
        return {}
    where, remedy = f"{hub} of the container", "Find out who did that, then run again: ls -ld gb10_hf_home/hub"
    return problem("the hub cache was replaced while this container was started", where, "the directory that was looked at", remedy)


def main(wanted: list[dict[str, t.Any]]) -> dict[str, str]:
    """Load all repositories; return the first problem, empty for none."""
    from huggingface_hub import constants

    # What came of the part that is under way is lost when a connection is cut: a line that is cut often gets nowhere with its 10 MB.
    constants.DOWNLOAD_CHUNK_SIZE = PART
    for one in wanted:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                fetch(one)
                break
            except Exception as error:
                wait = wait_of(error)
                if wait is None or attempt == ATTEMPTS:
                    return explain(one, error)
                print(f"{one['repo_id']}: {plain(error)}; asked again in {wait or 2**attempt} s", file=sys.stderr)
                time.sleep(wait or 2**attempt)
    return {}


if __name__ == "__main__":
    began, ended = time.monotonic(), threading.Event()
    threading.Thread(target=TALLY.say, args=(ended,), daemon=True).start()
    failed = replaced(sys.argv[2]) or main(json.loads(sys.argv[1]))
    ended.set()
    # Its first key is how this line is known.
    print(json.dumps({"failed": failed, "seconds": round(time.monotonic() - began, 1), "bytes": received}))
