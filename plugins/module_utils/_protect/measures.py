# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps a node reachable, each measure with its reason and the source of its numbers. This module util is PRIVATE to the collection.

The report and the page docs/protect.md come from this table; a test compares the page with it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._process import classify

#: What the kernel never kills; OpenSSH's listener gives itself this (openssh-portable, openbsd-compat/port-linux.c, oom_adjust_setup).
NEVER_KILLED = -1000

#: Seconds after which the journal is synced to the disk. Stock are 300 (journald.conf(5)).
SYNC_SECONDS = 10

#: vm.swappiness; the remedy of the reports of thrashing. Not 0: with that the kernel does not swap before memory runs out (admin-guide/sysctl/vm.rst).
SWAPPINESS = 1

#: earlyoom acts below the smaller of this (KiB of MemAvailable, 2 GiB) and of MemTotal / :data:`SHARE`: the same share of a node of half the size.
ACTS_BELOW_KIB = 2 * 1024 * 1024
SHARE = 60
#: KiB of MemAvailable on a healthy node that serves, the least that was reported (one of three Sparks, 2026-09-12); two had 3.9 and 4.1 GiB after 8 h.
HEALTHY_KIB = 3659708

#: What its option -p does, as its manual says for its unit: that lacks the capabilities for it, and from 1.8 on is ended for the attempt.
EARLYOOM_FIRST = "Nice=-20\nOOMScoreAdjust=-100\n"

#: comm of processes (15 bytes at most) whose end helps nobody; earlyoom takes 300 from their score.
AVOIDED = (
    "sshd", "sshd-session", "systemd", "systemd-journal", "systemd-logind", "systemd-udevd", "systemd-network", "systemd-resolve", "dockerd", "containerd",
    "containerd-shim", "dbus-daemon",
)  # fmt: skip
#: What the name of a process is cut to (proc_pid_comm(5)).
COMM = 15

#: Patterns of packages that are held: what an update replaces under an engine that runs.
HOLDS = (
    ("kernel", ("linux-image-*", "linux-headers-*", "linux-modules-*", "linux-tools-*", "linux-nvidia*", "linux-generic*")),
    (
        "NVIDIA driver",
        ("nvidia-driver-*", "nvidia-open*", "nvidia-kernel-*", "nvidia-dkms-*", "nvidia-firmware-*", "nvidia-compute-utils-*", "nvidia-utils-*", "libnvidia-*"),
    ),
    ("Docker and containerd", ("docker.io", "docker-ce*", "containerd", "containerd.io", "runc", "nvidia-container-toolkit*", "libnvidia-container*")),
)


def preferred() -> tuple[str, ...]:
    """Return the beginnings of the names of the engines' processes that hold a model, as the kernel cuts them."""
    kinds = (classify.ENGINE_CORE, classify.RANK)
    return tuple(title[:COMM] for how, title, kind, _engine in classify.TABLE if how == classify.TITLE and kind in kinds)


def earlyoom_arguments(mem_total_kib: int) -> str:
    """Return earlyoom's arguments for a node; one line, without quotes and with single spaces."""
    acts = min(ACTS_BELOW_KIB, mem_total_kib // SHARE)
    return f"-r 3600 -M {acts},{acts // 2} -s 100,100 --prefer ^({'|'.join(preferred())}) --avoid ^({'|'.join(AVOIDED)})$"


class Figure(t.NamedTuple):
    """A number or a choice of a measure, why it is so, and who says it."""

    text: str
    why: str
    source: str


class Measure(t.NamedTuple):
    """``does`` is what it changes, ``reason`` why that is wanted."""

    id: str
    does: str
    reason: str
    figures: tuple[Figure, ...]


_OPENSSH = "https://github.com/openssh/openssh-portable: openbsd-compat/port-linux.c and platform.c"
_PULSAR = "luisefigueroa/pulsar-gb10-vllm-stack, two nodes that served for 8 h, 2026-08-01"
_EARLYOOM = "https://github.com/rfjakob/earlyoom: MANPAGE.md"
_TP, _SPARKRUN = "TechPreacher/dgx-spark-vllm-cluster", "scitrera/sparkrun"

MEASURES = (
    Measure(
        "sshd",
        "Gives the sshd that takes connections an OOM score of -1000, at once and without a restart, only where it has not got it by itself.",
        "A node without memory that answers pings and no login needs somebody at its power cable.",
        (
            Figure("-1000", "the kernel never kills such a process, and OpenSSH writes it for its listener by itself", _OPENSSH),
            Figure(
                "no drop-in with OOMScoreAdjust",
                "OpenSSH gives each login the score that sshd was started with, so such a drop-in makes every login unkillable, too",
                _OPENSSH,
            ),
            Figure("sshd starves first", "pings were answered and logins were not, until the power was cut", "corti.com, 2026-06-14"),
        ),
    ),
    Measure(
        "journal",
        "Writes a drop-in and restarts systemd-journald, which keeps the streams of its services. Its OOM score stays as systemd has it.",
        "What a node said before it died can be read after its next boot only if it was on the disk.",
        (
            Figure("Storage=persistent", "without it the journal lies in memory where /var/log/journal does not exist", "journald.conf(5)"),
            Figure(
                f"SyncIntervalSec={SYNC_SECONDS}s",
                "stock are 5 minutes, and only lines of level crit and worse are synced at once; 10 s is a choice of this collection, not measured",
                "journald.conf(5)",
            ),
            Figure("a journal that stops in the middle of a line", "what a freeze leaves", "NVIDIA/open-gpu-kernel-modules#1358"),
        ),
    ),
    Measure(
        "earlyoom",
        "Installs earlyoom, with a drop-in for its arguments that is there before it starts. Not beside systemd-oomd or an earlyoom of yours that acts.",
        "The kernel's own OOM killer comes too late where a driver holds the memory: the host freezes without a line.",
        (
            Figure("-s 100,100", "stock settings do nothing, since earlyoom acts only when memory and swap are both low", f"{_TP}; {_EARLYOOM}"),
            Figure(
                f"-M, {ACTS_BELOW_KIB} KiB (2 GiB), at most 1/{SHARE} of MemTotal; SIGKILL at half of it",
                "healthy nodes serve for hours with 3.5 to 4.4 GiB available, so it lies below that; 2 GiB is a choice of this collection",
                f"{_PULSAR}; others use {_TP} -m 4,2, {_SPARKRUN} -m 3",
            ),
            Figure(
                "before 1.8 alone",
                "from 1.8 on -M becomes a share of what is available and what processes hold; what a driver holds is neither, so it has no effect here",
                f"{_EARLYOOM}, and its commit 459d7629",
            ),
            Figure(
                "Nice=-20, OOMScoreAdjust=-100",
                "what its option -p does: last to be ended, first to run. Its unit denies it -p, and newer ones end it for that",
                f"{_EARLYOOM}; rfjakob/earlyoom#215, #277, #313",
            ),
            Figure("--avoid", "the end of sshd, systemd, Docker and containerd costs the node and frees nothing", _SPARKRUN),
            Figure("--prefer", "memory that CUDA holds is not in the score that decides who ends, so the engines' ranks are named", _SPARKRUN),
        ),
    ),
    Measure(
        "swap",
        "Writes a drop-in for sysctl and sets vm.swappiness at once, where the kernel lets it. Swap stays on.",
        "A load that swaps takes four times as long on one rank, and the other one gives up waiting.",
        (
            Figure(f"vm.swappiness = {SWAPPINESS}", "the remedy of the reports", "al-engr.com/minimax-sglang-debug.html; graphistry/pygraphistry#1671"),
            Figure("not 0", "with that the kernel does not swap before memory runs out", "https://docs.kernel.org/admin-guide/sysctl/vm.html"),
            Figure("swap stays on", "healthy pairs have 3 to 6 GiB of it in use", _PULSAR),
        ),
    ),
    Measure(
        "holds",
        "Holds the installed packages of kernel, NVIDIA driver, Docker and containerd, as apt-mark hold does. What you hold already stays yours.",
        "An update of one of these ends the engine, or the next boot has a driver and a kernel that nobody tried. Held packages get no security fixes.",
        tuple(Figure(", ".join(patterns), title, "an owner's apt-mark showhold on DGX OS 7.6.0 for the kernel") for title, patterns in HOLDS),
    ),
    Measure(
        "unattended",
        "Reports whether upgrades come unattended, and from which origins. Changes nothing; the measure holds keeps them away from what matters.",
        "An upgrade at night replaces what an engine needs.",
        (Figure("APT::Periodic::Unattended-Upgrade", "on when it is not 0 and the timer apt-daily-upgrade is enabled", "apt.systemd.daily"),),
    ),
)

BY_ID = {measure.id: measure for measure in MEASURES}
