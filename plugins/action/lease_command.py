# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the command of a lease on the controller, and renews the lease on every node until it has ended.

All instances run at the same time, each for its own node. The instance of the first node also runs the command. On a :class:`RunBoard` they publish what it
needs of the other nodes, and that the command has ended. When the run itself ends (an interrupt, a killed controller), or the lease of a node is over, the
instances end the command and inform the nodes that still answer.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
import types
import typing as t
import urllib.parse

from ansible import constants as C
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_key import KeyForElsewhere
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import WILDCARDS
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import required_text, write_whole
from ansible_collections.gb10.cluster.plugins.module_utils._lease.record import OVER
from ansible_collections.gb10.cluster.plugins.module_utils._module import complete
from ansible_collections.gb10.cluster.plugins.module_utils._redact import redacted
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease import command
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.run_board import RunBoard
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.time_limit import time_limit

LEASE = "gb10.cluster.node_service"
SLURP = "ansible.builtin.slurp"
ENGINE = "gb10.cluster.vllm_serve_info"

#: Topics that the instances publish: the engines of their node, the end of the command (only the first node), and the end of their node's lease.
SERVICES, OVER_TOPIC, LOST = "services", "over", "lost"
#: Seconds for all nodes to join, between two checks of the command, for one call of a node's module, and for an answer of an engine.
JOIN_SECONDS, LOOK_SECONDS, NODE_SECONDS, ANSWER_SECONDS = 120.0, 0.5, 30, 15.0
#: Maximum seconds between two renewals. A shorter lease is renewed more often.
RENEW_SECONDS = 30.0

display = Display()


class Interrupted(Exception):
    """The run ends before the command does."""


def renew_every(lost_seconds: int) -> float:
    """Return the seconds between two renewals. Several can be lost before the node ends the lease."""
    return min(RENEW_SECONDS, lost_seconds / 5)


def reached_at(endpoint: str, address: str) -> str:
    """Return an endpoint for calls from this controller. ``address`` replaces an address that means all interfaces."""
    parts = urllib.parse.urlsplit(endpoint)
    if (parts.hostname or "") not in WILDCARDS:
        return endpoint
    return f"{_http.base_url(address, parts.port or 80)}{parts.path}"


def check_answers(service: command.Service, key: str) -> None:
    """Raise :class:`ClusterError` when an engine does not answer this controller."""
    url = f"{service.endpoint}/models"
    answer = _http.ask(url, ANSWER_SECONDS, key=KeyForElsewhere(key))
    if answer.status != 200:
        why = answer.error or f"HTTP {answer.status}"
        raise ClusterError(
            f"the engine of {service.cluster} serves, and does not answer this controller at {url}: {why}",
            remedy="Set gb10_api_address to an address of the head that the controller reaches, or run the lease from a machine that is on its network.",
            reason="unreachable from the controller",
        )


def failed_result(error: ClusterError) -> dict[str, t.Any]:
    """Return the result for an error. The remedy is a separate key, as in a module's result: the table at the end of a change shows both."""
    return {"failed": True, "msg": str(error), "verdict": error.verdict, "remedy": error.remedy, "reason": error.reason, "lost": error.reason == OVER}


class Renewal:
    """Renews the lease of one node in time. ``tell`` runs the module with a state, and is None when there is no lease."""

    def __init__(self, tell: t.Callable[[str], dict[str, t.Any]] | None, lost_seconds: int, node: str) -> None:
        self._tell, self._lost_seconds, self._node = tell, lost_seconds, node
        self._last = self._due = time.monotonic()
        self._warned = False

    def check(self) -> None:
        """Renew when it is time. Raises :class:`ClusterError` when the lease is over, or must be because the node was not reached for so long."""
        now = time.monotonic()
        if self._tell is None or now < self._due:
            return
        self._due = now + renew_every(self._lost_seconds)
        try:
            result = self._tell("renewed")
            problem = str(result.get("msg") or "it failed without a message") if result.get("failed") else ""
            if result.get("reason") == OVER:
                raise ClusterError(f"{self._node}: {problem}", remedy=str(result.get("remedy", "")), reason=OVER)
        except (AnsibleError, OSError) as error:
            problem = " ".join(str(error).split())
        if not problem:
            self._last, self._warned = time.monotonic(), False
            return
        silent = time.monotonic() - self._last
        if silent > self._lost_seconds:
            raise UnknownState(f"{self._node} heard nothing of its lease for {silent:.0f} s, so it ends it: {problem}", reason=OVER)
        if not self._warned:
            display.warning(f"{self._node}: its lease was not renewed, it is tried again: {problem}")
        self._warned = True


class ActionModule(ActionBase):
    """One node's part of a command that has a lease."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        started = time.monotonic()
        self._vars = task_vars or {}
        _result, options = self.validate_argument_spec(
            argument_spec={
                "command": {"type": "list", "elements": "str", "required": True},
                "mode": {"type": "str", "required": True},
                "clusters": {"type": "list", "elements": "str", "required": True},
                "nodes": {"type": "list", "elements": "str", "required": True},
                "engines": {"type": "list", "elements": "dict", "required": True},
                "address": {"type": "str", "required": True},
                "secrets_dir": {"type": "path", "default": "/etc/gb10/secrets"},
                "has_key": {"type": "bool", "default": True},
                "beside": {"type": "path", "required": True},
                "cluster_name": {"type": "str", "default": "gb10"},
                "limit_seconds": {"type": "int", "default": 86400},
                "lost_seconds": {"type": "int", "default": 300},
                "lease_id": {"type": "str", "default": ""},
                "state_dir": {"type": "path", "default": "/var/lib/gb10"},
                "roots": {"type": "dict", "default": {}},
            },
        )
        if self._task.check_mode:
            return complete({"changed": True, "msg": f"would run {options['command'][0]}"}, started)
        self._node, self._options = str(self._vars["inventory_hostname"]), options
        self._parent, self._asked = os.getppid(), False
        first = self._node == options["nodes"][0]
        board = RunBoard(C.DEFAULT_LOCAL_TMP, self._task._uuid, self._node, "head" if first else "node")
        board.join()
        before = {number: signal.signal(number, self._ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        place = tempfile.mkdtemp(prefix="gb10-lease-", dir=C.DEFAULT_LOCAL_TMP)
        renewal = Renewal(self._tell if options["lease_id"] else None, options["lost_seconds"], self._node)
        try:
            services = self._services(place)
            board.publish(SERVICES, {"services": [service._asdict() for service in services]})
            everybody = board.wait_for(SERVICES, JOIN_SECONDS, lambda published: len(published) == len(options["nodes"]), len(options["nodes"]))
            if first:
                ordered = [command.Service(**service) for node in options["nodes"] for service in everybody[node]["services"]]
                return complete(self._lead(board, renewal, ordered, place), started)
            return complete(self._follow(board, renewal), started)
        except ClusterError as error:
            if error.reason == OVER:
                board.publish(LOST, {})
            elif board.published(LOST):
                # The mode ends with the other node's lease, so this node ends its own at once.
                self._give_up()
            board.fail(str(error))
            return complete(failed_result(error), started)
        except Interrupted:
            self._give_up()
            return complete(failed_result(ClusterError("the run ended before the command did, so the nodes end the lease", reason="interrupted")), started)
        finally:
            shutil.rmtree(place, ignore_errors=True)
            # The board is gone when the run's own directory is.
            with contextlib.suppress(OSError):
                board.leave()
            for number, handler in before.items():
                signal.signal(number, handler)

    # -- the run itself ----------------------------------------------------------------------------------------------

    def _ask_to_stop(self, _number: int, _frame: types.FrameType | None) -> None:
        self._asked = True

    def _check_run(self) -> None:
        """Raise :class:`Interrupted` when the run was interrupted, or its process is gone."""
        if self._asked or os.getppid() != self._parent:
            raise Interrupted

    def _tell(self, state: str) -> dict[str, t.Any]:
        """Run the module with a state for the node's lease, and return its result. Raises AnsibleError when the node does not answer."""
        lease = {name: self._options[name] for name in ("lease_id", "lost_seconds")}
        arguments = {"name": "lease", "state": state, "lease": lease, **{name: self._options[name] for name in ("state_dir", "roots")}}
        with time_limit(NODE_SECONDS):
            return self._execute_module(LEASE, module_args=arguments, task_vars=self._vars)

    def _give_up(self) -> None:
        """Make the node end the lease now. A node that does not answer ends it when it expires."""
        if not self._options["lease_id"]:
            return
        # The run's own directory may be gone, and Ansible builds modules there.
        os.makedirs(C.DEFAULT_LOCAL_TMP, mode=0o700, exist_ok=True)
        with contextlib.suppress(AnsibleError, OSError):
            self._tell("given_up")

    # -- the engines -------------------------------------------------------------------------------------------------

    def _services(self, place: str) -> list[command.Service]:
        """Return the engines whose head is this node, with each key in its own file. Raises :class:`ClusterError` when an engine does not answer."""
        options, services = self._options, []
        for engine in options["engines"]:
            if engine["role"] != "head" or engine["state"] != "running" or engine["cluster"] not in options["clusters"]:
                continue
            key = self._key(engine["cluster"]) if options["has_key"] else ""
            path = os.path.join(place, f"{engine['cluster']}.key") if key else ""
            if key:
                write_whole(path, f"{key}\n".encode())
            service = command.Service(engine["cluster"], reached_at(engine["endpoint"], options["address"]), engine["model"], path)
            check_answers(service, key)
            services.append(service)
        return services

    def _key(self, cluster: str) -> str:
        """Return the key of an engine's API. Raises :class:`UnknownState` when it cannot be read, or the node does not find that engine at the port."""
        path = f"{self._options['secrets_dir']}/{cluster}/api_key"
        with time_limit(NODE_SECONDS):
            arguments = {"cluster_name": cluster, "state_dir": self._options["state_dir"], "api_key_file": path}
            seen = self._execute_module(ENGINE, module_args=arguments, task_vars=self._vars)
            withheld = seen.get("msg") if seen.get("failed") else seen.get("key_withheld")
            if withheld != "":
                why = withheld or "no process answers at the port of the API"
                raise UnknownState(f"{self._node}: the key of {cluster} is not handed out: {why}", remedy="See the playbook status.", reason="key")
            result = self._execute_module(SLURP, module_args={"src": path}, task_vars=self._vars)
        if result.get("failed"):
            raise UnknownState(f"{path} cannot be read on {self._node}: {result.get('msg')}", remedy="Run the task with become: true.", reason="key")
        return base64.b64decode(result["content"]).decode("utf-8").strip()

    # -- the command -------------------------------------------------------------------------------------------------

    def _follow(self, board: RunBoard, renewal: Renewal) -> dict[str, t.Any]:
        """Renew the lease of a node until the command has ended."""
        while True:
            # In this order, because the first node may publish and then end.
            ended = board.head_ended()
            if board.published(OVER_TOPIC):
                return {"changed": False, "msg": "the command has ended"}
            self._check_run()
            board.raise_if_another_failed()
            if ended:
                raise Interrupted
            renewal.check()
            time.sleep(LOOK_SECONDS)

    def _lead(self, board: RunBoard, renewal: Renewal, services: list[command.Service], place: str) -> dict[str, t.Any]:
        """Run the command, show its output, and return the result."""
        options = self._options
        missing = sorted(set(options["clusters"]) - {service.cluster for service in services})
        if missing:
            remedy = "See status; a lease needs units (gb10_unit: enabled or present)."
            raise UnknownState(f"no unit says that {', '.join(missing)} serves, so where is not known", remedy=remedy, reason="no unit")
        listed = os.path.join(place, "services.json")
        by_cluster = {service.cluster: {"endpoint": service.endpoint, "model": service.model, "api_key_file": service.key_file} for service in services}
        write_whole(listed, f"{json.dumps(by_cluster, indent=1)}\n".encode())
        keys = {f"key of {service.cluster}": required_text(service.key_file) for service in services if service.key_file}
        log = command.log_path(options["beside"], options["cluster_name"], time.gmtime())
        display.display(f"  (what {os.path.basename(options['command'][0])} prints is kept in {log})")
        running = command.Command(options["command"], command.environment(os.environ, options["mode"], services, listed), log)
        tail: list[str] = []
        limited = False

        def show(last: bool = False) -> None:
            for line in running.new_lines(last):
                tail.append(redacted(line, keys))
                display.display(f"  {tail[-1]}")
            del tail[: -command.TAIL_LINES]

        try:
            while running.exit_code() is None and not limited:
                self._check_run()
                board.raise_if_another_failed()
                show()
                renewal.check()
                limited = 0 < options["limit_seconds"] < running.seconds
                time.sleep(LOOK_SECONDS)
        finally:
            # Also when the run ends or the lease is lost.
            running.end()
        show(last=True)
        board.publish(OVER_TOPIC, {})
        code = running.exit_code()
        how = f"was ended after {running.seconds:.0f} s, its limit" if limited else f"ended with exit code {code} after {running.seconds:.0f} s"
        return {
            "changed": True,
            "msg": f"{os.path.basename(options['command'][0])} {how}",
            "exit_code": code,
            "limited": limited,
            "seconds": round(running.seconds, 1),
            "log": log,
            "tail": tail,
        }
