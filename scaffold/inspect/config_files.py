"""JSON files beside the weights, and the keys that are read from them."""

from __future__ import annotations

from typing import Any

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import LEAVES
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.values import Conf, Obj, Value

ORDER = 15
KEYS = ("detail.config_files",)


def answers(program: Program) -> dict[str, Fact]:
    """``{file: {"class": name or None, "keys": {dotted key: default or None}}}``."""
    files: dict[str, dict[str, Any]] = {}
    places: dict[str, Evidence | None] = {}
    for node in _everything(program):
        if isinstance(node, Obj) and node.json_file is not None:
            entry = files.setdefault(node.json_file, {"class": None, "keys": {}})
            entry["class"] = node.cls.name
            places.setdefault(node.json_file, node.at)
        elif isinstance(node, Conf) and node.path:
            entry = files.setdefault(node.file, {"class": None, "keys": {}})
            known = default_of(node.default)
            plain = None if known is MISSING or isinstance(known, dict) else known
            entry["keys"].setdefault(".".join(node.path), list(plain) if isinstance(plain, tuple) else plain)
            places.setdefault(node.file, node.at)
    for entry in files.values():
        keys = entry["keys"]
        # A key that only leads to others is no setting.
        entry["keys"] = {k: v for k, v in sorted(keys.items()) if not any(o.startswith(k + ".") for o in keys)}
    ordered = dict(sorted(files.items()))
    return {"detail.config_files": fact(ordered, [places[f] for f in ordered], "likely")}


def _everything(program: Program) -> list[Value]:
    """All objects and settings among what calls were given and objects hold, each once."""
    stack: list[Value] = [v for r in program.trace.calls for v in (*r.args, *r.kwargs.values())]
    stack += list(program.pipeline.attrs.values())
    found: list[Value] = []
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if type(node) in LEAVES:
            continue
        if isinstance(node, Obj | Conf):
            found.append(node)
        stack += node.parts()
        if isinstance(node, Obj):
            stack += node.attrs.values()
    return found
