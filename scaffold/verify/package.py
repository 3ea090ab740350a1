"""What can be told about a package without running it: where it lies, what it declares, how upstream drives it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.files.parsing import parse
from scaffold.files.reading import expanded, read_text
from scaffold.spec import read_spec
from scaffold.spec.lock import SPEC_NAME
from scaffold.verify.declared import Declared, read_declared

CONTAINER = ("verl_omni", "pipelines")
# The base classes make a folder a checkout of verl-omni rather than a rendered tree.
CHECKOUT_FILES = ("verl_omni/__init__.py", "verl_omni/pipelines/model_base.py")
_MODELS = "vllm_omni.diffusion.models."
_LISTS = re.compile(r"""model\.(target_modules|fsdp_layer_prefixes)=(["'])(\[.{0,4000}?\])\2""")

# The trainer's layers where a script that collects LoRA by layers names none.
_HALF = re.compile(r"actor\.fsdp_config\.model_dtype=[\"']?(?:bf16|bfloat16)\b")
_MERGED = re.compile(r"model\.lora\.merge=[\"']?[Tt]rue\b")
_LAYERED, PREFIX = re.compile(r"layered_summon=[\"']?True"), "transformer_blocks."


@dataclass(frozen=True)
class Package:
    """A package on disk.

    Attributes:
        folder: ``…/verl_omni/pipelines/<name>``, resolved.
        root: the folder that holds ``verl_omni/``.
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
        return ".".join((*CONTAINER, self.name))


def open_package(path: str | Path, *, declared: bool = True) -> Package:
    """Look at a package; nothing of it is imported.

    Args:
        path: the package's folder, its ``scaffold.toml``, or a tree that holds one package below
            ``verl_omni/pipelines/``.
        declared: whether to read the table of a package that has no ``scaffold.toml``.

    Raises:
        ScaffoldError: it is not a package below ``verl_omni/pipelines/``, or its ``scaffold.toml`` cannot be read.
    """
    folder = expanded(path)
    hint = "name the folder of a package, such as DIR/verl_omni/pipelines/foo_flow_grpo"
    if folder.name == SPEC_NAME and folder.is_file():
        folder = folder.parent
    if not folder.is_dir():
        raise ScaffoldError(f"{path} is not a folder", hint=hint)
    folder = folder.resolve()
    if folder.joinpath(*CONTAINER).is_dir():
        folder = _only_package(folder, path)
    if not (folder / "__init__.py").is_file():
        raise ScaffoldError(f"{path} has no __init__.py", hint=hint)
    if folder.parts[-3:-1] != CONTAINER or not folder.name.isidentifier():
        raise ScaffoldError(f"{path} does not lie in verl_omni/pipelines/", hint=hint)
    root = folder.parents[2]
    checkout = all((root / file).is_file() for file in CHECKOUT_FILES)
    spec = _spec(folder)
    table = read_declared(folder, root) if declared and not spec else Declared()
    return Package(folder, root, checkout, spec, next(upstream_bases(folder, root), None), table)


def _only_package(root: Path, path: str | Path) -> Path:
    """The one package of a tree: of those with a ``scaffold.toml`` if there are any, else of all."""
    found = sorted(file.parent for file in root.glob("/".join((*CONTAINER, "*", "__init__.py"))))
    found = [folder for folder in found if (folder / SPEC_NAME).is_file()] or found
    if len(found) != 1:
        names = f"{len(found)} packages ({', '.join(folder.name for folder in found[:5])})" if found else "no package"
        raise ScaffoldError(f"{path} holds {names} below {'/'.join(CONTAINER)}/", hint="name the folder of one")
    return found[0]


def _spec(folder: Path) -> dict[str, Any]:
    file = folder / SPEC_NAME
    if not file.is_file():
        return {}
    spec = read_spec(file, inside=folder.parents[2]).spec
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
        imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                imported |= {alias.asname: alias.name for alias in node.names if alias.asname}
        for node in tree.body:
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                first, _, rest = ast.unparse(base).partition(".")
                module, _, name = f"{imported.get(first, first)}.{rest}".rstrip(".").rpartition(".")
                if module.startswith(_MODELS):
                    yield module, name


def declared_lists(package: Package) -> dict[str, list[str]]:
    """LoRA targets and FSDP prefixes: of the spec, else of the launch scripts that name the package's architecture.

    Returns:
        ``target_modules`` and ``fsdp_layer_prefixes``, each absent where nobody declares it.
    """
    lora = package.spec.get("lora", {})
    found = {"target_modules": lora.get("targets"), "fsdp_layer_prefixes": lora.get("layer_prefixes")}
    if not package.spec:
        architectures = registered(package.folder)
        for script in sorted([*package.root.glob("examples/**/*.sh"), *package.root.glob("tests/special_e2e/*.sh")]):
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


def _scripts_say(package: Package, what: re.Pattern[str]) -> bool:
    names = "|".join(map(re.escape, sorted(registered(package.folder))))
    texts = (scanned(script, package.root) for script in sorted(package.root.glob("examples/**/*.sh")) if names)
    return any(what.search(text) and re.search(rf"model\.architecture=(?:{names})\b", text) for text in texts)


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
    """Architectures of a package: first argument of each ``register(…)`` decorator, or of that of one base.

    The argument is a string, or the name of one that the package assigns.
    """
    text = "\n".join(scanned(file, folder.parents[2]) for file in sorted(folder.rglob("*.py")))
    constants = dict(re.findall(r"^(\w+)(?:: *\w+)? *= *[\"'](\w+)[\"']", text, re.MULTILINE))
    of_base = rf"{base}\." if base else r"\b"
    arguments = re.findall(rf"{of_base}register\(\s*(?:[\"'](\w+)[\"']|(?:\w+\.)*(\w+))", text)
    return {word or constants[name] for word, name in arguments if word or name in constants}


def scanned(file: Path, root: Path) -> str:
    """The text of a file that is only looked through; empty where it cannot be read."""
    try:
        return read_text(file, inside=root, errors="replace")
    except OSError:
        return ""
