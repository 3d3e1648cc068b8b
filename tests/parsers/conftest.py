# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make ``ansible_collections.gb10.cluster`` importable, the way Ansible does it, wherever pytest is started."""

from __future__ import annotations

from pathlib import Path

from ansible.plugins.loader import init_plugin_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig

ROOT = Path(__file__).resolve().parents[2]

if AnsibleCollectionConfig.collection_finder is None:
    init_plugin_loader([str(ROOT / "collections")])
