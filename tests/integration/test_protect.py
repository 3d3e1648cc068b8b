# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's nodes are protected once, check mode predicts it correctly, and a revert restores every byte.

A node of the lab is a container, so sshd cannot have a score below 0 there, and there is no watchdog. The play reports that. NUT is its files alone: what its
timer does at its end is done by hand.
"""

from __future__ import annotations

import json
import re
import typing as t

import pytest

from .lab import HEAD, WORKER, Lab

RECORD = "/var/lib/gb10/protection.json"
DROP_IN = "/etc/systemd/journald.conf.d/90-gb10-protect.conf"
SYSCTL = "/etc/sysctl.d/90-gb10-protect.conf"
PANIC, OFF = "/etc/sysctl.d/90-gb10-panic.conf", "watchdog,panic,ups"
REQUEST = "/run/nut/gb10-on-battery"
#: The lines of docs/protect.md.
SCHED = f"""CMDSCRIPT /usr/bin/touch
PIPEFN /run/nut/upssched.pipe
LOCKFN /run/nut/upssched.lock
AT ONBATT * START-TIMER {REQUEST} 60
AT ONLINE * CANCEL-TIMER {REQUEST}
"""
MON = """NOTIFYCMD /sbin/upssched
NOTIFYFLAG ONBATT SYSLOG+EXEC
NOTIFYFLAG ONLINE SYSLOG+EXEC
"""

#: Prints everything below /etc with its type, mode, owner and content, dpkg's selections and packages, the states of unit files, and vm.swappiness.
#: Units and state of a cluster that is brought up meanwhile are excluded.
FINGERPRINT = r"""
set -e
cd /etc
find . -not -type f -printf '%p %y %m %U %G %l\n' | sort
find . -type f -printf '%p %m %U %G\n' | sort
find . -type f -print0 | sort -z | xargs -0 sha256sum
dpkg --get-selections
dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\n'
systemctl list-unit-files --no-legend --no-pager --plain | grep -v ' transient ' | sort
systemctl list-units --type=service --state=active --no-legend --no-pager --plain | cut -d' ' -f1 |
    grep -v -e '^user' -e '^session' -e '^systemd-hostnamed' -e '^gb10-' | sort
cat /proc/sys/vm/swappiness /proc/sys/kernel/panic
systemctl show --property=RuntimeWatchdogUSec
ls /var/lib/gb10/protection.json* 2>/dev/null || true
"""


def fingerprint(lab: Lab) -> dict[str, list[str]]:
    return {host: lab.run(host, "sh", "-c", FINGERPRINT).splitlines() for host in (HEAD, WORKER)}


def differing(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, list[str]]:
    """The lines that are on one side only, by node."""
    return {host: sorted(set(before[host]) ^ set(after[host])) for host in before if before[host] != after[host]}


def started(lab: Lab) -> dict[str, str]:
    """The pids and start times of ssh and docker, by node."""
    units = ("ssh.service", "docker.service", "containerd.service")
    return {host: lab.run(host, "systemctl", "show", "--property=Id,MainPID,ExecMainStartTimestampMonotonic", *units) for host in (HEAD, WORKER)}


@pytest.fixture
def unprotected(lab: Lab) -> t.Iterator[None]:
    """Unprotected nodes, before and after."""
    for _when in ("before", "after"):
        back = lab.play("protect", gb10_protect="revert")
        assert back.rc == 0, back.failures
        if _when == "before":
            yield


def test_a_node_is_protected_once_and_every_byte_comes_back(lab: Lab, unprotected: None) -> None:
    before, running = fingerprint(lab), started(lab)

    predicted = lab.play("protect", check=True)
    assert predicted.rc == 0 and set(predicted.changed) == {HEAD, WORKER} and differing(before, fingerprint(lab)) == {}, predicted.failures

    first = lab.play("protect")
    assert first.rc == 0, first.failures
    protected = fingerprint(lab)
    lines = differing(before, protected)
    assert set(lines) == {HEAD, WORKER}
    for host in (HEAD, WORKER):
        assert lab.run(host, "stat", "--format=%a %U", RECORD).split() == ["600", "root"]
        assert any("earlyoom" in line for line in lines[host]) and any(DROP_IN.removeprefix("/etc") in line for line in lines[host])
        arguments = lab.run(host, "sh", "-c", "tr '\\0' ' ' < /proc/$(systemctl show --property=MainPID --value earlyoom.service)/cmdline")
        assert "-s 100,100" in arguments and "--avoid ^(sshd" in arguments
        held = lab.run(host, "apt-mark", "showhold").split()
        assert held and {"docker.io", "containerd"} & set(held)

    again = lab.play("protect")
    assert again.rc == 0 and again.changed == {} and differing(protected, fingerprint(lab)) == {}, again.said
    checked = lab.play("protect", check=True)
    assert checked.rc == 0 and checked.changed == {}, checked.said

    taken = lab.play("teardown")
    assert taken.rc == 0 and taken.said.count("The nodes stay protected") == 1 and "-e gb10_protect=revert" in taken.said, taken.said
    assert differing(protected, fingerprint(lab)) == {}

    back = lab.play("protect", gb10_protect="revert")
    assert back.rc == 0 and set(back.changed) == {HEAD, WORKER}, back.failures
    assert differing(before, fingerprint(lab)) == {}
    assert started(lab) == running
    assert lab.play("protect", gb10_protect="revert").changed == {}


def test_a_file_of_yours_and_one_that_you_edited_stay(lab: Lab, unprotected: None) -> None:
    lab.run(HEAD, "sh", "-c", 'echo "vm.overcommit_ratio = 50" > "$0"', SYSCTL)
    try:
        ran = lab.play("protect", gb10_protect_measures="journal,swap")
        assert ran.rc == 0 and f"{SYSCTL} is not this collection's" in ran.said, ran.said
        lab.run(HEAD, "sh", "-c", 'echo "# mine" >> "$0"', DROP_IN)
        ran = lab.play("protect", gb10_protect_measures="journal,swap")
        assert ran.rc == 0 and ran.changed == {} and f"{DROP_IN} was changed since it was written" in ran.said, ran.said
        back = lab.play("protect", gb10_protect="revert")
        assert back.rc == 0 and f"rm {DROP_IN}" in back.said, back.said
        assert lab.run(HEAD, "tail", "-n1", DROP_IN).strip() == "# mine" and lab.run(HEAD, "cat", SYSCTL).strip() == "vm.overcommit_ratio = 50"
        assert "no such" in lab.run(HEAD, "sh", "-c", 'test -e "$0" && echo there || echo no such', RECORD)
    finally:
        lab.run(HEAD, "rm", "-f", SYSCTL, DROP_IN)
        lab.run(HEAD, "rmdir", "--ignore-fail-on-non-empty", "/etc/systemd/journald.conf.d", check=False)


def test_what_was_begun_and_not_done_is_taken_back(lab: Lab, unprotected: None) -> None:
    """As if the node had lost power between the record and the change."""
    before = fingerprint(lab)
    begun = {"sha256": ["0" * 64], "changes": [f"write {SYSCTL}"], "done": False}
    content = {"schema": 1, "measures": {"swap": begun, "journal": {"changes": [], "done": False}}}
    lab.run(HEAD, "sh", "-c", 'mkdir -p "${0%/*}" && umask 077 && printf %s "$1" > "$0"', RECORD, json.dumps(content))
    ran = lab.play("protect", gb10_protect_measures="swap,journal")
    assert ran.rc == 0, ran.failures
    assert lab.play("protect", gb10_protect_measures="swap,journal").changed == {}
    assert lab.play("protect", gb10_protect="revert").rc == 0
    assert differing(before, fingerprint(lab)) == {}


@pytest.fixture
def nut(lab: Lab) -> t.Iterator[None]:
    """The files of a NUT on both nodes."""
    for host in (HEAD, WORKER):
        lab.run(host, "sh", "-c", 'mkdir -p /etc/nut /run/nut && printf %s "$0" > /etc/nut/upssched.conf && printf %s "$1" > /etc/nut/upsmon.conf', SCHED, MON)
    yield
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-rf", "/etc/nut", "/run/nut")


def test_what_costs_something_stops_the_engine_on_battery_and_every_byte_comes_back(lab: Lab, unprotected: None, nut: None) -> None:
    before = fingerprint(lab)
    predicted = lab.play("protect", check=True, gb10_protect_measures=OFF)
    assert predicted.rc == 0 and set(predicted.changed) == {HEAD, WORKER} and differing(before, fingerprint(lab)) == {}, predicted.failures
    # A request from before the hook was there does not act.
    lab.run(HEAD, "touch", REQUEST)
    first = lab.play("protect", gb10_protect_measures=OFF)
    assert first.rc == 0 and "has no /dev/watchdog" in first.said, first.failures
    # Of the lab's machine it depends whether a node may set it.
    assert re.search("kernel.panic is (10, also after a boot|still)", first.said), first.said
    assert all(f"{name} costs: " in first.said for name in OFF.split(","))
    assert "kernel.panic = 10" in lab.run(HEAD, "cat", PANIC) and lab.run(HEAD, "systemctl", "is-enabled", "gb10-on-battery.path").strip() == "enabled"
    again = lab.play("protect", gb10_protect_measures=OFF)
    assert again.rc == 0 and again.changed == {}, again.said

    units = ("gb10-engine-battery.service", "gb10-others.service")
    for unit in units:
        lab.run(HEAD, "systemd-run", "--unit", unit, "sleep", "3600")
    try:
        lab.run(HEAD, "touch", REQUEST)
        waits = 'until test ! -e "$0" && ! systemctl is-active --quiet "$1"; do sleep 0.2; done'
        lab.run(HEAD, "timeout", "60", "sh", "-c", waits, REQUEST, units[0])
        assert lab.run(HEAD, "systemctl", "is-active", units[1]).strip() == "active"
        lab.run(HEAD, "timeout", "60", "sh", "-c", 'while systemctl is-active gb10-on-battery.service | grep -q activating; do sleep 0.2; done')
        assert "Result=success" in lab.run(HEAD, "systemctl", "show", "--property=Result", "gb10-on-battery.service")
    finally:
        lab.run(HEAD, "systemctl", "stop", *units, check=False)

    back = lab.play("protect", gb10_protect="revert")
    assert back.rc == 0 and set(back.changed) == {HEAD, WORKER} and differing(before, fingerprint(lab)) == {}, back.failures


def test_without_nut_the_lines_to_add_are_named_and_nothing_changes(lab: Lab, unprotected: None) -> None:
    before = fingerprint(lab)
    ran = lab.play("protect", gb10_protect_measures="ups")
    assert ran.rc == 0 and ran.changed == {} and "START-TIMER /run/nut/gb10-on-battery 60" in ran.said and differing(before, fingerprint(lab)) == {}, ran.said


def test_an_unknown_measure_reaches_no_node(lab: Lab) -> None:
    ran = lab.play("protect", gb10_protect_measures="swap,hold")
    assert ran.rc != 0 and "gb10_protect_measures" in ran.said and "with commas between them" in ran.said
