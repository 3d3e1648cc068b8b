# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits, sshd and earlyoom, from recorded texts and composed trees."""

from __future__ import annotations

import pathlib

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process
from ansible_collections.gb10.cluster.plugins.module_utils._protect import limits
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult

RECORDED = (pathlib.Path(__file__).parents[3] / "fixtures/proc/recorded_dockerd_limits.txt").read_text()

GIB = 1024 * 1024
#: A Spark's memory in KiB as field reports give it, idle, without swap.
MEMINFO = {"MemTotal": 127_613_000, "MemAvailable": 118 * GIB, "AnonPages": 2 * GIB, "Shmem": GIB // 4, "SwapTotal": 0, "SwapFree": 0}
SWAP = {**MEMINFO, "SwapTotal": 16 * GIB, "SwapFree": 16 * GIB}


def process(pid, name, *argv, ppid=1, container="", state="S"):
    return Process(pid, ppid, state, name, argv or (f"/usr/bin/{name}",), container, 0, 1000)


def put(root, pid, file, text):
    base = root / str(pid)
    base.mkdir(exist_ok=True)
    (base / file).write_text(text)


def test_a_recorded_limit():
    assert limits.parse_memlock(RECORDED) == 8388608
    row = "locked memory         8388608              8388608  "
    assert row in RECORDED and limits.parse_memlock(RECORDED.replace(row, row.replace("8388608  ", "unlimited"))) == -1


@pytest.mark.parametrize("text", ["", RECORDED[:300], RECORDED.replace("8388608              8388608              bytes", "viel bytes")])
def test_a_limit_that_cannot_be_read_is_unknown(text):
    with pytest.raises(UnknownState):
        limits.parse_memlock(text)


def test_the_limit_of_a_daemon(tmp_path):
    put(tmp_path, 771, "limits", RECORDED)
    dockerd = process(771, "dockerd")
    assert limits.memlock([process(5, "x"), dockerd], "dockerd", str(tmp_path)) == 8388608
    assert limits.memlock([process(5, "x")], "dockerd", str(tmp_path)) is None
    assert limits.memlock([process(772, "dockerd")], "dockerd", str(tmp_path)) is None, "it ended before its limits were read"
    inside = process(700, "dockerd", container="ab" * 32)
    assert limits.daemon([inside, dockerd], "dockerd") == dockerd and limits.daemon([inside], "dockerd") is None


def test_the_sshd_that_takes_logins(tmp_path):
    put(tmp_path, 900, "oom_score_adj", "-1000\n")
    login = process(800, "sshd", "sshd: spark@notty", ppid=900)
    listener = process(900, "sshd", "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups")
    assert limits.sshd([login, listener], str(tmp_path)) == {"pid": 900, "oom_score_adj": -1000}
    assert limits.sshd([login], str(tmp_path)) == {"pid": None, "oom_score_adj": None}
    assert limits.sshd([], str(tmp_path)) == {"pid": None, "oom_score_adj": None}


@pytest.mark.parametrize("text", ["", "x", "1001", "-1001", "1 2"])
def test_an_adjustment_that_cannot_be_read_is_unknown(text):
    with pytest.raises(UnknownState):
        limits.parse_oom_score_adj(text)


@pytest.mark.parametrize(
    ("argv", "memory", "swap"),
    [
        ([], 10, 10),
        (["-m", "4,2", "-s", "100,100", "-r", "3600"], 4, 100),
        (["-m2", "-s80", "--prefer", "vllm|ray", "--avoid", "sshd"], 2, 80),
        (["-m", "4.5", "-p", "-n", "-g"], 4.5, 10),
        (["-M", "524288,102400", "-s", "100", "-r", "60"], 524288 * 100 / 127_613_000, 100),
        (["-m", "10", "-M", "1048576"], 1048576 * 100 / 127_613_000, 10),
        (["-S", str(8 * GIB)], 10, 50),
        (["-k", "-i", "--sort-by-rss", "--syslog"], 10, 10),
    ],
)
def test_what_earlyoom_was_started_with(argv, memory, swap):
    options = limits.parse_earlyoom(["earlyoom", *argv], SWAP["MemTotal"], SWAP["SwapTotal"])
    assert options.mem_percent == pytest.approx(memory) and options.swap_percent == pytest.approx(swap) and not options.dry_run


def test_a_size_of_swap_means_nothing_without_swap():
    assert limits.parse_earlyoom(["earlyoom", "-S", "1048576"], 1000, 0).swap_percent == 10


@pytest.mark.parametrize("argv", [["-m"], ["-m", "x"], ["-m", "-4"], ["--fast"], ["-Z"], ["-s", "1e9"], ["-m", ""]])
def test_arguments_that_are_not_known_are_unknown(argv):
    with pytest.raises(UnknownState, match="earlyoom runs with arguments") as caught:
        limits.parse_earlyoom(["earlyoom", *argv], 1000, 0)
    assert caught.value.details["raw"].startswith("earlyoom")


def judge(argv, meminfo, swappiness=60):
    thresholds = limits.parse_earlyoom(["earlyoom", *argv], meminfo["MemTotal"], meminfo["SwapTotal"])
    return limits.judge_earlyoom(thresholds, meminfo, swappiness)


@pytest.mark.parametrize(
    ("argv", "meminfo", "swappiness", "effective", "says"),
    [
        ([], MEMINFO, 60, True, "there is no swap"),
        # The field's three ways with swap: stock, ignoring swap, swap as a backstop.
        ([], SWAP, 60, False, "14746 MiB of the 16384 MiB of swap"),
        (["-m", "4,2", "-s", "100,100"], SWAP, 60, True, "always holds"),
        (["-m", "2", "-s", "80"], SWAP, 60, None, "3277 MiB"),
        (["-m", "2", "-s", "80"], {**SWAP, "AnonPages": 4 * GIB}, 60, True, "3277 MiB"),
        (["-m", "2", "-s", "80"], {**SWAP, "AnonPages": 4 * GIB}, 0, False, "vm.swappiness is 0"),
        ([], {**SWAP, "SwapFree": GIB}, 0, True, "enough swap is in use"),
        (["--dryrun"], MEMINFO, 60, False, "ends nothing"),
        (["-m", "0"], MEMINFO, 60, False, "memory threshold is 0 %"),
        ([], SWAP, None, False, "never swapped"),
    ],
)
def test_whether_earlyoom_can_take_effect(argv, meminfo, swappiness, effective, says):
    verdict, why = judge(argv, meminfo, swappiness)
    assert verdict is effective and says in why


def test_where_its_memory_threshold_lies():
    thresholds = limits.Thresholds(10.0, 100.0, False)
    levels = limits.acts_below_mb(thresholds, MEMINFO)
    # By the newer way 10 % of (available + 2 GiB): reached at 2 GiB / 9, far below 10 % of all memory.
    assert levels == {"of_total": 12462, "of_user": 227}
    assert limits.acts_below_mb(limits.Thresholds(100.0, 100.0, False), MEMINFO)["of_user"] == MEMINFO["MemTotal"] // 1024


def test_earlyoom_on_a_node():
    running = process(5, "earlyoom", "/usr/bin/earlyoom", "-m", "4,2", "-s", "100,100")
    state = limits.earlyoom([running], SWAP, 60, lambda: "1.7")
    assert state["running"] and state["args"] == "-m 4,2 -s 100,100" and state["effective"] is True and state["mem_percent"] == 4
    assert state["version"] == "1.7"
    absent = limits.earlyoom([process(5, "earlyoom", container="ab" * 32)], SWAP, 60, lambda: "1.7")
    assert absent["running"] is False and absent["effective"] is False and set(absent) == set(state), "one in a container does not guard the node"


@pytest.mark.parametrize("version", ["1.8", "1.8.2-1", "v1.8-11-g0a6f7cb", "1:1.9", "2.0", "10.1", "dirty"])
def test_a_version_that_counts_what_processes_hold_has_no_effect(version):
    """A driver's memory is in neither of its figures."""
    running = process(5, "earlyoom", "/usr/bin/earlyoom", "-M", "2097152,1048576", "-s", "100,100")
    state = limits.earlyoom([running], SWAP, 60, lambda: version)
    assert state["effective"] is False and "has no effect here: from 1.8 on" in state["why"] and f"at {state['acts_below_mb']['of_user']} MiB" in state["why"]
    unseen = limits.earlyoom([running], SWAP, 60, lambda: "")
    assert unseen["effective"] is None and "its version is unknown: from 1.8 on" in unseen["why"]
    dry = limits.earlyoom([process(5, "earlyoom", "/usr/bin/earlyoom", "--dryrun")], SWAP, 60, lambda: version)
    assert dry["effective"] is False and "--dryrun" in dry["why"]


@pytest.mark.parametrize("version", ["1.7", "1.7-1", "v1.6.2-34-g75a8852-dirty", "1:1.7.9", "0.12"])
def test_older_versions_count_what_is_available(version):
    running = process(5, "earlyoom", "/usr/bin/earlyoom", "-M", "2097152,1048576", "-s", "100,100")
    assert limits.earlyoom([running], SWAP, 60, lambda: version)["effective"] is True


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        (ToolResult(0, "", "earlyoom 1.7\n"), "1.7"),
        (ToolResult(0, "", "earlyoom v1.6.2-34-g75a8852\nmem total\n"), "v1.6.2-34-g75a8852"),
        (ToolResult(1, "x", ""), ""),
    ],
)
def test_the_installed_one_is_asked_for_its_version(monkeypatch, answer, version):
    calls = []
    monkeypatch.setattr(limits, "run_tool", lambda *given: calls.append(given) or answer)
    assert limits.earlyoom_version() == version and calls == [(["earlyoom", "-v"], 5)]


def test_one_that_cannot_be_asked_says_nothing(monkeypatch):
    def missing(*_given):
        raise UnknownState("earlyoom cannot be run")

    monkeypatch.setattr(limits, "run_tool", missing)
    assert limits.earlyoom_version() == ""


def test_each_part_fails_by_itself(tmp_path):
    put(tmp_path, 771, "limits", "rubbish")
    put(tmp_path, 900, "oom_score_adj", "0\n")
    (tmp_path / "sys/vm").mkdir(parents=True)
    (tmp_path / "sys/vm/swappiness").write_text("sixty\n")
    sections = Sections()
    processes = [process(771, "dockerd"), process(900, "sshd"), process(5, "earlyoom")]
    values = limits.limits(processes, lambda: SWAP, str(tmp_path), sections.section("limits"), str(tmp_path / "etc"))
    assert values == {
        "ipc_removed_of": [],
        "docker_memlock_bytes": None,
        "containerd_memlock_bytes": None,
        "sshd": {"pid": 900, "oom_score_adj": 0},
        "earlyoom": None,
    }
    assert [error["section"] for error in sections.errors] == ["limits"] * 2 and "swappiness" in sections.errors[1]["error"]


PASSWD = "root:x:0:0::/root:/bin/sh\nollama:x:998:998:::\nnvidia:x:1000:1000:::/bin/bash\nada:x:1001:1001::/:/bin/sh\nnobody:x:65534:::\nbroken\n"


@pytest.mark.parametrize(
    ("files", "users"),
    [
        ({}, ["nvidia"]),
        ({"logind.conf": "[Login]\n#RemoveIPC=no\n"}, ["nvidia"]),
        ({"logind.conf": "[Login]\nRemoveIPC=no\n"}, []),
        ({"logind.conf": "[Login]\nRemoveIPC=no\n", "logind.conf.d/10-x.conf": "[Login]\nRemoveIPC = yes\n"}, ["nvidia"]),
        ({"logind.conf.d/10-x.conf": "[Login]\nRemoveIPC=yes\n", "logind.conf.d/20-y.conf": "[Login]\nRemoveIPC=false\n"}, []),
    ],
)
def test_whose_semaphores_go_with_the_last_session(tmp_path, files, users):
    """Of ordinary users who do not linger, unless RemoveIPC is off; the last word counts."""
    etc, linger = tmp_path / "etc", tmp_path / "linger"
    (etc / "systemd/logind.conf.d").mkdir(parents=True)
    linger.mkdir()
    (linger / "ada").touch()
    (etc / "passwd").write_text(PASSWD)
    for name, text in files.items():
        (etc / "systemd" / name).write_text(text)
    assert limits.ipc_removed_of(str(etc), str(linger)) == users


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(st.integers(0, len(RECORDED)), st.integers(0, 60), st.text(max_size=20))
def test_mutated_limits_are_read_or_unknown(start, length, put_in):
    text = RECORDED[:start] + put_in + RECORDED[start + length:]
    try:
        assert limits.parse_memlock(text) >= -1
    except UnknownState:
        pass


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(
    st.lists(st.one_of(st.text(max_size=8), st.sampled_from(["-m", "-s", "-M", "-S", "4,2", "100", "--prefer", "--", "-r", "9" * 20])), max_size=6),
    st.sampled_from([MEMINFO, SWAP, {"MemTotal": 0, "SwapTotal": 0}]),
    st.one_of(st.none(), st.integers(0, 200)),
)
def test_no_arguments_of_earlyoom_are_too_strange(argv, meminfo, swappiness):
    try:
        state = limits.earlyoom([process(5, "earlyoom", "earlyoom", *argv)], meminfo, swappiness)
    except UnknownState:
        return
    assert state["effective"] in (True, False, None) and state["why"] and state["mem_percent"] >= 0
