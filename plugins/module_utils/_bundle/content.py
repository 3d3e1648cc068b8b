# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The content of a bundle, and the state of a directory that may be one. This module util is PRIVATE to the collection.

A bundle is a directory of plain files that ``sha256sum --check`` can check. :data:`SUMS` lists each of them, and is written last: a bundle without the
marker :data:`UNFINISHED` is complete. It has no links, so any file system can store it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tempfile
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import programs
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_whole
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import named
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: The version of the format.
FORMAT = 2
#: Its description, the list of its files, the signature of that list, and instructions for its use by hand.
ABOUT, SUMS, SIGNATURE, README = "bundle.json", "SHA256SUMS", "SHA256SUMS.sig", "README.md"
#: Only during an export: the marker, and the directory of incomplete files.
UNFINISHED, PARTS = "bundle.unfinished", "bundle.parts"
#: The directories of its parts.
IMAGE, HUB, DIRECTORIES, PROFILE, WHEELS = "image", "hub", "directories", "profile", "wheels"
PLACES = (IMAGE, HUB, DIRECTORIES, PROFILE, WHEELS)
#: In the names of the files of progress and locks.
KIND = "bundle"
#: Defaults of ``bundle`` that its action plugin needs, too.
TIMEOUT = 14400
STATE_DIR = "/var/lib/gb10"
#: Most bytes of a list: about 250 for each file, and the disk is untrusted.
LIST_LIMIT = 32 << 20
#: The namespace of a signature for ``ssh-keygen -Y``, and the seconds for checking it.
NAMESPACE, SIGNATURE_SECONDS = "file", 30

README_TEXT = """# {profile}, a bundle of gb10.cluster

Image and models for a cluster without Internet: https://github.com/gb10-cluster/gb10.cluster (docs/bundle.md). All commands are run in this directory.

Check it:

    sha256sum --check --strict --quiet SHA256SUMS
    sha256sum SHA256SUMS

The second command prints the digest of the bundle. Compare it with the digest that the bundle's maker sent you, not with one from this disk. A signed
bundle has SHA256SUMS.sig:

    ssh-keygen -Y verify -f ALLOWED_SIGNERS -I SIGNER -n file -s SHA256SUMS.sig < SHA256SUMS

Sign it:

    ssh-keygen -Y sign -f KEY -n file SHA256SUMS

Load it on a node by hand:

    sudo docker load --input {archive}
    rsync --recursive --times --ignore-existing --chmod=D755,F644 hub/ ~/.cache/huggingface/hub/

Models that a profile names by their directory are below directories/, in the order of bundle.json. wheels/ has the Python packages of the image's own layer.

Security: you trust the bundle's maker and everyone with access to the disk. The image runs as root of a container, with the code of its models. The list
shows that nothing changed since it was written. Only a signature shows its author.
"""

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)\Z")

About = dict[str, t.Any]


def is_path(path: t.Any) -> bool:
    """Return whether a text is a path below a directory. ``sha256sum`` escapes names with a backslash, so they are refused."""
    return isinstance(path, str) and bool(path) and not {"", ".", ".."} & set(path.split("/")) and not any(letter in path for letter in "\0\n\\")


def sha256_of(text: bytes) -> str:
    """Return the sha256 of a text."""
    return hashlib.sha256(text).hexdigest()


def text_of(about: About) -> bytes:
    """Return a bundle's description as the text of its file."""
    return json.dumps(about, indent=1, sort_keys=True).encode() + b"\n"


def sums_text(sums: t.Mapping[str, str]) -> bytes:
    """Return the list of a bundle as ``sha256sum`` writes it."""
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(sums.items())).encode(errors="surrogateescape")


def sums_of(text: bytes, where: str) -> dict[str, str]:
    """Return the sha256 of each file of a bundle. Raises :class:`ClusterError` for a list that is not from an export."""
    sums, wrong = {}, []
    for line in text.decode(errors="surrogateescape").split("\n")[:-1]:
        match = _LINE.match(line)
        if match and is_path(match[2]) and (match[2] in (ABOUT, README) or match[2].split("/")[0] in PLACES):
            sums[match[2]] = match[1]
        else:
            wrong.append(repr(line[:120]))
    if wrong or not sums:
        raise ClusterError(
            f"{where} lists files that are not part of a bundle: {named(wrong) or 'none'}", remedy="Use a bundle that this collection wrote.", reason="foreign"
        )
    return sums


class Seen(t.NamedTuple):
    """The state of a directory: ``absent``, ``empty``, ``unfinished`` or ``whole``; its files, its list, and the list's text."""

    what: str
    files: dict[str, os.stat_result]
    sums: dict[str, str]
    text: bytes = b""

    @property
    def digest(self) -> str:
        """Return the sha256 of the list, which the exporter can send to the importer."""
        return sha256_of(self.text) if self.text else ""


def look(path: str) -> Seen:
    """Return the state of a directory that may be a bundle. Raises :class:`ClusterError` for another content, OSError."""
    try:
        entries = list(untrusted.walk(path))
    except FileNotFoundError:
        return Seen("absent", {}, {})
    except NotADirectoryError as error:
        raise ClusterError(f"{path} is a file", expected="a directory", remedy="Set gb10_bundle_dir to a directory.", reason="foreign") from error
    if wrong := [entry.path for entry in entries if not stat.S_ISREG(entry.status.st_mode) and not stat.S_ISDIR(entry.status.st_mode)]:
        raise ClusterError(
            f"{path} has {len(wrong)} link(s) or special file(s): {named(wrong)}",
            expected="only files and directories, as an export writes them",
            remedy="Copy the bundle again, with a tool that copies links as files.",
            reason="link",
            files=wrong,
        )
    files = {entry.path: entry.status for entry in entries if stat.S_ISREG(entry.status.st_mode) and not entry.path.startswith(f"{PARTS}/")}
    text = _read(path, SUMS) if SUMS in files else b""
    sums = sums_of(text, os.path.join(path, SUMS)) if SUMS in files else {}
    if UNFINISHED in files:
        return Seen("unfinished", files, sums, text)
    if entries and not sums:
        raise ClusterError(
            f"{path} is not a bundle: it has {named([entry.path for entry in entries if '/' not in entry.path])}, and no {SUMS}",
            expected="a bundle, or for an export an empty or absent directory",
            remedy="Set gb10_bundle_dir to the bundle itself, or for an export to a new directory.",
            reason="foreign",
        )
    if extra := sorted(set(files) - set(sums) - {SUMS, SIGNATURE}):
        raise ClusterError(
            f"{path} has {len(extra)} file(s) that {SUMS} does not list: {named(extra)}",
            remedy="Move your own files away, or copy the bundle again.",
            reason="foreign",
            files=extra,
        )
    return Seen("whole" if entries else "empty", files, sums, text)


def _read(path: str, name: str) -> bytes:
    try:
        return untrusted.read(path, name, LIST_LIMIT)
    except untrusted.Tampered as error:
        raise ClusterError(f"{path}/{name} cannot be used: {error.found}", remedy="Copy the bundle again.", reason="foreign") from error


def about_of(path: str, seen: Seen) -> About:
    """Return the description of a complete bundle in this collection's format. Raises :class:`ClusterError` for any other."""
    if seen.what == "unfinished":
        raise ClusterError(
            f"the bundle {path} is incomplete: its export did not finish, or it was copied before that",
            remedy="Run the export again, which continues there, and copy the bundle again.",
            reason="unfinished",
        )
    if seen.what != "whole":
        raise ClusterError(
            f"there is no bundle in {path}: it is {seen.what}",
            remedy="Copy or mount the bundle there, and name its directory in gb10_bundle_dir.",
            reason="absent",
        )
    if lost := sorted({ABOUT, *seen.sums} - set(seen.files)):
        raise ClusterError(
            f"the bundle {path} lacks {len(lost)} file(s) that it lists: {named(lost)}",
            remedy="Copy the bundle again; nothing was imported.",
            reason="incomplete",
            files=lost,
        )
    text = _read(path, ABOUT)
    if sha256_of(text) != seen.sums.get(ABOUT):
        raise programs.damaged(path, [ABOUT])
    about = parsed(text, os.path.join(path, ABOUT))
    archive = about["image"]["archive"]
    if archive not in seen.sums:
        raise ClusterError(f"the bundle lists no {archive}, which is its image", remedy="Export the bundle again.", reason="foreign", files=[archive])
    return about


def parsed(text: bytes, where: str) -> About:
    """Return a bundle's description. Raises :class:`ClusterError` for another format."""
    try:
        about = json.loads(text)
        if about["format"] != FORMAT:
            raise ClusterError(
                f"{where} has format {about['format']!r}, written by {about.get('made_by', 'an unknown collection')}",
                expected=f"format {FORMAT}, which this collection reads",
                remedy="Use the collection that wrote it here, too, or export with this one.",
                reason="newer",
            )
        image = about["image"]
        texts, lists = [about["profile"], image["tag"], image["archive"], image["store"]], [about["models"], about["wheels"]]
        if [type(value) for value in [*texts, *lists]] != [str] * len(texts) + [list] * len(lists):
            raise ValueError("image, models, wheels or profile")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ClusterError(
            f"{where} does not describe a bundle: {error!r}", remedy="Use a bundle that this collection wrote.", reason="foreign"
        ) from error
    return about


def signer(path: str, seen: Seen, signers: str) -> str:
    """Return the allowed signer of a bundle's list; ``signers`` is a text for ssh-keygen, and without it the result is empty. Raises :class:`ClusterError`."""
    if not signers:
        return ""
    programs.require("ssh-keygen")
    if SIGNATURE not in seen.files:
        raise ClusterError(
            f"the bundle {path} is not signed: it has no {SIGNATURE}",
            remedy=f"Have its maker sign it: ssh-keygen -Y sign -f KEY -n {NAMESPACE} {path}/{SUMS}",
            reason="signature",
        )
    with tempfile.TemporaryDirectory() as place:
        allowed, signature = os.path.join(place, "signers"), os.path.join(place, SIGNATURE)
        write_whole(allowed, f"{signers.rstrip()}\n".encode())
        write_whole(signature, _read(path, SIGNATURE))
        answer = run_tool(["ssh-keygen", "-Y", "find-principals", "-s", signature, "-f", allowed], SIGNATURE_SECONDS)
        who = answer.stdout.partition("\n")[0]
        if answer.rc == 0:
            answer = run_tool(["ssh-keygen", "-Y", "verify", "-f", allowed, "-I", who, "-n", NAMESPACE, "-s", signature], SIGNATURE_SECONDS, seen.text)
    if answer.rc != 0:
        raise ClusterError(
            f"the signature of the bundle {path} is not that of an allowed signer: {answer.raw[:300]}",
            remedy="Use a bundle that one of gb10_bundle_signers signed. After a change, export and sign SHA256SUMS again.",
            reason="signature",
        )
    return who


def write(path: str, name: str, text: bytes, owner: owners.Owner) -> None:
    """Write a small file of a bundle. Raises OSError."""
    with owners.acting_as(owner):
        os.makedirs(os.path.dirname(os.path.join(path, name)), mode=0o755, exist_ok=True)
        write_whole(os.path.join(path, name), text, 0o644)
