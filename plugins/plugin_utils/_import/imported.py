# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes a profile of this collection from a recipe's facts. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import re
import typing as t

import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.env_text import env_text
from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import REFUSED, RESERVED, is_refused
from ansible_collections.gb10.cluster.plugins.module_utils._engine.questions import CHECKS
from ansible_collections.gb10.cluster.plugins.module_utils._image.images import repository
from ansible_collections.gb10.cluster.plugins.module_utils._redact import holds_secret, shown_value
from ansible_collections.gb10.cluster.plugins.plugin_utils._import import architectures, launcher_recipes, places, vllm_recipes
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.draft import Choices, Draft
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.ledger import Ledger
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.reading import EUGR, SPARKRUN, VLLM_RECIPES, Recipe
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.template import missing_names
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.env_values import OWNED_ENV, SECRET_ENV
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import derived, flags, form, profiles, validation
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import near

#: Where recipes of each kind are published.
_SOURCES = {EUGR: f"https://github.com/{EUGR}", SPARKRUN: "https://github.com/spark-arena/sparkrun", VLLM_RECIPES: f"https://github.com/{VLLM_RECIPES}"}

#: The mark of a profile that was made from a recipe.
MARK = "Imported, untested"

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z")
_REFERENCE = re.compile(r"(?=.{1,300}\Z)[a-z0-9][a-z0-9._-]*(?::[0-9]+)?(?:/[a-z0-9][a-z0-9._-]*)*(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?\Z", re.ASCII)
#: A variable with a default, in the value of another one.
_DEFAULT = re.compile(r"\$\{[A-Za-z_]\w*:?-([^{}$]*)\}")
#: Questions that fit any chat model; tool_call is asked where the engine has a parser for it.
_ANSWERS = ("arithmetic", "echo", "coherence", "tool_call")

#: How an argument gets into a profile's parallel sizes.
_SIZES = {"tensor_parallel_size": "tensor", "pipeline_parallel_size": "pipeline", "data_parallel_size": "data"}
_BACKENDS = {"ray": "ray", "mp": "native", "uni": "native"}
#: Arguments with the position of one rank; the collection sets them on each node.
_OF_A_RANK = {
    "nnodes", "node_rank", "master_addr", "master_port", "headless", "data_parallel_rank", "data_parallel_start_rank", "data_parallel_size_local",
    "data_parallel_address", "data_parallel_rpc_port", "data_parallel_backend", "data_parallel_external_lb", "data_parallel_hybrid_lb",
}  # fmt: skip
#: Arguments that name a file with Python; one without a directory is in the model's repository.
_PLUGINS = {"reasoning_parser_plugin", "tool_parser_plugin"}
#: Arguments that the collection sets itself, each with the reason why a recipe's is left out.
_SET_HERE = {
    "download_dir": "models are stored in gb10_hf_home",
    **{name: f"it is set by the collection from {row.setting}" for name, row in RESERVED.items()},
    **dict.fromkeys(_OF_A_RANK, "it is the position of a rank, which the collection sets on each node"),
}

#: Variables with a fact about one machine or one rank, besides those that the collection sets on each node.
_OF_A_NODE = {
    "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "LOCAL_RANK", "WORLD_SIZE", "HEAD_IP", "ETH_IF", "IB_IF", "IFACE_NAME", "MN_IF_NAME",
    "NCCL_IB_GID_INDEX", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HF_ENDPOINT", "TRANSFORMERS_CACHE", "HUGGINGFACE_HUB_CACHE", "RAY_ADDRESS",
}  # fmt: skip
#: Variables that make NCCL leave the fabric.
_OFF_FABRIC = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "socket"}


class _Dumper(yaml.SafeDumper):
    """Writes YAML as the shipped profiles are written: lists are indented, and nothing refers to another part of the file."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: t.Any) -> bool:
        return True


class Imported(t.NamedTuple):
    """A profile, or None when something is refused, with a record of what happened to each part of the recipe."""

    profile: dict[str, t.Any] | None
    ledger: Ledger
    #: The files of the profile's mods, by their paths next to it.
    files: dict[str, bytes]


def convert(recipe: Recipe, choices: Choices, resolve: t.Callable[[str], tuple[str, str]]) -> Imported:
    """Return a recipe as a profile. ``resolve`` returns the digest of a tag, or why it is unknown."""
    ledger = Ledger()
    read = vllm_recipes.draft if recipe.kind == VLLM_RECIPES else launcher_recipes.draft
    draft = read(recipe, choices, ledger)
    if draft is None:
        return Imported(None, ledger, {})
    profile = _Mapper(draft, choices, ledger).profile(recipe)
    folder = f"{profile['id']}.mods"
    if not ledger.is_refused:
        profile["image"]["base"] = _pinned(draft, resolve, ledger)
        # Problems of the profile keep the words of its rules; files are compared when the profile is read.
        for problem in validation.validate(profile, expected_id=profile["id"])[1]:
            ledger.refused(problem.where, problem.what, f"expected {problem.expected or 'another value'}", problem.remedy or "correct the recipe")
    if ledger.is_refused:
        return Imported(None, ledger, {})
    if draft.mods.mods:
        profile["image"] |= {"mods": draft.mods.at(folder), "tag": f"local/{profile['id']}:imported"}
    return Imported(profile, ledger, {f"{folder}/{name}": content for name, content in draft.mods.files.items()})


def slug(name: str) -> str:
    """Return a recipe's name as the id of a profile; the id of a shipped profile gets a suffix, so that it is not replaced."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "recipe"
    return f"{plain}_imported" if plain in profiles.known() else plain


def text(profile: dict[str, t.Any], recipe: Recipe) -> str:
    """Return a profile as the text of its file."""
    head = f"# {MARK}: made from {recipe.path.name}, a recipe of {recipe.kind} (sha256 {recipe.sha256}).\n"
    return f"---\n{head}{yaml.dump(profile, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=150)}"


def _pinned(draft: Draft, resolve: t.Callable[[str], tuple[str, str]], ledger: Ledger) -> str:
    """Return the image by its digest, or by its tag when no registry has the digest."""
    image = draft.image
    if "@sha256:" in image:
        ledger.taken(draft.image_field, image, "image.base")
        return image
    digest, why = resolve(image)
    if not digest:
        moving = " A tag can be given to another image at any time." if image.endswith(":latest") or image == repository(image) else ""
        ledger.changed(draft.image_field, image, "image.base, by its tag", f"its digest is unknown: {why}.{moving}", remedy="name the digest in image.base")
        return image
    pinned = f"{repository(image)}@{digest}"
    ledger.changed(draft.image_field, image, pinned, "this is the tag's digest today", differs=False)
    return pinned


class _Mapper:
    """Makes the profile of one recipe, and notes what cannot be in it."""

    def __init__(self, draft: Draft, choices: Choices, ledger: Ledger) -> None:
        self.draft = draft
        self.choices = choices
        self.ledger = ledger
        self.model: dict[str, t.Any] = {"path" if places.is_path(draft.model) else "repo": draft.model}
        self.repositories: dict[str, dict[str, str]] = {}
        self.parallel: dict[str, t.Any] = {"tensor": 1}
        self.serve: dict[str, t.Any] = {}
        self.executor = draft.executor
        self.remote_code = False

    def profile(self, recipe: Recipe) -> dict[str, t.Any]:
        """Return the profile; it is only of use when nothing was refused."""
        draft = self.draft
        if "repo" in self.model and not _REPOSITORY.match(draft.model):
            self.ledger.refused("model", draft.model or "nothing", "it is not a repository of the hub, such as org/name", "name the repository in the recipe")
        if draft.image and not _REFERENCE.match(draft.image):
            self.ledger.refused(draft.image_field, draft.image, "it is not the reference of an image", "give one as gb10_import_image")
        for name, value in draft.parsed.arguments.items():
            self._argument(name, value)
        for name, unknown in draft.parsed.missing.items():
            self._missing(name, unknown)
        self._revision()
        self._remote_code()
        nodes = self._nodes()
        env = self._env(nodes)
        description = " ".join(draft.description.split())
        memory = dict(draft.memory)
        if "model_gb" in memory:
            memory["weights_gb"] = round(memory.pop("model_gb") / nodes, 1)
            self.ledger.taken("metadata.model_vram", draft.memory["model_gb"], f"memory.weights_gb = {memory['weights_gb']}")
        fields = {
            "schema": form.SCHEMA_VERSION,
            "id": slug(draft.name),
            "model": self.model,
            "repositories": self.repositories,
            # An engine that starts with Ray needs an image that has it: no layer is added to an image that was not inspected.
            "image": {"base": draft.image, "layers": []},
            "parallel": self.parallel,
            "executor": self.executor or "native",
            "executor_reason": "" if nodes == 1 else "its recipe says so" if self.executor else "its recipe does not ask for Ray",
            "env": {"shared": env} if env else None,
            "serve": dict(sorted(self.serve.items())),
            # Arguments that no known release of the engine has: only the recipe's image has them.
            "fork_flags": {
                name: {"why": "its recipe sets it", "source": _SOURCES[recipe.kind], "image": draft.image}
                for name in sorted(self.serve)
                if not flags.is_known(name)
            },
            "memory": memory,
            "answers": self._answers(),
            "requires": draft.requires,
            "evidence": form.UNTESTED,
            "notes": f"{MARK}: from {recipe.path.name}, a recipe of {recipe.kind}. {'' if holds_secret(description) else description}".strip(),
        }
        return {name: value for name, value in fields.items() if value not in (None, {}, [], "")}

    def _argument(self, name: str, value: t.Any) -> None:
        """Put one argument into its place in the profile."""
        field = f"--{name.replace('_', '-')}"
        if name in ("api_key", "hf_token"):
            self.ledger.secret(field)
        elif name in _SIZES:
            self._size(field, _SIZES[name], value)
        elif name == "enable_expert_parallel":
            self.parallel["expert"] = bool(value)
            self.ledger.taken(field, value, "parallel.expert")
        elif name == "served_model_name":
            self.model["served_names"] = [str(entry) for entry in value] if isinstance(value, list) else str(value).split()
            self.ledger.taken(field, " ".join(self.model["served_names"]), "model.served_names")
        elif name in ("code_revision", "tokenizer_revision") and value != self.draft.parsed.arguments.get("revision", value):
            self.ledger.refused(field, value, "it is another revision than the model's, and all of a repository is of one", "pin model.revision alone")
        elif name in ("revision", "code_revision", "tokenizer_revision"):
            self._commit(field, str(value))
        elif name == "distributed_executor_backend" and str(value) not in _BACKENDS:
            self.executor = ""
            self.ledger.refused(field, value, "it is not an executor that this collection can use", "use ray or mp")
        elif name == "distributed_executor_backend":
            self.executor = _BACKENDS[str(value)]
            self.ledger.taken(field, value, f"executor: {self.executor}")
        elif name in _SET_HERE:
            self.ledger.dropped(field, value, _SET_HERE[name], differs=False)
        elif is_refused(name, value):
            self.ledger.refused(field, value, f"it {REFUSED[name]}", "write what it says into the recipe, or leave it out")
        elif holds_secret(str(value)):
            self.ledger.secret(field)
        elif name in _PLUGINS:
            self._plugin(field, name, str(value))
        elif name == "trust_remote_code":
            self.remote_code = bool(value)
        elif name == "chat_template" and (template := self.draft.mods.texts.get(str(value).removeprefix("./"))):
            self.serve[name] = template
            self.ledger.changed(field, value, f"serve.{name}, the template itself", "the recipe's mod has the file", differs=False)
        else:
            self._path(field, name, value)
            self.serve[name] = self._second(name, value)
            if flags.is_known(name):
                self.ledger.taken(field, value, f"serve.{name}")
            elif self.choices.without_mods and not self.choices.image:
                self.ledger.refused(
                    field,
                    value,
                    "no release of vLLM has it, so a mod that is left out may have brought it",
                    "give an image that has it as gb10_import_image, or take the argument out of the recipe",
                )
            else:
                self.ledger.changed(
                    field,
                    value,
                    f"serve.{name}, listed in fork_flags",
                    f"no release of vLLM has it{near(name, flags.table().names)}, so it is taken for one that the image's engine alone has",
                    remedy="correct the recipe if it is misspelt",
                )

    def _size(self, field: str, size: str, value: t.Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.ledger.refused(field, value, "it is not a number of ranks", "correct the recipe, or give it with gb10_import_choices.values")
        else:
            self.parallel |= {size: value} if value > 1 or size == "tensor" else {}
            self.ledger.taken(field, value, f"parallel.{size}")

    def _missing(self, name: str, unknown: str) -> None:
        """Leave out an argument without a value where the collection sets it, refuse any other."""
        field = f"--{name.replace('_', '-')}"
        if name in _OF_A_RANK or name in RESERVED and name not in _SIZES and name != "revision":
            self.ledger.dropped(field, unknown, "the collection sets it on each node", differs=False)
        else:
            self.ledger.refused(field, unknown, "it has no value in the recipe's defaults and variables", "give it with gb10_import_choices.values")

    def _plugin(self, field: str, name: str, value: str) -> None:
        """Treat a file with Python as a file of the model's repository, which has to be pinned because the code runs."""
        file = value.removeprefix("./")
        if "/" in file:
            self.ledger.refused(
                field, value, "it is a file with code that is in no repository", "build an image that holds it, and give that as gb10_import_image"
            )
        else:
            self.model.setdefault("side_files", []).append(file)
            self.serve[name] = f"side_file:{file}"
            self.ledger.changed(field, value, self.serve[name], "a file without a directory is taken from the model's repository")

    def _second(self, name: str, value: t.Any) -> t.Any:
        """Return an argument with its other repositories as repositories of the profile: nothing is downloaded while an engine starts."""
        if name == "tokenizer":
            return self._repository("--tokenizer", "tokenizer", "tokenizer", value)
        if name == "speculative_config" and isinstance(value, dict):
            repo = value.get("model")
            purpose = "assistant" if "assistant" in str(repo).lower() else "drafter"
            other = self._repository("--speculative-config model", purpose, purpose, repo, value.get("revision"))
            if other != repo:
                # The directory of a commit needs no revision, and a repository without one is the cache's main branch.
                value = {key: setting for key, setting in value.items() if key not in ("revision", "code_revision")} | {"model": other}
        if name == "lora_modules":
            return [self._adapter(number, adapter) for number, adapter in enumerate(value if isinstance(value, list) else [value], start=1)]
        return value

    def _adapter(self, number: int, value: t.Any) -> t.Any:
        """Return one adapter, NAME=PATH or a mapping, with its repository as a repository of the profile."""
        given = value if isinstance(value, dict) else dict(zip(("name", "path"), str(value).partition("=")[::2]))
        other = self._repository("--lora-modules", f"adapter{number}", "adapter", given.get("path"))
        return value if other == given.get("path") else {**given, "path": other}

    def _repository(self, field: str, name: str, purpose: str, repo: t.Any, revision: t.Any = None) -> t.Any:
        """Add a repository or a directory to the profile, and return the argument's reference to it; any other value is returned unchanged."""
        path, place = places.behind(repo, self.draft.places) if places.is_path(repo) else ("", "")
        held = places.snapshot(path)
        if held:
            repo, revision = held
        elif place:
            self.repositories[name] = {"path": path, "purpose": purpose}
            self.ledger.changed(field, repo, f"repositories.{name}.path = {path}", "it has to be there on every node")
            return f"repository:{name}"
        if not isinstance(repo, str) or not _REPOSITORY.match(repo) or repo == self.draft.model:
            return repo
        chosen = self.choices.revisions.get(repo) or revision
        self.repositories[name] = {"repo": repo, "purpose": purpose}
        if isinstance(chosen, str) and _COMMIT.match(chosen):
            self.repositories[name]["revision"] = chosen
            self.ledger.taken(field, f"{repo} at {chosen}", f"repositories.{name}")
        elif chosen:
            self.ledger.refused(field, f"{repo} at {chosen}", "it is not a commit: what a branch or a tag holds can change", self._pin(repo))
        elif purpose == "tokenizer":
            self.ledger.refused(field, repo, "its commit is unknown, and the engine would look for the model's commit in it", self._pin(repo))
        else:
            self.ledger.changed(field, repo, f"repositories.{name}", "its commit is unknown: the main branch in the cache is used", remedy=self._pin(repo))
        return f"repository:{name}"

    def _path(self, field: str, name: str, value: t.Any) -> None:
        """Note that a file has to be in the image: none is copied into a container."""
        for path in [value, *(value.values() if isinstance(value, dict) else ())]:
            if isinstance(path, str) and (path.startswith(("/", "./", "~")) or name == "chat_template" and path.endswith(".jinja")):
                self.ledger.changed(field, path, f"serve.{name} as it is", "the file has to be in the image: check that it is")

    def _commit(self, field: str, value: str) -> None:
        """Take a commit of the model's repository. A branch is not accepted."""
        if not _COMMIT.match(value):
            self.ledger.dropped(field, value, "it is not a commit: what a branch or a tag holds can change", remedy=self._pin(self.draft.model))
        elif self.model.get("revision", value) != value:
            self.ledger.refused(field, value, f"it is another commit than {self.model['revision']}, which the recipe names, too", "correct the recipe")
        else:
            self.model["revision"] = value
            self.ledger.taken(field, value, "model.revision")

    def _pin(self, *repos: str) -> str:
        """Return what to type to pin these repositories to their present commits; a directory has no commit to pin."""
        if any(map(places.is_path, repos)):
            return "name the hub's repository in the recipe instead of the directory"
        commits = ", ".join(rf'\"{repo}\": \"$(git ls-remote https://huggingface.co/{repo} HEAD | cut -f1)\"' for repo in repos)
        return rf'look at the code, then pin the commit of today: -e "{{\"gb10_import_revisions\": {{{commits}}}}}"'

    def _revision(self) -> None:
        if self.draft.revision:
            self._commit("model_revision", self.draft.revision)
        chosen = self.choices.revisions.get(self.draft.model)
        named = {entry["repo"] for entry in (self.model, *self.repositories.values()) if "repo" in entry}
        for repo in sorted(set(self.choices.revisions) - named):
            self.ledger.refused(
                "gb10_import_revisions", repo, f"the recipe does not name this repository{near(repo, named)}", "correct its name, or leave it out"
            )
        if chosen:
            self.model["revision"] = str(chosen)
            self.ledger.changed("model", self.draft.model, f"model.revision = {chosen}", "gb10_import_revisions says so", differs=False)

    def _remote_code(self) -> None:
        """Take code of repositories with pinned commits, leave it out where the engine has its own, and refuse any other. The result is one row."""
        field = "--trust-remote-code"
        unpinned = [] if "revision" in self.model else [self.draft.model]
        for file in self.model.get("side_files", []) if unpinned else ():
            self.ledger.refused("model", file, "it is code of a repository whose commit the recipe does not name", self._pin(self.draft.model))
        if not self.remote_code:
            if "trust_remote_code" in self.draft.parsed.arguments:
                self.ledger.dropped(field, False, "code of repositories does not run by default", differs=False)
            return
        unpinned += [entry.get("repo") or entry["path"] for entry in self.repositories.values() if "revision" not in entry and entry["purpose"] != "tokenizer"]
        known = architectures.known(self.draft.model, self.draft.image, self.draft.requires.get("vllm", "")) if unpinned else None
        if not unpinned:
            self.serve["trust_remote_code"] = True
            self.ledger.taken(field, True, "serve.trust_remote_code")
        elif known and known.has is not False:
            self.ledger.dropped(
                field,
                True,
                f"vLLM has this model's code itself since {known.since} ({known.architecture}), so none of the repository runs",
                remedy="" if known.has else f"an image with an older vLLM says at once that it needs it: then {self._pin(*unpinned)}",
                differs=not known.has,
            )
        else:
            older = f", and vLLM has its own for this model only since {known.since}" if known else ""
            self.ledger.refused(field, True, f"it runs code of {' and '.join(unpinned)}, whose commit the recipe does not name{older}", self._pin(*unpinned))

    def _nodes(self) -> int:
        """Return the number of nodes, which has to be one that the recipe is for."""
        nodes = self.parallel["tensor"] * self.parallel.get("pipeline", 1) * self.parallel.get("data", 1)
        least, most = self.draft.least_nodes, self.draft.most_nodes
        if nodes < least or most and nodes > most:
            bounds = f"{least} or more" if not most else f"{least} to {most}"
            self.ledger.refused("parallel", f"{nodes} nodes", f"the recipe is for {bounds}", "give tensor_parallel with gb10_import_choices.values")
        if nodes == 1 and self.executor == "ray":
            self.ledger.changed("executor", "ray", "native", "one node needs no Ray", differs=False)
            self.executor = "native"
        return nodes

    def _env(self, nodes: int) -> dict[str, str]:
        """Return the variables of every container."""
        env: dict[str, str] = {}
        for given, value in self.draft.env.items():
            name, field = str(given), f"env.{given}"
            if isinstance(value, (list, dict)) or value is None:
                self.ledger.refused(field, "nothing" if value is None else type(value).__name__, "it is not one text or number", "correct the recipe")
                continue
            content = env_text(name, value)
            if (default := _DEFAULT.sub(r"\1", content)) != content:
                self.ledger.changed(field, content, default or "nothing", "a profile has no variables: its default is taken", differs=False)
                content = default
            unknown = missing_names(content) or re.findall(r"\$\{?\w+\}?", content)
            if name in SECRET_ENV or shown_value(name, content) != content:
                self.ledger.secret(field)
            elif name in derived.PER_HOST_ENV or name in _OF_A_NODE:
                self.ledger.dropped(field, content, "it is specific to one machine; the collection finds it on each node", differs=False)
            elif name in OWNED_ENV or name in derived.SHARED_ENV:
                own = derived.SHARED_ENV.get(name, content)
                self.ledger.dropped(field, content, f"it is set by the collection{'' if own == content else f' to {own}'}", differs=own != content)
            elif name in _OFF_FABRIC and content.lower() == _OFF_FABRIC[name]:
                self.ledger.dropped(
                    field, content, "it takes NCCL off InfiniBand", remedy="gb10_fabric_fallback: tcp, if that is what you want", differs=nodes > 1
                )
            elif unknown:
                self.ledger.refused(
                    field,
                    ", ".join(unknown),
                    "it has no value: a profile has no variables of the machine that it is read on",
                    "write the value into the recipe",
                )
            elif "{{" in content or "{%" in content:
                self.ledger.refused(field, content, "it holds a Jinja template, which is not filled in", "write the value itself")
            else:
                env[name] = content
                self.ledger.taken(field, content, f"env.shared.{name}")
        return env

    def _answers(self) -> list[str]:
        """Return the questions with known answers that fit: an untested model is asked them at its first start."""
        if any(self.serve.get(name) in ("pooling", "embed", "score", "classify") for name in ("runner", "task", "convert")):
            return []
        questions = [name for name in _ANSWERS if not CHECKS[name].needs or self.serve.get(CHECKS[name].needs)]
        self.ledger.changed("answers", "nothing", ", ".join(questions), "an untested engine is asked questions with known answers", differs=False)
        return questions
