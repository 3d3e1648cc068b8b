# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a unit that runs a specification is set up. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files


def bring(module: AnsibleModule, unit: Unit, leaves: str, texts: t.Callable[[], t.Mapping[str, bytes]], *beside: str, **more: t.Any) -> dict[str, t.Any]:
    """Bring a unit to the state that is asked for, with the files ``beside`` its own; it leaves what it started running when it is let go."""
    params = module.params
    release = unit_files.release_path(unit)
    job = install.Job(
        unit,
        texts,
        (unit.folder, *beside),
        closed=True,
        enabled=params["enabled"],
        leaves=leaves,
        release=release,
        seconds=params["start_timeout"],
        **more,
    )
    return {**install.bring(module, job), "unit": unit_files.unit(unit, params["tool_timeout"])}
