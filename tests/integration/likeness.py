# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's likeness of an example inventory: the same groups, modes, ports and companions, with addresses, models and sizes of the lab.

Its services are stand-ins (tests/lab/companion), which use memory and a port. The engines are real, with the lab's tiny models. It is built from the
example's own files, so the tested system cannot differ from the published one.
"""

from __future__ import annotations

import typing as t
from pathlib import Path

import yaml

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import executors, profiles

from .lab import HEAD, INVENTORY, ROOT, WORKER, Lab, Play
from .leased import Judge
from .making import BARE_IMAGE
from .modes import MODE
from .test_models import CACHE, LAY, PARTS, ask, says

#: Settings of an example that its likeness keeps, because they define the system.
ALIKE = {"gb10_api_port", "gb10_companions", "gb10_mode", "gb10_profile", "gb10_single_profile"}
#: Settings with the lab's own values: the identity of its nodes, and shares of a Spark's memory.
OF_THE_LAB = {
    "ansible_host", "ansible_python_interpreter", "ansible_user", "gb10_api_address", "gb10_control_interface", "gb10_fabric_address",
    "gb10_fabric_interfaces", "gb10_hf_home", "gb10_rdma_devices", "gb10_serve_arguments",
}  # fmt: skip

#: The lab's profiles by their number of ranks, each with its model. They replace an example's profiles in the order in which it names them.
TINY: dict[int, dict[str, str]] = {1: {"lab_tiny_one": "tiny", "lab_tiny_other_one": "gb10-lab/other"}, 2: {"lab_tiny_tp2": "tiny"}}

#: A claim is this many times smaller than on a Spark, and at least 0.25 GiB. A stand-in uses a quarter of its claim.
SCALE, LEAST_GIB = 64, 0.25

PLACE, TAG = "/var/lib/gb10-lab/companion", "gb10-lab/companion-stand-in:1"
UNIT_TEXT = """[Unit]
Description=Stand-in for a service of the owner's
[Service]
ExecStart=/usr/bin/python3 {place}/standin.py --port {port} --path {path} --hold-mib {mib}
TimeoutStopSec=20
"""
#: Print the HTTP status of a page on this node. Argument: URL.
GET = "import sys, urllib.request as request; print(request.urlopen(sys.argv[1], timeout=10).status)"


class Likeness:
    """One example on the lab."""

    def __init__(self, scratch: Path, example: str, *, in_containers: bool = False) -> None:
        self._directory = ROOT / "inventories" / example
        content = yaml.safe_load((self._directory / "hosts").read_text(encoding="utf-8"))["gb10_cluster"]
        shared = yaml.safe_load((self._directory / "group_vars" / "gb10_cluster.yml").read_text(encoding="utf-8"))
        groups = {group: entry["hosts"] for group, entry in content["children"].items()}
        #: The lab's host for each host of the example.
        self.hosts = dict(zip([host for hosts in groups.values() for host in hosts], (HEAD, WORKER)))
        own = {self.hosts[host]: variables for hosts in groups.values() for host, variables in hosts.items()}
        self._tiny = self._profiles([shared, *own.values()])
        self.shared = self._alike({**content.get("vars", {}), **shared})
        self.own = {host: self._alike(variables) for host, variables in own.items()}
        self.groups = {group: [self.hosts[host] for host in hosts] for group, hosts in groups.items()}
        #: The companions of each node in the likeness.
        self.companions: dict[str, list[dict[str, t.Any]]] = {host: self.own[host].get("gb10_companions", []) for host in self.own}
        self._scratch, self._in_containers = scratch, in_containers
        # The lab with its own inventory, for everything outside the likeness's inventory.
        self._nodes = Lab(scratch / "nodes")
        (scratch / "nodes").mkdir(parents=True)
        (scratch / "runs").mkdir()
        self.lab = Lab(scratch / "runs", [scratch / "inventory" / "hosts.yml"])

    @staticmethod
    def _profiles(given: list[dict[str, t.Any]]) -> dict[str, str]:
        """The lab's profile for each profile that the example names."""
        named = dict.fromkeys(variables[name] for variables in given for name in ("gb10_profile", "gb10_single_profile") if name in variables)
        left = {ranks: iter(names) for ranks, names in TINY.items()}
        return {id: next(left[executors.ranks(profiles.load(id))]) for id in named}

    def _alike(self, variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the example's variables that its likeness keeps, with the lab's profiles and sizes."""
        assert set(variables) <= ALIKE | OF_THE_LAB, f"{self._directory.name}: {set(variables) - ALIKE - OF_THE_LAB} is neither alike nor of the lab"
        alike = {name: value for name, value in variables.items() if name in ALIKE}
        for name in ("gb10_profile", "gb10_single_profile"):
            if name in alike:
                alike[name] = self._tiny[alike[name]]
        if "gb10_companions" in alike:
            alike["gb10_companions"] = [{**companion, "memory_gib": max(companion["memory_gib"] / SCALE, LEAST_GIB)} for companion in alike["gb10_companions"]]
        return alike

    def model(self, host: str = "") -> str:
        """The model of a node's own service, or of the one engine over all nodes."""
        profile = self.own[host]["gb10_single_profile"] if host else self.shared["gb10_profile"]
        return next(models[profile] for models in TINY.values() if profile in models)

    # --- on the nodes ---

    def lay(self) -> None:
        """Put the owner's services and models on the nodes, none of them running, and write the inventory."""
        for host, companions in self.companions.items():
            commit, patterns = PARTS["other"]
            self._nodes.run(host, "python3", "-c", LAY, CACHE, "other", commit, *patterns)
            self._nodes.run(host, "mkdir", "-p", PLACE)
            for name in ("Dockerfile", "standin.py"):
                self._nodes.write(host, f"{PLACE}/{name}", (ROOT / "tests" / "lab" / "companion" / name).read_text(encoding="utf-8"))
            for companion in companions:
                self._contain(host, companion) if self._in_containers else self._install(host, companion)
            self._nodes.run(host, "systemctl", "daemon-reload")
        self._write_inventory()

    def _install(self, host: str, companion: dict[str, t.Any]) -> None:
        """Install a unit with the name that the example gives it."""
        path = f"/etc/systemd/system/{companion['unit']}"
        assert not self._nodes.run(host, "systemctl", "cat", companion["unit"], check=False), f"{host} has a {companion['unit']} already"
        text = UNIT_TEXT.format(place=PLACE, port=companion["port"], path=companion["health_path"], mib=self._mib(companion))
        self._nodes.write(host, path, text)

    def _contain(self, host: str, companion: dict[str, t.Any]) -> None:
        """Declare a container of the collection in place of a unit."""
        del companion["unit"]
        companion["image"] = self._nodes.run(host, "docker", "build", "--quiet", "--build-arg", f"BASE={BARE_IMAGE}", "--tag", TAG, PLACE).strip()
        companion["arguments"] = ["--port", companion["port"], "--path", companion["health_path"], "--hold-mib", self._mib(companion)]
        companion["env"] = {"OLLAMA_MAX_LOADED_MODELS": 1}

    @staticmethod
    def _mib(companion: dict[str, t.Any]) -> int:
        return int(companion["memory_gib"] * 1024 / 4)

    def _write_inventory(self) -> None:
        """Write the lab's settings, overridden by the example's, and the example's groups with the lab's nodes."""
        lab = yaml.safe_load((INVENTORY / "hosts.yml").read_text(encoding="utf-8"))["gb10_cluster"]
        nodes = {host: variables for group in lab["children"].values() for host, variables in group["hosts"].items()}
        directory = self._scratch / "inventory"
        (directory / "group_vars").mkdir(parents=True)
        text = (INVENTORY / "group_vars" / "gb10_cluster.yml").read_text(encoding="utf-8").replace("{{ inventory_dir }}/../..", str(ROOT))
        # The nodes of all labs share the machine's memory, so memory that another lab takes meanwhile is not a leak.
        shared = {**lab.get("vars", {}), **yaml.safe_load(text), "__gb10_shared_tolerance_mb": 16384, **self.shared}
        (directory / "group_vars" / "gb10_cluster.yml").write_text(yaml.safe_dump(shared), encoding="utf-8")
        children = {group: {"hosts": {host: {**nodes[host], **self.own[host]} for host in hosts}} for group, hosts in self.groups.items()}
        (directory / "hosts.yml").write_text(yaml.safe_dump({"gb10_cluster": {"children": children}}), encoding="utf-8")

    def remove(self) -> None:
        """Remove all of it from the nodes."""
        gone = self.lab.play("mode", gb10_mode="off", gb10_allow="interrupt,forget")
        for host, companions in self.companions.items():
            names = self._nodes.run(host, "docker", "ps", "--all", "--quiet", "--filter", "label=io.gb10.role=companion").split()
            if names:
                self._nodes.run(host, "docker", "rm", "--force", *names)
            for companion in companions:
                if "unit" in companion:
                    self._nodes.run(host, "systemctl", "stop", companion["unit"], check=False)
                    self._nodes.run(host, "rm", "-f", f"/etc/systemd/system/{companion['unit']}")
            self._nodes.run(host, "systemctl", "daemon-reload")
            self._nodes.run(host, "docker", "rmi", TAG, check=False)
            self._nodes.run(host, "rm", "-rf", PLACE, f"{CACHE}/models--gb10-lab--tiny-other", "/var/lib/gb10/model-code")
        assert gone.rc == 0, gone.said[-3000:]

    # --- actions and checks ---

    def change(self, mode: str = "", **variables: t.Any) -> Play:
        """Declare a mode, by default the example's. Assert that a second run changes nothing, in check mode too."""
        settings = {**({"gb10_mode": mode} if mode else {}), **variables}
        played = self.lab.play("mode", **settings)
        assert played.rc == 0, played.said[-4000:]
        self.unchanged(**settings)
        self.check(mode)
        return played

    def unchanged(self, **settings: t.Any) -> None:
        """Assert that a run with these settings, by default the example's, changes nothing."""
        again = self.lab.play("mode", **settings)
        assert (again.rc, again.changed) == (0, {}), again.said[-4000:]

    def lease(self, mode: str, job: Judge) -> Play:
        """Lease a mode for the duration of a command."""
        played = self.lab.play("mode", gb10_mode=mode, gb10_lease=job.command, on_output=job.on_output)
        assert played.rc == 0, played.said[-4000:]
        job.join()
        return played

    def check(self, mode: str = "") -> Play:
        """Run a change in check mode."""
        checked = self.lab.play("mode", check=True, **({"gb10_mode": mode} if mode else {}))
        assert (checked.rc, checked.changed) == (0, {}), checked.said[-4000:]
        return checked

    def answering(self) -> set[tuple[str, str]]:
        """Node and name of each companion that answers at its health path."""
        answering = set()
        for host, companions in self.companions.items():
            for companion in companions:
                url = f"http://127.0.0.1:{companion['port']}{companion['health_path']}"
                if self._nodes.run(host, "python3", "-c", GET, url, check=False).strip() == "200":
                    answering.add((host, companion["name"]))
        return answering

    def holding(self) -> set[tuple[str, str]]:
        """Node and name of each companion that runs, whether it answers or not."""
        present = set()
        for host, companions in self.companions.items():
            running = self._nodes.run(host, "docker", "ps", "--filter", "label=io.gb10.role=companion", "--format", "{{.Names}}").split()
            for companion in companions:
                active = "unit" in companion and self._nodes.run(host, "systemctl", "is-active", companion["unit"], check=False).strip() == "active"
                if active or f"gb10-companion-{companion['name']}" in running:
                    present.add((host, companion["name"]))
        return present

    def modes(self) -> set[tuple[str, str]]:
        """Mode and phase in the nodes' records."""
        records = [self._nodes.json(host, MODE) for host in self.companions]
        return {(record["mode"], record["phase"]) for record in records}

    def token(self, cluster: str, host: str = HEAD) -> str:
        """Return the answer of a cluster's model, at the port from the example."""
        model = self.model(host if cluster == host else "")
        assert self._nodes.json(host, f"/var/lib/gb10/{cluster}/run/run.json")["api_port"] == self.shared.get("gb10_api_port", 8000)
        assert model in ask(self._nodes, host, cluster, "/v1/models")
        return says(self._nodes, host, cluster, model)

    def engines(self) -> dict[str, set[str]]:
        """The clusters with a container on each node of the lab, running or not, without companions."""
        form = '{{.Label "io.gb10.role"}} {{.Label "io.gb10.cluster"}}'
        listed = {host: self._nodes.run(host, "docker", "ps", "--all", "--filter", "label=io.gb10.owner", "--format", form) for host in (HEAD, WORKER)}
        return {host: {row.split()[1] for row in text.splitlines() if row.split()[0] != "companion"} for host, text in listed.items()}
