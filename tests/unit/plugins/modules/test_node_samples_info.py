# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each source has its own seconds where none are given."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.gb10.cluster.plugins.modules import node_samples_info


@pytest.mark.parametrize(("source", "given", "seconds"), [("guard", None, 60), ("sshd", None, 1), ("guard", 5, 5), ("gpu", 9, 9), ("memory", None, None)])
def test_the_seconds_of_a_source(monkeypatch: pytest.MonkeyPatch, source: str, given: int | None, seconds: int | None) -> None:
    def read(module: t.Any) -> dict[str, t.Any]:
        return {"seconds": module.params["seconds"]}

    monkeypatch.setitem(node_samples_info.SOURCES, source, read)
    assert node_samples_info.work(types.SimpleNamespace(params={"source": source, "seconds": given})) == {"seconds": seconds}
