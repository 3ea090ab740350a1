"""The package as verl-omni finds and calls it."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import Any

from scaffold.files.reading import read_text
from scaffold.verify.measured import Measured
from scaffold.verify.subject.discovery import registered

_CALLED = (
    "build_module",
    "build_scheduler",
    "set_timesteps",
    "prepare_model_inputs",
    "forward_and_sample_previous_step",
    "configure_train_mode",
    "configure_trainable_params",
    "validate_lora_config",
    "forward",
)


class Registration:
    """Both adapters are found by the engine."""

    ID = "registration"
    TITLE = "both adapters are registered, under one key, and exported"
    PITFALLS = (25, 26)
    RECORDED = False  # it reads the package only

    @staticmethod
    def run(subject: Any) -> Measured:
        """Look both registries up, then the package's exports and the three edits of ``pipelines/__init__.py``."""
        training = registered("DiffusionModelBase", subject.name)
        rollout = registered("VllmOmniPipelineBase", subject.name)
        problems = []
        if not training:
            problems.append("no class is registered with DiffusionModelBase.register")
        if not rollout:
            problems.append("no class is registered with VllmOmniPipelineBase.register")
        if training and rollout and not training.keys() & rollout.keys():
            problems.append(
                f"the training adapter is registered under {_keys(training)}, the rollout's under {_keys(rollout)}"
            )
        exported = set(getattr(subject.package, "__all__", ()))
        for kind in [*training.values(), *rollout.values()]:
            if kind.__name__ not in exported:
                problems.append(f"__all__ of the package lacks {kind.__name__}")
        problems += _wiring(subject.folder.parent / "__init__.py", subject.folder.name)
        return Measured(f"registered under {_keys(training)}", problems)


def _keys(classes: dict[tuple[str, str], type]) -> str:
    return ", ".join("/".join(key) for key in sorted(classes))


def _wiring(init: Path, package: str) -> list[str]:
    """What of the three edits is missing; a rendered tree beside no checkout has no such file."""
    if not init.is_file():
        return []
    names, star, exports = set(), False, False
    for node in ast.walk(ast.parse(read_text(init))):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names |= {alias.name for alias in node.names} if node.module is None else set()
            star = star or (node.module == package and any(alias.name == "*" for alias in node.names))
        elif isinstance(node, ast.AugAssign | ast.Assign):
            exports = exports or f"{package}.__all__" in ast.unparse(node)
    missing = [
        edit
        for edit, there in (
            (f"from . import {package}", package in names),
            (f"from .{package} import *", star),
            (f"__all__ += list({package}.__all__)", exports),
        )
        if not there
    ]
    return [f"verl_omni/pipelines/__init__.py lacks: {'; '.join(missing)}"] if missing else []


class Signatures:
    """Adapters and module take what the engine passes."""

    ID = "signatures"
    TITLE = "adapters and module take the arguments that the engine passes"
    PITFALLS = (40,)
    RECORDED = False  # it reads the package only

    @staticmethod
    def run(subject: Any) -> Measured:
        """Compare each method with that of its base class, place for place; more parameters need defaults."""
        base = sys.modules["verl_omni.pipelines.model_base"].DiffusionModelBase
        adapter = subject.training
        problems, compared = [], 0
        for name in _CALLED:
            expected = getattr(base, name, None)
            if expected is None:
                continue
            compared += 1
            found = inspect.getattr_static(adapter, name)
            if not isinstance(found, classmethod):
                problems.append(f"{adapter.__name__}.{name} is not a classmethod, and adapters are never instantiated")
                continue
            problems += _differences(f"{adapter.__name__}.{name}", getattr(adapter, name), expected)
        if getattr(adapter, "__abstractmethods__", None):
            problems.append(f"{adapter.__name__} lacks {', '.join(sorted(adapter.__abstractmethods__))}")
        if "__init__" in vars(adapter):
            problems.append(f"{adapter.__name__} has an __init__, but is never instantiated")
        module = subject.module_class
        if module.__abstractmethods__:
            problems.append(f"{module.__name__} lacks {', '.join(sorted(module.__abstractmethods__))}")
        loader = inspect.signature(module.from_pretrained)
        try:
            loader.bind("a folder", torch_dtype=None)
        except TypeError:
            taken = list(loader.parameters)
            problems.append(f"{module.__name__}.from_pretrained takes {taken}, not a folder and torch_dtype")
        if subject._adapters[2] is not None:
            problems += _rollout(subject.rollout)
        return Measured(f"{compared} methods of the training adapter, the loader and the rollout adapter fit", problems)


def _differences(where: str, found: Any, expected: Any) -> list[str]:
    """Compare by place, as the engine calls: it names no argument."""
    wanted, signature = list(inspect.signature(expected).parameters), inspect.signature(found)
    given = list(signature.parameters)
    try:
        signature.bind(*wanted)
    except TypeError as error:
        return [f"{where} takes {', '.join(given)}; the engine passes {', '.join(wanted)}: {error}"]
    moved = [name for name, place in zip(given, wanted, strict=False) if name != place and name in wanted]
    return [f"{where} takes {', '.join(moved)} in another place than the engine passes it"] if moved else []


def _rollout(adapter: Any) -> list[str]:
    problems = []
    needed = [
        name
        for name, p in list(inspect.signature(adapter.forward).parameters.items())[1:]
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if len(needed) != 1:
        problems.append(f"{adapter.__name__}.forward needs {needed}, the engine passes one request")
    made = inspect.signature(adapter.__init__).parameters
    if "od_config" not in made and not any(p.kind is p.VAR_KEYWORD for p in made.values()):
        problems.append(f"{adapter.__name__} does not take od_config")
    return problems
