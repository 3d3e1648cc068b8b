# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans which node makes the node image and which nodes copy it from whom, and reports the copies. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_identity

#: The value of gb10_image_copy with which every node pulls and builds.
NEVER = "never"

#: The fields of a copy in a report.
OF_COPY = ("how", "layers_sent", "bytes", "seconds")


def plan(answers: dict[str, dict[str, t.Any]], copy: str, wanted: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return which nodes need the image, which wait for it, which one makes it, and which copy it from whom in each round.

    ``answers`` are those of ``image_info`` by node, in the cluster's order; ``wanted`` describes the wanted image: see :func:`_goes_on`.
    While an engine is ``live`` that may not be restarted, each node that can continue with its own image keeps it. If no node has the image, one makes it:
    the first one that has the base, else the first one. Each node with the image sends it to one without it, and both send it on in the next round.
    """
    good = {answer["image_id"] for node, answer in answers.items() if _goes_on(node, answer, wanted)}
    # An image that another node has needs no base.
    needs = [node for node, answer in answers.items() if not answer["exists"] or answer["image_id"] not in good]
    waits = [node for node in needs if wanted["live"] and _may_wait(answers[node], wanted)]
    needs = [node for node in needs if node not in waits]
    if copy == NEVER:
        return {"needs": needs, "waits": waits, "makes": needs, "rounds": []}
    there = [node for node in answers if node not in needs]
    # An image that was built in this run is newer than any other.
    there.sort(key=lambda node: (node not in wanted["made"], node in waits))
    source = next(iter(there or [node for node, answer in answers.items() if answer["base_image_id"]] or answers))
    image_id = answers[source]["image_id"] if there else None
    equal = [node for node in there if answers[node]["image_id"] == image_id]
    receivers = [node for node in answers if node != source and node not in (there if wanted["live"] else equal)]
    senders = [source, *(node for node in equal if node != source)]
    rounds = []
    while receivers:
        pairs = [{"from": sender, "to": receiver} for sender, receiver in zip(senders, receivers)]
        rounds.append(pairs)
        senders, receivers = [*senders, *(pair["to"] for pair in pairs)], receivers[len(pairs):]
    return {"needs": needs, "waits": waits, "makes": [] if there else [source], "rounds": rounds}


def _goes_on(node: str, answer: dict[str, t.Any], wanted: dict[str, t.Any]) -> bool:
    """Return whether a node has the image: one with the wanted recipe on the node's own base, if it has one; or the base itself."""
    if not answer["exists"]:
        return False
    labels = answer["labels"]
    if not wanted["layered"]:
        return True
    rebuilt = not wanted["rebuild"] or node in wanted["made"]
    return rebuilt and labels.get(image_identity.LABEL_RECIPE) == wanted["recipe"] and _stands(answer)


def _may_wait(answer: dict[str, t.Any], wanted: dict[str, t.Any]) -> bool:
    """Return whether only the recipe of a node's image differs: its base and its Ray are the wanted ones."""
    if not answer["exists"] or wanted["rebuild"]:
        return False
    ray = ((answer["contract"] or {}).get("versions") or {}).get("ray")
    kept_out = ((answer["base"] or {}).get("ray_wanted") or {}).get("version")
    return wanted["ray"] in ("", ray, kept_out) and answer["labels"].get(image_identity.LABEL_BASE) is not None and _stands(answer)


def _stands(answer: dict[str, t.Any]) -> bool:
    """Return whether a node's image is built on the base that the node has, if it has one."""
    return answer["base_image_id"] is None or answer["on_base"]


def lines(copies: dict[str, dict[str, t.Any]]) -> list[str]:
    """Return a line for each copy: its content, size and speed."""
    return [f"{node}: {copied['msg']}" for node, copied in copies.items()]
