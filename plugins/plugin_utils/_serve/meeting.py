# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the instances of one task on several hosts tell each other what they found and how it ends. This plugin util is PRIVATE to the collection.

The linear strategy waits for the slowest host: without a word from the others, every instance would wait until its own
time is over. The instances are processes of one ansible-playbook run on one machine, so a directory is all they need.
It lies in Ansible's own temporary directory, which only the user can read and which Ansible removes at its end; that is
also what makes the runs of two playbooks strangers to each other.
"""

from __future__ import annotations

import json
import os
import pathlib
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

JOINED = ".joined"
LEFT = ".left"
TOLD = ".told"
FAILURE = "failure.json"
SUCCESS = "success.json"


class Outcome(t.NamedTuple):
    """How the task ended for all: the node that decided it, its message, seconds since the epoch."""

    node: str
    message: str
    time: float


class AnotherFailed(ClusterError):
    """Another node failed first, so this one ends too."""


class Meeting:
    """One round of one task. A task that runs again in the same run (a loop, retries) meets again, in a round of its own."""

    def __init__(self, root: str, task: str, node: str, role: str) -> None:
        self.node = node
        self._role = role
        base = pathlib.Path(root) / f"gb10-serve-{task}"
        number = 0
        while (base / str(number) / (node + LEFT)).exists():
            number += 1
        self._place = base / str(number)

    def join(self) -> None:
        """Tell the others that this instance is there."""
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._publish(self.node + JOINED, {"pid": os.getpid(), "role": self._role})

    def leave(self) -> None:
        """Tell the others that this instance is through."""
        (self._place / (self.node + LEFT)).touch(mode=0o600)

    def tell(self, topic: str, content: dict[str, t.Any]) -> None:
        """Tell the others what this instance has to say on a topic, once; ``role`` is added."""
        self._publish(f"{self.node}.{topic}{TOLD}", {**content, "node": self.node, "role": self._role})

    def told(self, topic: str) -> dict[str, dict[str, t.Any]]:
        """Return what every instance has said on a topic until now, by node, the head first."""
        said = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self._place.glob(f"*.{topic}{TOLD}"))]
        return {one["node"]: one for one in sorted(said, key=lambda one: one["role"] != "head")}

    def fail(self, message: str) -> Outcome:
        """Note this node's failure, unless another node was first. Returns the one that counts."""
        return self._decide(FAILURE, message)

    def succeed(self, message: str) -> Outcome:
        return self._decide(SUCCESS, message)

    def failure(self) -> Outcome | None:
        return self._read(FAILURE)

    def heed(self) -> None:
        """Raise :class:`AnotherFailed` when another node failed first."""
        failure = self.failure()
        if failure and failure.node != self.node:
            raise AnotherFailed(
                f"ended because {failure.node} failed: {failure.message}", remedy=f"See what {failure.node} says.", reason="another node failed"
            )

    def success(self) -> Outcome | None:
        return self._read(SUCCESS)

    def head(self) -> str | None:
        """Return the name of the head's instance, None while it has not joined."""
        for path, note in self._notes():
            if note["role"] == "head":
                return path.name.removesuffix(JOINED)
        return None

    def head_gone(self) -> bool:
        """Return whether the head's instance joined and its process has ended, whatever it left undone."""
        return self.head() in self.gone()

    def gone(self) -> list[str]:
        """Return the instances that joined and whose processes have ended, whatever they left undone."""
        nodes = {path.name.removesuffix(JOINED): note for path, note in self._notes()}
        return [node for node, note in nodes.items() if (self._place / (node + LEFT)).exists() or not _alive(note["pid"])]

    def _notes(self) -> t.Iterator[tuple[pathlib.Path, dict[str, t.Any]]]:
        for path in sorted(self._place.glob("*" + JOINED)):
            yield path, json.loads(path.read_text(encoding="utf-8"))

    def _decide(self, name: str, message: str) -> Outcome:
        mine = Outcome(self.node, message, time.time())
        self._publish(name, mine._asdict())
        return self._read(name) or mine

    def _publish(self, name: str, content: dict[str, t.Any]) -> None:
        """Write a file that appears whole or not at all, and never replaces one that is there."""
        new = self._place / f".{name}.{self.node}.{os.getpid()}"
        new.write_text(json.dumps(content), encoding="utf-8")
        try:
            os.link(new, self._place / name)
        except FileExistsError:
            pass
        finally:
            new.unlink()

    def _read(self, name: str) -> Outcome | None:
        try:
            return Outcome(**json.loads((self._place / name).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
