# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One call finds out several things about an image, each in its own place of the result."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.modules import image_info


def call(monkeypatch: pytest.MonkeyPatch, want: list[str], **params: t.Any) -> tuple[dict[str, t.Any], dict[str, int]]:
    """Return the result, and the seconds that each had for an answer."""
    timeouts: dict[str, int] = {}

    def finder(name: str) -> t.Callable[[t.Any], dict[str, t.Any]]:
        def find(module: t.Any) -> dict[str, t.Any]:
            timeouts[name] = module.params["tool_timeout"]
            return {"msg": f"{name} is known", name: f"found {name}"}

        return find

    monkeypatch.setattr(image_info, "WANTS", {name: (finder(name), seconds) for name, (_find, seconds) in image_info.WANTS.items()})
    given = {"want": want, "tool_timeout": None, "base_image": "base:1", "requirements": ["ray==2.60.0"], **params}
    return image_info.work(types.SimpleNamespace(params=given)), timeouts


def test_the_contract_is_the_result_and_all_else_is_below_its_name(monkeypatch):
    result, timeouts = call(monkeypatch, ["contract", "layer", "digest"])
    assert result == {
        "contract": "found contract", "layer": {"layer": "found layer"}, "digest": {"digest": "found digest"},
        "msg": "contract is known; layer is known; digest is known",
    }  # fmt: skip
    assert timeouts == {"contract": 300, "layer": 600, "digest": 300}
    assert call(monkeypatch, ["layer"], tool_timeout=7)[1] == {"layer": 7}


def test_an_option_that_is_missing_is_named_with_what_needs_it(monkeypatch):
    with pytest.raises(ClusterError, match="missing options: base_image for additions, requirements for layer"):
        call(monkeypatch, ["additions", "layer"], base_image=None, requirements=[])
