# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of an engine: installed, kept, or removed. This module util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import glob
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._service import specified
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import python
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit, path_of
from ansible_collections.gb10.cluster.plugins.module_utils._unit import glance, place, specification, text, unit_files

Params = dict[str, t.Any]

#: What each state needs.
NEEDS: dict[str, tuple[str, ...]] = {"present": ("specification",), "kept": (), "absent": ()}


def wanted(params: Params, where: Unit) -> dict[str, bytes]:
    """Return the wanted files by path. Raises :class:`ClusterError` for an invalid specification."""
    given = dict(specification.check({**(params["specification"] or {}), "roots": params["roots"]}))
    env, roots = specification.arguments(given, "container").get("env") or {}, params["roots"]
    given["seen"] = place.seen(given["address"], env, roots["sysfs_root"], roots["proc_root"])
    return {
        os.path.join(where.folder, specification.FILE): specification.dump(given).encode(),
        where.path: text.engine(where.folder, python.of_units("docker"), given).encode(),
    }


def disabled(unit: Unit, params: Params) -> list[tuple[str, t.Callable[[], None]]]:
    """Return the actions that disable the units of other clusters which do not run: a node runs one engine, and a boot would start both."""
    paths = sorted({*glob.glob(path_of(unit_files.unit_name("*"), params["roots"]["etc_root"]))} - {unit.path})
    others = {other: other.state(params["tool_timeout"]) for other in (Unit(os.path.basename(path), (path,)) for path in paths)}
    disable = [other for other, state in others.items() if state.enabled and not state.active and not state.starting]
    return [(f"disable {other.name}", functools.partial(other.systemctl, params["tool_timeout"], "disable", "--quiet", other.name)) for other in disable]


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    unit = unit_files.of_engine(params["state_dir"], params["cluster_name"], params["roots"]["etc_root"])
    lock = cluster_locks.path_of(params["state_dir"], params["cluster_name"])

    def begin() -> None:
        cluster_locks.check_held(lock, params["lock_id"])
        private.make(os.path.dirname(unit.folder))

    shown = glance.path_of(params["state_dir"], params["cluster_name"])
    first = disabled(unit, params) if params["enabled"] else []
    return specified.bring(module, unit, "the engine", lambda: wanted(params, unit), shown, locks=True, check_held=begin, first=first)
