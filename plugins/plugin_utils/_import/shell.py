# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parses a recipe's command without a shell: variables, and the words of the engine's command. This plugin util is PRIVATE to the collection.

Anything that only a shell could do is refused by its name. Nothing is executed.
"""

from __future__ import annotations

import itertools
import re
import shlex
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.plugin_utils._import import places
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.ledger import Ledger, RecipeError
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.template import CLOSE, OPEN, as_written, missing, without_missing

#: A dollar sign and a backtick in quotes that protect them, a dollar sign in double quotes, and a blank at which an unquoted variable is split into words.
_DOLLAR, _BACKTICK, _QUOTED_DOLLAR, _GAP = "\ue004", "\ue005", "\ue006", "\ue007"

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)
_VARIABLE = re.compile(
    rf"(?P<dollar>[${_QUOTED_DOLLAR}])(?:(?P<all>[@*])|(?P<plain>[A-Za-z_]\w*)"
    rf"|[{{{OPEN}](?P<name>[A-Za-z_]\w*)(?::?-(?P<default>[^{{}}{OPEN}{CLOSE}]*))?[}}{CLOSE}])"
)
#: A variable in a form that only a shell expands; a lone dollar sign is literal.
_LEFT_OVER = re.compile(rf"[${_QUOTED_DOLLAR}][\w{{{OPEN}(!#?$-]")
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")

_OPERATORS = {
    "|": "a pipe", "|&": "a pipe", "||": "a command that runs when another one fails", "&": "a command in the background",
    "(": "a subshell", ")": "a subshell", ">": "a redirection", ">>": "a redirection", "<": "a redirection", ";;": "a case",
}  # fmt: skip
_SEPARATORS = (";", "&&")
_KEYWORDS = {"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "function", "{", "}", "[[", "[", "test", "!"}
#: Commands that do not affect the engine.
HARMLESS = {"set", "echo", "printf", "true", ":", "sleep", "date", "clear"}
#: Commands that make, copy or link files.
_FILES = {"mkdir", "cp", "rsync", "ln"}
#: Words that may follow one of these: they hide its output and its failure.
_HIDES = (["2", ">", "/dev/null"], [">", "/dev/null"], ["&>", "/dev/null"], ["2", ">&", "1"], ["||", "true"], ["||", ":"])
#: Commands that only start what follows them.
_STARTERS = {"exec", "nohup", "time", "command"}
_SHELLS = {"bash", "sh", "dash", "zsh"}
_PYTHON = re.compile(r"python[0-9.]*\Z")

#: Engines by the program that starts them, where the table of processes has no entry for it, by their own names, and by sparkrun's names of runtimes.
ENGINES = {
    "sglang": "SGLang", "sglang_router": "SGLang", "llama-cli": "llama.cpp", "llama-cpp": "llama.cpp", "llama_cpp": "llama.cpp",
    "llama.cpp": "llama.cpp", "rpc-server": "llama.cpp", "ik_llama": "llama.cpp", "trtllm": "TensorRT-LLM",
    "tensorrt_llm": "TensorRT-LLM", "mpirun": "an engine under MPI", "tensorfold": "TensorFold", "tensorfold-server": "TensorFold", "tfold": "TensorFold",
    "atlas": "Atlas", "modular-max": "MAX", "max": "MAX", "ollama": "Ollama", "lmdeploy": "LMDeploy", "mlc_llm": "MLC LLM", "tabbyapi": "TabbyAPI",
    "ds4": "ds4", "ds4-server": "ds4", "text-generation-launcher": "Text Generation Inference", "triton": "Triton Inference Server",
    "dynamo": "Dynamo", "vllm-omni": "vLLM-Omni", "vllm_omni": "vLLM-Omni", "uvicorn": "a server of its own (uvicorn)", "ktransformers": "KTransformers",
}  # fmt: skip

_SHELL_REMEDY = "write the command without it, as variables and one `vllm serve`"
OTHER_ENGINE_REMEDY = "import a recipe for vLLM: this collection starts no other engine"


class Command(t.NamedTuple):
    """The engine's command: the words after ``vllm serve``, and the variables that the command sets."""

    words: list[str]
    env: dict[str, str]
    #: Links that commands before it make, by their names.
    links: dict[str, str]


class Refused(RecipeError):
    """A command needs a shell, or starts another program. ``where`` is that part of it."""


def engine_named(name: str) -> str:
    """Return the engine of a program, a module or a runtime; empty for vLLM, and for an unknown name."""
    name = name.rpartition("/")[2].lower().replace("tensor-fold", "tensorfold")
    _kind, engine = classify.judge((name,)) or ("", "")
    known = next((ENGINES[candidate] for candidate in (name, engine, name.partition(".")[0]) if candidate in ENGINES), "")
    return known or next((who for word, who in ENGINES.items() if name.startswith(f"{word}-")), "")


def protect(text: str) -> str:
    """Return a command in the form for :mod:`shlex`: without comments, with ``;`` at the end of each line, and with marks for quoted characters."""
    result: list[str] = []
    quote, at = "", 0
    while at < len(text):
        char, rest = text[at], text[at:]
        continued = _CONTINUED.match(rest) if quote != "'" else None
        if continued:
            result.append("" if quote else " ")
            at += continued.end()
            continue
        at += 1
        if quote == "'":
            quote = "" if char == "'" else quote
            result.append({"$": _DOLLAR, "`": _BACKTICK}.get(char, char))
        elif char == "\\" and at < len(text):
            at += 1
            result.append({"$": _DOLLAR, "`": _BACKTICK}.get(text[at - 1]) or char + text[at - 1])
        elif char == "`" or rest.startswith(("$(", "<(", ">(")):
            raise Refused("is what another command prints, which only a shell can put in", where=rest[:20], remedy=_SHELL_REMEDY)
        elif char == '"':
            quote = "" if quote else '"'
            result.append(char)
        elif quote:
            result.append(_QUOTED_DOLLAR if char == "$" else char)
        elif char == "#" and (not result or result[-1][-1:] in " \t;\n"):
            at += len(rest.partition("\n")[0]) - 1
        else:
            quote = "'" if char == "'" else ""
            result.append(" ; " if char == "\n" else char)
    if quote:
        raise Refused("is a quote that is not closed", where=quote, remedy="correct the command")
    return "".join(result)


def commands(text: str) -> list[list[str]]:
    """Return the commands of a text, each as its words before variables are expanded. Raises :class:`Refused`."""
    lexer = shlex.shlex(protect(text), posix=True, punctuation_chars=";|&()<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    result: list[list[str]] = [[]]
    try:
        words = list(lexer)
    except ValueError as error:
        raise Refused(f"cannot be taken apart: {error}", where="the command", remedy="correct the command") from error
    at = 0
    while at < len(words):
        hides = next((hide for hide in _HIDES if words[at : at + len(hide)] == hide), None) if result[-1] and result[-1][0] in _FILES else None
        if hides:
            at += len(hides)
            continue
        word = words[at]
        at += 1
        if word in _SEPARATORS:
            result.append([])
        elif word and not word.strip(";|&()<>"):
            what = _OPERATORS.get(word) or ("a redirection" if set(word) & set("<>") else "something")
            raise Refused(f"is {what}, which only a shell can do", where=word, remedy=_SHELL_REMEDY)
        else:
            result[-1].append(word)
    return [command for command in result if command]


class Shell:
    """Reads commands one after the other, as far as they need no shell."""

    def __init__(self, variables: t.Mapping[str, str], ledger: Ledger) -> None:
        self.variables = {"HOME": "/root", **variables}
        self.exported = set(variables)
        self.env: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.engine: list[str] | None = None
        self.ledger = ledger

    def expand(self, word: str) -> list[str]:
        """Return the words that a word expands to: an unquoted variable may have several, or none."""

        def value_of(match: re.Match[str]) -> str:
            if match["all"]:
                return ""
            name = match["plain"] or match["name"]
            value = self.variables.get(name)
            if not value and match["default"] is not None:
                value = match["default"]
                self.ledger.changed("command", f"${name}", value or "nothing", "a profile has no variables: its default is taken", differs=False)
            if value is None:
                return missing(f"${name}")
            return value if match["dollar"] == _QUOTED_DOLLAR else re.sub(r"\s+", _GAP, value)

        text = _VARIABLE.sub(value_of, word)
        if _LEFT_OVER.search(without_missing(text)):
            raise Refused("is a value that only a shell can work out", where=as_written(word).replace(_QUOTED_DOLLAR, "$"), remedy=_SHELL_REMEDY)
        text = text.replace(_DOLLAR, "$").replace(_BACKTICK, "`").replace(_QUOTED_DOLLAR, "$")
        return [part for part in text.split(_GAP) if part] if _GAP in text or text != word and not text else [text]

    def assign(self, name: str, value: str, export: bool) -> None:
        self.variables[name] = "".join(self.expand(value.replace("$", _QUOTED_DOLLAR)))
        if export or name in self.exported:
            self.exported.add(name)
            self.env[name] = self.variables[name]

    def run(self, text: str, depth: int = 0) -> None:
        """Read a text of commands. Raises :class:`Refused`."""
        for words in commands(text):
            self._command(words, depth)

    def _command(self, words: list[str], depth: int) -> None:
        assignments = list(itertools.takewhile(bool, map(_ASSIGNMENT.match, words)))
        words = words[len(assignments) :]
        for match in filter(None, assignments):
            self.assign(match[1], match[2], export=bool(words))
        words = [part for word in words for part in self.expand(word)]
        if not words:
            return
        name = words[0].rpartition("/")[2]
        if name in _STARTERS or name == "env":
            self._command(words[1:], depth)
        elif name == "export":
            self._export(words[1:])
        elif name == "unset":
            for variable in words[1:]:
                self.variables.pop(variable, None)
                self.env.pop(variable, None)
        elif name in HARMLESS:
            self.ledger.dropped("command", " ".join(words), "the engine does not depend on it", differs=False)
        elif name in _FILES:
            self._files(name, words)
        elif name in _SHELLS:
            self._inner(words, depth)
        else:
            self._engine(words)

    def _files(self, name: str, words: list[str]) -> None:
        """Read a command that makes, copies or links files. In a cache it has no effect here; the target of a link is kept. Raises :class:`Refused`."""
        options = [word for word in words[1:] if word.startswith("-")]
        paths = [re.sub(r"~(?=/|\Z)", "/root", word) for word in words[1:] if not word.startswith("-")]
        made, shown = paths if name == "mkdir" else paths[-1:], as_written(" ".join(words))
        if paths and all(map(places.is_cache, made)):
            self.ledger.dropped("command", shown, "it is about a cache, and this collection's containers keep their own from start to start", differs=False)
        elif name == "ln" and len(paths) == 2 and all(map(places.is_path, paths)) and any("s" in option for option in options):
            self.links[paths[1].rstrip("/")] = paths[0]
        else:
            raise Refused(
                "changes files of the container, and is not executed",
                where=shown[:60],
                remedy="put what it does into an image of your own, and give that as gb10_import_image",
            )

    def _export(self, words: list[str]) -> None:
        for word in words:
            name, equals, value = word.partition("=")
            if equals or name in self.variables:
                # The value of an assignment is expanded already.
                self.variables[name] = self.env[name] = value if equals else self.variables[name]
                self.exported.add(name)

    def _inner(self, words: list[str], depth: int) -> None:
        scripts = [words[at + 1] for at, word in enumerate(words[:-1]) if re.match(r"-[a-z]*c\Z", word)]
        if len(scripts) != 1 or depth > 2:
            raise Refused("starts a script, which is not executed", where=" ".join(words)[:60], remedy=_SHELL_REMEDY)
        self.run(scripts[0], depth + 1)

    def _engine(self, words: list[str]) -> None:
        """Read the command of an engine. Raises :class:`Refused` for any other one."""
        shown = as_written(" ".join(words))[:60]
        name = words[0].rpartition("/")[2]
        module = words[2] if _PYTHON.match(name) and words[1:2] == ["-m"] and len(words) > 2 else ""
        other = engine_named(module or name)
        if other:
            raise Refused(f"starts {other}, and not vLLM", where=shown, remedy=OTHER_ENGINE_REMEDY)
        if name == "vllm" and words[1:2] == ["serve"]:
            arguments = words[2:]
        elif module and classify.judge(words) in [(kind, "vllm") for kind in classify.SERVERS]:
            arguments = words[4:] if words[3:4] == ["serve"] else words[3:]
        elif name in _KEYWORDS:
            raise Refused("needs a shell", where=shown, remedy=_SHELL_REMEDY)
        elif name.startswith("-"):
            raise Refused(
                "comes after the end of the command: the line before it is empty, a comment, or does not end in a backslash",
                where=shown,
                remedy="correct the command: no launcher passes this argument on",
            )
        else:
            raise Refused(
                "is a command, and no command of a recipe is executed",
                where=shown,
                remedy="put what it does into an image of your own, and give that as gb10_import_image",
            )
        if "--omni" in arguments:
            raise Refused("starts vLLM-Omni, and not vLLM", where=shown, remedy=OTHER_ENGINE_REMEDY)
        if self.engine is not None:
            raise Refused("starts a second engine", where=shown, remedy="make one recipe of each")
        self.engine = arguments


def take_apart(text: str, variables: t.Mapping[str, str], ledger: Ledger) -> Command:
    """Return the engine's command in a text. ``variables`` are the recipe's. Raises :class:`Refused`."""
    shell = Shell(variables, ledger)
    shell.run(text)
    if shell.engine is None:
        raise Refused("holds no `vllm serve`", where="the command", remedy=OTHER_ENGINE_REMEDY)
    return Command(shell.engine, shell.env, shell.links)


def links_of(text: str, variables: t.Mapping[str, str], ledger: Ledger) -> dict[str, str]:
    """Return the links that commands before the engine's make, if they have no other effect. Raises :class:`Refused`."""
    shell = Shell(variables, ledger)
    shell.run(text)
    if shell.engine is not None:
        raise Refused("starts an engine", where="the command", remedy="make one recipe of each")
    return shell.links
