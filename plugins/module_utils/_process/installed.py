# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The installed versions of packages that matter to an engine. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._files.files import names

#: An installed package: a directory of its metadata, as pip writes it.
_DISTRIBUTION = re.compile(
    r"^(?P<name>vllm|ray|torch|sglang|transformers|flashinfer_python|nvidia_nccl_cu\d+|tensorrt_llm)-(?P<version>[^-]+)\.(?:dist|egg)-info$", re.IGNORECASE
)
#: Where Python's packages are below a prefix, and the prefixes that common images use.
_LIBRARIES = ("site-packages", "dist-packages")
_PREFIXES = ("/opt/venv", "/usr/local", "/usr")
_IN_LIBRARY = re.compile(r"^(?P<library>/.*?/(?:site|dist)-packages)/")
_IN_BIN = re.compile(r"^(?P<prefix>/.+)/bin/[^/]+$")


def library_places(argvs: t.Iterable[t.Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return (directories of packages, prefixes) that command lines name, with the usual ones last."""
    matches = [(_IN_LIBRARY.match(word), _IN_BIN.match(word)) for argv in argvs for word in argv[:3]]
    libraries = dict.fromkeys(library["library"] for library, _prefix in matches if library)
    prefixes = dict.fromkeys(prefix["prefix"] for library, prefix in matches if prefix and not library)
    return list(libraries), list({**prefixes, **dict.fromkeys(_PREFIXES)})


def versions(root: str, argvs: t.Iterable[t.Sequence[str]]) -> dict[str, str]:
    """Return the versions of packages that matter to an engine, by package, as installed below ``root``, the file system of its processes.

    The first place that has a package counts, those that the command lines name before the usual ones. Raises OSError when ``root`` may
    not be read.
    """
    libraries, prefixes = library_places(argvs)
    os.listdir(root)
    for base in (f"{prefix}/lib" for prefix in prefixes):
        pythons = [name for name in reversed(names(root + base)) if name.startswith("python3")]
        libraries += [f"{base}/{python}/{library}" for python in pythons for library in _LIBRARIES]
    matches = (_DISTRIBUTION.match(name) for library in dict.fromkeys(libraries) for name in names(root + library))
    by_package: dict[str, str] = {}
    for match in filter(None, matches):
        by_package.setdefault(match["name"].lower().replace("_", "-"), match["version"])
    return by_package
