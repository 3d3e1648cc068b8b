# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which parts are chosen or skipped and why, and the end of the table."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
spec = importlib.util.spec_from_file_location("run_parts", ROOT / "tests" / "tools" / "run_parts.py")
run_parts = importlib.util.module_from_spec(spec)
sys.modules["run_parts"] = run_parts
spec.loader.exec_module(run_parts)

Result = run_parts.Result


def part(**fields: t.Any) -> dict[str, t.Any]:
    """Return the fields of a part that does nothing."""
    return {"title": "t", "commands": ["true"], "timeout": 1, **fields}


EVERYTHING = run_parts.Part(name="units", title="t", commands=("pytest tests/unit",), timeout=1)
ON_NODES = run_parts.Part(name="faults", title="t", commands=("pytest tests/integration/test_faults.py",), timeout=1, reads="nodes")

PARTS = run_parts.parse_parts({
    "lint": part(suites=["test"]),
    "lab-up": part(kind="setup"),
    "play": part(suites=["test"], needs=["lab-up"]),
    "faults": part(suites=["test"], needs=["lab-up"]),
    "lab-down": part(suites=["test"], kind="cleanup"),
})


def names(parts: t.Iterable[t.Any]) -> list[str]:
    return [part.name for part in parts]


def test_the_shipped_file_is_understood() -> None:
    file = yaml.safe_load((ROOT / "tests" / "parts.yml").read_text(encoding="utf-8"))
    parts = run_parts.parse_parts(file["parts"])
    assert all(part.commands and part.timeout > 0 and part.kind in {"check", "setup", "cleanup"} for part in parts.values())
    # Half of a part, or one run of it, represents it in the shorter suite.
    assert all("full" in parts[re.sub("-(half|once)", "", part.name)].suites for part in parts.values() if "test" in part.suites)
    assert "--share 1/2" in " ".join(parts["units-half"].commands) and "--share 2/2" in " ".join(parts["units-half-next"].commands)


def test_a_need_must_come_first() -> None:
    with pytest.raises(ValueError, match="part play needs lab-up"):
        run_parts.parse_parts({"play": part(needs=["lab-up"])})


def test_naming_a_part_brings_what_it_needs_in_order() -> None:
    assert names(run_parts.select(PARTS, ["faults"], set())) == ["lab-up", "faults"]


def test_green_checks_pull_in_no_setup() -> None:
    wanted = ["lint", "play", "faults", "lab-down"]
    assert names(run_parts.select(PARTS, wanted, {"lint", "play", "faults", "lab-up", "lab-down"})) == wanted
    assert names(run_parts.select(PARTS, wanted, {"lint", "play"})) == ["lint", "lab-up", "play", "faults", "lab-down"]


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (Result("lab-up", "passed"), ""),
        (Result("lab-up", "failed", note="exit code 1"), "lab-up failed"),
        (Result("lab-up", "skipped", note="no memory"), "no memory"),
    ],
)
def test_a_part_waits_for_what_it_needs(before: t.Any, reason: str) -> None:
    assert run_parts.blocked_by(PARTS["play"], {"lab-up": before}) == reason


def test_the_table_ends_with_the_counts_and_names_what_was_skipped() -> None:
    lines = run_parts.table([Result("lint", "passed", 1.25), Result("sanity-next", "skipped", 0, "no Python")]).splitlines()
    assert lines[1:] == [
        "lint         passed       1.2",
        "sanity-next  skipped      0.0  no Python",
        "SKIPPED: sanity-next: no Python",
        "",
        "1 passed, 0 failed, 1 skipped",
    ]


def test_memory_knows_only_what_passed_on_these_files(tmp_path: Path) -> None:
    memory = run_parts.Memory(tmp_path / "new" / "parts.json")
    memory.record("lint", "a")
    memory.record("units", "a")
    memory.record("units", None)
    again = run_parts.Memory(tmp_path / "new" / "parts.json")
    assert again.green({"lint": "a", "units": "a"}) == {"lint"}
    assert again.green({"lint": "b", "units": "a"}) == set()


def test_the_digest_sees_content_mode_and_new_files(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("ignored\n")
    script = tmp_path / "script"
    seen = []
    for change in (lambda: None, lambda: script.write_text("1"), lambda: script.write_text("2"), lambda: script.chmod(0o755)):
        change()
        seen.append(run_parts.digest(EVERYTHING, run_parts.tree_files(tmp_path), []))
    assert len(set(seen)) == 4
    (tmp_path / "ignored").write_text("x")
    assert run_parts.digest(EVERYTHING, run_parts.tree_files(tmp_path), []) == seen[-1]


@pytest.mark.parametrize(
    ("changed", "everything", "on_nodes"),
    [
        ("plugins/modules/node_info.py", False, False),
        ("tests/integration/lab.py", False, False),
        ("tests/integration/test_faults.py", False, False),
        ("tests/integration/test_prune.py", False, True),
        ("tests/unit/test_init.py", False, True),
        ("docs/index.md", False, True),
        ("roles/engine/README.md", False, True),
    ],
)
def test_a_part_that_works_on_nodes_stays_green_when_what_it_never_reads_changes(changed: str, everything: bool, on_nodes: bool) -> None:
    not_on_nodes = yaml.safe_load(run_parts.PARTS_FILE.read_text(encoding="utf-8"))["not_on_nodes"]
    before = {changed: "1", "galaxy.yml": "1"}
    after = {**before, changed: "2"}
    for part, stays in ((EVERYTHING, everything), (ON_NODES, on_nodes)):
        assert (run_parts.digest(part, before, not_on_nodes) == run_parts.digest(part, after, not_on_nodes)) == stays


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., t.Any]:
    """Run commands as one part in an empty directory."""
    monkeypatch.setattr(run_parts, "ROOT", tmp_path)
    monkeypatch.setattr(run_parts, "CACHE", tmp_path / ".cache")

    def run(*commands: str, **fields: t.Any) -> t.Any:
        parsed = run_parts.parse_parts({"p": part(commands=commands, **fields)})["p"]
        return run_parts.run_part(parsed, {}, run_parts.Screen(), threading.Event())

    return run


def test_all_commands_run_and_every_failure_is_named(runner: t.Callable[..., t.Any], capfd: pytest.CaptureFixture[str]) -> None:
    result = runner("false", "no-such-program", "echo 'last one'")
    assert result.outcome == "failed"
    assert "false: exit code 1; no-such-program: no-such-program not found" in result.note
    assert "last one" in capfd.readouterr().out


def test_exit_code_77_skips_with_the_last_line_as_reason(runner: t.Callable[..., t.Any]) -> None:
    assert runner("sh -c 'echo no GPU here; exit 77'") == Result("p", "skipped", pytest.approx(0, abs=10), "no GPU here")


def test_a_command_out_of_time_is_ended(runner: t.Callable[..., t.Any]) -> None:
    started = time.monotonic()
    result = runner("sleep 60", timeout=0.01)
    assert result.outcome == "failed" and "sleep 60: not done after 0.01 min" in result.note
    assert time.monotonic() - started < 30


def test_what_a_command_leaves_running_does_not_hold_the_part(runner: t.Callable[..., t.Any]) -> None:
    started = time.monotonic()
    assert runner("sh -c 'sleep 20 & echo done'").outcome == "passed"
    assert time.monotonic() - started < 10


def suite(run: t.Callable[[t.Any], t.Any], **parts: dict[str, t.Any]) -> t.Any:
    """Run parts to their end."""
    made = run_parts.Suite(list(run_parts.parse_parts(parts).values()), set(), run, lambda part, text: None)
    lanes = made.lanes()
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join(timeout=30)
    made.clean_up()
    return made.results


def test_lanes_run_beside_each_other() -> None:
    """Each of the two waits until the other one runs."""
    together = threading.Barrier(2, timeout=20)

    def run(part: t.Any) -> t.Any:
        together.wait()
        return Result(part.name, "passed")

    assert suite(run, units=part(), play=part(reads="nodes")) == [Result("units", "passed"), Result("play", "passed")]


def test_a_part_waits_for_one_of_the_other_lane_and_parts_of_one_lane_keep_their_order() -> None:
    began: list[str] = []

    def run(part: t.Any) -> t.Any:
        began.append(part.name)
        return Result(part.name, "failed" if part.name == "units" else "passed")

    main = {"lint": part(), "venv": part(kind="setup"), "units": part()}
    results = suite(run, **main, play=part(reads="nodes", needs=["venv"]), faults=part(reads="nodes", needs=["units"]))
    assert began.index("lint") < began.index("venv") < began.index("play") and began.index("venv") < began.index("units")
    assert results[-1] == Result("faults", "skipped", note="units failed") and "faults" not in began


def test_cleaning_up_comes_after_all_lanes() -> None:
    ended: list[str] = []
    slow = threading.Event()

    def run(part: t.Any) -> t.Any:
        if part.name == "units":
            assert slow.wait(timeout=20)
        ended.append(part.name)
        if part.name == "play":
            slow.set()
        return Result(part.name, "passed")

    results = suite(run, play=part(reads="nodes"), units=part(), down=part(kind="cleanup", needs=["play"]))
    assert ended == ["play", "units", "down"] and [result.outcome for result in results] == ["passed"] * 3


def test_lines_of_several_parts_are_whole_and_say_whose_they_are(capfd: pytest.CaptureFixture[str]) -> None:
    screen = run_parts.Screen(named=True)
    for name, output in (("units", b"1 pas"), ("play", b"TASK\n"), ("units", b"sed\nno end")):
        screen.show(name, output)
    screen.show("units", b"", whole=True)
    assert capfd.readouterr().out == "play: TASK\nunits: 1 passed\nunits: no end\n"


def test_an_interrupted_run_ends_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_parts, "ROOT", tmp_path)
    monkeypatch.setattr(run_parts, "CACHE", tmp_path / ".cache")
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    started = time.monotonic()
    parsed = run_parts.parse_parts({"p": part(commands=["sleep 60", "sleep 60"])})["p"]
    result = run_parts.run_part(parsed, {}, run_parts.Screen(), stop)
    assert result.outcome == "failed" and "sleep 60: interrupted (log" in result.note
    assert time.monotonic() - started < 30
