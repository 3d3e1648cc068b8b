# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._companion import declared

ID = "sha256:" + "a" * 64
OLLAMA = {"name": "ollama", "unit": "ollama.service", "port": 11434, "health_path": "/api/tags", "memory_gib": 20}
SPEECH = {"name": "asr", "image": f"ghcr.io/someone/parakeet@{ID}", "port": 8765, "health_path": "/health", "memory_gib": 2.5}


def of_image(**changes):
    return {**SPEECH, **changes}


@pytest.mark.parametrize("companion", [OLLAMA, SPEECH, of_image(image=ID), of_image(modes=[False], gpus=True, env={"A": 1}, arguments=["-v", 3]), of_image(
    mounts=[{"source": "/models", "target": "/data", "read_only": True}, {"source": "/x", "target": "/y"}],
)])  # fmt: skip
def test_what_is_right(companion):
    assert declared.faults([companion]) == []


@pytest.mark.parametrize(
    ("companion", "where", "words"),
    [
        ("ollama", "", "is 'ollama'"),
        ({**OLLAMA, "name": "Ollama"}, ".name", "1 to 32"),
        ({**OLLAMA, "name": "my-head"}, ".name", "neither head nor worker"),
        ({**OLLAMA, "mode": ["off"]}, ".mode", "is not a known field"),
        ({**OLLAMA, "image": ID}, "", "has an image and a unit"),
        ({word: value for word, value in OLLAMA.items() if word != "unit"}, "", "has neither an image nor a unit"),
        (of_image(image="ollama/ollama:latest"), ".image", "docker image inspect"),
        (of_image(image="ollama/ollama@sha256:12"), ".image", "64 digits"),
        ({**OLLAMA, "unit": "ollama"}, ".unit", "ollama.service"),
        ({**OLLAMA, "unit": "gb10-guard.service"}, ".unit", "your service"),
        ({**OLLAMA, "env": {"A": "b"}}, ".env", "systemctl edit"),
        ({**OLLAMA, "modes": ["pair"]}, ".modes", "cluster, singles, off"),
        ({**OLLAMA, "modes": []}, ".modes", "cluster, singles, off"),
        ({**OLLAMA, "modes": "off"}, ".modes", "cluster, singles, off"),
        ({**OLLAMA, "memory_gib": "20"}, ".memory_gib", "as a number"),
        ({**OLLAMA, "memory_gib": 0}, ".memory_gib", "GiB above 0"),
        ({**OLLAMA, "memory_gib": True}, ".memory_gib", "as a number"),
        ({word: value for word, value in OLLAMA.items() if word != "memory_gib"}, ".memory_gib", "is missing"),
        ({**OLLAMA, "port": "11434"}, ".port", "from 1 to 65535"),
        ({**OLLAMA, "health_path": "health"}, ".health_path", "begins with /"),
        (of_image(mounts=[{"source": "models", "target": "/x"}]), ".mounts", "absolute"),
        (of_image(arguments="-v"), ".arguments", "a list of words"),
        (of_image(gpus="yes"), ".gpus", "true or false"),
        (of_image(health_timeout=0), ".health_timeout", "1 to 3600"),
    ],
)
def test_each_thing_that_is_wrong_is_said_once(companion, where, words):
    (fault,) = declared.faults([companion])
    assert fault.where == f"gb10_companions[0]{where}"
    assert words in " ".join(fault) and fault.remedy


def test_a_layout_is_a_mode_too():
    companion = {**OLLAMA, "modes": ["day", False]}
    (fault,) = declared.faults([companion])
    assert fault.expected == "a list of some of cluster, singles, off"
    assert declared.faults([companion], ["day"]) == []
    (fault,) = declared.faults([companion], ["night"])
    assert fault.expected == "a list of some of cluster, singles, off, night"


def test_what_two_share():
    assert [fault.where for fault in declared.faults([OLLAMA, {**SPEECH, "name": "ollama"}])] == ["gb10_companions[1].name"]
    assert [fault.where for fault in declared.faults([OLLAMA, {**SPEECH, "port": 11434}])] == ["gb10_companions[1].port"]
    assert [fault.where for fault in declared.faults([OLLAMA, {**OLLAMA, "name": "b", "port": 1}])] == ["gb10_companions[1].unit"]


def test_ports_that_the_cluster_needs():
    ports = {"gb10_api_port": 8000, "gb10_ray_port": 6379}
    (fault,) = declared.port_faults([{**OLLAMA, "port": 8000}, SPEECH], ports, (20100, 20299))
    assert fault.where == "gb10_companions[0].port" and "gb10_api_port is 8000" in fault.what and "change gb10_api_port" in fault.remedy
    (fault,) = declared.port_faults([{**OLLAMA, "port": 20150}], ports, (20100, 20299))
    assert "gb10_ray_port_range is 20100-20299" in fault.what
    assert declared.port_faults([{**OLLAMA, "port": 8000, "modes": ["off"]}], ports, None) == []


def test_who_is_up():
    both = [OLLAMA, {**SPEECH, "modes": ["off", "singles"]}]
    # An unquoted off in YAML is false.
    assert declared.up_in([{**OLLAMA, "modes": [False]}], "off")[0]["modes"] == ["off"]
    assert [[item["name"] for item in declared.up_in(both, mode)] for mode in ("cluster", "singles", "off", "")] == [["ollama"], ["ollama", "asr"], ["asr"], []]
    assert [item["name"] for item in declared.up_in([*both, {**SPEECH, "name": "tts", "modes": ["day"]}], "day")] == ["ollama", "tts"]
