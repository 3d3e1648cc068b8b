# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a teardown leaves behind."""

from __future__ import annotations

from stage_answers import stopping

from ansible_collections.gb10.cluster.plugins.plugin_utils._report import units
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import teardown

INFO = {"errors": [], "containers": [], "listeners": []}
OURS = {"name": "gb10-gb10-head", "cluster": "gb10"}
HELD = {"port": 6379, "address": "0.0.0.0", "pid": 7, "process": "redis-server", "since": "2026-11-20T10:00:00Z", "container": ""}
MEMORY = {"findings": [{"id": "memory.back", "node": "the-machine", "verdict": "warn", "message": "900 MiB have not come back", "remedy": "look"}]}


def test_teardown():
    assert stopping(teardown.findings_of(INFO, "spark-1", "gb10", MEMORY)) == set()
    assert stopping(teardown.findings_of({**INFO, "containers": [OURS]}, "spark-1", "gb10", MEMORY)) == {"teardown.containers"}
    unit = units.left({"engine": {"name": "gb10-engine-gb10.service", "installed": False, "files": True}, "guard": {"installed": True}})
    assert stopping(teardown.findings_of(INFO, "spark-1", "gb10", MEMORY, unit)) == {"teardown.unit"}
    assert stopping(teardown.findings_of({**INFO, "errors": [{"section": "docker", "error": "refused"}]}, "spark-1", "gb10", MEMORY)) == {"teardown.seen"}


def test_teardown_tells_of_memory_under_the_inventorys_name():
    assert [(finding["node"], finding["verdict"]) for finding in teardown.findings_of(INFO, "spark-1", "gb10", MEMORY) if finding["id"] == "memory.back"] == [
        ("spark-1", "warn")
    ]


def test_teardown_is_not_stopped_by_memory_without_a_record():
    unknown = {"findings": [{**MEMORY["findings"][0], "verdict": "unknown"}]}
    assert [finding["verdict"] for finding in teardown.findings_of(INFO, "spark-1", "gb10", unknown) if finding["id"] == "memory.back"] == ["warn"]


def test_teardown_names_who_holds_a_port():
    by_id = {finding["id"]: finding for finding in teardown.findings_of({**INFO, "listeners": [HELD]}, "spark-1", "gb10", MEMORY)}
    assert by_id["teardown.ports"]["verdict"] == "warn"
    assert "redis-server" in by_id["teardown.ports"]["message"]
