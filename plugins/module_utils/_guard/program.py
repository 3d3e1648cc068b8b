# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard as one file that a node runs, and the unit that runs it. This module util is PRIVATE to the collection."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import os
import typing as t
import zipfile

# What is packed has to be what a module carries to the node.
from ansible_collections.gb10.cluster.plugins.module_utils._guard import recorder
from ansible_collections.gb10.cluster.plugins.module_utils._guard.look import CONFIG, MARK, PROGRAM, RING, SERVED

PREFIX = "ansible_collections.gb10.cluster.plugins.module_utils"
#: Bytes of memory that the unit may hold, with the driver's tool that it keeps running.
MEMORY_MAX = "192M"

_MAIN = f"from {recorder.__name__} import main\nraise SystemExit(main())\n"
#: What every file of the archive is dated to, so that the same sources give the same bytes.
_DATE = (2026, 1, 1, 0, 0, 0)


def _source(name: str) -> str | None:
    """Return the source of a module, None when this is a package or none at all."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.loader is None or spec.submodule_search_locations is not None:
        return None
    return t.cast(t.Any, spec.loader).get_source(name)


def sources(name: str = recorder.__name__) -> dict[str, str]:
    """Return a module and all of the collection's that it imports, by their names."""
    found: dict[str, str] = {}
    wanted = [name]
    while wanted:
        one = wanted.pop()
        source = None if one in found else _source(one)
        if source is None:
            continue
        found[one] = source
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PREFIX):
                wanted += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def archive() -> bytes:
    """Return the program: an archive that Python runs."""
    files = {"__main__.py": _MAIN}
    for name, source in sources().items():
        path = name.replace(".", "/")
        files[f"{path}.py"] = source
        while path := os.path.dirname(path):
            files[f"{path}/__init__.py"] = ""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as packed:
        for path in sorted(files):
            about = zipfile.ZipInfo(path, _DATE)
            about.external_attr = 0o644 << 16
            packed.writestr(about, files[path])
    return content.getvalue()


def config(folder: str, act: str, load_seconds: int, addresses: t.Sequence[str], roots: t.Mapping[str, t.Any]) -> str:
    """Return what the program reads when it starts."""
    read = ("proc_root", "sysfs_root", "meminfo", "kernel_log", "nvidia_smi")
    content = {
        "ring": os.path.join(folder, RING),
        "served": os.path.join(folder, SERVED),
        "act": act,
        "load_seconds": load_seconds,
        "addresses": sorted(addresses),
        "roots": {name: roots[name] for name in read},
    }
    return f"{json.dumps(content, indent=1, sort_keys=True)}\n"


def unit(folder: str, python: str) -> str:
    """Return the unit. It is killed late for memory, holds little, and may write nowhere but below ``folder``."""
    program, settings = os.path.join(folder, PROGRAM), os.path.join(folder, CONFIG)
    return f"""{MARK}
[Unit]
Description=gb10.cluster node guard with a black box
Documentation=man:systemd.service(5)
After=local-fs.target docker.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={python} -I {program} --config {settings}
Restart=always
RestartSec=5
TimeoutStopSec=10
OOMScoreAdjust=-900
MemoryMax={MEMORY_MAX}
MemorySwapMax=0
TasksMax=64
CPUQuota=20%
CPUWeight=500
IOWeight=500
Nice=-5
LimitMEMLOCK=infinity
UMask=0022
NoNewPrivileges=yes
CapabilityBoundingSet=CAP_KILL CAP_SYSLOG CAP_SYS_PTRACE CAP_IPC_LOCK CAP_DAC_READ_SEARCH
ProtectSystem=strict
ProtectHome=yes
ReadWritePaths={folder}
PrivateTmp=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictSUIDSGID=yes
RestrictRealtime=yes
RestrictNamespaces=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""
