# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The installation of a unit that runs a specification. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files


def bring(module: AnsibleModule, unit: Unit, leaves: str, texts: t.Callable[[], t.Mapping[str, bytes]], *further: str, **more: t.Any) -> dict[str, t.Any]:
    """Bring a unit to the requested state. ``further`` are paths that are removed with it; a released unit leaves running what it started."""
    params = module.params
    job = install.Job(
        unit,
        texts,
        (unit.folder, *further),
        closed=True,
        enabled=params["enabled"],
        leaves=leaves,
        release=os.path.join(unit.folder, unit_files.RELEASE),
        seconds=params["start_timeout"],
        **more,
    )
    return {**install.bring(module, job), "unit": unit_files.unit(unit, params["tool_timeout"])}
