# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Single changes in the answer of a healthy node."""

from __future__ import annotations

import copy
import typing as t


def changed(tree: t.Any, changes: dict[str, t.Any]) -> t.Any:
    """Return a copy of a tree with values put in at ``a__b__0__c``; the value ``...`` takes the key out."""
    tree = copy.deepcopy(tree)
    for path, value in changes.items():
        *parents, last = (int(part) if part.isdigit() else part for part in path.split("__"))
        target = tree
        for part in parents:
            target = target[part]
        if value is ...:
            del target[last]
        else:
            target[last] = value
    return tree
