# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One table has all units: what another unit needs beside its row and its own room is nothing."""

from __future__ import annotations

import os
import types
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._service import table
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit, path_of
from ansible_collections.gb10.cluster.plugins.modules import cluster_prune, node_container_info, node_service
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import units

NAME = "gb10-exporter.service"
#: Every file that a person writes or changes for such a unit; the lists write themselves.
WRITTEN = (
    "module_utils/_exporter/program.py", "module_utils/_service/table.py", "module_utils/_service/exporter_service.py", "modules/node_service.py",
    "docs/exporter.md",
)  # fmt: skip
MOST = 5


def unit_of(where: table.Where) -> Unit:
    return Unit(NAME, (path_of(NAME, where.etc_root),), os.path.join(where.state_dir, "exporter"), "exporter.pyz")


EXPORTER = table.Service(
    key="exporter", main="_exporter", unit=unit_of, page="exporter", does="exports", read_by="", leaves="", absent="gb10_exporter=absent",
)  # fmt: skip


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> table.Where:
    monkeypatch.setattr(table, "SERVICES", (*table.SERVICES, EXPORTER))
    (tmp_path / "state" / "exporter").mkdir(parents=True)
    return table.Where(str(tmp_path / "state"), "gb10", str(tmp_path / "secrets"), str(tmp_path / "etc"))


def test_another_unit_is_looked_at_said_and_pruned_by_its_row_alone(where, monkeypatch):
    monkeypatch.setattr(node_container_info, "look", lambda _api, _params: {})
    monkeypatch.setattr(node_container_info, "caches_of", lambda *_given: [])
    params = {"state_dir": where.state_dir, "cluster_name": "gb10", "docker_socket": "/nowhere", "docker_timeout": 1}
    services = node_container_info.work(types.SimpleNamespace(params=params))["services"]
    assert services["exporter"] == {**dict.fromkeys(("enabled", "starting", "active", "failed", "installed"), False), "files": True, "name": NAME}
    assert (f"unit: none, but its files remain ({NAME})", False) in units.lines(services)
    there = {"spark-1": {"exporter": {**services["exporter"], "installed": True}}}
    (line,) = units.remaining(there)
    command = "ansible-playbook -i inventories/NAME gb10.cluster.protect --tags exporter -e gb10_exporter=absent"
    assert line == f"The exporter stays on spark-1; {command} takes it away."
    (left,) = cluster_prune.survey_units({**params, "secrets_dir": where.secrets_dir}, 0)
    assert (left.kind, left.name, left.ref) == ("unit", f"{where.state_dir}/exporter", (f"{where.state_dir}/exporter", "exporter"))
    assert "exporter" in table.folders()


def test_each_unit_has_a_name_and_a_place_of_its_own():
    assert set(table.folders()) == {"companions", "guard", "lease"}
    made = [row.unit(table.Where("/var/lib/gb10")) for row in table.SERVICES]
    assert len({row.folder for row in made}) == len({row.key for row in table.SERVICES}) == len(made)
    assert {path for unit in made for path in unit.paths} == {
        f"/etc/systemd/system/gb10-{name}"
        for name in (
            "companions.service", "engine-CLUSTER.service", "guard.service", "lease.service", "recover-CLUSTER.service", "recover-CLUSTER.socket",
            "recover-CLUSTER.timer", "recover-CLUSTER@.service", "sweep.service", "sweep.timer",
        )  # fmt: skip
    }


def test_what_goes_with_its_cluster_is_left_where_it_or_its_files_are_there():
    there = {"name": "gb10-engine-gb10.service", "installed": False, "files": False}
    assert units.left({"engine": there}) == units.left({"engine": {}}) == units.left({}) == []
    assert units.left({"engine": {**there, "files": True}, "guard": {**there, "installed": True}}) == ["gb10-engine-gb10.service"]


def test_a_unit_costs_its_own_files_and_its_row():
    """The files of those that are there are what the count rests on: a room, how it is set up, its name in the module, and a page."""
    assert len(WRITTEN) <= MOST
    root = Path(table.__file__).parents[3]
    assert set(node_service.SERVICES) == {row.key for row in table.SERVICES}
    assert (root / "plugins/action/node_service.py").read_text().count("SendsProgram") == 2
    for row in table.SERVICES:
        assert (root / f"plugins/module_utils/_service/{row.key}_service.py").exists()
        assert (root / "plugins/module_utils" / f"{row.main.replace('.', '/')}.py").exists() and (root / "docs" / f"{row.page}.md").exists()


def test_no_other_room_names_a_unit():
    """Code that reads, reports or prunes units uses the table."""
    root = Path(table.__file__).parents[2]
    files = ("modules/node_container_info.py", "modules/cluster_prune.py", "plugin_utils/_stages/status.py", "plugin_utils/_stages/teardown.py")
    for name in files:
        code = (root / name).read_text().partition('RETURN = r"""')[2].partition('\n"""\n')[2] or (root / name).read_text()
        assert not [row.key for row in table.SERVICES if f"{row.key}_files" in code or f"gb10-{row.key}" in code], name
