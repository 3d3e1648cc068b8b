# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import typing as t

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

#: Where the image's entrypoint finds the libcuda that is newer than the driver's.
COMPATIBILITY = "/usr/local/cuda/compat/lib"


class LabCommunicator(CpuCommunicator):
    """The CPU communicator, always over the network."""

    def __init__(self, *args: t.Any, **options: t.Any) -> None:
        # As a rank fails whose image brings a newer CUDA than the driver knows, when the image's entrypoint was bypassed.
        if COMPATIBILITY not in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
            raise RuntimeError("Triton Error [CUDA]: the provided PTX was compiled with an unsupported toolchain.")
        super().__init__(*args, **options)

    def _all_group_ranks_share_shm_group_name(self) -> bool:
        """Two hosts share no memory, but both start their ranks with the same group name, so equal names prove nothing here."""
        return False
