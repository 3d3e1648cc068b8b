# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rank needs of a GPU's driver, SIMULATED: its libcuda, which stays in the memory of the rank."""

from __future__ import annotations

import ctypes
import os


def image_cuda() -> tuple[int, int]:
    """The CUDA that the image says it compiles with."""
    major, minor, *_rest = os.environ["CUDA_VERSION"].split(".")
    return int(major), int(minor)


def known_cuda() -> tuple[int, int]:
    """The CUDA that the libcuda of this process knows. A container without a GPU serves here all the same."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return image_cuda()
    version = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    return version.value // 1000, version.value % 1000 // 10


def check_kernels() -> None:
    """Fail as a rank does whose image brings a newer CUDA than the driver knows, when the image's entrypoint was bypassed."""
    if known_cuda() < image_cuda():
        raise RuntimeError("Triton Error [CUDA]: the provided PTX was compiled with an unsupported toolchain.")
