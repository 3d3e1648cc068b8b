# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes secrets from all data that leaves a node. This module util is PRIVATE to the collection.

Every pattern takes linear time: no repetition contains another, and a repetition at a pattern's beginning starts only where a name starts.
"""

from __future__ import annotations

import glob
import json
import os
import re
import stat
import typing as t
import urllib.parse

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

#: A shorter value would match harmless text, and is not a secret either.
SHORTEST_SECRET = 8

#: Maximum bytes to read of a secret file.
LONGEST_SECRET = 65536

#: The default directory of the collection's secrets.
SECRETS_DIR = "/etc/gb10/secrets"

#: Options of modules that name a directory with secrets, a file with one, or several files by name.
_DIRECTORY_OPTIONS = ("secrets_dir",)
_FILE_OPTIONS = ("api_key_file", "token_file")
_FILES_OPTIONS = ("secret_files",)

#: The text that replaces a secret.
HIDDEN = "<secret>"
#: The beginning of every such text. Those of known secrets contain a name.
HIDDEN_START = "<secret"

#: The end of the name of a variable, an option or a key with one or more secrets. Several tokens are mostly a number, so only some kinds count.
#: The first lookahead is only for speed.
_SECRET_END = (
    r"(?=[abcekpst])(?:(?:token(?:s(?:(?<=hf[_-]tokens)|(?<=(?:api|bot)[_-]tokens)|(?<=auth[_-]tokens)|(?<=(?:access|bearer|secret|github|gitlab)[_-]tokens)"
    r"|(?<=refresh[_-]tokens)))?|api[_-]?keys?|secrets?"
    r"|(?:secret|access|private|account|signing|encryption|auth)[_-]?keys?|passw(?:or)?ds?|passphrases?|credentials?)"
    # One of several, or a word for the secret itself.
    r"(?:[_-](?:value|text|string|plain|raw|b64|base64|old|new|\d{1,2})|\d{1,2})?"
    r"|(?<=[_-])pass|(?<=SSH)(?-i:PASS)|(?<=DB)(?-i:PASS)|(?<=_)pwd|(?<=[_-])pat|cookies?|(?<=_)(?-i:KEY)|(?<=--)(?:key|auth|bearer)|(?<=2-)bearer)"
)
_SECRET_NAME = re.compile(rf"(?i){_SECRET_END}$")
#: Names that also have other meanings, so that the value has to look like a secret. In prose before a colon that also applies to a token.
_DOUBTFUL_NAME = re.compile(r"(?<!API)(?<!SECRET)(?<!ACCESS)(?<!PRIVATE)(?<!ACCOUNT)(?<!SIGNING)(?<!ENCRYPTION)_KEY$|^--(?:key|auth|bearer)$")
_TOKEN = re.compile(r"(?i)^tokens?$")
_PASSWORD = re.compile(r"(?i)pass(?:w(?:or)?d|phrase)s?$")
#: A word with letters and digits that is neither a path nor a number with its unit.
_LOOKS_SECRET = re.compile(r"(?=[^\d\s]*\d)(?=[^A-Za-z\s]*[A-Za-z])(?!\d+(?:\.\d+)?[A-Za-z%/]*$)[\w+=][\w.+/=~:-]{7,}")

#: Tokens of a tokenizer, a template or a measurement, options that prompt a person for a password, and sudo's word for no password.
_HARMLESS_NAME = re.compile(
    r"(?i)(?:(?:bos|eos|pad|unk|sep|cls|mask|image|audio|video|think(?:_start|_end)?|stop|first|output|next|per)_token"
    r"(?:[_-]?(?:value|text|string|raw|\d{1,2}))?$|^--ask-|^nopasswd$)"
)

#: Values that mean no secret.
_NO_VALUE = ("none", "null", "true", "false", "[", "{")
#: The beginnings of values that refer to a secret elsewhere.
_ELSEWHERE = ("{{", "${", "$(")
#: The directory of a container's secret files. A path there is not a secret.
_MOUNTED = "/run/secrets/"

#: A slash of a URL, also inside JSON or inside another URL, and the rest of its path.
_SLASH = r"(?:\\{0,3}/|%2F)"
_PATH = r"(?:[\w%.~@+-]|\\{0,3}/)+"

#: The words in a header for the kind of the secret that follows.
_SCHEME = r"(?:basic|bearer|digest|negotiate|token|api-?key|key|ntlm)"

#: Secrets that are recognizable by their form alone. The text before a secret is kept.
_SHAPES = (
    re.compile(r"(?P<kept>hf_)[A-Za-z0-9]{16,}"),
    # In JSON, a line's beginning follows the letter of an escaped line break.
    re.compile(
        r"(?P<kept>(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))(?:nvapi-|sk-|gh[oprsu]_|github_pat_|glpat-|dckr_pat_|pypi-AgE|xox[abp]-|xapp-|AIza"
        r"|[sr]k_live_|hvs\.|tskey-|dop_v1_|shpat_))"
        r"[A-Za-z0-9_-]{16,}"
    ),
    re.compile(r"(?P<kept>(?<![\w-])npm_)[A-Za-z0-9]{36}(?![\w-])"),
    # A token of three parts in base64, the first of which begins with {".
    re.compile(r"(?P<kept>(?:(?<![\w-])|(?<=\\[nrt]))eyJ)[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
    re.compile(r"(?P<kept>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)(?:(?!-----)[^\"'<>])+"),
    # User and password in a URL. A token may replace either.
    re.compile(r"(?P<kept>(?<=://))[^\s/?#\"'<>]+(?=@)"),
    # The same with a password that was not encoded, and may contain characters that end a host: after a colon without a port, up to the last @.
    # A password that begins like a port, or a token with a slash, cannot be distinguished from a port or a path with an @.
    re.compile(r"(?P<kept>(?<=://))[^\s/?#\"'<>@:\[]*:(?!\d{1,5}[/?#])(?:(?!://)[^\s\"'<>])+(?=@)"),
    re.compile(
        rf"(?i)(?P<kept>\bauthorization\\{{0,3}}[\"']?\s{{0,8}}[:=]\s{{0,8}}\\{{0,3}}[\"']?(?:{_SCHEME}\s{{1,8}})?)(?!{_SCHEME}\s)[^\s\"',<\\]+"
    ),
    re.compile(r"(?i)(?P<kept>\bbearer\s{1,8})[^\s\"',<\\]{8,}"),
    re.compile(r"(?i)(?P<kept>(?<![\w-])(?:x-[a-z0-9-]{0,64}(?:key|token|secret|auth)|api-key|private-token)\s{0,8}:\s{0,8})[^\s\"',<\\]+"),
    re.compile(r"(?i)(?P<kept>cookie\s{0,8}:\s{0,8})[^\s\"'<\\][^\n\"'<\\]*"),
    # User and password of a registry, as Docker's own file has them.
    re.compile(r"(?P<kept>\"auth\\{0,3}\"\s{0,8}:\s{0,8}\\{0,3}\")[A-Za-z0-9+/=_-]{8,}"),
    # A signed URL itself grants access.
    re.compile(r"(?i)(?P<kept>(?:[?&]|\\u0026|&amp;|%3F|%26)(?:x-amz-|x-goog-)?(?:sig|signature|key)(?:=|%3D))[^\s&\"'<>\\]+"),
    re.compile(r"(?P<kept>(?:/|%2F)bot)\d{3,20}(?::|%3A)[\w-]{10,}"),
    re.compile(r"(?P<kept>(?<![\w:-]))\d{8,10}:AA[\w-]{33}(?![\w-])"),
)

#: The port of an address.
_PORT = r"(?:(?::|%3A)\d{1,5})?"

#: URLs of webhooks, which are secrets themselves, because they permit writing. Each contains this word.
_HOOK = "hook"
_WEBHOOK = re.compile(
    rf"(?i)(?P<kept>hooks\.slack(?:-gov)?\.com{_PORT}{_SLASH}(?:services|workflows|triggers){_SLASH}"
    rf"|discord(?:app)?\.com{_PORT}{_SLASH}api{_SLASH}(?:v\d{{1,2}}{_SLASH})?webhooks{_SLASH}"
    rf"|\.office(?:365)?\.com{_PORT}{_SLASH}webhook(?:b2)?{_SLASH}|hooks\.zapier\.com{_PORT}{_SLASH}hooks{_SLASH}catch{_SLASH}"
    rf"|{_SLASH}hooks{_SLASH}(?=[a-z0-9]{{26}}(?![a-z0-9]))){_PATH}"
)

#: A name, and the text between it and its value: an assignment, the end of a quoted key or option, a colon, or the blank after an option.
_NAMED = re.compile(
    rf"(?im)(?<![\w.-])(?P<name>[\w.-]*{_SECRET_END})"
    r"(?:(?P<assigned>[ \t]{0,8}=(?!=)[ \t]{0,8}|%3D)|\\{0,3}[\"'](?:(?P<key>\s{0,8}:\s{0,8})|(?P<listed>,\s{0,8}))"
    r"|(?P<colon>:(?:[ \t]{1,8}(?=\\{0,3}[\"']|[^\s<>|\[{\\])|(?=\\{0,3}[\"']|[^\s<>|\[{\\/:])))|(?P<option>[ \t]{1,8}))"
)
#: What follows the last word of a part of a sentence.
_PART_END = re.compile(r"[ \t]{0,64}(?:[,;.]|$)", re.MULTILINE)
#: The text before a name at the beginning of a line, and after a value of one word. The characters that are read before a name, and those of a
#: value that may not be a secret.
_INDENT, _LINE_END, _BEFORE, _LONGEST = " \t-", re.compile(r"\S*[ \t]{0,64}(?:#[^\n]*)?$", re.MULTILINE), 64, 512
#: A value in quotes, whose end has as many backslashes as its beginning; a list in brackets; one word. Several may be a mapping.
_QUOTED = r"(?P<quote>\\{0,3}[\"'])(?:(?!(?P=quote))[^\n])*"
_VALUE = re.compile(rf"{_QUOTED}|\[[^\]\n]*|[^\s\"',;&\\)}}\]]+")
_VALUES = re.compile(rf"{_QUOTED}|\[[^\]\n]*|(?:[^\s\"',;&\\)}}\]]|,(?=[^\s\"',;&\\)}}\]]))+")
_SEVERAL = re.compile(r"(?i)(?<!pas)s$")
_MAPPING = re.compile(r"\{[^}\n]+")
#: Values of an option: on a command line, where the key of vLLM's API takes several, and in a printed list of words.
_ONE_WORD = re.compile(rf"{_QUOTED}|[^\s\"'-][^\s\"']*")
_WORDS = re.compile(r"[^\s\"'-](?:(?![ \t]{1,8}(?:-|$))[^\n\"'])*", re.MULTILINE)
_LISTED = re.compile(r"(?P<quote>\\{0,3}[\"'])(?!-)(?:(?!(?P=quote))[^\n])*")
_TAKES_SEVERAL = re.compile(r"(?i)^--api[_-]key$")


class _Option(t.NamedTuple):
    """Options of a program with a secret as their value. ``login``: a user and a colon precede the secret. ``glued``: it is in the same word."""

    begins: re.Pattern[str]
    login: bool = False
    glued: bool = False


#: Programs that take a secret through an option with an unrelated name, and programs that begin a new command after one of them.
_PROGRAMS = {
    "curl": _Option(re.compile(r"-[sSkLfvigI46]{0,8}[uU]|--(?:proxy-)?user(?![\w-])"), login=True),
    "sshpass": _Option(re.compile(r"-p")),
    "mysql": _Option(re.compile(r"-p"), glued=True),
    "mysqldump": _Option(re.compile(r"-p"), glued=True),
    "mysqladmin": _Option(re.compile(r"-p"), glued=True),
    "mariadb": _Option(re.compile(r"-p"), glued=True),
    "redis-cli": _Option(re.compile(r"-a")),
    "ipmitool": _Option(re.compile(r"-P")),
    "openssl": _Option(re.compile(r"-pass(?:in|out)?(?![\w-])"), login=True),
    "login": _Option(re.compile(r"-p")),
    **dict.fromkeys(("ssh", "scp", "sftp", "rsync"), None),
}
#: A command's end, one of these programs, and the beginning of an option. A command continues after a backslash, and a printed list after a comma.
_COMMAND = re.compile(
    rf"(?P<end>(?<![\\,])\n|[;|]|&&)|(?<![\w-])(?P<program>{'|'.join(sorted(_PROGRAMS, key=len, reverse=True))})(?![\w-])|(?<![^\s\"'])(?P<option>-)(?=[\w-])"
)
#: The text between an option and its value, and the value: to the end of its quotes, or one word.
_BETWEEN = re.compile(r"=?\\{0,3}[\"']?,?\s{0,40}\\{0,3}(?P<quote>[\"'])?")
_GLUED = re.compile(r"=?(?P<quote>[\"'])?")
_TO_QUOTE = re.compile(r"(?:(?!\\{0,3}[\"'])[^\n])+")
_TO_BLANK = re.compile(r"[^\s\"'\\;|]+")


# -- known secrets ---------------------------------------------------------------------------------------------------


def check_readable(directory: str) -> None:
    """Raise :class:`ClusterError` when a directory with secrets exists but cannot be read completely: then no log may leave the node."""
    try:
        for path in (os.path.join(directory, name) for name in os.listdir(directory)):
            if os.path.isfile(path):
                read_secret(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ClusterError(
            f"{error.filename} cannot be read, so its content cannot be taken out of the logs: {error.strerror}", remedy="Run the task with become: true."
        ) from error


def read_secret(path: str) -> str:
    """Return the text of a secret file. Raises OSError."""
    with open(path, encoding="utf-8", errors="replace") as handle:
        return handle.read(LONGEST_SECRET).strip()


def secrets_of(params: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return name → value of the secrets that a module could encounter: those in its options and in the default directory.

    Files that this account cannot read are left out, because the module cannot have read them either.
    """
    directories = [SECRETS_DIR, *(params[name] for name in _DIRECTORY_OPTIONS if params.get(name))]
    paths = [params[name] for name in _FILE_OPTIONS if params.get(name)]
    paths += [path for name in _FILES_OPTIONS for path in (params.get(name) or {}).values()]
    # Each cluster has its own directory there, or a link to one elsewhere.
    paths += [path for directory in directories for depth in ("*", "*/*") for path in glob.glob(os.path.join(glob.escape(directory), depth))]
    secrets: dict[str, str] = {}
    for path in dict.fromkeys(map(str, paths)):
        try:
            value = read_secret(path) if stat.S_ISREG(os.stat(path).st_mode) else ""
        except OSError:
            continue
        if len(value) >= SHORTEST_SECRET:
            name = os.path.basename(path)
            secrets[path if name in secrets else name] = value
    return secrets


def spellings(value: str) -> set[str]:
    """Return a known secret as it may appear in a text: plain, in JSON (once and twice), in Python, in a URL."""
    escaped = json.dumps(value)[1:-1]
    in_address = {urllib.parse.quote(value), urllib.parse.quote(value, safe=""), urllib.parse.quote_plus(value)}
    return {value, escaped, json.dumps(escaped)[1:-1], repr(value)[1:-1], *in_address}


# -- texts -----------------------------------------------------------------------------------------------------------


def redacted(text: str, secrets: t.Mapping[str, str]) -> str:
    """Return ``text`` without the values of ``secrets`` and without anything else that looks like a secret."""
    known = [(spelling, name) for name, value in secrets.items() for spelling in spellings(value)]
    for spelling, name in sorted(known, key=lambda pair: (-len(pair[0]), pair)):
        text = text.replace(spelling, f"{HIDDEN_START} {name}>")
    for pattern in (*_SHAPES, _WEBHOOK) if _HOOK in text.lower() else _SHAPES:
        text = pattern.sub(rf"\g<kept>{HIDDEN}", text)
    return _without_given(_without_named(text))


def _without_given(text: str) -> str:
    """Return a text without the secrets in options of :data:`_PROGRAMS`."""
    if not any(name in text for name, option in _PROGRAMS.items() if option):
        return text
    parts: list[str] = []
    done, option = 0, None
    match = _COMMAND.search(text)
    while match:
        at = match.end()
        if match["option"] is None:
            option = _PROGRAMS[match["program"]] if match["program"] else None
        elif option and (begins := option.begins.match(text, match.start())):
            between = (_GLUED if option.glued else _BETWEEN).match(text, begins.end())
            value = (_TO_QUOTE if between["quote"] else _TO_BLANK).match(text, between.end())
            at = value.end() if value else between.end()
            start = at - len(_secret_part(option, value[0])) if value else at
            if start < at:
                parts += [text[done:start], HIDDEN]
                done = at
        match = _COMMAND.search(text, at)
    return "".join([*parts, text[done:]])


def _secret_part(option: _Option, value: str) -> str:
    """Return the secret part of an option's value, empty if it has none or is already hidden."""
    secret = value.partition(":")[2] if option.login else value
    return "" if secret.startswith(HIDDEN_START) else secret


def _without_named(text: str) -> str:
    """Return a text without the values after the name of a secret."""
    parts: list[str] = []
    done = 0
    for match in _NAMED.finditer(text):
        if match.start() >= done and not _HARMLESS_NAME.search(match["name"]):
            for start, end in _values(text, match):
                if not text.startswith((HIDDEN_START, _MOUNTED), start):
                    parts += [text[done:start], HIDDEN]
                    done = end
    return "".join([*parts, text[done:]])


def _values(text: str, match: re.Match[str]) -> t.Iterator[tuple[int, int]]:
    """Yield where the values of a named secret begin and end, without their quotes."""
    several = bool(_TAKES_SEVERAL.match(match["name"]))
    if match["listed"] is None:
        is_option = match["option"] is not None
        if is_option and not match["name"].startswith("-"):
            return
        whole = _WORDS if is_option and several else _MAPPING if match["name"].lower().endswith("s") else None
        before = _before(text, match) if match["colon"] else ""
        # A value that may not be a secret is read only up to a limit, otherwise a text of such names would take quadratic time.
        end = match.end() + _LONGEST if before.strip(_INDENT) or _DOUBTFUL_NAME.search(match["name"]) else len(text)
        pattern = _ONE_WORD if is_option else _VALUES if _SEVERAL.search(match["name"]) else _VALUE
        value = (whole.match(text, match.end()) if whole else None) or pattern.match(text, match.end(), end)
        if value and value[0].lower() not in _NO_VALUE:
            start = value.end("quote") if value.re is not whole and value["quote"] else value.start()
            secret = text[start:value.end()]
            if _is_secret_after_colon(text, before, match["name"], value, secret) if match["colon"] else _fits(match["name"], secret):
                yield start, value.end()
        return
    at = match.end()
    while match["name"].startswith("-"):
        value = _LISTED.match(text, at)
        if not value:
            return
        yield value.end("quote"), value.end()
        after = re.compile(re.escape(value["quote"]) + r",\s{0,8}").match(text, value.end())
        if not several or not after:
            return
        at = after.end()


def _fits(name: str, value: str) -> bool:
    """Return whether a value is a secret under the name of one."""
    return not _DOUBTFUL_NAME.search(name) or bool(_LOOKS_SECRET.fullmatch(value))


def _before(text: str, match: re.Match[str]) -> str:
    """Return the text before a name in its line, as far as it is read."""
    since = max(0, match.start() - _BEFORE)
    return text[max(since, text.rfind("\n", since, match.start()) + 1):match.start()]


def _is_secret_after_colon(text: str, before: str, name: str, value: re.Match[str], secret: str) -> bool:
    """Return whether the text after a name and a colon is a secret: in YAML, in a mapping in braces, or in prose, where it has to look like one."""
    is_quoted = value["quote"] is not None
    if not secret or secret.startswith(_ELSEWHERE):
        return False
    looks = bool(_LOOKS_SECRET.fullmatch(secret))
    if not before.strip(_INDENT):
        return is_quoted or looks or bool(_LINE_END.match(text, value.end()))
    if "{" in before and before.rstrip().endswith(("{", ",")) and not before.endswith("${"):
        return not secret.isdecimal()
    if before.endswith("/"):
        return False  # The name of an image, or of a port.
    if secret.startswith(("-", "`")) or re.fullmatch(r"\d{0,3}", secret):
        return False  # An option, a quotation, a count.
    if is_quoted and not text.startswith(value["quote"], value.end()):
        return False  # The end of a question.
    is_last = is_quoted or bool(_PART_END.match(text, value.end()))
    return looks or (is_last and bool(_PASSWORD.search(name))) or (is_quoted and not _TOKEN.match(name))


# -- values ----------------------------------------------------------------------------------------------------------


def shown_argv(argv: t.Iterable[str], secrets: t.Mapping[str, str] | None = None) -> list[str]:
    """Return the words of a command line as they may leave a node: without the values of secret options, and without what looks like a secret.

    Some of these options take several values (``--api-key A B``), so all words up to the next option go.
    """
    shown: list[str] = []
    hiding, given, awaited = "", None, False
    for word in argv:
        if awaited:
            shown.append(_shown_given(given, word, secrets))
        elif given and (begins := given.begins.match(word)) and (begins.end() < len(word) or not given.glued):
            hiding, awaited = "", begins.end() == len(word)
            shown.append(word[:begins.end()] + _shown_given(given, word[begins.end():], secrets))
            continue
        elif word.startswith("-"):
            option, equals, value = word.partition("=")
            secret = bool(_SECRET_NAME.search(option)) and " " not in option
            hiding = option if secret and not equals else ""
            shown.append(f"{option}={HIDDEN}" if equals and secret and _fits(option, value) else redacted(word, secrets or {}))
        else:
            shown.append(HIDDEN if hiding and _fits(hiding, word) else redacted(word, secrets or {}))
        name = os.path.basename(word)
        given, awaited = _PROGRAMS[name] if name in _PROGRAMS and not awaited else given, False
    return shown


def _shown_given(option: _Option, value: str, secrets: t.Mapping[str, str] | None) -> str:
    """Return the value of an option of :data:`_PROGRAMS` without the secret in it."""
    secret = _secret_part(option, value)
    return redacted(value[:len(value) - len(secret)], secrets or {}) + (HIDDEN if secret else "")


def shown_value(name: str, value: str, secrets: t.Mapping[str, str] | None = None) -> str:
    """Return the value of a variable as it may leave a node: :data:`HIDDEN` for the name of a secret, else without what looks like one."""
    secret = _SECRET_NAME.search(name) and not _HARMLESS_NAME.search(name) and not value.startswith((HIDDEN_START, _MOUNTED)) and _fits(name, value)
    return HIDDEN if value and secret else redacted(value, secrets or {})


def cleaned(content: t.Any, secrets: t.Mapping[str, str]) -> t.Any:
    """Return data of any depth without secrets. A list of texts is treated as the words of a command line."""
    if isinstance(content, str):
        return redacted(content, secrets)
    if isinstance(content, t.Mapping):
        return {name: _cleaned_entry(name, value, secrets) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return shown_argv(content, secrets) if all(isinstance(entry, str) for entry in content) else [cleaned(entry, secrets) for entry in content]
    return content


def _cleaned_entry(name: t.Any, value: t.Any, secrets: t.Mapping[str, str]) -> t.Any:
    """Return the cleaned value of a key. A key in capitals is treated as the name of a variable."""
    return shown_value(name, value, secrets) if isinstance(value, str) and str(name).isupper() else cleaned(value, secrets)


def holds_secret(text: str) -> bool:
    """Return whether a text contains something that looks like a secret."""
    return redacted(text, {}) != text
