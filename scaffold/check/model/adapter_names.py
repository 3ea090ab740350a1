"""What becomes of the names of weights while a LoRA adapter is attached, worked out from the text of the functions.

Attached, a layer ``x`` keeps its weight as ``x.base_layer.weight``, and has ``x.lora_A.default.weight`` and
``x.lora_B.default.weight`` beside it.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.key_tables import key_tables, recorded_keys, renamed
from scaffold.check.model.name_functions import NotPlainError, Opaque, RefusedNameError, Run, answer, effort
from scaffold.check.model.package import Package
from scaffold.check.model.ways_back import recorded_pairs

_RANGE = re.compile(r"\{(\d+)[^{}]*\}")
_SAVES = ("save_file", "safetensors.torch.save_file", "torch.save")


def parameters(package: Package) -> list[tuple[str, str]]:
    """Return checkpoint key and parameter of some weights: recorded ones, else such as the rename tables speak of."""
    found = recorded_pairs(package)
    if found:
        return list(dict.fromkeys([*_of_projections(package), *found]))
    rows = [row for table in key_tables(package) if not table.ignores for row in table.rows]
    return [
        (f"{row.source}blocks.0.proj.weight", f"{row.target}blocks.0.proj.weight")
        for row in rows
        if row.target is not None and row.source.endswith(".") and (not row.target or row.target.endswith("."))
    ]


def _of_projections(package: Package) -> list[tuple[str, str]]:
    """Return key and parameter of the first projection that is recorded: what adapters are put on."""
    keys, tables = recorded_keys(package), key_tables(package)
    for source in keys.kept if keys is not None else ():
        row = renamed(tables, source) if source.endswith("proj.weight") else None
        if row is not None and row.target is not None:
            key = _RANGE.sub(r"\1", source)
            return [(key, row.target + key[len(row.source) :])]
    return []


def wrapped(parameter: str) -> str | None:
    """Return the name that the weight of a layer has with an adapter on it; None of what takes none."""
    layer, dot, last = parameter.rpartition(".")
    return f"{layer}.base_layer.weight" if dot and last == "weight" else None


def with_adapters(names: list[str]) -> list[str]:
    """Return the names of a state dictionary in which the layers inside of the blocks have an adapter."""
    found: list[str] = []
    for name in names:
        base = wrapped(name) if "proj." in name else None
        layer = name.rpartition(".")[0]
        found += [name] if base is None else [base, f"{layer}.lora_A.default.weight", f"{layer}.lora_B.default.weight"]
    return found


def saved_names(save: FunctionModel, names: list[str]) -> set[str] | None:
    """Return the names that a method which saves weights writes for a state dictionary; None where that is not plain.

    Raises:
        RefusedNameError: it raises.
    """
    run = _Saving(save, names)
    for statement in save.node.body:
        try:
            run.statement(statement)
        except NotPlainError:
            # What concerns something else than names; names that it would have bound stay unknown.
            continue
        except (RecursionError, TypeError, ValueError, AttributeError):
            return None
    return run.saved


class _Saving(Run):
    """A method that saves weights at work on a state dictionary of given names."""

    def __init__(self, function: FunctionModel, names: list[str]) -> None:
        given = {
            name: function.file.value(default) for name in function.parameters if (default := function.default(name))
        }
        super().__init__(function, given, 0, effort())
        self.state: dict[str, Any] = {name: Opaque() for name in names}
        self.saved: set[str] | None = None

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self.value(node.value)
        else:
            super().statement(node)

    def called(self, node: ast.Call) -> Any:
        target = node.func
        own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
        if isinstance(target, ast.Attribute) and own and target.value.id == self.function.bound:  # type: ignore[attr-defined]
            if target.attr == "state_dict":
                return dict(self.state)
            if target.attr == "named_parameters":
                return list(self.state.items())
        if self.function.file.qualified(target) in _SAVES and node.args:
            written = self.value(node.args[0])
            if not isinstance(written, dict) or self.saved is not None:
                raise NotPlainError
            self.saved = {name for name in written if isinstance(name, str)}
            return None
        return super().called(node)


def sent(function: FunctionModel, name: str) -> str | None:
    """Return the name under which a generator passes a weight on: ``""`` where it raises, None where unknown."""
    try:
        made = answer(function, [(name, "tensor")])
    except RefusedNameError:
        return ""
    except NotPlainError:
        return None
    plain = isinstance(made, list) and len(made) == 1 and isinstance(made[0], tuple) and len(made[0]) == 2
    return made[0][0] if plain and isinstance(made[0][0], str) else None
