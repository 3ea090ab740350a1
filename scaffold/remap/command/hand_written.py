"""A package that nobody rendered: what its text and its checkout say of pipeline, LoRA targets and training module."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.reading import expanded
from scaffold.remap.command.package import parsed_modules
from scaffold.remap.parameters.values import Shape
from scaffold.spec.lock import SPEC_NAME

if TYPE_CHECKING:
    from scaffold.upstream import UpstreamSource

BASE = "NonDiffusersModelBase"
# Sizes of a configuration's class that bear the names under which the decoder's sizes are known.
SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    "vocab_size",
)


@dataclass(frozen=True)
class HandWritten:
    """A folder below ``verl_omni/pipelines/`` without ``scaffold.toml``.

    Attributes:
        folder: where it lies.
        pipeline: the class of vllm-omni's that its rollout adapter inherits, ``module:Class``.
        modules: its files by name, parsed.
        targets: the LoRA targets of the launch scripts that name its architecture.
        pin: the version of vllm-omni that its checkout pins.
        lora_hook: whether its verl-omni asks a pipeline for its LoRA hook; None where no checkout is around it.
    """

    folder: Path
    pipeline: str
    modules: Mapping[str, ast.Module]
    targets: tuple[str, ...]
    pin: str | None
    lora_hook: bool | None

    @classmethod
    def find(cls, target: str) -> HandWritten | None:
        """Return the package at a folder; None where the argument is something else.

        Raises:
            ScaffoldError: a folder of Python files that is no package of verl-omni's, or wraps no pipeline.
        """
        folder = expanded(target)
        named = "/" in target or folder.resolve().parts[-3:-1] == ("verl_omni", "pipelines")
        if not named or (folder / SPEC_NAME).exists() or not (folder / "__init__.py").is_file():
            return None
        from scaffold.target import Checkout
        from scaffold.verify.package import declared_lists, open_package

        package = open_package(folder)
        if package.upstream is None:
            raise ScaffoldError(
                f"{target} has no {SPEC_NAME}, and no class in it inherits a pipeline of vllm-omni",
                hint="give a package with a rollout adapter, or the pipeline itself",
            )
        modules = parsed_modules(package.folder)
        targets = tuple(declared_lists(package).get("target_modules", ()))
        pipeline = ":".join(package.upstream)
        try:
            checkout = Checkout.open(package.root)
        except ScaffoldError:
            return cls(package.folder, pipeline, modules, targets, None, None)
        return cls(package.folder, pipeline, modules, targets, checkout.vllm_omni_pin, checkout.profile.lora_hook)

    def pipeline_in(self, source: UpstreamSource) -> str:
        """Return what names the pipeline to `inspect`: the class alone where the import is from a package."""
        module, _, name = self.pipeline.partition(":")
        return self.pipeline if source.exists(f"{module.replace('.', '/')}.py") else name

    def parameters(self, sizes: Mapping[str, Any], meta: bool) -> tuple[dict[str, Shape] | None, str]:
        """Return name and shape of each parameter, and how they were found; None, and why, where the text hides them.

        Args:
            sizes: the decoder's sizes by name; those that the configuration's class declares are taken.
            meta: build the module on the meta device, which runs its code.

        Raises:
            ScaffoldError: ``meta`` was asked for, and the module cannot be built.
        """
        found = self._training_module()
        if found is None:
            return None, f"{self.folder.name} has not exactly one class on {BASE} with a configuration that is a class"
        file, module, config = found
        tree = self.modules[file]
        fields = {
            node.target.id
            for cls in tree.body
            if isinstance(cls, ast.ClassDef) and cls.name == config
            for node in cls.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        values = {name: sizes[name] for name in SIZES if name in fields and sizes.get(name) is not None}
        if meta:
            from scaffold.remap.parameters.meta import parameters_on_meta

            path = self.folder / f"{file}.py"
            return parameters_on_meta(path, module, config, values), "the module was built on the meta device"
        from scaffold.remap.parameters import parameters_of

        try:
            return parameters_of(tree, module, config, values, f"{file}.py"), f"parameters are those of {file}.py"
        except ScaffoldError as error:
            return None, error.line

    def _training_module(self) -> tuple[str, str, str] | None:
        """Return file, class and configuration of the one training module."""
        found = []
        for file, tree in self.modules.items():
            classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and any(_last(base) == BASE for base in node.bases):
                    found += [(file, node.name, config) for config in _configurations(node) if config in classes]
        return found[0] if len(found) == 1 else None


def _configurations(cls: ast.ClassDef) -> list[str]:
    """Return the class that annotates the constructor's first argument, as a list of one or none."""
    for method in cls.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__" and len(method.args.args) > 1:
            annotation = method.args.args[1].annotation
            if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
                return [annotation.value]
            if isinstance(annotation, ast.Name):
                return [annotation.id]
    return []


def _last(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
