# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep the bytecode of what Python imports from an archive, in the directory COMPILED_ONCE.

Ansible sends each module as an archive of sources, and Python keeps no bytecode for those: half of a module's time is compiling the same files again.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import types
import zipimport

_compile = zipimport._compile_source


def _compile_once(path: str, source: bytes) -> types.CodeType:
    kept = os.path.join(os.environ["COMPILED_ONCE"], importlib.util.source_hash(source).hex())
    if not os.path.exists(kept):
        partial = f"{kept}.{os.getpid()}"
        with open(partial, "wb") as stream:
            marshal.dump(_compile(path, source), stream)
        os.replace(partial, kept)
    with open(kept, "rb") as stream:
        return marshal.load(stream)


if "COMPILED_ONCE" in os.environ:
    zipimport._compile_source = _compile_once
