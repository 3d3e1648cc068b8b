# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the lists of the collection's contents: verbs, models, pages, units, modules, roles, profiles, settings, the action group, the words that
completion offers, and an entry in AWX for a new verb.

    .venv/bin/python tests/tools/lists.py            writes what differs
    .venv/bin/python tests/tools/lists.py --check    names what differs, and fails

Each list is between two marks, or is a whole file. Its texts come from the sources: the head of a playbook, the short description of a module or
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
README, WRAPPER, COMPLETION = Path("README.md"), Path("gb10"), Path("completion/gb10.sh")

#: The end of a module's short description when only the collection's roles call it. Such a module is in no list and in no action group.
INTERNAL = "(internal)"
#: Pages whose verb has another name.
PAGES = {"nemotron_tp2": "bring_up", "awx_configure": "awx"}
#: Verbs without a job template, and why.
NO_JOB = {
    "awx_configure": "makes the templates, from outside, with a token of AWX",
    "init": "writes an inventory on the controller, and a job's own files go with its container",
    "nemotron_tp2": "is serve with the profile that it has by default",
}

#: Verbs and pages by when an owner needs them. A verb that is not listed belongs to serving, and a page that is not listed is reference.
GROUPS = {
    "before": (
        "from_the_box", "init", "plan", "profiles", "preflight", "serve", "nemotron_tp2", "import", "models", "bundle", "baseline", "fabric", "download",
        "copy", "systems", "coming_from", "lab",
    ),
    "serving": (
        "status", "mode", "single", "teardown", "protect", "guard", "sweep", "bench", "ladder", "prune", "awx_configure", "clients", "proof", "companions",
        "lease", "unit", "recover", "upgrade", "uninstall",
    ),
    "wrong": ("doctor", "explain", "postmortem", "calibrate", "symptoms"),
}
WHEN = {"before": "Before it serves", "serving": "While it serves", "wrong": "When something is wrong"}

#: The settings that owners touch first.
FIRST = (
    "gb10_profile", "gb10_profile_dirs", "gb10_profile_switches", "gb10_serve_arguments", "gb10_single", "gb10_mode", "gb10_api_address", "gb10_api_port",
    "gb10_api_key", "gb10_fabric_address", "gb10_fabric_interfaces", "gb10_hf_home", "gb10_hf_token_file", "gb10_offline", "gb10_unit", "gb10_companions",
    "gb10_tenants", "gb10_silenced", "gb10_allow",
)
#: Verbs by the second word of their own settings; the other settings belong to every verb that needs a node.
SETTINGS_OF = {
    **{word: "doctor" for word in ("rules", "silenced", "fail", "become")},
    "model_directories": "models", "models": "models", "plan": "plan", "postmortem": "status",
    **{word: "mode" for word in ("mode", "lease", "companions")},
    **{word: "protect" for word in ("protect", "guard", "sweep")},
    **{word: "bench" for word in ("bench", "ladder")},
    **{word: word for word in ("bundle", "explain", "import", "prune")},
}
ALL_VERBS = "serve, status, teardown and every other verb that needs a node"

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
    listed = []
    for path in sorted((ROOT / "playbooks").glob("*.yml")):
        head = re.match(r"---\n((?:#.*\n)+)", path.read_text(encoding="utf-8"))
        lines = [line[1:].strip() for line in head[1].splitlines()] if head else []
        if any(line.startswith("ansible-playbook ") for line in lines):
            listed.append(Verb(path.stem, sentence(" ".join(lines)), sorted(playbook_tags.known(path) - {"always", "never"})))
    return listed


def modules(internal: bool = False) -> dict[str, str]:
    """The short description of each module that anybody may use, or of each step of the collection's own roles."""
    names = sorted(path.stem for path in (ROOT / "plugins/modules").glob("*.py"))
    text = {name: (ROOT / "plugins/modules" / f"{name}.py").read_text(encoding="utf-8") for name in names}
    says = {name: re.search(r"^short_description: (.+)$", text[name], re.MULTILINE)[1].strip("\"'") for name in names}
    return {name: words for name, words in says.items() if words.endswith(INTERNAL) is internal}


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


class Setting(t.NamedTuple):
    """A setting, as a row of the page of settings."""

    name: str
    kind: str
    default: str
    says: str
    role: str

    @property
    def group(self) -> str:
        """The verb that it belongs to."""
        words = self.name.removeprefix("gb10_")
        matching = [verb for word, verb in SETTINGS_OF.items() if words == word or words.startswith(f"{word}_")]
        return matching[0] if matching else self.role if self.role not in ("gb10", "engine", "plan") else ALL_VERBS


def settings() -> dict[str, Setting]:
    """Return the settings of all roles by name, those of the collection first."""
    rows: dict[str, Setting] = {}
    for role in ["gb10", *(name for name in roles() if name != "gb10")]:
        defaults = ROOT / "roles" / role / "defaults/main.yml"
        values = yaml.safe_load(defaults.read_text(encoding="utf-8")) or {} if defaults.exists() else {}
        for name, option in (specs(role).get("options") or {}).items():
            described = option["description"]
            says = sentence(described if isinstance(described, str) else described[0])
            default = str(values.get(name, option.get("default", ""))).replace("\n", " ")
            shown = f"`{default}`" if default and len(default) <= 40 else ""
            rows.setdefault(name, Setting(f"{name}", option.get("type", "str"), shown, re.sub(r"[A-Z]\(([^()]*)\)", r"`\1`", says), role))
    return rows


def settings_table(rows: t.Iterable[Setting]) -> str:
    return table(("Setting", "Type", "Default", "Description"), [(f"`{row.name}`", row.kind, row.default, row.says) for row in rows])


def settings_page() -> str:
    """Return the page of all settings: those that owners touch first, then each verb's own."""
    rows = settings()
    if missing := sorted(set(FIRST) - set(rows)):
        raise SystemExit(f"FIRST names settings that do not exist: {', '.join(missing)}")
    groups: dict[str, list[Setting]] = {ALL_VERBS: []}
    for row in rows.values():
        groups.setdefault(row.group, []).append(row)
    lines = [
        MADE.format(name="settings"), "# Settings", "",
        f"All {len(rows)}. Set them in the inventory, or with `-e NAME=VALUE` for one run; lists and mappings as JSON: `-e '{{\"NAME\": [1, 2]}}'`.",
        "`ansible-doc -t role gb10.cluster.gb10`, or another role, has the full descriptions.", "",
        f"## The {len(FIRST)} that owners touch first", "", settings_table(rows[name] for name in FIRST), "",
    ]
    for group in sorted(groups, key=lambda name: (name != ALL_VERBS, name)):
        lines += [f"## {group[0].upper()}{group[1:]}", "", settings_table(groups[group]), ""]
    return "\n".join(lines)


def profile(name: str) -> dict[str, t.Any]:
    """A shipped profile merged over the one that it extends, two levels deep; the lists here need no more."""
    content = yaml.safe_load((ROOT / "playbooks/profiles" / f"{name}.yml").read_text(encoding="utf-8"))
    under = profile(content["extends"]) if "extends" in content else {}
    own = {key: {**under[key], **value} if isinstance(value, dict) and isinstance(under.get(key), dict) else value for key, value in content.items()}
    return {**under, **own}


def profiles() -> list[tuple[str, int, str]]:
    """Each shipped profile with the number of its nodes and its model."""
    names = sorted(path.stem for path in (ROOT / "playbooks/profiles").glob("*.yml"))
    rows = [(name, math.prod(profile(name)["parallel"].values()), profile(name)["model"]["repo"]) for name in names]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def heading(page: Path) -> str:
    """Return the title of a page."""
    return re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)[1]


def unit_list() -> str:
    """Return the units on the nodes, from the table that the collection itself reads."""
    rows = []
    for service in services.SERVICES:
        names = ", ".join(f"`{Path(path).name}`" for path in service.unit(services.Where("/var/lib/gb10")).paths)
        rows.append((f"[{names}]({service.page}.md)", service.does, service.read_by, service.leaves))
    return table(("Unit", "What it does", "Its state is read by", "What it leaves behind"), rows)


def group_of(name: str) -> str:
    return next((group for group, names in GROUPS.items() if name in names), "serving")


def group_list(group: str) -> str:
    """Return a group's verbs with what each does, and its other pages."""
    known = {verb.name: verb for verb in verbs()}
    names = [*GROUPS[group], *(name for name in known if group_of(name) == group and name not in GROUPS[group])]
    rows = [(f"[{name}]({known[name].page})", known[name].says, ", ".join(f"`{tag}`" for tag in known[name].tags)) for name in names if name in known]
    pages = [ROOT / "docs" / f"{name}.md" for name in names if name not in known]
    return "\n".join([table(("Verb", "What it does", "Tags"), rows), "", *(f"- [{heading(page)}]({page.name})" for page in pages if page.exists())])


def page_list() -> str:
    """Return the pages that have no other entry in the index."""
    hand_made = re.sub(r"<!-- (\w+): made by.*?<!-- end of \1 -->", "", (ROOT / INDEX).read_text(encoding="utf-8"), flags=re.DOTALL)
    grouped = {f"{name}.md" for names in GROUPS.values() for name in names}
    named = {*re.findall(r"\]\((\w+\.md)\)", hand_made), INDEX.name, *grouped, *(verb.page for verb in verbs())}
    return "\n".join(f"- [{heading(path)}]({path.name})" for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in named)


def verb_lines() -> str:
    """Return the verbs of each group on a line."""
    known = {verb.name: f"[{verb.name}](docs/{verb.page})" for verb in verbs()}
    return "\n".join(
        f"- {when}: " + ", ".join(link for name, link in sorted(known.items(), key=lambda item: _place(group, item[0])) if group_of(name) == group)
        for group, when in WHEN.items()
    )


def _place(group: str, name: str) -> int:
    return GROUPS[group].index(name) if name in GROUPS[group] else len(GROUPS[group])


def download_gb(content: dict[str, t.Any]) -> float:
    """The GB that a profile fetches; of a model whose size on disk is not given, the weights that its nodes load."""
    loaded = content["memory"]["weights_gb"] * math.prod(content["parallel"].values())
    return (content["model"].get("size_gb") or loaded) + sum(beside.get("size_gb", 0) for beside in content.get("repositories", {}).values())


def model_list() -> str:
    """Return the profiles with the speeds that others reported, by nodes and the fastest first; those without a figure below."""
    rows, silent = [], []
    for name, nodes, _repo in profiles():
        content = profile(name)
        speed = yaml.safe_load((ROOT / "playbooks/profiles" / f"{name}.yml").read_text(encoding="utf-8")).get("speed")
        if not speed:
            silent.append(f"`{name}`")
            continue
        many = f"{speed['many']:g} ({speed['users']})" if "many" in speed else "-"
        tokens = content["serve"]["max_model_len"]
        context = f"{tokens / 1024:.0f}K"
        by = f"[{speed['by']}]({speed['source']}), {speed['setup']}"
        rows.append((f"`{name}`", str(nodes), f"{download_gb(content):.0f}", context, f"{speed['one']:g}", many, by))
    rows.sort(key=lambda row: (-int(row[1]), -float(row[4])))
    listed = table(("Profile", "Sparks", "Download GB", "Context", "One user", "Many (users)", "Reported by, on"), rows)
    return listed + (f"\n\nWithout a reported speed: {', '.join(silent)}." if silent else "")


def completion() -> str:
    """Return the file of completion with the words that ./gb10 knows."""
    shortcuts = re.findall(r"^  ([a-z][a-z |]*)\) tags=.*verb=(\w+)", (ROOT / WRAPPER).read_text(encoding="utf-8"), re.MULTILINE)
    of = {name: verb for names, verb in shortcuts for name in names.split(" | ")}
    words = {
        "verbs": sorted({*(verb.name for verb in verbs()), *of}),
        "profiles": sorted(name for name, _nodes, _model in profiles()),
        "tags": [f"{verb.name}={','.join(verb.tags)}" for verb in verbs() if verb.tags],
    }
    text = (ROOT / COMPLETION).read_text(encoding="utf-8")
    for name, known in words.items():
        text = re.sub(rf"^_gb10_{name}='.*'$", f"_gb10_{name}='{' '.join(known)}'", text, count=1, flags=re.MULTILINE)
    return text


def name_list() -> str:
    """Return the modules, roles and profiles."""
    of_modules = table(("Module", "What it does"), [(f"`{name}`", says) for name, says in modules().items()])
    of_roles = table(("Role", "What it does"), [(f"`{name}`", specs(name)["short_description"]) for name in roles()])
    of_profiles = table(("Profile", "Nodes", "Model"), [(f"`{name}`", str(nodes), f"`{model}`") for name, nodes, model in profiles()])
    return f"{of_modules}\n\n{of_roles}\n\n{of_profiles}"


def templates() -> list[dict[str, t.Any]]:
    """The job templates of AWX."""
    class Loader(yaml.SafeLoader):
        """Reads the texts that Ansible does not template."""

    Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))
    return yaml.load((ROOT / TEMPLATES).read_text(encoding="utf-8"), Loader)["controller_templates"]


def template_list() -> str:
    """Return the job templates, with what each asks."""
    rows = []
    for template in templates():
        asks = [question["question_name"] for question in template.get("survey_spec", {}).get("spec", [])]
        tags = ["tags"] if template.get("ask_tags_on_launch") else []
        rows.append((template["name"], f"`{Path(template['playbook']).stem}`", "; ".join([*tags, *asks]) or "nothing"))
    return table(("Template", "Playbook", "It asks for"), rows)


def with_templates(text: str) -> str:
    """Add an entry for each verb that has none; a person then writes the questions of its survey."""
    known = {Path(template["playbook"]).stem for template in templates()}
    for verb in verbs():
        if verb.name not in {*known, *NO_JOB}:
            text = text.rstrip("\n") + (
                f'\n\n  - <<: [*template, *login]\n    name: GB10 {verb.name}\n    description: {verb.says}\n'
                f'    playbook: "{{{{ gb10_awx_playbooks }}}}/{verb.name}.yml"\n    timeout: 1800\n    survey_enabled: false\n'
            )
    return text


def stages() -> list[str]:
    """The stages that the action judge accepts: each is a file."""
    return sorted(path.stem for path in (ROOT / STAGES).glob("*.py") if re.search(r"^def judge\(", path.read_text(encoding="utf-8"), re.MULTILINE))


def between(text: str, name: str, content: str) -> str:
    """Replace a list between its marks."""
    start, end = MADE.format(name=name), END.format(name=name)
    before, started, rest = text.partition(start)
    _old, ended, after = rest.partition(end)
    if not started or not ended:
        raise SystemExit(f"no list {name!r} between {start} and {end}")
    return f"{before}{start}\n{content}\n{end}{after}"


def lists() -> dict[Path, str]:
    """Return each file that has a list, as it should be."""
    index = (ROOT / INDEX).read_text(encoding="utf-8")
    groups = [(group, group_list(group)) for group in GROUPS]
    for name, content in (*groups, ("pages", page_list()), ("units", unit_list()), ("names", name_list())):
        index = between(index, name, content)
    readme = (ROOT / README).read_text(encoding="utf-8")
    for name, content in (("models", model_list()), ("verbs", verb_lines())):
        readme = between(readme, name, content)
    names = "\n".join(f"    - {name}" for name in modules())
    choices = "\n".join(f"      - {name}" for name in stages())
    return {
        INDEX: index,
        README: readme,
        COMPLETION: completion(),
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
