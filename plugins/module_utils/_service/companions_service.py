# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of the companions: installed or removed. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._service import specified
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import python
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import companions, specification, text, unit_files

#: What each state needs.
NEEDS: dict[str, tuple[str, ...]] = {"present": ("specification",), "absent": ()}


def wanted(params: dict[str, t.Any], where: Unit) -> dict[str, bytes]:
    """Return the wanted files by path. Raises :class:`ClusterError` for an invalid specification."""
    given = {**(params["specification"] or {}), "state_dir": params["state_dir"], "roots": params["roots"]}
    if why := companions.wrong(given):
        raise ClusterError(f"the specification cannot be used: {why}", remedy="Let the role companions write it.", reason="input")
    return {
        os.path.join(where.folder, specification.FILE): specification.dump(given).encode(),
        where.path: text.companions(where.folder, python.of_units("docker"), given).encode(),
    }


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    unit = unit_files.of_companions(params["state_dir"], params["roots"]["etc_root"])
    return specified.bring(module, unit, "the companions", lambda: wanted(params, unit))
