"""JSON files beside the weights, and the keys that are read from them."""

from __future__ import annotations

from typing import Any

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import reach_last
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.values import Conf, Obj
from scaffold.source.values import Value

ORDER = 15
KEYS = ("detail.config_files",)


def answers(program: Program) -> dict[str, Fact]:
    """``{file: {"class": name or None, "keys": {dotted key: default or None}}}``."""
    files: dict[str, dict[str, Any]] = {}
    places: dict[str, Evidence | None] = {}
    everything = _everything(program)
    made = {(o.json_file, name) for o in everything if isinstance(o, Obj) for name in _made_by_itself(o)}
    for node in everything:
        if isinstance(node, Obj) and node.json_file is not None:
            entry = files.setdefault(node.json_file, {"class": None, "keys": {}})
            entry["class"] = node.cls.name
            places.setdefault(node.json_file, node.at)
        elif isinstance(node, Conf) and node.file and node.path and (node.file, node.path[0]) not in made:
            entry = files.setdefault(node.file, {"class": None, "keys": {}})
            known = default_of(node.default)
            plain = None if known is MISSING or isinstance(known, dict) else known
            entry["keys"].setdefault(".".join(node.path), list(plain) if isinstance(plain, tuple) else plain)
            places.setdefault(node.file, node.at)
    for entry in files.values():
        keys = entry["keys"]
        # A key that only leads to others is not a setting.
        entry["keys"] = {k: v for k, v in sorted(keys.items()) if not any(o.startswith(k + ".") for o in keys)}
    ordered = dict(sorted(files.items()))
    return {"detail.config_files": fact(ordered, [places[f] for f in ordered], "likely")}


def _made_by_itself(obj: Obj) -> set[str]:
    """Attributes that a model or a scheduler gives itself: those that its constructor does not ask for by name."""
    above = [base.rpartition(".")[2] for cls in obj.cls.mro for base in cls.external_bases]
    runs = obj.cls.is_module or any(b.endswith(("Scheduler", "Mixin")) or b.startswith("Autoencoder") for b in above)
    if obj.json_file is None or not runs:
        return set()
    found = obj.cls.find_method("__init__")
    asked = {a.arg for a in [*found[1].args.args, *found[1].args.kwonlyargs]} if found is not None else set()
    return {name for name in obj.attrs if name not in asked}


def _everything(program: Program) -> list[Value]:
    """All objects and settings among what calls were given and objects hold, each once."""
    given = [v for r in program.trace.calls for v in r.arguments]
    values = [*given, *program.pipeline.attrs.values()]

    def inner(node: Value) -> list[Value]:
        return [*node.parts(), *node.attrs.values()] if isinstance(node, Obj) else node.parts()

    return [node for node in reach_last(values, inner) if isinstance(node, (Obj, Conf))]
