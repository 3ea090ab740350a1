"""Replaces hard-coded dtypes in a model's source by the dtype of the comparison."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import pkgutil
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from scaffold.files.reading import read_text
from scaffold.verify.rollout.engine_side.sources import Adapters, loaded_modules


class TorchWith(types.ModuleType):
    """Replaces the name ``torch`` inside one module, with a few attributes changed."""

    def __init__(self, **changed: Any) -> None:
        super().__init__("torch")
        self.__dict__.update(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def match(adapters: Adapters, dtype: str) -> None:
    """Apply the replacements for a run in ``dtype``.

    float32: a literal ``torch.bfloat16`` means float32 in the model and in the package, for both round around
    attention whatever they are run in. bfloat16: autocast is on in the model, which turns it off for CPUs or opens it
    under the name of another device.
    """
    for package in adapters.upstream_packages:
        _import_all(package)
    packages = [*adapters.upstream_packages, *(adapters.packages if dtype == "float32" else ())]
    for module in loaded_modules(packages):
        follow(module, dtype)


def follow(module: types.ModuleType, dtype: str) -> None:
    """Apply it to one module of the model or, in float32, of the package."""
    if dtype == "float32":
        _replace([module], "torch.bfloat16", TorchWith(bfloat16=torch.float32))
        return
    _let_cpus_through(module)
    _replace([module], "torch.autocast", TorchWith(autocast=_autocast), _asks_the_device)


@contextlib.contextmanager
def exact(adapters: Adapters) -> Iterator[None]:
    """Inside the block, make a literal ``torch.bfloat16`` mean float32 in the package, and disable autocast."""
    stand_in = TorchWith(bfloat16=torch.float32, autocast=lambda *_, **__: contextlib.nullcontext())
    changed = _replace(loaded_modules(adapters.packages), "torch.", stand_in, _is_inexact)
    try:
        yield
    finally:
        for module in changed:
            module.torch = torch


def _autocast(device_type: str, *args: Any, **kwargs: Any) -> Any:
    on: Callable[..., Any] = torch.autocast
    return on("cpu" if device_type == "cuda" else device_type, *args, **{**kwargs, "enabled": True})


def _let_cpus_through(module: types.ModuleType) -> None:
    """In functions that enable autocast only on CUDA, or not on a CPU, make a literal ``cuda`` mean the CPU, and a
    ``cpu`` that is only compared with match no device.
    """
    classes = [value for value in vars(module).values() if inspect.isclass(value)]
    for owner in (module, *classes):
        if (owner if owner is module else sys.modules.get(owner.__module__)) is not module:
            continue
        for value in list(vars(owner).values()):
            function = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)) or value)
            if isinstance(function, types.FunctionType) and "autocast" in function.__code__.co_names:
                meant = {"cuda": "cpu", **({"cpu": "none"} if _only_compares_with(function, "cpu") else {})}
                function.__code__ = function.__code__.replace(co_consts=_meaning(function.__code__.co_consts, meant))


def _only_compares_with(function: types.FunctionType, name: str) -> bool:
    """Whether a literal name occurs only in comparisons."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return False
    compared = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Compare) for part in ast.walk(node)}
    return all(id(node) in compared for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == name)


def _meaning(constant: Any, meant: Mapping[str, str]) -> Any:
    if isinstance(constant, tuple | frozenset):
        return type(constant)(_meaning(item, meant) for item in constant)
    return meant.get(constant, constant) if isinstance(constant, str) else constant


def _is_inexact(source: str) -> bool:
    return "torch.bfloat16" in source or "torch.autocast" in source


def _asks_the_device(source: str) -> bool:
    """Whether autocast depends on a condition; a literal ``enabled=False`` keeps float32 on purpose."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.autocast":
            enabled = next((keyword.value for keyword in node.keywords if keyword.arg == "enabled"), None)
            if not (isinstance(enabled, ast.Constant) and enabled.value is False):
                return True
    return False


def _replace(
    modules: Iterable[types.ModuleType],
    text: str,
    stand_in: TorchWith,
    where: Callable[[str], bool] = lambda source: True,
) -> list[Any]:
    """The modules whose ``torch`` is the stand-in now: those that have ``text`` in their source."""
    changed: list[Any] = []
    for module in modules:
        source = _source(module)
        if getattr(module, "torch", None) is torch and text in source and where(source):
            module.torch = stand_in  # type: ignore[attr-defined]
            changed.append(module)
    return changed


def _source(module: types.ModuleType) -> str:
    path = str(getattr(module, "__file__", None))
    return read_text(path) if path.endswith(".py") else ""


def _import_all(package: str) -> None:
    root = importlib.import_module(package)
    for found in pkgutil.iter_modules(getattr(root, "__path__", [])):
        if sys.modules.get(f"{package}.{found.name}", root) is None:
            continue  # withheld
        importlib.import_module(f"{package}.{found.name}")
