# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The running kernel, its modules, and what the next boot would find. This module util is PRIVATE to the collection."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import struct
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, names, optional_text, required_text, strict
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: The modules that a node of the cluster needs.
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "mlx5_core", "mlx5_ib", "ib_uverbs")

#: Parameters that are shown where the module is loaded, as (module, parameter). One field report has CUDA capped at about 62 GB with
#: ``nvidia-drm.modeset=0``.
PARAMETERS = (("nvidia_drm", "modeset"), ("nvidia_drm", "fbdev"))

#: Seconds that modinfo gets for one module: it reads one file.
MODINFO_TIMEOUT = 10.0
#: Seconds that the package manager gets for one package.
PACKAGE_SECONDS = 10.0

_COMPRESSED = (".ko.zst", ".ko.xz", ".ko.gz")
#: Bytes of ``.modinfo`` and of the section table that are read: a few KiB in a sound module.
_SECTION_LIMIT = 1024 * 1024
_INDEX_LIMIT = 32 * 1024 * 1024

#: The first line of the driver's own account, as "NVIDIA UNIX Open Kernel Module for aarch64  580.159.03".
_FLAVOR = re.compile(r"^NVRM version: NVIDIA UNIX (?P<open>Open )?.*Kernel Module", re.MULTILINE)
_MODINFO_LINE = re.compile(r"^(?P<name>[a-z_]+): +(?P<value>.*)$")
_GRUB_KERNEL = re.compile(r"^\s*linux(?:16|efi)?\s+\S*?vmlinu[xz]-(?P<release>[^\s\"']+)", re.MULTILINE)
_GRUB_DEFAULT = re.compile(r"^\s*set default=\"?(?P<entry>[^\"\n]*)\"?\s*$", re.MULTILINE)
_KERNEL_FILE = re.compile(r"^vmlinu[xz]-(?P<release>[0-9].*)$")
_NO_KERNEL = (".old", ".bak", ".rescue", ".dpkg-new", ".dpkg-tmp")

_TRUE, _FALSE = ("y", "1", "on", "true"), ("n", "0", "off", "false")


def module_name(path: str) -> str:
    """Return the name under which the kernel knows a module file: ``nvidia_uvm`` for ``updates/dkms/nvidia-uvm.ko.zst``."""
    return os.path.basename(path).partition(".ko")[0].replace("-", "_")


def parse_modules_dep(text: str) -> dict[str, str]:
    """Return the file of each module in a ``modules.dep`` text, as written there, relative to its directory or absolute.

    Raises :class:`UnknownState` for a line of another shape.
    """
    found: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        path, colon, _needs = line.partition(":")
        if not colon or ".ko" not in os.path.basename(path):
            raise UnknownState(f"modules.dep has a line that cannot be read: {line[:200]!r}", remedy="Run: sudo depmod -a", raw=text[:4000])
        found[module_name(path)] = path.strip()
    return found


def installed_modules(modules_root: str, release: str) -> dict[str, str]:
    """Return the full path of each module that is installed for a kernel, by name; ``""`` for one that is built into it.

    Nothing for a kernel that has no module tree. Raises OSError or :class:`UnknownState` when its index cannot be read.
    """
    tree = os.path.join(modules_root, release)
    builtin = _index(os.path.join(tree, "modules.builtin"))
    found = {module_name(line): "" for line in (builtin or "").splitlines() if line.strip()}
    listed = _index(os.path.join(tree, "modules.dep"))
    for name, path in parse_modules_dep(listed or "").items():
        found[name] = os.path.join(tree, path)
    return found


def _index(path: str) -> str | None:
    try:
        with open(path, "rb") as stream:
            return stream.read(_INDEX_LIMIT).decode("utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _bytes(stream: t.BinaryIO, offset: int, size: int, path: str) -> bytes:
    if size > _SECTION_LIMIT:
        raise UnknownState(f"{path} is not a sound kernel module: a section table of {size} bytes")
    stream.seek(offset)
    found = stream.read(size)
    if len(found) != size:
        raise UnknownState(f"{path} ends too early for a kernel module")
    return found


def parse_modinfo_section(section: bytes) -> dict[str, str]:
    """Return a module's ``.modinfo`` (``name=value``, each ended by a zero byte) by name; of a repeated name, the first."""
    found: dict[str, str] = {}
    for entry in section.split(b"\0"):
        name, equals, value = entry.decode("utf-8", errors="replace").partition("=")
        if equals:
            found.setdefault(name, value)
    return found


def read_modinfo(stream: t.BinaryIO, path: str) -> dict[str, str]:
    """Return the ``.modinfo`` of a module that is not compressed, from its ELF section table (64 bit, little endian).

    Raises :class:`UnknownState` for any other file.
    """
    header = stream.read(64)
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
        raise UnknownState(f"{path} is not a kernel module of this kind of machine", raw=header.hex())
    (table,) = struct.unpack_from("<Q", header, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", header, 0x3A)
    if entry_size != 64 or names_index >= count or table > 2**40:
        raise UnknownState(f"{path} is not a sound kernel module", raw=header.hex())
    raw = _bytes(stream, table, entry_size * count, path)
    sections = [struct.unpack_from("<IIQQQQ", raw, index * entry_size) for index in range(count)]
    wanted = _bytes(stream, sections[names_index][4] % 2**40, sections[names_index][5], path)
    for name, _kind, _flags, _address, offset, size in sections:
        if wanted[name:].split(b"\0", 1)[0] == b".modinfo":
            return parse_modinfo_section(_bytes(stream, offset % 2**40, size, path))
    raise UnknownState(f"{path} has no .modinfo section")


def parse_modinfo(text: str) -> dict[str, str]:
    """Return what ``modinfo FILE`` printed, by name; of a repeated name, the first. Raises :class:`UnknownState` for anything else."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _MODINFO_LINE.match(line)
        if match:
            found.setdefault(match["name"], match["value"].strip())
    if "vermagic" not in found:
        raise UnknownState(f"modinfo does not describe a module: {text.strip()[:200]!r}", raw=text[:4000])
    return found


def modinfo(path: str, tool: str = "modinfo") -> dict[str, str]:
    """Return the ``.modinfo`` of a module file.

    A plain file is read as it is. A compressed one is left to ``tool``, since Python has no zstd before 3.14. Raises OSError, or
    :class:`UnknownState` when it cannot be read.
    """
    if not path.endswith(_COMPRESSED):
        with open(path, "rb") as stream:
            return read_modinfo(stream, path)
    os.stat(path)  # says which file is missing better than modinfo does
    result = run_tool([tool, path], MODINFO_TIMEOUT)
    if result.rc != 0:
        raise UnknownState(f"modinfo failed with status {result.rc} on {path}", remedy=f"Run by hand: modinfo {path}", raw=result.raw[:4000])
    return parse_modinfo(result.stdout)


def version_of(version: str | None, srcversion: str | None, release: str) -> str:
    """Return what distinguishes a module from another build of it.

    Its own version where it has one; else the checksum of its sources; else the kernel it was built for: modules of the kernel's own
    tree, such as today's mlx5_core, carry no version.
    """
    if version:
        return version
    return f"srcversion {srcversion}" if srcversion else release


def loaded_version(name: str, sysfs_root: str, release: str) -> str | None:
    """Return the version of a loaded module (see :func:`version_of`), None when it is not loaded. Raises OSError."""
    base = os.path.join(sysfs_root, "module", name)
    if not os.path.isdir(base):
        return None
    return version_of(optional_text(os.path.join(base, "version")), optional_text(os.path.join(base, "srcversion")), release)


def installed_version(name: str, files: dict[str, str], release: str, tool: str = "modinfo") -> str | None:
    """Return the version of the module that would be loaded now, None when none is installed."""
    path = files.get(name)
    if path is None:
        return None
    if not path:
        return release
    known = modinfo(path, tool)
    return version_of(known.get("version"), known.get("srcversion"), known.get("vermagic", "").split(" ")[0] or release)


def version_key(release: str) -> list[tuple[int, int, str]]:
    """Return what sorts kernel releases by age, as the boot loader's scripts do: runs of digits as numbers."""
    return [(1, int(piece), "") if piece.isdecimal() and piece.isascii() else (0, 0, piece) for piece in re.split(r"([0-9]{1,18})", release) if piece]


def grub_release(text: str) -> str | None:
    """Return the kernel of the first entry of a ``grub.cfg``, None unless the first entry is the one that is started."""
    defaults = {match["entry"] for match in _GRUB_DEFAULT.finditer(text)}
    kernel = _GRUB_KERNEL.search(text)
    # Ubuntu's file also has the branch "${next_entry}", which counts for one boot after grub-reboot.
    return kernel["release"] if kernel and defaults <= {"0", "${next_entry}"} else None


def next_release(boot_root: str, section: Section = strict) -> str | None:
    """Return the kernel that the next boot would take; None when there is none below ``boot_root``.

    GRUB's first entry where its file may be read and takes the first entry; else the newest kernel that lies there.
    """
    kernels = []
    for name in names(boot_root):
        match = _KERNEL_FILE.match(name)
        if match and not name.endswith(_NO_KERNEL):
            kernels.append(match["release"])
    newest = max(kernels, key=version_key, default=None)
    config = section(lambda: optional_text(os.path.join(boot_root, "grub", "grub.cfg")))
    chosen = grub_release(config) if config else None
    return chosen if chosen in kernels else newest


def next_boot(boot_root: str, modules_root: str, section: Section = strict) -> dict[str, t.Any]:
    """Return ``{release, has_nvidia_driver}`` of the next boot, both None where no kernel lies below ``boot_root`` (a container)."""
    release = next_release(boot_root, section)
    if release is None:
        return {"release": None, "has_nvidia_driver": None}
    return {"release": release, "has_nvidia_driver": section(lambda: "nvidia" in installed_modules(modules_root, release))}


def command_line_parameter(cmdline: str, module: str, parameter: str) -> str | None:
    """Return the last value that a kernel command line gives a module's parameter (``-`` and ``_`` mean the same there)."""
    found = None
    for word in cmdline.split():
        name, equals, value = word.partition("=")
        owner, _dot, key = name.replace("-", "_").partition(".")
        if equals and (owner, key) == (module, parameter):
            found = value
    return found


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
    text = optional_text(os.path.join(proc_root, "driver", "nvidia", "version")) or ""
    found = _FLAVOR.search(text)
    return ("open" if found["open"] else "proprietary") if found else None


def package_version(name: str, tool: str = "dpkg-query") -> str | None:
    """Return the version of an installed package of Debian's kind, None where it is not installed, or no such packages are."""
    try:
        asked = run_tool([tool, "--show", "--showformat=${db:Status-Abbrev} ${Version}", name], PACKAGE_SECONDS)
    except UnknownState:
        # No such tool: a system of another kind.
        return None
    status, _space, version = asked.stdout.strip().partition(" ")
    return version.strip() if asked.rc == 0 and status == "ii" else None


def machine(etc_root: str) -> str | None:
    """Return the machine's id, hashed, since it is meant to stay private; None where it has none."""
    found = optional_text(os.path.join(etc_root, "machine-id"))
    return hashlib.sha256(f"gb10.cluster {found}".encode()).hexdigest()[:16] if found else None


def uptime(text: str) -> float:
    """Return the seconds since boot of a ``/proc/uptime`` text. Raises :class:`UnknownState` for another shape."""
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
    parameters = {}
    for module, parameter in PARAMETERS:
        if os.path.exists(os.path.join(sysfs_root, "module", module, "parameters", parameter)):
            parameters[f"{module}.{parameter}"] = section(lambda m=module, p=parameter: _parameter(m, p, sysfs_root, cmdline or ""))
    return {
        "release": release,
        "arch": section(lambda: optional_text(os.path.join(proc_root, "sys", "kernel", "arch"))) or platform.machine(),
        "boot_id": section(lambda: required_text(os.path.join(proc_root, "sys", "kernel", "random", "boot_id"))),
        "cmdline": cmdline,
        "uptime_s": section(lambda: uptime(required_text(os.path.join(proc_root, "uptime")))),
        "modules": modules,
        "next_boot": section(lambda: next_boot(boot_root, modules_root, section), {"release": None, "has_nvidia_driver": None}),
        "parameters": parameters,
        "nvidia_flavor": section(lambda: nvidia_flavor(proc_root)),
        "nvidia_modprobe": package_version("nvidia-modprobe"),
    }
