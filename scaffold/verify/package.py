"""What can be told about a package without running it: where it lies, what it declares, how upstream drives it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.files.layout import CHECKOUT, LAYOUTS, PROJECT, Layout, layout_at
from scaffold.files.parsing import parse, unwritten
from scaffold.files.reading import expanded, read_text
from scaffold.files.resources import RUNTIME, installed_runtime
from scaffold.spec import read_spec
from scaffold.spec.lock import SPEC_NAME
from scaffold.verify.declared import Declared, read_declared

CONTAINER = ("verl_omni", "pipelines")
# The base classes make a folder a checkout of verl-omni rather than a rendered tree.
CHECKOUT_FILES = ("verl_omni/__init__.py", "verl_omni/pipelines/model_base.py")
BASES = ("DiffusionModelBase", "VllmOmniPipelineBase")  # also where a package hands them on from a file of its own
_MODELS = "vllm_omni.diffusion.models."
_LISTS = re.compile(r"""model\.(target_modules|fsdp_layer_prefixes)=(["'])(\[.{0,4000}?\])\2""")

# The trainer's layers where a script that collects LoRA by layers names none.
_HALF = re.compile(r"actor\.fsdp_config\.model_dtype=[\"']?(?:bf16|bfloat16)\b")
_MERGED = re.compile(r"model\.lora\.merge=[\"']?[Tt]rue\b")
_LENGTHS = re.compile(r"rollout\.(max_prompt_embed_length|pipeline\.max_sequence_length)=([\"']?\$?\{?\w+\}?)")
EMBEDDED = 512  # VeRL-Omni's own, where no script says it
_LAYERED, PREFIX = re.compile(r"layered_summon=[\"']?True"), "transformer_blocks."


@dataclass(frozen=True)
class Package:
    """A package on disk.

    Attributes:
        folder: ``…/verl_omni/pipelines/<name>``, or of a project ``…/src/<name>``, resolved.
        root: the folder that holds ``verl_omni/`` or ``src/``.
        checkout: whether ``root`` is a checkout of verl-omni.
        spec: sections of ``scaffold.toml``; empty for a package written by hand.
        upstream: ``module`` and ``class`` of the pipeline it inherits from, if its source says so.
        declared: the table of a package written by hand.
    """

    folder: Path
    root: Path
    checkout: bool
    spec: dict[str, Any]
    upstream: tuple[str, str] | None
    declared: Declared = field(default_factory=Declared)

    @property
    def name(self) -> str:
        """Name of the package."""
        return self.folder.name

    @property
    def module(self) -> str:
        """Dotted name under which it is imported."""
        return self.layout.module(self.name)

    @property
    def layout(self) -> Layout:
        """Where the parts of its tree lie."""
        return layout_at(self.folder) or PROJECT

    @property
    def sources(self) -> tuple[Path, ...]:
        """Folders from which it is imported, with the runtime where that is a distribution."""
        own = self.root if self.layout is CHECKOUT else self.folder.parent
        return (own,) if self.carries_runtime else (own, installed_runtime().parent)

    @property
    def launch_scripts(self) -> list[Path]:
        """Scripts that start a training of this package or, in a checkout, of others."""
        return sorted(self.root.glob("scripts/*.sh" if self.layout.external else "examples/**/*.sh"))

    @property
    def carries_runtime(self) -> bool:
        """Whether the runtime lies beside it."""
        return (self.folder.parent / RUNTIME).is_dir()


def open_package(path: str | Path, *, declared: bool = True) -> Package:
    """Look at a package; nothing of it is imported.

    Args:
        path: the package's folder, its ``scaffold.toml``, or a tree that holds one package below
            ``verl_omni/pipelines/`` or ``src/``.
        declared: whether to read the table of a package that has no ``scaffold.toml``.

    Raises:
        ScaffoldError: it is no such package, or its ``scaffold.toml`` cannot be read.
    """
    folder = expanded(path)
    hint = "name the folder of a package, such as DIR/verl_omni/pipelines/foo_flow_grpo or DIR/src/foo_flow_grpo"
    if folder.name == SPEC_NAME and folder.is_file():
        folder = folder.parent
    if not folder.is_dir():
        raise ScaffoldError(f"{path} is not a folder", hint=hint)
    folder = folder.resolve()
    if any((folder / layout.packages).is_dir() for layout in LAYOUTS.values()):
        folder = _only_package(folder, path)
    if not (folder / "__init__.py").is_file():
        raise ScaffoldError(f"{path} has no __init__.py", hint=hint)
    layout = layout_at(folder)
    if layout is None or not folder.name.isidentifier():
        raise ScaffoldError(f"{path} does not lie in verl_omni/pipelines/ or src/", hint=hint)
    root = layout.root(folder)
    checkout = all((root / file).is_file() for file in CHECKOUT_FILES)
    spec = _spec(folder, root)
    table = read_declared(folder, root) if declared and not spec else Declared()
    return Package(folder, root, checkout, spec, next(upstream_bases(folder, root), None), table)


def _only_package(root: Path, path: str | Path) -> Path:
    """The one package of a tree: of those with a ``scaffold.toml`` if there are any, else of all."""
    places = [layout.packages for layout in LAYOUTS.values() if (root / layout.packages).is_dir()]
    found = sorted(file.parent for place in places for file in root.glob(f"{place}/*/__init__.py"))
    found = [folder for folder in found if (folder / SPEC_NAME).is_file()] or found
    if len(found) != 1:
        names = f"{len(found)} packages ({', '.join(folder.name for folder in found[:5])})" if found else "no package"
        raise ScaffoldError(f"{path} holds {names} below {places[0]}/", hint="name the folder of one")
    return found[0]


def _spec(folder: Path, root: Path) -> dict[str, Any]:
    file = folder / SPEC_NAME
    if not file.is_file():
        return {}
    spec = read_spec(file, inside=root).spec
    return {name: dict(values) for name, values in spec.sections.items()}


def upstream_bases(folder: Path, inside: Path) -> Iterator[tuple[str, str]]:
    """Yield ``module`` and ``class`` of each base of a class in ``folder`` that comes from a model of vllm-omni.

    Args:
        folder: of sources; what cannot be read or parsed is passed over.
        inside: the tree that links have to stay in.
    """
    for file in sorted(folder.rglob("*.py")):
        try:
            tree = parse(read_text(file, inside=inside))
        except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
            continue
        imported = _imports(tree)
        for node in tree.body:
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                first, _, rest = ast.unparse(base).partition(".")
                module, _, name = f"{imported.get(first, first)}.{rest}".rstrip(".").rpartition(".")
                if module.startswith(_MODELS):
                    yield module, name


def unwritten_places(package: Package) -> list[str]:
    """Return what is still to be written in a package: ``common.py:34 what, as pipeline_foo.py:12 does``.

    Files that cannot be read or parsed are passed over.
    """
    found = []
    for file in sorted(package.folder.rglob("*.py")):
        try:
            tree = parse(read_text(file, inside=package.root))
        except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and (place := unwritten(node)) is not None:
                found.append(f"{file.relative_to(package.folder)}:{node.lineno} {place.what}, as {place.place} does")
    return found


def declared_lists(package: Package) -> dict[str, list[str]]:
    """LoRA targets and FSDP prefixes: of the spec, else of the launch scripts that name the package's architecture.

    Returns:
        ``target_modules`` and ``fsdp_layer_prefixes``, each absent where nobody declares it.
    """
    lora = package.spec.get("lora", {})
    found = {"target_modules": lora.get("targets"), "fsdp_layer_prefixes": lora.get("layer_prefixes")}
    if not package.spec:
        architectures = registered(package.folder)
        for script in [*package.launch_scripts, *sorted(package.root.glob(f"{package.layout.smoke}*.sh"))]:
            text = scanned(script, package.root)
            if not any(re.search(rf"model\.architecture={name}\b", text) for name in architectures):
                continue
            given = {name: _literal(value) for name, _, value in _LISTS.findall(text)}
            if "target_modules" in given and "fsdp_layer_prefixes" not in text and _LAYERED.search(text):
                given["fsdp_layer_prefixes"] = [PREFIX]
            found = {name: value or given.get(name) for name, value in found.items()}
    return {name: [str(item) for item in value] for name, value in found.items() if value and isinstance(value, list)}


def merges_lora(package: Package) -> bool:
    """Whether the trainer pushes merged weights in place of an adapter, as the spec or else the launch scripts say."""
    if package.spec:
        return package.spec.get("lora", {}).get("merge") is True
    return _scripts_say(package, _MERGED)


def require_release(package: Package, root: Path) -> None:
    """Check that a checkout has what the package imports of its release of verl-omni.

    Raises:
        ScaffoldError: it is another release.
    """
    target = package.spec.get("target", {})
    module = target.get("io_spec")
    if module and not (root / f"{module.replace('.', '/')}.py").is_file():
        made = f"{package.name} was made for verl-omni {target.get('profile')}"
        raise ScaffoldError(f"{made}, and {root} has no {module}", hint="name a checkout of that release")


def casts_module(package: Package) -> bool:
    """Whether a launch script that names the package's architecture has the trainer cast its module to bfloat16."""
    return _scripts_say(package, _HALF)


def embedded_length(package: Package) -> int:
    """Tokens that the agent loop pads embeddings of prompts to, as a launch script of the architecture sets it."""
    for text in _own_scripts(package):
        given = {name: _number(text, value) for name, value in _LENGTHS.findall(text)}
        for name in ("max_prompt_embed_length", "pipeline.max_sequence_length"):
            if (length := given.get(name)) is not None:
                return length
    return EMBEDDED


def _number(text: str, value: str) -> int | None:
    """A number of a script, or the one that a variable has there without another from outside."""
    name = value.strip("\"'${}")
    if not name.isdigit():
        found = re.search(rf"^\s*(?:export )?{re.escape(name)}=[\"']?(?:\$\{{\w+:-)?(\d+)", text, re.MULTILINE)
        name = found[1] if found else ""
    return int(name) if 0 < len(name) < 10 else None


def _scripts_say(package: Package, what: re.Pattern[str]) -> bool:
    return any(what.search(text) for text in _own_scripts(package))


def _own_scripts(package: Package) -> Iterator[str]:
    """Yield launch scripts that name an architecture of the package."""
    names = "|".join(map(re.escape, sorted(registered(package.folder))))
    texts = (scanned(script, package.root) for script in package.launch_scripts if names)
    return (text for text in texts if re.search(rf"model\.architecture=[\"']?(?:{names})\b", text))


def model_names(package: Package) -> list[str]:
    """What files beside the package may call its model, likeliest first.

    The spec's name, or the folder's; then folders of examples whose launch scripts name a registered architecture.
    """
    named = str(package.spec.get("names", {}).get("model") or package.name.removesuffix("_flow_grpo"))
    found = {named: None}
    if not package.spec:
        architectures = "|".join(map(re.escape, sorted(registered(package.folder))))
        for script in sorted(package.root.glob("examples/*/*/*.sh")) if architectures else ():
            if re.search(rf"\b(?:{architectures})\b", scanned(script, package.root)):
                found.setdefault(script.parent.name)
    return list(found)


def _literal(text: str) -> list[Any] | None:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, list) else None


def registered(folder: Path, base: str | None = None) -> set[str]:
    """Architectures of a package: first argument of ``register(…)`` of verl-omni's bases, or of one of them.

    The argument is a string, or the name of one that the package assigns. Another ``register``, of a parser or of a
    table of the package's own, counts for nothing.
    """
    texts = [scanned(file, folder) for file in sorted(folder.rglob("*.py"))]
    constants = dict(re.findall(r"^(\w+)(?:: *\w+)? *= *[\"'](\w+)[\"']", "\n".join(texts), re.MULTILINE))
    found = set()
    for text in texts if base is None or any(base in text for text in texts) else ():
        try:
            tree = parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        imported = _imports(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            first, _, rest = ast.unparse(node.func.value).partition(".")
            owner = ".".join(filter(None, (imported.get(first, first), rest)))
            last = owner.rpartition(".")[2]
            theirs = last in BASES or (owner.startswith("verl_omni.") and last.endswith("Base"))
            if node.func.attr != "register" or not theirs or last != (base or last):
                continue
            given = node.args[0]
            name = ast.unparse(given).rpartition(".")[2]
            value = given.value if isinstance(given, ast.Constant) else constants.get(name)
            found |= {value} if isinstance(value, str) else set()
    return found


def _imports(tree: ast.Module) -> dict[str, str]:
    """What a name stands for that the module imports."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return found


def scanned(file: Path, root: Path) -> str:
    """The text of a file that is only looked through; empty where it cannot be read."""
    try:
        return read_text(file, inside=root, errors="replace")
    except OSError:
        return ""
