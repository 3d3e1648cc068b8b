# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes a node for its protection, and takes that back. This module util is PRIVATE to the collection.

Whatever is changed stands in the journal first. No service that an engine or a login needs is stopped or restarted: apt's own helper that restarts
services after an installation is kept from it (NEEDRESTART_SUSPEND, needrestart(1)).
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import optional_text
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import read_stat
from ansible_collections.gb10.cluster.plugins.module_utils._protect import limits, machine, plan
from ansible_collections.gb10.cluster.plugins.module_utils._protect import journal as journals
from ansible_collections.gb10.cluster.plugins.module_utils._protect.journal import Entry, Journal
from ansible_collections.gb10.cluster.plugins.module_utils._protect.machine import Node
from ansible_collections.gb10.cluster.plugins.module_utils._protect.plan import Action
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult, run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: No questions, and no restart of anything else.
QUIET = ("env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1")
#: Seconds that apt waits for another one of its kind.
LOCK_SECONDS = 60
#: Seconds that a service gets to be seen among the processes once systemd has started it.
SEEN_SECONDS = 10

_SIMULATED = re.compile(r"^(?P<what>Inst|Conf|Remv) (?P<name>\S+)", re.MULTILINE)


class Left(ClusterError):
    """Something was changed by somebody else since, and stays as it is."""

    verdict = "warn"


def _must(answer: ToolResult, what: str, remedy: str) -> ToolResult:
    """Return an answer. Raises :class:`ClusterError` with what the tool said when it failed."""
    if answer.rc:
        said = answer.raw.strip().splitlines()
        raise ClusterError(f"{what} failed ({answer.rc}): {' / '.join(said[-3:])[:500]}", remedy=remedy, reason="not done", raw=answer.raw[-2000:])
    return answer


class Actor:
    """Does what a plan says, one action at a time. ``apt_timeout`` is in seconds for each call of apt."""

    def __init__(self, node: Node, journal: Journal, apt_timeout: float) -> None:
        self._node = node
        self._journal = journal
        self._apt_timeout = apt_timeout

    def __call__(self, action: Action) -> None:
        """Do it, or take it back. Raises :class:`ClusterError` or OSError when that fails, :class:`Left` for what somebody else changed since."""
        if action.kind == "restart":
            self._restart(action)
        else:
            getattr(self, f"_{'undo_' if action.undo else ''}{action.kind}")(action)

    # -- doing ---------------------------------------------------------------------------------------------------------------

    def _note(self, action: Action, **fields: t.Any) -> Entry:
        entry = {"kind": action.kind, "measure": action.measure, "target": action.target, **fields}
        self._journal.put([entry], dict.fromkeys(action.restarts, action.measure))
        return entry

    def _directory(self, action: Action) -> None:
        self._note(action)
        os.mkdir(action.target, 0o755)

    def _file(self, action: Action) -> None:
        old = self._journal.find("file", action.target)
        entry = plan.file_entry(action, os.geteuid(), os.getegid(), old)
        self._journal.put([entry], dict.fromkeys(action.restarts, action.measure))
        replace = old is not None and journals.untouched(entry, journals.look(action.target))
        journals.write(action.target, action.value, plan.MODE, replace=replace)

    def _live(self, action: Action) -> None:
        old = self._journal.find("live", action.target)
        same = old is not None and (old["pid"], old["start"]) == (action.value["pid"], action.value["start"])
        # What was there before this collection came, not what somebody set since.
        self._note(action, **{**action.value, **({"before": old["before"]} if same and old else {})})
        self._write_live(action.target, action.value["value"], action.value)

    def _write_live(self, path: str, text: str, process: Entry) -> None:
        self._require_process(process)
        try:
            with open(path, "w", encoding="ascii") as stream:
                stream.write(text)
        except OSError as error:
            raise ClusterError(f"{path} cannot be set to {text}: {error.strerror}", remedy="Nothing else was changed for it.", reason="not done") from error
        if (now := optional_text(path)) != text:
            raise ClusterError(f"{path} was set to {text} and is {now}", remedy="See what else sets it.", reason="not done")

    def _require_process(self, process: Entry) -> None:
        if process["pid"] is not None:
            stat = read_stat(process["pid"], self._node.proc)
            if stat is None or stat.start_ticks != process["start"]:
                raise Left(f"process {process['pid']} has ended", reason="gone")

    def _hold(self, action: Action) -> None:
        entries = [{"kind": "hold", "measure": action.measure, "target": name, "made": False} for name in action.value]
        self._journal.put(entries)
        answer = self._apt("apt-mark", "hold", *action.value)
        held = self._held()
        self._journal.put({**entry, "made": True} for entry in entries if entry["target"] in held)
        self._journal.drop([entry for entry in entries if entry["target"] not in held])
        _must(answer, "apt-mark hold", "Run it there by hand.")

    def _held(self) -> set[str]:
        return {one.name for one in machine.packages(self._node) if one.want == "hold"}

    def _apt(self, *argv: str) -> ToolResult:
        return run_tool([*QUIET, *argv], self._apt_timeout)

    def _package(self, action: Action) -> None:
        name = action.target
        if machine.candidate(self._node, name) is None:
            lists = self._apt("apt-get", "-q", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", "update")
            _must(lists, "apt-get update", "See whether the node reaches its mirrors.")
            if machine.candidate(self._node, name) is None:
                remedy = "Add a source that has it (universe on Ubuntu), or leave the measure out."
                raise ClusterError(f"the node's package lists have no {name}", remedy=remedy)
        install = ("install", "--no-install-recommends", name)
        said = _must(self._apt("apt-get", "-s", *install), f"apt-get -s install {name}", "Run it there by hand.")
        steps = [(match["what"], match["name"]) for match in _SIMULATED.finditer(said.stdout)]
        removed = [one for what, one in steps if what == "Remv"]
        if removed:
            raise ClusterError(f"installing {name} would remove {', '.join(removed)}", remedy=f"Run apt-get -s install {name} there, and see why.")
        status = {one.plain: one.status for one in machine.packages(self._node)}
        gone = (None, "not-installed", "config-files")
        new = [{"name": one, "before": status.get(one, "absent")} for what, one in steps if what == "Inst" and status.get(one) in gone]
        if not steps:
            raise UnknownState(f"apt-get -s install {name} names no package", remedy="Run it there by hand.", raw=said.raw[:2000])
        old = self._journal.find("package", name)
        self._note(action, packages=[*(old["packages"] if old else []), *(one for one in new if not old or one["name"] not in names_of(old))])
        options = ("-y", "-q", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", "-o", "Dpkg::Options::=--force-confold")
        _must(self._apt("apt-get", *options, *install), f"apt-get install {name}", "Run it there by hand; dpkg --configure -a first if it says so.")
        self._seen()

    def _unit(self, action: Action) -> None:
        old = self._journal.find("unit", action.target)
        ours = self._journal.find("package", "earlyoom")
        if ours is None:
            self._note(action, before=old["before"] if old else action.value["before"])
        _must(self._node.tool("systemctl", "enable", "--now", action.target), action.text, f"See systemctl status {action.target} there.")
        self._seen()

    def _seen(self) -> None:
        """Wait until earlyoom is seen: systemd calls a service started before it has become that program. That it never is, is judged later."""
        for _elapsed in clock(SEEN_SECONDS, 0.2):
            if machine.active(self._node, plan.EARLYOOM) != "active" or limits.daemon(self._node.processes(), "earlyoom"):
                return

    def _restart(self, action: Action) -> None:
        self._journal.put([], {action.target: action.measure})
        remedy = f"Run systemctl restart {action.target} there, and see systemctl status."
        if action.target == plan.RELOAD:
            _must(self._node.tool("systemctl", "daemon-reload"), "systemctl daemon-reload", "Run it there by hand.")
        elif machine.enabled(self._node, action.target) != "not-found":
            # One that does not run has nothing to read again.
            _must(self._node.tool("systemctl", "try-restart", action.target), action.text, remedy)
            if action.target == plan.EARLYOOM:
                self._seen()
        self._journal.done(action.target)

    # -- taking back ---------------------------------------------------------------------------------------------------------

    def _undo_directory(self, action: Action) -> None:
        try:
            os.rmdir(action.target)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._journal.drop([action.value])
            raise Left(f"{action.target} stays: {error.strerror}", reason="left") from error
        self._journal.drop([action.value])

    def _undo_file(self, action: Action) -> None:
        found = journals.look(action.target)
        if found.kind == "absent" or journals.untouched(action.value, found):
            self._journal.put([], dict.fromkeys(action.restarts, action.measure))
            journals.remove(action.target)
            self._journal.drop([action.value])
            return
        self._journal.drop([action.value])
        raise Left(f"{action.target} was changed since it was written, and stays", remedy=f"It is yours now: rm {action.target} removes it.", reason="left")

    def _undo_live(self, action: Action) -> None:
        entry = action.value
        try:
            now = optional_text(action.target)
            if now is not None and now not in (entry["value"], entry["before"]):
                raise Left(f"{action.target} is {now} by now, not {entry['value']}, and stays", reason="left")
            if now == entry["value"]:
                self._write_live(action.target, entry["before"], entry)
        except Left as left:
            self._journal.drop([entry])
            if left.reason != "gone":
                raise
            return
        self._journal.drop([entry])

    def _undo_hold(self, action: Action) -> None:
        held = self._held()
        there = [entry for entry in action.value if entry["target"] in held]
        # An entry of an earlier version does not say whether its change was made, which it was as a rule.
        names, whose = ([entry["target"] for entry in there if entry.get("made", True) is made] for made in (True, False))
        if names:
            _must(self._apt("apt-mark", "unhold", *names), "apt-mark unhold", "Run it there by hand.")
        self._journal.drop(action.value)
        if whose:
            what = f"{', '.join(whose)} stays held: a run was ended before it knew whether it held that, and the owner may have"
            raise Left(what, remedy=f"apt-mark unhold {' '.join(whose)} ends that.", reason="left")

    def _undo_package(self, action: Action) -> None:
        entry = action.value
        status = {one.plain: one.status for one in machine.packages(self._node)}
        there = [one for one in entry["packages"] if status.get(one["name"], "not-installed") not in ("not-installed", one["before"])]
        try:
            edited = status.get(action.target) == "installed" and machine.altered(self._node, action.target, f"/etc/default/{action.target}")
        except FileNotFoundError:
            edited = False
        # A configuration file that somebody wrote into, or that was there before, stays.
        kept = [one["name"] for one in there if one["before"] == "config-files" or (edited and one["name"] == action.target)]
        gone = [one["name"] for one in there if one["name"] not in kept]
        for option, names in (("--remove", kept), ("--purge", gone)):
            if names:
                _must(self._apt("dpkg", option, *names), f"dpkg {option} {' '.join(names)}", "Run it there by hand.")
        self._journal.drop([entry])
        if edited:
            remedy = f"dpkg --purge {action.target} removes it."
            raise Left(f"/etc/default/{action.target} was changed since it was installed, and stays", remedy=remedy, reason="left")

    def _undo_unit(self, action: Action) -> None:
        before = action.value["before"]
        if before["enabled"] == "disabled":
            _must(self._node.tool("systemctl", "disable", action.target), f"systemctl disable {action.target}", "Run it there by hand.")
        if before["active"] != "active":
            _must(self._node.tool("systemctl", "stop", action.target), f"systemctl stop {action.target}", "Run it there by hand.")
        self._journal.drop([action.value])


def names_of(entry: Entry) -> set[str]:
    """Return the packages that came with one."""
    return {one["name"] for one in entry["packages"]}


# -- the diff ----------------------------------------------------------------------------------------------------------------


def shape(node: Node, actions: t.Iterable[Action]) -> dict[str, t.Any]:
    """Return what there is now of all that these actions are about, one side of the diff."""
    found: dict[str, t.Any] = {}
    wants: dict[str, str] = {}
    for action in actions:
        if action.kind == "file":
            lies = journals.look(action.target)
            found[f"file {action.target}"] = lies.content if lies.kind == "file" else lies.kind
        elif action.kind == "directory":
            found[f"directory {action.target}"] = "present" if os.path.isdir(action.target) else "absent"
        elif action.kind == "live":
            found[f"value {action.target}"] = optional_text(action.target)
        elif action.kind == "unit":
            found[f"unit {action.target}"] = f"{machine.enabled(node, action.target)}, {machine.active(node, action.target)}"
        elif action.kind in ("package", "hold"):
            status = {one.name if action.kind == "hold" else one.plain: one for one in machine.packages(node)}
            for name in action.target.split():
                if action.kind == "hold":
                    wants[f"selection {name}"] = status[name].want if name in status else "absent"
                else:
                    found[f"package {name}"] = status[name].status if name in status else "absent"
    return {**found, **wants}


def predicted(before: dict[str, t.Any], actions: t.Iterable[Action]) -> dict[str, t.Any]:
    """Return what :func:`shape` would be after these actions."""
    after = dict(before)
    for action in actions:
        entry = action.value if action.undo else None
        if action.kind == "file":
            untouched = action.undo and journals.untouched(entry, journals.look(action.target))
            after[f"file {action.target}"] = action.value if not action.undo else "absent" if untouched else before[f"file {action.target}"]
        elif action.kind == "directory":
            after[f"directory {action.target}"] = "absent" if action.undo else "present"
        elif action.kind == "live":
            after[f"value {action.target}"] = action.value["before" if action.undo else "value"]
        elif action.kind == "unit":
            after[f"unit {action.target}"] = ", ".join(entry["before"].values()) if entry else "enabled, active"
        elif action.kind == "package":
            after[f"package {action.target}"] = "installed" if entry is None else next(
                (one["before"] for one in entry["packages"] if one["name"] == action.target), "absent"
            )  # fmt: skip
        elif action.kind == "hold":
            after.update(dict.fromkeys((f"selection {name}" for name in action.target.split()), "install" if action.undo else "hold"))
    return after
