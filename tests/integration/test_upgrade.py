# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes that an older version of the collection set up. Its engine, units, guard, sweep and declared mode are taken over, updated and removed.

The older version comes from this clone's history, and its own plays set up the nodes.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import typing as t
from pathlib import Path

import pytest

from .lab import HEAD, INVENTORY, ROOT, RUN, WORKER, Lab, Play
from .making import boot, shut_down
from .modes import MODE, PAIR
from .test_unit import await_state, unit

#: The last commit before container-writable files moved below a directory for root alone, and locks became root's own files.
OLDER = "37e592ce5e3328c5d985257a97a3f91d457508dc"
#: The files of the programs that stay on a node beside an engine. An update of a program replaces its file.
PROGRAMS = (f"/var/lib/gb10/{PAIR}/unit/unit.pyz", "/var/lib/gb10/guard/guard.pyz", "/var/lib/gb10/_sweep/sweep.pyz")
NODES = (HEAD, WORKER)


#: The settings that remove guard and sweep.
AWAY: tuple[tuple[str, dict[str, t.Any]], ...] = (("guard", {"gb10_guard": "absent", "gb10_allow": "forget"}), ("sweep", {"gb10_sweep": "absent"}))


class Upgrade:
    """The lab's nodes as the older version left them, and the live containers and run."""

    def __init__(self, lab: Lab, older: Lab) -> None:
        self.lab, self.older = lab, older

    def set_up(self) -> None:
        """Declare the pair as the mode, and set up the guard and the sweep, with the older version."""
        for playbook, variables in (("mode", {"gb10_mode": "cluster"}), ("guard", {}), ("sweep", {})):
            ran = self.older.play(playbook, **variables)
            assert ran.rc == 0, ran.failures or ran.said[-4000:]
        self.live = self.seen()

    def seen(self) -> dict[str, t.Any]:
        """The live containers and run, and the declared mode."""
        containers = {host: self.lab.containers(host) for host in NODES}
        return {"containers": containers, "run": self.lab.json(HEAD, RUN)["run_id"], "mode": self.lab.json(HEAD, MODE)["mode"]}

    def programs(self) -> dict[str, str]:
        return {host: self.lab.run(host, "sha256sum", *PROGRAMS) for host in NODES}

    def passes(self, playbook: str, **variables: t.Any) -> Play:
        """Run a play of this version. Assert that it passes and changed nothing live."""
        ran = self.lab.play(playbook, **variables)
        assert ran.rc == 0, ran.failures or ran.said[-4000:]
        assert self.seen() == self.live
        return ran


@pytest.fixture
def upgrade(lab: Lab, tmp_path: Path) -> t.Iterator[Upgrade]:
    archive = subprocess.run(["git", "archive", "--format=tar", OLDER], cwd=ROOT, capture_output=True, timeout=60, check=False)
    if archive.returncode:
        pytest.skip(f"this clone has no history before this version: {archive.stderr.decode()}")
    tree = tmp_path / "older"
    (tmp_path / "older.tar").write_bytes(archive.stdout)
    with tarfile.open(tmp_path / "older.tar") as packed:
        packed.extractall(tree, filter="tar")
    # The older version's own inventory, because settings have other names now. The addresses and the key are this lab's.
    inventory = tree / "inventories" / INVENTORY.name
    shutil.copy(INVENTORY / "hosts.yml", inventory / "hosts.yml")
    (tree / ".lab").symlink_to(ROOT / ".lab")
    (tmp_path / "runs").mkdir()
    lab.clear()
    for host in NODES:
        # The older version does not know this version's files.
        lab.run(host, "rm", "-rf", f"/var/lib/gb10/{PAIR}", f"/var/log/gb10/{PAIR}", f"/etc/gb10/secrets/{PAIR}", "/var/lib/gb10/model-code")
    made = Upgrade(lab, Lab(tmp_path / "runs", inventories=(inventory,), tree=tree))
    made.set_up()
    yield made
    for tags, variables in AWAY:
        lab.play("protect", tags=tags, **variables)
    lab.play("mode", gb10_mode="off", gb10_allow="interrupt,forget")


def left(lab: Lab, host: str) -> list[str]:
    """The containers on a node, and the collection's units."""
    units = lab.run(host, "sh", "-c", "ls /etc/systemd/system | grep gb10- || true").split()
    return sorted([*lab.run(host, "docker", "ps", "--all", "--format={{.Names}}").split(), *(name for name in units if not name.startswith("gb10-lab"))])


def test_nothing_live_is_restarted_and_each_older_part_is_renewed_by_its_own_play(upgrade: Upgrade) -> None:
    lab, before = upgrade.lab, upgrade.programs()
    upgrade.passes("status")
    upgrade.passes("status", tags="glance")
    checked = upgrade.passes("mode", check=True, gb10_mode="cluster")
    assert upgrade.programs() == before
    assert f"up: {PAIR}" not in checked.said
    upgrade.passes("mode", gb10_mode="cluster")
    upgrade.passes("protect", tags="guard")
    upgrade.passes("protect", tags="sweep")
    after = upgrade.programs()
    for host in NODES:
        assert not set(before[host].splitlines()) & set(after[host].splitlines()), "every program is this version's"
    for playbook, variables in (("mode", {"gb10_mode": "cluster"}), ("nemotron_tp2", {}), ("protect", {"tags": "guard"}), ("protect", {"tags": "sweep"})):
        for check in (True, False):
            again = upgrade.passes(playbook, check=check, **variables)
            assert again.changed == {}, again.said[-2000:]
    for host in NODES:
        for service in (unit(PAIR), "gb10-guard.service"):
            assert lab.run(host, "systemctl", "is-active", service).strip() == "active"


def test_units_of_the_older_version_come_back_after_a_reboot_and_are_taken_away(upgrade: Upgrade) -> None:
    """No play of this version runs before the nodes are shut down."""
    lab = upgrade.lab
    shut_down(*NODES)
    boot(*NODES)
    for host in NODES:
        await_state(lab, host, unit(PAIR), lambda host=host: lab.run(host, "systemctl", "is-active", unit(PAIR), check=False).strip() == "active")
    upgrade.live = upgrade.seen()
    upgrade.passes("status")
    pruned = upgrade.passes("prune")
    assert "not ours" not in pruned.said
    down = lab.play("mode", gb10_mode="off", gb10_allow="interrupt")
    assert down.rc == 0, down.said[-4000:]
    for tags, variables in AWAY:
        gone = lab.play("protect", tags=tags, **variables)
        assert gone.rc == 0, gone.said[-4000:]
    assert {host: left(lab, host) for host in NODES} == {host: [] for host in NODES}
