# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The running kernel, its modules, and the next boot, on composed trees."""

from __future__ import annotations

import os
import pathlib

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import kernel
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures/modinfo"
RELEASE, NEWER = "6.11.0-1016-nvidia", "6.17.0-1032-nvidia"
MODULES_DEP = """kernel/drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko.zst: kernel/drivers/net/vxlan/vxlan.ko.zst
kernel/nvidia-580-open/nvidia.ko:
updates/dkms/nvidia-uvm.ko: kernel/nvidia-580-open/nvidia.ko
"""
FUZZ = hypothesis.settings(deadline=None, derandomize=True, database=None)


#: What modinfo prints of the driver's modules, and of mlx5_core.
NVIDIA = f"""license:        Dual MIT/GPL
version:        580.95.05
srcversion:     ABC
vermagic:       {RELEASE} SMP preempt mod_unload modversions aarch64
alias:          pci:*
alias:          x
"""


def tree(root: pathlib.Path, **files: str | bytes) -> dict[str, str]:
    """Build a node: loaded modules below sys, installed ones below modules, kernels below boot."""
    everything: dict[str, str | bytes] = {
        "proc/sys/kernel/osrelease": RELEASE + "\n",
        "proc/sys/kernel/arch": "aarch64\n",
        "proc/sys/kernel/random/boot_id": "2a5dc1f5-3983-4f96-a958-ebff58fa47ab\n",
        "proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz root=/dev/nvme0n1p2 nvidia-drm.modeset=1\n",
        "proc/uptime": "8462.83 16000.01\n",
        "sys/module/nvidia/version": "580.95.05\n",
        "sys/module/nvidia_uvm/version": "580.65.06\n",
        "sys/module/nvidia_drm/version": "580.95.05\n",
        "sys/module/nvidia_drm/parameters/modeset": "Y\n",
        "sys/module/mlx5_core/srcversion": "0123456789ABCDEF\n",
        f"modules/{RELEASE}/modules.dep": MODULES_DEP,
        f"modules/{RELEASE}/modules.builtin": "kernel/drivers/infiniband/core/ib_uverbs.ko\n",
        f"modules/{RELEASE}/kernel/nvidia-580-open/nvidia.ko": b"",
        f"modules/{RELEASE}/updates/dkms/nvidia-uvm.ko": b"",
        f"modules/{RELEASE}/kernel/drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko.zst": b"",
        f"modules/{NEWER}/modules.dep": "kernel/fs/ext4.ko:\n",
        f"boot/vmlinuz-{RELEASE}": "",
        f"boot/vmlinuz-{NEWER}": "",
        **files,
    }
    for name, content in everything.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return {"proc_root": str(root / "proc"), "sysfs_root": str(root / "sys"), "modules_root": str(root / "modules"), "boot_root": str(root / "boot")}


MODINFO = f"""filename:       /x/mlx5_core.ko.zst
license:        Dual BSD/GPL
srcversion:     0123456789ABCDEF
vermagic:       {RELEASE} SMP preempt
parm:           a:b (int)
"""


@pytest.fixture
def modinfo(monkeypatch):
    def modinfo(result=ToolResult(0, MODINFO, "")):
        monkeypatch.setattr(kernel, "run_tool", lambda argv, timeout: ToolResult(0, NVIDIA, "") if "nvidia" in pathlib.Path(argv[-1]).name else result)

    modinfo()
    return modinfo


class Noted:
    def __init__(self):
        self.errors = []

    def __call__(self, reader, otherwise=None):
        try:
            return reader()
        except (UnknownState, OSError) as error:
            self.errors.append(str(error))
            return otherwise


def test_a_node(tmp_path, modinfo):
    assert kernel.kernel(**tree(tmp_path)) == {
        "release": RELEASE,
        "arch": "aarch64",
        "boot_id": "2a5dc1f5-3983-4f96-a958-ebff58fa47ab",
        "cmdline": "BOOT_IMAGE=/boot/vmlinuz root=/dev/nvme0n1p2 nvidia-drm.modeset=1",
        "uptime_s": 8462.83,
        "modules": {
            "nvidia": {"loaded": "580.95.05", "installed": "580.95.05"},
            "nvidia_uvm": {"loaded": "580.65.06", "installed": "580.95.05"},
            "nvidia_drm": {"loaded": "580.95.05", "installed": None},
            "mlx5_core": {"loaded": "srcversion 0123456789ABCDEF", "installed": "srcversion 0123456789ABCDEF"},
            "ib_uverbs": {"loaded": None, "installed": RELEASE},
        },
        "next_boot": {"release": NEWER, "has_nvidia_driver": False},
        "parameters": {"nvidia_drm.modeset": "Y"},
        "nvidia_flavor": None,
        "nvidia_modprobe": None,
    }


def test_a_container_has_neither_modules_nor_kernels(tmp_path):
    roots = tree(tmp_path)
    noted = Noted()
    roots.update(sysfs_root=str(tmp_path / "none"), modules_root=str(tmp_path / "none"), boot_root=str(tmp_path / "none"))
    facts = kernel.kernel(**roots, section=noted)
    assert facts["modules"] == {} and facts["parameters"] == {} and facts["next_boot"] == {"release": None, "has_nvidia_driver": None}
    assert noted.errors == []


@pytest.mark.parametrize("result", [ToolResult(1, "", "modinfo: ERROR: Module x not found."), ToolResult(0, "", ""), ToolResult(0, "Fehler\n", "")])
def test_a_module_that_modinfo_cannot_read_is_noted(tmp_path, modinfo, result):
    modinfo(result)
    noted = Noted()
    facts = kernel.kernel(**tree(tmp_path), section=noted)
    assert facts["modules"]["mlx5_core"] == {"loaded": "srcversion 0123456789ABCDEF", "installed": None} and len(noted.errors) == 1
    assert facts["modules"]["nvidia"]["installed"] == "580.95.05"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("proc/uptime", "rubbish"),
        (f"modules/{NEWER}/modules.dep", "rubbish"),
    ],
)
def test_what_cannot_be_read_is_noted_and_hides_nothing_else(tmp_path, modinfo, name, content):
    noted = Noted()
    facts = kernel.kernel(**tree(tmp_path, **{name: content}), section=noted)
    assert len(noted.errors) == 1 and facts["release"] == RELEASE and facts["modules"]["nvidia"]["loaded"] == "580.95.05"


@pytest.mark.parametrize(("name", "path"), [("nvidia", "nvidia-580-open/nvidia.ko"), ("mlx5_core", "drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko.zst")])
def test_a_module_file_that_is_gone_is_noted(tmp_path, modinfo, name, path):
    roots = tree(tmp_path)
    os.unlink(tmp_path / f"modules/{RELEASE}/kernel" / path)
    noted = Noted()
    assert kernel.kernel(**roots, section=noted)["modules"][name]["installed"] is None
    assert path in noted.errors[0] and "No such file" in noted.errors[0]


@pytest.mark.parametrize(
    ("grub", "expected"),
    [
        (None, NEWER),
        (f'set default="0"\nmenuentry x {{\n\tlinux\t/boot/vmlinuz-{RELEASE} root=UUID=1 ro\n}}\n', RELEASE),
        (f'   set default="${{next_entry}}"\n   set default="0"\nlinux /vmlinuz-{RELEASE} ro\nlinux /vmlinuz-{NEWER} ro\n', RELEASE),
        # The file alone does not determine the boot entry: the newest kernel starts.
        (f'set default="${{saved_entry}}"\nlinux /vmlinuz-{RELEASE} ro\n', NEWER),
        (f'set default="1>2"\nlinux /vmlinuz-{RELEASE} ro\n', NEWER),
        ('set default="0"\nlinux /vmlinuz-6.99.0-gone ro\n', NEWER),
        ("", NEWER),
    ],
)
def test_the_kernel_of_the_next_boot(tmp_path, grub, expected):
    roots = tree(tmp_path, **({} if grub is None else {"boot/grub/grub.cfg": grub}))
    assert kernel.next_boot(roots["boot_root"], roots["modules_root"]) == {"release": expected, "has_nvidia_driver": expected == RELEASE}


def test_an_unreadable_grub_file_is_noted_and_the_newest_kernel_returned(tmp_path, monkeypatch):
    roots = tree(tmp_path, **{"boot/vmlinuz-6.99.0-rc1.old": "", "boot/vmlinuz": "", "boot/vmlinuz-6.9.0-2000-nvidia": ""})
    real = kernel.optional_text

    def denied(path):
        if path.endswith("grub.cfg"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(kernel, "optional_text", denied)
    noted = Noted()
    assert kernel.next_boot(roots["boot_root"], roots["modules_root"], noted)["release"] == NEWER and len(noted.errors) == 1


def test_a_boot_directory_that_may_not_be_read_is_noted(tmp_path, monkeypatch, modinfo):
    def denied(path):
        raise PermissionError(13, "Permission denied", path)

    roots = tree(tmp_path)
    monkeypatch.setattr(kernel, "names", denied)
    noted = Noted()
    assert kernel.kernel(**roots, section=noted)["next_boot"] == {"release": None, "has_nvidia_driver": None} and len(noted.errors) == 1


@pytest.mark.parametrize(
    ("cmdline", "expected"),
    [("nvidia-drm.modeset=1", "Y"), ("nvidia_drm.modeset=1 nvidia-drm.modeset=0", "N"), ("quiet", None), ("nvidia-drm.modeset=7", None)],
)
def test_a_parameter_that_is_roots_alone(tmp_path, monkeypatch, modinfo, cmdline, expected):
    roots = tree(tmp_path, **{"proc/cmdline": cmdline})
    real = kernel.optional_text

    def denied(path):
        if path.endswith("parameters/modeset"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(kernel, "optional_text", denied)
    noted = Noted()
    facts = kernel.kernel(**roots, section=noted)
    assert facts["parameters"] == {"nvidia_drm.modeset": expected} and len(noted.errors) == (expected is None)


def test_releases_are_sorted_as_numbers():
    assert sorted(["6.9.0-1", "6.17.0-1032-nvidia", "6.17.0-999-nvidia", "7.0.0-1", "6.17.0-1032-nvidia-64k"], key=kernel.version_key) == [
        "6.9.0-1",
        "6.17.0-999-nvidia",
        "6.17.0-1032-nvidia",
        "6.17.0-1032-nvidia-64k",
        "7.0.0-1",
    ]


def test_the_version_of_a_module_without_one_is_its_kernels():
    assert kernel.version_of(None, None, RELEASE) == RELEASE
    assert kernel.version_of("", "AB", RELEASE) == "srcversion AB"


def test_a_recorded_modinfo():
    known = kernel.parse_modinfo((FIXTURES / "recorded_mlx5_core.txt").read_text())
    assert known["name"] == "mlx5_core" and known["vermagic"].split(" ")[0] == "6.1.0-56-cloud-amd64"
    assert "version" not in known and "srcversion" not in known


@FUZZ
@hypothesis.given(st.sampled_from(["", MODULES_DEP, MODINFO]), st.integers(0, 300), st.text(max_size=40))
def test_mutated_texts_are_read_or_unknown(text, start, piece):
    text = text[:start] + piece + text[start:]
    for parse in (kernel.parse_modules_dep, kernel.parse_modinfo):
        try:
            parse(text)
        except UnknownState:
            pass
    kernel.version_key(text)
    kernel.grub_release(text)
    kernel.command_line_parameter(text, "nvidia_drm", "modeset")


@pytest.mark.parametrize(
    ("text", "flavor"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.159.03  Release Build  (dvs-builder)\nGCC version:  gcc 13.3.0\n", "open"),
        ("NVRM version: NVIDIA UNIX aarch64 Kernel Module  580.173.02  Tue Jul 14\n", "proprietary"),
        ("something else\n", None),
        (None, None),
    ],
)
def test_which_of_nvidias_modules_are_loaded(tmp_path, text, flavor):
    """The forms are those of the driver's own sources and of public logs."""
    if text:
        (tmp_path / "driver/nvidia").mkdir(parents=True)
        (tmp_path / "driver/nvidia/version").write_text(text)
    assert kernel.nvidia_flavor(str(tmp_path)) == flavor


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("printf 'ii  610.43.02-1ubuntu1'", "610.43.02-1ubuntu1"),
        ("printf 'rc  580.95.05-1ubuntu1'", None),
        ("echo no packages found matching nvidia-modprobe >&2; exit 1", None),
        (None, None),
    ],
)
def test_the_version_of_a_package(tmp_path, script, version):
    tool = tmp_path / "dpkg-query"
    if script:
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    assert kernel.package_version("nvidia-modprobe", str(tool)) == version


def test_a_machines_id_is_hashed(tmp_path):
    assert kernel.machine(str(tmp_path)) is None
    (tmp_path / "machine-id").write_text("94aab569fe9b439c94e0a257732f3a4f\n")
    first = kernel.machine(str(tmp_path))
    assert len(first) == 16 and "94aab" not in first
    (tmp_path / "machine-id").write_text("b65e11b9d08a44009d0156d58d792998\n")
    assert kernel.machine(str(tmp_path)) != first


def test_uptime(tmp_path):
    assert kernel.uptime("/proc") > 0
    for text in ("", "soon 1", "nan 1", "inf 2"):
        (tmp_path / "uptime").write_text(text)
        with pytest.raises(UnknownState):
            kernel.uptime(str(tmp_path))
