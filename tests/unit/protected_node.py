# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A made node whose /etc, /proc and tools (systemctl, apt, dpkg) keep what is done to them."""

from __future__ import annotations

import hashlib
import json
import shutil
import types
import typing as t
from pathlib import Path

import process_files
from node_roots import rooted

from ansible_collections.gb10.cluster.plugins.module_utils._protect import act
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult, run_tool
from ansible_collections.gb10.cluster.plugins.modules import node_protection

#: What only asks.
ASKS = ("is-enabled", "is-active", "show", "-W", "policy", "dump", "-s")

KERNEL = "linux-image-6.17.0-1032-nvidia"
STATE: dict[str, t.Any] = {
    "answers": {}, "unit_score": 0, "simulated": "", "candidates": {"earlyoom": "1.7-1"}, "mirror": {},
    "packages": {
        name: {"want": want, "status": "installed", "version": "1"}
        for name, want in ((KERNEL, "install"), ("docker-ce", "install"), ("containerd.io", "hold"), ("bash", "install"), ("unattended-upgrades", "install"))
    },
    "units": {"systemd-journald.service": ["static", "active"], "apt-daily-upgrade.timer": ["enabled", "active"]},
    "apt": [["APT::Periodic::Unattended-Upgrade", "1"], ["Unattended-Upgrade::Allowed-Origins::", "${distro_id}:${distro_codename}-security"]],
}  # fmt: skip


class ProtectedNode:
    """A node of 121 GiB with swap, an sshd that is not protected, and root's capabilities."""

    def __init__(self, place: Path, monkeypatch) -> None:
        self.lacks: set[str] = set()
        self.place, self.etc, self.proc = place, place / "etc", place / "proc"
        for folder in ("etc/systemd", "etc/sysctl.d", "etc/default", "proc/self", "proc/sys/vm"):
            (place / folder).mkdir(parents=True)
        (self.etc / "systemd/journald.conf").write_text("[Journal]\n#Storage=auto\n")
        (self.proc / "self/status").write_text("CapEff:\t000001ffffffffff\n")
        (self.proc / "self/cgroup").write_text("0::/init.scope\n")
        (self.proc / "sys/vm/swappiness").write_text("60\n")
        sizes = "MemTotal: 127600748 kB\nMemFree: 1 kB\nBuffers: 1 kB\nCached: 1 kB\nMemAvailable: 30000000 kB\n"
        sizes += "AnonPages: 4000000 kB\nSwapTotal: 16777212 kB\nSwapFree: 16777212 kB\n"
        (self.proc / "meminfo").write_text(sizes)
        process_files.add(self.proc, 1, "/sbin/init", ppid=0)
        process_files.add(self.proc, 1204, "sshd", start=700)
        self.score = self.proc / "1204/oom_score_adj"
        self.score.write_text("0\n")
        self.called: list[str] = []
        monkeypatch.setattr(node_protection.journals.files, "RUN_DIR", str(place / "run"))
        for module in (node_protection.machine, node_protection.act):
            monkeypatch.setattr(module, "run_tool", self.tool)
        self.change(**STATE)

    @property
    def state(self) -> dict[str, t.Any]:
        path = self.place / "state.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def change(self, **state: t.Any) -> None:
        (self.place / "state.json").write_text(json.dumps({**self.state, **state}))

    def answer(self, tool: str, stdout: str, rc: int = 0) -> None:
        """Have a tool answer this whatever it is asked."""
        self.change(answers={**self.state["answers"], tool: [rc, stdout, ""]})

    def calls(self, *tools: str) -> list[str]:
        """What was called of these tools, without what only asks."""
        return [line for line in self.called if line.split()[0] in tools and not set(line.split()) & set(ASKS)]

    def tool(self, argv: t.Sequence[str], timeout: float) -> ToolResult:
        """Answer as the tools do."""
        words = [word for word in argv if word not in act.QUIET]
        self.called.append(" ".join(words))
        if words[0] in self.lacks:
            return run_tool([str(self.place / words[0])], timeout)
        state = self.state
        if words[0] in state["answers"]:
            return ToolResult(*state["answers"][words[0]])
        found = getattr(self, f"_{words[0].replace('-', '_')}")(state, *words[1:])
        self.change(**state)
        return found if isinstance(found, ToolResult) else ToolResult(0, found or "", "")

    def _systemctl(self, state: dict[str, t.Any], verb: str, *words: str) -> ToolResult | str | None:
        unit, units = words[-1] if words else "", state["units"]
        if verb == "is-enabled" and unit not in units:
            return ToolResult(1, "", f"Failed to get unit file state for {unit}: No such file or directory\n")
        if verb in ("is-enabled", "is-active"):
            return units.get(unit, ["", "inactive"])[verb == "is-active"]
        if verb == "show":
            return str(state["unit_score"])
        if verb == "enable":
            units[unit] = ["enabled", "active"]
            self._earlyoom(True)
        elif verb == "disable":
            units[unit][0] = "disabled"
        elif verb == "stop":
            units[unit][1] = "inactive"
            self._earlyoom(False)
        elif verb == "try-restart" and unit == "earlyoom.service" and units[unit][1] == "active":
            self._earlyoom(True)
        return None

    def _earlyoom(self, running: bool) -> None:
        """Have an earlyoom among the processes, with the arguments of the drop-in."""
        if not running:
            shutil.rmtree(self.proc / "4000", ignore_errors=True)
            return
        drop = self.etc / "systemd/system/earlyoom.service.d/90-gb10-protect.conf"
        text = drop.read_text() if drop.exists() else "EARLYOOM_ARGS=-r 3600"
        process_files.add(self.proc, 4000, "earlyoom", *text.rpartition("EARLYOOM_ARGS=")[2].splitlines()[0].rstrip('"').split(), start=900)

    def _dpkg_query(self, state: dict[str, t.Any], *words: str) -> str:
        if "Conffiles" in words[1]:
            return f" /etc/default/earlyoom {hashlib.md5(b'stock' + bytes([10])).hexdigest()}\n"
        return "".join("\t".join([one, one, about["want"], about["status"], about["version"]]) + "\n" for one, about in state["packages"].items())

    def _apt_cache(self, state: dict[str, t.Any], _verb: str, one: str) -> str:
        version = state["candidates"].get(one)
        return f"{one}:\n  Installed: (none)\n  Candidate: {version}\n  Version table:\n" if version else ""

    def _apt_config(self, state: dict[str, t.Any], _verb: str) -> str:
        return "".join(f'{name} "{value}";\n' for name, value in state["apt"])

    def _apt_mark(self, state: dict[str, t.Any], verb: str, *names: str) -> None:
        for one in names:
            state["packages"][one]["want"] = "hold" if verb == "hold" else "install"

    def _apt_get(self, state: dict[str, t.Any], *words: str) -> str | None:
        one = words[-1]
        if one == "update":
            state["candidates"].update(state["mirror"])
        elif "-s" in words:
            return f"NOTE: This is only a simulation!\nInst {one} (1.7-1 Debian:12 [arm64])\nConf {one} (1.7-1 Debian:12 [arm64])\n{state['simulated']}"
        else:
            state["packages"][one] = {"want": "install", "status": "installed", "version": state["candidates"][one]}
            state["units"][f"{one}.service"] = ["enabled", "active"]
            (self.etc / "default" / one).write_text("stock\n")
            self._earlyoom(True)
        return None

    def _dpkg(self, state: dict[str, t.Any], verb: str, *names: str) -> None:
        for one in names:
            if verb == "--purge":
                del state["packages"][one]
                (self.etc / "default" / one).unlink()
            else:
                state["packages"][one].update(status="config-files", want="deinstall")
            state["units"].pop(f"{one}.service")
        self._earlyoom(False)

    def run(self, *measures: str, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        options = {
            "state": "present", "measures": list(measures or node_protection.CHOICES), "state_dir": str(self.place / "lib/gb10"), "tool_timeout": 20,
            "apt_timeout": 20, "fail_on": [], "etc_root": str(self.etc), "proc_root": str(self.proc),
        }  # fmt: skip
        return node_protection.work(types.SimpleNamespace(params=rooted({**options, **params}), check_mode=check))

    def revert(self, *measures: str, **params: t.Any) -> dict[str, t.Any]:
        return self.run(*measures, state="absent", **params)

    @property
    def journal(self) -> Path:
        return self.place / "lib/gb10/protection.json"

    def fingerprint(self) -> dict[str, t.Any]:
        """Every byte, mode and link below /etc and the state directory, and what tools and kernel say."""
        found: dict[str, t.Any] = {}
        for top in (self.etc, self.place / "lib"):
            for path in sorted(top.rglob("*")):
                mode = path.lstat().st_mode
                found[str(path)] = (mode, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        values = {path: (self.proc / path).read_text().strip() for path in ("sys/vm/swappiness", "1204/oom_score_adj")}
        return {**found, **values, "packages": self.state["packages"], "units": self.state["units"], "earlyoom": (self.proc / "4000").exists()}


def verdicts(result: dict[str, t.Any]) -> dict[str, str]:
    """The gravest verdict by measure."""
    order = ["pass", "warn", "block", "unknown"]
    found: dict[str, str] = {}
    for entry in result["findings"]:
        id = entry["id"].removeprefix("protect.")
        found[id] = max(found.get(id, "pass"), entry["verdict"], key=order.index)
    return found
