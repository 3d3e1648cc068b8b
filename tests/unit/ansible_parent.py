# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that has imported Ansible, and forks for each run: a run then neither repeats the imports nor packs a module a second time.

Reads one JSON object per line: ``program`` (playbook, adhoc), ``arguments``, ``cwd``, ``env`` (all of it), ``stdout`` and ``stderr`` (files).
Answers each with its exit code on a line. Ansible reads its configuration as it is imported, so all runs share that of this process.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
import typing as t
from pathlib import Path

# Imported here so that no run has to.
import ansible.cli
import ansible.executor.playbook_executor
import ansible.executor.task_queue_manager  # noqa: F401
from ansible.cli import adhoc, playbook
from ansible.plugins.loader import action_loader, callback_loader, connection_loader, init_plugin_loader, strategy_loader

PROGRAMS = {"adhoc": adhoc.main, "playbook": playbook.main}
#: The action plugins that most runs use, and that import most of what all others do.
PRELOADED = ("gb10.cluster.inputs_info", "gb10.cluster.judge", "ansible.builtin.set_fact")


def prepare() -> None:
    """Find the collections and import what most runs use; each run finds them as they are then."""
    init_plugin_loader()
    for name in PRELOADED:
        action_loader.get(name, class_only=True)
    connection_loader.get("local", class_only=True)
    strategy_loader.get("linear", class_only=True)
    for path in callback_loader.all(path_only=True):
        # As it is imported, tree reads where a run wants its results.
        if Path(path).stem != "tree":
            callback_loader.get(Path(path).stem, class_only=True)
    ansible.cli.init_plugin_loader = lambda _paths: None


def run(request: dict[str, t.Any]) -> int:
    """Become the run: its directory, environment and output, then Ansible's own entry point. Returns the exit code."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(request[name], os.O_WRONLY), descriptor)
    try:
        PROGRAMS[request["program"]]([request["program"], *request["arguments"]])
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 (a forked process must not return to the loop below)
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    prepare()
    # What is there now lives as long as this process. A collection in a run would copy the memory of all of it.
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            code = run(request)
            sys.stdout.flush()
            sys.stderr.flush()
            # Ansible's directory for this process's files is the parent's: only that one removes it.
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
