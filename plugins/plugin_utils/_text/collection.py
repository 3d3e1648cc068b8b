# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The version of this collection. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import pathlib

from ansible.module_utils.common.yaml import yaml_load


def collection_version() -> str:
    """Return the version of this collection, from its manifest, or from galaxy.yml in a clone."""
    root = pathlib.Path(__file__).resolve().parents[3]
    manifest, galaxy = root / "MANIFEST.json", root / "galaxy.yml"
    about = yaml_load((manifest if manifest.is_file() else galaxy).read_text(encoding="utf-8"))
    return about["collection_info"]["version"] if manifest.is_file() else f"{about['version']} (a clone)"
