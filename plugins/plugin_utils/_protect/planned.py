# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides the steps that set up a measure or revert it. This plugin util is PRIVATE to the collection.

Each measure is a pure function of the node's answers and of its entry in the record. The role protect performs the steps. There is a finding for
each correct state and for each state that is not changed.
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._protect import limits
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect import measures
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect.facts import Facts, sysctl_file

JOURNALD, EARLYOOM, OOMD, UPGRADES = "systemd-journald.service", "earlyoom.service", "systemd-oomd.service", "apt-daily-upgrade.timer"
HOOK = "gb10-on-battery.path"
#: The paths of the files that are written, by the measure; of a second one, the measure stands before the point.
FILES = {
    "journal": "/etc/systemd/journald.conf.d/90-gb10-protect.conf",
    "earlyoom": "/etc/systemd/system/earlyoom.service.d/90-gb10-protect.conf",
    "swap": "/etc/sysctl.d/90-gb10-protect.conf",
    "watchdog": "/etc/systemd/system.conf.d/90-gb10-protect.conf",
    "panic": "/etc/sysctl.d/90-gb10-panic.conf",
    "ups": f"/etc/systemd/system/{HOOK}",
    "ups.service": "/etc/systemd/system/gb10-on-battery.service",
}
#: What the files of the hook for a UPS say. A stop of these units is gentle (docs/unit.md), and a pattern fits only those that there are.
HOOKS = {
    "ups": f"[Unit]\nDescription=NUT's request to stop the engine\n[Path]\nPathExists={measures.ON_BATTERY}\n[Install]\nWantedBy=multi-user.target\n",
    "ups.service": (
        "[Unit]\nDescription=Stop of engine and companions on battery\n[Service]\nType=oneshot\n"
        f"ExecStart=/usr/bin/rm -f {measures.ON_BATTERY}\nExecStart=/usr/bin/systemctl stop gb10-engine-*.service gb10-companions*.service\n"
    ),
}
REEXEC = "restart systemd in place (daemon-reexec)"

CHOOM = ["choom", "-n"]
APT = ["apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=60", "-o", "Dpkg::Options::=--force-confold"]
INSTALL = ["install", "--no-install-recommends", "--no-remove"]
HEADER = "# Written by the playbook protect of gb10.cluster, which also takes it back: -e gb10_protect=revert\n# {}\n"

Entry = dict[str, t.Any]
Fields = dict[str, t.Any]


class Plan(t.NamedTuple):
    """The steps of tasks/change.yml, their texts, the findings, and the measure's entry in the record before and after the steps."""

    steps: dict[str, t.Any]
    texts: list[str]
    findings: list[dict[str, t.Any]]
    before: Entry | None
    after: Entry | None


class Draft:
    """A draft of one measure's plan. ``entry`` is its entry in the record, ``keep`` has the keys to add."""

    def __init__(self, measure: str, node: str, facts: Facts, revert: bool) -> None:
        self.measure, self.facts, self.revert = measure, facts, revert
        source = "" if revert else measures.table()[measure]["figures"][0][2]
        self._finding = functools.partial(measures.FINDINGS[measure], node, source=source)
        self.entry: Entry = {}
        self.keep: Fields = {}
        self.steps: dict[str, t.Any] = {"commands": [], "unit": {}}
        self.texts: list[str] = []
        self.findings: list[dict[str, t.Any]] = []

    def do(self, text: str, *commands: list[str], **steps: t.Any) -> None:
        """Add a step."""
        self.steps["commands"].extend(commands)
        self.steps |= steps
        self.texts.append(text)

    def say(self, verdict: str, message: str, remedy: str = "", **evidence: t.Any) -> None:
        """Add a finding."""
        self.findings.append(self._finding(verdict, message, remedy=remedy, **evidence))

    def restart(self, unit: str, state: str = "restarted", **more: t.Any) -> None:
        """Add the restart of a unit, or another change of its state."""
        self.do(f"restart {unit}", unit={"name": unit, "state": state, **more})

    @property
    def interrupted(self) -> bool:
        """Whether an earlier run did not finish this measure."""
        return not self.entry.get("done", True)

    def plan(self) -> Plan:
        """Return the plan. Without a step the record does not change; the entry of a reverted measure is removed."""
        changes = [*self.entry.get("changes", []), *(text for text in self.texts if not text.startswith("restart "))]
        before = {**self.entry, **self.keep, "changes": list(dict.fromkeys(changes)), "done": False}
        if self.revert:
            return Plan(self.steps, self.texts, self.findings, self.entry or None, None)
        return Plan(self.steps, self.texts, self.findings, before if self.texts else None, {**before, "done": True, **self.steps.pop("after", {})})


def untouched(entry: Entry, file: t.Mapping[str, t.Any]) -> bool:
    """Return whether a file is unchanged since it was written, according to the record."""
    plain = file["exists"] and file["isreg"] and (file["mode"], file["uid"], file["gid"]) == ("0644", 0, 0)
    return bool(plain and file["checksum"] in entry.get("sha256", []))


def _file(draft: Draft, text: str, key: str = "") -> bool:
    """Write a file. Return whether it can be written, or is written already."""
    path, content = FILES[key or draft.measure], HEADER.format(measures.table()[draft.measure]["reason"]) + text
    file, folder, digest = draft.facts.files[path], os.path.dirname(path), hashlib.sha256(content.encode()).hexdigest()
    ours, known = untouched(draft.entry, file), draft.entry.get("sha256", [])
    if file.get("checksum") == digest and (ours or not known):
        return True
    if file["exists"] and not ours:
        whose = "was changed since it was written" if known else "is not this collection's"
        draft.say("warn", f"{path} {whose}, so it is not changed", "Move it away, and repeat.")
        return False
    draft.keep["sha256"] = list(dict.fromkeys([*draft.keep.get("sha256", known), digest]))
    if not draft.facts.files[folder]["exists"]:
        draft.keep["directory"] = True
        draft.do(f"make {folder}", directory=folder)
    draft.do(f"write {path}", files={**draft.steps.get("files", {}), path: content})
    return True


def _theirs_sets(draft: Draft, place: str, name: str, wanted: str) -> bool:
    """Return whether a file of the owner below ``place`` sets a value, which stays; add a finding for it."""
    path, value = draft.facts.assigned(place, FILES[draft.measure], (name,)).get(name, ("", ""))
    if path:
        remedy = "" if value == wanted else f"Take it out of {path}, and repeat."
        draft.say("warn" if remedy else "pass", f"{path} sets {name} to {value}, which stays", remedy, measured=value, needed=wanted)
    return bool(path)


def sshd(draft: Draft) -> None:
    """Judge the running listener, and lower only its score."""
    facts, listener = draft.facts, draft.facts.limit("sshd")
    pid, live, score = listener["pid"], listener["oom_score_adj"], limits.parse_oom_score_adj(facts.unit("ssh.service")["OOMScoreAdjust"])
    if score < 0:
        message = f"ssh.service has OOMScoreAdjust={score}: OpenSSH gives it to every login, which is then as hard to kill as sshd"
        draft.say("warn", message, "Remove it from the drop-in of ssh.service (systemctl cat ssh).", measured=score, needed=0)
    if pid is None:
        message = "no sshd takes connections now; a socket of systemd may start one, whose score is not known before"
        return draft.say("warn", message, "Run this again over ssh.")
    process, evidence = [pid, facts.started(pid)], {"measured": live, "needed": measures.NEVER_KILLED}
    same = draft.entry.get("process") == process
    if live == measures.NEVER_KILLED:
        why = "set by this collection, until it ends" if same else "as OpenSSH sets it by itself"
        return draft.say("pass", f"sshd (pid {pid}) is never killed: {why}", **evidence)
    if not facts.may_lower:
        message = f"sshd (pid {pid}) has an OOM score of {live}, and this node does not let it be lowered (CAP_SYS_RESOURCE is missing, as in containers)"
        return draft.say("warn", message, "Nothing can be done inside a container; a real node has it.", **evidence)
    draft.keep = {"process": process, "before": draft.entry["before"] if same else live}
    draft.do(f"set the OOM score of sshd (pid {pid}) from {live} to {measures.NEVER_KILLED}", [*CHOOM, str(measures.NEVER_KILLED), "-p", str(pid)])
    return None


def journal(draft: Draft) -> None:
    """Keep the journal on disk, and sync it often. Settings in other files are not changed."""
    wanted = {"Storage": "persistent", "SyncIntervalSec": f"{measures.SYNC_SECONDS}s"}
    theirs = draft.facts.assigned("/etc/systemd/journald.conf", FILES["journal"], wanted)
    for name, (path, value) in theirs.items():
        if value != wanted[name]:
            draft.say("warn", f"{path} sets {name}={value}, which stays", f"Take it out of {path}, and repeat.", measured=value, needed=wanted[name])
    own = "".join(f"{name}={value}\n" for name, value in wanted.items() if name not in theirs)
    if own and not _file(draft, f"[Journal]\n{own}"):
        return
    if draft.texts or draft.interrupted:
        draft.restart(JOURNALD)
    elif not draft.findings:
        draft.say("pass", f"the journal is kept on the disk and synced every {measures.SYNC_SECONDS} s")


def _theirs(draft: Draft, live: dict[str, t.Any], unit: dict[str, str]) -> bool:
    """Return whether the owner installed an earlyoom that acts in time, or configured it; add a finding for either."""
    if live["running"] and live["effective"] and live["acts_below_mb"]["of_total"] * 1024 < measures.HEALTHY_KIB:
        draft.say("pass", f"an earlyoom of yours acts in time: {live['why']}", measured=live["args"])
    elif unit["UnitFileState"].startswith("masked") or draft.facts.altered:
        state = "is masked" if unit["UnitFileState"].startswith("masked") else "has settings of yours in /etc/default/earlyoom"
        remedy = f"See that it acts in time: {measures.earlyoom_arguments(draft.facts.kib('MemTotal'))}"
        draft.say("warn", f"earlyoom {state}, which stay; {live['why']}", remedy, measured=live["args"])
    return bool(draft.findings)


def earlyoom(draft: Draft) -> None:
    """Set up an earlyoom that acts in time, unless something else already does, or the owner set one up."""
    facts, entry = draft.facts, draft.entry
    package, live, unit = facts.package("earlyoom"), facts.limit("earlyoom"), facts.unit(EARLYOOM)
    installed = package is not None and package.status == "installed"
    if facts.unit(OOMD)["ActiveState"] == "active":
        message = "systemd-oomd is active, and only one program should end processes" + ("; this collection's earlyoom is installed, too" if entry else "")
        return draft.say("warn", message, "Keep it, or run systemctl disable --now systemd-oomd there, and repeat.")
    if installed and not entry and _theirs(draft, live, unit):
        return None
    arguments = measures.earlyoom_arguments(facts.kib("MemTotal"))
    if not _file(draft, f'[Service]\nEnvironmentFile=\nEnvironment="EARLYOOM_ARGS={arguments}"\n{measures.EARLYOOM_FIRST}'):
        return None
    # Without the drop-in, the package would act at 10 % of available memory, under a healthy engine: the drop-in is written first.
    if not installed:
        draft.keep["package"] = entry.get("package", package.status if package else "not-installed")
        draft.do("install the package earlyoom", *([] if facts.candidate else [[*APT, "update"]]), [*APT, *INSTALL, "earlyoom"])
    elif unit["ActiveState"] != "active" or unit["UnitFileState"] == "disabled":
        draft.keep["unit"] = entry.get("unit", {"enabled": unit["UnitFileState"], "active": unit["ActiveState"]})
        draft.do(f"enable and start {EARLYOOM}", unit={"name": EARLYOOM, "state": "started", "enabled": True, "daemon_reload": True})
    elif draft.texts or draft.interrupted:
        draft.restart(EARLYOOM, daemon_reload=True)
    elif live["running"] and live["effective"]:
        draft.say("pass", f"earlyoom acts below {live['acts_below_mb']['of_total']} MiB of available memory, whatever is in swap", measured=live["args"])
    else:
        older = limits.counts_of_user(package.version if package else "")
        remedy = "Use a version before 1.8, such as that of Ubuntu 24.04." if older else "See journalctl -u earlyoom there."
        draft.say("warn", f"earlyoom cannot act: {live['why']}", remedy, measured=live["args"])
    return None


def swap(draft: Draft) -> None:
    """Make the kernel swap late."""
    sysctl(draft, "" if draft.facts.kib("SwapTotal") else "; there is no swap now")


def sysctl(draft: Draft, note: str = "") -> None:
    """Set a value of the kernel. One that the owner set in a file is not changed."""
    facts, (name, wanted) = draft.facts, measures.SYSCTLS[draft.measure]
    if _theirs_sets(draft, "/etc/sysctl", name, wanted) or not _file(draft, f"{name} = {wanted}\n"):
        return
    path = sysctl_file(name)
    live = facts.kernel(path)
    if live != wanted and facts.writable(path):
        draft.keep["before"] = draft.entry.get("before", live)
        draft.do(f"set {name} from {live} to {wanted}", ["sysctl", "-w", f"{name}={wanted}"])
    elif live != wanted:
        message = f"{name} is still {live}: {path} cannot be written here, as in containers. The file counts from the next boot on{note}"
        draft.say("warn", message, "Set it on the machine underneath.", measured=live, needed=wanted)
    elif not draft.texts:
        draft.say("pass", f"{name} is {live}, also after a boot{note}", measured=live, needed=wanted)


def _wanted(facts: Facts) -> dict[str, str]:
    """Return the installed packages that are to be held, with dpkg's selection of each."""
    patterns = measures.held_patterns()
    installed = [package for package in facts.packages if package.status == "installed"]
    return {package.name: package.want for package in installed if any(fnmatch.fnmatchcase(package.plain, pattern) for pattern in patterns)}


def _free(wanted: t.Mapping[str, str]) -> list[str]:
    """Return the packages that are not held."""
    return [name for name, want in wanted.items() if want == "install"]


def holds(draft: Draft) -> None:
    """Hold the installed packages of kernel, driver, Docker and containerd. ``begun`` are names whose original state is not known yet."""
    wanted, made, begun = _wanted(draft.facts), draft.entry.get("made", []), draft.entry.get("begun", [])
    if free := _free(wanted):
        draft.keep = {"made": made, "begun": sorted({*begun, *free})}
        draft.do(f"hold {', '.join(free)}", packages=free, selection="hold", after={"made": sorted({*made, *free}), "begun": sorted({*begun} - {*free})})
    elif wanted:
        draft.say("pass", f"{len(wanted)} package(s) are held, {len({*made} & {*wanted})} of them by this collection: {', '.join(wanted)}")
    else:
        draft.say("warn", "none of the packages to hold is installed", "See dpkg -l: nothing on this node has such a name.")


def unattended(draft: Draft) -> None:
    """Report whether unattended upgrades run."""
    facts = draft.facts
    package, periodic, free = facts.package("unattended-upgrades"), facts.apt("APT::Periodic::Unattended-Upgrade"), _free(_wanted(facts))
    reasons = {
        "the package is not installed": package is None or package.status != "installed",
        "APT::Periodic::Unattended-Upgrade is 0": not periodic or periodic[-1] in ("", "0"),
        "the timer apt-daily-upgrade is not enabled": facts.unit(UPGRADES)["UnitFileState"] not in ("enabled", "enabled-runtime"),
    }
    if missing := [text for text, lacks in reasons.items() if lacks]:
        return draft.say("pass", f"no upgrades come unattended: {'; '.join(missing)}", measured=False)
    origins = facts.apt("Unattended-Upgrade::Allowed-Origins::", "Unattended-Upgrade::Origins-Pattern::")
    message = f"upgrades come unattended, from {', '.join(origins) or 'no origin that is named'}"
    if free:
        message += f", and {len(free)} package(s) that an engine needs are not held: {', '.join(free)}"
        return draft.say("warn", message, "Set up the measure holds.", measured=True)
    return draft.say("pass", f"{message}; what an engine needs is held", measured=True)


def watchdog(draft: Draft) -> None:
    """Let systemd ping the hardware's watchdog, where there is one that it does not ping already."""
    (live, pings), wanted = draft.facts.watchdog, measures.WATCHDOG
    evidence = {"measured": live, "needed": wanted}
    if not draft.entry and live != "0" and pings:
        return draft.say("pass", f"systemd pings the hardware's watchdog already, with a RuntimeWatchdogSec of {live}", **evidence)
    if _theirs_sets(draft, "/etc/systemd/system.conf", "RuntimeWatchdogSec", wanted):
        return None
    if not draft.facts.writable(measures.WATCHDOG_DEVICE):
        message = f"this node has no {measures.WATCHDOG_DEVICE}, so nothing can reset it when it hangs"
        return draft.say("warn", message, "Load the driver of its watchdog (a Spark's is sbsa_gwdt; a container has none), and repeat.", **evidence)
    if not _file(draft, f"[Manager]\nRuntimeWatchdogSec={wanted}\n"):
        return None
    if live != wanted:
        draft.do(REEXEC, unit={"daemon_reexec": True})
    elif pings:
        draft.say("pass", f"the hardware resets this node when systemd hangs for {live}", **evidence)
    else:
        remedy = "See fuser -v /dev/watchdog0 and journalctl -b _PID=1 there: another program may hold it."
        draft.say("warn", f"systemd has a watchdog of {live} and does not ping it", remedy, **evidence)
    return None


def ups(draft: Draft) -> None:
    """Set up the hook that NUT uses on battery. NUT's own files are the owner's, and only read."""
    facts = draft.facts
    if missing := [line for pattern, line in measures.NUT if not facts.nut(pattern)]:
        message = f"NUT's files, which are yours, lack {len(missing)} line(s), so nothing stops an engine here on battery"
        remedy = f"Where NUT monitors your UPS on this node, add to {'; to '.join(missing)}. Then restart nut-monitor, and repeat."
        return draft.say("warn", message, remedy)
    written = [_file(draft, text, key) for key, text in HOOKS.items()]
    if not all(written):
        # One of them alone does nothing.
        return draft.texts.clear()
    unit = facts.unit(HOOK)
    if draft.texts or draft.interrupted or (unit["ActiveState"], unit["UnitFileState"]) != ("active", "enabled"):
        # A request from before must not act now. By commands, since the module for units fails in check mode for one that does not exist yet.
        draft.do(f"enable and start {HOOK}", ["rm", "-f", measures.ON_BATTERY], ["systemctl", "enable", HOOK], ["systemctl", "restart", HOOK])
    elif facts.nut(measures.TOUCH):
        draft.say("pass", "NUT stops this node's engine and companions when the UPS is on battery for as long as its timer says")
    else:
        message = f"the CMDSCRIPT of NUT is a script of yours: it has to make {measures.ON_BATTERY}, which cannot be seen from here"
        draft.say("warn", message, f"Let it run touch \"$1\" for {measures.ON_BATTERY}, and silence protect.ups.")
    return None


# -- reverting: later changes of the owner are kept and named -----------------------------------------------------------------


def _back_score(draft: Draft) -> None:
    """Restore sshd's score, unless another sshd accepts connections now."""
    listener, (pid, start), before = draft.facts.limit("sshd"), draft.entry["process"], draft.entry["before"]
    same, score = listener["pid"] == pid and draft.facts.started(pid) == start, listener["oom_score_adj"]
    if same and score == measures.NEVER_KILLED:
        draft.do(f"set the OOM score of sshd (pid {pid}) back to {before}", [*CHOOM, str(before), "-p", str(pid)])
    elif same and score != before:
        draft.say("warn", f"the OOM score of sshd is {score} by now, and stays", "It is yours now.")


def _back_package(draft: Draft) -> None:
    """Remove the package; a configuration file that was edited, or existed before, is kept."""
    package, before = draft.facts.package("earlyoom"), draft.entry["package"]
    if package is None or package.status in ("not-installed", before):
        return
    edited = draft.facts.altered
    how = "--remove" if edited or before == "config-files" else "--purge"
    draft.do("remove the package earlyoom", ["dpkg", how, "earlyoom"], unit={"daemon_reload": True})
    if edited:
        draft.say("warn", "/etc/default/earlyoom was changed since it was installed, and stays", "dpkg --purge earlyoom removes it.")


def _back_file(draft: Draft, key: str = "") -> None:
    """Remove the file, and its directory if it was created for it and is empty."""
    facts, path, unit = draft.facts, FILES[key or draft.measure], {"journal": JOURNALD, "earlyoom": EARLYOOM}.get(draft.measure)
    if facts.files[path]["exists"] and not untouched(draft.entry, facts.files[path]):
        return draft.say("warn", f"{path} was changed since it was written, and stays", f"It is yours now: rm {path} removes it.")
    draft.do(f"remove {path}", remove=[*draft.steps.get("remove", []), path])
    if draft.entry.get("directory") and facts.files[os.path.dirname(path)]["exists"]:
        draft.do(f"remove {os.path.dirname(path)}, if it is empty", remove_directory=os.path.dirname(path))
    if unit and "package" not in draft.entry and facts.unit(unit)["ActiveState"] == "active":
        draft.restart(unit, daemon_reload=True)
    return None


def _back_unit(draft: Draft) -> None:
    """Restore the state of the owner's earlyoom."""
    before = draft.entry["unit"]
    off = {**({"enabled": False} if before["enabled"] == "disabled" else {}), **({"state": "stopped"} if before["active"] != "active" else {})}
    if "package" not in draft.entry and off and draft.facts.unit(EARLYOOM)["LoadState"] == "loaded":
        draft.do(f"bring {EARLYOOM} back to {', '.join(before.values())}", unit={**draft.steps["unit"], "name": EARLYOOM, "daemon_reload": True, **off})


def _back_sysctl(draft: Draft) -> None:
    """Restore the kernel's value."""
    (name, wanted), before = measures.SYSCTLS[draft.measure], draft.entry["before"]
    live = draft.facts.kernel(sysctl_file(name))
    if live == wanted != before:
        draft.do(f"set {name} back to {before}", ["sysctl", "-w", f"{name}={before}"])
    elif live != before:
        draft.say("warn", f"{name} is {live} by now, not {wanted}, and stays", "It is yours now.")


def _back_watchdog(draft: Draft) -> None:
    """Remove the drop-in, and let systemd close the watchdog."""
    _back_file(draft)
    if draft.texts:
        draft.do(REEXEC, unit={"daemon_reexec": True})


def _back_hook(draft: Draft) -> None:
    """Disable and remove the hook."""
    if untouched(draft.entry, draft.facts.files[FILES["ups"]]):
        draft.do(f"disable and stop {HOOK}", ["systemctl", "disable", "--now", HOOK])
    for key in HOOKS:
        _back_file(draft, key)
    draft.steps["unit"] = {"daemon_reload": True}


def _back_holds(draft: Draft) -> None:
    """Release the holds, except those of unknown origin."""
    held = {package.name for package in draft.facts.packages if package.want == "hold"}
    made, begun = ([name for name in draft.entry[word] if name in held] for word in ("made", "begun"))
    if made:
        draft.do(f"unhold {', '.join(made)}", packages=made, selection="install")
    if begun:
        what = f"{', '.join(begun)} stays held: a run ended before it knew whether it held that, and the owner may have"
        draft.say("warn", what, f"apt-mark unhold {' '.join(begun)} ends that.")


SET_UP = {
    "sshd": sshd, "journal": journal, "earlyoom": earlyoom, "swap": swap, "holds": holds, "unattended": unattended, "watchdog": watchdog, "panic": sysctl,
    "ups": ups,
}  # fmt: skip
#: The keys of a measure's entry, with the functions that revert them, in this order.
TAKE_BACK = {
    "sshd": {"process": _back_score},
    "journal": {"sha256": _back_file},
    "earlyoom": {"package": _back_package, "sha256": _back_file, "unit": _back_unit},
    "swap": {"before": _back_sysctl, "sha256": _back_file},
    "holds": {"made": _back_holds},
    "watchdog": {"sha256": _back_watchdog},
    "panic": {"before": _back_sysctl, "sha256": _back_file},
    "ups": {"sha256": _back_hook},
}  # fmt: skip


def plan(measure: str, node: str, facts: Facts, *, revert: bool) -> Plan:
    """Decide one measure. For an unreadable answer there is an unknown finding and no step."""
    draft = Draft(measure, node, facts, revert)
    try:
        draft.entry = facts.measures.get(measure, {})
        undo = [back for word, back in TAKE_BACK.get(measure, {}).items() if word in draft.entry]
        for step in undo if revert else [SET_UP[measure]]:
            step(draft)
    except ClusterError as error:
        draft = Draft(measure, node, facts, revert)
        draft.say(error.verdict, str(error), error.remedy, measured=error.details.get("raw"))
    return draft.plan()
