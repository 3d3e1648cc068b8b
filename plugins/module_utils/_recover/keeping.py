# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The evidence that a recovery keeps before it stops anything. This module util is PRIVATE to the collection.

One file a recovery, without secrets and of limited size; the newest few stay. A source that cannot be read is named with the reason.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import re
import sys
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files, ring
from ansible_collections.gb10.cluster.plugins.module_utils._network import traffic
from ansible_collections.gb10.cluster.plugins.module_utils._redact import redacted, secrets_of
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import checks
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._unit import steps

#: The folder below a cluster's log directory, the names of its files, and how many of them stay.
FOLDER, KEPT = "recover", 5
NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z\.txt")
#: The most characters of one source and of a file, and the seconds for the logs, for any other source, and of the guard's ring.
MOST, MOST_OF_FILE, LOG_SECONDS, SECONDS, RING_SECONDS = 262144, 8388608, 120.0, 10.0, 60.0
#: The kernel's files about what a thread waits for, as the host sees it. The container cannot write them.
THREAD_FILES = ("comm", "wchan", "syscall", "stack")
#: Asks NCCL for its own account of its ranks, which it gives on each node since 2.24 (NCCL's documentation, "RAS"; tried with 2.28.9 on two GPUs of a host).
RAS = """import socket
with socket.create_connection(("127.0.0.1", 28028), 5) as connection:
    connection.sendall(b"verbose status\\n")
    while chunk := connection.recv(65536):
        print(chunk.decode("utf-8", "replace"), end="")"""


def stacks(given: t.Mapping[str, t.Any], own: t.Mapping[str, t.Any]) -> str:
    """Return what each thread of the engine's processes waits for. Raises :class:`UnknownState`."""
    wanted = [f"{given['roots']['proc_root']}/{process['pid']}/task/*/{name}" for process in own["processes"] for name in THREAD_FILES]
    return run_tool(["tail", "--lines=+1", "--verbose", "/dev/null", *sorted(itertools.chain(*map(glob.glob, wanted)))], SECONDS).raw


def ring_end(given: t.Mapping[str, t.Any]) -> list[ring.Record]:
    """Return the last minute of the guard's ring, nothing without a guard. Raises OSError."""
    boots = ring.boots(os.path.join(guard_files.unit_of(given["state_dir"], given["roots"]["etc_root"]).folder, guard_files.RING))
    return ring.window(boots[-1], boots[-1].last - RING_SECONDS, boots[-1].last)[0] if boots else []


#: The sources besides the logs. Each takes the unit's specification and this node's evidence.
SOURCES: dict[str, t.Callable[[t.Any, t.Any], t.Any]] = {
    "evidence": lambda _given, own: own,
    "stacks": stacks,
    "nccl": lambda _given, _own: run_tool([sys.executable, "-I", "-c", RAS], SECONDS).raw,
    "counters": lambda given, _own: traffic.sample(given["roots"]["sysfs_root"], given["roots"]["proc_root"]),
    "guard": lambda given, _own: ring_end(given),
}


def read(name: str, given: t.Mapping[str, t.Any], own: t.Mapping[str, t.Any]) -> str:
    """Return the text of a source, or why there is none."""
    try:
        content = SOURCES[name](given, own)
    except (ClusterError, OSError) as error:
        content = f"unknown: {checks.text_of(error)}"
    return content if isinstance(content, str) else json.dumps(content, indent=1)


def keep(given: t.Mapping[str, t.Any], own: t.Mapping[str, t.Any], run: steps.Run) -> str:
    """Write the evidence of this node, remove the oldest files, and return the path. Raises OSError and :class:`ClusterError`: it is not optional."""
    folder, secrets = os.path.join(given["log_dir"], given["cluster"], FOLDER), secrets_of({})
    options = {"dest": folder, "cluster_name": given["cluster"], "state_dir": given["state_dir"], "log_dir": given["log_dir"], "max_bytes": MOST}
    logs = steps.require("node_logs", run("node_logs", options, LOG_SECONDS, False))["logs"]
    texts = {**{name: read(name, given, own) for name in SOURCES}, **{log["name"]: log["text"] for log in logs}}
    path = os.path.join(folder, f"{utc_text().translate({45: None, 58: None})}.txt")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    # It is redacted before it is cut: a part of a secret is not recognized.
    files.write_text(path, "\n".join(f"== {name}\n{redacted(text, secrets)[-MOST:]}" for name, text in texts.items())[:MOST_OF_FILE], 0o600)
    # Whatever the clock said when the others were written, this one stays.
    for name in [name for name in files.names(folder) if NAME.fullmatch(name) and name != os.path.basename(path)][:1 - KEPT]:
        os.unlink(os.path.join(folder, name))
    return path
