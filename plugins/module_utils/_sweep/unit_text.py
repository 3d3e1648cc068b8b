# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sweep's configuration and units. This module util is PRIVATE to the collection."""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._sweep import declared, sweep_files
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import marked

#: Seconds from a boot to the first sweep: units have begun to start their engines by then.
BOOT_SECONDS = 300
#: Seconds after which systemd ends a sweep: each check has its own, shorter limit.
LONGEST_SECONDS = 900

#: The sandbox of a sweep without a mail command. It reads root's files, and writes only below the state directory.
_STRICT = """NoNewPrivileges=yes
CapabilityBoundingSet=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH
ProtectSystem=strict
ReadWritePaths={state_dir}
RestrictSUIDSGID=yes
RestrictNamespaces=yes
"""
#: A mail command writes to its own spool with its own rights (setgid, in the case of Postfix).
_WITH_MAIL = """ProtectSystem=full
"""


def given(suboptions: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the suboptions that were set."""
    return {word: value for word, value in suboptions.items() if value is not None}


def config(params: t.Mapping[str, t.Any]) -> str:
    """Return the configuration of the program, from the options of the module."""
    # The port of another node's sshd, 0 for a node that is not checked.
    ports = {name: int(params["sshd_ports"].get(name, 22)) for name in params["peers"]}
    content = {
        "cluster": params["cluster_name"],
        "node": params["node"],
        **{word: params[word] for word in ("state_dir", "log_dir", "secrets_dir", "docker_socket", "quiet_minutes", "repeat_hours")},
        "floor_gib": params["memory_floor_gib"],
        "starting_s": params["start_timeout"],
        "token_s": params["token_timeout"],
        "silent_s": params["silent_timeout"],
        "ca_file": params["ca_file"],
        "companions": [given(companion) for companion in params["companions"]],
        "endpoints": [given(endpoint) for endpoint in params["endpoints"]],
        "channels": [{**given(channel), "name": declared.name_of(channel)} for channel in params["channels"]],
        "peers": [{"name": name, "addresses": addresses, "port": ports[name]} for name, addresses in params["peers"].items() if ports[name]],
        "roots": {name: params["roots"][name] for name in ("proc_root", "sysfs_root", "etc_root", "meminfo")},
    }
    return f"{json.dumps(content, indent=1, sort_keys=True)}\n"


def service(folder: str, python: str, params: t.Mapping[str, t.Any]) -> str:
    """Return the service, which is one sweep."""
    run, settings = os.path.join(folder, sweep_files.PROGRAM), os.path.join(folder, sweep_files.CONFIG)
    mails = any(channel["type"] == declared.MAIL for channel in params["channels"])
    limits = _WITH_MAIL if mails else _STRICT.format(state_dir=params["state_dir"])
    return marked(
        f"""[Unit]
Description=gb10.cluster health sweep
Documentation=man:systemd.service(5)
After=network-online.target docker.service
Wants=network-online.target

[Service]
Type=oneshot
ExecStart={python} -I {run} sweep --config {settings}
TimeoutStartSec={LONGEST_SECONDS}
RuntimeDirectory=gb10-sweep
RuntimeDirectoryPreserve=yes
UMask=0077
Nice=5
TasksMax=64
MemoryMax=256M
ProtectHome=yes
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
{limits}""",
        sweep_files.MARK,
    )


def timer(minutes: int) -> str:
    """Return the timer."""
    return marked(
        f"""[Unit]
Description=gb10.cluster health sweep, every {minutes} minutes

[Timer]
OnBootSec={BOOT_SECONDS}
OnUnitActiveSec={minutes}min
AccuracySec=30

[Install]
WantedBy=timers.target
""",
        sweep_files.MARK,
    )
