"""Checkpoint keys that no rule knows are dropped without a word.

A key that is left over is either known not to be needed, or a sign that the map is wrong. Code that passes over what
it does not know cannot tell the two apart: the next release of the checkpoint, or a renamed layer, loads in part.

    for name, tensor in state.items():
        if name.startswith("model."):
            mapped[name[6:]] = tensor          # and everything else is gone

Instead: ignore keys by name, with a reason, and raise for every other one.
"""

from __future__ import annotations

import ast
import re

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.key_tables import key_tables, loading_functions
from scaffold.check.model.key_tests import asks_key, drops_key, is_one_of, key_names, nothing_fits, of_configuration
from scaffold.check.model.package import Package
from scaffold.check.model.ported_code import written_files
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC405"
NAME = "silent-key-drop"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 3", "pitfall 22")
APPLIES = Applies(non_diffusers=True)
_MAPS = re.compile(r"key|rename|remap|map_")
HELP = "list the keys that are not needed, with the reason, and raise for every other one"


def check(package: Package) -> Hits:
    """Look at the functions that loading gets to."""
    tables = {table.name for table in key_tables(package)}
    written = written_files(package)
    for function in loading_functions(package):
        if function.file not in written:
            continue
        yield from _filters(function)
        yield from _loops(function)
        yield from _swallowed(function)
        yield from _pops(function)
        yield from _mapping(function, tables)


def _filters(function: FunctionModel) -> Hits:
    """``{k: v for k, v in state.items() if k in own}``, also with ``startswith``."""
    for node in function.nodes(ast.DictComp):
        assert isinstance(node, ast.DictComp)
        for generator in node.generators:
            names = key_names(generator.target, generator.iter)
            asked = [test for test in generator.ifs if names and asks_key(test, names)]
            if asked and not of_configuration(function, generator.iter, asked):
                yield Hit(function.file, node, f"{function.name}() keeps the keys that it knows and drops the others")


def _loops(function: FunctionModel) -> Hits:
    """``for k, v in state.items():`` with assignments only under tests of the key, and nothing raised."""
    for node in function.nodes(ast.For):
        assert isinstance(node, ast.For)
        names = key_names(node.target, node.iter)
        if not names or any(isinstance(inner, (ast.Raise, ast.Assert)) for inner in ast.walk(node)):
            continue
        tests = [s for s in node.body if isinstance(s, ast.If) and asks_key(s.test, names)]
        # A branch for the rest keeps what no test knows.
        open_ended = [s for s in tests if not _has_else(s) and _assigns(s)]
        if not open_ended or of_configuration(function, node.iter, [s.test for s in open_ended]):
            continue
        unconditional = [
            s for s in node.body if isinstance(s, ast.Assign) and _stores(s) and _uses(s.targets[0], names)
        ]
        if unconditional or any(isinstance(inner, ast.Call) and _warns(inner) for inner in ast.walk(node)):
            continue
        yield Hit(function.file, open_ended[0].test, f"{function.name}() passes over keys that no test here knows")


def _pops(function: FunctionModel) -> Hits:
    """``for k in list(state): if k not in own: state.pop(k)``, and nothing raised."""
    for node in function.nodes(ast.For):
        assert isinstance(node, ast.For)
        if not isinstance(node.target, ast.Name) or any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
            continue
        names = {node.target.id}
        for test in (inner for inner in ast.walk(node) if isinstance(inner, ast.If)):
            if not isinstance(test.test, ast.Compare) or not isinstance(test.test.ops[0], ast.NotIn):
                continue
            if is_one_of(test.test.left, names) and any(drops_key(item, names) for item in ast.walk(test)):
                yield Hit(function.file, test.test, f"{function.name}() drops the keys that it does not know")


def _swallowed(function: FunctionModel) -> Hits:
    """``except KeyError: continue`` around the mapping of one key, with nothing kept of it."""
    for node in function.nodes(ast.ExceptHandler):
        assert isinstance(node, ast.ExceptHandler)
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        known = {"KeyError", "LookupError", "Exception"}
        if not any(kind is None or (isinstance(kind, ast.Name) and kind.id in known) for kind in caught):
            continue
        silent = all(isinstance(statement, (ast.Continue, ast.Pass)) for statement in node.body)
        around = function.file.index.parent(node)
        if silent and isinstance(around, ast.Try) and any(_names_a_key(statement) for statement in around.body):
            span = function.file.span_of_line(node.lineno)
            yield Hit(function.file, span, f"{function.name}() passes over keys that the key remap refuses")


def _names_a_key(statement: ast.stmt) -> bool:
    """Whether a statement maps one name of a tensor to another."""
    return any(
        isinstance(node, ast.Call) and len(node.args) == 1 and _MAPS.search(attribute_name(node) or "")
        for node in ast.walk(statement)
    )


def _mapping(function: FunctionModel, tables: set[str]) -> Hits:
    """A function from key to key that answers None, or nothing, for whatever no row fits."""
    parameters = [name for name in function.positional if name not in ("self", "cls")]
    if not parameters or any(isinstance(node, (ast.Raise, ast.Assert)) for node in function.nodes(ast.AST)):
        return
    reads = {node.id for node in function.nodes(ast.Name) if isinstance(node, ast.Name)}
    tested = any(asks_key(node, {parameters[0]}) for node in function.nodes(ast.Call) if isinstance(node, ast.Call))
    if not tested or not (reads & tables):
        return
    for statement in function.returns:
        around = function.file.index.parent(statement)
        none = statement.value is None or _is_none(statement.value)
        if none and isinstance(around, ast.If) and statement in around.body and nothing_fits(function, around.test):
            yield Hit(function.file, statement, f"{function.name}() answers None for every key that it does not know")
            return
    last = function.node.body[-1]
    if isinstance(last, ast.Return) and (last.value is None or _is_none(last.value)):
        yield Hit(function.file, last, f"{function.name}() answers None for every key that it does not know")
    elif isinstance(last, (ast.For, ast.If)) and any(isinstance(node, ast.Return) for node in ast.walk(last)):
        yield Hit(function.file, function.node, f"{function.name}() answers None for every key that it does not know")


def _has_else(statement: ast.If) -> bool:
    while statement.orelse:
        if len(statement.orelse) == 1 and isinstance(statement.orelse[0], ast.If):
            statement = statement.orelse[0]
            continue
        return True
    return False


def _assigns(statement: ast.If) -> bool:
    return any(isinstance(node, ast.Assign) for node in ast.walk(statement))


def _stores(statement: ast.Assign) -> bool:
    return isinstance(statement.targets[0], ast.Subscript)


def _uses(target: ast.expr, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(target))


def _warns(call: ast.Call) -> bool:
    function = call.func
    return isinstance(function, ast.Attribute) and function.attr in ("append", "add", "warning", "error")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


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
    Example(
        "only what the module has",
        model=(
            "cls(config)\n",
            (
                "cls(config)\n        own = model.state_dict()\n        state = «{name: tensor for name, tensor in state.items() if name in own}»\n"
            ),
        ),
    ),
)
PASSING = (
    Example(
        "settings that a constructor takes",
        model=(
            "model_path)\n",
            (
                "model_path)\n        known = {f.name for f in fields(config)}\n        sizes = {key: value for key, value in vars(config).items() if key in known}\n        config = ToyTrainingConfig(**sizes)\n"
            ),
        ),
    ),
    Example(
        "a chain of tests that keeps the rest",
        model=(
            "get_tensor(source)\n",
            (
                "get_tensor(source)\n        mapped: dict[str, Tensor] = {}\n        for name, tensor in state.items():\n"
                '            if name.startswith("model."):\n'
                "                mapped[name[6:]] = tensor\n            else:\n                mapped[name] = tensor\n        state = mapped\n"
            ),
        ),
    ),
    Example(
        "one kind of key is ignored by name",
        model=(
            "get_tensor(source)\n",
            (
                "get_tensor(source)\n"
                '        state = {name: tensor for name, tensor in state.items() if not name == "rope.inv_freq"}\n'
            ),
        ),
    ),
)
