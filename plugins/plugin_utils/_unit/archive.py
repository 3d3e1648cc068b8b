# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of all units as one file, built from the collection on the controller. This plugin util is PRIVATE to the collection.

The same sources produce the same bytes, so the digest shows whether a node has the current program.
"""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._service import table
from ansible_collections.gb10.cluster.plugins.module_utils._unit import specification, steps, without_ansible

PLUGINS = "ansible_collections.gb10.cluster.plugins"
#: Date of every file in the archive.
_DATE = (2026, 1, 1, 0, 0, 0)
#: Source of ``__main__.py``: the first argument selects the program.
_MAIN = """import importlib
import sys

COMMANDS = {commands!r}
if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
    print("usage:", " | ".join(COMMANDS), file=sys.stderr)
    sys.exit(2)
sys.exit(importlib.import_module(COMMANDS[sys.argv[1]]).main(sys.argv[2:]))
"""


def files() -> dict[str, bytes]:
    """Return the files of the program: all module utils, and the modules that units run. Raises OSError."""
    top = Path(table.__file__).parents[2]
    paths = [*(top / "module_utils").rglob("*.py"), *(top / "modules" / f"{name}.py" for name in specification.MODULES)]
    contents = {f"{PLUGINS.replace('.', '/')}/{path.relative_to(top).as_posix()}": path.read_bytes() for path in paths}
    contents["ansible/module_utils/basic.py"] = contents[f"{without_ansible.__name__.replace('.', '/')}.py"]
    for path in list(contents):
        while path := os.path.dirname(path):
            contents.setdefault(f"{path}/__init__.py", b"")
    commands = {**{service.key: f"{PLUGINS}.module_utils.{service.main}" for service in table.SERVICES}, "module": steps.__name__}
    return {**contents, "__main__.py": _MAIN.format(commands=commands).encode()}


def content() -> bytes:
    """Return the program: an archive that Python runs. Raises OSError."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as packed:
        for path, text in sorted(files().items()):
            about = zipfile.ZipInfo(path, _DATE)
            about.external_attr = 0o644 << 16
            packed.writestr(about, text)
    return made.getvalue()
