# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Another process's current environment, read from its memory. This module util is PRIVATE to the collection.

Why ``/proc/PID/environ`` is not enough: it is the environment of the moment a program was started. Ray starts its workers first and gives them the
engine's variables later, with ``os.environ``; vLLM's ranks give themselves a title, which overwrites that memory. The C library's variable
``environ`` is what counts: ``getenv`` reads it, and so do NCCL and the other libraries of an engine. So this file finds that variable's symbol in the
files that the process has mapped, and follows the pointer.

The cost: a look at the symbols of the program and of its C library, mapped and not copied, then a few reads of memory, all of them limited (see
the constants). Nothing is stopped and nothing is written; a process that changes its environment meanwhile is read again.

The obstacles: reading another process's memory needs root, or CAP_SYS_PTRACE in the process's user namespace; a process may be gone; a program
without symbols, of another word size or with its own C library has no variable that can be found. Then the result is the environment of the start, and
is marked as such, since a comparison must not confuse the two.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import re
import struct
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted

SYMBOLS = (b"environ", b"__environ", b"_environ")

#: Files that may define the variable when the program itself does not: glibc and musl.
_LIBC = re.compile(r"/(libc\.so\.6|libc-[0-9.]+\.so|ld-musl-[^/]+|libc\.musl-[^/]+)$")

#: The kernel accepts no longer string than this at exec (MAX_ARG_STRLEN), so a longer one is not an environment.
STRING_LIMIT = 128 * 1024
VARIABLES_LIMIT = 16384
TOTAL_LIMIT = 8 * 1024 * 1024
TABLE_LIMIT = 64 * 1024 * 1024

POINTER = 8
#: How often a walk is repeated when the process moved its environment during it.
ATTEMPTS = 3

_MAP = re.compile(r"^(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) \S+ (?P<offset>[0-9a-f]+) \S+ \d+ *(?P<path>.*)$")

PT_LOAD = 1
SHT_DYNSYM = 11
SHN_UNDEF = 0


class NotElf(Exception):
    """A file is not a 64-bit little-endian ELF file, or it is cut off."""


@dataclasses.dataclass(frozen=True)
class Mapping:
    """One line of a process's memory map; addresses and offset in bytes."""

    start: int
    end: int
    offset: int
    path: str


@dataclasses.dataclass(frozen=True)
class Segment:
    """One loaded segment of an ELF file; all in bytes."""

    offset: int
    address: int
    file_size: int


def parse_maps(text: str) -> list[Mapping]:
    """Return the mappings of a ``/proc/PID/maps`` text that belong to a file."""
    mappings = []
    for line in text.splitlines():
        match = _MAP.match(line)
        if not match:
            raise UnknownState(f"the kernel describes a mapping in a shape that cannot be read: {line!r}", raw=line)
        if match["path"].startswith("/"):
            mappings.append(Mapping(int(match["start"], 16), int(match["end"], 16), int(match["offset"], 16), match["path"]))
    return mappings


def _read_at(stream: t.BinaryIO, offset: int, size: int) -> bytes:
    if size > TABLE_LIMIT:
        raise NotElf(f"a table of {size} bytes")
    stream.seek(offset)
    data = stream.read(size)
    if len(data) < size:
        raise NotElf("the file is cut off")
    return data


def _unpack(layout: str, data: bytes, offset: int = 0) -> tuple[t.Any, ...]:
    try:
        return struct.unpack_from(layout, data, offset)
    except struct.error as error:
        raise NotElf(str(error)) from error


def find_symbol(stream: t.BinaryIO, names: t.Collection[bytes] = SYMBOLS) -> tuple[int | None, list[Segment]]:
    """Return (address, loaded segments) of the first dynamic symbol of ``names`` that an ELF file defines; None when it defines none.

    The address is the file's own, before loading. Raises :class:`NotElf` for anything but a 64-bit little-endian ELF file.
    """
    header = _read_at(stream, 0, 64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise NotElf("not a 64-bit little-endian ELF file")
    program_offset, section_offset = _unpack("<QQ", header, 32)
    program_size, program_count, section_size, section_count = _unpack("<HHHH", header, 54)
    programs = _read_at(stream, program_offset, program_size * program_count)
    rows = (_unpack("<IIQQQQ", programs, index * program_size) for index in range(program_count))
    segments = [Segment(offset, address, file_size) for kind, _flags, offset, address, _physical, file_size in rows if kind == PT_LOAD]

    sections = _read_at(stream, section_offset, section_size * section_count)
    for index in range(section_count):
        kind, _flags, _address, offset, size, link = _unpack("<IQQQQI", sections, index * section_size + 4)
        if kind == SHT_DYNSYM and link < section_count:
            _name, _kind, _flags, _address, text_offset, text_size = _unpack("<IIQQQQ", sections, link * section_size)
            return _search(_read_at(stream, offset, size), _read_at(stream, text_offset, text_size), names), segments
    return None, segments


def _search(table: bytes, text: bytes, names: t.Collection[bytes]) -> int | None:
    for name_at, _info, _other, section, value, _size in struct.iter_unpack("<IBBHQQ", table[:len(table) - len(table) % 24]):
        if section != SHN_UNDEF and value and text[name_at:text.find(b"\0", name_at)] in names:
            return value
    return None


def load_bias(mappings: t.Iterable[Mapping], segments: t.Sequence[Segment], page: int = mmap.PAGESIZE) -> int | None:
    """Return what to add to a file's own addresses to get those of the process, given the file's mappings; None when none fits.

    ``page`` is the kernel's page size in bytes (4096, or 65536 with some kernels for ARM): mappings begin at its multiples.
    """
    for mapping in mappings:
        for segment in segments:
            within = segment.offset % page
            if segment.file_size and segment.offset - within == mapping.offset:
                return mapping.start - (segment.address - within)
    return None


class Memory:
    """A process's memory, open for reading."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, address: int, size: int) -> bytes:
        """Return ``size`` bytes, or fewer where the mapping ends. Raises OSError where nothing is mapped."""
        try:
            return os.pread(self._descriptor, size, address)
        except OverflowError as error:
            # A pointer above the largest file offset is invalid too.
            raise OSError(f"no address: {address:#x}") from error

    def pointer(self, address: int) -> int:
        data = self.read(address, POINTER)
        if len(data) < POINTER:
            raise OSError("the memory ends inside a pointer")
        return int.from_bytes(data, "little")

    def string(self, address: int) -> bytes:
        """Return the bytes up to the zero. Raises OSError when there is none within the limit."""
        parts: list[bytes] = []
        size = 0
        while size < STRING_LIMIT:
            # Page by page: a read that crosses into unmapped memory would fail as a whole.
            part = self.read(address, mmap.PAGESIZE - address % mmap.PAGESIZE)
            if not part:
                break
            head, zero, _rest = part.partition(b"\0")
            parts.append(head)
            if zero:
                return b"".join(parts)
            size += len(part)
            address += len(part)
        raise OSError("a string without an end")


def walk(memory: Memory, variable: int) -> dict[str, str]:
    """Return the environment that the C variable at address ``variable`` points to.

    Raises OSError when it leads nowhere, which happens when the process moves its environment at that moment.
    """
    variables: dict[str, str] = {}
    total = 0
    array = memory.pointer(variable)
    if array == 0:
        return variables
    for index in range(VARIABLES_LIMIT):
        at = memory.pointer(array + index * POINTER)
        if at == 0:
            return variables
        entry = memory.string(at)
        total += len(entry)
        if total > TOTAL_LIMIT:
            break
        name, equals, value = entry.partition(b"=")
        if equals:
            # The first of two entries with one name is the one that getenv finds.
            variables.setdefault(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
    raise OSError("an environment without an end")


def parse_exec(raw: bytes) -> dict[str, str]:
    """Return the environment of a ``/proc/PID/environ`` content: that of the moment the program was started. Of two entries with one name the first counts."""
    parts = (entry.partition("=") for entry in reversed(raw.decode("utf-8", "replace").split("\0")))
    return {name: value for name, equals, value in parts if equals and name}


def started_with(pid: int, proc_root: str = "/proc") -> dict[str, str]:
    """Return the environment that a process was started with, as far as no title overwrote it. Raises OSError."""
    with open(os.path.join(proc_root, str(pid), "environ"), "rb") as stream:
        return parse_exec(stream.read(TOTAL_LIMIT))


def _open_mapped(pid: int, mapping: Mapping, proc_root: str) -> t.BinaryIO:
    """Open the very file that is mapped, even when it was replaced since; where that is not allowed, the one of its name."""
    base = os.path.join(proc_root, str(pid))
    try:
        return open(os.path.join(base, "map_files", f"{mapping.start:x}-{mapping.end:x}"), "rb")
    except OSError:
        # The container can put anything at that name by now.
        return untrusted.reader(os.path.join(base, "root"), mapping.path.removesuffix(" (deleted)").lstrip("/"), own=False)


def candidates(mappings: t.Iterable[Mapping], program: str) -> list[list[Mapping]]:
    """Return the mappings of the files that may define the variable, the program first.

    A program that uses the variable by name gets its own copy, and the C library uses that copy as well; so the program comes first.
    """
    by_path: dict[str, list[Mapping]] = {program: []}
    for mapping in mappings:
        if mapping.path == program or _LIBC.search(mapping.path.removesuffix(" (deleted)")):
            by_path.setdefault(mapping.path, []).append(mapping)
    return [group for group in by_path.values() if group]


def variable_address(pid: int, proc_root: str = "/proc") -> int | None:
    """Return the address of the C variable ``environ`` in a process, None when no file of it defines one. Raises OSError."""
    base = os.path.join(proc_root, str(pid))
    with open(os.path.join(base, "maps"), encoding="utf-8", errors="surrogateescape") as stream:
        mappings = parse_maps(stream.read(TABLE_LIMIT))
    for group in candidates(mappings, os.readlink(os.path.join(base, "exe"))):
        with _open_mapped(pid, group[0], proc_root) as stream, contextlib.suppress(NotElf):
            value, segments = find_symbol(stream)
            bias = load_bias(group, segments)
            if value is not None and bias is not None:
                return value + bias
    return None


def live_environment(pid: int, proc_root: str = "/proc") -> dict[str, str] | None:
    """Return the environment that a process has now, None when its memory does not show it. Raises OSError when it may not be read."""
    address = variable_address(pid, proc_root)
    if address is None:
        return None
    descriptor = os.open(os.path.join(proc_root, str(pid), "mem"), os.O_RDONLY)
    try:
        for _attempt in range(ATTEMPTS):
            with contextlib.suppress(OSError):
                return walk(Memory(descriptor), address)
    finally:
        os.close(descriptor)
    return None


def environment(pid: int, proc_root: str = "/proc") -> tuple[dict[str, str], str]:
    """Return (environment, source) of a process. The source is ``live``, or ``exec`` when its memory does not show it.

    Raises :class:`UnknownState` when the process is gone or may not be read.
    """
    try:
        live = live_environment(pid, proc_root)
        return (started_with(pid, proc_root), "exec") if live is None else (live, "live")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise UnknownState(f"process {pid} ended while its environment was read", reason="process gone", raw=str(error)) from error
    except OSError as error:
        raise UnknownState(
            f"the environment of process {pid} cannot be read: {error.strerror}",
            remedy="Run the task with become: true.",
            reason="permission",
            raw=str(error),
        ) from error
