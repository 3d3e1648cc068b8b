# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of the engine, Ray, NCCL and related libraries that a node sets for every process. This module util is PRIVATE to the collection.

A variable in ``/etc/environment``, in a unit of systemd or in a login script reaches processes without the knowledge of their starter. An owner of
two Sparks reported that engine variables left in ``/etc/environment`` changed a later start.

Read are ``/etc/environment`` (the form of pam_env(8)), ``environment.d``, ``profile``, ``profile.d`` and the shells' own files, and of
systemd what an administrator can set: ``DefaultEnvironment=`` of ``system.conf`` and ``user.conf`` with their drop-ins, ``Environment=`` and
``EnvironmentFile=`` of units and drop-ins below ``/etc/systemd`` (systemd.exec(5)).
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, names, strict
from ansible_collections.gb10.cluster.plugins.module_utils._redact import shown_value

#: Names that change the behavior of an engine, Ray, NCCL, UCX, Gloo, CUDA or the hub's client. The prefixes are those that vLLM passes on to its
#: workers (vllm/ray/ray_env.py), those of the libraries below it, and the single names that common launchers set.
ENGINE_NAME = re.compile(
    r"^(?:(?:VLLM|RAY|NCCL|UCX|GLOO|TP|OMPI|CUDA|CUBLAS|CUDNN|NVIDIA|HF|HUGGING_?FACE|HUGGINGFACE_HUB|TRANSFORMERS|LMCACHE|FLASHINFER|TORCH|TORCHINDUCTOR"
    r"|PYTORCH|TRITON|SAFETENSORS|SGLANG|TRTLLM)_\w+|MASTER_ADDR|MASTER_PORT|MN_IF_NAME|WORLD_SIZE|RANK|LOCAL_RANK|PYTHONHASHSEED|OMP_NUM_THREADS)$"
)

#: A larger file is not a list of variables.
FILE_LIMIT = 1024 * 1024

#: Login scripts in addition to those in ``profile.d``: file below the root.
SHELL_FILES = ("profile", "bash.bashrc", "zsh/zshenv", "zsh/zprofile", "zshenv")


#: An assignment in a shell script, at the start of a word: ``export NAME=VALUE``, ``NAME=VALUE command``, ``alias x='NAME=VALUE command'``.
_ASSIGNMENT = re.compile(r"(?:^|[\s;&|('\"])(?P<name>[A-Za-z_]\w*)=")
_NAME = re.compile(r"^[A-Za-z_]\w*$")
#: A quoted part of a shell word, an escaped character, other characters.
_SHELL_PIECE = re.compile(r"""\"([^"]*)"?|'([^']*)'?|\\(.?)|([^\s;&|)"'\\]+)""")
_SHELL_WORD = re.compile(f"(?:{_SHELL_PIECE.pattern})*")

Pair = t.Tuple[str, str]


def is_engine_name(name: str) -> bool:
    """Return whether a variable changes the behavior of an engine or its libraries."""
    return bool(ENGINE_NAME.match(name))


def assignments(lines: t.Iterable[str]) -> list[Pair]:
    """Return (name, value) of the lines or words that assign a variable; others are skipped, as systemd does with a warning."""
    parts = (re.sub(r"^export\s+", "", line).partition("=") for line in lines)
    return [(name.strip(), value) for name, equals, value in parts if equals and _NAME.match(name.strip())]


def parse_pam(text: str) -> list[Pair]:
    """Return the variables of an ``/etc/environment`` text, in order.

    As pam_env(8) reads it: one ``NAME=VALUE`` a line, an ``export`` before it and quotes around the value are removed, a ``#`` begins a comment, and
    lines of another shape are skipped.
    """
    return [(name, _unquoted(value)) for name, value in assignments(line.split("#", 1)[0].strip() for line in text.splitlines())]


def _unquoted(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'" else value


def words(text: str) -> list[str]:
    """Return the words of a systemd value, whose quoting is close to a shell's. Raises :class:`UnknownState` when a quote is not closed."""
    try:
        return shlex.split(text)
    except ValueError:
        # Show nothing of the text: it may contain a secret anywhere.
        raise UnknownState("a quote is not closed") from None


def logical_lines(text: str) -> list[str]:
    """Return the lines of a systemd file: continued ones joined, comments (also between continued lines) and empty ones left out."""
    kept = "".join(f"{line}\n" for line in text.splitlines() if not line.lstrip().startswith(("#", ";")))
    return [line.strip() for line in kept.replace("\\\n", " ").splitlines() if line.strip()]


def parse_unit(text: str, keys: t.Collection[str]) -> list[Pair]:
    """Return (key, value) of each line of a systemd file that sets one of ``keys``, in order, whatever the section."""
    parts = (line.partition("=") for line in logical_lines(text))
    return [(key.strip(), value.strip()) for key, equals, value in parts if equals and key.strip() in keys]


def set_by(lines: t.Iterable[Pair]) -> list[Pair]:
    """Return the variables that the assignments of one file set; an empty one resets what the file set before (systemd.exec(5))."""
    pairs: list[Pair] = []
    for _key, value in lines:
        pairs = pairs + assignments(words(value)) if value else []
    return pairs


def parse_environment_file(text: str) -> list[Pair]:
    """Return the variables of an ``EnvironmentFile=`` or ``environment.d`` text: one a line, comments begin a line, quotes around a value are removed."""
    return [(name, _unquoted(value)) for name, value in assignments(logical_lines(text))]


def parse_shell(text: str) -> list[Pair]:
    """Return the assignments in a shell script that name an engine variable, in order, whether or not the shell would execute them.

    The effect of a shell script is unknown without running it; this errs on the side of reporting. A value is returned as written, up to the end of
    its word, without what it would expand to.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    matches = ((line, match) for line in lines for match in _ASSIGNMENT.finditer(line))
    return [(match["name"], _shell_word(line[match.end():])) for line, match in matches if is_engine_name(match["name"])]


def _shell_word(rest: str) -> str:
    """Return the text up to the end of a shell word, without its quotes; all of it when a quote continues on the next line."""
    return "".join(piece[piece.lastindex] for piece in _SHELL_PIECE.finditer(_SHELL_WORD.match(rest)[0]))


def read_text(path: str) -> str | None:
    """Return a file as text, None when it is absent, not a plain file (a masked unit is a link to ``/dev/null``) or a dangling link.

    Raises OSError when it may not be read, :class:`UnknownState` when it is larger than :data:`FILE_LIMIT`.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as stream:
            raw = stream.read(FILE_LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(raw) > FILE_LIMIT:
        raise UnknownState(f"{path} is too large for a list of variables ({FILE_LIMIT} bytes are read)")
    return raw.decode("utf-8", "replace")


class _Reader:
    """Gathers variables file by file; a file that cannot be read or parsed is noted by ``section``, and the others are still read."""

    def __init__(self, root: str, section: Section) -> None:
        self.root, self.section = root, section
        self.found: list[dict[str, str]] = []

    def path(self, *parts: str) -> str:
        return os.path.join(self.root, *parts)

    def names(self, *parts: str, suffix: str) -> list[str]:
        """Return the entries of a directory below the root that end in ``suffix``."""
        return [name for name in self.section(lambda: names(self.path(*parts)), []) if name.endswith(suffix)]

    def read(self, where: str, path: str, parse: t.Callable[[str], list[Pair]]) -> None:
        """Add the variables of one file."""
        self.found += [
            {"where": where, "name": name, "value": shown_value(name, value), "path": path}
            for name, value in self.section(lambda: _variables(path, parse), [])
            if is_engine_name(name)
        ]

    def config(self, name: str) -> None:
        """Add what ``system.conf`` or ``user.conf`` and their drop-ins set for every unit."""
        drop_ins = (self.path("systemd", f"{name}.conf.d", drop_in) for drop_in in self.names("systemd", f"{name}.conf.d", suffix=".conf"))
        for path in (self.path("systemd", f"{name}.conf"), *drop_ins):
            self.read(f"systemd:{name}.conf", path, lambda text: set_by(parse_unit(text, ("DefaultEnvironment",))))

    def units(self, directory: str) -> None:
        """Add what the units below one directory of systemd, and their drop-ins, set for their processes."""
        for name in self.names("systemd", directory, suffix=".service"):
            self.unit(name, self.path("systemd", directory, name))
        for name in self.names("systemd", directory, suffix=".service.d"):
            for drop_in in self.names("systemd", directory, name, suffix=".conf"):
                self.unit(name.removesuffix(".d"), self.path("systemd", directory, name, drop_in))

    def unit(self, name: str, path: str) -> None:
        """Add what one unit or drop-in sets, and what the files set that it names."""
        files: list[str] = []

        def parse(text: str) -> list[Pair]:
            lines = parse_unit(text, ("Environment", "EnvironmentFile"))
            files.extend(value.removeprefix("-") for key, value in lines if key == "EnvironmentFile")
            return set_by(line for line in lines if line[0] == "Environment")

        self.read(f"systemd:{name}", path, parse)
        for named in files:
            # Elsewhere it is the unit's own, and may be on another file system; a pattern or a specifier of systemd is not resolved.
            if named.startswith("/etc/") and not set("*?[%$") & set(named):
                self.read(f"systemd:{name}", self.path(named[len("/etc/"):]), parse_environment_file)


def _variables(path: str, parse: t.Callable[[str], list[Pair]]) -> list[Pair]:
    """Return the variables of one file, none when it is absent. Raises OSError, and :class:`UnknownState` that names the file."""
    text = read_text(path)
    try:
        return parse(text) if text is not None else []
    except UnknownState as error:
        raise UnknownState(f"{path}: {error}", remedy="Correct the file, or remove it.", **error.details) from error


def environment(etc_root: str, section: Section = strict) -> list[dict[str, str]]:
    """Return the section ``environment`` of ``node_info``: the engine's variables that this node sets for every process, as ``{where, name, value, path}``.

    ``where`` is ``/etc/environment``, ``environment.d:FILE``, ``profile.d:FILE``, ``shell:FILE``, ``systemd:UNIT``, ``systemd:system.conf`` or
    ``systemd:user.conf``; ``path`` the file itself. A value that looks like a secret is not returned. ``etc_root`` replaces ``/etc``. Files
    that cannot be read or parsed are noted by ``section``. Raises OSError when ``etc_root`` itself cannot be listed.
    """
    os.listdir(etc_root)
    reader = _Reader(etc_root, section)
    reader.read("/etc/environment", reader.path("environment"), parse_pam)
    for name in reader.names("environment.d", suffix=".conf"):
        reader.read(f"environment.d:{name}", reader.path("environment.d", name), parse_environment_file)
    for name in SHELL_FILES:
        reader.read(f"shell:{name}", reader.path(name), parse_shell)
    for name in reader.names("profile.d", suffix="sh"):
        reader.read(f"profile.d:{name}", reader.path("profile.d", name), parse_shell)
    for name in ("system", "user"):
        reader.config(name)
        reader.units(name)
    return reader.found
