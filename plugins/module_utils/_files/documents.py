# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection's own JSON files: one mapping with a schema, checked when it is read. This module util is PRIVATE to the collection."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files

#: Remedy for a file that only root may read.
UNREAD = "Run the task with become: true."

Content = dict[str, t.Any]


def lacking(record: t.Any, keys: t.Mapping[str, type]) -> str:
    """Return what is missing or of another type in a record, empty if nothing is."""
    if not isinstance(record, dict):
        return "it is not a mapping"
    names = [key for key, kind in keys.items() if not isinstance(record.get(key), kind) or (kind is int and isinstance(record[key], bool))]
    return f"{', '.join(names)}: missing, or of another type" if names else ""


class Document(t.NamedTuple):
    """A kind of file: ``name`` begins the reason of its errors, ``what`` describes it, ``wrong`` returns the problem of a content, empty for none.

    ``remedy`` may name the file as ``{path}``. At most ``limit`` bytes are read.
    """

    name: str
    what: str
    schema: int
    wrong: t.Callable[[Content], str]
    remedy: str
    limit: int = files.SIZE_LIMIT

    def read(self, path: str) -> Content | None:
        """Return the content, None when the file is absent. Raises :class:`UnknownState` for another content, or a file that may not be read."""
        try:
            text = files.required_text(path, self.limit)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnknownState(f"{path} cannot be read: {error.strerror}", remedy=UNREAD, reason=f"{self.name} unread") from error
        broken = {"raw": text[:2000], "remedy": self.remedy.format(path=path), "reason": f"{self.name} broken"}
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UnknownState(f"{path} is not JSON: {error}", **broken) from error
        has_schema = isinstance(content, dict) and content.get("schema") == self.schema
        if why := self.wrong(content) if has_schema else f"its schema is not {self.schema}":
            raise UnknownState(f"{path} is not {self.what}: {why}", **broken)
        return content

    def read_keys(self, path: str, keys: t.Iterable[str]) -> Content | None:
        """Return these keys of the content alone, None when the file is absent. Raises as :meth:`read`."""
        content = self.read(path)
        return {key: content[key] for key in keys} if content else None

    def write(self, path: str, content: t.Mapping[str, t.Any]) -> None:
        """Write the content so that all users may read it, regardless of the umask. Raises OSError."""
        files.write_json(path, {"schema": self.schema, **content}, 0o644)
