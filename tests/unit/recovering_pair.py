# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pair of nodes whose recoveries look and act against each other, without a machine: for the tests of that."""

from __future__ import annotations

import json
import threading
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._records import recoveries
from ansible_collections.gb10.cluster.plugins.module_utils._recover import exchange, looking, recovering
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.module_utils._unit import specification, unit_files

HEAD, WORKER = "spark-1", "spark-2"
ADDRESSES = {HEAD: "10.0.0.1", WORKER: "10.0.0.2"}
BOOT = "b6f1e0b4"
UNIT = "gb10-engine-gb10.service"
WELL = list(health.Probe(health.ANSWERS, True))
NO_TOKEN = list(health.Probe(health.ANSWERS, False, False, 20.0))


def entry(name: str, **more: t.Any) -> dict[str, t.Any]:
    """The evidence of a node of a healthy pair that has served for an hour."""
    process = {"pid": 7, "text": "VLLM::Worker (pid 7)", "kind": "rank", "state": "alive", "start_ticks": 1, "cpu_s": 1.0, "cpu_percent": None}
    return {
        "boot_id": BOOT, "run": f"run-{name}", "container": "c 2026", "unit": "running", "why": f"{UNIT} running", "seconds": 3600.0, "processes": [process],
        "probe": WELL if name == HEAD else [], "kernel": [], **more,
    }  # fmt: skip


class Pair:
    """Two nodes. ``evidence`` is what each sees of itself (an exception: it cannot), ``silent`` are the nodes that do not answer.

    ``calls`` are the modules and systemd commands of each node in order, ``results`` what a module of a node returns, ``fails`` the systemd commands that
    fail. ``held`` are the nodes whose lock another run holds. ``now`` is the time since the boot.
    """

    def __init__(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, act: str = "restart", nodes: t.Sequence[str] = (HEAD, WORKER), answers: t.Sequence[str] = ()
    ) -> None:
        self.path, self.nodes = path, nodes
        self.evidence: dict[str, t.Any] = {name: entry(name) for name in nodes}
        self.kernel: dict[str, int] = {"booted": 1}
        self.silent: set[str] = set()
        self.held: set[str] = set()
        self.fails: set[str] = set()
        self.calls: dict[str, list[str]] = {name: [] for name in nodes}
        self.results: dict[tuple[str, str], dict[str, t.Any]] = {}
        self.on: dict[tuple[str, str], t.Callable[[], None]] = {}
        self.said: list[str] = []
        self.kept: list[str] = []
        self.now = 100000.0
        self.config = {name: self.prepare(name, act, list(answers)) for name in nodes}
        self.local = threading.local()
        monkeypatch.setattr(looking.evidence, "look", self.seen)
        monkeypatch.setattr(looking.exchange, "ask", self.ask)
        monkeypatch.setattr(looking.journal, "say", self.said.append)
        monkeypatch.setattr(recovering.keeping, "keep", self.keep)
        monkeypatch.setattr(unit, "run_tool", self.systemctl)
        monkeypatch.setattr(recovering, "POLL_SECONDS", 0.005)
        monkeypatch.setattr(recovering, "TOGETHER_SECONDS", 5.0)
        for module in (looking, recovering):
            monkeypatch.setattr(module, "boot_seconds", lambda: self.now)

    def state_dir(self, name: str) -> str:
        return str(self.path / name / "state")

    def prepare(self, name: str, act: str, answers: list[str]) -> dict[str, t.Any]:
        """Write the files of a node, and return the settings of its recovery."""
        base, role = self.path / name, "head" if name == HEAD else "worker"
        (base / "proc/sys/kernel/random").mkdir(parents=True)
        (base / "proc/sys/kernel/random/boot_id").write_text(BOOT)
        step = {"timeout": 10, "arguments": {"cluster_name": "gb10"}}
        engine = [{"name": "engine", "module": "vllm_serve", **step}] if role == "head" else []
        token = [{"name": "token", "module": "vllm_serve_info", "timeout": 10, "arguments": {"api_key_file": "/key"}}] if role == "head" else []
        given = {
            "cluster": "gb10", "role": role, "executor": "ray", "nodes": {node: ADDRESSES[node] for node in self.nodes}, "gpus": 1, "meeting": {},
            "state_dir": self.state_dir(name), "log_dir": str(base / "log"), "address": ADDRESSES[name], "start_seconds": 1, "memory": {},
            "roots": {"proc_root": str(base / "proc"), "etc_root": str(base / "etc"), "sysfs_root": "/sys", "kernel_log": "auto"},
            "start": [{"name": "container", "module": "ray_cluster", **step}, *engine, *token],
            "stop": [*([{"name": "drain", "module": "vllm_serve", **step}] if engine else []), *engine, {"name": "container", "module": "ray_cluster", **step}],
        }  # fmt: skip
        folder = Path(unit_files.of_engine(self.state_dir(name), "gb10").folder)
        folder.mkdir(parents=True)
        (folder / specification.FILE).write_text(specification.dump(given))
        (base / "state/gb10" / recoveries.FOLDER).mkdir()
        (base / "state/gb10/memory.json").write_text(json.dumps({"boot_id": BOOT, "available_mb": 100000}))
        (base / "secrets/gb10").mkdir(parents=True)
        (base / "secrets/gb10/recover_key").write_text("k" * 43)
        return {
            "cluster": "gb10", "node": name, "head": HEAD, "act": act, "pause": {}, "port": 20302, "state_dir": self.state_dir(name),
            "secrets_dir": str(base / "secrets"), "answers": answers, "model": "m", "memory": {"tolerance_mb": 4096, "wait_timeout": 5},
            "proc_root": str(base / "proc"),
        }  # fmt: skip

    # -- the simulated machine ---------------------------------------------------------------------------------------

    def seen(self, config: t.Mapping[str, t.Any], given: t.Any, state: t.Mapping[str, t.Any], now: t.Any) -> dict[str, t.Any]:
        own = self.evidence[config["node"]]
        if isinstance(own, str):
            return {"own": {}, "error": own, "kernel": {}}
        last = "".join(recovery["at"] for recovery in state["history"][-1:])
        return {"own": {"last": last, **own}, "error": "", "kernel": dict(self.kernel)}

    def ask(self, address: str, port: int, key: str, cluster: str, node: str) -> dict[str, t.Any]:
        assert (address, port, key, cluster) == (ADDRESSES[node], 20302, "k" * 43, "gb10")
        if node in self.silent:
            raise UnknownState(f"no answer from {address}")
        raw = looking.answer(self.config[node], b"GET /" + b"a" * 64 + b" HTTP/1.1\r\n")
        said = json.loads(raw.decode().partition("\r\n\r\n")[2].partition("\n")[2])
        assert set(said["state"]) == set(exchange.SHARED) and (said["cluster"], said["node"]) == (cluster, node)
        return said

    def keep(self, given: t.Mapping[str, t.Any], own: t.Any, run: t.Any) -> str:
        name = next(node for node in self.nodes if ADDRESSES[node] == given["address"])
        self.calls[name].append("evidence")
        if (name, "evidence") in self.on:
            self.on[name, "evidence"]()
        self.kept.append(name)
        return "/evidence"

    def run(self, name: str) -> t.Callable[..., dict[str, t.Any]]:
        """Return what runs the modules of a node."""

        def run(module: str, arguments: t.Mapping[str, t.Any], seconds: float, predict: bool = False) -> dict[str, t.Any]:
            self.local.node = name
            assert seconds > 0 and not predict
            what = f"{module} {arguments['state']}" if module == "cluster_lock" else module
            self.calls[name].append(what)
            if (name, what) in self.on:
                self.on[name, what]()
            if module == "cluster_lock":
                if name in self.held and arguments["state"] == "acquired":
                    return {"failed": True, "msg": "another run works on this cluster: ada", "verdict": "block", "reason": "held by another run"}
                return {"changed": False, "msg": "", "lock": {"id": f"lock-{name}"}}
            if module in ("vllm_serve", "ray_cluster"):
                assert arguments["lock_id"] == f"lock-{name}"
            if module == "node_samples_info":
                assert arguments["source"] == "memory" and arguments["tolerance_mb"] == 4096 and seconds == 65
            return self.results.get((name, module), {"changed": True, "msg": "done", "verdict": "pass", "noted_mb": 9, "available_mb": 9, "results": []})

        return run

    def systemctl(self, argv: t.Sequence[str], seconds: float) -> ToolResult:
        what = " ".join(argv[1:])
        # Beyond the limits of the unit's own steps.
        assert seconds > 150
        self.calls[self.local.node].append(what)
        if (self.local.node, what) in self.on:
            self.on[self.local.node, what]()
        return ToolResult(int(f"{self.local.node} {what}" in self.fails), "", "it would not")

    # -- what a test does --------------------------------------------------------------------------------------------

    def recovery(self, name: str, scale: float = 1.0) -> recovering.Recovery:
        return recovering.Recovery(self.config[name], self.run(name), scale)

    def look(self, *names: str, seconds: float = 60.0, together: bool = True) -> dict[str, int]:
        """Let nodes look, and return their exit codes. The time passes before. With ``together`` each sees what the others see and hold in the same moment."""
        self.now += seconds
        codes: dict[str, int] = {}
        for name in (names or self.nodes) if together else ():
            node = self.recovery(name)
            seen = self.seen(node.config, node.given, node.state, None)
            node.publish(own=seen["own"], error=seen["error"], boot_id=BOOT, at_s=self.now, hold=node.hold(seen["own"]))

        def one(name: str) -> None:
            self.local.node = name
            codes[name] = self.recovery(name).main()

        threads = [threading.Thread(target=one, args=(name,)) for name in names or self.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return codes

    def state(self, name: str) -> dict[str, t.Any]:
        return recoveries.read(self.state_dir(name), "gb10")

    def halt(self, name: str = WORKER) -> None:
        """A signal stops a rank."""
        process = {**self.evidence[name]["processes"][0], "state": "stopped"}
        self.evidence[name] = {**self.evidence[name], "processes": [process]}
        self.evidence[HEAD] = {**self.evidence[HEAD], "probe": NO_TOKEN}

    def heals_at_a_start(self) -> None:
        """Every start of a unit from now on ends in a healthy pair."""
        for name in self.nodes:

            def healed(name: str = name) -> None:
                self.evidence[name] = entry(name, run=f"run-2-{name}", seconds=10.0)

            self.on[name, f"start {UNIT}"] = healed
