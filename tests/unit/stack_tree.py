# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Proc trees of nodes with a stack, from the recordings in fixtures/stack and from what a test composes."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures" / "stack"

HOST_NETWORK = "net:[4026531840]"
LIMITS = "Limit                     Soft Limit           Hard Limit           Units\n{}\n"
UNLIMITED = "Max locked memory         unlimited            unlimited            bytes"
TCP = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"


def recorded(name: str) -> dict[str, t.Any]:
    """Return the recording of one node."""
    return json.loads((FIXTURES / f"recorded_{name}.json").read_text(encoding="utf-8"))


def hexed(address: str) -> str:
    """An IPv4 address as the kernel writes it in its lists of sockets."""
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))


def socket_line(address: str, port: int, inode: int, state: str = "0A", peer: str = "0.0.0.0", peer_port: int = 0) -> str:
    ends = f"{hexed(address)}:{port:04X} {hexed(peer)}:{peer_port:04X}"
    return f"   0: {ends} {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 100 0 0 10 0"


class Tree:
    """A proc tree of a machine that booted 20,000 seconds ago."""

    def __init__(self, root: Path, network: str = HOST_NETWORK) -> None:
        self.root = root
        self.network = network
        self.tcp: list[str] = []
        self._inode = 5000
        (root / "self/ns").mkdir(parents=True)
        (root / "self/ns/net").symlink_to(network)
        (root / "self/ns/pid").symlink_to("pid:[4026531836]")
        (root / "sys/kernel/random").mkdir(parents=True)
        (root / "sys/kernel/random/boot_id").write_text("2a5dc1f5-3983-4f96-a958-ebff58fa47ab\n")
        (root / "sys/kernel/osrelease").write_text("6.17.0-1032-nvidia\n")
        (root / "sys/vm").mkdir()
        (root / "sys/vm/swappiness").write_text("60\n")
        (root / "vmstat").write_text("pswpin 0\npswpout 0\n")
        (root / "cmdline").write_text("quiet\n")
        (root / "uptime").write_text("20000.00 40000.00\n")
        (root / "stat").write_text("btime 1795264000\n")
        (root / "meminfo").write_text("MemTotal: 127000000 kB\nMemFree: 1 kB\nMemAvailable: 30000000 kB\nBuffers: 1 kB\nCached: 1 kB\nAnonPages: 1000000 kB\n")
        self.process(1, 0, ["/sbin/init"], network=network)

    def replay(self, recording: dict[str, t.Any]) -> Tree:
        """Put a recorded node into the tree, with the network of the machine."""
        self.tcp += recording["tcp"][1:]
        for process in recording["processes"]:
            stat = process["stat"].rpartition(")")[2].split()
            self.process(
                process["pid"], int(stat[1]), process["argv"], env=process["env"], cgroup=process["cgroup"], limits=process["limits"], links=process["fd"],
                stat=process["stat"], nspid=process["NSpid"], network=self.network if recording.get("shares_network", True) else recording["network"],
            )  # fmt: skip
        self.write_sockets()
        return self

    def process(
        self, pid: int, ppid: int, argv: t.Sequence[str], *, env: dict[str, str] | None = None, cgroup: str = "0::/\n", limits: str = UNLIMITED,
        links: t.Sequence[str] = (), stat: str = "", nspid: str = "", network: str = "", listens: t.Sequence[tuple[str, int]] = (), start: int = 1500000,
        packages: t.Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Add a process. ``listens`` are sockets of its own; ``packages`` directories of metadata that its file system has."""
        base = self.root / str(pid)
        (base / "fd").mkdir(parents=True)
        (base / "ns").mkdir()
        (base / "ns/net").symlink_to(network or self.network)
        name = argv[0].rpartition("/")[2][:15] if argv else "kthread"
        rest = ["S", ppid, pid, pid, 0, -1, 0, 0, 0, 0, 0, 900, 330, 0, 0, 20, 0, 1, 0, start, 0, 25600, *[0] * 28]
        (base / "stat").write_text((stat or f"{pid} ({name}) {' '.join(map(str, rest))}") + "\n")
        (base / "status").write_text(f"Name:\t{name}\n{nspid or f'NSpid:	{pid}'}\n")
        (base / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
        (base / "cgroup").write_text(cgroup)
        (base / "limits").write_text(LIMITS.format(limits))
        # No process's memory can be read here, so its starting environment counts.
        (base / "maps").write_text("")
        (base / "exe").symlink_to("/usr/bin/python3")
        (base / "environ").write_bytes(b"".join(f"{name}={value}".encode() + b"\0" for name, value in (env or {}).items()))
        for number, link in enumerate(links, 3):
            (base / "fd" / str(number)).symlink_to(link)
        for address, port in listens:
            self._inode += 1
            self.tcp.append(socket_line(address, port, self._inode))
            (base / "fd" / str(self._inode)).symlink_to(f"socket:[{self._inode}]")
        (base / "net").mkdir()
        if packages:
            library = base / "root/usr/local/lib/python3.12/dist-packages"
            library.mkdir(parents=True)
            for package in packages:
                (library / f"{package}.dist-info").mkdir()
        else:
            (base / "root").mkdir()
        self.write_sockets()

    def write_sockets(self) -> None:
        text = "\n".join([TCP, *self.tcp]) + "\n"
        for base in self.root.iterdir():
            if base.name.isdigit():
                (base / "net/tcp").write_text(text)
        (self.root / "net").mkdir(exist_ok=True)
        (self.root / "net/tcp").write_text(text)
