"""Values of the abstract construction as plain values of the loading code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scaffold.inspect.program.values import Call, Choice, Conf, Const, Map, Obj, Op, Param, Seq
from scaffold.remap.engine.tokens import Mapper, Symbol
from scaffold.source.values import UNKNOWN, External, Func, Unknown, Value

_MAPPER_TABLES = {"orig_to_new_substr": "substr", "orig_to_new_prefix": "prefix", "orig_to_new_suffix": "suffix"}


def plain(value: Value | None, configs: Mapping[str, Any]) -> Any:
    """Return the value where it is settled: constants, complete tables, defaults of engine options, configuration
    entries that the checkpoint has."""
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Seq):
        if not value.exact:
            return UNKNOWN
        items = [plain(item, configs) for item in value.items]
        return tuple(items) if value.kind == "tuple" else set(items) if value.kind == "set" else items
    if isinstance(value, Map):
        return {key: plain(item, configs) for key, item in value.items.items()} if value.exact else UNKNOWN
    if isinstance(value, Conf):
        return _entry(configs.get(value.file), value.path)
    if isinstance(value, Param) and value.root == "od_config":
        return plain(value.default, configs) if value.default is not None else UNKNOWN
    if isinstance(value, (External, Unknown)):
        return value
    if isinstance(value, Call) and value.name == "WeightsMapper":
        return mapper({name: plain(item, configs) for name, item in value.kwargs.items()})
    if isinstance(value, Op) and value.op == "not" and len(value.args) == 1:
        inner = plain(value.args[0], configs)
        return not inner if isinstance(inner, (bool, int, str, type(None))) else UNKNOWN
    if isinstance(value, (Obj, Func)) or (isinstance(value, Value) and not isinstance(value, Choice)):
        return Symbol(value)
    return UNKNOWN


def mapper(tables: Mapping[str, Any]) -> Any:
    """Return vLLM's ``WeightsMapper`` of such tables; unknown where one of them is."""
    made = Mapper()
    for name, table in tables.items():
        kept = _MAPPER_TABLES.get(name)
        if kept is None or not isinstance(table, dict):
            return UNKNOWN
        if not all(isinstance(v, (str, type(None))) for v in table.values()):
            return UNKNOWN
        setattr(made, kept, dict(table))
    return made


def _entry(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(data, Mapping) or key not in data:
            return UNKNOWN
        data = data[key]
    return data
