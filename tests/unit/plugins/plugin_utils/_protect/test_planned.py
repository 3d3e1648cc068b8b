# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node is protected once, a revert restores everything, and the owner's files and settings stay."""

from __future__ import annotations

import typing as t

import pytest
from protected_node import DEFAULT, KERNEL, ProtectedNode

from ansible_collections.gb10.cluster.plugins.plugin_utils._protect import measures, planned

JOURNALD, SYSCTL, DROP_IN = (planned.FILES[name] for name in ("journal", "swap", "earlyoom"))
MOMENTS = 26


@pytest.fixture
def node() -> ProtectedNode:
    return ProtectedNode()


def test_a_node_is_protected_once_and_everything_comes_back(node: ProtectedNode) -> None:
    before = node.fingerprint()
    first = node.run()
    assert first.changed and first.verdicts == dict.fromkeys(measures.NAMES, "pass"), first.messages
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
    assert outcome.verdicts == {**dict.fromkeys(measures.NAMES, "pass"), "journal": "block"} and "it is refused" in outcome.messages
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
    monkeypatch.setattr(planned.measures, "SWAPPINESS", "2")
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
    node.writable = False
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
