# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of one process in a tree that replaces /proc."""

from __future__ import annotations

import os
import pathlib


def add(root, pid, *argv, ppid=1, state="S", name=None, pages=10, session=0, start=0, cgroup="0::/system.slice/x.service\n"):
    """Put a process into a proc tree, and return its directory."""
    base = pathlib.Path(root) / str(pid)
    base.mkdir(parents=True, exist_ok=True)
    name = os.path.basename(argv[0])[:15] if name is None and argv else name or ""
    fields = [state, ppid, pid, session, *["0"] * 15, start, "0", pages, "0", "0"]
    (base / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}\n")
    (base / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
    (base / "cgroup").write_text(cgroup)
    (base / "status").write_text(f"NSpid:\t{pid}\n")
    return base
