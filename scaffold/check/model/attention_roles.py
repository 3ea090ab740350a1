"""Queries, keys and values in the forward code: which of the three a name, or a sub-module, is for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.streams import self_call
from scaffold.check.model.submodules import submodules

_ROLES = {"q": "query", "query": "query", "k": "key", "key": "key", "v": "value", "value": "value"}
_LETTERS = {"wq": "query", "wk": "key", "wv": "value"}
_BEFORE, _AFTER = ("post_attention", "post_attn"), ("attn", "attention")


def role_of(name: str) -> str | None:
    """Return ``query``, ``key`` or ``value`` of ``q_proj``, ``norm_added_k``, ``to_v``; None of all other names."""
    parts = name.lower().split("_")
    found = {_ROLES[part] for part in parts if part in _ROLES} | {_LETTERS[part] for part in parts if part in _LETTERS}
    return found.pop() if len(found) == 1 else None


def exchanged_roles(function: FunctionModel) -> Iterator[tuple[ast.AST, str]]:
    """Yield calls of a sub-module that is made for another of the three, with what is wrong.

    What came out of the projection of one goes through the norm of another; a name of one gets what the projection of
    another computes, though there is one for it.
    """
    built = {part.name for part in submodules(function.cls)} if function.cls is not None else set()
    if len({role_of(name) for name in built} - {None}) < 2:
        return
    sources = _sources(function, built)
    for call in function.calls:
        name = self_call(call)
        role = role_of(name) if name in built and name is not None else None
        if name is None or role is None or not call.args or "norm" not in name.lower():
            continue
        came = _came_from(call.args[0], built, sources)
        if len(came) == 1 and role not in came:
            yield call.func, f"what is projected for the {came.copy().pop()} goes through {name}()"
    yield from _listed(function, built)
    for target, value in function.assignments:
        wanted, made = role_of(target), _first_call(value)
        name = self_call(made) if made is not None else None
        role = role_of(name) if name in built and name is not None else None
        if made is None or name is None or wanted is None or role in (None, wanted) or "norm" in name.lower():
            continue
        if any(_twin(name, other, wanted) for other in built):
            yield made.func, f"{target} is what {name}() computes"


def _listed(function: FunctionModel, built: set[str]) -> Iterator[tuple[ast.AST, str]]:
    """Yield projections that stand in another order than the names that their results are unpacked to."""
    for statement in function.file.index.nodes(ast.Assign, function.node):
        target, made = statement.targets[0], statement.value
        if not isinstance(target, ast.Tuple) or not isinstance(made, (ast.GeneratorExp, ast.ListComp)):
            continue
        loop = made.generators[0]
        listed = loop.iter.elts if isinstance(loop.iter, (ast.Tuple, ast.List)) else []
        applied = isinstance(loop.target, ast.Name) and any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == loop.target.id
            for node in ast.walk(made.elt)
        )
        if not applied or len(listed) != len(target.elts) or len(made.generators) > 1:
            continue
        for name, node in zip(target.elts, listed, strict=True):
            part = node.attr if isinstance(node, ast.Attribute) and node.attr in built else ""
            wanted, role = role_of(name.id) if isinstance(name, ast.Name) else None, role_of(part)
            if isinstance(name, ast.Name) and wanted is not None and role is not None and wanted != role:
                yield node, f"{name.id} is what {part}() computes"


def _twin(name: str, other: str, wanted: str) -> bool:
    """Whether another sub-module is the same but for its role, which is the one that is wanted."""
    one, two = name.lower().split("_"), other.lower().split("_")
    differ = [pair for pair in zip(one, two, strict=False) if pair[0] != pair[1]]
    return len(one) == len(two) and len(differ) == 1 and role_of(other) == wanted


def _sources(function: FunctionModel, built: set[str]) -> dict[str, set[str]]:
    """Return for each local name for which of the three its values were projected."""
    found: dict[str, set[str]] = {}
    pairs = list(function.assignments)
    for _ in range(3):
        for name, value in pairs:
            call = _first_call(value)
            projected = self_call(call) if call is not None else None
            role = role_of(projected) if projected in built and projected is not None else None
            if role is not None and projected is not None and "norm" not in projected.lower():
                found.setdefault(name, set()).add(role)
    return found


def _came_from(value: ast.expr, built: set[str], sources: dict[str, set[str]]) -> set[str]:
    for _ in range(50):
        if isinstance(value, ast.Name):
            return set(sources.get(value.id, ()))
        if isinstance(value, ast.Call):
            name = self_call(value)
            if name is not None:
                role = role_of(name) if name in built else None
                return {role} if role is not None and "norm" not in name.lower() else set()
            if not isinstance(value.func, ast.Attribute):
                return set()
            value = value.func.value
        elif isinstance(value, ast.Subscript):
            value = value.value
        else:
            return set()
    return set()


def _first_call(value: ast.expr) -> ast.Call | None:
    """Return ``self.proj(x)`` of ``self.proj(x).unflatten(…)[0]``."""
    for _ in range(50):
        if isinstance(value, ast.Call):
            if self_call(value) is not None:
                return value
            if not isinstance(value.func, ast.Attribute):
                return None
            value = value.func.value
        elif isinstance(value, ast.Subscript):
            value = value.value
        else:
            return None
    return None


def exchanged_norms(function: FunctionModel) -> Iterator[tuple[ast.AST, str]]:
    """Yield norms of what comes behind attention that are applied to what goes into it.

    A second attention of a layer stands behind the first, so its input may well go through such a norm.
    """
    built = {part.name for part in submodules(function.cls)} if function.cls is not None else set()
    calls = [(call, name) for call in function.calls if (name := self_call(call)) in built and name is not None]
    attentions = [(call, name) for call, name in calls if any(word in name.lower().split("_") for word in _AFTER)]
    for call, name in attentions:
        if any(other != name and before.lineno < call.lineno for before, other in attentions if "norm" not in other):
            continue
        for value in (*call.args, *(item.value for item in call.keywords)):
            inner = _first_call(value)
            norm = self_call(inner) if inner is not None else None
            if inner is not None and norm in built and norm is not None and norm.startswith(_BEFORE):
                yield inner.func, f"{norm}() is applied to what goes into {name}()"


def tiled_heads(function: FunctionModel) -> Iterator[tuple[ast.AST, str]]:
    """Yield ``x.repeat(1, groups, 1, 1)`` of key heads, where another call of the function has ``enable_gqa``.

    ``repeat`` lists the heads again and again; grouped attention has each of them ``groups`` times in a row.
    """
    if not any(item.arg == "enable_gqa" for call in function.calls for item in call.keywords):
        return
    groups = {
        name
        for name, value in function.assignments
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv) and "shape" in ast.unparse(value)
    }
    for call in function.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "repeat" or len(call.args) != 4:
            continue
        times = [item.id if isinstance(item, ast.Name) else function.file.value(item) for item in call.args]
        if sum(time in groups for time in times if isinstance(time, str)) == 1 and times.count(1) == 3:
            yield call, "repeat() lists the key heads one after the other, enable_gqa repeats each in its place"


def joined_otherwise(function: FunctionModel) -> Iterator[tuple[ast.AST, str]]:
    """Yield calls that join two streams in another order than a call before, with what is wrong."""
    orders: dict[frozenset[str], tuple[list[str], str]] = {}
    for call in function.calls:
        parts = (
            call.args[0] if call.args and function.file.qualified(call.func) in ("torch.cat", "torch.concat") else None
        )
        if not isinstance(parts, (ast.Tuple, ast.List)):
            continue
        names = [item.id for item in parts.elts if isinstance(item, ast.Name)]
        ends = [name.partition("_")[2] for name in names]
        heads = {name.partition("_")[0] for name in names}
        if len(names) != len(parts.elts) or len(heads) != 1 or not all(ends) or len(set(ends)) < 2:
            continue
        before = orders.setdefault(frozenset(ends), (ends, next(iter(heads))))
        if before[0] != ends:
            yield call, f"{' and '.join(ends)} are joined in another order than those of {before[1]}"
