# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the modules set up the units that run a specification. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files

#: The options of both. One that can keep a unit which does not run has ``kept`` among the choices of ``state``.
ARGUMENT_SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "enabled": {"type": "bool", "default": False},
    "specification": {"type": "dict"},
    "state_dir": {"type": "path", "default": "/var/lib/gb10"},
    "start_timeout": {"type": "int", "default": 300},
    "tool_timeout": {"type": "int", "default": 60},
    **install.PROGRAM_SPEC,
    "roots": ROOTS,
}


def bring(module: AnsibleModule, unit: Unit, leaves: str, texts: t.Callable[[], t.Mapping[str, bytes]], *beside: str, **more: t.Any) -> dict[str, t.Any]:
    """Bring a unit to the state that is asked for, with the files ``beside`` its own; it leaves what it started running when it is let go."""
    params = module.params
    job = install.Job(
        unit, texts, (unit.folder, *beside), closed=True, leaves=leaves, release=unit_files.release_path(unit), seconds=params["start_timeout"], **more
    )
    return {**install.bring(module, job), "unit": unit_files.unit(unit, params["tool_timeout"])}
