# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides what has to be done so that a measure holds, or is taken back. This plugin util is PRIVATE to the collection.

Each measure is a pure function of what the node answered and of its entry in the record. The role protect carries out the steps. A finding is made for
what is as it should be and for what is left as it is.
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._protect import limits
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect import measures
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect.facts import SWAPPINESS_FILE, Facts

JOURNALD, EARLYOOM, OOMD, UPGRADES = "systemd-journald.service", "earlyoom.service", "systemd-oomd.service", "apt-daily-upgrade.timer"
#: Where the drop-ins go.
FILES = {
    "journal": "/etc/systemd/journald.conf.d/90-gb10-protect.conf",
    "earlyoom": "/etc/systemd/system/earlyoom.service.d/90-gb10-protect.conf",
    "swap": "/etc/sysctl.d/90-gb10-protect.conf",
}
HEADER = "# Written by the playbook protect of gb10.cluster, which also takes it back: -e gb10_protect=revert\n# {}\n"

Entry = dict[str, t.Any]
Say = t.Callable[..., dict[str, t.Any]]


class Plan(t.NamedTuple):
    """The steps of tasks/change.yml, each in words, what is said, and the measure's entry in the record before and after the steps."""

    steps: dict[str, t.Any]
    texts: list[str]
    findings: list[dict[str, t.Any]]
    before: Entry | None = None
    after: Entry | None = None


def _todo(entry: Entry, steps: dict[str, t.Any], texts: list[str], findings: list[dict[str, t.Any]], **fields: t.Any) -> Plan:
    """Return the plan of a change; what the record said of an earlier one stays. Without a step nothing is recorded."""
    if not steps:
        return Plan({}, [], findings)
    changes = [*entry.get("changes", []), *(text for text in texts if not text.startswith("restart "))]
    before = {**entry, **fields, "changes": list(dict.fromkeys(changes)), "done": False}
    return Plan(steps, texts, findings, before, {**before, "done": True})


def untouched(entry: Entry, found: t.Mapping[str, t.Any]) -> bool:
    """Return whether a file is as the record says that it was written."""
    plain = found["exists"] and found["isreg"] and (found["mode"], found["uid"], found["gid"]) == ("0644", 0, 0)
    return bool(plain and found["checksum"] in entry.get("sha256", []))


def _file(measure: str, text: str, facts: Facts, entry: Entry) -> tuple[dict[str, t.Any], list[str], dict[str, t.Any], str]:
    """Return the steps that put a drop-in in its place, in words, what is recorded of it, and why it cannot be put there."""
    path, content = FILES[measure], HEADER.format(measures.table()[measure]["reason"]) + text
    found, folder, digest = facts.files[path], os.path.dirname(path), hashlib.sha256(content.encode()).hexdigest()
    same = found["exists"] and found.get("checksum") == digest
    if found["exists"] and not untouched(entry, found):
        if same and "sha256" not in entry:
            return {}, [], {}, ""
        whose = "was changed since it was written" if "sha256" in entry else "is not this collection's"
        return {}, [], {}, f"{path} {whose}, and is left as it is"
    if same:
        return {}, [], {}, ""
    recorded = {"sha256": list(dict.fromkeys([*entry.get("sha256", []), digest]))}
    steps, texts = {"path": path, "content": content}, [f"write {path}"]
    if not facts.files[folder]["exists"]:
        steps["directory"], recorded["directory"] = folder, True
        texts.insert(0, f"make {folder}")
    return steps, texts, recorded, ""


def sshd(say: Say, facts: Facts, entry: Entry) -> Plan:
    """Judge the listener that runs, and lower its score alone."""
    listener, score, findings = facts.limit("sshd"), limits.parse_oom_score_adj(facts.unit("ssh.service")["OOMScoreAdjust"]), []
    pid, found = listener["pid"], listener["oom_score_adj"]
    if score < 0:
        message = f"ssh.service has OOMScoreAdjust={score}: OpenSSH gives it to every login, which is then as hard to kill as sshd"
        findings.append(say("warn", message, measured=score, needed=0, remedy="Remove it from the drop-in of ssh.service (systemctl cat ssh)."))
    if pid is None:
        message = "no sshd takes connections now; a socket of systemd may start one, whose score is not known before"
        return Plan({}, [], [*findings, say("warn", message, remedy="Run this again over ssh.")])
    same = entry.get("process") == [pid, facts.started(pid)]
    measured = {"measured": found, "needed": measures.NEVER_KILLED}
    if found == measures.NEVER_KILLED:
        why = "set by this collection, until it ends" if same else "as OpenSSH sets it by itself"
        return Plan({}, [], [*findings, say("pass", f"sshd (pid {pid}) is never killed: {why}", **measured)])
    if not facts.may_lower:
        message = f"sshd (pid {pid}) has an OOM score of {found}, and this node does not let it be lowered (CAP_SYS_RESOURCE is missing, as in containers)"
        return Plan({}, [], [*findings, say("warn", message, remedy="Nothing can be done inside a container; a real node has it.", **measured)])
    text = f"set the OOM score of sshd (pid {pid}) from {found} to {measures.NEVER_KILLED}"
    before = entry["before"] if same else found
    steps = {"pid": pid, "score": measures.NEVER_KILLED}
    return _todo(entry, steps, [text], findings, process=[pid, facts.started(pid)], before=before)


def journal(say: Say, facts: Facts, entry: Entry) -> Plan:
    """Keep the journal on the disk, and sync it often. What others' files set stays theirs."""
    wanted = {"Storage": "persistent", "SyncIntervalSec": f"{measures.SYNC_SECONDS}s"}
    theirs = facts.assigned("/etc/systemd/journald.conf", FILES["journal"], wanted)
    findings = [
        say("warn", f"{path} sets {name}={value}, which stays", measured=value, needed=wanted[name], remedy=f"Take it out of {path}, and repeat.")
        for name, (path, value) in theirs.items()
        if value != wanted[name]
    ]
    own = "".join(f"{name}={value}\n" for name, value in wanted.items() if name not in theirs)
    steps, texts, recorded, left = _file("journal", f"[Journal]\n{own}", facts, entry) if own else ({}, [], {}, "")
    if left:
        return Plan({}, [], [*findings, say("warn", left, remedy="Move it away, and repeat.")])
    if steps or not entry.get("done", True):
        steps["unit"] = {"name": JOURNALD, "state": "restarted"}
        texts.append(f"restart {JOURNALD}")
    elif not findings:
        findings.append(say("pass", f"the journal is kept on the disk and synced every {measures.SYNC_SECONDS} s"))
    return _todo(entry, steps, texts, findings, **recorded)


def _earlyoom_of_yours(say: Say, facts: Facts, live: dict[str, t.Any]) -> dict[str, t.Any] | None:
    """Return what is said of an earlyoom that the owner set up, None where it does nothing and has no settings of theirs."""
    if live["running"] and live["effective"] and live["acts_below_mb"]["of_total"] * 1024 < measures.HEALTHY_KIB:
        return say("pass", f"an earlyoom of yours acts in time: {live['why']}", measured=live["args"])
    masked = facts.unit(EARLYOOM)["UnitFileState"].startswith("masked")
    if not masked and not facts.altered:
        return None
    state = "is masked" if masked else "has settings of yours in /etc/default/earlyoom"
    remedy = f"See that it acts in time: {measures.earlyoom_arguments(facts.kib('MemTotal'))}"
    return say("warn", f"earlyoom {state}, which stay; {live['why']}", measured=live["args"], remedy=remedy)


def earlyoom(say: Say, facts: Facts, entry: Entry) -> Plan:
    """Have an earlyoom that acts in time, unless something else already does, or the owner set one up."""
    package, live, unit = facts.package("earlyoom"), facts.limit("earlyoom"), facts.unit(EARLYOOM)
    installed = package is not None and package.status == "installed"
    if facts.unit(OOMD)["ActiveState"] == "active":
        message = "systemd-oomd is active, and two that end processes are one too many" + (": earlyoom of this collection is there, too" if entry else "")
        return Plan({}, [], [say("warn", message, remedy="Leave it so, or run systemctl disable --now systemd-oomd there, and repeat.")])
    if installed and not entry and (yours := _earlyoom_of_yours(say, facts, live)):
        return Plan({}, [], [yours])
    arguments = measures.earlyoom_arguments(facts.kib("MemTotal"))
    text = f'[Service]\nEnvironmentFile=\nEnvironment="EARLYOOM_ARGS={arguments}"\n{measures.EARLYOOM_FIRST}'
    steps, texts, recorded, left = _file("earlyoom", text, facts, entry)
    if left:
        return Plan({}, [], [say("warn", left, remedy="Move it away, and repeat.")])
    again = bool(steps) or not entry.get("done", True)
    if again:
        steps["reload"] = True
    # A package that starts without the drop-in would act at 10 % of available memory, under a healthy engine: the drop-in comes first.
    if not installed:
        steps["install"] = "earlyoom"
        recorded["package"] = entry.get("package", package.status if package else "not-installed")
        texts.append("install the package earlyoom")
    elif unit["ActiveState"] != "active" or unit["UnitFileState"] == "disabled":
        steps["unit"] = {"name": EARLYOOM, "enabled": True, "state": "started"}
        recorded["unit"] = entry.get("unit", {"enabled": unit["UnitFileState"], "active": unit["ActiveState"]})
        texts.append(f"enable and start {EARLYOOM}")
    elif again:
        steps["unit"] = {"name": EARLYOOM, "state": "restarted"}
        texts.append(f"restart {EARLYOOM}")
    findings = []
    if not steps and not (live["running"] and live["effective"]):
        older = limits.counts_of_user(package.version if package else "")
        remedy = "Use a version before 1.8, such as that of Ubuntu 24.04." if older else "See journalctl -u earlyoom there."
        findings.append(say("warn", f"earlyoom cannot act: {live['why']}", measured=live["args"], remedy=remedy))
    elif not steps:
        message = f"earlyoom acts below {live['acts_below_mb']['of_total']} MiB of available memory, whatever is in swap"
        findings.append(say("pass", message, measured=live["args"]))
    return _todo(entry, steps, texts, findings, **recorded)


def swap(say: Say, facts: Facts, entry: Entry) -> Plan:
    """Have the kernel swap late. A value that the owner set in a file stays."""
    say = functools.partial(say, needed=measures.SWAPPINESS)
    if theirs := facts.assigned("/etc/sysctl", FILES["swap"], ("vm.swappiness",)).get("vm.swappiness"):
        good = theirs[1] == measures.SWAPPINESS
        message, remedy = f"{theirs[0]} sets vm.swappiness to {theirs[1]}, which stays", "" if good else f"Take it out of {theirs[0]}, and repeat."
        return Plan({}, [], [say("pass" if good else "warn", message, measured=theirs[1], remedy=remedy)])
    steps, texts, recorded, left = _file("swap", f"vm.swappiness = {measures.SWAPPINESS}\n", facts, entry)
    if left:
        return Plan({}, [], [say("warn", left, remedy="Move it away, and repeat.")])
    live, none, findings = facts.kernel(SWAPPINESS_FILE), "" if facts.kib("SwapTotal") else "; there is no swap now", []
    if live != measures.SWAPPINESS and not facts.writable:
        message = f"vm.swappiness is still {live}: {SWAPPINESS_FILE} cannot be written here, as in containers. The file counts from the next boot on{none}"
        findings.append(say("warn", message, measured=live, remedy="Set it on the machine underneath."))
    elif live != measures.SWAPPINESS:
        steps["swappiness"] = measures.SWAPPINESS
        recorded["before"] = entry.get("before", live)
        texts.append(f"set vm.swappiness from {live} to {measures.SWAPPINESS}")
    elif not steps:
        findings.append(say("pass", f"vm.swappiness is {live}, also after a boot{none}", measured=live))
    return _todo(entry, steps, texts, findings, **recorded)


def _wanted(facts: Facts) -> dict[str, str]:
    """Return the installed packages that are to be held, with what dpkg is told to do with each."""
    patterns = measures.held_patterns()
    return {one.name: one.want for one in facts.packages if one.status == "installed" and any(fnmatch.fnmatchcase(one.plain, each) for each in patterns)}


def holds(say: Say, facts: Facts, entry: Entry) -> Plan:
    """Hold what is installed of kernel, driver, Docker and containerd. ``begun`` are names of which it is not known yet whether they were held."""
    wanted, made, begun = _wanted(facts), entry.get("made", []), entry.get("begun", [])
    free = [name for name, want in wanted.items() if want == "install"]
    if free:
        plan = _todo(entry, {"packages": free, "selection": "hold"}, [f"hold {', '.join(free)}"], [], made=made, begun=sorted({*begun, *free}))
        return plan._replace(after={**(plan.after or {}), "made": sorted({*made, *free}), "begun": sorted({*begun} - {*free})})
    message = f"{len(wanted)} package(s) are held, {len({*made} & {*wanted})} of them by this collection: {', '.join(wanted) or 'none is installed'}"
    return Plan({}, [], [say("pass" if wanted else "warn", message, remedy="" if wanted else "See dpkg -l: nothing on this node has such a name.")])


def unattended(say: Say, facts: Facts, holding: bool) -> Plan:
    """Report whether upgrades come unattended. ``holding`` says that check mode would hold first."""
    package, periodic = facts.package("unattended-upgrades"), facts.apt("APT::Periodic::Unattended-Upgrade")
    free = [] if holding else [name for name, want in _wanted(facts).items() if want == "install"]
    reasons = {
        "the package is not installed": package is None or package.status != "installed",
        "APT::Periodic::Unattended-Upgrade is 0": not periodic or periodic[-1] in ("", "0"),
        "the timer apt-daily-upgrade is not enabled": facts.unit(UPGRADES)["UnitFileState"] not in ("enabled", "enabled-runtime"),
    }
    if missing := [text for text, lacks in reasons.items() if lacks]:
        return Plan({}, [], [say("pass", f"no upgrades come unattended: {'; '.join(missing)}", measured=False)])
    origins = facts.apt("Unattended-Upgrade::Allowed-Origins::", "Unattended-Upgrade::Origins-Pattern::")
    message = f"upgrades come unattended, from {', '.join(origins) or 'no origin that is named'}"
    if free:
        message += f", and {len(free)} package(s) that an engine needs are not held: {', '.join(free)}"
    last = "" if free else "; what an engine needs is held"
    return Plan({}, [], [say("warn" if free else "pass", message + last, measured=True, remedy="Choose the measure holds as well." if free else "")])


# -- taking back -------------------------------------------------------------------------------------------------------------


class _Back:
    """What takes one measure back, collected part by part. What the owner changed since stays, and is named."""

    def __init__(self, measure: str, say: Say, facts: Facts, entry: Entry) -> None:
        self.measure, self.say, self.facts, self.entry = measure, say, facts, entry
        self.steps: dict[str, t.Any] = {}
        self.texts: list[str] = []
        self.findings: list[dict[str, t.Any]] = []

    def do(self, text: str, **steps: t.Any) -> None:
        """Add steps."""
        self.steps |= steps
        self.texts.append(text)

    def stays(self, message: str, remedy: str) -> None:
        """Name what stays."""
        self.findings.append(self.say("warn", message, remedy=remedy))

    def score(self) -> None:
        """Give sshd its score back, unless another sshd takes connections by now."""
        listener, (pid, start), before = self.facts.limit("sshd"), self.entry["process"], self.entry["before"]
        if listener["pid"] == pid and self.facts.started(pid) == start and listener["oom_score_adj"] != before:
            if listener["oom_score_adj"] == measures.NEVER_KILLED:
                self.do(f"set the OOM score of sshd (pid {pid}) back to {before}", pid=pid, score=before)
            else:
                self.stays(f"the OOM score of sshd is {listener['oom_score_adj']} by now, and stays", "It is yours now.")

    def package(self) -> None:
        """Remove the package; a configuration file that was edited, or was there before, stays."""
        found = self.facts.package("earlyoom")
        if found is None or found.status in ("not-installed", self.entry["package"]):
            return
        edited = self.facts.altered
        keep = edited or self.entry["package"] == "config-files"
        self.do("remove the package earlyoom", remove_package="--remove" if keep else "--purge", reload=True)
        if edited:
            self.stays("/etc/default/earlyoom was changed since it was installed, and stays", "dpkg --purge earlyoom removes it.")

    def file(self) -> None:
        """Remove the drop-in, and its directory if it was made for it and is empty."""
        path, unit = FILES[self.measure], {"journal": JOURNALD, "earlyoom": EARLYOOM}.get(self.measure)
        if self.facts.files[path]["exists"] and not untouched(self.entry, self.facts.files[path]):
            self.stays(f"{path} was changed since it was written, and stays", f"It is yours now: rm {path} removes it.")
            return
        self.do(f"remove {path}", remove_file=path)
        if self.entry.get("directory") and self.facts.files[os.path.dirname(path)]["exists"]:
            self.do(f"remove {os.path.dirname(path)}, if it is empty", remove_directory=os.path.dirname(path))
        if unit == EARLYOOM:
            self.steps["reload"] = True
        if unit and "package" not in self.entry and self.facts.unit(unit)["ActiveState"] == "active":
            self.do(f"restart {unit}", unit={"name": unit, "state": "restarted"})

    def unit(self) -> None:
        """Give earlyoom the state that it had."""
        before = self.entry["unit"]
        off = {"enabled": False} if before["enabled"] == "disabled" else {}
        stopped = {"state": "stopped"} if before["active"] != "active" else {}
        if "package" not in self.entry and (off or stopped) and self.facts.unit(EARLYOOM)["LoadState"] == "loaded":
            self.do(f"bring {EARLYOOM} back to {', '.join(before.values())}", unit={**self.steps.get("unit", {}), "name": EARLYOOM, **off, **stopped})

    def swappiness(self) -> None:
        """Give the kernel its value back."""
        live, before = self.facts.kernel(SWAPPINESS_FILE), self.entry["before"]
        if live == measures.SWAPPINESS:
            self.do(f"set vm.swappiness back to {before}", swappiness=before)
        elif live != before:
            self.stays(f"vm.swappiness is {live} by now, not {measures.SWAPPINESS}, and stays", "It is yours now.")

    def holds(self) -> None:
        """Release the holds; those of which it is not known whose they are stay."""
        held = {one.name for one in self.facts.packages if one.want == "hold"}
        made, begun = ([name for name in self.entry[word] if name in held] for word in ("made", "begun"))
        if made:
            self.do(f"unhold {', '.join(made)}", packages=made, selection="install")
        if begun:
            what = f"{', '.join(begun)} stays held: a run ended before it knew whether it held that, and the owner may have"
            self.stays(what, f"apt-mark unhold {' '.join(begun)} ends that.")


#: What an entry has, and who takes that back, in this order.
_BACK = {
    "process": _Back.score, "package": _Back.package, "sha256": _Back.file, "unit": _Back.unit, "before": _Back.swappiness, "made": _Back.holds,
}  # fmt: skip


def taken_back(measure: str, say: Say, facts: Facts, entry: Entry) -> Plan:
    """Return what takes a measure back. Its entry stays in the record until that is done."""
    back = _Back(measure, say, facts, entry)
    for word, undo in _BACK.items():
        if word in entry and (word, measure) != ("before", "sshd"):
            undo(back)
    return Plan(back.steps, back.texts, back.findings, {**entry, "done": False} if entry else None, None)


def plan(measure: str, node: str, facts: Facts, chosen: t.Collection[str], *, revert: bool, check_mode: bool) -> Plan:
    """Decide one measure. What cannot be read is an unknown finding, and nothing is done then."""
    say = functools.partial(finding, f"protect.{measure}", node, source="" if revert else measures.table()[measure]["figures"][0][2])
    try:
        entry = facts.measures.get(measure, {})
        if revert:
            return taken_back(measure, say, facts, entry)
        if measure == "unattended":
            return unattended(say, facts, check_mode and "holds" in chosen)
        return {"sshd": sshd, "journal": journal, "earlyoom": earlyoom, "swap": swap, "holds": holds}[measure](say, facts, entry)
    except ClusterError as error:
        return Plan({}, [], [say(error.verdict, str(error), measured=error.details.get("raw"), remedy=error.remedy)])
