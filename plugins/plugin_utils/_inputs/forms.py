# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Defines the forms that the value of a setting can have. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import ipaddress
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._model import inventory
from ansible_collections.gb10.cluster.plugins.module_utils._node import ray
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect import measures

#: Devices through which root in a container can read the memory of the node.
MEMORY = ("/dev/mem", "/dev/kmem", "/dev/port")
SYSTEM_DIRECTORIES = frozenset(
    "/ /bin /boot /dev /etc /home /lib /media /mnt /opt /proc /root /run /sbin /srv /sys /tmp /usr /usr/local /var /var/lib /var/log /var/run /var/tmp".split()
)


class Form(t.NamedTuple):
    """The form of a value: the id of its finding, whether a value fits, and the expected form as text. With ``each`` it applies to every entry of a list."""

    id: str
    fits: t.Callable[[t.Any], t.Any]
    expected: str
    remedy: str = ""
    each: bool = False


def whole(low: int, high: int | None = None, id: str = "input.range") -> Form:
    return Form(id, lambda value: low <= value and (high is None or value <= high), f"{low} or more" if high is None else f"{low} to {high}")


def like(pattern: str) -> t.Callable[[str], re.Match[str] | None]:
    return re.compile(pattern).match


def is_gpu_choice(gpus: t.Any) -> bool:
    if isinstance(gpus, list):
        return bool(gpus) and all(isinstance(gpu, (str, int)) and not isinstance(gpu, bool) for gpu in gpus)
    return gpus in ("all", "none")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_ray_version(text: str) -> bool:
    return bool(re.fullmatch(r"\d+\.\d+\.\d+", text)) and ray.knows_token(text)


def is_node_address(text: str) -> bool:
    address = _address(text)
    # An IPv6 link-local address needs an interface, which no variable of an engine accepts.
    of_a_link = isinstance(address, ipaddress.IPv6Address) and address.is_link_local
    return address is not None and not (address.is_unspecified or address.is_loopback or address.is_multicast or of_a_link)


def is_absolute(path: str) -> bool:
    return path.startswith("/") and ".." not in path.split("/") and not re.search(r"[\s:\0]", path)


def is_own_directory(path: str) -> bool:
    return is_absolute(path) and os.path.normpath(path) not in SYSTEM_DIRECTORIES and not path.startswith(("/proc/", "/sys/", "/dev/"))


def is_own_place(path: str) -> bool:
    return path.startswith(("/", "~")) and not os.path.isfile(os.path.expanduser(path))


def removable(text: str) -> bool:
    try:
        for word in filter(str.strip, text.split(",")):
            inventory.parse_request(word)
    except ClusterError:
        return False
    return True


def are_measures(text: str) -> bool:
    words = [word.strip() for word in text.split(",") if word.strip()]
    return bool(words) and set(words) <= set(measures.NAMES)


def is_device(text: str) -> bool:
    # In any spelling: Docker accepts //dev/./mem for /dev/mem.
    path = os.path.normpath(text.partition(":")[0])
    return path.startswith("/dev/") and path not in MEMORY and not re.search(r"\s", text)


def rungs(text: str) -> bool:
    words = [word.strip() for word in text.split(",")] if text else []
    numbers = [int(word) if word.isdecimal() else 0 for word in words]
    return 0 not in numbers and numbers == sorted(set(numbers))


def concurrencies(text: str) -> bool:
    words = [word.strip() for word in text.split(",")]
    return all(word.isdecimal() and 1 <= int(word) <= 1024 for word in words)


ABSOLUTE = "an absolute path without '..', spaces and colons"
#: Directories of a node below gb10_state_dir and gb10_log_dir that belong to no cluster.
RESERVED = ("companions", "guard", "image-contracts", "lease", "model-code", "wheels")
