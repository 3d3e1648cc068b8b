# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Diagnoses the logs of a node during a start, and makes an error of the result. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import signal
import textwrap
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_log import stage_of
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import end_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.events import Clock, Deaths
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.failures import Diagnosis
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.log_lines import timed
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.signature import Signature

#: The kernel's log is long: one of this many polls reads it, and so does the last poll of a failed start.
KERNEL_POLLS = 5

#: Characters of a log's line in a message; the whole line is in the findings.
LINE_LENGTH = 300

NodeSnapshot = dict[str, t.Any]


class NodeLogs:
    """The logs of one run on this node, of which each poll reads the new lines, and their diagnoses: the engine's, those of Ray's workers, the kernel's."""

    def __init__(self, node: str, run_id: str, of_ray: bool, signatures: t.Sequence[Signature]) -> None:
        self._node = node
        self._signatures = signatures
        self._run_id = run_id
        self._offset = 0
        self._ray_offsets: dict[str, int] | None = {} if of_ray else None
        self._first = True
        self._suspected = False
        self.clock = Clock()
        self.diagnosis = Diagnosis(signatures)
        self.deaths = Deaths()
        self._of_ray: dict[str, Diagnosis] = {}
        self._of_kernel = Diagnosis(signatures)
        self._kernel_since: float | None = None
        self._kernel_seen: set[str] = set()
        self._polls = 0
        self.kernel_error = ""
        self.stage, self.shards = "", ""
        self.new_lines: list[str] = []

    @property
    def position(self) -> dict[str, t.Any]:
        """The options of a poll that continues from here. What Ray's workers wrote before the first poll belongs to another run."""
        ray = {} if self._ray_offsets is None else {"ray_offsets": self._ray_offsets, "ray_from_end": self._first}
        kernel = {"kernel_since": self._kernel_since} if self._polls % KERNEL_POLLS == 0 and self._kernel_since is not None else {}
        return {**({"log_offset": self._offset, "log_run_id": self._run_id} if self._run_id else {}), **ray, **kernel}

    @property
    def last_position(self) -> dict[str, t.Any]:
        """The options of the last poll of a start that failed."""
        return {**self.position, "kernel_since": self._kernel_since}

    def feed(self, snapshot: NodeSnapshot) -> None:
        self._first = False
        self._offset = snapshot["log_offset"]
        self._ray_offsets = snapshot["ray_offsets"] if self._ray_offsets is not None else None
        self.diagnosis.feed(timed(snapshot["log_lines"], self._node, snapshot["now"], source="engine", ahead=self.clock.ahead))
        for name, lines in snapshot["ray_lines"].items():
            self._of_ray.setdefault(name, Diagnosis(self._signatures)).feed(timed(lines, self._node, snapshot["now"], source=name, ahead=self.clock.ahead))
        self._polls += 1
        # The preflight judges what the kernel wrote before the start.
        self._kernel_since = snapshot["now"] if self._kernel_since is None else self._kernel_since
        new = [line for line in snapshot["kernel_lines"] if line not in self._kernel_seen]
        self._kernel_seen.update(new)
        self.kernel_error = snapshot["kernel_error"] or self.kernel_error
        self._of_kernel.feed(timed(new, self._node, snapshot["now"], source="kernel", ahead=self.clock.ahead))
        of_ray = [line for lines in snapshot["ray_lines"].values() for line in lines]
        self.new_lines = [*snapshot["log_lines"], *of_ray]
        self.deaths.feed(self.new_lines)
        stage = stage_of(of_ray)
        if snapshot["stage"]:
            self.stage, self.shards = snapshot["stage"], snapshot["shards"]
        elif stage:
            self.stage, self.shards = stage.name, f"{stage.done}/{stage.total}" if stage.total else ""

    def _diagnoses(self) -> list[Diagnosis]:
        return [self.diagnosis, *self._of_ray.values(), self._of_kernel]

    def findings(self) -> list[dict[str, t.Any]]:
        """Return the findings of all logs of this node."""
        return [finding for diagnosis in self._diagnoses() for finding in diagnosis.findings(self._node)]

    def worst(self) -> Diagnosis:
        """Return the diagnosis that names a cause, that of the engine's own log when none does."""
        named = (diagnosis for diagnosis in self._diagnoses() if diagnosis.fatal and diagnosis.fatal.signature.names_cause)
        return next(named, self.diagnosis)

    @property
    def line(self) -> str:
        """The line that says why the engine fails, cut for a message; empty without one."""
        return shown_line(self.worst())

    def is_fatal(self) -> bool:
        """Return whether the engine cannot serve. The line that names the cause may follow its echo, so a suspicion is judged at the next poll."""
        suspected_before, self._suspected = self._suspected, self.worst().fatal is not None
        return suspected_before and self._suspected


def shown_line(diagnosis: Diagnosis) -> str:
    """Return the line of a diagnosis, cut for a message; empty without one."""
    return textwrap.shorten(diagnosis.line, LINE_LENGTH, placeholder=" …")


def engine_trouble(node: str, what: str, engine: dict[str, t.Any], diagnosis: Diagnosis) -> ClusterError:
    """Return the error for an engine or rank that ended: how it ended, and the line of its log with the cause."""
    hint = "A SIGKILL that no user sent comes from the kernel when memory runs out: journalctl -k. " if engine["exit_signal"] == signal.SIGKILL else ""
    return log_trouble(node, f"the {what} on {node} {end_text(engine)}", diagnosis, engine["log_path"], hint, ended=True)


def stopped(node: str, what: str, engine: dict[str, t.Any], diagnosis: Diagnosis) -> ClusterError:
    """Return the error for an engine or rank that was stopped on request while this play waited for it. Its log after that shows no failure."""
    return ClusterError(
        f"the {what} on {node} was stopped by {engine['stopped_by']} at {utc_text(engine['stopped_at'])}, while this play waited for it",
        remedy="Run again when it should serve.",
        reason="stopped",
        log_lines=list(diagnosis.tail),
    )


def log_trouble(node: str, what: str, diagnosis: Diagnosis, log_path: str, hint: str = "", ended: bool = False) -> ClusterError:
    """Return a failure with the log's evidence: cause, line, remedy and the log's path. An engine that has ``ended`` cannot be left running."""
    fatal = diagnosis.fatal
    cause = f" ({fatal.signature.cause})" if fatal and fatal.signature.rank_scope == "cause" else ""
    line = f": {shown_line(diagnosis)}" if diagnosis.line else "; its log names no error"
    known = f"{fatal.signature.remedy} " if fatal else ""
    where = f"The whole log is {log_path} on {node}." if log_path else f"See Ray's logs in the container on {node}, which the play brings here."
    matches = [*([fatal] if fatal else []), *diagnosis.warnings]
    return ClusterError(
        f"{what}{cause}{line}",
        remedy=f"{known}{hint}{where}",
        reason=fatal.signature.id if fatal else "",
        suspected=not ended and not (fatal and fatal.signature.names_cause),
        findings=[match.finding(node) for match in matches],
        log_lines=list(diagnosis.tail),
    )
