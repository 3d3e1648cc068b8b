# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replay archives of the playbook calibrate through every parser, rule and signature of this collection.

    make field-check FILE=spark.tar.gz
    PYTHONPATH=collections .venv/bin/python tests/tools/field_check.py spark.tar.gz …
    PYTHONPATH=collections .venv/bin/python tests/tools/field_check.py --row spark.tar.gz

Lists what is judged differently now than on the machine. The exit status is 0 when nothing is, 1 when something is, 2 for a file that is not such an archive.
With --row it prints the archive's row for docs/SUPPORT_MATRIX.md instead.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import sys
import tarfile
import typing as t
import zlib

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate import archive, replay

#: The columns of the table.
COLUMNS = ("Archive", "Taken", "Collection", "Nodes", "GPU", "Driver", "Kernel", "Docker", "vLLM", "Starts", "Verdicts")

#: How many members an archive may have.
MOST_MEMBERS = 50_000

#: How a reader fails on JSON that another program wrote.
FAULTS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class _Bounded(io.RawIOBase):
    """Reads a compressed file up to a limit: tar reads long names and extended headers into memory, and these are not members with a size."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self._left = archive.MOST_BYTES + MOST_MEMBERS * tarfile.RECORDSIZE

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: t.Any) -> int:
        count = self._stream.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise tarfile.ReadError("it holds more than a calibration can")
        return count


def read_archive(path: str) -> archive.Content:
    """Return an archive's content. Raises :class:`UnknownState` for a file that is not such an archive.

    Nothing is unpacked: members are files and symbolic links, each name once, and every name is a plain one below ``archive.ROOT``.
    """
    content = archive.Content({}, {})
    size = 0
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=io.BufferedReader(_Bounded(stream)), mode="r|") as tar:
            for number, member in enumerate(tar, start=1):
                size += member.size
                what = "there is more of it than a calibration has" if size > archive.MOST_BYTES or number > MOST_MEMBERS else _wrong(member, content)
                if what:
                    raise archive.refused(path, f"{member.name[:200]!r}: {what}")
                name = member.name.partition("/")[2]
                if member.issym():
                    content.links[name] = member.linkname
                elif member.isfile():
                    content.texts[name] = tar.extractfile(member).read().decode("utf-8", "replace")
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, tarfile.TarError) as error:
        raise UnknownState(f"{path} cannot be read as an archive: {error}", reason="not understood") from error
    return content


def _wrong(member: tarfile.TarInfo, before: archive.Content) -> str:
    """Return why a member is not one of a calibration after those ``before``, empty when it is."""
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE) or member.size < 0:
        return "it is neither a file nor a symbolic link"
    top, _slash, name = member.name.partition("/")
    if top != archive.ROOT or not (archive.is_plain(name) or member.isdir()):
        return f"it is not the name of something below {archive.ROOT}"
    return "its name is there twice" if name in before.texts or name in before.links else ""


def verdicts_of(record: dict[str, t.Any]) -> dict[str, dict[str, str]]:
    """Return the verdicts of a record by rule and node, as far as they are not a pass: a rule that is new and passes changes nothing."""
    verdicts: dict[str, dict[str, str]] = {}
    for finding in reversed(record["findings"]):  # the most severe comes first
        verdicts.setdefault(finding["id"], {})[finding["node"]] = finding["verdict"]
    return verdicts


def of_rules(records: dict[str, dict[str, t.Any]]) -> dict[str, t.Any]:
    """Return the verdicts of several records, by their kind."""
    return {kind: verdicts_of(record) for kind, record in records.items()}


def compared(content: archive.Content) -> list[str]:
    """Return one line for each difference between the judgment now and that on the machine. Raises KeyError and ValueError for another archive."""
    before = {**json.loads(content.texts[replay.VERDICTS]), "rules": of_rules(json.loads(content.texts[replay.RECORDS]))}
    now = {**replay.of_texts(content), "rules": of_rules(replay.records(json.loads(content.texts[replay.ASKED])))}
    return list(differences(before, json.loads(json.dumps(now))))


def differences(before: t.Any, now: t.Any, where: str = "") -> t.Iterator[str]:
    """Yield one line for each value that differs; of mappings and lists of one length each part is compared by itself.

    A key that a parser returns in addition now does not count as a difference.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *(() if where.startswith("parsers") else now)}):
            yield from differences(before.get(name), now.get(name), f"{where} > {name}" if where else name)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (old, new) in enumerate(zip(before, now)):
            yield from differences(old, new, f"{where}[{number}]")
    elif before != now:
        yield f"{where}: {json.dumps(before)} on the machine, {json.dumps(now)} now"


def understood(path: str, read: t.Callable[[archive.Content], t.Any]) -> t.Any:
    """Return what ``read`` makes of an archive. Raises :class:`ClusterError`."""
    content = read_archive(path)
    try:
        return read(content)
    except FAULTS as error:
        raise ClusterError(f"{path} is not an archive of calibrate: {error!r}", remedy="Take one: ansible-playbook gb10.cluster.calibrate …") from error


def changes(path: str) -> list[str]:
    """Return one line for each difference. Raises :class:`ClusterError`."""
    return understood(path, compared)


def first(values: t.Iterable[t.Any]) -> str:
    """Return the distinct known values of all nodes."""
    return ", ".join(dict.fromkeys(str(value) for value in values if value)) or "none"


def row(path: str) -> str:
    """Return the row of an archive. Raises :class:`ClusterError`."""
    return understood(path, lambda content: _row(path, content.texts))


def _row(path: str, texts: dict[str, str]) -> str:
    facts = json.loads(texts["calibration.json"])

    def of(name: str) -> list[dict[str, t.Any]]:
        return [json.loads(texts[f"{node}/answers/{name}.json"]) for node in facts["nodes"] if f"{node}/answers/{name}.json" in texts]

    infos = of("info")
    gpus = [gpu for info in infos for gpu in info["gpus"]]
    records = json.loads(texts[replay.RECORDS])
    fields = (
        f"`{os.path.basename(path)}`",
        facts["taken"],
        facts["collection"],
        str(len(facts["nodes"])),
        first(gpu["name"] for gpu in gpus),
        first(gpu["driver_version"] for gpu in gpus),
        first((info["kernel"] or {}).get("release") for info in infos),
        first((info["docker"] or {}).get("version") for info in infos),
        first(engine.get("engine_version") for engine in of("engine")),
        str(sum(len(info.get("starts") or []) for info in of("preflight"))),
        ", ".join(f"{kind} {record['verdict']}" for kind, record in records.items()),
    )
    return f"| {' | '.join(fields)} |"


def main(arguments: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Replay archives of the playbook calibrate.")
    parser.add_argument("--row", action="store_true", help="print the row for docs/SUPPORT_MATRIX.md")
    parser.add_argument("files", nargs="+", metavar="FILE")
    options = parser.parse_args(arguments)
    count = 0
    for path in options.files:
        try:
            if options.row:
                print(row(path))
                continue
            lines = changes(path)
        except ClusterError as error:
            print(error.with_remedy(), file=sys.stderr)
            return 2
        count += len(lines)
        print(f"{path}: {len(lines) or 'nothing'} judged otherwise than on the machine")
        print("".join(f"  {line}\n" for line in lines), end="")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
