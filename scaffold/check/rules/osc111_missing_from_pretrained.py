"""The training module has no ``from_pretrained(model_path, torch_dtype)`` of its own that loads the checkpoint.

``build_module`` of the training adapter loads through it, on every rank, with the dtype of the trainer. What the base
class inherits for this cannot know the checkpoint: neither its file names nor its keys.

    class ToyForTraining(NonDiffusersModelBase):       # and no from_pretrained

Instead: a classmethod that reads the configuration, maps the checkpoint's keys and loads them strictly.
"""

from __future__ import annotations

import ast
import re

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name, bind, resolve
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.key_tables import loading_functions
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC111"
NAME = "missing-from-pretrained"
SEVERITY = "error"
CHECKLIST = ("M6",)
APPLIES = Applies(non_diffusers=True)
HELP = "add a classmethod from_pretrained(cls, model_path, torch_dtype)"
# What may put tensors into a module; reading a file does not.
_FILLS = re.compile(r"load|copy|set|assign|from_pretrained|dispatch|register|swap")
_READS = {"load_file", "load", "loads", "safe_load", "setdefault", "set"}


def check(package: Package) -> Hits:
    """Look for the method and its parameters."""
    module = package.training_module
    if module is None or not module.derives_from("NonDiffusersModelBase"):
        return
    method = module.method("from_pretrained")
    if method is None or method.file not in package.files:
        if module.resolved:
            yield Hit(module.file, module.node, f"{module.name} has no from_pretrained()")
        return
    if "classmethod" not in method.decorators and not any("." in name for name in method.decorators):
        text = f"{module.name}.from_pretrained() is no classmethod"
        yield Hit(method.file, method.node, text, "add @classmethod")
    elif "torch_dtype" not in method.parameters and method.kwarg is None:
        text = f"{module.name}.from_pretrained() does not take torch_dtype, which the trainer chooses"
        yield Hit(method.file, method.node, text, "add the parameter torch_dtype")
    elif not _opens(package):
        text = f"{module.name}.from_pretrained() opens no weight file"
        yield Hit(method.file, method.node, text, "read the checkpoint's files")
    elif (empty := _empty_state(package, method)) is not None:
        yield Hit(method.file, empty, "what is loaded here is an empty dictionary", "load the checkpoint's tensors")
    elif not _fills(package):
        text = f"{module.name}.from_pretrained() loads nothing into the module"
        yield Hit(method.file, method.node, text, "call load_state_dict(state, strict=True, assign=True)")


def _opens(package: Package) -> bool:
    """Whether a call on the way may read weights: by its name, or because it is not known."""
    functions = [f for f in loading_functions(package) if f.name not in ("__init__", "from_model_path")]
    names = {attribute_name(call) or "" for function in functions for call in function.calls}
    names -= {function.name for function in functions}
    return "" in names or any(
        re.search(r"safe_open|load_file|^load$|torch_load|from_pretrained|load_model|iter", n) for n in names
    )


def _empty_state(package: Package, method: FunctionModel) -> ast.expr | None:
    """Return what ``load_state_dict`` is given, where that is ``{}`` and nothing fills it."""
    for call in method.calls:
        given = call.args[0] if attribute_name(call) == "load_state_dict" and call.args else None
        value = follow(method.file, given) if given is not None else None
        if not isinstance(given, ast.Name) or not isinstance(value, ast.Dict) or value.keys:
            continue
        index = method.file.index
        loads = [n for n in index.nodes(ast.Name, method.node) if n.id == given.id and isinstance(n.ctx, ast.Load)]
        if all(_only_reads(package, method, index.parent(node), node) for node in loads if node is not given):
            return given
    return None


def _only_reads(package: Package, method: FunctionModel, parent: ast.AST | None, node: ast.Name) -> bool:
    """Whether a use of a dictionary certainly puts nothing into it."""
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("get", "keys", "values", "items")
    if isinstance(parent, ast.Call):
        called = resolve(method.file, parent, method.cls)
        names = [k for k, v in bind(parent, called).items() if v is node] if isinstance(called, FunctionModel) else []
        if not isinstance(called, FunctionModel) or len(names) != 1:
            return False
        inner = called.file.index
        uses = [n for n in inner.nodes(ast.Name, called.node) if n.id == names[0] and isinstance(n.ctx, ast.Load)]
        return all(
            not isinstance(inner.parent(n), ast.Call) and _only_reads(package, called, inner.parent(n), n) for n in uses
        )
    return isinstance(parent, (ast.Compare, ast.BinOp, ast.comprehension, ast.For))


def _fills(package: Package) -> bool:
    """Whether a call on the way may put tensors into the module."""
    functions = [f for f in loading_functions(package) if f.name != "__init__"]
    names = {attribute_name(call) or "" for function in functions for call in function.calls}
    names -= {function.name for function in functions}
    # A method that is handed on, as to `functools.partial`, may be called there.
    names |= {
        node.attr
        for function in functions
        for call in function.calls
        for node in (*call.args, *(item.value for item in call.keywords))
        if isinstance(node, ast.Attribute)
    }
    return "" in names or any(_FILLS.search(name) for name in names - _READS)


FAILING = (
    Example(
        "an empty dictionary is loaded",
        model=[
            ("state[target] = file.get_tensor(source", "print(target, file.get_tensor(source)"),
            ("load_state_dict(state", "load_state_dict(«state»"),
        ],
    ),
    Example("an instance method", model=("@classmethod\n    def from_pretrained", "def «from_pretrained»")),
    Example(
        "nothing is loaded",
        model=[
            ("from_pretrained", "«from_pretrained»"),
            ("        model.load_state_dict(state, strict=True, assign=True)\n", ""),
        ],
    ),
)
PASSING = (
    Example(
        "inherited from a base of the package",
        model=[
            (" ToyForTraining(", " ToyBackbone("),
            ("torch_dtype)\n", "torch_dtype)\n\n\nclass ToyForTraining(ToyBackbone):\n    pass\n"),
        ],
    ),
)
