# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of node_logs: writes the texts that the node sent, and returns only their names."""

from __future__ import annotations

import os
import pathlib
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.failure import failure_result

MODULE = "gb10.cluster.node_logs"


def written(directory: pathlib.Path, logs: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Write the texts into ``directory``, readable only by the user, and return their names and sizes.

    Raises OSError, and :class:`UnknownState` before anything is written when ``logs`` is not a list of logs.
    """
    try:
        # A node cannot choose a path on the controller.
        texts = [(os.path.basename(log["name"]), log["text"].encode(), log["cut"]) for log in logs]
    except (AttributeError, KeyError, TypeError, UnicodeEncodeError) as error:
        raise UnknownState(f"the node sent something else than logs: {error!r}") from error
    nameless = [name for name, _raw, _cut in texts if name in ("", ".", "..") or "\0" in name]
    if nameless:
        raise UnknownState(f"the node sent a log of the name {nameless[0]!r}, which is not a file's")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = []
    for name, raw, cut in texts:
        new = directory / f".{name}.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as handle:
            handle.write(raw)
        new.replace(directory / name)
        files.append({"name": name, "bytes": len(raw), "cut": cut})
    return files


class ActionModule(ActionBase):
    """Runs the module, and writes the texts of its answer below ``dest``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        base = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        result = self._execute_module(module_name=MODULE, module_args=self._task.args, task_vars=task_vars)
        logs = result.pop("logs", None)
        if result.get("failed") or logs is None:
            return {**base, **result}
        node = str(task_vars["inventory_hostname"])
        directory = pathlib.Path(os.path.expanduser(str(self._task.args["dest"]))) / node
        try:
            files = written(directory, logs)
        except OSError as error:
            return {**base, **result, "failed": True, "msg": f"the logs of {node} cannot be written to {directory}: {error.strerror}"}
        except UnknownState as error:
            return {**base, **result, **failure_result(error), "msg": f"the logs of {node} are not written: {error}"}
        return {**base, **result, "dest": str(directory), "files": files, "msg": f"{len(files)} files of {node} in {directory}"}
