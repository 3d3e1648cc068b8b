# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small files: missing, unreadable, or not understood."""

from __future__ import annotations

import errno
import os

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files


def failing(monkeypatch, code):
    def fail(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("builtins.open", fail)
    monkeypatch.setattr(os, "listdir", fail)


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV, errno.ENOTDIR])
def test_what_does_not_exist_is_none(monkeypatch, code):
    failing(monkeypatch, code)
    assert files.optional_text("/sys/x") is None and files.optional_number("/sys/x") is None and files.names("/sys/x") == []
    with pytest.raises(OSError):
        files.required_text("/sys/x")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EIO])
def test_what_may_not_be_read_is_reported(monkeypatch, code):
    failing(monkeypatch, code)
    for read in (files.optional_text, files.optional_number, files.names):
        with pytest.raises(OSError):
            read("/sys/x")


def test_texts_and_numbers(tmp_path):
    (tmp_path / "a").write_bytes(b" 12\n")
    (tmp_path / "b").write_bytes(b"\xff\xfe\n")
    assert files.optional_number(str(tmp_path / "a")) == 12 and files.required_text(str(tmp_path / "b")) == "\ufffd\ufffd"
    assert files.names(str(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("text", ["", "x", "1.5", "--1", "0x10", "١٢", "1 2", "9" * 21, "²"])
def test_text_that_is_not_a_number_is_unknown(text):
    with pytest.raises(UnknownState) as caught:
        files.number(text, "/sys/x")
    assert "/sys/x" in str(caught.value) and caught.value.details["raw"] == text


def test_a_strict_part_lets_failures_through():
    assert files.strict(lambda: 3, 4) == 3
    with pytest.raises(ZeroDivisionError):
        files.strict(lambda: 1 // 0, 4)


def test_the_boot_has_an_id(tmp_path):
    assert len(files.boot_id("/proc")) == 36
    with pytest.raises(UnknownState, match="boot_id"):
        files.boot_id(str(tmp_path))
