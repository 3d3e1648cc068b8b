# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters for the results of the lookups ``profile`` and ``profile_catalogue``."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import picture, planning, wording
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import derived, executors, form, repositories
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import image_copies, model_copies


def serve_arguments(profile, overrides=None, executor=None):
    """Return the serve arguments of a profile as typed data."""
    try:
        return derived.serve_arguments(profile, overrides, executor)
    except form.ProfileError as error:
        raise AnsibleFilterError(error.with_remedy()) from error


def choose_executor(profile, image=None, predict=False):
    """Return the executor of a profile, and why it was chosen."""
    try:
        return executors.choose(profile, image, predict)
    except form.ProfileError as error:
        raise AnsibleFilterError(error.with_remedy()) from error


def memory_plan(profile, nodes=None, serve=None, context=None, concurrency=None, lengths=None, config=None, recorded=False, tenants=(), inventory=None):
    """Return the memory that a profile needs on each node."""
    try:
        return planning.memory_plan(profile, nodes, serve, context, concurrency, lengths, config, recorded, tenants, inventory)
    except ClusterError as error:
        raise AnsibleFilterError(error.with_remedy()) from error


class FilterModule:
    """Filters of the collection."""

    def filters(self):
        return {
            "choose_executor": choose_executor,
            "copy_plan": model_copies.plan,
            "downloads": repositories.downloads,
            "image_plan": image_copies.plan,
            "memory_expected": planning.expected,
            "memory_plan": memory_plan,
            "memory_plan_digest": planning.digest,
            "memory_plan_findings": wording.findings,
            "memory_plan_lines": wording.lines,
            "memory_plan_svg": picture.svg,
            "mod_digests": derived.mod_digests,
            "model_argument": repositories.model_argument,
            "model_mounts": repositories.model_mounts,
            "node_env": derived.node_env,
            "per_host_names": derived.per_host_names,
            "repositories": repositories.repositories,
            "serve_arguments": serve_arguments,
        }
