# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks whether an image only adds to its base. This module util is PRIVATE to the collection."""

from __future__ import annotations

import http.client
import json
import tarfile
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, LABEL_ROLE, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_additions, image_copying, image_identity, image_server
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import named

#: Prints the versions of all packages by name.
PROBE = "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name'].lower().replace('_', '-'): d.version for d in m.distributions()}))"


def packages_of(api: EngineApi, image: str, timeout: float) -> dict[str, str]:
    """Return the versions of an image's packages by name. Raises :class:`UnknownState` if it does not report them."""
    answer = api.run_throwaway(image, ["python3", "-c", PROBE], labels={LABEL_OWNER: OWNER, LABEL_ROLE: "probe"}, timeout=timeout)
    try:
        return {str(name): str(version) for name, version in json.loads(answer.stdout.strip().splitlines()[-1]).items()}
    except (ValueError, IndexError, AttributeError) as error:
        raise UnknownState(
            f"image {image} does not report its packages: python3 ended with status {answer.rc}",
            remedy=f"Test it: docker run --rm --entrypoint python3 {image} -m pip list",
            reason="image does not answer",
            raw=(answer.stdout + answer.stderr)[-2000:],
        ) from error


def found_in(api: EngineApi, params: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the engine's descriptions of the image and its base. Raises :class:`ClusterError` unless the image was built on the base."""
    images = {}
    for name in ("image", "base_image"):
        answer = api.image(params[name])
        if answer is None:
            raise ClusterError(f"no image {params[name]} is here", remedy="Run the play with --tags image", reason="absent")
        images[name] = answer
    below, all_layers = (image_identity.layers_in(images[name]) for name in ("base_image", "image"))
    if image_identity.common(below, all_layers) < len(below):
        raise ClusterError(
            f"{params['image']} was not built on {params['base_image']}",
            expected="the layers of the base below its own",
            remedy="Run with --tags image -e gb10_allow=rebuild",
            reason="other base",
        )
    return images


def compared(api: EngineApi, params: dict[str, t.Any], images: dict[str, t.Any]) -> tuple[str, image_additions.Additions]:
    """Return the kind of comparison, and the effect of the upper layers. Raises :class:`ClusterError`."""
    below, all_layers = (image_identity.layers_in(images[name]) for name in ("base_image", "image"))
    image_copying.require_room(api, api.get("/info"), int(images["image"].get("Size") or 0), 0)
    try:
        with image_server.export(params["docker_socket"], [images["image"]["Id"]], params["tool_timeout"]) as tar:
            layers = image_additions.layers_of(tar)
    except (image_server.Unreadable, tarfile.TarError, http.client.HTTPException, OSError, EOFError) as error:
        raise UnknownState(
            f"the Docker engine's export of {params['image']} cannot be read: {error}",
            remedy=f"Test it: docker save {params['image']} | tar -t",
            reason="engine",
        ) from error
    if layers.keys() >= set(all_layers):
        ordered = [layers[digest] for digest in all_layers]
        return "files", image_additions.compare(ordered[:len(below)], ordered[len(below):])
    before, after = (packages_of(api, params[name], params["tool_timeout"]) for name in ("base_image", "image"))
    return "packages", image_additions.packages(before, after)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    images = found_in(api, params)
    how, additions = compared(api, params, images)
    touched = sorted({*additions.changed, *additions.removed})
    wrong = image_additions.without(touched, params["allowed"])
    other = image_additions.config(images["base_image"]["Config"], images["image"]["Config"], params["allowed_env"])
    if wrong or other:
        raise ClusterError(
            f"{params['image']} changes what its base {params['base_image']} has: {'; '.join(filter(None, (named(wrong), *other)))}",
            expected="layers that only add, except to the packages of the profile's mods",
            remedy="Choose another gb10_ray_version or image.base. Declare an intended change as a mod of the profile: docs/profiles.md",
            reason="base changed",
            changed_paths=wrong,
        )
    layers = len(image_identity.layers_in(images["image"])) - len(image_identity.layers_in(images["base_image"]))
    return {
        "msg": f"{params['image']} adds {additions.added} {'file(s)' if how == 'files' else 'package(s)'} in {layers} layer(s) to {params['base_image']}",
        "how": how,
        "layers": layers,
        "added": additions.added,
        "changed_paths": touched,
    }
