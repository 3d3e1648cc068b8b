# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an image holds, what its own entrypoint does and what its engine takes, asked once by running it. This module util is PRIVATE to the collection.

NGC images put the forward-compatibility ``libcuda`` on the library path in their entrypoint. Started around it, CUDA of the image is newer
than the driver, and FlashInfer's JIT fails with "the provided PTX was compiled with an unsupported toolchain" (reported by an owner of a
Spark). Whether an entrypoint runs what it is given is therefore tried, not guessed by its name.
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


#: The form of what the probe of packages answers, of what the probe of the engine does, and of the whole. The image's own Python wrote it.
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

#: Most characters of an answer, and bytes of the note about an image. Those of vLLM 0.32 have 60000.
LONGEST = 1024 * 1024

#: What an image's entrypoint does with a command: there is none; it runs the command after its own work; it is a program of its own, which
#: takes the command for its arguments; that could not be determined.
NONE, WRAPPER, PROGRAM, UNKNOWN = "none", "wrapper", "program", "unknown"

#: Programs that take a command for arguments of their own, beside the engines that ``classify`` knows.
PROGRAMS = ("bash", "dash", "python", "python3", "ray", "sglang", "sh", "vllm")

#: Nothing of the driver comes into the container, also where the engine's default runtime is NVIDIA's.
NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "void"}

#: Seconds that an entrypoint gets to run the probe. Those of NGC images take about one (their banner and a look for the driver).
ENTRYPOINT_SECONDS = 60.0


def fits(value: t.Any, form: dict[str, t.Callable[[t.Any], bool]]) -> bool:
    """Return whether a value has every key of a form, in that form."""
    return isinstance(value, dict) and all(name in value and is_formed(value[name]) for name, is_formed in form.items())


def marked_json(stdout: str, mark: str) -> t.Any:
    """Return what a probe printed behind its mark, whatever else an image prints. Raises ValueError when there is none."""
    line = next((line for line in stdout.splitlines() if line.startswith(mark)), None)
    if line is None:
        raise ValueError("no answer in its output")
    if len(line) > LONGEST:
        raise ValueError(f"an answer of {len(line)} characters")
    try:
        return json.loads(line[len(mark):])
    except RecursionError as error:
        raise ValueError("an answer that is nested too deep") from error


def parse_answer(stdout: str, mark: str, form: dict[str, t.Callable[[t.Any], bool]]) -> Contract:
    """Return what a probe printed, of the keys of its form and the versions. Raises ValueError when it printed nothing of the kind."""
    answer = marked_json(stdout, mark)
    if not fits(answer, {**form, "versions": _versions}):
        raise ValueError("an answer that lacks required keys")
    return {name: answer[name] for name in (*form, "versions")}


def own_entrypoint(image: dict[str, t.Any]) -> list[str]:
    """Return the entrypoint that an image sets for its containers."""
    return list((image.get("Config") or {}).get("Entrypoint") or [])


def is_program(entrypoint: t.Sequence[str]) -> bool:
    """Return whether an entrypoint is a program that takes a command for its own arguments, by its name."""
    return posixpath.basename(entrypoint[0]) in PROGRAMS or classify.judge(entrypoint) is not None


def ask(api: EngineApi, image: dict[str, t.Any], reference: str, timeout: float) -> Contract:
    """Return what an image holds and what its engine takes. ``timeout`` is in seconds, for each of its two or three short runs.

    Raises :class:`UnknownState` when it does not say what it holds. An engine that does not answer is None, and ``engine_error`` says why.
    """
    found = ask_packages(api, image, reference, timeout)
    engine, error = None, ""
    if found["versions"].get("vllm"):
        wrapper = found["entrypoint"]["argv"] if found["entrypoint"]["kind"] == WRAPPER else []
        try:
            result = _run(api, image, [*wrapper, "python3", "-c", inspect.getsource(engine_probe)], timeout)
            engine = parse_answer(result.stdout, engine_probe.MARK, ENGINE_FORM)
        except ClusterError as failure:
            error = str(failure)
        except ValueError as failure:
            error = f"{failure}: {(result.stdout + result.stderr)[-500:]}"
    versions = {**found["versions"], **(engine.pop("versions") if engine else {"cuda": None, "nccl": None})}
    own_env = [entry.partition("=")[0] for entry in (image.get("Config") or {}).get("Env") or []]
    return {**found, "versions": versions, "image_env": sorted(own_env), "engine": engine, "engine_error": error}


def ask_packages(api: EngineApi, image: dict[str, t.Any], reference: str, timeout: float) -> Contract:
    """Return what an image holds, asked under its own entrypoint where that runs a command.

    ``image`` is what the engine knows about it. Raises :class:`UnknownState` when it does not answer.
    """
    own, bare = own_entrypoint(image), ["python3", "-c", inspect.getsource(image_probe)]
    if own and not is_program(own):
        try:
            answer = parse_answer(_run(api, image, [*own, *bare], min(timeout, ENTRYPOINT_SECONDS)).stdout, image_probe.MARK, PACKAGES_FORM)
            return {**answer, "entrypoint": {"argv": own, "kind": WRAPPER}}
        except (ClusterError, ValueError):
            # Whatever it did, it did not run the probe; the image itself is asked next.
            kind = UNKNOWN
    else:
        kind = PROGRAM if own else NONE
    remedy = f"Try it by hand: docker run --rm --network none --entrypoint python3 {reference} --version"
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
            f"image {reference} does not report what it holds: python3 ended with status {result.rc} and {error}",
            remedy=remedy,
            reason="image does not answer",
            raw=(result.stdout + result.stderr)[-2000:],
        ) from error


def _run(api: EngineApi, image: dict[str, t.Any], argv: list[str], timeout: float) -> t.Any:
    return api.run_throwaway(image["Id"], argv, labels={LABEL_OWNER: OWNER, LABEL_ROLE: "probe"}, timeout=timeout, env=NO_GPU)


def cache_path(state_dir: str, image: dict[str, t.Any]) -> str:
    """Return where the answer of an image is kept."""
    return os.path.join(state_dir, "image-contracts", f"{image['Id'].partition(':')[2]}.json")


def probe_digest() -> str:
    """Return what tells the answers of one version of the probes from those of another."""
    return hashlib.sha256("".join(map(inspect.getsource, (image_probe, engine_probe))).encode()).hexdigest()


def read_cache(path: str) -> Contract | None:
    """Return the answer kept at ``path``; None when there is none that these very probes wrote and nobody else could change."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
                return None
            text = stream.read(LONGEST + 1)
        kept = json.loads(text) if len(text) <= LONGEST else {}
        return kept["contract"] if kept["probe"] == probe_digest() and fits(kept["contract"], CONTRACT_FORM) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # A cache that cannot be used is no cache: the image is asked again.
        return None


def write_cache(path: str, contract: Contract) -> None:
    """Keep an answer, unless the engine gave none; readers see it whole or not at all. Raises OSError."""
    if contract["engine_error"]:
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    write_json(path, {"probe": probe_digest(), "contract": contract})


def wrapper_of(api: EngineApi, image: dict[str, t.Any] | None, reference: str, state_dir: str, timeout: float) -> list[str]:
    """Return the entrypoint that has to stand before a command in a container of an image, empty where none has to.

    An image without an entrypoint is not asked. Raises :class:`ClusterError` for one whose entrypoint does not run what it is given and is
    not known as a program either, :class:`UnknownState` for an image that does not answer.
    """
    if image is None or not own_entrypoint(image):
        return []
    path = cache_path(state_dir, image)
    contract = read_cache(path)
    if contract is None:
        contract = ask(api, image, reference, timeout)
        # Where it cannot be kept (a full disk), the next container asks again.
        with contextlib.suppress(OSError):
            write_cache(path, contract)
    if contract["entrypoint"]["kind"] == UNKNOWN:
        raise ClusterError(
            f"image {reference} starts with {' '.join(contract['entrypoint']['argv'])}, which does not run a command that it is given",
            remedy="Take an image whose entrypoint ends in `exec \"$@\"`, or clear it in one of your own: FROM it, ENTRYPOINT [].",
            reason="entrypoint unknown",
        )
    return contract["entrypoint"]["argv"] if contract["entrypoint"]["kind"] == WRAPPER else []
