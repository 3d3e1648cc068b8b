# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a cluster's recovery on a node: its units, and their state for status. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._records import recoveries
from ansible_collections.gb10.cluster.plugins.module_utils._records.recoveries import SERVICE
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import installed
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit, marked, path_of

#: The files in its folder, which only root may enter: the program and its settings.
PROGRAM, CONFIG = "recover.pyz", "recover.json"
#: The file of the key below a cluster's directory of secrets.
KEY = "recover_key"
#: Seconds from the end of a look to the next one, and from a boot to the first one.
PERIOD_SECONDS = 60
#: The most answers at once, and the seconds for one.
MOST_ANSWERS, ANSWER_SECONDS = 8, 10

#: The unit files by their end, with {service}, {cluster}, {run} (the program), {config}, {wants} (the line for the socket), {listen} (its address and port),
#: {alert} (the unit that sends alerts), {period}, {most} and {seconds}. Each answer is a process of its own without capabilities or a network.
TEXTS = {
    ".service": """[Unit]
Description=gb10.cluster recovery of {cluster}, one look
Documentation=man:systemd.service(5)
After=docker.service network-online.target
OnFailure={alert}
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={run} run {config}
TimeoutStartSec=infinity
KillMode=mixed
UMask=0022
NoNewPrivileges=yes
PrivateTmp=yes
LockPersonality=yes
RestrictRealtime=yes
""",
    ".timer": """[Unit]
Description=gb10.cluster recovery of {cluster}
{wants}

[Timer]
OnBootSec={period}
OnUnitInactiveSec={period}
AccuracySec=5

[Install]
WantedBy=timers.target
""",
    ".socket": """[Unit]
Description=gb10.cluster recovery of {cluster}, questions of the other nodes
PartOf={service}.timer

[Socket]
ListenStream={listen}
FreeBind=yes
Accept=yes
MaxConnections={most}
TriggerLimitIntervalSec=0
""",
    "@.service": """[Unit]
Description=gb10.cluster recovery of {cluster}, one answer
CollectMode=inactive-or-failed

[Service]
Type=exec
ExecStart={run} answer {config}
StandardInput=socket
StandardError=journal
RuntimeMaxSec={seconds}
MemoryMax=128M
TasksMax=8
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateNetwork=yes
RestrictAddressFamilies=AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
""",
}


def unit_of(state_dir: str, cluster: str, etc_root: str) -> Unit:
    """Return the timer as the running unit, with the services and the socket."""
    paths = tuple(path_of(f"{SERVICE}{cluster}{end}", etc_root) for end in TEXTS)
    return Unit(f"{SERVICE}{cluster}.timer", paths, os.path.join(state_dir, cluster, recoveries.FOLDER), PROGRAM)


def texts(unit: Unit, cluster: str, python: str, listen: str, alert: str, asked: bool) -> dict[str, bytes]:
    """Return the unit files by path. With ``asked``, other nodes ask for this one's state at the address ``listen``."""
    words = {
        "service": f"{SERVICE}{cluster}", "cluster": cluster, "run": f"{python} -I {unit.program} recover", "config": os.path.join(unit.folder, CONFIG),
        "wants": f"Wants={SERVICE}{cluster}.socket" if asked else "", "listen": listen, "alert": alert, "period": PERIOD_SECONDS, "most": MOST_ANSWERS,
        "seconds": ANSWER_SECONDS,
    }  # fmt: skip
    return {path: marked(text.format_map(words)).encode() for path, text in zip(unit.paths, TEXTS.values())}


def look(unit: Unit, timeout: float = 20) -> dict[str, t.Any]:
    """Return the state of a recovery's timer (see ``installed.look``), what its last look reports (``problems``), and a line about it (``line``).

    Only the head's line shows a recovery without problems: one line a cluster. ``error`` is the reason why its state cannot be read.
    """
    found: dict[str, t.Any] = {**installed.look(unit, timeout), "problems": [], "line": "", "error": ""}
    try:
        state = recoveries.read(*os.path.split(os.path.dirname(unit.folder)))
    except ClusterError as error:
        return {**found, "error": error.with_remedy()}
    problems = list(filter(None, [recoveries.problem(state)]))
    return {**found, "problems": problems, "line": state["line"] if state["shown"] or problems else ""}


def text(found: t.Mapping[str, t.Any]) -> str:
    """Return the state of a recovery as a line, empty where there is none."""
    if not found.get("installed"):
        return installed.text({**found, "error": ""})
    inactive = "" if found["active"] else f"{found['name']} is not active"
    return "; ".join(filter(None, (found["line"], f"recovery: {found['error']}" if found["error"] else "", inactive)))
