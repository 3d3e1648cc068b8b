# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The live environment of a process, read from real processes, and the parsers it rests on."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import struct
import subprocess
import sys

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._process import live_env
from ansible_collections.gb10.cluster.plugins.module_utils._process.live_env import Mapping, Segment

MAPS = """555555554000-555555574000 r--p 00000000 fe:00 123                        /usr/bin/python3.11
555555574000-5555557f0000 r-xp 00020000 fe:00 123                        /usr/bin/python3.11
555555a00000-555555b00000 rw-p 00000000 00:00 0                          [heap]
7ffff7a00000-7ffff7a28000 r--p 00000000 fe:00 456                        /usr/lib/x86_64-linux-gnu/libc.so.6
7ffff7c00000-7ffff7c01000 rw-p 00000000 00:00 0
7ffff7d00000-7ffff7d10000 r--p 00000000 fe:00 789                        /opt/a b/libray.so (deleted)
"""

# What a rank goes through: Ray starts it, then sets variables; large ones span pages.
RANK = """
import os, sys
os.environ["LATER"] = "set=later"
os.environ["LARGE"] = "x" * 100000
os.environ["EARLY"] = "changed"
del os.environ["GONE"]
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def running(argv: list[str], env: dict[str, str]):
    process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        yield process.pid
    finally:
        process.communicate()


def test_what_a_process_sets_later_is_seen():
    with running([sys.executable, "-c", RANK], {"EARLY": "1", "GONE": "1"}) as pid:
        environ, source = live_env.environment(pid)
        assert live_env.parse_exec(open(f"/proc/{pid}/environ", "rb").read()) == {"EARLY": "1", "GONE": "1"}
    assert source == "live"
    assert environ["LATER"] == "set=later" and environ["EARLY"] == "changed" and "GONE" not in environ
    assert environ["LARGE"] == "x" * 100000


def test_a_program_that_does_not_use_the_variable_by_name_is_read_through_its_c_library():
    cat = shutil.which("cat")
    process = subprocess.Popen([cat], env={"ONLY": "this"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdin.write(b"x")
        process.stdin.flush()
        process.stdout.read(1)
        assert live_env.environment(process.pid) == ({"ONLY": "this"}, "live")
    finally:
        process.communicate()


def test_an_unreadable_memory_falls_back_and_is_marked(monkeypatch):
    monkeypatch.setattr(live_env, "variable_address", lambda pid, proc_root: None)
    with running([sys.executable, "-c", RANK], {"EARLY": "1", "GONE": "1"}) as pid:
        assert live_env.environment(pid) == ({"EARLY": "1", "GONE": "1"}, "exec")


def test_an_address_that_leads_nowhere_falls_back(monkeypatch):
    monkeypatch.setattr(live_env, "variable_address", lambda pid, proc_root: 16)
    with running([sys.executable, "-c", RANK], {"EARLY": "1", "GONE": "1"}) as pid:
        assert live_env.environment(pid)[1] == "exec"


def test_a_process_that_is_gone_is_unknown():
    with running([sys.executable, "-c", "print()"], {}) as pid:
        pass
    with pytest.raises(UnknownState, match="ended") as caught:
        live_env.environment(pid)
    assert caught.value.reason == "process gone"


def test_a_missing_permission_is_unknown(monkeypatch):
    def denied(_pid, _proc_root):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(live_env, "variable_address", denied)
    with pytest.raises(UnknownState, match="cannot be read: Permission denied") as caught:
        live_env.environment(os.getpid())
    assert "become" in caught.value.remedy


def test_maps():
    mappings = live_env.parse_maps(MAPS)
    assert [mapping.path for mapping in mappings] == [
        "/usr/bin/python3.11",
        "/usr/bin/python3.11",
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/opt/a b/libray.so (deleted)",
    ]
    assert mappings[1] == Mapping(0x555555574000, 0x5555557F0000, 0x20000, "/usr/bin/python3.11")


def test_maps_in_another_shape_are_unknown():
    with pytest.raises(UnknownState):
        live_env.parse_maps("nonsense\n")


def test_the_program_comes_before_the_c_library():
    groups = live_env.candidates(live_env.parse_maps(MAPS), "/usr/bin/python3.11")
    assert [group[0].path for group in groups] == ["/usr/bin/python3.11", "/usr/lib/x86_64-linux-gnu/libc.so.6"]
    assert len(groups[0]) == 2


@pytest.mark.parametrize(
    ("path", "is_libc"),
    [
        ("/usr/lib/aarch64-linux-gnu/libc.so.6", True),
        ("/usr/lib/aarch64-linux-gnu/libc.so.6 (deleted)", True),
        ("/lib/libc-2.31.so", True),
        ("/lib/ld-musl-aarch64.so.1", True),
        ("/usr/lib/libcap.so.2", False),
        ("/usr/lib/libc.so.6.bak", False),
    ],
)
def test_c_libraries(path, is_libc):
    assert bool(live_env.candidates([Mapping(0, 1, 0, path)], "/bin/x")) is is_libc


def test_load_bias_of_a_library_and_of_a_fixed_program():
    assert live_env.load_bias([Mapping(0x7000, 0x9000, 0, "l")], [Segment(0, 0, 0x500)]) == 0x7000
    assert live_env.load_bias([Mapping(0x400000, 0x401000, 0, "p")], [Segment(0, 0x400000, 0x500)]) == 0
    # The first page is not mapped; the second segment begins inside a page.
    assert live_env.load_bias([Mapping(0x12000, 0x14000, 0x2000, "l")], [Segment(0, 0, 0x500), Segment(0x2DF0, 0x3DF0, 0x100)], 4096) == 0xF000
    assert live_env.load_bias([Mapping(0x20000, 0x30000, 0, "l")], [Segment(0x2DF0, 0x3DF0, 0x100)], 65536) == 0x20000 - 0x1000
    assert live_env.load_bias([Mapping(0x12000, 0x14000, 0x5000, "l")], [Segment(0, 0, 0x500)]) is None
    assert live_env.load_bias([], []) is None


def elf(machine: int, symbols: dict[str, tuple[int, int]]) -> bytes:
    """Compose a minimal shared object: one loaded segment, one dynamic symbol table of name → (section, value)."""
    text = b"\0" + b"".join(name.encode() + b"\0" for name in symbols)
    table = bytes(24)
    for name, (section, value) in symbols.items():
        table += struct.pack("<IBBHQQ", text.index(b"\0" + name.encode() + b"\0") + 1, 0x11, 0, section, value, 8)
    program = struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, 0x1000, 0x1000, 0x10000)
    at = 64 + len(program)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 0, 11, 2, 0, at, len(table), 2, 0, 8, 24)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 2, 0, at + len(table), len(text), 0, 0, 1, 0)
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, at + len(table) + len(text), 0, 64, 56, 1, 64, 3, 0)
    return header + program + table + text + sections


@pytest.mark.parametrize("machine", [62, 183], ids=["x86-64", "aarch64"])
@pytest.mark.parametrize("name", ["environ", "__environ", "_environ"])
def test_a_symbol_is_found_on_both_architectures(machine, name):
    value, segments = live_env.find_symbol(io.BytesIO(elf(machine, {"getenv": (12, 0x50), name: (25, 0x4D20)})))
    assert value == 0x4D20
    assert segments == [Segment(0, 0, 0x1000)]


def test_a_symbol_that_is_only_used_does_not_count():
    value, _segments = live_env.find_symbol(io.BytesIO(elf(62, {"environ": (0, 0), "environment": (3, 0x10)})))
    assert value is None


@pytest.mark.parametrize(
    "content",
    [b"", b"#!/bin/sh\n" + bytes(100), b"\x7fELF\x01\x01" + bytes(100), b"\x7fELF\x02\x02" + bytes(100), elf(62, {"environ": (1, 1)})[:-10]],
    ids=["empty", "script", "32-bit", "big-endian", "cut off"],
)
def test_an_unusable_elf_file_is_refused(content):
    with pytest.raises(live_env.NotElf):
        live_env.find_symbol(io.BytesIO(content))


class Fake(live_env.Memory):
    """A memory of pages: address of the page → its bytes."""

    def __init__(self, content: dict[int, bytes]) -> None:
        self._content = content

    def read(self, address: int, size: int) -> bytes:
        for start, data in self._content.items():
            if start <= address < start + len(data):
                return data[address - start:address - start + size]
        raise OSError("nothing mapped")


def memory(*entries: bytes) -> Fake:
    strings = b"".join(entry + b"\0" for entry in entries)
    pointers, at = [], 0x3000
    for entry in entries:
        pointers.append(at)
        at += len(entry) + 1
    array = b"".join(pointer.to_bytes(8, "little") for pointer in [*pointers, 0])
    return Fake({0x1000: (0x2000).to_bytes(8, "little"), 0x2000: array, 0x3000: strings})


def test_walk():
    assert live_env.walk(memory(b"A=1", b"B=x=y", b"noequals", b"A=2", b"C="), 0x1000) == {"A": "1", "B": "x=y", "C": ""}
    assert live_env.walk(memory(), 0x1000) == {}
    assert live_env.walk(Fake({0x1000: bytes(8)}), 0x1000) == {}


def test_walk_ends_within_bounds(monkeypatch):
    endless = Fake({0x1000: (0x2000).to_bytes(8, "little"), 0x2000: (0x3000).to_bytes(8, "little") * 40000, 0x3000: b"A=1\0"})
    with pytest.raises(OSError, match="without an end"):
        live_env.walk(endless, 0x1000)
    monkeypatch.setattr(live_env, "TOTAL_LIMIT", 10)
    with pytest.raises(OSError, match="without an end"):
        live_env.walk(memory(b"A=123456789", b"B=1"), 0x1000)


def test_a_string_without_an_end():
    with pytest.raises(OSError, match="without an end"):
        Fake({0x3000: b"x" * (2 * live_env.STRING_LIMIT)}).string(0x3000)


def test_exec_environment():
    assert live_env.parse_exec(b"A=1\0B=\0C=x=y\0A=2\0\0junk\0") == {"A": "1", "B": "", "C": "x=y"}
    assert live_env.parse_exec(b"") == {}
