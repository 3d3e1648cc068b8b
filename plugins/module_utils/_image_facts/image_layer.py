# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Returns the files that pip would add to an image. This module util is PRIVATE to the collection."""

from __future__ import annotations

import inspect
import json
import re
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, LABEL_ROLE, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_contract, lock_probe
from ansible_collections.gb10.cluster.plugins.module_utils._node.ray import TOKEN_SINCE

#: Path of the CA bundle in the container.
CA_TARGET = "/run/gb10/ca.crt"
#: Path of a bundle's packages there.
WHEELS_TARGET = "/run/gb10/wheels"
OLD_PIP = "no such option"
#: One version of Ray.
RAY = re.compile(r"\Aray==([\w.]+)\Z")
#: Pip's messages about a conflict: the dependency, and the version that the constraint allows.
DEPENDS = re.compile(r"^ +(\S+ \S+ depends on [^\n;]+)", re.MULTILINE)
KEPT = re.compile(r"^ +The user requested \(constraint\) (\S+?)==(\S+)$", re.MULTILINE)


def parse_answer(stdout: str, most: int) -> list[dict[str, t.Any]]:
    """Return the probe's answers, one for each of at most ``most`` attempts. Raises ValueError for any other output."""
    answers = image_contract.marked_json(stdout, lock_probe.MARK)
    if not isinstance(answers, list) or not 1 <= len(answers) <= most:
        raise ValueError("an answer of another form")
    if not all(isinstance(answer, dict) and isinstance(answer.get("error"), str) and isinstance(answer.get("lock"), (list, type(None))) for answer in answers):
        raise ValueError("an answer that lacks required keys")
    return answers


def conflict_of(words: str) -> str:
    """Return the packages of the image that conflict with the requested ones, in short; pip's own message if it has another form."""
    depends = list(dict.fromkeys(conflict.strip() for conflict in DEPENDS.findall(words)))
    kept = [f"{name} {version}" for name, version in dict.fromkeys(KEPT.findall(words))]
    return f"{', '.join(depends)}, and the image has {', '.join(kept)}" if depends and kept else " ".join(words.split())


def remedy_of(words: str, image: str) -> str:
    """Return the remedy for pip's refusal."""
    if OLD_PIP in words:
        return f"Choose a newer image.base: {image} has a pip older than 22.2."
    if lock_probe.CONFLICT in words:
        return "Choose another image.base, or a gb10_ray_version and requires.ray of the profile that this one meets: the base's packages are not changed."
    return "Check whether containers here reach the package index; behind a proxy set gb10_build_ca_file and gb10_build_pip_env (PIP_PROXY, PIP_INDEX_URL)."


def attempts(requirements: t.Sequence[str], ray_allowed: str) -> list[list[str]]:
    """Return the requests for pip, in their order: the requirements, then those with an older Ray that supports the token."""
    older = [RAY.sub(rf"ray>={'.'.join(map(str, TOKEN_SINCE))},<\1{',' if ray_allowed else ''}{ray_allowed}", requirement) for requirement in requirements]
    return [list(requirements), *([older] if older != list(requirements) else [])]


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    image, wanted = params["image"], params["requirements"]
    requests = attempts(wanted, params["ray_allowed"])
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    # NGC images set a constraint for additional packages. The installed packages constrain the layer; for pip an empty variable sets none.
    env = {"PIP_CONSTRAINT": "", **{name: str(value) for name, value in params["pip_env"].items()}}
    mounts = []
    if params["ca_file"]:
        env["PIP_CERT"] = CA_TARGET
        mounts = [{"Type": "bind", "Source": params["ca_file"], "Target": CA_TARGET, "ReadOnly": True}]
    if params["wheels"]:
        env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS_TARGET}
        mounts.append({"Type": "bind", "Source": params["wheels"], "Target": WHEELS_TARGET, "ReadOnly": True})
    result = api.run_throwaway(
        image,
        ["python3", "-c", inspect.getsource(lock_probe), json.dumps(requests)],
        labels={LABEL_OWNER: OWNER, LABEL_ROLE: "probe"},
        timeout=params["tool_timeout"],
        network="bridge",
        env=env,
        mounts=mounts,
    )
    try:
        answers = parse_answer(result.stdout, len(requests))
    except ValueError as error:
        raise UnknownState(
            f"image {image} does not report what {', '.join(wanted)} needs: python3 ended with status {result.rc} and {error}",
            remedy=f"Test it: docker run --rm --entrypoint python3 {image} -m pip --version",
            reason="image does not answer",
            raw=(result.stdout + result.stderr)[-2000:],
        ) from error
    used, last = requests[len(answers) - 1], answers[-1]
    why = conflict_of(answers[0]["error"]) if len(answers) > 1 else ""
    if last["lock"] is None:
        words = last["error"]
        tried = " or ".join(", ".join(request) for request in requests[: len(answers)])
        # The same conflict of an older Ray is not repeated.
        message = why if why and lock_probe.CONFLICT in words else "; ".join(filter(None, (why, conflict_of(words))))
        raise ClusterError(
            f"{tried} cannot be added to {image}: {message}",
            remedy=f"Import a bundle of this release: {params['wheels']} lacks the packages." if params["wheels"] else remedy_of(words, image),
            reason="no layer",
            raw=words,
        )
    return {"msg": f"{', '.join(used)} adds {len(last['lock'])} package(s) to {image}{f': {why}' if why else ''}", "lock": last["lock"], "why": why}
