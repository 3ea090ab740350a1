"""Loading builds the module with random weights and copies the checkpoint over them.

Every rank allocates the whole model in float32, fills it with random numbers, reads the checkpoint into memory a
second time and copies. For a checkpoint of 25 GiB that is 82 seconds and 52 GiB of private memory per rank, where the
mapped file needs 4 seconds and 2 GiB that all ranks share.

    model = cls(config)
    model.load_state_dict(load_file(path))

A module that was built on the meta device has no memory to copy into: without ``assign=True`` it stays empty, and the
first forward fails.

Instead: build under ``torch.device("meta")`` and give the mapped tensors over: ``load_state_dict(state, assign=True)``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import resolve
from scaffold.check.model.key_tables import loading_functions
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel, FunctionModel
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.source.syntax import keyword_of

ID = "OSC110"
NAME = "unmapped-weight-load"
SEVERITY = "warning"
CHECKLIST = ("M6", "pitfall 4")
APPLIES = Applies(non_diffusers=True)
HELP = 'build under `with torch.device("meta")` and load with assign=True'
_META = ("meta", "empty")


def check(package: Package) -> Hits:
    """Look at the functions of ``from_pretrained``: where the module is built, and how it is filled."""
    module = package.training_module
    if module is None:
        return
    functions = [f for f in loading_functions(package) if f.file in package.files and f.name != "__init__"]
    loads = [(f, call) for f in functions for call in f.calls if _is_load(call)]
    if not loads and not any(_is_copy(call) for f in functions for call in f.calls):
        return
    for function in functions:
        for call in function.calls:
            if _builds(function, call, module) and not _on_meta(function, call):
                yield Hit(function.file, call, f"{module.name} is built with random weights, then filled by copying")
                return
    empty = any(_builds(f, call, module) and _names_meta(f, call) for f in functions for call in f.calls)
    filled = any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "to_empty" for f in functions for call in f.calls
    )
    for function, call in loads:
        assign = keyword_of(call, "assign")
        unpacked = any(item.arg is None for item in call.keywords)
        if not unpacked and (assign is None or function.file.value(assign) is False):
            text = "tensors are copied into the module; assign=True takes them as they are"
            if empty and not filled:
                text = f"{module.name} is on the meta device, where copying fills nothing; assign=True takes the tensors over"
            yield Hit(function.file, call, text)


def _is_load(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict"


def _is_copy(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "copy_"


def _builds(function: FunctionModel, call: ast.Call, module: ClassModel) -> bool:
    if isinstance(call.func, ast.Name) and call.func.id == "cls" and function.bound == "cls":
        return function.cls is not None and function.cls in module.mro
    return resolve(function.file, call, module) is module


def _names_meta(function: FunctionModel, call: ast.Call) -> bool:
    """Whether the call, or a ``with`` around it, names the meta device."""
    places = [call, *(o for o in function.file.index.ancestors(call) if isinstance(o, (ast.With, ast.AsyncWith)))]
    shown = [place if isinstance(place, ast.Call) else place.items[0].context_expr for place in places]
    return any(isinstance(node, ast.Constant) and node.value == "meta" for at in shown for node in ast.walk(at))


def _on_meta(function: FunctionModel, call: ast.Call) -> bool:
    """Whether a ``with`` around the call, or a device that it is given, keeps memory from being allocated."""
    for item in call.keywords:
        if item.arg == "device" and function.file.value(item.value) == "meta":
            return True
    for outer in function.file.index.ancestors(call):
        if not isinstance(outer, (ast.With, ast.AsyncWith)):
            continue
        for entered in outer.items:
            text = ast.unparse(entered.context_expr).lower()
            # A context that cannot be resolved may do it under any name: only well-known others are taken for not.
            if any(word in text for word in _META) or not text.startswith(("torch.", "safe_open", "open")):
                return True
    return False


FAILING = (
    Example(
        "built with random weights",
        model=('with torch.device("meta"):\n            model = cls(config)', "model = «cls(config)»"),
    ),
    Example(
        "assign is missing",
        model=("model.load_state_dict(state, strict=True, assign=True)", "«model.load_state_dict(state, strict=True)»"),
    ),
)
PASSING = (Example("accelerate's way", model=('torch.device("meta"', "init_empty_weights(")),)
