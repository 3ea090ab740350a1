"""Checkpoint keys that no rule knows are dropped without a word.

A checkpoint of the next release has a layer more, or another name. Loading passes over it, what should have been
filled keeps what it was made with, and training starts from a model that is not the released one.

    state = {k: v for k, v in state.items() if k in own}

Instead: raise for every key that is neither renamed nor in a table of ignored keys with the reason.
"""

from __future__ import annotations

import ast
import re

from scaffold.check.example import Example
from scaffold.check.model.key_tables import key_tables, loading_functions
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC405"
NAME = "silent-key-drop"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 3", "pitfall 22")
APPLIES = Applies(non_diffusers=True)
HELP = "raise for keys that no rule knows; list the ignored ones with the reason"
# What filters a configuration for a constructor, and no weights.
_CONFIGURATION = re.compile(r"\b(config|cfg|kwargs|signature|fields|to_dict)\b")


def check(package: Package) -> Hits:
    """Look at the functions that loading reaches."""
    tables = {table.name for table in key_tables(package)}
    written = package.written_files
    for function in loading_functions(package):
        # Readers of a configuration pass over keys that belong to other parts of the model.
        if function.cls is not None and (function.cls.is_dataclass or function.cls == package.config_class):
            continue
        if function.file in written:
            yield from _filters(function)
            yield from _loops(function)
            yield from _mapping(function, tables)


def _filters(function: FunctionModel) -> Hits:
    """``{k: v for k, v in state.items() if k in own}``, also with ``startswith``."""
    for node in function.file.index.nodes(ast.DictComp, function.node):
        spread = function.file.index.parent(node)
        if isinstance(spread, ast.keyword) and spread.arg is None:
            continue  # settings: the dictionary is spread into a constructor
        for generator in node.generators:
            name = _key_name(generator.target, generator.iter)
            if name and _is_component(node, name, generator.ifs):
                continue
            if name and any(_asks(test, name) for test in generator.ifs):
                yield Hit(function.file, node, f"{function.name}() keeps the keys that it knows and drops the others")


def _is_component(node: ast.DictComp, name: str, tests: list[ast.expr]) -> bool:
    """Whether one component of several in a file is taken: its prefix ends with a dot, and the keys lose it."""
    asked = re.fullmatch(rf"{name}\.startswith\((['\"].*\.['\"])\)", ast.unparse(tests[0])) if len(tests) == 1 else None
    return asked is not None and ast.unparse(node.key) == f"{name}.removeprefix({asked[1]})"


def _loops(function: FunctionModel) -> Hits:
    """``for k, v in state.items():`` with assignments only under tests of the key, and nothing raised or noted."""
    for node in function.file.index.nodes(ast.For, function.node):
        name = _key_name(node.target, node.iter)
        inner = list(ast.walk(node)) if name else []
        noted = any(isinstance(n, ast.Attribute) and n.attr in ("append", "add", "warning", "error") for n in inner)
        if not name or noted or any(isinstance(n, (ast.Raise, ast.Assert)) for n in inner):
            continue
        tests = [s for s in node.body if isinstance(s, ast.If) and _asks(s.test, name)]
        open_ended = [s for s in tests if not _has_else(s) and any(isinstance(n, ast.Assign) for n in ast.walk(s))]
        kept = [s.targets[0] for s in node.body if isinstance(s, ast.Assign)]
        always = any(isinstance(target, ast.Subscript) and name in ast.unparse(target.slice) for target in kept)
        if open_ended and not always:
            yield Hit(function.file, open_ended[0].test, f"{function.name}() passes over keys that no test here knows")


def _mapping(function: FunctionModel, tables: set[str]) -> Hits:
    """A function from key to key that answers None, or nothing, for whatever no row of a table fits."""
    nodes = function.file.index.walk(function.node)
    reads = {node.id for node in nodes if isinstance(node, ast.Name)}
    key = function.positional[0] if function.positional else ""
    asked = any(isinstance(node, ast.Call) and _asks(node, key) for node in nodes)
    if not key or not asked or not reads & tables or any(isinstance(n, (ast.Raise, ast.Assert)) for n in nodes):
        return
    last = function.node.body[-1]
    none = isinstance(last, ast.Return) and (last.value is None or ast.unparse(last.value) == "None")
    if none or (isinstance(last, (ast.For, ast.If)) and function.returns):
        at = last if none else function.node
        yield Hit(function.file, at, f"{function.name}() answers None for every key that it does not know")


def _key_name(target: ast.expr, source: ast.expr) -> str | None:
    """Return the loop variable that holds checkpoint keys: of ``x.items()`` and ``x.keys()``."""
    if not isinstance(source, ast.Call) or not isinstance(source.func, ast.Attribute):
        return None
    if source.func.attr not in ("items", "keys") or _CONFIGURATION.search(ast.unparse(source)):
        return None
    first = target.elts[0] if isinstance(target, ast.Tuple) and source.func.attr == "items" else target
    return first.id if isinstance(first, ast.Name) else None


def _asks(test: ast.expr, name: str) -> bool:
    """Whether a test asks how a key begins or ends, or whether it is among some.

    A test that is turned round names the keys that are left out: those are a list, and all others stay.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return False
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("startswith", "endswith") and ast.unparse(node.func.value) == name:
                return True
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In) and ast.unparse(node.left) == name:
            among = node.comparators[0]
            if not isinstance(among, (ast.Tuple, ast.List, ast.Set)) and not _CONFIGURATION.search(ast.unparse(among)):
                return True
    return False


def _has_else(statement: ast.If) -> bool:
    while len(statement.orelse) == 1 and isinstance(statement.orelse[0], ast.If):
        statement = statement.orelse[0]
    return bool(statement.orelse)


FAILING = (
    Example(
        "None for what is not known",
        model=('raise KeyError(f"checkpoint tensor {name!r} is in neither table")', "«return None»"),
    ),
    Example(
        "nothing for what is not known",
        model=[
            ("def to_training_key(", "def «to_training_key»("),
            ('    raise KeyError(f"checkpoint tensor {name!r} is in neither table")\n', ""),
        ],
    ),
)
PASSING = (
    Example(
        "one component of the file, loaded strictly",
        model=(
            "                if target is not None:\n                    state[target] = file.get_tensor(source)\n",
            "                if target is not None:\n                    state[target] = file.get_tensor(source)\n"
            "            net = {k.removeprefix('net.'): file.get_tensor(k) for k in file.keys() if k.startswith('net.')}\n"
            "            state |= net\n",
        ),
    ),
    Example(
        "fields of a configuration",
        model=(
            "        return cls(**{field.name: raw[field.name] for field in fields(cls)})\n",
            "        return cls.of(raw)\n\n    @classmethod\n    def of(cls, raw):\n        own = {field.name for field in fields(cls)}\n"
            "        given = {key: value for key, value in raw.items() if key in own}\n        return cls(**given)\n",
        ),
    ),
    Example(
        "settings that are spread into the constructor",
        model=(
            "return cls(**{field.name: raw[field.name] for field in fields(cls)})",
            "known = {field.name for field in fields(cls)}\n        return cls(**{key: value for key, value in raw.items() if key in known})",
        ),
    ),
    Example(
        "prefixes that are left out, and a strict load of all others",
        model=(
            "                if target is not None:\n                    state[target] = file.get_tensor(source)\n",
            '                if target is not None:\n                    state[target] = file.get_tensor(source)\n            for source in file.keys():\n                if not source.startswith(("vit.", "connector.")):\n                    state[source] = file.get_tensor(source)\n',
        ),
    ),
    Example(
        "settings that a constructor takes",
        model=(
            "model_path)\n",
            "model_path)\n        known = {f.name for f in fields(config)}\n        sizes = {key: value for key, value in vars(config).items() if key in known}\n        config = ToyTrainingConfig(**sizes)\n",
        ),
    ),
)
