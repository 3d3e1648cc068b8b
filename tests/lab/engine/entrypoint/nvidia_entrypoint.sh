#!/usr/bin/env bash
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# SIMULATED entrypoint of an NGC image. Its text is not public; its recorded effects are: a banner, the forward-compatibility libcuda put on the
# library path (and only here), then the command. The lab's platform fails without it as CUDA of such an image does on driver 580.
printf '\n==========\n== vLLM ==\n==========\n\nNOTE: CUDA Forward Compatibility mode ENABLED (simulated).\n\n'
export LD_LIBRARY_PATH="/usr/local/cuda/compat/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}"
if [[ $# -eq 0 ]]; then
    exec /bin/bash
fi
exec "$@"
