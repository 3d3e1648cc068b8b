# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The confinement of every helper container, and the directories that programs in a container write. This module util is PRIVATE to the collection.

A helper runs an image's own programs for a short time: probes, the client of a bench, pip, a download. A test compares all of them with this file.
"""

from __future__ import annotations

#: Keys of Docker's HostConfig: no capability, no way to gain one, and a read-only image.
CONFINED = {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges:true"], "ReadonlyRootfs": True}

#: The only directory that a helper can write: its own volume on disk, which is removed with it.
SCRATCH = "/tmp"


def cache_variables(root: str) -> dict[str, str]:
    """Return the variables that put compiled files and the model's own code below a directory of the container."""
    return {
        "HF_MODULES_CACHE": f"{root}/huggingface_modules",
        "VLLM_CACHE_ROOT": f"{root}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{root}/torchinductor",
        "TRITON_CACHE_DIR": f"{root}/triton",
        "FLASHINFER_WORKSPACE_BASE": f"{root}/flashinfer",
        "CUTE_DSL_CACHE_DIR": f"{root}/cute_dsl",
        "CUDA_CACHE_PATH": f"{root}/cuda",
    }


#: The environment of every helper: some programs fail if they cannot make their directories in the home.
ENVIRONMENT = {**cache_variables(f"{SCRATCH}/cache"), "XDG_CACHE_HOME": f"{SCRATCH}/cache", "XDG_CONFIG_HOME": f"{SCRATCH}/config"}
