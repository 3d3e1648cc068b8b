# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings that a newer version renamed or removed. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

#: Old name → what to type instead. An old name in use is refused before any host is contacted.
RENAMED: dict[str, str] = {
    "gb10_allow_restart": "-e gb10_allow=restart",
    "gb10_answer_timeout": "remove it: each question has 600 s",
    "gb10_answer_tokens": "remove it: each answer has 4096 tokens",
    "gb10_ask_again": "-e gb10_allow=ask_again",
    "gb10_baseline_force": "-e gb10_allow=baseline",
    "gb10_bundle_replace": "-e gb10_allow=names",
    "gb10_confirm_teardown": "-e gb10_allow=teardown",
    "gb10_confirmed": "remove it; a job controller's teardown needs -e gb10_allow=teardown",
    "gb10_drain": "-e gb10_allow=drain",
    "gb10_guard_forget": "-e gb10_allow=forget",
    "gb10_ignore_unreachable": "-e gb10_allow=lost_node",
    "gb10_interrupt_requests": "-e gb10_allow=interrupt",
    "gb10_kill_companions": "-e gb10_allow=kill_companions",
    "gb10_ladder": "-e gb10_allow=ladder",
    "gb10_mode_forget": "-e gb10_allow=forget",
    "gb10_prune": "-e gb10_allow=remove",
    "gb10_rebuild_image": "-e gb10_allow=rebuild",
    "gb10_replace_stale": "-e gb10_allow=stale_head",
}
