"""Every layer of a loop is given the same tensor; what the layer before made of it is not handed on.

The layers stand one behind the other: each takes the streams and gives them back. Where the loop keeps the result under
another name, every layer starts from the first input again, and only the last one counts. Shapes fit, the loss is
finite, and all layers but one get no gradient.

    for layer in self.layers:
        context, output = layer(context, latents)         # latents is never the output of a layer

Instead: ``context, latents = layer(context, latents)``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import has_unpacking
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.layer_lists import is_element, lists_of_layers
from scaffold.check.model.package import Package
from scaffold.check.model.ported_code import written_files
from scaffold.check.model.submodules import Submodule
from scaffold.check.model.sums import terms
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC149"
NAME = "uncarried-stream"
SEVERITY = "error"
CHECKLIST = ("M5", "M8")
APPLIES = Applies(non_diffusers=True)
_AROUND = (ast.For, ast.While, ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)
HELP = "give the result the name of the stream: x = layer(x)"


def check(package: Package) -> Hits:
    """Look at the loops over layers, and at the streams that the layers add to."""
    lists = lists_of_layers(package)
    written = written_files(package) if lists else []
    for function in package.forward_functions if lists else ():
        if function.file in written and function.name != "__init__":
            for loop in function.nodes(ast.For):
                assert isinstance(loop, ast.For)
                for call in function.file.index.nodes(ast.Call, loop):
                    yield from _layer(function, loop, call, lists)


def _layer(function: FunctionModel, loop: ast.For, call: ast.Call, lists: dict[str, Submodule]) -> Hits:
    """Judge a call of a layer, direct or through a checkpointing function, that takes its streams by position."""
    index = function.file.index
    inner = next((outer for outer in index.ancestors(call) if isinstance(outer, _AROUND)), None)
    handed = bool(call.args) and is_element(function, call.args[0], lists)
    layer = call.args[0] if handed else call.func
    if inner is not loop or has_unpacking(call) or not (handed or is_element(function, layer, lists)):
        return
    built = _list_of(function, layer, lists)
    forward = built.cls.method("forward") if built is not None and built.cls is not None else None
    # A result that is dropped as a whole is value-never-used.
    if forward is None or isinstance(index.parent(call), ast.Expr):
        return
    bound = {name.id for name in index.nodes(ast.Name, loop) if isinstance(name.ctx, ast.Store)}
    given = dict(zip(forward.positional, call.args[1 if handed else 0 :], strict=False))
    given |= {item.arg: item.value for item in call.keywords if item.arg is not None}
    for stream, place in _added_to(forward):
        value = given.get(stream)
        names = {name.id for name in index.nodes(ast.Name, value)} if isinstance(value, ast.Name) else set()
        if value is None or not names or names & bound or _changed(function, loop, names):
            continue
        if not _left_out(function, call, place):
            yield Hit(
                function.file, value, f"every layer is given the same {ast.unparse(value)}; {_kept(function, call)}"
            )


def _list_of(function: FunctionModel, layer: ast.expr, lists: dict[str, Submodule]) -> Submodule | None:
    """Return what the only list of layers holds; None where there are several kinds."""
    kinds = {part.cls for part in lists.values()}
    return next(iter(lists.values())) if len(kinds) == 1 else None


def _added_to(forward: FunctionModel) -> list[tuple[str, int | None]]:
    """Return the parameters that a layer gives back with something added, with their place in the result."""
    values = [item.value for item in forward.returns if item.value is not None]
    if len(values) != 1:
        return []
    several = isinstance(values[0], ast.Tuple)
    found: list[tuple[str, int | None]] = []
    for place, value in enumerate(values[0].elts if isinstance(values[0], ast.Tuple) else values):
        parts = terms(forward, value)
        streams = [part.node.id for part in parts if isinstance(part.node, ast.Name) and _is_given(forward, part.node)]
        if len(parts) > 1 and len(streams) == 1:
            found.append((streams[0], place if several else None))
    return found


def _is_given(forward: FunctionModel, name: ast.Name) -> bool:
    return [binding.kind for binding in reaching(forward, name)] == ["parameter"]


def _changed(function: FunctionModel, loop: ast.For, names: set[str]) -> bool:
    """Whether the loop changes one of the tensors in place, or hands it to something else that may."""
    index = function.file.index
    for call in index.nodes(ast.Call, loop):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id in names and call.func.attr.endswith("_"):  # type: ignore[attr-defined]
            return True
    stores = [node for node in index.nodes(ast.Subscript, loop) if isinstance(node.ctx, ast.Store)]
    return any(isinstance(node.value, ast.Name) and node.value.id in names for node in stores)


def _left_out(function: FunctionModel, call: ast.Call, place: int | None) -> bool:
    """Whether the result is left out under a name that says so: ``_, latents = …``."""
    targets = _targets(function, call)
    if place is None:
        return len(targets) == 1 and targets[0].startswith("_")
    return place < len(targets) and targets[place].startswith("_")


def _targets(function: FunctionModel, call: ast.Call) -> list[str]:
    statement = function.file.index.parent(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target] if target is not None else []
    return [part.id if isinstance(part, ast.Name) else "" for part in parts]


def _kept(function: FunctionModel, call: ast.Call) -> str:
    names = [name for name in _targets(function, call) if name]
    return f"what comes back is {' and '.join(names)}" if names else "what comes back is not handed on"


_CALL = "            context, latents = self._checkpointed_call(layer, context, latents, key_mask)\n"
_OUT = "return (self.llm2vae(self.norm(latents)),)"
FAILING = (
    Example(
        "kept under another name",
        {
            "model": [
                (
                    _CALL,
                    _CALL.replace("context, latents =", "context, output =").replace("latents, key", "«latents», key"),
                ),
                (_OUT, _OUT.replace("(latents)", "(output)")),
            ]
        },
    ),
    Example(
        "called directly, by number",
        {
            "model": [
                (
                    "        for layer in self.layers:\n" + _CALL,
                    "        for number in range(len(self.layers)):\n"
                    "            text, latents = self.layers[number](«context», latents, key_mask)\n"
                    "        latents = latents + 0 * text.sum()\n",
                ),
            ]
        },
        also=("OSC104", "OSC105"),
    ),
    Example(
        "only one of two is taken",
        {
            "model": [
                (
                    _CALL,
                    _CALL.replace("context, latents = self", "latents = self")
                    .replace("context, lat", "«context», lat")
                    .replace("key_mask)", "key_mask)[1]"),
                ),
            ]
        },
    ),
)
PASSING = (
    Example("handed on"),
    Example(
        "called in a function that the loop makes",
        {
            "model": [
                (
                    _CALL,
                    "            def run(context, latents, layer=layer):\n"
                    "                return layer(context, latents, key_mask)\n\n"
                    "            context, latents = self._checkpointed_call(run, context, latents)\n",
                )
            ]
        },
    ),
    Example(
        "handed on in a second line",
        {
            "model": [
                (
                    _CALL,
                    _CALL.replace("context, latents = self", "text, image = self")
                    + "            context, latents = text, image\n",
                )
            ]
        },
    ),
    Example(
        "left out on purpose",
        {"model": [(_CALL, _CALL.replace("context, latents = self", "_, latents = self"))]},
    ),
    Example("of diffusers", base="diffusers"),
)
