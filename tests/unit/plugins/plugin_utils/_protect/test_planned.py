# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node is protected once, a revert restores everything, and the owner's files and settings stay."""

from __future__ import annotations

import fnmatch
import typing as t

import pytest
from protected_node import DEFAULT, DEFAULT_NAMES, KERNEL, MON, SCHED, Cut, ProtectedNode

from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect import measures, planned
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect.facts import NEVER

JOURNALD, SYSCTL, DROP_IN = (planned.FILES[name] for name in ("journal", "swap", "earlyoom"))
MOMENTS = 29


@pytest.fixture
def node() -> ProtectedNode:
    return ProtectedNode()


def test_a_node_is_protected_once_and_everything_comes_back(node: ProtectedNode) -> None:
    before = node.fingerprint()
    first = node.run()
    assert first.changed and first.verdicts == dict.fromkeys(DEFAULT_NAMES, "pass"), first.messages
    assert node.score == -1000 and node.swappiness == "1"
    assert "SyncIntervalSec=10s" in node.files[JOURNALD][0] and "vm.swappiness = 1\n" in node.files[SYSCTL][0]
    assert {name: about[0] for name, about in node.packages.items()} == {
        KERNEL: "hold", "docker-ce": "hold", "containerd.io": "hold", "bash": "install", "unattended-upgrades": "install", "earlyoom": "install",
    }  # fmt: skip
    protected = node.fingerprint()

    again = node.run()
    assert not again.changed and node.fingerprint() == protected and again.msg == "nothing to change"

    back = node.revert()
    assert back.changed and not back.findings, back.messages
    assert node.fingerprint() == before and back.journal["changes"] == 0
    assert node.revert().msg == "there is nothing to take back"


def test_check_mode_says_what_then_is_done(node: ProtectedNode) -> None:
    before = node.fingerprint()
    outcome = node.run(check=True)
    assert node.fingerprint() == before and outcome.changed and set(outcome.verdicts.values()) == {"warn"}
    assert node.run().actions == outcome.actions
    protected = node.fingerprint()
    outcome = node.revert(check=True)
    assert node.fingerprint() == protected and node.revert().actions == outcome.actions


def test_nothing_that_an_engine_or_a_login_needs_is_restarted(node: ProtectedNode) -> None:
    node.run()
    node.revert()
    assert {line for line in node.called if line.endswith(".service")} == {"restarted systemd-journald.service", "started earlyoom.service"}


def test_a_measure_is_taken_back_alone(node: ProtectedNode) -> None:
    node.run()
    back = node.revert("holds")
    assert back.journal["measures"] == ["earlyoom", "journal", "sshd", "swap"]
    assert node.packages[KERNEL][0] == "install" and node.packages["containerd.io"][0] == "hold" and JOURNALD in node.files


# -- interrupted, or failed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(1, MOMENTS + 1))
def test_an_interrupted_run_is_completed_or_taken_back(node: ProtectedNode, at: int) -> None:
    before = node.fingerprint()
    there = node.interrupted(at)
    back = node.revert()
    # After an interrupted hold it is unknown who set it.
    begun = [name for name in ("docker-ce", KERNEL) if node.packages[name][0] == "hold"]
    assert not begun or f"apt-mark unhold {' '.join(begun)}" in back.messages
    for name in begun:
        node.packages[name][0] = "install"
    assert node.fingerprint() == before
    assert node.interrupted(at) == there
    done = node.run()
    assert "block" not in done.verdicts.values() and not node.run().changed
    assert node.record and all(node.record["measures"][name]["done"] for name in ("journal", "earlyoom"))
    node.interrupted(at, revert=True)
    node.revert()
    for name in (KERNEL, "docker-ce"):
        node.packages[name][0] = "install"
    assert node.fingerprint() == before


def test_there_are_no_more_moments_than_are_tried() -> None:
    assert ProtectedNode().interrupted(MOMENTS - 1) and not ProtectedNode().interrupted(MOMENTS)


def test_one_measure_that_fails_stops_no_other(node: ProtectedNode) -> None:
    node.refuses = {"journal"}
    outcome = node.run()
    assert outcome.verdicts == {**dict.fromkeys(DEFAULT_NAMES, "pass"), "journal": "block"} and "it is refused" in outcome.messages
    node.refuses = set()
    assert node.run().verdicts["journal"] == "pass"


@pytest.mark.parametrize("text", ["[]", '{"schema": 2, "measures": {}}', '{"schema": 1, "measures": {"swap": {}}}', "", "{"])
def test_a_record_that_cannot_be_read_stops_everything(node: ProtectedNode, text: str) -> None:
    node.broken = {"record": {"rc": 0, "stdout": text, "stderr_lines": []}}
    for outcome in (node.run(), node.revert()):
        assert not outcome.changed and set(outcome.verdicts.values()) == {"unknown"} and "protection.json" in outcome.messages
        assert outcome.journal["changes"] is None and outcome.journal["error"]


@pytest.mark.parametrize(
    ("tool", "measure"),
    [("units", "sshd"), ("settings", "journal"), ("packages", "holds"), ("apt", "unattended"), ("kernel", "swap"), ("candidate", "earlyoom")],
)
@pytest.mark.parametrize("answer", [{"rc": 124, "stdout": ""}, {"rc": 127, "stderr_lines": ["timeout: failed to run command"]}, {"rc": 0, "stdout": "?"}])
def test_a_bad_answer_is_no_pass_and_stops_no_other_measure(node: ProtectedNode, tool: str, measure: str, answer: dict[str, t.Any]) -> None:
    if (tool, answer["rc"]) in (("settings", 0), ("candidate", 0)):
        pytest.skip("says that nothing is there")
    node.broken = {tool: answer}
    outcome = node.run()
    assert outcome.verdicts[measure] == "unknown" and "pass" in node.run().verdicts.values(), outcome.messages


# -- others' files and settings ----------------------------------------------------------------------------------------------


def test_a_file_of_yours_in_the_place_stays(node: ProtectedNode) -> None:
    node.files[SYSCTL] = ("vm.overcommit_memory = 1\n", "0644")
    before = node.fingerprint()
    outcome = node.run("swap")
    assert not outcome.changed and outcome.verdicts == {"swap": "warn"} and f"{SYSCTL} is not this collection's" in outcome.messages
    assert not node.revert().changed and node.fingerprint() == before


@pytest.mark.parametrize("edited", [("mine\n", "0644"), (None, "0600")])
def test_a_file_that_was_edited_stays_and_is_named(node: ProtectedNode, edited: tuple[str | None, str]) -> None:
    node.run()
    edited = node.files[JOURNALD] = (edited[0] or node.files[JOURNALD][0], edited[1])
    again = node.run()
    assert not again.changed and f"{JOURNALD} was changed since it was written" in again.messages
    back = node.revert()
    assert [entry["verdict"] for entry in back.findings] == ["warn"] and f"rm {JOURNALD}" in back.messages
    assert node.files[JOURNALD] == edited and node.record is None


def test_one_that_was_removed_is_written_again(node: ProtectedNode) -> None:
    node.run("swap")
    del node.files[SYSCTL]
    assert node.run("swap").actions == [f"write {SYSCTL}"]
    node.revert()
    assert SYSCTL not in node.files


def test_what_you_set_in_another_file_counts(node: ProtectedNode) -> None:
    node.files["/etc/sysctl.conf"] = ("vm/swappiness=10\n", "0644")
    node.files["/etc/systemd/journald.conf"] = ("Storage=volatile\n", "0644")
    node.files["/etc/systemd/coredump.conf"] = ("Storage=none\nSyncIntervalSec=1\n", "0644")
    outcome = node.run("swap", "journal")
    assert outcome.verdicts == {"journal": "warn", "swap": "warn"}
    assert "sets vm.swappiness to 10" in outcome.messages and "sets Storage=volatile" in outcome.messages
    assert node.files[JOURNALD][0].partition("[Journal]")[2] == "\nSyncIntervalSec=10s\n" and not node.run("swap", "journal").changed


def test_a_newer_own_text_replaces_the_older_one(node: ProtectedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    before = node.fingerprint()
    node.run("swap")
    monkeypatch.setitem(measures.SYSCTLS, "swap", ("vm.swappiness", "2"))
    assert node.run("swap").changed and "vm.swappiness = 2" in node.files[SYSCTL][0]
    node.revert()
    assert node.fingerprint() == before


# -- the measures ------------------------------------------------------------------------------------------------------------


def test_sshd_that_is_protected_already_is_left_alone(node: ProtectedNode) -> None:
    node.score = -1000
    outcome = node.run("sshd")
    assert not outcome.changed and outcome.verdicts == {"sshd": "pass"} and "as OpenSSH sets it by itself" in outcome.messages and node.record is None


def test_a_score_that_cannot_be_lowered_is_named(node: ProtectedNode) -> None:
    node.capabilities = "0000003ffeffffff"
    outcome = node.run("sshd")
    assert not outcome.changed and outcome.verdicts == {"sshd": "warn"} and "CAP_SYS_RESOURCE" in outcome.messages


def test_a_drop_in_that_makes_logins_unkillable_is_named(node: ProtectedNode) -> None:
    node.unit_score = -1000
    outcome = node.run("sshd")
    assert outcome.changed and "OOMScoreAdjust=-1000" in outcome.messages and outcome.verdicts == {"sshd": "warn"}


def test_another_sshd_since_is_not_touched_by_a_revert(node: ProtectedNode) -> None:
    node.run("sshd")
    node.start = "999"
    back = node.revert()
    assert node.score == -1000 and node.record is None and not back.findings


def test_a_value_on_a_read_only_file_system_is_not_tried(node: ProtectedNode) -> None:
    node.writable = set()
    outcome = node.run("swap")
    assert outcome.actions == [f"write {SYSCTL}"] and outcome.verdicts == {"swap": "warn"}
    assert "still 60" in outcome.messages and not node.run("swap").changed


def test_a_value_that_you_set_since_stays(node: ProtectedNode) -> None:
    node.run("swap")
    node.swappiness = "33"
    back = node.revert()
    assert node.swappiness == "33" and "is 33 by now" in back.messages and node.record is None


def test_earlyoom_has_its_arguments_before_it_starts(node: ProtectedNode) -> None:
    done = node.run("earlyoom")
    assert [text.split()[0] for text in done.actions] == ["make", "write", "install"]
    arguments = node.arguments.split()
    assert arguments[:5] == ["-r", "3600", "-M", "2097152,1048576", "-s"]
    assert "sshd" in arguments[arguments.index("--avoid") + 1] and arguments[arguments.index("--prefer") + 1].startswith("^(")
    # Has the effect of its option -p, which its unit does not permit.
    assert node.files[DROP_IN][0].splitlines()[-2:] == ["Nice=-20", "OOMScoreAdjust=-100"]
    assert [line for line in node.called if "apt-get" in line] == [" ".join([*planned.APT, "install", "--no-install-recommends", "--no-remove", "earlyoom"])]


def test_a_node_of_half_the_size_has_half_the_threshold() -> None:
    assert measures.earlyoom_arguments(60 * 1024 * 1024).split()[3] == "1048576,524288"


def test_systemd_oomd_and_earlyoom_do_not_both_run(node: ProtectedNode) -> None:
    node.units[planned.OOMD] = ["enabled", "active"]
    outcome = node.run("earlyoom")
    assert not outcome.changed and outcome.verdicts == {"earlyoom": "warn"} and "systemd-oomd is active" in outcome.messages


def earlyoom_of_yours(node: ProtectedNode, text: str = "stock", unit: tuple[str, str] = ("enabled", "active"), arguments: str = "-r 3600") -> None:
    node.packages["earlyoom"] = ["install", "installed", "1.7-1"]
    node.units[planned.EARLYOOM] = list(unit)
    node.files[DEFAULT], node.arguments = (text, "0644"), arguments


def test_an_earlyoom_of_yours_with_settings_of_yours_stays(node: ProtectedNode) -> None:
    earlyoom_of_yours(node, "EARLYOOM_ARGS='-m 1'\n")
    outcome = node.run("earlyoom")
    assert not outcome.changed and outcome.verdicts == {"earlyoom": "warn"} and "/etc/default/earlyoom" in outcome.messages


def test_an_earlyoom_of_yours_that_is_masked_or_acts_in_time_stays(node: ProtectedNode) -> None:
    earlyoom_of_yours(node, unit=("masked", "inactive"))
    assert node.run("earlyoom").verdicts == {"earlyoom": "warn"}
    earlyoom_of_yours(node, arguments="-M 2000000,1000000 -s 100,100")
    outcome = node.run("earlyoom")
    assert not outcome.changed and outcome.verdicts == {"earlyoom": "pass"} and "of yours acts in time" in outcome.messages


def test_an_earlyoom_of_yours_that_does_nothing_gets_arguments_and_stays_at_the_end(node: ProtectedNode) -> None:
    for unit in (("disabled", "inactive"), ("enabled", "active")):
        earlyoom_of_yours(node, unit=unit)
        before = node.fingerprint()
        done = node.run("earlyoom")
        assert done.verdicts == {"earlyoom": "pass"} and node.units[planned.EARLYOOM] == ["enabled", "active"]
        node.revert()
        assert node.fingerprint() == before


def test_a_package_that_no_list_has_is_looked_for_once_more(node: ProtectedNode) -> None:
    node.candidate = ""
    outcome = node.run("earlyoom", "swap")
    assert outcome.verdicts == {"earlyoom": "block", "swap": "pass"} and "Unable to locate" in outcome.messages
    node.mirror = "1.7-1"
    assert node.run("earlyoom").verdicts == {"earlyoom": "pass"}


def test_a_version_that_leaves_out_what_a_driver_holds_is_named(node: ProtectedNode) -> None:
    node.candidate = "1.8.2-1"
    outcome = node.run("earlyoom")
    assert outcome.verdicts == {"earlyoom": "warn"} and "1.8.2-1 has no effect here" in outcome.messages and "before 1.8" in outcome.messages


def test_settings_that_you_gave_our_earlyoom_outlive_it(node: ProtectedNode) -> None:
    node.run("earlyoom")
    node.files[DEFAULT] = ("mine\n", "0644")
    back = node.revert()
    assert node.files[DEFAULT][0] == "mine\n" and back.verdicts == {"earlyoom": "warn"} and node.packages["earlyoom"][1] == "config-files"


def test_upgrades_are_reported_with_their_origins(node: ProtectedNode) -> None:
    outcome = node.run("unattended")
    assert outcome.verdicts == {"unattended": "warn"} and "-security" in outcome.messages and KERNEL in outcome.messages
    node.apt["APT::Periodic::Unattended-Upgrade"] = "0"
    off = node.run("unattended")
    assert off.verdicts == {"unattended": "pass"} and "no upgrades come unattended" in off.messages and not off.changed


def test_a_hold_of_the_owners_is_not_taken_back(node: ProtectedNode) -> None:
    node.run("holds")
    node.packages["linux-tools-1"] = ["hold", "installed", "1"]
    node.revert()
    assert node.packages["containerd.io"][0] == node.packages["linux-tools-1"][0] == "hold" and node.packages[KERNEL][0] == "install"


# -- off by default: a node that hangs, panics, or is on battery ---------------------------------------------------------------

OFF = ("watchdog", "panic", "ups")
WATCHDOG, PANIC, PATH_UNIT, SERVICE = (planned.FILES[name] for name in ("watchdog", "panic", "ups", "ups.service"))
OFF_MOMENTS = 21


@pytest.fixture
def power() -> ProtectedNode:
    power = ProtectedNode()
    power.with_nut()
    return power


def test_what_costs_something_is_set_up_when_it_is_named_and_comes_back_with_the_rest(power: ProtectedNode) -> None:
    before = power.fingerprint()
    power.run()
    assert not {WATCHDOG, PANIC, PATH_UNIT, SERVICE} & {*power.files} and power.panic == "0"

    first = power.run(*OFF)
    assert first.changed and first.verdicts == dict.fromkeys(OFF, "pass"), first.messages
    assert (power.watchdog, power.pings, power.panic) == ("15min", True, "10") and power.units[planned.HOOK] == ["enabled", "active"]
    assert power.files[WATCHDOG][0].endswith("\n[Manager]\nRuntimeWatchdogSec=15min\n") and power.files[PANIC][0].endswith("\nkernel.panic = 10\n")
    assert first.actions[-1] == f"enable and start {planned.HOOK}"
    protected = power.fingerprint()
    again = power.run(*OFF)
    assert not again.changed and power.fingerprint() == protected and again.verdicts == dict.fromkeys(OFF, "pass")

    back = power.revert()
    assert not back.findings and power.fingerprint() == before and power.record is None, back.messages


def test_what_costs_something_says_so_also_before_it_is_set_up(power: ProtectedNode) -> None:
    for check in (True, False):
        lines = power.run("panic", "swap", check=check).lines
        assert f"panic costs: {measures.costs()['panic']}" in lines and not [line for line in lines if line.startswith(("swap costs", "ups costs"))]
    assert not [line for line in power.revert("panic").lines if " costs: " in line]
    assert {*measures.costs()} == {*OFF}


def test_a_revert_of_fewer_measures_leaves_what_is_off_by_default(power: ProtectedNode) -> None:
    power.run(*DEFAULT_NAMES, *OFF)
    assert power.revert("swap", "holds").journal["measures"] == ["earlyoom", "journal", "panic", "sshd", "ups", "watchdog"]
    assert power.revert("panic").journal["measures"] == ["earlyoom", "journal", "sshd", "ups", "watchdog"] and power.panic == "0"
    power.revert()
    assert power.record is None and not power.pings


def test_a_set_up_of_all_defaults_sets_up_nothing_else(power: ProtectedNode) -> None:
    assert power.run(*DEFAULT_NAMES).journal["measures"] == ["earlyoom", "holds", "journal", "sshd", "swap"]


@pytest.mark.parametrize("at", range(1, OFF_MOMENTS + 1))
def test_an_interrupted_run_of_them_is_completed_or_taken_back(power: ProtectedNode, at: int) -> None:
    before = power.fingerprint()

    def interrupted(revert: bool = False) -> None:
        power.cut_at, power.moment = at, 0
        try:
            power.run(*OFF, revert=revert)
        except Cut:
            pass
        power.cut_at = 0

    interrupted()
    assert not power.revert().findings and power.fingerprint() == before
    interrupted()
    done = power.run(*OFF)
    assert done.verdicts == dict.fromkeys(OFF, "pass") and not power.run(*OFF).changed, done.messages
    interrupted(revert=True)
    power.revert()
    assert power.fingerprint() == before


def test_there_are_no_more_moments_of_them_than_are_tried(power: ProtectedNode) -> None:
    power.cut_at = OFF_MOMENTS
    power.run(*OFF)
    assert power.moment == OFF_MOMENTS - 1


def test_without_a_watchdog_nothing_is_set_and_that_is_said(node: ProtectedNode) -> None:
    node.writable.discard(measures.WATCHDOG_DEVICE)
    before = node.fingerprint()
    outcome = node.run("watchdog")
    assert not outcome.changed and outcome.verdicts == {"watchdog": "warn"} and "has no /dev/watchdog" in outcome.messages
    assert node.fingerprint() == before and node.run("panic").verdicts == {"panic": "pass"}


@pytest.mark.parametrize(("value", "pings", "changes"), [("30s", True, False), ("30s", False, True), ("0", True, True)])
def test_a_watchdog_that_systemd_pings_already_stays(node: ProtectedNode, value: str, pings: bool, changes: bool) -> None:
    node.watchdog, node.pings = value, pings
    outcome = node.run("watchdog")
    assert outcome.changed is changes and outcome.verdicts == {"watchdog": "pass"}
    assert ("already, with a RuntimeWatchdogSec of 30s" in outcome.messages) is not changes


@pytest.mark.parametrize(("value", "verdict"), [("off", "warn"), ("15min", "pass")])
def test_a_watchdog_that_you_set_in_a_file_stays(node: ProtectedNode, value: str, verdict: str) -> None:
    node.files["/etc/systemd/system.conf.d/10-mine.conf"] = (f"RuntimeWatchdogSec={value}\n", "0644")
    outcome = node.run("watchdog")
    assert not outcome.changed and outcome.verdicts == {"watchdog": verdict} and f"sets RuntimeWatchdogSec to {value}" in outcome.messages
    assert ("Take it out of /etc/systemd/system.conf.d/10-mine.conf" in outcome.messages) is (verdict == "warn")


def test_a_watchdog_that_systemd_does_not_get_is_named(node: ProtectedNode) -> None:
    node.holds_watchdog = "watchdogd"
    outcome = node.run("watchdog")
    assert outcome.verdicts == {"watchdog": "warn"} and "does not ping it" in outcome.messages and "fuser" in outcome.messages
    assert not node.run("watchdog").changed


def test_a_drop_in_that_systemd_has_not_read_is_read(node: ProtectedNode) -> None:
    assert "resets this node when systemd hangs for 15min" in node.run("watchdog").messages
    node.watchdog = "0"
    assert node.run("watchdog").actions == [planned.REEXEC] and node.watchdog == "15min"
    del node.files[WATCHDOG]
    assert node.run("watchdog").actions == [f"write {WATCHDOG}"] and not node.run("watchdog").changed


@pytest.mark.parametrize("ping", ["WatchdogLastPingTimestampMonotonic=0", f"WatchdogLastPingTimestampMonotonic={NEVER}", ""])
def test_a_time_that_is_none_is_no_ping(node: ProtectedNode, ping: str) -> None:
    node.broken = {"manager": {"stdout": f"RuntimeWatchdogUSec=30s\n{ping}\n"}}
    assert node.run("watchdog").actions[-1] == planned.REEXEC


def test_a_watchdog_whose_file_is_yours_stays(node: ProtectedNode) -> None:
    node.files[WATCHDOG] = ("# mine\n", "0644")
    assert not node.run("watchdog").changed and node.watchdog == "0"
    del node.files[WATCHDOG]
    node.run("watchdog")
    node.files[WATCHDOG] = ("[Manager]\nRuntimeWatchdogSec=1h\n", "0644")
    back = node.revert()
    assert not back.changed and f"rm {WATCHDOG}" in back.messages and node.watchdog == "15min"


@pytest.mark.parametrize("text", ["", "RuntimeWatchdogUSec=\n", "RuntimeWatchdogSec=0\n"])
def test_a_watchdog_that_systemd_does_not_report_is_unknown(node: ProtectedNode, text: str) -> None:
    node.broken = {"manager": {"stdout": text}}
    outcome = node.run("watchdog")
    assert not outcome.changed and outcome.verdicts == {"watchdog": "unknown"} and "does not report its watchdog" in outcome.messages


@pytest.mark.parametrize(("tool", "measure"), [("manager", "watchdog"), ("writable", "watchdog"), ("writable", "panic"), ("nut", "ups"), ("units", "ups")])
def test_a_bad_answer_about_power_is_unknown(power: ProtectedNode, tool: str, measure: str) -> None:
    power.broken = {tool: {"rc": 124, "stdout": "", "stderr_lines": []}}
    outcome = power.run(*OFF)
    assert outcome.verdicts[measure] == "unknown" and "pass" in outcome.verdicts.values(), outcome.messages


def test_a_panic_in_a_container_counts_from_the_next_boot_on(node: ProtectedNode) -> None:
    node.writable.discard("/proc/sys/kernel/panic")
    outcome = node.run("panic", "swap")
    assert outcome.verdicts == {"panic": "warn", "swap": "pass"} and "kernel.panic is still 0" in outcome.messages and node.panic == "0"
    node.panic = "5"
    assert node.revert().verdicts == {} and node.panic == "5"


def test_a_value_for_panics_that_you_set_stays(node: ProtectedNode) -> None:
    node.files["/etc/sysctl.d/10-mine.conf"] = ("kernel/panic = 60\n", "0644")
    outcome = node.run("panic")
    assert not outcome.changed and outcome.verdicts == {"panic": "warn"} and "sets kernel.panic to 60" in outcome.messages
    del node.files["/etc/sysctl.d/10-mine.conf"]
    node.panic = "60"
    assert node.run("panic").actions[-1] == "set kernel.panic from 60 to 10"
    node.revert()
    assert node.panic == "60"


# -- on battery --------------------------------------------------------------------------------------------------------------


def test_the_hook_stops_engine_and_companions_and_nothing_else(power: ProtectedNode) -> None:
    power.run("ups")
    assert f"PathExists={measures.ON_BATTERY}\n" in power.files[PATH_UNIT][0]
    commands = [line.partition("=")[2] for line in power.files[SERVICE][0].splitlines() if line.startswith("ExecStart=")]
    # The request goes first: one that comes during the stop is a new one.
    assert commands == [f"/usr/bin/rm -f {measures.ON_BATTERY}", "/usr/bin/systemctl stop gb10-engine-*.service gb10-companions*.service"]
    stopped = [pattern for pattern in commands[1].split() if pattern.startswith("gb10-")]
    names = [unit_files.unit_name("gb10"), unit_files.unit_name("spark-2"), unit_files.COMPANIONS, "gb10-guard.service", "gb10-sweep.service", planned.HOOK]
    assert [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in stopped)] == names[:3]


def test_a_request_from_before_does_not_act(power: ProtectedNode) -> None:
    power.requested = True
    assert power.run("ups").verdicts == {"ups": "pass"} and not power.requested
    assert power.called == [f"rm -f {measures.ON_BATTERY}", f"systemctl enable {planned.HOOK}", f"systemctl restart {planned.HOOK}"]


def test_without_nut_nothing_is_set_up_and_the_lines_are_named(node: ProtectedNode) -> None:
    before = node.fingerprint()
    outcome = node.run("ups")
    assert not outcome.changed and outcome.verdicts == {"ups": "warn"} and node.fingerprint() == before
    assert f"lack {len(measures.NUT)} line(s)" in outcome.messages and all(line in outcome.messages for _pattern, line in measures.NUT)


@pytest.mark.parametrize("number", range(len(measures.NUT)))
def test_each_line_that_nut_lacks_is_named(power: ProtectedNode, number: int) -> None:
    path, _colon, line = power.nut[number].partition(":")
    for other in (f"/etc/nut/other.conf:{line}", f"{path}:# {line}", f"{path}:{line.split()[0]}"):
        power.nut[number] = other
        outcome = power.run("ups")
        assert not outcome.changed and outcome.verdicts == {"ups": "warn"} and "lack 1 line(s)" in outcome.messages
        assert measures.NUT[number][1] in outcome.messages


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (0, f"{SCHED}:  CMDSCRIPT  \"/bin/touch\""), (1, f"{SCHED}:PIPEFN /run/nut/mine.pipe"),
        (3, f"{SCHED}:\tAT ONBATT\track@localhost START-TIMER \"/run/nut/gb10-on-battery\"  120"), (5, f'{MON}:NOTIFYCMD "/usr/sbin/upssched"'),
        (6, f"{MON}:NOTIFYFLAG ONBATT EXEC"), (7, f"{MON}:NOTIFYFLAG ONLINE SYSLOG+WALL+EXEC"), (7, f"{MON}:NOTIFYFLAG ONLINE EXEC+WALL"),
    ],
)  # fmt: skip
def test_lines_of_yours_that_do_the_same_are_enough(power: ProtectedNode, number: int, line: str) -> None:
    power.nut[number] = line
    assert power.run("ups").verdicts == {"ups": "pass"}


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (3, f"{SCHED}:AT ONBATT * START-TIMER /run/nut/gb10-on-battery-warning 60"), (4, f"{SCHED}:AT ONLINE * CANCEL-TIMER /run/nut/gb10-on-battery-warning"),
        (4, f"{SCHED}:AT ONBATT * CANCEL-TIMER /run/nut/gb10-on-battery"), (5, f"{MON}:NOTIFYCMD /usr/bin/mail"), (6, f"{MON}:NOTIFYFLAG ONBATT SYSLOG+WALL"),
    ],
)  # fmt: skip
def test_lines_of_yours_that_do_something_else_are_not_enough(power: ProtectedNode, number: int, line: str) -> None:
    power.nut[number] = line
    assert not power.run("ups").changed and power.units[planned.HOOK] == ["", "inactive"]


@pytest.mark.parametrize("script", ["/bin/upssched-cmd", "/opt/touch", "/usr/bin/touch /tmp/x"])
def test_a_script_of_yours_is_not_judged(power: ProtectedNode, script: str) -> None:
    power.with_nut(script)
    outcome = power.run("ups")
    assert outcome.changed and outcome.verdicts == {"ups": "warn"} and "is a script of yours" in outcome.messages
    assert power.units[planned.HOOK] == ["enabled", "active"]


@pytest.mark.parametrize("state", [["enabled", "inactive"], ["disabled", "active"]])
def test_a_hook_that_was_stopped_or_disabled_is_started(power: ProtectedNode, state: list[str]) -> None:
    power.run("ups")
    power.units[planned.HOOK] = state
    assert power.run("ups").actions == [f"enable and start {planned.HOOK}"] and power.units[planned.HOOK] == ["enabled", "active"]


def test_a_hook_that_a_run_did_not_finish_is_started_again(power: ProtectedNode) -> None:
    power.run("ups")
    assert power.record
    power.record["measures"]["ups"]["done"] = False
    assert power.run("ups").actions == [f"enable and start {planned.HOOK}"] and not power.run("ups").changed


@pytest.mark.parametrize("place", [PATH_UNIT, SERVICE])
def test_a_unit_file_of_yours_in_the_place_of_the_hook_stays(power: ProtectedNode, place: str) -> None:
    power.files[place] = ("mine\n", "0644")
    outcome = power.run("ups")
    assert outcome.verdicts == {"ups": "warn"} and f"{place} is not this collection's" in outcome.messages
    assert power.files == {place: ("mine\n", "0644")} and power.units[planned.HOOK] == ["", "inactive"] and power.record is None


def test_a_hook_that_was_edited_stays_and_is_named(power: ProtectedNode) -> None:
    power.run("ups")
    power.files[PATH_UNIT] = ("mine\n", "0644")
    back = power.revert()
    assert f"rm {PATH_UNIT}" in back.messages and PATH_UNIT in power.files and SERVICE not in power.files
    assert power.units[planned.HOOK] == ["enabled", "active"] and power.record is None
