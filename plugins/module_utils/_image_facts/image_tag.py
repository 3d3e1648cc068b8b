# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Returns the digest of a tag in its registry. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._image import images, pulling


def work(module: AnsibleModule) -> dict[str, t.Any]:
    image = module.params["image"]
    try:
        digest = Docker(module.params["docker_socket"], module.params["docker_timeout"]).registry_digest(image)
    except UnknownState:
        raise
    except ClusterError as error:
        raise ClusterError(
            f"the registry does not report the digest of {image}: {error}",
            remedy=error.remedy or pulling.remedy_of(str(error), image),
            reason=error.reason or "no digest",
        ) from error
    return {"msg": f"{image} is {digest}", "digest": digest, "reference": f"{images.repository(image)}@{digest}"}
