# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of ``ansible.module_utils.basic`` that the modules of a unit use. This module util is PRIVATE to the collection.

It is packed under that name, since ansible-core's own module needs other parts of core, which may change in its next release. A module reads its arguments
and prints its result as with Ansible. Rules between options are not checked: they passed when the play ran the module with the same arguments.
"""

from __future__ import annotations

import json
import os
import sys
import typing as t

_BOOLEANS = {**dict.fromkeys(("y", "yes", "on", "1", "true", "t"), True), **dict.fromkeys(("n", "no", "off", "0", "false", "f"), False)}


#: Converters by the type of an option.
TYPES: dict[str, t.Callable[[t.Any], t.Any]] = {
    "str": str,
    "path": lambda value: os.path.expanduser(os.path.expandvars(str(value))),
    "int": int,
    "float": float,
    "bool": lambda value: value if isinstance(value, bool) else _BOOLEANS[str(value).lower()],
    "list": lambda value: value.split(",") if isinstance(value, str) else list(value),
    "dict": lambda value: json.loads(value) if isinstance(value, str) else dict(value),
    "raw": lambda value: value,
}


def converted(spec: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the arguments converted to the types of the options, with their defaults. Raises ValueError."""
    if unknown := sorted(set(given) - set(spec)):
        raise ValueError(f"unsupported parameters: {', '.join(unknown)}")
    return {name: _option(name, option, given.get(name)) for name, option in spec.items()}


def _option(name: str, option: t.Mapping[str, t.Any], value: t.Any) -> t.Any:
    if value is None:
        value = option.get("default", {} if option.get("apply_defaults") else None)
    if value is None:
        if option.get("required"):
            raise ValueError(f"missing required arguments: {name}")
        return None
    kind = option.get("type", "str")
    try:
        value = TYPES[kind](value)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"argument '{name}' is {value!r}, which cannot be converted to {kind}") from error
    if kind == "list":
        return [_option(name, {**option, "type": option.get("elements", "raw"), "default": None}, element) for element in value]
    if option.get("choices") and value not in option["choices"]:
        raise ValueError(f"value of {name} must be one of: {', '.join(map(str, option['choices']))}, got: {value}")
    return converted(option["options"], value) if "options" in option else value


class AnsibleModule:
    """A module in a separate process. It reads its arguments from standard input, prints its result, and exits."""

    def __init__(self, argument_spec: t.Mapping[str, t.Any], supports_check_mode: bool = False, **_rules: t.Any) -> None:
        given = json.loads(sys.stdin.buffer.read())["ANSIBLE_MODULE_ARGS"]
        self.check_mode = supports_check_mode and bool(given.get("_ansible_check_mode"))
        self.no_log_values: set[str] = set()
        self._warnings: list[str] = []
        try:
            self.params = converted(argument_spec, {name: value for name, value in given.items() if not name.startswith("_ansible_")})
        except ValueError as error:
            self.fail_json(msg=str(error))

    def warn(self, warning: str) -> None:
        self._warnings.append(warning)

    def exit_json(self, **result: t.Any) -> t.NoReturn:
        sys.stdout.write(f"{json.dumps({'changed': False, **result, 'warnings': self._warnings}, default=list)}\n")
        sys.stdout.flush()
        raise SystemExit(1 if result.get("failed") else 0)

    def fail_json(self, msg: str, **result: t.Any) -> t.NoReturn:
        self.exit_json(**result, msg=msg, failed=True)
