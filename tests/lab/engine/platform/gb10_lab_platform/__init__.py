# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A vLLM platform plugin: the CPU platform, placed by Ray as if each host had one GPU."""

from __future__ import annotations


def register() -> str:
    """Name the platform class. vLLM imports it when it first asks for the current platform."""
    return "gb10_lab_platform.platform.LabPlatform"
