# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes a profile from a recipe on the controller. Reads files, asks a registry for a digest, and only writes new files. Executes nothing."""

from __future__ import annotations

import json
import os
import time
import typing as t
from pathlib import Path

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import NO_SDK
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import complete
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned
from ansible_collections.gb10.cluster.plugins.plugin_utils._import import imported, reading
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.draft import Choices
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import new_file, table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.failure import failure_result

KIND = "gb10.cluster.import"


def pending(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files to write, none when the first, the profile, exists unchanged. Raises :class:`ClusterError` when a file exists with different content."""
    same = []
    for name, content in files.items():
        try:
            if Path(name).read_bytes() == content:
                same.append(name)
                continue
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ClusterError(f"cannot be read: {error.strerror}", where=name, remedy="Give gb10_to another directory.") from error
        if next(iter(files)) not in same:
            remedy = "Give gb10_to another directory, or move the file."
            raise ClusterError("exists already, with another content", where=name, expected="a new file", remedy=remedy)
    return {} if next(iter(files), "") in same else {name: content for name, content in files.items() if name not in same}


def write(files: dict[str, bytes]) -> None:
    """Write new files, the profile last, so that an import with a profile is complete. Raises :class:`ClusterError`."""
    for name, content in reversed(files.items()):
        try:
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            new_file.create(name, content)
        except OSError as error:
            raise ClusterError(f"cannot be written: {error.strerror}", where=name, remedy="Give gb10_to a directory of yours.") from error


class ActionModule(ActionBase):
    """Reads a recipe on the controller, and writes it as a profile."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        started = time.monotonic()
        _result, options = self.validate_argument_spec(
            argument_spec={
                "path": {"type": "path", "required": True},
                "dest": {"type": "path"},
                "image": {"type": "str"},
                "revisions": {"type": "dict", "default": {}},
                "values": {"type": "dict", "default": {}},
                "variant": {"type": "str"},
                "features": {"type": "list", "elements": "str", "default": []},
                "without_mods": {"type": "list", "elements": "str", "default": []},
            }
        )
        try:
            return cleaned(complete(self._import(options, task_vars or {}), started), {})
        except ClusterError as error:
            return cleaned(complete(failure_result(error), started), {})

    def _import(self, options: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the record, and write profile and record if requested. Raises :class:`ClusterError`."""
        recipe = reading.read(options["path"])
        # Ansible's own types of texts and numbers cannot be written as YAML, so they are converted to plain ones.
        given = json.loads(json.dumps({name: options[name] for name in ("image", "revisions", "values", "variant", "features", "without_mods")}))
        choices = Choices(**{name: value for name, value in given.items() if value is not None})
        profile, ledger, patches = imported.convert(recipe, choices, lambda image: self._digest(image, task_vars))
        findings = ledger.findings()
        record = {
            "schema": 1,
            "kind": KIND,
            "path": str(recipe.path),
            "sha256": recipe.sha256,
            "recipe": recipe.kind,
            "id": profile["id"] if profile else "",
            "profile": profile or {},
            "verdict": table.worst(findings),
            "rows": [row._asdict() for row in ledger.rows],
        }
        files = self._files(options["dest"], record, imported.text(profile, recipe), patches) if profile and options["dest"] else {}
        new = pending(files)
        if not self._task.check_mode:
            write(new)
        text = next(iter(new.values()), b"").decode()
        passed_on = {"gb10_imported": record, "gb10_verdict": record["verdict"]}
        return {
            **record,
            "ansible_stats": {"data": passed_on, "per_host": False, "aggregate": False},
            "findings": findings,
            "files": list(files),
            "changed": bool(new),
            "actions": [f"write {name}" for name in new],
            "diff": {"before": "", "after": text, "before_header": "no profile", "after_header": next(iter(new))} if new else {},
            "msg": self._message(record, list(files)),
        }

    @staticmethod
    def _files(dest: str, record: dict[str, t.Any], text: str, patches: dict[str, bytes]) -> dict[str, bytes]:
        """Return the content of each file."""
        start = os.path.join(dest, record["id"])
        return {
            f"{start}.yml": text.encode(),
            f"{start}.import.json": f"{json.dumps(cleaned(record, {}), indent=2, ensure_ascii=False)}\n".encode(),
            **{os.path.join(dest, name): content for name, content in patches.items()},
        }

    def _digest(self, image: str, task_vars: dict[str, t.Any]) -> tuple[str, str]:
        """Return (the present digest of the tag in its registry, why it is unknown); one of them is empty."""
        answer = self._execute_module(module_name="gb10.cluster.image_info", module_args={"image": image, "want": ["digest"]}, task_vars=task_vars)
        if not answer.get("failed"):
            return str(answer["digest"]["digest"]), ""
        if answer.get("reason") == NO_SDK:
            # The node in the module's message is this controller.
            return "", "registries are asked through the Docker engine of this controller, whose Python lacks the Docker SDK (pip install docker)"
        return "", " ".join(str(answer.get("msg") or "no answer").split()).rstrip(".")

    @staticmethod
    def _message(record: dict[str, t.Any], files: list[str]) -> str:
        if not record["profile"]:
            return f"{record['path']} (of {record['recipe']}) is refused. Nothing was written."
        where = f"-e gb10_profile={files[0]}" if files else "nothing was written: give a directory as gb10_to"
        return f"{record['path']} (of {record['recipe']}) is the profile {record['id']}, imported and untested: {where}"
