"""Training applies the package's guidance defaults, and the rollout never passes them on.

The upstream pipeline has guidance defaults of its own. Where the rollout adapter does not hand on the recipe's, the
pipeline samples with its own scale, interval and renorm, while training recomputes with others: guidance of 3 for 4
moves the log-prob by 7e-3.

    # training: guidance = CFG_DEFAULTS          # rollout: super().forward(req), extra_args as they came

Instead: put the shared defaults into the request before the pipeline sees it, as
``extra_args.update(resolve_guidance(extra_args))``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import get_close_matches

from scaffold.check.example import Example
from scaffold.check.model.calls import resolve
from scaffold.check.model.dataflow import bound_value, reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.guidance_defaults import shared_tables
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.recorded_facts import recorded_tables
from scaffold.check.model.scopes import Binding
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC316"
NAME = "unshared-cfg-default"
SEVERITY = "error"
CHECKLIST = ("pitfall 29",)
APPLIES = Applies(objective="policy_gradient")
HELP = "put the defaults that training applies into the request before the pipeline sees it"


def check(package: Package) -> Hits:
    """Compare which of the package's tables the two sides use."""
    training, rollout = side_of(package, "training"), side_of(package, "rollout")
    if not training.functions or not rollout.functions:
        return
    yield from _misnamed(package, [training, rollout])
    yield from _unread(package)
    for file, name, _ in shared_tables(package):
        if not _used(training, file, name):
            continue
        if _used(rollout, file, name):
            yield from _into_a_copy(package, rollout, file, name)
            continue
        for adapter in rollout.adapters:
            method = adapter.method("forward")
            if method is not None and adapter.file in package.files:
                yield Hit(
                    method.file,
                    method.node,
                    f"training applies {name}, and {adapter.name}.forward() never passes it on",
                )


def _unread(package: Package) -> Hits:
    """Look for settings under a name that the pipeline does not read, in the place of one that it reads."""
    names = {str(table.get("name")) for table in recorded_tables(package, "cfg", "parameters")}
    for file, _, node in shared_tables(package):
        keys = {k.value: k for k in node.keys if isinstance(k, ast.Constant)} if isinstance(node, ast.Dict) else {}
        strange, lacking = [key for key in keys if key not in names], sorted(names - keys.keys())
        if names & keys.keys() and strange and lacking:
            yield Hit(file, keys[strange[0]], f"the pipeline reads no {strange[0]!r}; it reads {lacking[0]!r}")


def _entries(file: PythonFile) -> set[object]:
    """Return the constants that stand in the dictionaries of a file."""
    index = file.index
    return {node.value for node in index.nodes(ast.Constant) if isinstance(index.parent(node), ast.Dict)}


def _misnamed(package: Package, sides: list[Side]) -> Hits:
    """Look for keys that no table has, beside keys of one, and for a section that holds no guidance."""
    tables = {name: file.value(node) for file, name, node in shared_tables(package)}
    known = {key for table in tables.values() if isinstance(table, dict) for key in table if isinstance(key, str)}
    functions = dict.fromkeys(function for side in sides for function in side.functions)
    written = {file: _entries(file) for file in dict.fromkeys(function.file for function in functions) if known}
    for function in functions:
        index = function.file.index
        if function.file not in package.files or not known:
            continue
        read: dict[str, list[tuple[str, ast.Subscript]]] = {}
        made = set(written[function.file])
        for node in index.nodes(ast.Subscript, function.node):
            if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
                key = node.slice.value
                if isinstance(node.ctx, ast.Store):
                    made.add(key)
                elif isinstance(key, str):
                    read.setdefault(node.value.id, []).append((key, node))
        for keys in read.values():
            for key, node in keys:
                near = get_close_matches(key, sorted(known), n=1, cutoff=0.75)
                if near and key not in known | made and any(other in known for other, _ in keys):
                    yield Hit(function.file, node.slice, f"no guidance is called {key}", f"write {near[0]!r}")
        for call in function.calls:
            if function.file.qualified(call.func) != "getattr" or len(call.args) < 2:
                continue
            section, name = call.args[0], call.args[1]
            inside = isinstance(section, ast.Attribute) and section.attr in ("algo", "actor", "optim")
            loop = bound_value(function.file, b[0].node) if (b := _bound(function, name)) else None
            if inside and isinstance(loop, ast.Name) and loop.id in tables:
                text = f"{ast.unparse(section)} holds no guidance, the rollout's comes from the pipeline's section"
                yield Hit(function.file, section, text, "read model_config.pipeline")


def _bound(function: FunctionModel, name: ast.expr) -> list[Binding]:
    return function.file.scopes.lookup(name.id, name) if isinstance(name, ast.Name) else []


def _used(side: Side, file: PythonFile, name: str) -> bool:
    """Whether a side makes something of a constant."""
    wanted = f"{file.module}.{name}"
    return any(_names(function, wanted, name) and not _idle(side, function, set()) for function in side.functions)


def _names(function: FunctionModel, wanted: str, name: str) -> bool:
    file = function.file
    local = {name, *(alias for alias, bindings in file.names.items() if any(b.target == wanted for b in bindings))}
    named = [node for node in file.index.nodes(ast.Name, function.node) if node.id in local]
    read = [node for node in file.index.nodes(ast.Attribute, function.node) if node.attr == name]
    places: list[ast.Name | ast.Attribute] = [*named, *read]
    return any(
        isinstance(node.ctx, ast.Load) and file.qualified(node) == wanted and not _dropped(function, node)
        for node in places
    )


def _idle(side: Side, function: FunctionModel, seen: set[FunctionModel]) -> bool:
    """Whether a helper is called, but what it returns is always dropped."""
    if function.cls is not None or function in seen or not any(item.value is not None for item in function.returns):
        return False
    calls = side.callers.get(function, [])
    return bool(calls) and all(
        _dropped(caller, call) or _idle(side, caller, seen | {function}) for caller, call in calls
    )


def _into_a_copy(package: Package, side: Side, file: PythonFile, name: str) -> Hits:
    """Look for the defaults in a dictionary of the adapter's own, which the request never gets.

    ``extra_args = {**extra_args, **guidance}``, or ``.update(guidance)`` of a ``dict(params.extra_args)``.
    """
    wanted = f"{file.module}.{name}"
    for function in side.functions:
        if function.file not in package.files or function.name != "forward" or not _names(function, wanted, name):
            continue
        for target, place in _merged(function):
            if _is_copy(function, target, place) and not _handed_on(function, target):
                text = f"{target.id} is a copy here, and the pipeline reads the request's own dictionary"
                yield Hit(function.file, place, text, "update the request's dictionary, or assign the copy to it")


def _merged(function: FunctionModel) -> Iterator[tuple[ast.Name, ast.expr]]:
    """Yield the names that guidance is merged into, with the expression that merges it."""
    index = function.file.index
    for statement in index.nodes(ast.Assign, function.node):
        target, value = statement.targets[0], statement.value
        joined = isinstance(value, ast.Dict) and value.keys.count(None) > 1
        joined = joined or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr))
        if joined and isinstance(target, ast.Name) and "extra_args" in ast.unparse(value):
            yield target, value
    for call in function.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "update":
            if isinstance(call.func.value, ast.Name) and isinstance(index.parent(call), ast.Expr):
                yield call.func.value, call


def _is_copy(function: FunctionModel, target: ast.Name, place: ast.expr) -> bool:
    if not isinstance(place, ast.Call):
        return True
    values = [binding.value for binding in reaching(function, target)]
    return bool(values) and all(value is not None and _copies(function, value) for value in values)


def _copies(function: FunctionModel, value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        return None in value.keys and "extra_args" in ast.unparse(value)
    if not isinstance(value, ast.Call) or "extra_args" not in ast.unparse(value):
        return False
    called = function.file.qualified(value.func)
    return called in ("dict", "copy.copy", "copy.deepcopy") or (
        isinstance(value.func, ast.Attribute) and value.func.attr == "copy" and not value.args
    )


def _handed_on(function: FunctionModel, target: ast.Name) -> bool:
    """Whether a dictionary is stored, returned or given to a call as a whole, under its name or in another."""
    index = function.file.index
    for node in index.nodes(ast.Name, function.node):
        if node.id != target.id or not isinstance(node.ctx, ast.Load):
            continue
        outer = index.parent(node)
        if isinstance(outer, (ast.Attribute, ast.Subscript, ast.Compare)):
            continue
        assigned = index.parent(outer) if isinstance(outer, ast.Dict) else outer
        if isinstance(assigned, ast.Assign) and all(
            isinstance(name, ast.Name) and name.id == target.id for name in assigned.targets
        ):
            continue
        return True
    return False


def _dropped(function: FunctionModel, node: ast.AST) -> bool:
    """Whether what an expression becomes in its statement goes nowhere."""
    index = function.file.index
    inner = node
    for outer in index.ancestors(node):
        if isinstance(outer, ast.Expr):
            # A helper's result is dropped; a method, as ``extra_args.update(…)``, may keep what it is given.
            called = resolve(function.file, outer.value) if isinstance(outer.value, ast.Call) else None
            return isinstance(called, FunctionModel) and any(item.value is not None for item in called.returns)
        if isinstance(outer, ast.Assign):
            if outer.value is not inner or not all(isinstance(target, ast.Name) for target in outer.targets):
                return False
            names = {target.id for target in outer.targets if isinstance(target, ast.Name)}
            loads = [n for n in index.nodes(ast.Name, function.node) if n.id in names and isinstance(n.ctx, ast.Load)]
            return not loads
        if isinstance(outer, ast.stmt):
            return False
        inner = outer
    return False


_UPDATE = "        extra_args.update(resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS}))\n"
_FORWARD = [("    def forward(self, req", "    def «forward»(self, req")]
_SECTION = "getattr(model_config.pipeline, name, None)"
FAILING = (
    Example(
        "a name that the pipeline does not read",
        {
            "common": [('"cfg_interval": (0.0, 1.0)}', '«"cfg_range"»: (0.0, 1.0), "cfg_scale": 1.0}')],
            "training": [('low, high = guidance["cfg_interval"]', 'low, high = guidance["cfg_range"]')],
            "spec": '[cfg]\nparameters = [{ name = "cfg_text_scale" }, { name = "cfg_interval" }]\n',
        },
    ),
    Example(
        "a key that no table has",
        {"training": [('low, high = guidance["cfg_interval"]', 'low, high = guidance[«"cfg_intervals"»]')]},
    ),
    Example(
        "another section",
        {"training": [(_SECTION, "getattr(«model_config.algo», name, None)")]},
    ),
    Example("not at all", {"rollout": [(_UPDATE, ""), *_FORWARD]}, also=("OSC219",)),
    Example("resolved and dropped", {"rollout": [(_UPDATE, "        resolve_guidance(extra_args)\n"), *_FORWARD]}),
    Example(
        "into another dictionary",
        {
            "rollout": [
                (
                    _UPDATE,
                    "        guidance = resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS})\n"
                    "        extra_args = «{**extra_args, **guidance}»\n",
                )
            ]
        },
    ),
    Example(
        "resolved into a name that nothing reads",
        {"rollout": [(_UPDATE, "        guidance = resolve_guidance(extra_args)\n"), *_FORWARD]},
        also=("OSC134",),
    ),
)
PASSING = (
    Example("put into the request"),
    Example(
        "one by one",
        {
            "rollout": [
                (
                    _UPDATE,
                    "        for name, value in CFG_DEFAULTS.items():\n"
                    "            extra_args.setdefault(name, value)\n",
                )
            ]
        },
        also=("OSC219",),
    ),
    Example(
        "by way of a name",
        {
            "rollout": [
                (_UPDATE, "        guidance = resolve_guidance(extra_args)\n        extra_args.update(guidance)\n")
            ]
        },
    ),
    Example(
        "a copy that the request gets",
        {
            "rollout": [
                (
                    _UPDATE,
                    "        guidance = resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS})\n"
                    "        extra_args = {**extra_args, **guidance}\n        params.extra_args = extra_args\n",
                )
            ]
        },
    ),
    Example("no table to share", base="diffusers"),
)
