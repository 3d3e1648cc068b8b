# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replay archives of the playbook calibrate through every parser, rule and signature of this collection.

    make field-check FILE=spark.tar.gz
    PYTHONPATH=collections .venv/bin/python tests/tools/field_check.py spark.tar.gz …
    PYTHONPATH=collections .venv/bin/python tests/tools/field_check.py --row spark.tar.gz

Lists what is judged otherwise now than on the machine; exit status 0 when nothing is, 1 when something is, 2 for a file that is not such an archive.
With --row it prints the archive's row for docs/SUPPORT_MATRIX.md instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate import archive, replay

#: The columns of the table.
COLUMNS = ("Archive", "Taken", "Collection", "Nodes", "GPU", "Driver", "Kernel", "Docker", "vLLM", "Starts", "Verdicts")

#: How a reader fails on what somebody else made of an archive's JSON.
FAULTS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def understood(path: str, read: t.Callable[[archive.Content], t.Any]) -> t.Any:
    """Return what ``read`` makes of an archive. Raises :class:`ClusterError`."""
    content = archive.read(path)
    try:
        return read(content)
    except FAULTS as error:
        raise ClusterError(f"{path} is not an archive of calibrate: {error!r}", remedy="Take one: ansible-playbook gb10.cluster.calibrate …") from error


def changes(path: str) -> list[str]:
    """Return one line for each thing that is judged otherwise now. Raises :class:`ClusterError`."""
    return understood(path, replay.changes)


def first(values: t.Iterable[t.Any]) -> str:
    """Return the distinct values of all nodes, those that are known."""
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
    found = 0
    for path in options.files:
        try:
            if options.row:
                print(row(path))
                continue
            lines = changes(path)
        except ClusterError as error:
            print(error.with_remedy(), file=sys.stderr)
            return 2
        found += len(lines)
        print(f"{path}: {len(lines) or 'nothing'} judged otherwise than on the machine")
        print("".join(f"  {line}\n" for line in lines), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
