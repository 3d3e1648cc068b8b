# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is copied, and what rsync is told and says. Its outputs were recorded from rsync 3.5.0 of Debian 12."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from copying_pair import COMMIT, blob, cache

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import copy_job
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import Entry

VERSION = """rsync  version 3.5.0  protocol version 32
Copyright (C) 1996-2026 by Andrew Tridgell, Wayne Davison, and others.
"""
COMPARED = """cd+++++++++ blobs/
>f..t...... blobs/aaaa
>fcst...... snapshots/x/a name with spaces
.f...p..... blobs/bbbb
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return cache(tmp_path)


def listed(base: Path, ref: str = "") -> dict[str, Entry]:
    return {entry.path: entry for entry in copying.listing(str(base), COMMIT, ref)}


def test_a_revision_is_its_links_their_files_and_the_refs_that_name_it(base: Path) -> None:
    cache(base.parents[1], files={"other.safetensors": b"other"}, commit="f" * 40)
    (base / "refs/main").write_text(COMMIT)
    (base / "refs/pr").mkdir()
    (base / "refs/pr/1").write_text("f" * 40)
    (base / "snapshots" / COMMIT / "__pycache__").mkdir()
    (base / "snapshots" / COMMIT / "__pycache__/x.pyc").write_text("x")
    found = listed(base)
    assert found["refs/main"].target == COMMIT and "refs/pr/1" not in found
    assert found[f"snapshots/{COMMIT}/sub/c.safetensors"] == Entry(f"snapshots/{COMMIT}/sub/c.safetensors", "link", target=f"blobs/{blob(b'C' * 100, True)}")
    assert found[f"blobs/{blob(b'C' * 100, True)}"].size == 100
    assert not any("pycache" in path or blob(b"other", True) in path for path in found)
    assert copying.entries_of(copying.rows(found.values())) == list(found.values())


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("../../../../../etc/passwd", "outside of the repository"),
        ("/etc/passwd", "outside of the repository"),
        ("../../blobs/none", "does not exist"),
        ("circle", "is a link itself"),
        ("own", "not among the blobs"),
    ],
)
def test_a_link_that_leads_elsewhere_is_named(base: Path, target: str, why: str) -> None:
    (base / "snapshots" / COMMIT / "own").write_text("x")
    (base / "snapshots" / COMMIT / "circle").symlink_to("circle")
    if target != "circle":
        (base / "snapshots" / COMMIT / "circle").unlink()
        (base / "snapshots" / COMMIT / "wrong").symlink_to(target)
    with pytest.raises(ClusterError, match=why) as caught:
        listed(base)
    assert caught.value.reason == "link" and "rm " in caught.value.remedy


def test_a_blob_that_is_a_link_is_named(base: Path) -> None:
    name = base / "blobs" / blob(b"{}", False)
    name.unlink()
    name.symlink_to("/etc/shadow")
    with pytest.raises(ClusterError, match="is a link itself"):
        listed(base)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "blobs/../../x", "blobs//x", "a\nb", "a\0b", "."])
def test_a_list_that_leads_out_of_the_repository_is_refused(path: str) -> None:
    for row in (Entry(path, "file"), Entry("snapshots/x/y", "link", target=path)):
        with pytest.raises(ClusterError, match="not a path inside"):
            copying.entries_of(copying.rows([row]))


def test_a_node_that_has_it_as_plain_files_lacks_no_blob(base: Path, tmp_path: Path) -> None:
    target = tmp_path / "two"
    entries = list(listed(base).values())
    for entry in entries:
        if entry.kind == "link":
            path = target / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((base / entry.target).read_bytes())
    lack = copying.lacking(entries, str(target))
    assert (lack.files, lack.links, lack.other) == ([], [], []) and [entry.path for entry in lack.refs] == ["refs/main"]
    (target / "snapshots" / COMMIT / "config.json").write_bytes(b"other")
    assert copying.lacking(entries, str(target)).other == [f"{target}/snapshots/{COMMIT}/config.json (5 bytes instead of 2)"]


def test_streams_get_about_as_many_bytes(base: Path) -> None:
    files = [Entry(str(number), "file", size) for number, size in enumerate([50, 40, 30, 20, 10])]
    sizes = {entry.path: entry.size for entry in files}
    found = copying.streams(files, sizes, 2)
    assert [[entry.size for entry in stream] for stream in found] == [[50, 20, 10], [40, 30]]
    assert len(copying.streams(files, sizes, 9)) == 5 and copying.streams([], {}, 4) == []


def test_the_version_is_read() -> None:
    assert copying.version_of(VERSION) == (3, 5, 0) and copying.version_of("rsync version v3.4.1 protocol version 32") == (3, 4, 1)
    with pytest.raises(UnknownState):
        copying.version_of("openrsync: protocol version 29")


def test_what_the_source_changed_is_read() -> None:
    assert copying.changed_names(COMPARED) == ["blobs/aaaa", "snapshots/x/a name with spaces"]


def test_the_daemon_reads_alone_for_its_clients_alone_and_ends_by_itself() -> None:
    text = copying.daemon_config([copying.Shared("r0", "/cache/hub/models--a", 1000, 1000)], "/run/x", "10.0.0.1", 20300, ["10.0.0.2", "10.0.0.3"], 12)
    for line in (
        "address = 10.0.0.1", "use chroot = yes", "[r0]", "path = /cache/hub/models--a", "uid = 1000", "read only = yes", "list = no", "hosts deny = *",
        "hosts allow = 10.0.0.2 10.0.0.3", "secrets file = /run/x/secret", "strict modes = yes", "max connections = 12",
    ):  # fmt: skip
        assert line in text.splitlines()
    argv = copying.daemon_argv("/usr/bin/systemd-run", "/usr/bin/rsync", "gb10", "/run/x", 7200)
    assert argv[:5] == ["/usr/bin/systemd-run", "--collect", "--quiet", "--unit", "gb10-copy-gb10.service"] and "RuntimeMaxSec=7200" in argv
    assert "ExecStopPost=/bin/rm -rf /run/x" in argv and argv[-3:] == ["--daemon", "--no-detach", "--config=/run/x/rsyncd.conf"]


def test_a_stream_has_no_secret_in_its_arguments_and_an_address_of_either_kind() -> None:
    argv = copying.client_argv("/usr/bin/rsync", "fd00::2", "fd00::1", 20300, "r0", "/list", "/stage")
    assert argv[-2:] == ["rsync://gb10@[fd00::1]:20300/r0/", "/stage/"] and "--address=fd00::2" in argv and "--password-file=-" in argv
    assert copying.compare_argv(argv)[:3] == ["/usr/bin/rsync", "--dry-run", "--itemize-changes"]


@pytest.mark.parametrize(
    ("rc", "said", "reason"),
    [
        (5, "@ERROR: auth failed on module r0\nrsync error: error starting client-server protocol (code 5) at main.c(1954) [Receiver=3.5.0]", "refused"),
        (
            10,
            "rsync: [Receiver] failed to connect to 127.0.0.1 (127.0.0.1): Connection refused (111)\n"
            "rsync error: error in socket IO (code 10) at clientserver.c(165) [Receiver=3.5.0]",
            "unreachable",
        ),
        (5, "@ERROR: Unknown module 'r9'\nrsync error: error starting client-server protocol (code 5) at main.c(1954) [Receiver=3.5.0]", "busy"),
        (
            23,
            'rsync: [sender] link_stat "/blobs/none" (in r0) failed: No such file or directory (2)\n'
            "rsync error: some files/attrs were not transferred (see previous errors) (code 23) at main.c(1956) [Receiver=3.5.0]",
            "source changed",
        ),
        (10, "rsync: [Receiver] read error: Connection reset by peer (104)", "cut"),
        (-9, "", "killed"),
        (1, "", "rsync"),
    ],
)
def test_why_it_failed(rc: int, said: str, reason: str) -> None:
    failure = copying.why(rc, said)
    assert failure.reason == reason and failure.remedy and failure.line


def test_how_far_it_is() -> None:
    rate = copy_job.Rate()
    assert rate.text(0.0, 0, 4 * copying.GIB) == "0.0 of 4.0 GiB"
    assert rate.text(2.0, copying.GIB, 4 * copying.GIB) == "1.0 of 4.0 GiB, 537 MB/s, 0:06 min left"


def test_one_lock_for_a_cache_however_it_is_named(tmp_path: Path) -> None:
    os.makedirs(tmp_path / "hub")
    (tmp_path / "link").symlink_to("hub")
    assert copying.lock_path("/s", str(tmp_path / "link")) == copying.lock_path("/s", str(tmp_path / "hub"))
