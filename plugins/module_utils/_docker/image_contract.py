# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an image holds and what its own entrypoint does, asked once by running it. This module util is PRIVATE to the collection.

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
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker import image_probe
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, LABEL_ROLE, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host.files import write_json
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify

Contract = dict[str, t.Any]

CONTRACT_KEYS = {"python", "architecture", "versions", "programs", "packages", "packages_digest", "entrypoint"}

#: What an image's entrypoint does with a command: there is none; it runs the command after its own work; it is a program of its own, which
#: takes the command for its arguments; that could not be determined.
NONE, WRAPPER, PROGRAM, UNKNOWN = "none", "wrapper", "program", "unknown"

#: Programs that take a command for arguments of their own, beside the engines that ``classify`` knows.
PROGRAMS = ("bash", "dash", "python", "python3", "ray", "sglang", "sh", "vllm")

#: Seconds that an entrypoint gets to run the probe. Those of NGC images take about one (their banner and a look for the driver).
ENTRYPOINT_SECONDS = 60.0


def probe_text() -> str:
    """Return the program that is run inside images."""
    return inspect.getsource(image_probe)


def marked_json(stdout: str, mark: str) -> t.Any:
    """Return what a probe printed behind its mark, whatever else an image prints. Raises ValueError when there is none."""
    line = next((line for line in stdout.splitlines() if line.startswith(mark)), None)
    if line is None:
        raise ValueError("no answer in its output")
    return json.loads(line[len(mark):])


def parse_answer(stdout: str) -> Contract:
    """Return what the probe printed. Raises ValueError when it printed nothing of the kind."""
    contract = marked_json(stdout, image_probe.MARK)
    if not isinstance(contract, dict) or not CONTRACT_KEYS - {"entrypoint"} <= contract.keys():
        raise ValueError("an answer that lacks required keys")
    return contract


def own_entrypoint(image: dict[str, t.Any]) -> list[str]:
    """Return the entrypoint that an image sets for its containers."""
    return list((image.get("Config") or {}).get("Entrypoint") or [])


def is_program(entrypoint: t.Sequence[str]) -> bool:
    """Return whether an entrypoint is a program that takes a command for its own arguments, by its name."""
    return posixpath.basename(entrypoint[0]) in PROGRAMS or classify.judge(entrypoint) is not None


def ask(api: EngineApi, image: dict[str, t.Any], reference: str, timeout: float) -> Contract:
    """Run the probe inside an image, under its own entrypoint where that runs it, and return what the image holds.

    ``image`` is what the engine knows about it, ``timeout`` is in seconds. Raises :class:`UnknownState` when it does not answer.
    """
    own, bare = own_entrypoint(image), ["python3", "-c", probe_text()]
    if own and not is_program(own):
        try:
            answer = parse_answer(_run(api, image, [*own, *bare], min(timeout, ENTRYPOINT_SECONDS)).stdout)
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
        return {**parse_answer(result.stdout), "entrypoint": {"argv": own, "kind": kind}}
    except ValueError as error:
        raise UnknownState(
            f"image {reference} does not report what it holds: python3 ended with status {result.rc} and {error}",
            remedy=remedy,
            reason="image does not answer",
            raw=(result.stdout + result.stderr)[-2000:],
        ) from error


def _run(api: EngineApi, image: dict[str, t.Any], argv: list[str], timeout: float) -> t.Any:
    return api.run_throwaway(image["Id"], argv, labels={LABEL_OWNER: OWNER, LABEL_ROLE: "probe"}, timeout=timeout)


def cache_path(state_dir: str, image: dict[str, t.Any]) -> str:
    """Return where the answer of an image is kept."""
    return os.path.join(state_dir, "image-contracts", f"{image['Id'].partition(':')[2]}.json")


def probe_digest() -> str:
    """Return what tells the answers of one version of the probe from those of another."""
    return hashlib.sha256(probe_text().encode()).hexdigest()


def read_cache(path: str) -> Contract | None:
    """Return the answer kept at ``path``; None when there is none that this very probe wrote."""
    try:
        with open(path, encoding="utf-8") as stream:
            kept = json.load(stream)
        contract = kept["contract"]
        return contract if kept["probe"] == probe_digest() and CONTRACT_KEYS <= contract.keys() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # A cache that cannot be used is no cache: the image is asked again.
        return None


def write_cache(path: str, contract: Contract) -> None:
    """Keep an answer; readers see it whole or not at all. Raises OSError."""
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
