# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files in which a node keeps records of a cluster: a schema and a list, read with suspicion. This module util is PRIVATE to the collection."""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files import files, private
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

SCHEMA = 1

Record = dict[str, t.Any]


class RecordFile:
    """One kind of record, in a file of each cluster's state directory.

    ``name`` is the file's without its ending, ``key`` that of the list in it, ``limit`` the bytes that are read. ``wrong`` says what is wrong with a record,
    and ``writer`` what writes the file again.
    """

    def __init__(self, name: str, key: str, limit: int, wrong: t.Callable[[t.Any], str], writer: str) -> None:
        self._name, self._key, self._limit, self._wrong, self._writer = name, key, limit, wrong, writer

    def path_of(self, state_dir: str, cluster: str) -> str:
        """Return where a node keeps the records of a cluster."""
        return os.path.join(state_dir, cluster, f"{self._name}.json")

    def parse(self, text: str, path: str) -> list[Record]:
        """Return the records in a file's text. Raises :class:`UnknownState` for anything else."""
        broken = {"raw": text[:2000], "remedy": f"Remove {path}: {self._writer}.", "reason": f"{self._name} broken"}
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UnknownState(f"{path} is not JSON: {error}", **broken) from error
        found = content.get(self._key) if isinstance(content, dict) and content.get("schema") == SCHEMA else None
        if not isinstance(found, list) or any(self._wrong(one) for one in found):
            raise UnknownState(f"{path} holds no {self._key} of schema {SCHEMA}", **broken)
        return found

    def read(self, path: str) -> list[Record]:
        """Return the records in a file, none when it does not exist. Raises :class:`UnknownState` when it holds something else or may not be read."""
        try:
            with open(path, encoding="utf-8", errors="replace") as handle:
                return self.parse(handle.read(self._limit), path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unread(path, error) from error

    def on_node(self, state_dir: str) -> list[Record]:
        """Return the records of all clusters of a node, each with its ``cluster``. Raises as :meth:`read` does."""
        try:
            clusters = sorted(os.listdir(state_dir))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unread(state_dir, error) from error
        return [{**one, "cluster": cluster} for cluster in clusters for one in self.read(self.path_of(state_dir, cluster))]

    def write(self, path: str, records: t.Sequence[Record]) -> None:
        """Write the records. Raises :class:`ClusterError` when that is not possible."""
        try:
            private.make(os.path.dirname(path))
            files.write_json(path, {"schema": SCHEMA, self._key: list(records)})
        except OSError as error:
            raise file_error(error, path, BECOME, "write", " cannot be written") from error

    def _unread(self, path: str, error: OSError) -> UnknownState:
        return UnknownState(f"{path} cannot be read: {error.strerror}", remedy=BECOME, reason=f"{self._name} unread")
