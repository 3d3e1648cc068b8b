# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What follows from profiles: filters over what the lookups ``profile`` and ``profile_catalogue`` returned."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.plugin_utils import _catalogue, _executor, _profile


def serve_arguments(profile, overrides=None, executor=None):
    """Serve arguments of a profile as typed data."""
    try:
        return _profile.serve_arguments(profile, overrides, executor)
    except _profile.ProfileError as error:
        raise AnsibleFilterError(str(error)) from error


def choose_executor(profile, image=None, predict=False):
    """What spreads a profile's ranks over the nodes, and why."""
    try:
        return _executor.choose(profile, image, predict)
    except _profile.ProfileError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Filters of the collection."""

    def filters(self):
        return {
            "catalogue_findings": _catalogue.findings,
            "choose_executor": choose_executor,
            "node_env": _profile.node_env,
            "per_host_names": _profile.per_host_names,
            "serve_arguments": serve_arguments,
            "snapshot_path": _profile.snapshot_path,
        }
