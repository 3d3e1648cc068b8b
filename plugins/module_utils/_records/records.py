# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists of records in a cluster's state directory on a node, checked when they are read. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files import files, private
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import UNREAD, Document

SCHEMA = 1

Record = dict[str, t.Any]


class RecordFile:
    """One kind of record, in one file per cluster.

    ``name`` is the file's name without its ending, and the key of the list in it is ``key``. At most ``limit`` bytes are read. ``problem`` returns what is
    wrong with a record, and ``writer`` names what writes the file again. A new record replaces those with the same ``identity``, and the newest ``keep`` stay.
    """

    def __init__(
        self,
        name: str,
        key: str,
        limit: int,
        problem: t.Callable[[t.Any], str],
        writer: str,
        keep: int,
        identity: t.Callable[[Record], t.Any],
    ) -> None:
        self._name, self._key, self._keep, self._problem, self._identity = name, key, keep, problem, identity
        self._document = Document(name, f"a list of {key}", SCHEMA, self._list_problem, f"Remove {{path}}: {writer}.", limit)

    def _list_problem(self, content: Record) -> str:
        listed = content.get(self._key)
        return next(filter(None, map(self._problem, listed)), "") if isinstance(listed, list) else f"it has no list {self._key}"

    def path_of(self, state_dir: str, cluster: str) -> str:
        """Return the path of a cluster's records on a node."""
        return os.path.join(state_dir, cluster, f"{self._name}.json")

    def read(self, path: str) -> list[Record]:
        """Return the records in a file, none if it does not exist. Raises as :meth:`Document.read` does."""
        return (self._document.read(path) or {self._key: []})[self._key]

    def last(self, state_dir: str, cluster: str) -> Record:
        """Return the newest record of a cluster with an empty ``error``, empty without a record. What is wrong with the file is the ``error``."""
        try:
            records = self.read(self.path_of(state_dir, cluster))
        except UnknownState as error:
            return {"error": error.with_remedy()}
        return {**records[-1], "error": ""} if records else {}

    def with_new(self, records: t.Iterable[Record], new: Record) -> list[Record]:
        """Return the records with a new one, which replaces those with the same identity."""
        return [*(record for record in records if self._identity(record) != self._identity(new)), new][-self._keep:]

    def on_node(self, state_dir: str) -> list[Record]:
        """Return the records of all clusters of a node, each with its ``cluster``. Raises as :meth:`read` does."""
        try:
            clusters = files.names(state_dir)
        except OSError as error:
            raise UnknownState(f"{state_dir} cannot be read: {error.strerror}", remedy=UNREAD, reason=f"{self._name} unread") from error
        return [{**record, "cluster": cluster} for cluster in clusters for record in self.read(self.path_of(state_dir, cluster))]

    def write(self, path: str, records: t.Sequence[Record]) -> None:
        """Write the records. Raises :class:`ClusterError` if they cannot be written."""
        try:
            private.make(os.path.dirname(path))
            files.write_json(path, {"schema": SCHEMA, self._key: list(records)})
        except OSError as error:
            raise file_error(error, path, UNREAD, "write", " cannot be written") from error
