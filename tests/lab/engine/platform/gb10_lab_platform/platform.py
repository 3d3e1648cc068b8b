# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import torch
from vllm.platforms.cpu import CpuPlatform

from .cuda import check_kernels

# Where the processor has AMX, the engine's attention uses it without asking the kernel for its registers first, and dies of SIGILL.
if torch.cpu._is_amx_tile_supported():
    torch.cpu._init_amx()


class LabPlatform(CpuPlatform):
    """CPU compute under the resource name that Ray gives to GPUs: ``ray start --num-gpus 1`` then means one rank on that host."""

    ray_device_key = "GPU"
    device_control_env_var = "CUDA_VISIBLE_DEVICES"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "gb10_lab_platform.communicator.LabCommunicator"

    @classmethod
    def get_attn_backend_cls(cls, *args: t.Any, **options: t.Any) -> str:
        """Each rank asks for its kernels, one that is alone too."""
        check_kernels()
        return super().get_attn_backend_cls(*args, **options)
