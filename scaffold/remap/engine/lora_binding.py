"""Matches LoRA modules by name against the engine, as the LoRA manager does."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scaffold.checkpoint.quoting import quoted
from scaffold.inspect.program.values import Attr, Obj
from scaffold.inspect.program.values import Call as CallValue
from scaffold.remap.engine.loading import Engine
from scaffold.remap.engine.lora_manager import FILE, WRAPPED, LoraManager, matches
from scaffold.remap.engine.plain import plain
from scaffold.remap.engine.tree import EngineModule
from scaffold.source.classes import ClassInfo
from scaffold.source.syntax import walk_tree
from scaffold.source.values import UNKNOWN, UndecidedError, Unknown


@dataclass(frozen=True)
class Binding:
    """What the manager finds.

    Attributes:
        names: the LoRA modules that end up on a layer of the engine.
        why: for a module of the engine by its place, why the manager does not wrap it.
        aliased: whether the pipeline translates names in a way that is not followed.
    """

    names: frozenset[str]
    why: Mapping[str, str] = field(default_factory=dict)
    aliased: bool = False


def bind(engine: Engine, manager: LoraManager, pushed: Collection[str], targets: Sequence[str]) -> Binding:
    """Return which of the pushed modules bind.

    Raises:
        UndecidedError: the components or the packing tables are not written as constants.
    """
    packing = _packing(engine, manager)
    numbers = sorted({part for name in pushed for part in re.findall(r"\d+", name)}, key=int)
    found: set[str] = set()
    why: dict[str, str] = {}
    for component in _components(engine, manager):
        node = _component(engine, component)
        if node is None:
            continue
        for path, module in node.walk(component):
            reason = _not_wrapped(module, manager, packing)
            if reason is not None:
                _remember(why, module, numbers, reason)
                continue
            for name in _numbered(path, numbers, pushed):
                found |= _bound(name, module, manager, packing, pushed, targets)
    return Binding(frozenset(found), why, any(_has(engine, name) for name in manager.aliases))


def _bound(
    name: str,
    module: EngineModule,
    manager: LoraManager,
    packing: Mapping[str, list[str]],
    pushed: Collection[str],
    targets: Sequence[str],
) -> set[str]:
    """LoRA modules that reach one layer, under its name or those of its parts."""
    slices = _slices(module, manager)
    parts = packing.get(name.rpartition(".")[2], []) if slices > 1 else []
    above = name.rpartition(".")[0]
    names = [f"{above}.{part}" if above else part for part in parts] if len(parts) == slices else []
    if not matches(name, targets) and not any(matches(part, targets) for part in names):
        return set()
    whole = _looked_up(name, pushed)
    if whole is not None:
        return {whole}
    return {match for part in names if (match := _looked_up(part, pushed)) is not None}


def _looked_up(name: str, pushed: Collection[str]) -> str | None:
    """The manager tries the full name, the name without its component, and the last part."""
    for candidate in (name, name.partition(".")[2], name.rpartition(".")[2]):
        if candidate in pushed:
            return candidate
    return None


def _slices(module: EngineModule, manager: LoraManager) -> int:
    return next((count for kind, count in manager.slices.items() if kind in module.bases), 1)


def _not_wrapped(module: EngineModule, manager: LoraManager, packing: Mapping[str, list[str]]) -> str | None:
    """Why the manager leaves a module alone; None where it wraps it."""
    if module.kind not in WRAPPED:
        kind = next((base for base in module.bases if base in WRAPPED), None)
        shown = quoted(module.kind)
        return f"a {shown}, which it does not wrap" if kind is None else f"a {shown}: it wraps {kind} itself only"
    slices = _slices(module, manager)
    name = module.place.rpartition(".")[2]
    if slices > 1 and len(packing.get(name, ())) != slices:
        tables = " or ".join(manager.packing) or "table of packed layers"
        return f"packed from {slices} layers, of which no {tables} tells the manager ({FILE})"
    return None


def _components(engine: Engine, manager: LoraManager) -> list[str]:
    names = list(manager.components)
    for attribute in manager.declared:
        if not _has(engine, attribute):
            continue
        value = plain(engine.program.execution.get_attr(engine.program.pipeline, attribute), engine.configs)
        if value is None:
            continue
        if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
            raise UndecidedError(f"{attribute} of {engine.tree.kind} is not written as a constant")
        names += value
    return list(dict.fromkeys(names))


def _component(engine: Engine, name: str) -> EngineModule | None:
    if name in engine.tree.children or "." in name:
        return engine.tree.children.get(name)
    found = engine.program.pipeline.cls.find_method(name)
    if found is None:
        return None
    value = engine.program.execution.get_attr(engine.program.pipeline, name)
    if isinstance(value, Obj):
        return next((node for _, node in engine.tree.walk() if node.obj is value), None)
    if isinstance(value, (CallValue, Attr)):
        raise UndecidedError(f"{engine.tree.kind}.{name} is not a module that can be followed")
    return None


def _has(engine: Engine, name: str) -> bool:
    cls = engine.program.pipeline.cls
    return name in engine.program.pipeline.attrs or bool(cls.find_assign(name) or cls.find_method(name))


def _packing(engine: Engine, manager: LoraManager) -> dict[str, list[str]]:
    """The manager's own table: packed layer -> its parts, by the last names in tables held by modules."""
    table: dict[str, list[str]] = {}
    for _, module in engine.tree.walk(deduplicate=True):
        for attribute in manager.packing:
            derived: dict[str, list[str]] = {}
            for row in _rows(engine, module, attribute):
                packed, part = (str(text).strip(".").rpartition(".")[2] for text in row[:2])
                parts = derived.setdefault(packed, [])
                if part not in parts:
                    parts.append(part)
            for packed, parts in derived.items():
                table.setdefault(packed, parts)
    return table


def _rows(engine: Engine, module: EngineModule, attribute: str) -> list[Any]:
    value = module.attributes.get(attribute)
    if value is None and module.obj is not None:
        held = module.obj.attrs.get(attribute)
        found = module.obj.cls.find_assign(attribute)
        if held is not None:
            value = plain(held, engine.configs)
        elif found is not None:
            value = plain(engine.program.execution.attributes.field_default(found[1], found[0]), engine.configs)
        else:
            value = _stored_tables(module.obj.cls, attribute)
    if value is None:
        return []
    if isinstance(value, dict):
        value = [
            (packed, part) for packed, parts in value.items() if isinstance(parts, (list, tuple)) for part in parts
        ]
    if isinstance(value, Unknown) or not isinstance(value, (list, tuple)):
        raise UndecidedError(f"{attribute} of {module.kind} is not written as a constant")
    return [row for row in value if isinstance(row, (list, tuple)) and len(row) >= 2 and isinstance(row[0], str)]


def _numbered(path: str, numbers: Sequence[str], pushed: Collection[str]) -> list[str]:
    """The names of a layer in a list, for each number that a LoRA module has."""
    if "{n}" not in path:
        return [path]
    if path.count("{n}") > 1:
        return []
    return [path.replace("{n}", number) for number in numbers]


def _remember(why: dict[str, str], module: EngineModule, numbers: Sequence[str], reason: str) -> None:
    for number in numbers if "{n}" in module.place else [""]:
        why.setdefault(module.place.replace("{n}", number), reason)


def _stored_tables(cls: ClassInfo, attribute: str) -> Any:
    """Return what the methods of a class store as ``self.<attribute>``; None where none does, unknown where the text
    does not give it."""
    for owner in cls.mro:
        for method in owner.methods.values():
            for node in walk_tree(method):
                if isinstance(node, ast.Assign) and any(_is_own(target, attribute) for target in node.targets):
                    return _literal(node.value, method)
    return None


def _is_own(target: ast.expr, attribute: str) -> bool:
    return (
        isinstance(target, ast.Attribute)
        and target.attr == attribute
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    )


def _literal(value: ast.expr, method: ast.AST) -> Any:
    if isinstance(value, ast.Name):
        given = [
            node.value
            for node in walk_tree(method)
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == value.id for t in node.targets)
        ]
        if len(given) != 1:
            return UNKNOWN
        value = given[0]
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN
