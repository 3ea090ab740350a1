"""Reads vllm-omni's registry of pipelines, and resolves the user's PIPELINE with it."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass

from scaffold.errors import ScaffoldError
from scaffold.upstream.source import UpstreamSource

REGISTRY_FILE = "vllm_omni/diffusion/registry.py"
REGISTRY_NAME = "_DIFFUSION_MODELS"
MODELS_PACKAGE = "vllm_omni.diffusion.models"


@dataclass(frozen=True)
class PipelineTarget:
    """A pipeline class: its module and its registry keys, first the one that it was asked for by."""

    module: str
    class_name: str
    folder: str | None
    registry_keys: tuple[str, ...]

    @property
    def file(self) -> str:
        """The module's path relative to the folder that holds ``vllm_omni/``."""
        return self.module.replace(".", "/") + ".py"


def read_registry(source: UpstreamSource) -> dict[str, tuple[str, str, str]]:
    """Return registry key -> (folder, module, class), in the order of the file, later aliases included.

    Raises:
        ScaffoldError: the version has no such table.
    """
    entries: dict[str, tuple[str, str, str]] = {}
    found = False
    for node in source.tree(REGISTRY_FILE).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and target.id == REGISTRY_NAME and isinstance(node.value, ast.Dict):
                found = True
                for key, value in zip(node.value.keys, node.value.values, strict=True):
                    _add(entries, key, value)
            elif isinstance(target, ast.Subscript) and _is_table(target.value):
                _add(entries, target.slice, node.value)
    if not found:
        raise ScaffoldError(f"{REGISTRY_FILE} in vllm-omni {source.label} has no table {REGISTRY_NAME}")
    return entries


def read_functions(source: UpstreamSource, table: str) -> dict[str, tuple[str, int]]:
    """Return registry key -> (function of the pipeline's module, line) of a table of functions.

    Args:
        source: the version.
        table: its name, such as ``_DIFFUSION_PRE_PROCESS_FUNCS``; if the version lacks it, the result is empty.

    Raises:
        ScaffoldError: the version has no registry.
    """
    entries: dict[str, tuple[str, int]] = {}
    for node in source.tree(REGISTRY_FILE).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs: list[tuple[ast.expr | None, ast.expr]] = []
            if _is_table(target, table) and isinstance(node.value, ast.Dict):
                pairs = list(zip(node.value.keys, node.value.values, strict=True))
            elif isinstance(target, ast.Subscript) and _is_table(target.value, table):
                pairs = [(target.slice, node.value)]
            for key, value in pairs:
                if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                    continue
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    entries[key.value] = (value.value, value.lineno)
                elif isinstance(value, ast.Subscript) and _is_table(value.value, table):
                    alias = value.slice.value if isinstance(value.slice, ast.Constant) else None
                    if alias in entries:
                        entries[key.value] = entries[alias]
    return entries


def _is_table(node: ast.expr, table: str = REGISTRY_NAME) -> bool:
    return isinstance(node, ast.Name) and node.id == table


def _add(entries: dict[str, tuple[str, str, str]], key: ast.expr | None, value: ast.expr) -> None:
    if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
        return
    if isinstance(value, ast.Subscript) and _is_table(value.value) and isinstance(value.slice, ast.Constant):
        alias = entries.get(str(value.slice.value))
        if alias is not None:
            entries[key.value] = alias
        return
    items = [e.value for e in value.elts if isinstance(e, ast.Constant)] if isinstance(value, ast.Tuple) else []
    if len(items) == 3:
        folder, module, name = items
        if isinstance(folder, str) and isinstance(module, str) and isinstance(name, str):
            entries[key.value] = (folder, module, name)


def resolve_pipeline(source: UpstreamSource, pipeline: str) -> PipelineTarget:
    """Resolve a registry key, a model folder (its first registered pipeline) or ``module:Class``.

    Raises:
        ScaffoldError: nothing has that name; the error lists the nearest names.
    """
    registry = read_registry(source)
    if ":" in pipeline:
        return _explicit(source, pipeline, registry)
    entry = registry.get(pipeline)
    if entry is None:
        entry = next((e for e in registry.values() if e[0] == pipeline), None)
    if entry is None:
        raise _unknown(source, pipeline, registry)
    return _target(entry, registry, pipeline)


def _target(
    entry: tuple[str, str, str], registry: dict[str, tuple[str, str, str]], asked: str | None = None
) -> PipelineTarget:
    folder, module, name = entry
    keys = sorted((key for key, value in registry.items() if value == entry), key=lambda key: key != asked)
    return PipelineTarget(f"{MODELS_PACKAGE}.{folder}.{module}", name, folder, tuple(keys))


def _explicit(source: UpstreamSource, text: str, registry: dict[str, tuple[str, str, str]]) -> PipelineTarget:
    module, _, name = text.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), name]):
        raise ScaffoldError(f"{text!r} is not module:Class", hint=f"for example {MODELS_PACKAGE}.sd3.pipeline_sd3:Name")
    path = module.replace(".", "/")
    if not source.exists(path + ".py"):
        if not source.exists(path + "/__init__.py"):
            raise ScaffoldError(f"vllm-omni {source.label} has no module {module}")
        raise ScaffoldError(f"{module} is a package", hint="name the module that defines the class")
    classes = [n.name for n in source.tree(path + ".py").body if isinstance(n, ast.ClassDef)]
    if name not in classes:
        near = difflib.get_close_matches(name, classes, n=3, cutoff=0.0)
        raise ScaffoldError(f"{module} has no class {name}", hint=_nearest(near))
    for entry in registry.values():
        if f"{MODELS_PACKAGE}.{entry[0]}.{entry[1]}" == module and entry[2] == name:
            return _target(entry, registry)
    return PipelineTarget(module, name, None, ())


def _unknown(source: UpstreamSource, pipeline: str, registry: dict[str, tuple[str, str, str]]) -> ScaffoldError:
    names = list(dict.fromkeys([*registry, *(entry[0] for entry in registry.values())]))
    folded = {name.lower(): name for name in names}
    near = difflib.get_close_matches(pipeline.lower(), folded, n=3, cutoff=0.0)
    return ScaffoldError(
        f"vllm-omni {source.label} has no pipeline {pipeline!r}", hint=_nearest([folded[name] for name in near])
    )


def _nearest(names: list[str]) -> str:
    return "nearest: " + ", ".join(names) if names else "name a registry key, a model folder or module:Class"
