# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions and ranges of versions, from the Python package ``packaging``. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

try:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version
except ImportError:
    # ansible-core requires packaging; only ansible-test's import check runs without it.
    InvalidSpecifier = InvalidVersion = SpecifierSet = Version = None

__all__ = ["HAS_PACKAGING", "InvalidSpecifier", "InvalidVersion", "SpecifierSet", "Version"]

HAS_PACKAGING = Version is not None
