# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Samples of the GPU's power and temperature. This module util is PRIVATE to the collection."""

from __future__ import annotations

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver_xml
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least
from ansible_collections.gb10.cluster.plugins.module_utils._samples import repeating


def sample(gpus: list[dict[str, t.Any]], now: float) -> dict[str, t.Any]:
    """Return one sample: the power of all GPUs together, the highest temperature. A figure that one of them lacks is unknown."""
    power, heat = ([gpu.get(name) for gpu in gpus] for name in ("power_w", "temperature_c"))
    return {
        "t": round(now, 1),
        "power_w": round(sum(power), 2) if power and None not in power else None,
        "temperature_c": max(heat) if heat and None not in heat else None,
    }


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    repeating.check(params)
    require_least(params, {"tool_timeout": 1})
    samples, errors = repeating.take(params, lambda: sample(driver_xml.gpus(params["roots"]["nvidia_smi"], params["tool_timeout"]), time.time()))
    known = [entry for entry in samples if entry]
    return {"msg": f"{len(known)} sample(s)", "samples": known, "errors": errors}
