"""Operations on strings and containers that are worked out from the text of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TEXT = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "replace", "partition", "rpartition", "split"),
    *("rsplit", "join", "strip", "lstrip", "rstrip", "lower", "count", "find", "isdigit"),
}
TABLE = {"items", "keys", "values", "get"}
BUILT_IN: dict[str, Callable[..., Any]] = {
    "len": len,
    "any": any,
    "all": all,
    "dict": dict,
    "list": list,
    "tuple": tuple,
    "set": set,
    "str": str,
    "enumerate": enumerate,
    "zip": zip,
    "max": max,
    "min": min,
    "sorted": sorted,
    "bool": bool,
    "frozenset": frozenset,
    "reversed": lambda values: list(values)[::-1],
    "next": lambda values, *default: next(iter(values), *default),
}
