# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report on the protection of all nodes, and the page, whose table and numbers match the code."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from protected_node import DEFAULT_NAMES, ProtectedNode

from ansible_collections.gb10.cluster.plugins.module_utils._protect import protection
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect import facts, measures, planned
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import protect

ROOT = Path(__file__).resolve().parents[5]
TAKES_BACK = "-e gb10_protect=revert takes them back"


def test_the_page_has_the_measures_with_their_reasons_and_sources() -> None:
    assert "\n".join(protect.page()).strip() in (ROOT / "docs" / "protect.md").read_text(encoding="utf-8")
    assert all(len(figure) == 3 and all(figure) for measure in measures.table().values() for figure in measure["figures"])
    assert tuple(measures.table()) == measures.NAMES == tuple(planned.SET_UP) and {f"protect.{name}" for name in measures.NAMES} == set(measures.IDS)


def test_the_page_has_the_numbers_of_the_code() -> None:
    texts = {name: " ".join(figure[0] for figure in measure["figures"]) for name, measure in measures.table().items()}
    assert str(measures.NEVER_KILLED) in texts["sshd"] and f"SyncIntervalSec={measures.SYNC_SECONDS}s" in texts["journal"]
    assert f"{measures.ACTS_BELOW_KIB} KiB" in texts["earlyoom"] and f"1/{measures.SHARE} of" in texts["earlyoom"]
    assert f"RuntimeWatchdogSec={measures.WATCHDOG}" in texts["watchdog"] and " = ".join(measures.SYSCTLS["panic"]) in texts["panic"]
    assert measures.ON_BATTERY in measures.table()["ups"]["does"] and planned.HOOK in measures.table()["ups"]["does"]
    assert ", ".join(measures.EARLYOOM_FIRST.split()) in texts["earlyoom"] and " = ".join(measures.SYSCTLS["swap"]) in texts["swap"]


def test_the_role_looks_at_all_places_and_units_that_the_plan_reads() -> None:
    text = (ROOT / "roles/protect/vars/main.yml").read_text(encoding="utf-8")
    names = {path.rpartition("/")[2] for path in planned.FILES.values()} | {planned.JOURNALD, planned.EARLYOOM, planned.OOMD, planned.UPGRADES, "ssh.service"}
    names |= {planned.HOOK, measures.WATCHDOG_DEVICE, *(facts.sysctl_file(name) for name, _value in measures.SYSCTLS.values())}
    names |= {f"  - {Path(path).parent}" for path in planned.FILES.values() if "earlyoom" not in path}
    names |= {line.partition(":")[0] for _pattern, line in measures.NUT}
    assert [name for name in names if name not in text] == []


def test_the_role_asks_for_the_lines_of_files_that_the_plan_reads() -> None:
    looks = yaml.safe_load((ROOT / "roles/protect/vars/main.yml").read_text(encoding="utf-8"))["__protect_looks"]
    (settings,) = (re.compile(word.replace("[[:space:]]", "\\s")) for word in looks["settings"] if word.startswith("^"))
    for line in ("RuntimeWatchdogSec=1", "kernel.panic = 5", "-kernel/panic=5", "vm.swappiness=1", " Storage=none"):
        assert settings.search(line), line
    assert not any(settings.search(line) for line in ("#RuntimeWatchdogSec=off", "kernel.panic_on_oops = 1", "RebootWatchdogSec=1"))
    (nut,) = (re.compile(word.replace("[[:space:]]", "\\s")) for word in looks["nut"] if word.startswith("^"))
    assert all(nut.search(line.partition(": ")[2]) for _pattern, line in measures.NUT)
    assert not nut.search("MONITOR ups@localhost 1 admin PASSWORD primary") and not nut.search("# AT ONBATT")


def test_what_is_on_by_default_costs_nothing_and_the_page_names_the_lines_of_nut() -> None:
    defaults = yaml.safe_load((ROOT / "roles/gb10/defaults/main.yml").read_text(encoding="utf-8"))
    assert defaults["gb10_protect_measures"].split(",") == list(DEFAULT_NAMES)
    page = (ROOT / "docs/protect.md").read_text(encoding="utf-8")
    assert all(line.partition(": ")[2] in page for _pattern, line in measures.NUT)


def test_changes_and_their_revert_are_reported() -> None:
    node = ProtectedNode()
    assert node.run("swap", check=True).lines[:2] == ["spark-1: 2 change(s) would be made", f"  would write {planned.FILES['swap']}"]
    done = node.run("swap")
    assert done.lines == [
        f"spark-1: 2 change(s) made; 2 change(s) in /var/lib/gb10/protection.json, {TAKES_BACK}",
        f"  write {planned.FILES['swap']}", "  set vm.swappiness from 60 to 1",
    ]  # fmt: skip
    assert done.findings[0]["node"] == "spark-1"
    assert node.revert().lines[0] == "spark-1: 2 change(s) taken back"


def test_what_is_left_has_its_reason() -> None:
    node = ProtectedNode()
    reason = f"swap: {measures.table()['swap']['reason']}"
    node.writable = set()
    assert reason in node.run("swap").lines
    node.swappiness = "1"
    assert reason not in node.run("swap").lines


def test_one_line_says_what_protects_a_node(tmp_path: Path) -> None:
    kept = {"path": "/p", "measures": ["holds", "swap"], "changes": 3, "error": ""}
    assert protect.text(kept) == "protected: holds, swap (3 change(s), -e gb10_protect=revert takes them back)"
    assert protect.text({**kept, "changes": 0}) == protect.text({}) == ""
    assert protect.text({**kept, "changes": None, "error": "cannot be read"}) == "protection: unknown: cannot be read"


def test_the_record_is_read_on_the_node(tmp_path: Path) -> None:
    assert protection.summary(str(tmp_path))["changes"] == 0
    path = tmp_path / protection.NAME
    path.write_text('{"schema": 1, "measures": {"swap": {"changes": ["a", "b"]}, "holds": {"changes": ["c"]}}}')
    assert protection.summary(str(tmp_path)) == {"measures": ["holds", "swap"], "changes": 3, "path": str(path), "error": ""}
    for text in ("[]", "{", '{"schema": 2}', '{"schema": 1, "measures": {"swap": []}}'):
        path.write_text(text)
        summary = protection.summary(str(tmp_path))
        assert summary["changes"] is None and str(path) in summary["error"]
