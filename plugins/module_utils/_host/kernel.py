# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The running kernel, its modules, and the kernel of the next boot. This module util is PRIVATE to the collection."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, names, optional_text, required_text, strict
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: The modules that a node of the cluster needs.
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "mlx5_core", "mlx5_ib", "ib_uverbs")

#: Parameters that are shown where the module is loaded, as (module, parameter). One field report shows CUDA limited to about 62 GB with
#: ``nvidia-drm.modeset=0``.
PARAMETERS = (("nvidia_drm", "modeset"), ("nvidia_drm", "fbdev"))

#: Seconds that modinfo gets for one module: it reads one file.
MODINFO_TIMEOUT = 10.0
#: Seconds that the package manager gets for one package.
PACKAGE_SECONDS = 10.0


_INDEX_LIMIT = 32 * 1024 * 1024

#: The first line of the driver's version file, such as "NVIDIA UNIX Open Kernel Module for aarch64  580.159.03".
_FLAVOR = re.compile(r"^NVRM version: NVIDIA UNIX (?P<open>Open )?.*Kernel Module", re.MULTILINE)
_MODINFO_LINE = re.compile(r"^(?P<name>[a-z_]+): +(?P<value>.*)$")
_GRUB_KERNEL = re.compile(r"^\s*linux(?:16|efi)?\s+\S*?vmlinu[xz]-(?P<release>[^\s\"']+)", re.MULTILINE)
_GRUB_DEFAULT = re.compile(r"^\s*set default=\"?(?P<entry>[^\"\n]*)\"?\s*$", re.MULTILINE)
_KERNEL_FILE = re.compile(r"^vmlinu[xz]-(?P<release>[0-9].*)$")
_NO_KERNEL = (".old", ".bak", ".rescue", ".dpkg-new", ".dpkg-tmp")

_TRUE, _FALSE = ("y", "1", "on", "true"), ("n", "0", "off", "false")


def module_name(path: str) -> str:
    """Return the kernel's name for a module file: ``nvidia_uvm`` for ``updates/dkms/nvidia-uvm.ko.zst``."""
    return os.path.basename(path).partition(".ko")[0].replace("-", "_")


def parse_modules_dep(text: str) -> dict[str, str]:
    """Return the file of each module in a ``modules.dep`` text, as written there, relative to its directory or absolute.

    Raises :class:`UnknownState` for a line of another shape.
    """
    paths: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        path, colon, _needs = line.partition(":")
        if not colon or ".ko" not in os.path.basename(path):
            raise UnknownState(f"modules.dep has a line that cannot be read: {line[:200]!r}", remedy="Run: sudo depmod -a", raw=text[:4000])
        paths[module_name(path)] = path.strip()
    return paths


def installed_modules(modules_root: str, release: str) -> dict[str, str]:
    """Return the full path of each module that is installed for a kernel, by name; ``""`` for one that is built into it.

    Empty for a kernel that has no module tree. Raises OSError or :class:`UnknownState` when its index cannot be read.
    """
    tree = os.path.join(modules_root, release)
    builtin, listed = (_index(os.path.join(tree, name)) for name in ("modules.builtin", "modules.dep"))
    built_in = {module_name(line): "" for line in builtin.splitlines() if line.strip()}
    return {**built_in, **{name: os.path.join(tree, path) for name, path in parse_modules_dep(listed).items()}}


def _index(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            return stream.read(_INDEX_LIMIT).decode("utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def parse_modinfo(text: str) -> dict[str, str]:
    """Return the fields that ``modinfo FILE`` printed, by name; the first of a repeated name. Raises :class:`UnknownState` for anything else."""
    matches = filter(None, map(_MODINFO_LINE.match, reversed(text.splitlines())))
    fields = {match["name"]: match["value"].strip() for match in matches}
    if "vermagic" not in fields:
        raise UnknownState(f"modinfo does not describe a module: {text.strip()[:200]!r}", raw=text[:4000])
    return fields


def modinfo(path: str, tool: str = "modinfo") -> dict[str, str]:
    """Return the fields that ``tool`` prints for a module file. Raises OSError, or :class:`UnknownState` when it cannot be read."""
    os.stat(path)  # names a missing file better than modinfo does
    result = run_tool([tool, path], MODINFO_TIMEOUT)
    if result.rc != 0:
        raise UnknownState(f"modinfo failed with status {result.rc} on {path}", remedy=f"Run by hand: modinfo {path}", raw=result.raw[:4000])
    return parse_modinfo(result.stdout)


def version_of(version: str | None, srcversion: str | None, release: str) -> str:
    """Return the version that distinguishes a module from another build of it.

    Its own version where it has one; else the checksum of its sources; else the kernel it was built for: modules of the kernel's own
    tree, such as today's mlx5_core, have no version.
    """
    return version or (f"srcversion {srcversion}" if srcversion else release)


def loaded_version(name: str, sysfs_root: str, release: str) -> str | None:
    """Return the version of a loaded module (see :func:`version_of`), None when it is not loaded. Raises OSError."""
    base = os.path.join(sysfs_root, "module", name)
    if not os.path.isdir(base):
        return None
    return version_of(optional_text(os.path.join(base, "version")), optional_text(os.path.join(base, "srcversion")), release)


def installed_version(name: str, files: dict[str, str], release: str, tool: str = "modinfo") -> str | None:
    """Return the version of the module that would be loaded now, None when none is installed."""
    if not files.get(name):
        return release if name in files else None
    known = modinfo(files[name], tool)
    return version_of(known.get("version"), known.get("srcversion"), known.get("vermagic", "").split(" ")[0] or release)


def version_key(release: str) -> list[tuple[int, int, str]]:
    """Return the sort key of a kernel release by age, as the boot loader's scripts sort: runs of digits as numbers."""
    return [(1, int(piece), "") if piece.isdecimal() and piece.isascii() else (0, 0, piece) for piece in re.split(r"([0-9]{1,18})", release) if piece]


def grub_release(text: str) -> str | None:
    """Return the kernel of the first entry of a ``grub.cfg``, None unless the first entry is the one that is started."""
    defaults = {match["entry"] for match in _GRUB_DEFAULT.finditer(text)}
    kernel = _GRUB_KERNEL.search(text)
    # Ubuntu's file also has the branch "${next_entry}", which counts for one boot after grub-reboot.
    return kernel["release"] if kernel and defaults <= {"0", "${next_entry}"} else None


def next_release(boot_root: str, section: Section = strict) -> str | None:
    """Return the kernel that the next boot would start; None when there is none below ``boot_root``.

    GRUB's first entry where its file may be read and starts the first entry; else the newest kernel in the directory.
    """
    matches = (_KERNEL_FILE.match(name) for name in names(boot_root) if not name.endswith(_NO_KERNEL))
    kernels = [match["release"] for match in matches if match]
    config = section(lambda: optional_text(os.path.join(boot_root, "grub", "grub.cfg")))
    chosen = grub_release(config) if config else None
    return chosen if chosen in kernels else max(kernels, key=version_key, default=None)


def next_boot(boot_root: str, modules_root: str, section: Section = strict) -> dict[str, t.Any]:
    """Return ``{release, has_nvidia_driver}`` of the next boot, both None where no kernel is below ``boot_root`` (a container)."""
    release = next_release(boot_root, section)
    if release is None:
        return {"release": None, "has_nvidia_driver": None}
    return {"release": release, "has_nvidia_driver": section(lambda: "nvidia" in installed_modules(modules_root, release))}


def command_line_parameter(cmdline: str, module: str, parameter: str) -> str | None:
    """Return the last value for a module's parameter on a kernel command line (``-`` and ``_`` are equivalent there)."""
    parts = (word.partition("=") for word in cmdline.split())
    values = [value for name, equals, value in parts if equals and name.replace("-", "_") == f"{module}.{parameter}"]
    return values[-1] if values else None


def _parameter(module: str, parameter: str, sysfs_root: str, cmdline: str) -> str | None:
    try:
        return optional_text(os.path.join(sysfs_root, "module", module, "parameters", parameter))
    except PermissionError:
        # Only root may read nvidia_drm's (mode 0400). A value on the command line is the effective one: it comes after modprobe.d.
        value = (command_line_parameter(cmdline, module, parameter) or "").lower()
        if value in _TRUE or value in _FALSE:
            return "Y" if value in _TRUE else "N"
        raise


def nvidia_flavor(proc_root: str) -> str | None:
    """Return which of NVIDIA's two kinds of modules is loaded, ``open`` or ``proprietary``; None without one, or for a text of another shape."""
    match = _FLAVOR.search(optional_text(os.path.join(proc_root, "driver", "nvidia", "version")) or "")
    return ("open" if match["open"] else "proprietary") if match else None


def package_version(name: str, tool: str = "dpkg-query") -> str | None:
    """Return the version of an installed Debian package, None where it is not installed, or on another kind of system."""
    try:
        result = run_tool([tool, "--show", "--showformat=${db:Status-Abbrev} ${Version}", name], PACKAGE_SECONDS)
    except UnknownState:
        return None
    status, _space, version = result.stdout.strip().partition(" ")
    return version.strip() if result.rc == 0 and status == "ii" else None


def machine(etc_root: str) -> str | None:
    """Return the machine's id, hashed, since it is meant to stay private; None where it has none."""
    machine_id = optional_text(os.path.join(etc_root, "machine-id"))
    return hashlib.sha256(f"gb10.cluster {machine_id}".encode()).hexdigest()[:16] if machine_id else None


def uptime(proc_root: str) -> float:
    """Return the seconds since boot. Raises OSError, :class:`UnknownState` for another shape."""
    text = required_text(os.path.join(proc_root, "uptime"))
    match = re.match(r"^([0-9]{1,12}\.[0-9]{1,6}) [0-9.]+$", text)
    if not match:
        raise UnknownState(f"the kernel shows its uptime in a shape that cannot be read: {text[:80]!r}", raw=text[:2000])
    return float(match[1])


def kernel(
    proc_root: str = "/proc",
    sysfs_root: str = "/sys",
    modules_root: str = "/lib/modules",
    boot_root: str = "/boot",
    section: Section = strict,
    modinfo_tool: str = "modinfo",
) -> dict[str, t.Any]:
    """Return the section ``kernel`` of ``node_info``, without ``clock``, which is :func:`timekeeping.clock`.

    ``release``, ``arch``, ``boot_id``, ``cmdline``, ``uptime_s``; ``modules``: for each of :data:`MODULES` that is loaded or installed,
    its versions as by :func:`version_of`, None for "not"; ``next_boot``; ``parameters``: those of :data:`PARAMETERS` whose module
    is loaded; ``nvidia_flavor``; ``nvidia_modprobe``, the version of that package. Raises OSError when not even the kernel's release can be
    read; what else cannot be read is None and noted by ``section``.
    """
    release = required_text(os.path.join(proc_root, "sys", "kernel", "osrelease"))
    cmdline = section(lambda: required_text(os.path.join(proc_root, "cmdline")))
    files: dict[str, str] | None = section(lambda: installed_modules(modules_root, release))

    modules = {}
    for name in MODULES:
        loaded = section(lambda name=name: loaded_version(name, sysfs_root, release))
        installed = section(lambda name=name: installed_version(name, files or {}, release, modinfo_tool))
        if loaded is not None or name in (files or {}):
            modules[name] = {"loaded": loaded, "installed": installed}
    parameters = {
        f"{module}.{parameter}": section(lambda m=module, p=parameter: _parameter(m, p, sysfs_root, cmdline or ""))
        for module, parameter in PARAMETERS
        if os.path.exists(os.path.join(sysfs_root, "module", module, "parameters", parameter))
    }
    return {
        "release": release,
        "arch": section(lambda: optional_text(os.path.join(proc_root, "sys", "kernel", "arch"))) or platform.machine(),
        "boot_id": section(lambda: required_text(os.path.join(proc_root, "sys", "kernel", "random", "boot_id"))),
        "cmdline": cmdline,
        "uptime_s": section(lambda: uptime(proc_root)),
        "modules": modules,
        "next_boot": section(lambda: next_boot(boot_root, modules_root, section), {"release": None, "has_nvidia_driver": None}),
        "parameters": parameters,
        "nvidia_flavor": section(lambda: nvidia_flavor(proc_root)),
        "nvidia_modprobe": package_version("nvidia-modprobe"),
    }
