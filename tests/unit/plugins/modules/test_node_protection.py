# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node is protected once, truthfully, and every byte comes back, wherever a run was interrupted."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from protected_node import KERNEL, ProtectedNode, verdicts

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._protect import act
from ansible_collections.gb10.cluster.plugins.module_utils._protect import journal as journals
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool
from ansible_collections.gb10.cluster.plugins.modules import node_protection

JOURNALD = "systemd/journald.conf.d/90-gb10-protect.conf"
DROP_IN = "systemd/system/earlyoom.service.d/90-gb10-protect.conf"
SYSCTL = "sysctl.d/90-gb10-protect.conf"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProtectedNode:
    return ProtectedNode(tmp_path, monkeypatch)


# -- the way there and back --------------------------------------------------------------------------------------------------


def test_a_node_is_protected_once_and_every_byte_comes_back(node: ProtectedNode) -> None:
    before = node.fingerprint()
    first = node.run()
    assert first["changed"] and verdicts(first) == dict.fromkeys(("sshd", "journal", "earlyoom", "swap", "holds", "unattended"), "pass"), first["findings"]
    assert node.score.read_text() == "-1000" and (node.proc / "sys/vm/swappiness").read_text() == "1"
    assert "SyncIntervalSec=10s" in (node.etc / JOURNALD).read_text() and "vm.swappiness = 1\n" in (node.etc / SYSCTL).read_text()
    assert {name: about["want"] for name, about in node.state["packages"].items()} == {
        KERNEL: "hold", "docker-ce": "hold", "containerd.io": "hold", "bash": "install", "unattended-upgrades": "install", "earlyoom": "install",
    }  # fmt: skip
    assert node.journal.stat().st_mode & 0o777 == 0o600
    protected = node.fingerprint()

    again = node.run()
    assert not again["changed"] and again["diff"] == {"before": {}, "after": {}} and node.fingerprint() == protected
    assert again["msg"] == "nothing to change"

    back = node.revert()
    assert back["changed"] and not back["findings"], back["findings"]
    assert node.fingerprint() == before and not node.journal.exists() and back["journal"]["changes"] == 0
    assert node.revert()["msg"] == "there is nothing to take back"


def test_check_mode_says_what_then_is_done(node: ProtectedNode) -> None:
    before = node.fingerprint()
    said = node.run(check=True)
    assert node.fingerprint() == before and said["changed"]
    assert not node.calls("systemctl", "apt-mark", "apt-get", "dpkg")
    done = node.run()
    assert done["actions"] == said["actions"]
    assert done["diff"] == said["diff"]
    protected = node.fingerprint()
    said = node.revert(check=True)
    assert node.fingerprint() == protected
    done = node.revert()
    assert done["actions"] == said["actions"]
    assert done["diff"]["after"] == said["diff"]["after"] and done["diff"]["before"] == said["diff"]["before"]


def test_nothing_that_an_engine_or_a_login_needs_is_restarted(node: ProtectedNode) -> None:
    node.run()
    node.revert()
    touched = {line.split()[-1] for line in node.calls("systemctl")}
    assert touched == {"systemd-journald.service", "daemon-reload", "earlyoom.service"} - {"earlyoom.service"}
    # apt's helper that restarts services is kept from it.
    assert act.QUIET[-1] == "NEEDRESTART_SUSPEND=1"


def test_a_measure_is_taken_back_alone(node: ProtectedNode) -> None:
    node.run()
    back = node.revert("holds")
    assert back["journal"]["measures"] == ["earlyoom", "journal", "sshd", "swap"]
    assert node.state["packages"][KERNEL]["want"] == "install" and node.state["packages"]["containerd.io"]["want"] == "hold"
    assert (node.etc / JOURNALD).exists()


# -- interrupted -------------------------------------------------------------------------------------------------------------


class Cut(BaseException):
    """The power goes."""


def moments(node: ProtectedNode, monkeypatch: pytest.MonkeyPatch, run: t.Callable[[], t.Any], at: int) -> bool:
    """Run, and stop at the ``at``-th time that the journal is on the disk; returns whether there was such a moment."""
    count, save = 0, journals.Journal.save

    def counted(self: journals.Journal) -> None:
        nonlocal count
        save(self)
        count += 1
        if count == at:
            raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(journals.Journal, "save", counted)
        try:
            run()
        except Cut:
            return True
    return False


@pytest.mark.parametrize("at", range(1, 14))
def test_an_interrupted_run_is_completed_or_taken_back(node: ProtectedNode, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    before = node.fingerprint()
    there = moments(node, monkeypatch, node.run, at)
    node.revert()
    assert node.fingerprint() == before
    assert moments(node, monkeypatch, node.run, at) == there
    done = node.run()
    assert "block" not in verdicts(done).values() and not node.run()["changed"]
    assert not json.loads(node.journal.read_text())["pending"]
    moments(node, monkeypatch, node.revert, at)
    node.revert()
    assert node.fingerprint() == before


def test_there_are_no_more_moments_than_are_tried(node: ProtectedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    assert moments(node, monkeypatch, node.run, 11) and not moments(node, monkeypatch, node.run, 14)


def test_a_file_that_was_cut_while_it_was_written_leaves_nothing(node: ProtectedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    before = node.fingerprint()
    assert moments(node, monkeypatch, lambda: node.run("swap"), 1)
    (node.etc / f"{SYSCTL}.4194305-7.new").write_text("half")
    node.revert()
    assert node.fingerprint() == before


# -- others' files and settings ----------------------------------------------------------------------------------------------


def test_a_file_of_yours_in_the_place_stays(node: ProtectedNode) -> None:
    (node.etc / SYSCTL).write_text("vm.overcommit_memory = 1\n")
    before = node.fingerprint()
    said = node.run("swap")
    assert not said["changed"] and verdicts(said) == {"swap": "warn"} and f"{SYSCTL} is not this collection's" in said["findings"][0]["message"]
    assert not node.revert()["changed"] and node.fingerprint() == before


EDITS = [lambda path: path.write_text("mine\n"), lambda path: path.chmod(0o600), lambda path: (path.unlink(), path.symlink_to("/dev/null"))]


@pytest.mark.parametrize("edit", EDITS)
def test_a_file_that_was_edited_stays_and_is_named(node: ProtectedNode, edit: t.Callable[[Path], t.Any]) -> None:
    node.run()
    path = node.etc / JOURNALD
    edit(path)
    mode, edited = path.lstat().st_mode, path.read_bytes()
    again = node.run()
    assert not again["changed"] and f"{path} was changed since it was written" in "".join(entry["message"] for entry in again["findings"])
    back = node.revert()
    assert [entry["verdict"] for entry in back["findings"]] == ["warn", "warn"] and f"rm {path}" in str(back["findings"])
    assert path.lstat().st_mode == mode and path.read_bytes() == edited and not node.journal.exists()


def test_one_that_was_removed_is_written_again(node: ProtectedNode) -> None:
    node.run("swap")
    (node.etc / SYSCTL).unlink()
    assert node.run("swap")["actions"] == [f"write {node.etc / SYSCTL}"]
    node.revert()
    assert not (node.etc / SYSCTL).exists()


def test_what_you_set_in_another_file_counts(node: ProtectedNode) -> None:
    (node.etc / "sysctl.conf").write_text("# vm.swappiness = 5\nvm/swappiness=10\n")
    (node.etc / "systemd/journald.conf").write_text("[Journal]\nStorage=volatile\n")
    said = node.run("swap", "journal")
    assert verdicts(said) == {"journal": "warn", "swap": "warn"}
    assert "sets vm.swappiness to 10" in str(said["findings"]) and "sets Storage=volatile" in str(said["findings"])
    assert "Storage" not in (node.etc / JOURNALD).read_text().partition("[Journal]")[2]
    assert not node.run("swap", "journal")["changed"]


def test_a_newer_text_of_ours_replaces_the_older_one(node: ProtectedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    before = node.fingerprint()
    node.run("swap")
    monkeypatch.setattr(node_protection.measures, "SWAPPINESS", 2)
    done = node.run("swap")
    assert done["actions"][0].startswith("rewrite") and "vm.swappiness = 2" in (node.etc / SYSCTL).read_text()
    node.revert()
    assert node.fingerprint() == before


# -- the measures ------------------------------------------------------------------------------------------------------------


def test_sshd_that_is_protected_already_is_left_alone(node: ProtectedNode) -> None:
    node.score.write_text("-1000\n")
    said = node.run("sshd")
    assert not said["changed"] and verdicts(said) == {"sshd": "pass"} and "as OpenSSH sets it by itself" in said["findings"][0]["message"]
    assert not node.journal.exists()


def test_where_nobody_may_lower_a_score_that_is_said(node: ProtectedNode) -> None:
    (node.proc / "self/status").write_text("CapEff:\t0000003ffeffffff\n")
    said = node.run("sshd")
    assert not said["changed"] and verdicts(said) == {"sshd": "warn"} and "CAP_SYS_RESOURCE" in said["findings"][0]["message"]


def test_a_drop_in_that_makes_logins_unkillable_is_named(node: ProtectedNode) -> None:
    node.change(unit_score=-1000)
    said = node.run("sshd")
    assert said["changed"] and "OOMScoreAdjust=-1000" in said["findings"][0]["message"] and verdicts(said) == {"sshd": "warn"}


def test_another_sshd_since_is_not_touched_by_a_revert(node: ProtectedNode) -> None:
    node.run("sshd")
    stat = node.proc / "1204/stat"
    stat.write_text(stat.read_text().replace(" 700 ", " 999 "))
    node.score.write_text("-1000\n")
    back = node.revert()
    assert node.score.read_text() == "-1000\n" and not node.journal.exists() and not back["findings"]


def test_a_value_that_the_kernel_does_not_take_is_said(node: ProtectedNode) -> None:
    (node.proc / "sys/vm/swappiness").chmod(0o444)
    said = node.run("swap")
    if said["actions"] == [f"write {node.etc / SYSCTL}"]:  # root writes files of any mode
        assert "cannot be written here" in said["findings"][0]["message"] and verdicts(said) == {"swap": "warn"}
        assert not node.run("swap")["changed"]


def test_a_value_on_a_read_only_file_system_is_not_tried(node: ProtectedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_protection.machine.os, "access", lambda path, mode: False)
    said = node.run("swap")
    assert said["actions"] == [f"write {node.etc / SYSCTL}"] and verdicts(said) == {"swap": "warn"}
    assert "still 60" in said["findings"][0]["message"] and not node.run("swap")["changed"]


def test_a_value_that_you_set_since_stays(node: ProtectedNode) -> None:
    node.run("swap")
    (node.proc / "sys/vm/swappiness").write_text("33\n")
    back = node.revert()
    assert (node.proc / "sys/vm/swappiness").read_text() == "33\n" and "is 33 by now" in back["findings"][0]["message"] and not node.journal.exists()


def test_earlyoom_has_its_arguments_before_it_starts(node: ProtectedNode) -> None:
    done = node.run("earlyoom")
    texts = done["actions"]
    assert [text.split()[0] for text in texts] == ["make", "make", "write", "have", "install"]
    arguments = (node.proc / "4000/cmdline").read_bytes().decode().split("\0")
    assert arguments[:6] == ["earlyoom", "-r", "3600", "-M", "2097152,1048576", "-s"]
    assert "sshd" in arguments[arguments.index("--avoid") + 1] and "dockerd" in arguments[arguments.index("--avoid") + 1]
    assert arguments[arguments.index("--prefer") + 1].startswith("^(")
    # As its option -p, which its unit denies it.
    assert (node.etc / DROP_IN).read_text().splitlines()[-2:] == ["Nice=-20", "OOMScoreAdjust=-100"]


def test_a_node_of_half_the_size_has_half_the_threshold(node: ProtectedNode) -> None:
    assert node_protection.measures.earlyoom_arguments(60 * 1024 * 1024).split()[3] == "1048576,524288"


def test_systemd_oomd_and_earlyoom_do_not_both_run(node: ProtectedNode) -> None:
    node.change(units={**node.state["units"], "systemd-oomd.service": ["enabled", "active"]})
    said = node.run("earlyoom")
    assert not said["changed"] and verdicts(said) == {"earlyoom": "warn"} and "systemd-oomd is active" in said["findings"][0]["message"]


def earlyoom_of_yours(node: ProtectedNode, text: str = "stock\n", unit: tuple[str, str] = ("enabled", "active")) -> None:
    packages = {**node.state["packages"], "earlyoom": {"want": "install", "status": "installed", "version": "1.7-1"}}
    node.change(packages=packages, units={**node.state["units"], "earlyoom.service": list(unit)})
    (node.etc / "default/earlyoom").write_text(text)


def test_an_earlyoom_of_yours_with_settings_of_yours_stays(node: ProtectedNode) -> None:
    earlyoom_of_yours(node, "EARLYOOM_ARGS='-m 1'\n")
    said = node.run("earlyoom")
    assert not said["changed"] and verdicts(said) == {"earlyoom": "warn"} and "/etc/default/earlyoom" in said["findings"][0]["message"]


def test_an_earlyoom_of_yours_that_does_nothing_gets_arguments_and_stays_at_the_end(node: ProtectedNode) -> None:
    earlyoom_of_yours(node, unit=("disabled", "inactive"))
    before = node.fingerprint()
    done = node.run("earlyoom")
    assert verdicts(done) == {"earlyoom": "pass"} and node.state["units"]["earlyoom.service"] == ["enabled", "active"]
    node.revert()
    assert node.fingerprint() == before


def test_a_package_that_no_list_has_is_looked_for_once_more(node: ProtectedNode) -> None:
    node.change(candidates={}, mirror={})
    said = node.run("earlyoom", "swap")
    assert verdicts(said) == {"earlyoom": "block", "swap": "pass"} and "lists have no earlyoom" in str(said["findings"])
    node.change(mirror={"earlyoom": "1.7-1"})
    assert verdicts(node.run("earlyoom")) == {"earlyoom": "pass"}


def test_an_installation_that_would_remove_something_is_refused(node: ProtectedNode) -> None:
    node.change(simulated="Remv docker-ce [5:29]\n")
    said = node.run("earlyoom")
    assert verdicts(said) == {"earlyoom": "block"} and "would remove docker-ce" in str(said["findings"])
    assert not [line for line in node.calls("apt-get") if "-y" in line]


def test_a_version_that_leaves_out_what_a_driver_holds_is_named(node: ProtectedNode) -> None:
    node.change(candidates={"earlyoom": "1.8.2-1"})
    (found,) = node.run("earlyoom")["findings"]
    assert found["verdict"] == "warn" and "1.8.2-1 has no effect here" in found["message"] and "before 1.8" in found["remedy"]


def test_settings_that_you_gave_our_earlyoom_outlive_it(node: ProtectedNode) -> None:
    node.run("earlyoom")
    (node.etc / "default/earlyoom").write_text("mine\n")
    back = node.revert()
    assert (node.etc / "default/earlyoom").read_text() == "mine\n" and verdicts(back) == {"earlyoom": "warn"}
    assert node.state["packages"]["earlyoom"]["status"] == "config-files"


def test_upgrades_are_reported_with_their_origins(node: ProtectedNode) -> None:
    said = node.run("unattended")
    assert verdicts(said) == {"unattended": "warn"} and "-security" in said["findings"][0]["message"] and KERNEL in said["findings"][0]["message"]
    node.change(apt=[["APT::Periodic::Unattended-Upgrade", "0"]])
    off = node.run("unattended")
    assert verdicts(off) == {"unattended": "pass"} and "no upgrades come unattended" in off["findings"][0]["message"] and not off["changed"]


# -- bad answers -------------------------------------------------------------------------------------------------------------


BAD = {"sshd": "systemctl", "journal": "systemctl", "earlyoom": "dpkg-query", "holds": "dpkg-query", "unattended": "apt-config"}


@pytest.mark.parametrize(("measure", "tool"), BAD.items())
@pytest.mark.parametrize("how", ["rubbish", "missing"])
def test_a_bad_answer_is_no_pass_and_stops_no_other_measure(node: ProtectedNode, measure: str, tool: str, how: str) -> None:
    if how == "missing":
        node.lacks.add(tool)
    else:
        node.answer(tool, "rubb\tish", 3)
    said = node.run(measure, "swap")
    assert verdicts(said)[measure] in ("unknown", "block") and verdicts(said)["swap"] == "pass", said["findings"]
    finding = next(entry for entry in said["findings"] if entry["id"] == f"protect.{measure}")
    assert finding["remedy"] and (how != "rubbish" or "rubb" in str(finding))


def test_a_tool_that_hangs_is_unknown(node: ProtectedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_protection.machine, "run_tool", lambda argv, timeout: run_tool(["sleep", "600"], 0.2))
    said = node.run("holds", "swap")
    assert verdicts(said) == {"holds": "unknown", "swap": "pass"} and "did not answer within" in str(said["findings"])


def test_what_is_unknown_fails_the_module_by_default(node: ProtectedNode) -> None:
    node.answer("dpkg-query", "rubbish", 1)
    with pytest.raises(ClusterError) as caught:
        node.run("holds", fail_on=["block", "unknown"])
    assert "protect.holds" in str(caught.value) and caught.value.details["findings"]


def test_a_hold_that_fails_is_completed_later(node: ProtectedNode) -> None:
    before = node.fingerprint()
    node.answer("apt-mark", "E: locked", 100)
    assert verdicts(node.run("holds")) == {"holds": "block"}
    node.change(answers={})
    assert verdicts(node.run("holds")) == {"holds": "pass"}
    node.answer("apt-mark", "E: locked", 100)
    assert verdicts(node.revert()) == {"holds": "block"} and node.journal.exists()
    node.change(answers={})
    node.revert()
    assert node.fingerprint() == before


NEWER, SHORT = ('{{"schema": {}, "entries": [{}], "pending": {{}}, "made": []}}'.format(*words) for words in ((2, ""), (1, '{"kind": "file"}')))


@pytest.mark.parametrize("text", ["", "{}", "[]", NEWER, SHORT])
def test_a_journal_that_cannot_be_read_stops_everything(node: ProtectedNode, text: str) -> None:
    node.journal.parent.mkdir(parents=True)
    node.journal.write_text(text)
    before = node.fingerprint()
    for run in (node.run, node.revert):
        with pytest.raises(UnknownState, match="is not the journal"):
            run()
    assert node.fingerprint() == before


def test_two_runs_do_not_protect_one_node(node: ProtectedNode) -> None:
    with journals.alone(), pytest.raises(ClusterError, match="another run"):
        node.run()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_hold_of_the_owners_is_not_taken_back(node: ProtectedNode, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The run was ended while it held packages, so the journal names them. The owner held one of them, or all that is known is that somebody did."""

    def cut(argv: t.Sequence[str], timeout: float) -> t.Any:
        if "apt-mark" not in argv:
            return node.tool(argv, timeout)
        if when == "after":
            node.tool(argv, timeout)
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(act, "run_tool", cut)
        with pytest.raises(Cut):
            node.run("holds")
    node.tool(["apt-mark", "hold", KERNEL], 1)
    back = node.revert("holds")
    held = [KERNEL] if when == "before" else ["docker-ce", KERNEL]
    assert verdicts(back) == {"holds": "warn"} and node.state["packages"][KERNEL]["want"] == "hold"
    said = back["findings"][0]
    assert all(one in said["message"] for one in held) and said["remedy"].startswith("apt-mark unhold") and KERNEL in said["remedy"]
    assert not node.journal.exists() and node.state["packages"]["containerd.io"]["want"] == "hold"


def test_holds_that_were_noted_before_it_was_known_whether_they_were_made_are_taken_back(node: ProtectedNode) -> None:
    before = node.fingerprint()
    node.run("holds")
    noted = json.loads(node.journal.read_text())
    assert {entry.pop("made") for entry in noted["entries"]} == {True}
    node.journal.write_text(json.dumps(noted))
    node.revert("holds")
    assert node.fingerprint() == before


def test_a_hold_that_apt_did_not_make_is_not_on_record(node: ProtectedNode) -> None:
    node.answer("apt-mark", "E: locked", 100)
    node.run("holds")
    assert not node.journal.exists()
