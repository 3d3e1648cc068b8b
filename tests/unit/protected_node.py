# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated node for the role protect: it answers the role's reads, and the steps of the plan change it in the order of tasks/change.yml."""

from __future__ import annotations

import copy
import datetime
import hashlib
import json
import types
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._protect import limits
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect import measures, planned
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect.facts import NEVER
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import protect, protect_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Outcome, Run

KERNEL = "linux-image-6.17.0-1032-nvidia"
DEFAULT = "/etc/default/earlyoom"
MEMINFO = {"MemTotal": 127600748, "MemAvailable": 30000000, "AnonPages": 4000000, "SwapTotal": 16777212, "SwapFree": 16777212}
RECORD = "/var/lib/gb10/protection.json"
ABSENT = "No such file or directory"
SCHED, MON = "/etc/nut/upssched.conf", "/etc/nut/upsmon.conf"
#: The measures that are on by default.
DEFAULT_NAMES = tuple(name for name in measures.NAMES if name not in measures.costs())


class Cut(Exception):
    """The power fails."""


class ProtectedNode:
    """A node of 121 GiB with swap, an sshd that is not protected, and root's capabilities."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, str]] = {}
        self.directories = {"/etc/sysctl.d", "/etc/systemd/system"}
        names = (KERNEL, "docker-ce", "containerd.io", "bash", "unattended-upgrades")
        self.packages = {name: ["hold" if name == "containerd.io" else "install", "installed", "1"] for name in names}
        self.units = {
            "ssh.service": ["enabled", "active"], "systemd-journald.service": ["static", "active"], "apt-daily-upgrade.timer": ["enabled", "active"],
            planned.EARLYOOM: ["", "inactive"], planned.OOMD: ["", "inactive"], planned.HOOK: ["", "inactive"],
        }  # fmt: skip
        self.apt = {"APT::Periodic::Unattended-Upgrade": "1", "Unattended-Upgrade::Allowed-Origins::": "${distro_id}:${distro_codename}-security"}
        self.swappiness, self.panic, self.capabilities = "60", "0", "000001ffffffffff"
        self.writable = {"/proc/sys/vm/swappiness", "/proc/sys/kernel/panic", measures.WATCHDOG_DEVICE}
        self.watchdog, self.pings, self.holds_watchdog = "0", False, ""
        self.nut: list[str] = []
        self.requested = False
        self.score, self.start, self.unit_score = 0, "700", 0
        self.arguments = ""
        self.candidate, self.mirror = "1.7-1", ""
        self.record: dict[str, t.Any] | None = None
        self.broken: dict[str, dict[str, t.Any]] = {}
        self.refuses: set[str] = set()
        self.cut_at, self.moment = 0, 0
        self.called: list[str] = []

    # -- its answers ---------------------------------------------------------------------------------------------------------

    def _live(self) -> dict[str, t.Any]:
        argv = ["earlyoom", *self.arguments.split()]
        process = types.SimpleNamespace(name="earlyoom", container="", ended=False, ppid=1, pid=4000, argv=argv)
        running = [process] if self.units[planned.EARLYOOM][1] == "active" else []
        return limits.earlyoom(t.cast(t.Any, running), MEMINFO, int(self.swappiness), lambda: self.packages["earlyoom"][2])

    def _settings(self) -> str:
        return "".join(f"{path}:{line}\n" for path, (text, _mode) in self.files.items() for line in text.splitlines() if "=" in line and "#" not in line)

    def _read(self) -> dict[str, dict[str, t.Any]]:
        stat = f"1204 (sshd) S {' '.join(['0'] * 18)} {self.start} 0"
        values = [f"/proc/sys/vm/swappiness:{self.swappiness}", f"/proc/sys/kernel/panic:{self.panic}"]
        proc = [*values, f"/proc/self/status:CapEff:\t{self.capabilities}", f"/proc/1204/stat:{stat}"]
        units = [
            f"OOMScoreAdjust={self.unit_score}\nId={name}\nLoadState={'loaded' if enabled else 'not-found'}\nActiveState={active}\nUnitFileState={enabled}\n"
            for name, (enabled, active) in self.units.items()
        ]
        outputs = {
            "record": json.dumps(self.record) if self.record is not None else "",
            "units": "\n".join(units),
            "packages": "".join("\t".join([name, name, *about]) + "\n" for name, about in self.packages.items()),
            "altered": "??5?????? c /etc/default/earlyoom\n" if self.files.get(DEFAULT, ("stock", ""))[0] != "stock" else "",
            "candidate": f"earlyoom:\n  Installed: (none)\n  Candidate: {self.candidate or '(none)'}\n",
            "apt": "".join(f'{name} "{value}";\n' for name, value in self.apt.items()),
            "settings": self._settings(),
            "writable": "".join(f"{path}\n" for path in sorted(self.writable)),
            "manager": f"WatchdogLastPingTimestampMonotonic={4242 if self.pings else NEVER}\nRuntimeWatchdogUSec={self.watchdog}\n",
            "nut": "".join(f"{line}\n" for line in self.nut),
            "kernel": "\n".join([*proc, *(f"/proc/meminfo:{name}: {value} kB" for name, value in MEMINFO.items())]),
        }
        results: dict[str, dict[str, t.Any]] = {name: {"rc": 0, "stdout": text, "stderr": "", "stderr_lines": []} for name, text in outputs.items()}
        if measures.WATCHDOG_DEVICE not in self.writable:
            results["writable"] |= {"rc": 1, "stderr_lines": [f"find: '{measures.WATCHDOG_DEVICE}': {ABSENT}"]}
        if not self.nut:
            results["nut"] |= {"rc": 2, "stderr_lines": [f"grep: {SCHED}: {ABSENT}", f"grep: {MON}: {ABSENT}"]}
        if self.record is None:
            results["record"] |= {"rc": 1, "stderr_lines": [f"cat: {RECORD}: {ABSENT}"]}
        return {name: {**result, "item": {"key": name, "value": [name, RECORD]}, **self.broken.get(name, {})} for name, result in results.items()}

    def _stat(self, path: str) -> dict[str, t.Any]:
        if path in self.directories:
            return {"exists": True, "isreg": False, "mode": "0755", "uid": 0, "gid": 0}
        if path not in self.files:
            return {"exists": False}
        text, mode = self.files[path]
        return {"exists": True, "isreg": True, "mode": mode, "uid": 0, "gid": 0, "checksum": hashlib.sha256(text.encode()).hexdigest()}

    def answer(self, chosen: t.Sequence[str], failed: dict[str, str] | None = None) -> dict[str, t.Any]:
        """The answers to the role's reads."""
        places = [*planned.FILES.values(), *(path.rpartition("/")[0] for path in planned.FILES.values())]
        return {
            "info": {"limits": {"sshd": {"pid": 1204, "oom_score_adj": self.score}, "earlyoom": self._live()}, "errors": []},
            "read": {"results": list(self._read().values())},
            "files": {"results": [{"item": path, "stat": self._stat(path)} for path in places]},
            "measures": list(chosen),
            "failed": failed,
        }

    # -- its changes ------------------------------------------------------------------------------------------------------

    def _pass(self) -> None:
        self.moment += 1
        if self.moment == self.cut_at:
            raise Cut

    def _write(self, measure: str, entry: dict[str, t.Any] | None) -> None:
        kept = {name: value for name, value in (self.record or {"measures": {}})["measures"].items() if name != measure}
        self.record = {"schema": 1, "measures": json.loads(json.dumps({**kept, **({measure: entry} if entry else {})}))}
        self._pass()

    def _command(self, words: list[str]) -> None:
        self.called.append(" ".join(words))
        if words[0] == "choom":
            self.score = int(words[2])
        elif words[0] == "sysctl":
            name, _sign, value = words[2].partition("=")
            setattr(self, name.rpartition(".")[2], value)
        elif words[0] == "rm":
            self.requested = False
        elif words[0] == "systemctl":
            self._hook(words[1], words[-1])
        elif words[-1] == "update":
            self.candidate = self.candidate or self.mirror
        elif words[0] == "dpkg":
            if words[1] == "--purge":
                del self.packages["earlyoom"]
                self.files.pop(DEFAULT, None)
            else:
                self.packages["earlyoom"][:2] = ["deinstall", "config-files"]
            self.units[planned.EARLYOOM] = ["", "inactive"]
        elif not self.candidate:
            raise RuntimeError("E: Unable to locate package earlyoom")
        else:
            self.packages["earlyoom"] = ["install", "installed", self.candidate]
            self.files.setdefault(DEFAULT, ("stock", "0644"))
            self._unit({"name": planned.EARLYOOM, "enabled": True, "state": "started"})

    def _hook(self, verb: str, name: str) -> None:
        """A path unit that is started while there is a request acts upon it."""
        if f"/etc/systemd/system/{name}" not in self.files:
            raise RuntimeError(f"Unit file {name} does not exist.")
        assert verb != "restart" or not self.requested
        self.units[name] = {"enable": ["enabled", self.units[name][1]], "restart": [self.units[name][0], "active"]}.get(verb, ["disabled", "inactive"])

    def _reexec(self) -> None:
        """systemd reads its drop-in, and opens the watchdog that it finds."""
        text = self.files.get(planned.FILES["watchdog"], ("RuntimeWatchdogSec=0\n", ""))[0]
        self.watchdog = text.rpartition("RuntimeWatchdogSec=")[2].strip()
        self.pings = self.watchdog != "0" and not self.holds_watchdog

    def _unit(self, about: dict[str, t.Any]) -> None:
        if about.get("daemon_reexec"):
            self._reexec()
        if about.get("daemon_reload") and planned.FILES["ups"] not in self.files:
            # The link of an enabled unit outlives its file.
            self.units[planned.HOOK] = [self.units[planned.HOOK][0].replace("disabled", ""), "inactive"]
        unit = self.units.get(about.get("name", ""))
        if unit is None:
            return
        self.called.append(f"{about.get('state')} {about['name']}")
        if "enabled" in about:
            unit[0] = "enabled" if about["enabled"] else "disabled"
        unit[1] = "inactive" if about.get("state") == "stopped" else "active"
        if about["name"] == planned.EARLYOOM and unit[1] == "active":
            text = self.files.get(planned.FILES["earlyoom"], ('EARLYOOM_ARGS=-r 3600"', ""))[0]
            self.arguments = text.rpartition("EARLYOOM_ARGS=")[2].splitlines()[0].rstrip('"')

    def _change(self, change: dict[str, t.Any]) -> None:
        steps = change["steps"]
        self._write(change["measure"], change["before"])
        if change["measure"] in self.refuses:
            raise RuntimeError("it is refused")
        if "directory" in steps:
            self.directories.add(steps["directory"])
        for path, content in steps.get("files", {}).items():
            self.files[path] = (content, "0644")
            self._pass()
        self._pass()
        for words in steps["commands"]:
            self._command(words)
            self._pass()
        for path in steps.get("remove", []):
            self.files.pop(path, None)
            self._pass()
        if "remove_directory" in steps and not any(path.startswith(steps["remove_directory"] + "/") for path in self.files):
            self.directories.discard(steps["remove_directory"])
        self._pass()
        self._unit(steps["unit"])
        for name in steps.get("packages", []):
            self.packages[name][0] = steps["selection"]
            self._pass()
        self._write(change["measure"], change["after"])

    def with_nut(self, script: str = "/usr/bin/touch") -> None:
        """Give it a NUT whose files have the lines that the hook needs."""
        self.nut = [line.replace(": ", ":", 1) for _pattern, line in measures.NUT]
        self.nut[0] = f"{SCHED}:CMDSCRIPT {script}"

    def run(self, *chosen: str, revert: bool = False, check: bool = False) -> Result:
        """Apply the measures as the role does."""
        failed: dict[str, str] = {}

        def ask(stage: t.Any, **settings: t.Any) -> Outcome:
            run = Run({"revert": revert, **settings}, [], "", [], [], datetime.datetime.now(datetime.timezone.utc), check)
            return stage.judge({"spark-1": self.answer(chosen or DEFAULT_NAMES, failed)}, run)

        plan = copy.deepcopy(ask(protect_plan).returns)
        for change in plan["changes"]["spark-1"] if not check else []:
            try:
                self._change(change)
            except RuntimeError as error:
                failed[change["measure"]] = str(error)
        if not check and self.record is not None and not self.record["measures"]:
            self.record = None
        return Result(ask(protect, plan=plan))

    def revert(self, *chosen: str, check: bool = False) -> Result:
        """Revert the measures."""
        return self.run(*chosen, revert=True, check=check)

    def interrupted(self, at: int, **options: t.Any) -> bool:
        """Run until the power fails at a step. Return whether there was such a step."""
        self.cut_at, self.moment = at, 0
        try:
            self.run(**options)
        except Cut:
            return True
        finally:
            self.cut_at = 0
        return False

    def fingerprint(self) -> dict[str, t.Any]:
        """The state that a revert has to restore."""
        words = ("files", "directories", "packages", "units", "swappiness", "panic", "watchdog", "pings", "score", "record")
        return copy.deepcopy({word: getattr(self, word) for word in words})


class Result:
    """What a run passes on about one node."""

    def __init__(self, outcome: Outcome) -> None:
        self.lines = outcome.lines
        result = outcome.stats["gb10_protection"]["nodes"]["spark-1"]
        self.changed, self.actions, self.findings, self.msg, self.journal = (result[word] for word in ("changed", "actions", "findings", "msg", "journal"))

    @property
    def verdicts(self) -> dict[str, str]:
        """The most severe verdict by measure."""
        order, gravest = ["pass", "warn", "block", "unknown"], {}
        for entry in self.findings:
            id = entry["id"].removeprefix("protect.")
            gravest[id] = max(gravest.get(id, "pass"), entry["verdict"], key=order.index)
        return gravest

    @property
    def messages(self) -> str:
        """All messages."""
        return "\n".join(f"{entry['message']} ({entry['remedy']})" for entry in self.findings)
