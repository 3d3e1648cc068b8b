# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's nodes with a declared mode: a profile for the pair, and one for each node alone."""

from __future__ import annotations

import json
import shutil
import typing as t
from pathlib import Path

import yaml

from .lab import HEAD, INVENTORY, ROOT, WORKER, Lab, Play
from .test_models import CACHE, LAY, PARTS, SERVICES, says

#: The name of the cluster in the mode `cluster`, and the path of a node's mode record.
PAIR = "gb10"
MODE = "/var/lib/gb10/mode.json"


def profiles_with(directory: Path, profiles: dict[str, dict[str, t.Any]]) -> Path:
    """Return a new directory with the lab's profiles and these, by id."""
    shutil.copytree(ROOT / "tests" / "lab" / "profiles", directory)
    for name, profile in profiles.items():
        content = {"schema": 1, "id": name, **profile, "evidence": "untested"}
        (directory / f"{name}.yml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return directory


class Modes:
    """The nodes with a declared mode, with the pair's inventory and a profile for each node."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    @classmethod
    def prepared(cls, lab: Lab, directory: Path) -> Modes:
        """Prepare what the single-node services need, and write the inventory to a directory."""
        for host in (HEAD, WORKER):
            commit, patterns = PARTS["other"]
            lab.run(host, "python3", "-c", LAY, CACHE, "other", commit, *patterns)
        hosts = {host: {"gb10_single_profile": profile} for host, (profile, _model) in SERVICES.items()}
        # The nodes of all labs share the machine's memory, so memory that another lab takes meanwhile is not a leak.
        everywhere = {"hosts": hosts, "vars": {"__gb10_shared_tolerance_mb": 16384}}
        (directory / "services.yml").write_text(yaml.safe_dump({"all": everywhere}), encoding="utf-8")
        return cls(Lab(directory, [INVENTORY, directory / "services.yml"]))

    def end(self) -> None:
        """Leave the nodes as they were, with no mode declared."""
        self.change("off", gb10_allow="interrupt,forget")
        for host in (HEAD, WORKER):
            self.lab.run(host, "rm", "-rf", f"{CACHE}/models--gb10-lab--tiny-other", "/var/lib/gb10/model-code")

    def change(self, mode: str, rc: int = 0, **variables: t.Any) -> Play:
        """Declare a mode."""
        played = self.lab.play("mode", gb10_mode=mode, **variables)
        assert (played.rc == 0) == (rc == 0), played.said[-4000:]
        return played

    def record(self, host: str = HEAD) -> dict[str, t.Any]:
        return self.lab.json(host, MODE)

    def settled(self, mode: str) -> bool:
        """Return whether a mode is declared in the head's record and completely proven."""
        text = self.lab.run(HEAD, "cat", MODE, check=False)
        record = json.loads(text) if text else {"mode": "", "phase": ""}
        return (record["mode"], record["phase"]) == (mode, "settled")

    def said(self, mode: str) -> None:
        """Assert that exactly the clusters of a mode exist, and that they answer."""
        there = {host: self.clusters(host) for host in (HEAD, WORKER)}
        if mode == "singles":
            assert there == {host: {host} for host in SERVICES}
            for host, (_profile, model) in SERVICES.items():
                assert "the cluster works" in says(self.lab, host, host, model)
        elif mode == "cluster":
            assert there == {host: {PAIR} for host in SERVICES}
            assert "the cluster works" in says(self.lab, HEAD, PAIR, "tiny")
        else:
            assert there == {host: set() for host in SERVICES}
        for host in (HEAD, WORKER):
            record = self.record(host)
            assert (record["mode"], record["phase"]) == (mode, "settled"), record

    def forget(self, mode: str) -> None:
        """Remove everything that the clusters of an inactive mode left on the nodes, keys included, so that a change to it performs every step."""
        for host in (HEAD, WORKER):
            name = host if mode == "singles" else PAIR
            self.lab.run(host, "rm", "-rf", f"/var/lib/gb10/{name}", f"/etc/gb10/secrets/{name}")

    def clusters(self, host: str) -> set[str]:
        """The clusters that have a container on a node, running or not."""
        listed = self.lab.run(host, "docker", "ps", "--all", "--filter", "label=io.gb10.owner", "--format", '{{.Label "io.gb10.cluster"}}')
        return set(listed.split())
