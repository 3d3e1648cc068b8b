# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's part of the modules that set up a unit: builds the program of the units, and sends it to nodes whose program differs.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import typing as t

from ansible import constants as C
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.plugin_utils._unit import archive


@functools.cache
def program() -> bytes:
    """Return the program; a worker process of Ansible builds it once."""
    return archive.content()


class SendsProgram(ActionBase):
    """Runs the module, and again with the program when the node needs it."""

    TRANSFERS_FILES = True
    #: The module's name.
    MODULE = ""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        base = super().run(tmp, task_vars)
        args = dict(self._task.args)
        if args.get("state", "present") != "present":
            return {**base, **self._execute_module(module_name=self.MODULE, module_args=args, task_vars=task_vars)}
        content = program()
        args["program_digest"] = hashlib.sha256(content).hexdigest()
        result = self._execute_module(module_name=self.MODULE, module_args=args, task_vars=task_vars)
        if result.get("failed") or not result.get("needs_program") or self._task.check_mode:
            return {**base, **result}
        with tempfile.NamedTemporaryFile(dir=C.DEFAULT_LOCAL_TMP) as local:
            local.write(content)
            local.flush()
            folder = self._make_tmp_path()
            try:
                args["program_file"] = self._transfer_file(local.name, self._connection._shell.join_path(folder, os.path.basename(local.name)))
                return {**base, **self._execute_module(module_name=self.MODULE, module_args=args, task_vars=task_vars)}
            finally:
                self._remove_tmp_path(folder)
