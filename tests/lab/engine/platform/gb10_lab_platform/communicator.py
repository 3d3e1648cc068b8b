# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ctypes
import os
import typing as t

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


def image_cuda() -> tuple[int, int]:
    """The CUDA that the image says it compiles with."""
    major, minor, *_rest = os.environ["CUDA_VERSION"].split(".")
    return int(major), int(minor)


def known_cuda() -> tuple[int, int]:
    """The CUDA that the libcuda of this process knows, which stays in its memory. A container without a GPU serves here all the same."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return image_cuda()
    version = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    return version.value // 1000, version.value % 1000 // 10


class LabCommunicator(CpuCommunicator):
    """The CPU communicator, always over the network."""

    def __init__(self, *args: t.Any, **options: t.Any) -> None:
        # As a rank fails whose image brings a newer CUDA than the driver knows, when the image's entrypoint was bypassed.
        if known_cuda() < image_cuda():
            raise RuntimeError("Triton Error [CUDA]: the provided PTX was compiled with an unsupported toolchain.")
        super().__init__(*args, **options)

    def _all_group_ranks_share_shm_group_name(self) -> bool:
        """Two hosts share no memory, but both start their ranks with the same group name, so equal names prove nothing here."""
        return False
