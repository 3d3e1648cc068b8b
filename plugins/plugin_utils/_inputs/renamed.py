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
    "gb10_baseline_max_uptime": "remove it: a baseline is recorded within 1800 s of a boot, later with -e gb10_allow=baseline",
    "gb10_bundle_replace": "-e gb10_allow=names",
    "gb10_bundle_timeout": "gb10_transfer_timeout",
    "gb10_confirm_teardown": "-e gb10_allow=teardown",
    "gb10_confirmed": "remove it; a job controller's teardown needs -e gb10_allow=teardown",
    "gb10_copy_streams": "remove it: a copy uses 4 connections",
    "gb10_copy_timeout": "gb10_transfer_timeout",
    "gb10_disk_floor_gib": "gb10_rules: {disk.free: {least_gib: 20}}",
    "gb10_download_timeout": "gb10_transfer_timeout",
    "gb10_drain": "-e gb10_allow=drain",
    "gb10_failure_log_bytes": "remove it: the end of a log has 262144 bytes",
    "gb10_first_token_timeout": "remove it: the first token has 600 s after the API's first answer, within gb10_serve_timeout",
    "gb10_guard_forget": "-e gb10_allow=forget",
    "gb10_hf_token": "put the token into a file of mode 0600, and name it in gb10_hf_token_file",
    "gb10_ignore_unreachable": "-e gb10_allow=lost_node",
    "gb10_image_port": "remove it: images use the port after gb10_copy_port",
    "gb10_interrupt_requests": "-e gb10_allow=interrupt",
    "gb10_kill_companions": "-e gb10_allow=kill_companions",
    "gb10_ladder": "-e gb10_allow=ladder",
    "gb10_master_port": "remove it: the ranks meet at the last port of gb10_ray_port_range",
    "gb10_memory_tolerance_mb": "remove it: 4096 MiB may be missing",
    "gb10_mode_forget": "-e gb10_allow=forget",
    "gb10_needle_percent": "remove it: the text has 2 % of the context length",
    "gb10_page_cache_floor_mb": "remove it: a drop has to give back 4096 MiB",
    "gb10_prune": "-e gb10_allow=remove",
    "gb10_rebuild_image": "-e gb10_allow=rebuild",
    "gb10_replace_stale": "-e gb10_allow=stale_head",
    "gb10_silent_seconds": "gb10_stall_seconds",
    "gb10_status_seconds": "remove it: a token has 15 s",
}
