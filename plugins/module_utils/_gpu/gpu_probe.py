# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a container reaches the GPU, and by which libcuda, as one line of JSON. This module util is PRIVATE to the collection.

The text of this file is run in a container of the image by its own ``python3``, so it needs nothing but the standard library of Python 3.8 or
newer. It calls the libraries that the engine's processes would load, and allocates no GPU memory.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import sys

#: Precedes the JSON, so that other output of the image does no harm.
MARK = "gb10-gpu-access:"


def management():
    """Return NVML's values, by which vLLM recognizes its platform. Raises OSError with NVML's error text."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    library.nvmlErrorString.restype = ctypes.c_char_p
    code = library.nvmlInit_v2()
    if code:
        raise OSError("Failed to initialize NVML: " + library.nvmlErrorString(code).decode(errors="replace"))
    version, count = ctypes.create_string_buffer(96), ctypes.c_uint()
    library.nvmlSystemGetDriverVersion(version, len(version))
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    return {"driver": version.value.decode(errors="replace"), "gpus": count.value}


def computing():
    """Return the CUDA version of the libcuda that a process here loads, and the path of that library. Raises OSError with CUDA's error text."""
    library = ctypes.CDLL("libcuda.so.1")
    code = library.cuInit(0)
    if code:
        words = ctypes.c_char_p()
        library.cuGetErrorString(code, ctypes.byref(words))
        raise OSError(f"CUDA error {code}: {(words.value or b'unknown').decode(errors='replace')}")
    version = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
        mapped = re.findall(r" (/\S*/libcuda\.so[.0-9]*)$", stream.read(), re.MULTILINE)
    return {"cuda": f"{version.value // 1000}.{version.value % 1000 // 10}", "libcuda": sorted(set(mapped))}


def built_with():
    """Return the CUDA version that the image compiles with, else the version that its PyTorch was built with. Empty when both are unknown."""
    match = re.match(r"\d+\.\d+", os.environ.get("CUDA_VERSION", ""))
    if match:
        return match[0]
    torch = importlib.util.find_spec("torch")
    try:
        with open(os.path.join(os.path.dirname(torch.origin), "version.py"), encoding="utf-8") as stream:
            match = re.search(r"^cuda\b[^=\n]*= *['\"](\d+\.\d+)", stream.read(), re.MULTILINE)
    except (AttributeError, TypeError, OSError):
        return ""
    return match[1] if match else ""


def access():
    """Return all these facts; ``error`` is empty when the GPU was reached."""
    answer = {"error": "", "driver": "", "gpus": 0, "cuda": "", "libcuda": [], "image_cuda": built_with()}
    try:
        answer.update(management())
        answer.update(computing())
    except (OSError, AttributeError) as error:
        answer["error"] = str(error)
    return answer


if __name__ == "__main__":
    sys.stdout.write("\n" + MARK + json.dumps(access()) + "\n")
