# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's notes about a failed step of a mode change, through Ansible itself, on this machine."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from test_passed_on import ROOT, Book

LAB_PROFILES = ROOT / "tests/lab/profiles"
BROKEN = "is not JSON"


def note(tmp_path: Path, task: dict[str, t.Any], known: dict[str, t.Any] | None = None, **variables: t.Any) -> dict[str, dict[str, t.Any]]:
    """Let a task fail in a step on spark-1, and return each node's notes."""
    place = tmp_path / "state"
    place.mkdir()
    (place / "mode.json").write_text("{", encoding="utf-8")
    failed = {"name": "gb10.cluster.mode", "tasks_from": "failed", "rolespec_validate": False}
    facts = {"ansible_failed_result": {}, "__mode_errors": {}, "__mode_leak": False, "__mode_down_at": "", "__mode_asked_at": "100.5", **(known or {})}
    noted = {name: f"{{{{ {name} }}}}" for name in ("__mode_errors", "__mode_leak", "__mode_down_at")}
    shown = {"dest": f"{tmp_path}/{{{{ inventory_hostname }}}}.json", "content": "{{ noted | to_json }}"}
    tasks = [
        {
            "any_errors_fatal": True,
            "block": [{"ansible.builtin.set_fact": facts}, {**task, "when": "inventory_hostname == 'spark-1'"}],
            "rescue": [{"ansible.builtin.import_role": failed, "vars": {"__mode_step": "down", **variables}}],
        },
        {"ansible.builtin.copy": shown, "vars": {"noted": noted}},
    ]
    code, output = Book(tmp_path).play(tasks)
    assert code == 0, output
    return {node: json.loads((tmp_path / f"{node}.json").read_text(encoding="utf-8")) for node in ("spark-1", "spark-2")}


@pytest.mark.parametrize("looped", [False, True])
def test_what_failed_is_noted_with_its_remedy_also_in_a_loop_and_all_nodes_go_on(tmp_path: Path, looped: bool) -> None:
    look = {"gb10.cluster.node_state_info": {"want": ["mode"], "strict": True, "state_dir": "{{ item }}" if looped else str(tmp_path / "state")}}
    noted = note(tmp_path, {**look, **({"loop": [str(tmp_path / "none"), str(tmp_path / "state")]} if looped else {})})
    error = noted["spark-1"]["__mode_errors"]["down"]
    assert BROKEN in error["said"] and "declare the mode again" in error["remedy"]
    assert noted["spark-2"]["__mode_errors"]["down"] == {"said": "what failed on another node ended it", "remedy": ""}
    assert all((entry["__mode_leak"], entry["__mode_down_at"]) == (False, "") for entry in noted.values())


def test_a_step_says_whether_it_stopped_anything_and_whether_its_memory_leaks(tmp_path: Path) -> None:
    known = {"__mode_returning": {"returns": True}}
    noted = note(tmp_path, {"ansible.builtin.fail": {"msg": "no"}}, known, __mode_stopped="{{ 1 == 1 }}", __mode_leaks="{{ inventory_hostname == 'spark-1' }}")
    assert noted["spark-1"] == {"__mode_errors": {"return": {"said": "no", "remedy": ""}}, "__mode_leak": True, "__mode_down_at": "100.5"}
    assert noted["spark-2"]["__mode_leak"] is False


def test_what_a_bring_up_proved_is_recorded_where_the_record_lacks_it_and_no_mode_is_declared(tmp_path: Path) -> None:
    brought = {"gb10": {"profile": "lab_tiny_native_tp2", "source": "lab_tiny_native_tp2", "nodes": ["spark-1", "spark-2"]}}
    facts: dict[str, dict[str, t.Any]] = {"spark-1": {"mode": {}}, "spark-2": {"mode": {"mode": "serve", "clusters": brought}}}
    for node in facts:
        (tmp_path / node).mkdir()
    task = {
        "ansible.builtin.include_role": {"name": "gb10.cluster.engine", "tasks_from": "known_answers", "rolespec_validate": False},
        "vars": {
            "__proof_asked": {"engine": {"live": False}},
            "__gb10_in_mode": "{{ declared | default(false) }}",
            "gb10_state_dir": f"{tmp_path}/{{{{ inventory_hostname }}}}",
        },
    }
    given = {"gb10_profile": "lab_tiny_native_tp2", "gb10_profile_dirs": [str(LAB_PROFILES)]}
    known = {node: {"__preflight_node": look} for node, look in facts.items()}
    code, output = Book(tmp_path).play([{**task, "vars": {**task["vars"], "declared": True}}, task], facts=known, **given)
    assert code == 0, output
    record = json.loads((tmp_path / "spark-1" / "mode.json").read_text(encoding="utf-8"))
    assert (record["mode"], record["phase"], record["clusters"]) == ("serve", "settled", brought)
    assert record["events"][0]["text"] == "serve brought up gb10 with lab_tiny_native_tp2"
    assert not (tmp_path / "spark-2" / "mode.json").exists() and output.count("changed: [") == 1, output
