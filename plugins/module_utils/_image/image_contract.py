# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The contract of an image: its packages, its entrypoint and its engine's options, read once by running it. This module util is PRIVATE to the collection.

NGC images put the forward-compatibility ``libcuda`` on the library path in their entrypoint. Started around it, CUDA of the image is newer
than the driver, and FlashInfer's JIT fails with "the provided PTX was compiled with an unsupported toolchain" (reported by an owner of a
Spark). Whether an entrypoint runs a given command is therefore tested, not derived from its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import posixpath
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, LABEL_ROLE, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_json
from ansible_collections.gb10.cluster.plugins.module_utils._image import engine_probe, image_probe
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify

Contract = dict[str, t.Any]


def _texts(value: t.Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _versions(value: t.Any) -> bool:
    return isinstance(value, dict) and all(entry is None or isinstance(entry, str) for entry in value.values())


#: The forms of the answers of the probe of packages, of the probe of the engine, and of the whole contract. The image's own Python wrote them.
PACKAGES_FORM: dict[str, t.Callable[[t.Any], bool]] = {
    "python": lambda value: isinstance(value, str),
    "architecture": lambda value: isinstance(value, str),
    "versions": _versions,
    "programs": _versions,
    "packages": _texts,
    "packages_digest": lambda value: isinstance(value, str),
}
ENGINE_FORM: dict[str, t.Callable[[t.Any], bool]] = {
    "flags": lambda value: isinstance(value, dict) and all(isinstance(about, dict) and _texts(about.get("choices", [])) for about in value.values()),
    "env": _texts,
    "executor": lambda value: isinstance(value, dict),
    "parsers": lambda value: isinstance(value, dict) and all(map(_texts, value.values())),
}
CONTRACT_FORM: dict[str, t.Callable[[t.Any], bool]] = {
    **PACKAGES_FORM,
    "entrypoint": lambda value: isinstance(value, dict) and _texts(value.get("argv")) and isinstance(value.get("kind"), str),
    "image_env": _texts,
    "engine": lambda value: value is None or fits(value, ENGINE_FORM),
    "engine_error": lambda value: isinstance(value, str),
}

#: Most characters of an answer, and bytes of a cached contract. Those of vLLM 0.32 have 60000.
LONGEST = 1024 * 1024

#: Kinds of entrypoints: none; a wrapper that runs the command after its own work; a program that uses the command as its arguments; one whose kind
#: could not be determined.
NONE, WRAPPER, PROGRAM, UNKNOWN = "none", "wrapper", "program", "unknown"

#: Programs that use a command as their arguments, in addition to the engines that ``classify`` recognizes.
PROGRAMS = ("bash", "dash", "python", "python3", "ray", "sglang", "sh", "vllm")

#: Keeps the driver out of the container, also if the engine's default runtime is NVIDIA's.
NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "void"}

#: Seconds for an entrypoint to run the probe. Those of NGC images need about one (for their banner and a search for the driver).
ENTRYPOINT_SECONDS = 60.0


def fits(value: t.Any, form: dict[str, t.Callable[[t.Any], bool]]) -> bool:
    """Return whether a value has every key of a form, each valid."""
    return isinstance(value, dict) and all(name in value and is_formed(value[name]) for name, is_formed in form.items())


def marked_json(stdout: str, mark: str) -> t.Any:
    """Return the JSON that a probe printed after its mark, among other output. Raises ValueError without it."""
    line = next((line for line in stdout.splitlines() if line.startswith(mark)), "")
    if not 0 < len(line) <= LONGEST:
        raise ValueError(f"an answer of {len(line)} characters" if line else "no answer in its output")
    try:
        return json.loads(line[len(mark):])
    except RecursionError as error:
        raise ValueError("an answer that is nested too deep") from error


def parse_answer(stdout: str, mark: str, form: dict[str, t.Callable[[t.Any], bool]]) -> Contract:
    """Return the keys of a probe's form and the versions from its output. Raises ValueError for any other output."""
    answer = marked_json(stdout, mark)
    if not fits(answer, {**form, "versions": _versions}):
        raise ValueError("an answer that lacks required keys")
    return {name: answer[name] for name in (*form, "versions")}


def own_entrypoint(image: dict[str, t.Any]) -> list[str]:
    """Return the entrypoint that an image sets for its containers."""
    return list((image.get("Config") or {}).get("Entrypoint") or [])


def is_program(entrypoint: t.Sequence[str]) -> bool:
    """Return whether an entrypoint is a program that uses a command as its arguments, by its name."""
    return posixpath.basename(entrypoint[0]) in PROGRAMS or classify.judge(entrypoint) is not None


def ask(api: EngineApi, image: dict[str, t.Any], reference: str, timeout: float) -> Contract:
    """Return the contract of an image. ``timeout`` is in seconds, for each of its two or three short runs.

    Raises :class:`UnknownState` if it does not report its packages. An engine that does not answer is None, and ``engine_error`` has the reason.
    """
    contract = ask_packages(api, image, reference, timeout)
    engine, error = None, ""
    if contract["versions"].get("vllm"):
        wrapper = contract["entrypoint"]["argv"] if contract["entrypoint"]["kind"] == WRAPPER else []
        try:
            result = _run(api, image, [*wrapper, "python3", "-c", inspect.getsource(engine_probe)], timeout)
            engine = parse_answer(result.stdout, engine_probe.MARK, ENGINE_FORM)
        except ClusterError as failure:
            error = str(failure)
        except ValueError as failure:
            error = f"{failure}: {(result.stdout + result.stderr)[-500:]}"
    versions = {**contract["versions"], **(engine.pop("versions") if engine else {"cuda": None, "nccl": None})}
    image_env = sorted(entry.partition("=")[0] for entry in (image.get("Config") or {}).get("Env") or [])
    return {**contract, "versions": versions, "image_env": image_env, "engine": engine, "engine_error": error}


def ask_packages(api: EngineApi, image: dict[str, t.Any], reference: str, timeout: float) -> Contract:
    """Return the packages of an image, read under its own entrypoint if that runs a command.

    ``image`` is the engine's description of it. Raises :class:`UnknownState` if it does not answer.
    """
    own, bare = own_entrypoint(image), ["python3", "-c", inspect.getsource(image_probe)]
    kind = NONE if not own else PROGRAM if is_program(own) else UNKNOWN
    if kind == UNKNOWN:
        # An entrypoint that does not run the probe stays unknown, and the probe is run without it.
        with contextlib.suppress(ClusterError, ValueError):
            answer = parse_answer(_run(api, image, [*own, *bare], min(timeout, ENTRYPOINT_SECONDS)).stdout, image_probe.MARK, PACKAGES_FORM)
            return {**answer, "entrypoint": {"argv": own, "kind": WRAPPER}}
    remedy = f"Test it: docker run --rm --network none --entrypoint python3 {reference} --version"
    try:
        result = _run(api, image, bare, timeout)
    except UnknownState:
        raise
    except ClusterError as error:
        raise UnknownState(f"image {reference} does not run python3: {error}", remedy=remedy, reason="image does not answer", raw=str(error)) from error
    try:
        return {**parse_answer(result.stdout, image_probe.MARK, PACKAGES_FORM), "entrypoint": {"argv": own, "kind": kind}}
    except ValueError as error:
        raise UnknownState(
            f"image {reference} does not report its packages: python3 ended with status {result.rc} and {error}",
            remedy=remedy,
            reason="image does not answer",
            raw=(result.stdout + result.stderr)[-2000:],
        ) from error


def _run(api: EngineApi, image: dict[str, t.Any], argv: list[str], timeout: float) -> t.Any:
    return api.run_throwaway(image["Id"], argv, labels={LABEL_OWNER: OWNER, LABEL_ROLE: "probe"}, timeout=timeout, env=NO_GPU)


def cache_path(state_dir: str, image: dict[str, t.Any]) -> str:
    """Return the path of an image's cached contract."""
    return os.path.join(state_dir, "image-contracts", f"{image['Id'].partition(':')[2]}.json")


def probe_digest() -> str:
    """Return the digest of this version of the probes."""
    return hashlib.sha256("".join(map(inspect.getsource, (image_probe, engine_probe))).encode()).hexdigest()


def read_cache(path: str) -> Contract | None:
    """Return the contract cached at ``path``; None unless these versions of the probes wrote it and no other account could change it."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
                return None
            text = stream.read(LONGEST + 1)
        kept = json.loads(text) if len(text) <= LONGEST else {}
        return kept["contract"] if kept["probe"] == probe_digest() and fits(kept["contract"], CONTRACT_FORM) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # The image is probed again.
        return None


def write_cache(path: str, contract: Contract) -> None:
    """Cache a contract, unless its engine did not answer. Raises OSError."""
    if not contract["engine_error"]:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        write_json(path, {"probe": probe_digest(), "contract": contract})


def wrapper_of(api: EngineApi, image: dict[str, t.Any] | None, reference: str, state_dir: str, timeout: float) -> list[str]:
    """Return the entrypoint that must precede a command in a container of an image, empty if none has to.

    An image without an entrypoint is not probed. Raises :class:`ClusterError` if its entrypoint neither runs a given command nor is a known
    program, :class:`UnknownState` if the image does not answer.
    """
    if image is None or not own_entrypoint(image):
        return []
    path = cache_path(state_dir, image)
    contract = read_cache(path)
    if contract is None:
        contract = ask(api, image, reference, timeout)
        # If it cannot be written (a full disk), the next container needs another probe.
        with contextlib.suppress(OSError):
            write_cache(path, contract)
    if contract["entrypoint"]["kind"] == UNKNOWN:
        raise ClusterError(
            f"image {reference} starts with {' '.join(contract['entrypoint']['argv'])}, which does not run a command given to it",
            remedy="Use an image whose entrypoint ends in `exec \"$@\"`, or clear it in your own image: FROM it, ENTRYPOINT [].",
            reason="entrypoint unknown",
        )
    return contract["entrypoint"]["argv"] if contract["entrypoint"]["kind"] == WRAPPER else []
