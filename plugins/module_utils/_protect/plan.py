# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to be done so that a measure holds, and what has to be said of it. This module util is PRIVATE to the collection.

Each measure is a pure function of what was read, of the journal and of what lies where its files go. A finding is made for what is as it should be
and for what is left as it is; where something has to be done, the actions say so.
"""

from __future__ import annotations

import fnmatch
import functools
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._protect import limits, measures
from ansible_collections.gb10.cluster.plugins.module_utils._protect.journal import Entry, Found, Journal, digest, untouched
from ansible_collections.gb10.cluster.plugins.module_utils._protect.machine import Package

IDS = ("protect.earlyoom", "protect.holds", "protect.journal", "protect.sshd", "protect.swap", "protect.unattended")

MODE = 0o644
JOURNALD, EARLYOOM, RELOAD = "systemd-journald.service", "earlyoom.service", "daemon-reload"

#: Where the drop-ins go, below /etc.
FILES = {
    "journal": "systemd/journald.conf.d/90-gb10-protect.conf",
    "earlyoom": "systemd/system/earlyoom.service.d/90-gb10-protect.conf",
    "swap": "sysctl.d/90-gb10-protect.conf",
}
HEADER = "# Written by the playbook protect of gb10.cluster, which also takes it back: -e gb10_protect=revert\n# {}\n"

REVERT = "ansible-playbook … gb10.cluster.protect -e gb10_protect=revert"

Finding = dict[str, t.Any]


class Action(t.NamedTuple):
    """One change. ``value`` is what its kind needs, ``restarts`` what has to follow it, ``undo`` that it takes an entry of the journal back."""

    kind: str
    measure: str
    target: str
    text: str
    value: t.Any = None
    restarts: tuple[str, ...] = ()
    undo: bool = False


class Plan(t.NamedTuple):
    """What has to be done, in this order, and what is said."""

    actions: list[Action]
    findings: list[Finding]


class Places(t.NamedTuple):
    """The directories from /etc to a drop-in that are missing, and what lies where it goes."""

    path: str
    missing: list[str]
    found: Found


def _file(measure: str, content: str, place: Places, journal: Journal, restarts: tuple[str, ...] = ()) -> tuple[list[Action], str]:
    """Return the actions that put a drop-in in its place, and why it cannot be put there (empty when it can, or is there)."""
    entry, found = journal.find("file", place.path), place.found
    if found.kind == "absent":
        made = [Action("directory", measure, path, f"make {path}") for path in place.missing]
        return [*made, Action("file", measure, place.path, f"write {place.path}", content, restarts)], ""
    if entry and untouched(entry, found):
        same = found.content == content
        return [] if same else [Action("file", measure, place.path, f"rewrite {place.path}", content, restarts)], ""
    if not entry and found.content == content:
        return [], ""
    whose = "was changed since it was written" if entry else "is not this collection's"
    return [], f"{place.path} {whose}, and is left as it is"


def _restarts(measure: str, actions: list[Action], journal: Journal) -> list[Action]:
    """Return what has to be restarted after these actions, or since an earlier run that was interrupted."""
    units = [unit for unit, owner in journal.pending.items() if owner == measure]
    units += [unit for action in actions for unit in action.restarts]
    texts = {RELOAD: "have systemd read its units again"}
    return [Action("restart", measure, unit, texts.get(unit, f"restart {unit}")) for unit in dict.fromkeys(units)]


def sshd(node: str, facts: dict[str, t.Any], journal: Journal, proc: str) -> Plan:
    """Judge the listener that runs, and lower its score alone."""
    say = functools.partial(finding, "protect.sshd", node, source=measures.BY_ID["sshd"].figures[0].source)
    findings = []
    if facts["unit_score"] < 0:
        message = f"ssh.service has OOMScoreAdjust={facts['unit_score']}: OpenSSH gives it to every login, which is then as hard to kill as sshd"
        findings.append(say("warn", message, measured=facts["unit_score"], needed=0, remedy="Remove it from the drop-in of ssh.service (systemctl cat ssh)."))
    if facts["pid"] is None:
        message = "no sshd takes connections now; a socket of systemd may start one, whose score is not known before"
        return Plan([], [*findings, say("warn", message, remedy="Run this again over ssh.")])
    measured = {"measured": facts["score"], "needed": measures.NEVER_KILLED}
    if facts["score"] == measures.NEVER_KILLED:
        ours = journal.find("live", f"{proc}/{facts['pid']}/oom_score_adj")
        why = "set by this collection, until it ends" if ours and ours["start"] == facts["start"] else "as OpenSSH sets it by itself"
        return Plan([], [*findings, say("pass", f"sshd (pid {facts['pid']}) is never killed: {why}", **measured)])
    if not facts["may_lower"]:
        why = "this node lets nobody lower it (CAP_SYS_RESOURCE is missing, as in containers)"
        message = f"sshd (pid {facts['pid']}) has an OOM score of {facts['score']}, and {why}"
        return Plan([], [*findings, say("warn", message, remedy="Nothing can be done from inside of a container; a real node has it.", **measured)])
    path = f"{proc}/{facts['pid']}/oom_score_adj"
    value = {"before": str(facts["score"]), "value": str(measures.NEVER_KILLED), "pid": facts["pid"], "start": facts["start"]}
    return Plan([Action("live", "sshd", path, f"set {path} from {facts['score']} to {measures.NEVER_KILLED}", value)], findings)


def journald(node: str, facts: dict[str, t.Any], journal: Journal, place: Places) -> Plan:
    """Keep the journal on the disk, and sync it often. What others' files set stays theirs."""
    say = functools.partial(finding, "protect.journal", node, source=measures.BY_ID["journal"].figures[1].source)
    wanted = {"Storage": "persistent", "SyncIntervalSec": f"{measures.SYNC_SECONDS}s"}
    findings = []
    for name, (path, value) in facts["settings"].items():
        if value != wanted[name]:
            remedy = f"Take it out of {path} to have {wanted[name]}, and repeat."
            findings.append(say("warn", f"{path} sets {name}={value}, which stays", measured=value, needed=wanted[name], remedy=remedy))
    own = {name: value for name, value in wanted.items() if name not in facts["settings"]}
    if not own:
        return Plan(_restarts("journal", [], journal), findings or [say("pass", "the journal is kept, by files of yours")])
    lines = "".join(f"{name}={value}\n" for name, value in own.items())
    content = f"{HEADER.format(measures.BY_ID['journal'].reason)}[Journal]\n{lines}"
    actions, left = _file("journal", content, place, journal, (JOURNALD,))
    actions += _restarts("journal", actions, journal)
    if left:
        findings.append(say("warn", left, remedy="Move it away, and repeat."))
    elif not actions and not findings:
        findings.append(say("pass", f"the journal is kept on the disk and synced every {measures.SYNC_SECONDS} s"))
    return Plan(actions, findings)


def _acts_in_time(live: dict[str, t.Any]) -> bool:
    """Return whether an earlyoom acts, and not while a healthy pair serves."""
    return bool(live["running"] and live["effective"] and live["acts_below_mb"]["of_total"] * 1024 < measures.HEALTHY_KIB)


def earlyoom(node: str, facts: dict[str, t.Any], journal: Journal, place: Places) -> Plan:
    """Have an earlyoom that acts in time, unless something else already does, or somebody set it up."""
    say = functools.partial(finding, "protect.earlyoom", node, source=measures.BY_ID["earlyoom"].figures[0].source)
    package, live = facts["package"], facts["live"]
    installed = package is not None and package.status == "installed"
    ours = journal.find("file", place.path) is not None
    if facts["oomd"] == "active":
        message = "systemd-oomd is active, and two that end processes are one too many" + (": earlyoom of this collection is there, too" if ours else "")
        remedy = "Leave it so, or run systemctl disable --now systemd-oomd there, and repeat."
        return Plan([], [say("warn", message, remedy=remedy)])
    if installed and not ours and (_acts_in_time(live) or facts["altered"] or facts["enabled"].startswith("masked")):
        if _acts_in_time(live):
            return Plan([], [say("pass", f"an earlyoom of yours acts in time: {live['why']}", measured=live["args"])])
        state = "is masked" if facts["enabled"].startswith("masked") else "has settings of yours in /etc/default/earlyoom"
        remedy = f"See that it acts in time: {measures.earlyoom_arguments(facts['mem_total_kib'])}"
        return Plan([], [say("warn", f"earlyoom {state}, which stay; {live['why']}", measured=live["args"], remedy=remedy)])
    arguments = measures.earlyoom_arguments(facts["mem_total_kib"])
    header = HEADER.format(measures.BY_ID["earlyoom"].reason)
    content = f'{header}[Service]\nEnvironmentFile=\nEnvironment="EARLYOOM_ARGS={arguments}"\n{measures.EARLYOOM_FIRST}'
    actions, left = _file("earlyoom", content, place, journal, (RELOAD, EARLYOOM) if installed else (RELOAD,))
    if left:
        return Plan([], [say("warn", left, remedy="Move it away, and repeat.")])
    # What belongs to the drop-in stays together: a package that starts without it would act at 10 % of available memory, under a healthy engine.
    actions += _restarts("earlyoom", actions, journal)
    if not installed:
        actions.append(Action("package", "earlyoom", "earlyoom", "install the package earlyoom", {"before": package.status if package else "absent"}))
        return Plan(actions, [])
    if facts["active"] != "active" or facts["enabled"] == "disabled":
        before = {"enabled": facts["enabled"], "active": facts["active"]}
        actions.append(Action("unit", "earlyoom", EARLYOOM, f"enable and start {EARLYOOM}", {"before": before}))
    if actions:
        return Plan(actions, [])
    if not live["running"] or not live["effective"]:
        older = limits.counts_of_user(package.version)
        remedy = "Use a version before 1.8, such as that of Ubuntu 24.04." if older else "See journalctl -u earlyoom there."
        return Plan([], [say("warn", f"earlyoom cannot act: {live['why']}", measured=live["args"], remedy=remedy)])
    message = f"earlyoom acts below {live['acts_below_mb']['of_total']} MiB of available memory, whatever is in swap"
    return Plan([], [say("pass", message, measured=live["args"])])


def swap(node: str, facts: dict[str, t.Any], journal: Journal, place: Places, live_path: str) -> Plan:
    """Have the kernel swap late. Whoever set vm.swappiness in a file keeps it."""
    say = functools.partial(finding, "protect.swap", node, needed=measures.SWAPPINESS, source=measures.BY_ID["swap"].figures[0].source)
    if theirs := facts["settings"].get("vm.swappiness"):
        path, value = theirs
        good = value == str(measures.SWAPPINESS)
        message = f"{path} sets vm.swappiness to {value}, which stays"
        return Plan([], [say("pass" if good else "warn", message, measured=value, remedy="" if good else f"Take it out of {path}, and repeat.")])
    content = f"{HEADER.format(measures.BY_ID['swap'].reason)}vm.swappiness = {measures.SWAPPINESS}\n"
    actions, left = _file("swap", content, place, journal)
    if left:
        return Plan([], [say("warn", left, remedy="Move it away, and repeat.")])
    live, none = facts["live"], "" if facts["swap_kib"] else "; there is no swap now"
    findings = []
    if live is None:
        findings.append(say("unknown", f"the kernel shows no vm.swappiness ({live_path})", remedy="See whether /proc is mounted."))
    elif live != measures.SWAPPINESS and not facts["writable"]:
        message = f"vm.swappiness is still {live}: {live_path} cannot be written here, as in containers. The file counts from the next boot on{none}"
        findings.append(say("warn", message, measured=live, remedy="Set it on the machine underneath."))
    elif live != measures.SWAPPINESS:
        value = {"before": str(live), "value": str(measures.SWAPPINESS), "pid": None, "start": None}
        actions.append(Action("live", "swap", live_path, f"set vm.swappiness from {live} to {measures.SWAPPINESS}", value))
    elif not actions:
        findings.append(say("pass", f"vm.swappiness is {live}, also after a boot{none}", measured=live))
    return Plan(actions, findings)


def held_by_pattern(found: t.Iterable[Package]) -> list[Package]:
    """Return the installed packages that are to be held."""
    patterns = [pattern for _title, group in measures.HOLDS for pattern in group]
    return [one for one in found if one.status == "installed" and any(fnmatch.fnmatchcase(one.plain, pattern) for pattern in patterns)]


def holds(node: str, facts: list[Package], journal: Journal) -> Plan:
    """Hold what is installed of kernel, driver, Docker and containerd."""
    say = functools.partial(finding, "protect.holds", node, source=measures.BY_ID["holds"].figures[0].source)
    wanted = held_by_pattern(facts)
    free = [one.name for one in wanted if one.want == "install"]
    if free:
        return Plan([Action("hold", "holds", " ".join(free), f"hold {', '.join(free)}", free)], [])
    ours = [one.name for one in wanted if journal.find("hold", one.name)]
    message = f"{len(wanted)} package(s) are held, {len(ours)} of them by this collection: {', '.join(one.name for one in wanted) or 'none is installed'}"
    return Plan([], [say("pass" if wanted else "warn", message, remedy="" if wanted else "See dpkg -l: nothing on this node has such a name.")])


def unattended(node: str, facts: dict[str, t.Any], free: t.Sequence[str]) -> Plan:
    """Report whether upgrades come unattended. ``free`` are the packages that are to be held and are not."""
    say = functools.partial(finding, "protect.unattended", node, source=measures.BY_ID["unattended"].figures[0].source)
    missing = [
        text
        for text, lacks in (
            ("the package is not installed", not facts["installed"]),
            ("APT::Periodic::Unattended-Upgrade is 0", facts["periodic"] in ("", "0")),
            ("the timer apt-daily-upgrade is not enabled", facts["timer"] not in ("enabled", "enabled-runtime")),
        )
        if lacks
    ]
    if missing:
        return Plan([], [say("pass", f"no upgrades come unattended: {'; '.join(missing)}", measured=False)])
    message = f"upgrades come unattended, from {', '.join(facts['origins']) or 'no origin that is named'}"
    if free:
        message += f", and {len(free)} package(s) that an engine needs are not held: {', '.join(free)}"
        return Plan([], [say("warn", message, measured=True, remedy="Choose the measure holds as well.")])
    return Plan([], [say("pass", f"{message}; what an engine needs is held", measured=True)])


# -- taking back -------------------------------------------------------------------------------------------------------------


def _undo_text(entry: Entry) -> str:
    texts = {
        "directory": "remove {target}, if it is empty",
        "file": "remove {target}",
        "package": "remove {names}",
        "unit": "bring {target} back to {state}",
        "live": "set {target} back to {back}",
    }
    names = ", ".join(one["name"] for one in entry.get("packages", []))
    before = entry.get("before")
    state = ", ".join(before.values()) if isinstance(before, dict) else ""
    return texts[entry["kind"]].format(target=entry["target"], names=names, state=state, back=before)


def revert(journal: Journal, chosen: t.Collection[str]) -> list[Action]:
    """Return what takes the chosen measures back, the last change first; what has to be restarted comes last."""
    gone = [entry for entry in reversed(journal.entries) if entry["measure"] in chosen]
    held = [entry for entry in gone if entry["kind"] == "hold"]
    restarts = {"journal": (JOURNALD,), "earlyoom": (RELOAD, EARLYOOM)}
    names = [entry["target"] for entry in held]
    actions = [Action("hold", "holds", " ".join(names), f"unhold {', '.join(names)}", held, undo=True)] if held else []
    actions += [
        Action(
            entry["kind"], entry["measure"], entry["target"], _undo_text(entry), entry,
            restarts.get(entry["measure"], ()) if entry["kind"] == "file" else (), undo=True,
        )
        for entry in gone
        if entry["kind"] != "hold"
    ]  # fmt: skip
    for measure in dict.fromkeys([*(entry["measure"] for entry in gone), *journal.pending.values()]):
        if measure in chosen:
            actions += _restarts(measure, actions_of(actions, measure), journal)
    return actions


def actions_of(actions: t.Iterable[Action], measure: str) -> list[Action]:
    """Return the actions of one measure."""
    return [action for action in actions if action.measure == measure]


def file_entry(action: Action, uid: int, gid: int, old: Entry | None) -> Entry:
    """Return the entry of a file that is about to be written; what was there until now is known as ours, too, until it is replaced."""
    known = [digest(action.value), *(old["sha256"] if old else [])]
    return {
        "kind": "file", "measure": action.measure, "target": action.target, "sha256": list(dict.fromkeys(known)), "mode": MODE, "uid": uid, "gid": gid,
    }  # fmt: skip
