# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The time until a node's sshd sends its greeting. This module util is PRIVATE to the collection."""

from __future__ import annotations

import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least
from ansible_collections.gb10.cluster.plugins.module_utils._network.greeting import greet
from ansible_collections.gb10.cluster.plugins.module_utils._samples import repeating


def open_address(addresses: t.Sequence[str], port: int, timeout: float) -> tuple[str, str]:
    """Return the first address whose port accepts a connection, and why none does."""
    errors = []
    for address in addresses:
        try:
            with socket.create_connection((address, port), timeout):
                return address, ""
        except TimeoutError:
            # It listens, and answers late: that delay is measured.
            return address, ""
        except OSError as error:
            errors.append(f"{address}:{port}: {error.strerror or error}")
    return "", "; ".join(errors)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    port, timeout = params["port"], params["greeting_timeout"]
    repeating.check(params)
    require_least(params, {"port": 1, "greeting_timeout": 1})
    address, closed = open_address(params["addresses"], port, timeout)
    if not address:
        return {"msg": f"no sshd takes connections: {closed}", "samples_ms": [], "worst_ms": None, "address": "", "errors": [closed]}
    samples, errors = repeating.take(params, lambda: greet(address, port, timeout))
    worst = max(samples) if None not in samples else None
    return {"msg": f"{len(samples)} greeting(s), the slowest {worst} ms", "samples_ms": samples, "worst_ms": worst, "address": address, "errors": errors}
