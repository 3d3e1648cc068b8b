# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Explains logs on the controller. Reads them, and writes one record if requested. Contacts no node."""

from __future__ import annotations

import json
import os
import pathlib
import time
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import complete, finding
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import failures, log_files, signature
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import new_file, table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.failure import failure_result

KIND = "gb10.cluster.explain"
#: The node of these findings: the logs are on the controller.
CONTROLLER = "controller"
#: Number of names that a message shows of a long list.
SHOWN = 5


def refuse_existing(path: str) -> None:
    """Raise :class:`ClusterError` when ``path`` exists already, or its directory does not."""
    place = pathlib.Path(path)
    if os.path.lexists(place):
        raise ClusterError("exists already", where=path, expected="the name of a new file", remedy="Give gb10_to another name, or remove the file.")
    if not place.parent.is_dir():
        raise ClusterError(f"there is no directory {place.parent}", where=path, expected="a file in an existing directory", remedy="Make the directory.")


def write_new(path: str, record: dict[str, t.Any]) -> None:
    """Write a record to a new file that only the user can read. Raises :class:`ClusterError`."""
    try:
        new_file.create(path, f"{json.dumps(record, indent=2, ensure_ascii=False)}\n".encode())
    except OSError as error:
        raise ClusterError(f"cannot be written: {error.strerror}", where=path, remedy="Give gb10_to the name of a new file.") from error


def explain(given: str, signatures: t.Iterable[signature.Signature]) -> dict[str, t.Any]:
    """Return the record of a log, or of all logs of a directory. Raises :class:`ClusterError` when none can be read."""
    logs, unread = log_files.find(given)
    files: list[dict[str, t.Any]] = []

    def lines() -> t.Iterator[failures.Line]:
        left = log_files.MOST_BYTES
        for log in logs:
            try:
                if not left:
                    raise log_files.NotText(f"beyond the first {log_files.MOST_BYTES // 1024**2} MiB of all logs")
                content = log_files.read(log, min(left, log_files.MOST_OF_A_FILE))
            except (OSError, log_files.NotText) as error:
                unread.append({"name": log.name, "why": (error.strerror or "cannot be read") if isinstance(error, OSError) else str(error)})
                continue
            left -= min(left, log_files.MOST_OF_A_FILE, content.size)
            files.append({"name": log.name, "node": log.node, "bytes": content.size, "lines": len(content.lines), "cut": content.cut})
            yield from content.lines

    diagnosed = failures.diagnose(lines(), signatures)
    if not files:
        names = "; ".join(f"{file['name']}: {file['why']}" for file in unread[:SHOWN])
        raise ClusterError(f"no log could be read ({names or 'it is empty'})", where=given, expected="text", remedy="Give a log, or a directory with logs.")
    findings = [{**entry, "time": None if entry["time"] is None else utc_text(entry["time"])} for entry in diagnosed] + [*_notes(files, unread)]
    return {"schema": 1, "kind": KIND, "path": given, "verdict": table.worst(findings), "files": files, "unread": unread, "findings": findings}


def _notes(files: list[dict[str, t.Any]], unread: list[dict[str, str]]) -> t.Iterator[dict[str, t.Any]]:
    """Yield findings about what was not read, because it may contain the cause."""
    cut = [file["name"] for file in files if file["cut"]]
    if cut:
        remedy = "Give the part around the failure as a file of its own."
        yield finding("explain.cut", CONTROLLER, "warn", f"only a part was read of: {_listed(cut)}", measured=len(cut), remedy=remedy)
    if unread:
        names = [f"{file['name']} ({file['why']})" for file in unread]
        remedy = "Unpack archives; the rest is mostly not worth reading."
        yield finding("explain.unread", CONTROLLER, "warn", f"not read: {_listed(names)}", measured=len(unread), remedy=remedy)


def _listed(names: t.Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


class ActionModule(ActionBase):
    """Reads logs on the controller, and returns findings."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        started = time.monotonic()
        _result, options = self.validate_argument_spec(
            argument_spec={
                "path": {"type": "path", "required": True},
                "dest": {"type": "path"},
                "signature_dirs": {"type": "list", "elements": "str", "default": []},
            }
        )
        try:
            if options["dest"]:
                refuse_existing(options["dest"])
            signatures = signature.load(options["signature_dirs"], profiles.roots(task_vars or {}))
            # Secrets in a log are removed before its content leaves this plugin, to the screen or to a file.
            record = cleaned(explain(options["path"], signatures), {})
            if options["dest"] and not self._task.check_mode:
                write_new(options["dest"], record)
        except ClusterError as error:
            return cleaned(complete(failure_result(error), started), {})
        return complete({**record, "msg": self._summary(record), "dest": options["dest"] or ""}, started)

    @staticmethod
    def _summary(record: dict[str, t.Any]) -> str:
        number = len(record["files"])
        read = f"{number} log{'s' if number != 1 else ''} read."
        first = next((entry for entry in record["findings"] if entry["verdict"] != "warn"), None)
        if first is None:
            return f"{read} No line says why an engine would fail."
        rank = "" if first["rank"] is None else f", rank {first['rank']}"
        when = f" at {first['time']}" if first["time"] else ""
        certain = {failures.KNOWN: "The first cause is", failures.SUSPECTED: "The cause is not known; suspected is"}
        words = certain.get(first["certainty"], "The cause is unknown:")
        why = f": {first['cause']}. Consequence: {first['consequence']}" if first["cause"] else ""
        return f"{read} {words} {first['id']} on {first['node']}{rank}{when}{why}.\n" + "\n".join(f"  {line}" for line in first["lines"])
