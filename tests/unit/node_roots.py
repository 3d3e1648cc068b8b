# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option `roots` for tests, which name single roots beside a module's other options."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS

DEFAULTS = {name: option.get("default") for name, option in ROOTS["options"].items()}


def rooted(params: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the parameters over the defaults, with the roots among them gathered in `roots`."""
    own = {name: value for name, value in params.items() if name in DEFAULTS}
    return {**{name: value for name, value in params.items() if name not in own}, "roots": {**DEFAULTS, **own}}
