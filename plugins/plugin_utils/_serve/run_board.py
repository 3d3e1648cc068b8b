# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A directory where the instances of one task on several hosts publish results and how the task ends. This plugin util is PRIVATE to the collection.

The linear strategy waits for the slowest host: without news from the others, every instance would wait until its own
timeout. The instances are processes of one ansible-playbook run on one machine, so a directory is all they need. It is in
Ansible's own temporary directory, which only the user can read and which Ansible removes at its end. That also keeps
the runs of two playbooks apart.
"""

from __future__ import annotations

import json
import os
import pathlib
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two reads of the board.
POLL_SECONDS = 0.05

JOINED = ".joined"
LEFT = ".left"
PUBLISHED = ".published"
LATEST = ".latest"
FAILURE = "failure.json"
CONCLUSION = "conclusion.json"
SUCCESS = "success.json"
#: The reason of an instance that failed only because another one did.
ANOTHER_FAILED = "another node failed"


class Outcome(t.NamedTuple):
    """How the task ended for all: the node that decided it, its message, seconds since the epoch."""

    node: str
    message: str
    time: float


class AnotherFailed(ClusterError):
    """Another node failed first, so this one ends too."""


class RunBoard:
    """One round of one task. A task that runs again in the same run (a loop, retries) gets a round of its own."""

    def __init__(self, root: str, task: str, node: str, role: str) -> None:
        self.node = node
        self._role = role
        base = pathlib.Path(root) / f"gb10-{task}"
        number = 0
        while (base / str(number) / (node + LEFT)).exists():
            number += 1
        self._directory = base / str(number)

    def join(self) -> None:
        """Publish that this instance has begun."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._create(self.node + JOINED, {"pid": os.getpid(), "role": self._role})

    def leave(self) -> None:
        """Publish that this instance has finished."""
        (self._directory / (self.node + LEFT)).touch(mode=0o600)

    def publish(self, topic: str, content: dict[str, t.Any]) -> None:
        """Publish this instance's content on a topic, once; ``node`` and ``role`` are added."""
        self._create(f"{self.node}.{topic}{PUBLISHED}", {**content, "node": self.node, "role": self._role})

    def published(self, topic: str) -> dict[str, dict[str, t.Any]]:
        """Return each instance's entry on a topic so far, by node, the head first."""
        entries = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self._directory.glob(f"*.{topic}{PUBLISHED}"))]
        return {entry["node"]: entry for entry in sorted(entries, key=lambda entry: entry["role"] != "head")}

    def update(self, topic: str, content: dict[str, t.Any]) -> None:
        """Publish this instance's present content on a topic, in place of the one before."""
        new = self._directory / f".{self.node}.{topic}.{os.getpid()}"
        new.write_text(json.dumps(content), encoding="utf-8")
        new.replace(self._directory / f"{self.node}.{topic}{LATEST}")

    def latest(self, topic: str) -> dict[str, dict[str, t.Any]]:
        """Return each instance's latest content on a topic, by node."""
        suffix = f".{topic}{LATEST}"
        return {path.name.removesuffix(suffix): json.loads(path.read_text(encoding="utf-8")) for path in self._directory.glob(f"*{suffix}")}

    def gather(self, topic: str, seconds: float) -> dict[str, dict[str, t.Any]]:
        """Return the instances' entries on a topic, once all that have not ended have published, or after ``seconds``."""
        published: dict[str, dict[str, t.Any]] = {}
        for _elapsed in clock(seconds, POLL_SECONDS):
            # In this order: a node may publish and then end.
            expected = set(self._joined()) - set(self.ended_nodes())
            published = self.published(topic)
            if expected <= set(published):
                break
        return published

    def conclude(self, content: dict[str, t.Any]) -> dict[str, t.Any]:
        """Record the joint conclusion of the instances, unless another instance has done so. Returns the one that counts."""
        self._create(CONCLUSION, content)
        return dict(json.loads((self._directory / CONCLUSION).read_text(encoding="utf-8")))

    def wait_for(
        self, topic: str, seconds: float, is_enough: t.Callable[[t.Mapping[str, t.Any]], bool], count: int
    ) -> dict[str, dict[str, t.Any]]:
        """Return the entries of the ``count`` instances on a topic as soon as they are enough. Raises :class:`ClusterError` when that becomes impossible."""
        published: dict[str, dict[str, t.Any]] = {}
        for _elapsed in clock(seconds, POLL_SECONDS):
            # In this order: a node may publish and then end.
            ended = self.ended_nodes()
            published = self.published(topic)
            self.raise_if_another_failed()
            if is_enough(published):
                return published
            silent = [node for node in ended if node not in published]
            if silent:
                raise ClusterError(f"this task ended on {', '.join(silent)} without a result", remedy="Look at the messages above.")
        raise WaitTimeout(
            f"only {len(published)} of {count} nodes took part in this task within {seconds:g} s: {', '.join(published) or 'none'}",
            remedy="Run head and workers in one play, with as many forks as nodes and without serial.",
        )

    def fail(self, message: str) -> Outcome:
        """Record this node's failure, unless another node was first. Returns the one that counts."""
        return self._decide(FAILURE, message)

    def succeed(self, message: str) -> Outcome:
        return self._decide(SUCCESS, message)

    def failure(self) -> Outcome | None:
        return self._read(FAILURE)

    def raise_if_another_failed(self) -> None:
        """Raise :class:`AnotherFailed` when another node failed first."""
        failure = self.failure()
        if failure and failure.node != self.node:
            raise AnotherFailed(
                f"ended because {failure.node} failed: {failure.message}", remedy=f"See the messages of {failure.node}.", reason=ANOTHER_FAILED
            )

    def success(self) -> Outcome | None:
        return self._read(SUCCESS)

    def head(self) -> str | None:
        """Return the name of the head's instance, None while it has not joined."""
        return next((node for node, entry in self._joined().items() if entry["role"] == "head"), None)

    def head_ended(self) -> bool:
        """Return whether the head's instance joined and its process has ended, even without leaving."""
        return self.head() in self.ended_nodes()

    def ended_nodes(self) -> list[str]:
        """Return the nodes whose instances joined and whose processes have ended, even without leaving."""
        return [node for node, entry in self._joined().items() if (self._directory / (node + LEFT)).exists() or not _is_alive(entry["pid"])]

    def _joined(self) -> dict[str, dict[str, t.Any]]:
        paths = sorted(self._directory.glob("*" + JOINED))
        return {path.name.removesuffix(JOINED): json.loads(path.read_text(encoding="utf-8")) for path in paths}

    def _decide(self, name: str, message: str) -> Outcome:
        mine = Outcome(self.node, message, time.time())
        self._create(name, mine._asdict())
        return self._read(name) or mine

    def _create(self, name: str, content: dict[str, t.Any]) -> None:
        """Write a file that appears completely or not at all, and never replace an existing one."""
        new = self._directory / f".{name}.{self.node}.{os.getpid()}"
        new.write_text(json.dumps(content), encoding="utf-8")
        try:
            os.link(new, self._directory / name)
        except FileExistsError:
            pass
        finally:
            new.unlink()

    def _read(self, name: str) -> Outcome | None:
        try:
            return Outcome(**json.loads((self._directory / name).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
