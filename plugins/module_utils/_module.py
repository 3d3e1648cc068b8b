# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The frame every module of the collection runs in. This module util is PRIVATE to the collection."""

from __future__ import annotations

import tempfile
import time
import traceback
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import FULL, ClusterError, Problem, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned, secrets_of

#: The keys that every result of every module has.
RESULT_KEYS: dict[str, t.Any] = {"msg": "", "verdict": "pass", "remedy": "", "reason": "", "actions": [], "diff": {}}


def complete(result: dict[str, t.Any], started: float) -> dict[str, t.Any]:
    """Return ``result`` with the common keys filled in and ``duration`` (seconds since ``started``, monotonic)."""
    return {**RESULT_KEYS, "changed": False, **result, "duration": round(time.monotonic() - started, 3)}


def run(module: AnsibleModule, work: t.Callable[[AnsibleModule], dict[str, t.Any]]) -> t.NoReturn:
    """Call ``work(module)`` and exit with its result; a :class:`ClusterError` becomes the one failure format.

    Every module ends here, so this is the only place where secrets are removed from results before they leave the node.
    """
    started = time.monotonic()
    leave, result = module.exit_json, {}
    try:
        result = _worked(module, work)
    except ClusterError as error:
        leave = module.fail_json
        result = {"msg": str(error), "verdict": error.verdict, "remedy": error.remedy, "reason": error.reason, **error.details}
    except Exception as error:
        # Ansible would print the traceback as it is.
        leave = module.fail_json
        result = {
            "msg": f"the module failed: {type(error).__name__}: {error}",
            "verdict": "unknown",
            "remedy": "Report this with the traceback.",
            "reason": "crash",
            "traceback": traceback.format_exc(),
        }
    secrets = secrets_of(module.params)
    # Ansible returns warnings separately.
    module.no_log_values.update(secrets.values())
    leave(**cleaned({**complete(result, started), "invocation": {"module_args": module.params}}, secrets))


def _worked(module: AnsibleModule, work: t.Callable[[AnsibleModule], dict[str, t.Any]]) -> dict[str, t.Any]:
    """Return the result of ``work``. A full disk raises :class:`ClusterError` for any file, so it does not count as a crash."""
    try:
        return work(module)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise file_error(error, tempfile.gettempdir(), "") from error


def require_least(params: t.Mapping[str, t.Any], least: t.Mapping[str, int]) -> None:
    """Raise :class:`ClusterError` for the first option that is below its least value."""
    for name, value in least.items():
        if params[name] < value:
            raise ClusterError(f"{name} is {params[name]}, expected {value} or more", remedy=f"Correct {name}.", reason="input")


def require_most(params: t.Mapping[str, t.Any], most: t.Mapping[str, int]) -> None:
    """Raise :class:`ClusterError` for the first option that is above its greatest value."""
    for name, value in most.items():
        if params[name] > value:
            raise ClusterError(f"{name} is {params[name]}, expected at most {value}", remedy=f"Correct {name}.", reason="input")


def finding(
    id: str,
    node: str,
    verdict: str,
    message: str,
    *,
    measured: t.Any = None,
    needed: t.Any = None,
    remedy: str = "",
    source: str = "",
) -> dict[str, t.Any]:
    """Return one judgement with its evidence, in the format that every table and report of the collection reads.

    ``verdict`` is ``pass``, ``warn``, ``block`` or ``unknown`` (which stops like ``block``).
    """
    return {
        "id": id,
        "node": node,
        "verdict": verdict,
        "message": message,
        "measured": measured,
        "needed": needed,
        "remedy": remedy,
        "source": source,
    }


def problem_finding(problem: Problem, node: str) -> dict[str, t.Any]:
    """Return a problem as a finding about ``node``, unless the problem names another node."""
    needed = problem.expected or None if problem.needed is None else problem.needed
    return finding(problem.id, problem.node or node, problem.verdict, f"{problem}.", measured=problem.measured, needed=needed, remedy=problem.remedy)
