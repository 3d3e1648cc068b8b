# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An emulator of a controller's API, version 2, as far as the modules of awx.awx 24.6.1 use it for what is in awx/.

It is not an AWX: it runs nothing, has no accounts and keeps nothing. It has the shapes of the answers (lists with count and results, related addresses, 204 for
an association) and the refusals that matter here: names that are taken, a playbook that the project does not have, surveys by AWX's rules, two
credentials of one type, a type of credential that injects into nothing. A field that AWX would silently drop is refused, so that no test uses one.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
import typing as t
import urllib.parse

import awx_rules

Item = dict[str, t.Any]

#: Fields of each kind of object that can be written, with their defaults. An ellipsis marks what has to be given.
FIELDS: dict[str, dict[str, t.Any]] = {
    "organizations": {"name": ..., "description": ""},
    "execution_environments": {"name": ..., "image": ..., "description": "", "organization": None, "credential": None, "pull": ""},
    "credential_types": {"name": ..., "kind": ..., "description": "", "inputs": {}, "injectors": {}, "managed": False},
    "credentials": {"name": ..., "credential_type": ..., "description": "", "organization": None, "inputs": {}},
    "projects": {
        "name": ..., "organization": ..., "description": "", "scm_type": "", "scm_url": "", "scm_branch": "", "scm_clean": False,
        "scm_update_on_launch": False, "default_environment": None,
    },
    "inventories": {"name": ..., "organization": ..., "description": "", "kind": "", "host_filter": None, "variables": ""},
    "inventory_sources": {
        "name": ..., "inventory": ..., "source": ..., "description": "", "source_path": "", "source_project": None, "overwrite": False,
        "overwrite_vars": False, "update_on_launch": False,
    },
    "job_templates": {
        "name": ..., "project": ..., "playbook": ..., "job_type": "run", "organization": None, "inventory": None, "description": "",
        "execution_environment": None,
        "forks": 0, "job_tags": "", "timeout": 0, "extra_vars": "", "allow_simultaneous": False, "become_enabled": False, "use_fact_cache": False,
        "survey_enabled": False, "ask_inventory_on_launch": False, "ask_job_type_on_launch": False, "ask_verbosity_on_launch": False,
        "ask_limit_on_launch": False, "ask_tags_on_launch": False, "ask_variables_on_launch": False,
    },
    "workflow_job_templates": {
        "name": ..., "organization": None, "description": "", "inventory": None, "extra_vars": "", "allow_simultaneous": False, "survey_enabled": False,
        "ask_inventory_on_launch": False, "ask_limit_on_launch": False, "ask_variables_on_launch": False,
    },
    "workflow_job_template_nodes": {"identifier": ..., "workflow_job_template": ..., "unified_job_template": None, "job_tags": ""},
}  # fmt: skip
#: Kind in an address → the word in the field ``type``.
TYPES = {
    "organizations": "organization", "execution_environments": "execution_environment", "credential_types": "credential_type",
    "credentials": "credential", "projects": "project", "inventories": "inventory", "inventory_sources": "inventory_source",
    "job_templates": "job_template", "workflow_job_templates": "workflow_job_template", "workflow_job_template_nodes": "workflow_job_template_node",
}  # fmt: skip
#: What each kind can be associated with.
ASSOCIATIONS = {
    "job_templates": {"credentials"},
    "workflow_job_template_nodes": {"success_nodes", "failure_nodes", "always_nodes"},
}
#: Kinds that include a job template of any sort.
UNIFIED = ("job_templates", "projects", "workflow_job_templates", "inventory_sources")
#: Which fields make a name unique.
UNIQUE = {
    "workflow_job_template_nodes": ("identifier", "workflow_job_template"), "inventory_sources": ("name", "inventory"),
    "credentials": ("name", "organization", "credential_type"), "projects": ("name", "organization"), "inventories": ("name", "organization"),
}  # fmt: skip
#: What awx.awx writes although the API only reads it.
READ_ONLY = {"job_templates": {"organization"}, "workflow_job_template_nodes": {"type"}}


class Refusal(Exception):
    """An error response of the controller."""

    def __init__(self, status: int, **body: t.Any) -> None:
        super().__init__(status, body)
        self.status, self.body = status, body


class Controller:
    """The objects of a controller, and the requests that were made of it."""

    def __init__(self, token: str, playbooks: t.Sequence[str] = ()) -> None:
        self.token = token
        #: The playbooks of the project, once it was fetched.
        self.playbooks = list(playbooks)
        self.items: dict[str, dict[int, Item]] = {kind: {} for kind in FIELDS}
        self.surveys: dict[tuple[str, int], Item] = {}
        self.associations: dict[tuple[str, int, str], list[int]] = {}
        #: (method, path) of every request, in order.
        self.requests: list[tuple[str, str]] = []
        self._next = 1
        self._lock = threading.Lock()
        self._create("organizations", {"name": "Default"})
        self._create("credential_types", {"name": "Machine", "kind": "ssh", "managed": True})

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [request for request in self.requests if request[0] != "GET"]

    def named(self, kind: str, name: str) -> Item:
        return next(item for item in self.items[kind].values() if item.get("name", item.get("identifier")) == name)

    def associated(self, kind: str, name: str, association: str) -> list[str]:
        """Names of what an object is associated with, sorted."""
        other = "credentials" if association == "credentials" else kind
        ids = self.associations.get((kind, self.named(kind, name)["id"], association), [])
        return sorted(self.items[other][id].get("name", self.items[other][id].get("identifier")) for id in ids)

    def survey(self, kind: str, name: str) -> Item:
        return self.surveys.get((kind, self.named(kind, name)["id"]), {})

    # -- requests --------------------------------------------------------------------------------------------------------------

    def answer(self, method: str, address: str, token: str, body: t.Any) -> tuple[int, t.Any]:
        """Answer one request; returns the status and the body."""
        parsed = urllib.parse.urlsplit(address)
        with self._lock:
            self.requests.append((method, parsed.path))
            try:
                if token != f"Bearer {self.token}":
                    raise Refusal(401, detail="Authentication credentials were not provided.")
                parts = [part for part in parsed.path.removeprefix("/api/v2/").split("/") if part]
                if not parsed.path.startswith("/api/v2/") or not parts:
                    raise Refusal(404, detail="Not found.")
                return self._route(method, parts, dict(urllib.parse.parse_qsl(parsed.query)), body)
            except Refusal as refusal:
                return refusal.status, refusal.body

    def _route(self, method: str, parts: list[str], query: dict[str, str], body: t.Any) -> tuple[int, t.Any]:
        kind = parts[0]
        if kind == "project_updates" and method == "GET":
            return 200, {"id": int(parts[1]), "status": "successful"}
        if kind == "unified_job_templates" and method == "GET" and len(parts) == 1:
            return 200, self._listed([item for kind in UNIFIED for item in self.items[kind].values()], query)
        if kind not in FIELDS:
            raise Refusal(404, detail="Not found.")
        if len(parts) == 1:
            if method == "GET":
                return 200, self._listed(list(self.items[kind].values()), query)
            if method == "POST":
                return 201, self._create(kind, body)
            raise Refusal(405, detail=f'Method "{method}" not allowed.')
        item = self.items[kind].get(int(parts[1]))
        if item is None:
            raise Refusal(404, detail="Not found.")
        if len(parts) == 2:
            return 200, item if method == "GET" else self._change(kind, item, body)
        if parts[2] == "survey_spec" and kind in ("job_templates", "workflow_job_templates"):
            return 200, self._survey(method, kind, item, body)
        if parts[2] in ASSOCIATIONS.get(kind, ()):
            return self._associate(method, kind, item, parts[2], body)
        raise Refusal(404, detail="Not found.")

    def _listed(self, items: list[Item], query: dict[str, str]) -> Item:
        unknown = [name for name in query if not any(name in item for item in items)]
        if items and unknown:
            raise Refusal(400, detail=f"There is no field {unknown[0]} to filter by.")
        matching = [item for item in items if all(str(item.get(name)) == value for name, value in query.items())]
        return {"count": len(matching), "next": None, "previous": None, "results": matching}

    # -- objects ---------------------------------------------------------------------------------------------------------------

    def _create(self, kind: str, body: Item) -> Item:
        missing = [name for name, default in FIELDS[kind].items() if default is ... and body.get(name) in (None, "")]
        if missing:
            raise Refusal(400, **{name: ["This field is required."] for name in missing})
        unique = UNIQUE.get(kind, ("name",))
        if any(all(item[name] == body.get(name) for name in unique) for item in self.items[kind].values()):
            raise Refusal(400, __all__=[f"{TYPES[kind]} with this {' and '.join(unique)} already exists."])
        id, self._next = self._next, self._next + 1
        url = f"/api/v2/{kind}/{id}/"
        related = {"survey_spec": f"{url}survey_spec/"} if kind in ("job_templates", "workflow_job_templates") else {}
        item = {"id": id, "type": TYPES[kind], "url": url, "related": related, "summary_fields": {}, **FIELDS[kind]}
        if kind == "projects":
            item["scm_revision"] = ""
        self._write(kind, item, body)
        self.items[kind][id] = item
        return item

    def _change(self, kind: str, item: Item, body: Item) -> Item:
        self._write(kind, item, body)
        return item

    def _write(self, kind: str, item: Item, body: Item) -> None:
        written = {name: value for name, value in body.items() if name not in READ_ONLY.get(kind, ())}
        strange = sorted(set(written) - set(FIELDS[kind]))
        if strange:
            raise Refusal(400, detail=f"{kind} has no field {strange[0]}.")
        empty = [name for name, value in written.items() if value is None and FIELDS[kind][name] is ...]
        if empty:
            raise Refusal(400, **{name: ["This field may not be null."] for name in empty})
        # A field that is written as null gets its default.
        after = {**item, **{name: FIELDS[kind][name] if value is None else value for name, value in written.items()}}
        self._check(kind, after)
        item.update(after)
        if kind == "projects":
            item["summary_fields"] = {"current_update": {"id": 1000 + item["id"]}}
            item["scm_revision"] = "0" * 40
        if kind == "job_templates":
            item["organization"] = self.items["projects"][item["project"]]["organization"]

    def _check(self, kind: str, item: Item) -> None:
        """Refuse what AWX refuses."""
        for field, other in (("organization", "organizations"), ("project", "projects"), ("inventory", "inventories"), ("credential_type", "credential_types")):
            if item.get(field) is not None and item[field] not in self.items[other]:
                raise Refusal(400, **{field: [f'Invalid pk "{item[field]}" - object does not exist.']})
        if kind == "job_templates" and item["playbook"] not in self.playbooks:
            raise Refusal(400, playbook=["Playbook not found for project."])
        if kind == "credential_types" and not item["managed"]:
            self._check_credential_type(item)

    @staticmethod
    def _check_credential_type(item: Item) -> None:
        """Custom types are cloud or net, and inject their fields and the files made of them (CredentialTypeInjectorField in awx/main/fields.py)."""
        if item["kind"] not in ("cloud", "net"):
            raise Refusal(400, kind=["Must be 'cloud' or 'net'."])
        known = {field["id"] for field in item["inputs"].get("fields", [])}
        if set(item["inputs"].get("required", [])) - known:
            raise Refusal(400, inputs=["'required' names a field that is none."])
        injectors = item["injectors"]
        if set(injectors) - {"file", "env", "extra_vars"}:
            raise Refusal(400, injectors=["Additional properties are not allowed."])
        templates = injectors.get("file", {})
        if any(not re.fullmatch(r"template(\.[a-zA-Z_]\w*)?", name) for name in templates) or "template" in templates and len(templates) > 1:
            raise Refusal(400, injectors=["Must define unnamed or named file injectors, and not both."])
        known |= {"tower.filename" if name == "template" else f"tower.filename.{name.partition('.')[2]}" for name in templates}
        for group in injectors.values():
            for text in group.values():
                used = set(re.findall(r"{{\s*([\w.]+)\s*}}", text))
                if not used or used - known:
                    raise Refusal(400, injectors=[f"{text} uses an undefined field ({', '.join(sorted(used - known)) or 'none'})"])

    def _survey(self, method: str, kind: str, item: Item, body: t.Any) -> Item:
        key = (kind, item["id"])
        if method == "GET":
            return self.surveys.get(key, {})
        if method == "DELETE":
            self.surveys.pop(key, None)
            return {}
        error = awx_rules.survey_error(body)
        if error:
            raise Refusal(400, error=error)
        self.surveys[key] = body
        return {}

    def _associate(self, method: str, kind: str, item: Item, association: str, body: t.Any) -> tuple[int, t.Any]:
        other = "credentials" if association == "credentials" else kind
        ids = self.associations.setdefault((kind, item["id"], association), [])
        if method == "GET":
            return 200, self._listed([self.items[other][id] for id in ids], {})
        if body["id"] not in self.items[other]:
            raise Refusal(400, detail="no such object")
        if body.get("disassociate"):
            ids.remove(body["id"])
            return 204, None
        if association == "credentials":
            kinds = [self.items[other][id]["credential_type"] for id in (*ids, body["id"])]
            if len(kinds) != len(set(kinds)):
                raise Refusal(400, error="Cannot assign multiple credentials of one type.")
        ids.append(body["id"])
        return 204, None


class Server:
    """Serve the emulator at an address of this machine until the end of the context."""

    def __init__(self, controller: Controller) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def _handle(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                status, answer = controller.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
                text = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.send_header("X-API-Product-Name", "AWX")
                self.send_header("X-API-Product-Version", "24.6.1")
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_DELETE = _handle

            def log_message(self, *arguments: t.Any) -> None:
                """Print nothing: the controller records the requests."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self.address

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
