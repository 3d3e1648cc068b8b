# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a layer adds to an image, with an engine that gives set answers."""

from __future__ import annotations

import json
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import ExecResult
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._image.lock_probe import MARK
from ansible_collections.gb10.cluster.plugins.module_utils._image_facts import image_layer

LOCK = ["msgpack==1.2.4 --hash=sha256:a4", "ray==2.60.0 --hash=sha256:e2"]


#: The output of pip 23.2 in an image with packaging 23.2 that is to get Ray 2.60.0.
CONFLICT = """\
INFO: pip is looking at multiple versions of ray to determine which version is compatible with other requirements. This could take a while.
ERROR: Cannot install ray==2.60.0 because these package versions have conflicting dependencies.

The conflict is caused by:
    ray 2.60.0 depends on packaging>=24.2
    The user requested (constraint) packaging==23.2

To fix this you could try to:
1. loosen the range of package versions you've specified
2. remove package versions to allow pip attempt to solve the dependency conflict

ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/en/latest/topics/dependency-resolution/#dealing-with-dependency-conflicts"""
WHY = "ray 2.60.0 depends on packaging>=24.2, and the image has packaging 23.2"


def answered(lock, *errors):
    """What the probe prints: refusals, and the files at last."""
    refused = [{"lock": None, "error": error} for error in errors]
    return MARK + json.dumps([*refused, *([] if lock is None else [{"lock": lock, "error": ""}])])


class Engine:
    """In place of EngineApi."""

    def __init__(self, stdout):
        self.stdout, self.runs = stdout, []

    def run_throwaway(self, image, argv, **options):
        self.runs.append((image, argv, options))
        return ExecResult(0, self.stdout, "")


@pytest.fixture
def call(monkeypatch):
    def call(stdout, **params):
        engine = Engine(stdout)
        monkeypatch.setattr(image_layer, "EngineApi", lambda socket, timeout: engine)
        defaults = {"image": "e:1", "requirements": ["ray==2.60.0"], "ca_file": None, "pip_env": {}, "wheels": None, "ray_allowed": "", "tool_timeout": 7}
        module = types.SimpleNamespace(params={**defaults, "docker_socket": "", "docker_timeout": 1, **params}, check_mode=False)
        return image_layer.work(module), engine

    return call


def test_the_lock_and_how_it_was_asked_for(call):
    result, engine = call(f"banner\n{answered(LOCK)}\n", ca_file="/ca.pem", pip_env={"PIP_INDEX_URL": "https://i/simple"})
    assert result["lock"] == LOCK and result["why"] == ""
    ((image, argv, options),) = engine.runs
    assert image == "e:1" and argv[:2] == ["python3", "-c"] and json.loads(argv[3]) == [["ray==2.60.0"], ["ray>=2.52,<2.60.0"]]
    assert options["network"] == "bridge" and options["timeout"] == 7 and options["labels"]["io.gb10.role"] == "probe"
    assert options["env"] == {"PIP_CONSTRAINT": "", "PIP_INDEX_URL": "https://i/simple", "PIP_CERT": "/run/gb10/ca.crt"}
    assert [(mount["Source"], mount["ReadOnly"]) for mount in options["mounts"]] == [("/ca.pem", True)]


def test_without_a_bundle_nothing_is_mounted(call):
    _result, engine = call(answered([]))
    assert engine.runs[0][2]["mounts"] == [] and engine.runs[0][2]["env"] == {"PIP_CONSTRAINT": ""}


def test_the_users_own_constraint_applies(call):
    _result, engine = call(answered([]), pip_env={"PIP_CONSTRAINT": "/c.txt"})
    assert engine.runs[0][2]["env"] == {"PIP_CONSTRAINT": "/c.txt"}


def test_with_packages_of_a_bundle_no_index_is_asked(call):
    _result, engine = call(answered([]), wheels="/var/lib/gb10/wheels")
    assert engine.runs[0][2]["env"] == {"PIP_CONSTRAINT": "", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/run/gb10/wheels"}
    assert [(item["Source"], item["Target"], item["ReadOnly"]) for item in engine.runs[0][2]["mounts"]] == [("/var/lib/gb10/wheels", "/run/gb10/wheels", True)]
    with pytest.raises(ClusterError) as caught:
        call(answered(None, "No matching distribution found"), wheels="/var/lib/gb10/wheels")
    assert caught.value.remedy.endswith("/var/lib/gb10/wheels lacks the packages.")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("ERROR: ResolutionImpossible: for help visit", "Choose another image.base"),
        ("no such option: --report", "older than 22.2"),
        ("ERROR: No matching distribution found for ray==2.60.0", "gb10_build_ca_file"),
    ],
)
def test_a_refusal_keeps_pips_words(call, words, remedy):
    with pytest.raises(ClusterError, match="ray==2.60.0 cannot be added to e:1") as caught:
        call(answered(None, words))
    assert words in str(caught.value) and remedy in caught.value.remedy


@pytest.mark.parametrize(
    "stdout", ["", "banner\n", MARK + "{", MARK + "[]", MARK + "[7]", MARK + "{}", MARK + '[{"lock": 7, "error": ""}]', answered([], "x", "y")]
)
def test_an_image_that_does_not_answer_is_unknown(call, stdout):
    with pytest.raises(UnknownState, match="does not report what ray==2.60.0 needs"):
        call(stdout)


def test_an_older_ray_replaces_one_that_conflicts_with_the_image(call):
    older = ["ray==2.52.1 --hash=sha256:e1"]
    result, engine = call(answered(older, CONFLICT), requirements=["ray==2.60.0", "spread==1.0"], ray_allowed="!=2.57.0")
    assert (result["lock"], result["why"]) == (older, WHY) and result["msg"].endswith(f"to e:1: {WHY}")
    assert json.loads(engine.runs[0][1][3]) == [["ray==2.60.0", "spread==1.0"], ["ray>=2.52,<2.60.0,!=2.57.0", "spread==1.0"]]


def test_without_a_version_of_ray_there_is_one_attempt(call):
    _result, engine = call(answered([]), requirements=["spread==1.0", "ray>=2.55"])
    assert json.loads(engine.runs[0][1][3]) == [["spread==1.0", "ray>=2.55"]]


def test_an_image_without_a_compatible_ray_is_refused_with_names(call):
    second = CONFLICT.replace("ray==2.60.0", "ray").replace("2.60.0", "2.55.0")
    with pytest.raises(ClusterError) as caught:
        call(answered(None, CONFLICT, second), ray_allowed=">=2.55")
    assert str(caught.value) == f"ray==2.60.0 or ray>=2.52,<2.60.0,>=2.55 cannot be added to e:1: {WHY}"
    assert "Choose another image.base" in caught.value.remedy and caught.value.details["raw"] == second


def test_an_index_that_ends_the_second_attempt_is_reported(call):
    with pytest.raises(ClusterError, match=f"cannot be added to e:1: {WHY}; ERROR: connection refused") as caught:
        call(answered(None, CONFLICT, "ERROR: connection\nrefused"))
    assert "gb10_build_ca_file" in caught.value.remedy


def test_a_package_is_named_once(call):
    twice = CONFLICT.replace("    The user", "    aiohttp 3.14.1 depends on attrs>=20; extra == 'x'\n    ray 2.60.0 depends on packaging>=24.2\n    The user")
    assert image_layer.conflict_of(twice) == "ray 2.60.0 depends on packaging>=24.2, aiohttp 3.14.1 depends on attrs>=20, and the image has packaging 23.2"
