#!/usr/bin/env bash
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# SIMULATED entrypoint of an NGC image. Its text is not public; its recorded effects are: a banner, the forward-compatibility libcuda switched on
# (/etc/shinit_v2 does that), then the command. The lab's platform fails without it as CUDA of such an image does on driver 580.
printf '\n==========\n== vLLM ==\n==========\n\n'
. /etc/shinit_v2
if [[ -e /usr/local/cuda/compat/lib ]]; then
    printf 'NOTE: CUDA Forward Compatibility mode ENABLED (simulated).\n\n'
fi
if [[ $# -eq 0 ]]; then
    exec /bin/bash
fi
exec "$@"
