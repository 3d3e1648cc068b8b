# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Returns the contract of an image, which is read once and cached. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker import image_store
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_contract, image_identity
from ansible_collections.gb10.cluster.plugins.module_utils._image.images import by_digest

ABSENT: dict[str, t.Any] = {
    "exists": False,
    "image_id": None,
    "repo_tags": [],
    "repo_digests": [],
    "labels": {},
    "base": None,
    "created": None,
    "size_bytes": None,
    "contract": None,
    "gpu": None,
    "from_cache": False,
}


def gpu_of(module: AnsibleModule, api: EngineApi, image: dict[str, t.Any], entrypoint: dict[str, t.Any]) -> dict[str, t.Any] | None:
    """Return the GPU access of a container of the image, from an earlier success in this boot with this driver, if any."""
    params = module.params
    # The stage stops for an unknown entrypoint.
    if params["gpus"] in ("none", []) or entrypoint["kind"] == image_contract.UNKNOWN:
        return None
    path, key = gpu_access.proof_path(params["state_dir"], image), gpu_access.proof_key(params["gpus"])
    known = gpu_access.read_proof(path, key)
    if known or module.check_mode:
        return known
    wrapper = entrypoint["argv"] if entrypoint["kind"] == image_contract.WRAPPER else []
    answer = gpu_access.prove(api, image, wrapper, params["gpus"], params["tool_timeout"])
    if not answer["error"]:
        try:
            gpu_access.write_proof(path, key, answer)
        except OSError as error:
            module.warn(f"{path} cannot be written ({error.strerror}), so the GPU will be tested again next time")
    return answer


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    image = api.image(params["image"])
    base_image = api.image(params["base_image"]) if params["base_image"] else None
    store = image_store.store_of(api.get("/info")) if base_image else ""
    base = {
        "base_image_id": base_image["Id"] if base_image else None,
        # The classic store identifies an image by the sha256 of its configuration.
        "base_config": base_image["Id"] if base_image and store == "classic" else None,
        "on_base": bool(image and base_image) and image_identity.stands_on(image, base_image, store),
        "base_digest": by_digest(params["base_image"], base_image.get("RepoDigests") or []) if base_image else None,
    }
    if image is None:
        return {**ABSENT, **base, "verdict": "block", "msg": f"no image {params['image']} is here", "remedy": "Run the play with --tags image"}

    path = image_contract.cache_path(params["state_dir"], image)
    kept = image_contract.read_cache(path)
    contract = kept or image_contract.ask(api, image, params["image"], params["tool_timeout"])
    if contract["engine_error"]:
        module.warn(f"{params['image']} does not report its engine's options, and will be asked again next time: {contract['engine_error']}")
    if kept is None:
        try:
            image_contract.write_cache(path, contract)
        except OSError as error:
            module.warn(f"{path} cannot be written ({error.strerror}), so the image will be asked again next time")

    labels = (image.get("Config") or {}).get("Labels") or {}
    return {
        "msg": f"{params['image']} has {len(contract['packages'])} packages on Python {contract['python']}",
        "exists": True,
        "image_id": image["Id"],
        "repo_tags": image.get("RepoTags") or [],
        "repo_digests": image.get("RepoDigests") or [],
        "labels": labels,
        "base": image_identity.base_of(labels),
        **base,
        "created": image.get("Created"),
        "size_bytes": image.get("Size"),
        "contract": contract,
        "gpu": gpu_of(module, api, image, contract["entrypoint"]),
        "from_cache": kept is not None,
    }
