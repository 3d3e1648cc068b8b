# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the lists of what the collection holds: verbs, pages, units, modules, roles, profiles, settings, the action group, and an entry in AWX for a new verb.

    .venv/bin/python tests/tools/lists.py            writes what differs
    .venv/bin/python tests/tools/lists.py --check    names what differs, and fails

Each list is between two marks, or is a whole file. What it says comes from the thing itself: the head of a playbook, the short description of a module or
role, the first heading of a page.
"""

from __future__ import annotations

import argparse
import importlib
import math
import re
import sys
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "collections"))
services = importlib.import_module("ansible_collections.gb10.cluster.plugins.module_utils._service.table")
playbook_tags = importlib.import_module("ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.tags")
INDEX, SETTINGS, AWX_PAGE = Path("docs/index.md"), Path("docs/settings.md"), Path("docs/awx.md")
RUNTIME, TEMPLATES, JUDGE = Path("meta/runtime.yml"), Path("awx/job_templates.yml"), Path("plugins/modules/judge.py")
STAGES = Path("plugins/plugin_utils/_stages")

#: Pages whose verb has another name.
PAGES = {"nemotron_tp2": "bring_up", "awx_configure": "awx"}
#: Verbs that are no job, and why.
NO_JOB = {
    "awx_configure": "makes the templates, from outside, with a token of AWX",
    "init": "writes an inventory on the controller, and a job's own files go with its container",
    "nemotron_tp2": "is serve with the profile that it has by default",
}

MADE = "<!-- {name}: made by tests/tools/lists.py -->"
END = "<!-- end of {name} -->"


class Verb(t.NamedTuple):
    """A playbook that a person types."""

    name: str
    says: str
    tags: list[str]

    @property
    def page(self) -> str:
        return f"{PAGES.get(self.name, self.name)}.md"


def sentence(text: str) -> str:
    """Return the first sentence of a text, on one line."""
    return re.split(r"(?<=[.?!])\s", " ".join(text.split()), maxsplit=1)[0]


def verbs() -> list[Verb]:
    """The playbooks; the head of each shows how it is typed."""
    found = []
    for path in sorted((ROOT / "playbooks").glob("*.yml")):
        head = re.match(r"---\n((?:#.*\n)+)", path.read_text(encoding="utf-8"))
        lines = [line[1:].strip() for line in head[1].splitlines()] if head else []
        if any(line.startswith("ansible-playbook ") for line in lines):
            found.append(Verb(path.stem, sentence(" ".join(lines)), sorted(playbook_tags.known(path) - {"always", "never"})))
    return found


def modules() -> dict[str, str]:
    """The short description of each module."""
    names = sorted(path.stem for path in (ROOT / "plugins/modules").glob("*.py"))
    text = {name: (ROOT / "plugins/modules" / f"{name}.py").read_text(encoding="utf-8") for name in names}
    return {name: re.search(r"^short_description: (.+)$", text[name], re.MULTILINE)[1].strip("\"'") for name in names}


def specs(role: str) -> dict[str, t.Any]:
    """The first entry point of a role's argument specs."""
    entry_points = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    return next(iter(entry_points.values()))


def roles() -> list[str]:
    return sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())


def table(head: tuple[str, ...], rows: t.Iterable[t.Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def settings_page() -> str:
    """Return the page of all settings."""
    rows = []
    for role in ["gb10", *(name for name in roles() if name != "gb10")]:
        defaults = ROOT / "roles" / role / "defaults/main.yml"
        values = yaml.safe_load(defaults.read_text(encoding="utf-8")) or {} if defaults.exists() else {}
        for name, option in (specs(role).get("options") or {}).items():
            described = option["description"]
            says = sentence(described if isinstance(described, str) else described[0])
            default = str(values.get(name, option.get("default", ""))).replace("\n", " ")
            shown = f"`{default}`" if default and len(default) <= 40 else ""
            rows.append((f"`{name}`", option.get("type", "str"), shown, re.sub(r"[A-Z]\(([^()]*)\)", r"`\1`", says), role))
    lines = [
        MADE.format(name="settings"), "# Settings", "",
        f"All {len(rows)}, each with the first sentence that says what it is. `ansible-doc -t role gb10.cluster.gb10`, or another role, has the rest.", "",
        table(("Setting", "Type", "Without it", "What it is", "Role"), rows), "",
    ]
    return "\n".join(lines)


def profile(name: str) -> dict[str, t.Any]:
    """A shipped profile, over the one that it extends as far as two levels, which is as deep as is listed here."""
    said = yaml.safe_load((ROOT / "playbooks/profiles" / f"{name}.yml").read_text(encoding="utf-8"))
    under = profile(said["extends"]) if "extends" in said else {}
    return {**under, **{key: {**under[key], **one} if isinstance(one, dict) and isinstance(under.get(key), dict) else one for key, one in said.items()}}


def profiles() -> list[tuple[str, int, str]]:
    """Each shipped profile with the number of its nodes and its model."""
    names = sorted(path.stem for path in (ROOT / "playbooks/profiles").glob("*.yml"))
    found = [(name, math.prod(profile(name)["parallel"].values()), profile(name)["model"]["repo"]) for name in names]
    return sorted(found, key=lambda one: (-one[1], one[0]))


def heading(page: Path) -> str:
    """Return the title of a page."""
    return re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)[1]


def unit_list() -> str:
    """Return the units on the nodes, from the table that the collection itself reads."""
    rows = []
    for one in services.SERVICES:
        names = ", ".join(f"`{Path(path).name}`" for path in one.unit(services.Where("/var/lib/gb10")).paths)
        rows.append((f"[{names}]({one.page}.md)", one.does, one.read_by, one.leaves))
    return table(("Unit", "What it does", "Its state is read by", "What it leaves behind"), rows)


def verb_list() -> str:
    rows = [(f"[{verb.name}]({verb.page})", verb.says, ", ".join(f"`{tag}`" for tag in verb.tags)) for verb in verbs()]
    return table(("Verb", "What it does", "Tags"), rows)


def page_list() -> str:
    """Return the pages that the index names nowhere else."""
    hand_made = re.sub(r"<!-- (\w+): made by.*?<!-- end of \1 -->", "", (ROOT / INDEX).read_text(encoding="utf-8"), flags=re.DOTALL)
    named = {*re.findall(r"\]\((\w+\.md)\)", hand_made), INDEX.name, *(verb.page for verb in verbs())}
    return "\n".join(f"- [{heading(path)}]({path.name})" for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in named)


def name_list() -> str:
    """Return the modules, roles and profiles."""
    of_modules = table(("Module", "What it does"), [(f"`{name}`", says) for name, says in modules().items()])
    of_roles = table(("Role", "What it does"), [(f"`{name}`", specs(name)["short_description"]) for name in roles()])
    of_profiles = table(("Profile", "Nodes", "Model"), [(f"`{name}`", str(nodes), f"`{model}`") for name, nodes, model in profiles()])
    return f"{of_modules}\n\n{of_roles}\n\n{of_profiles}"


def templates() -> list[dict[str, t.Any]]:
    """The job templates of AWX."""
    class Loader(yaml.SafeLoader):
        """Knows the texts that Ansible leaves as they are."""

    Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))
    return yaml.load((ROOT / TEMPLATES).read_text(encoding="utf-8"), Loader)["controller_templates"]


def template_list() -> str:
    """Return the job templates, with what each asks."""
    rows = []
    for one in templates():
        asks = [question["question_name"] for question in one.get("survey_spec", {}).get("spec", [])]
        tags = ["tags"] if one.get("ask_tags_on_launch") else []
        rows.append((one["name"], f"`{Path(one['playbook']).stem}`", "; ".join([*tags, *asks]) or "nothing"))
    return table(("Template", "Playbook", "It asks for"), rows)


def with_templates(text: str) -> str:
    """Add an entry for each verb that has none; what its survey asks is then for a person to write."""
    known = {Path(one["playbook"]).stem for one in templates()}
    for verb in verbs():
        if verb.name not in {*known, *NO_JOB}:
            text = text.rstrip("\n") + (
                f'\n\n  - <<: [*template, *login]\n    name: GB10 {verb.name}\n    description: {verb.says}\n'
                f'    playbook: "{{{{ gb10_awx_playbooks }}}}/{verb.name}.yml"\n    timeout: 1800\n    survey_enabled: false\n'
            )
    return text


def stages() -> list[str]:
    """What the action judge can be asked about: each stage is a file."""
    return sorted(path.stem for path in (ROOT / STAGES).glob("*.py") if re.search(r"^def judge\(", path.read_text(encoding="utf-8"), re.MULTILINE))


def between(text: str, name: str, content: str) -> str:
    """Put a list between its marks."""
    start, end = MADE.format(name=name), END.format(name=name)
    before, found, rest = text.partition(start)
    _old, ended, after = rest.partition(end)
    if not found or not ended:
        raise SystemExit(f"no list {name!r} between {start} and {end}")
    return f"{before}{start}\n{content}\n{end}{after}"


def lists() -> dict[Path, str]:
    """Return each file that has a list, as it should be."""
    index = (ROOT / INDEX).read_text(encoding="utf-8")
    for name, content in (("verbs", verb_list()), ("pages", page_list()), ("units", unit_list()), ("names", name_list())):
        index = between(index, name, content)
    names = "\n".join(f"    - {name}" for name in modules())
    choices = "\n".join(f"      - {name}" for name in stages())
    return {
        INDEX: index,
        SETTINGS: settings_page(),
        AWX_PAGE: between((ROOT / AWX_PAGE).read_text(encoding="utf-8"), "templates", template_list()),
        RUNTIME: re.sub(r"(action_groups:\n  all:\n)(?:    - \w+\n)+", rf"\g<1>{names}\n", (ROOT / RUNTIME).read_text(encoding="utf-8")),
        JUDGE: re.sub(r"(    choices:\n)(?:      - \w+\n)+", rf"\g<1>{choices}\n", (ROOT / JUDGE).read_text(encoding="utf-8"), count=1),
        TEMPLATES: with_templates((ROOT / TEMPLATES).read_text(encoding="utf-8")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where a list is not what it should be")
    check = parser.parse_args().check
    differ = {path: text for path, text in lists().items() if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != text}
    for path, text in differ.items():
        print(f"{path} {'differs' if check else 'written'}")
        if not check:
            (ROOT / path).write_text(text, encoding="utf-8")
    if differ and check:
        sys.exit("run tests/tools/lists.py")


if __name__ == "__main__":
    main()
