# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Creation of new files on the controller. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import os


def create(path: str, content: bytes) -> None:
    """Write a new file, completely or not at all, that only the user may read. Raises OSError; FileExistsError for an existing file, which is not replaced."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as stream:
        try:
            stream.write(content)
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(path)
            raise
