"""Whether the module is called depends on values of the micro-batch, or on the rank.

With sharded parameters every forward gathers weights from all ranks. A branch that one rank runs and another one skips
leaves the first waiting for ever: the run stands still at the first micro-batch that differs, without an error. Reading
the value also makes the host wait for the device at every step.

    if guided.any():                                         # guided: (B,), from the timesteps of this micro-batch
        unconditional = module(**negative_model_inputs)[0]

Instead: decide by the configuration, run the branch for all samples, and choose with ``torch.where``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.guidance_formula import METHOD
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC233"
NAME = "forward-by-value"
SEVERITY = "error"
CHECKLIST = ("T5", "pitfall 42")
APPLIES = Applies(objective="policy_gradient")
HELP = "run the branch whatever the values are, and choose by sample with torch.where"
_READING = {"any", "all", "item", "tolist", "nonzero", "count_nonzero", "max", "min", "sum", "mean", "amax", "amin"}
_DRAWING = ("random.random", "random.randint", "torch.rand", "torch.randint", "torch.randn", "numpy.random.")
_RANKS = {"LOCAL_RANK", "RANK"}
_SIZES = {"shape", "ndim", "dtype", "device", "size", "dim", "numel", "keys", "is_nested", "batch_size"}


def check(package: Package) -> Hits:
    """Look at each call of the module, and at what decides whether it is reached."""
    side = side_of(package, "training")
    for adapter in side.adapters:
        method = adapter.method(METHOD)
        if method is None or method.is_abstract or len(method.positional) < 6:
            continue
        data = {(method, name) for name in method.positional[3:6]}
        seen: set[ast.AST] = set()
        for function, call in _forwards(side, method):
            for test in _tests(function, call) if function.file in package.files else ():
                why = _by_value(side, function, test, data)
                if why is not None and test not in seen:
                    seen.add(test)
                    yield Hit(function.file, test, f"{why} whether the module is called")


def _forwards(side: Side, method: FunctionModel) -> Iterator[tuple[FunctionModel, ast.Call]]:
    """Yield the calls of the module that is trained: in the method, and where it is handed on."""
    module = (method, method.positional[0])
    for function in side.functions:
        for call in function.calls:
            if not isinstance(call.func, ast.Name) or call.func.id not in function.parameters:
                continue
            given = origin(side, function, call.func)
            if (function, call.func.id) == module or module in given.open:
                yield function, call


def _tests(function: FunctionModel, call: ast.Call) -> Iterator[ast.expr]:
    """Yield the conditions under which a call is reached: around it, and in front of it where they leave."""
    index = function.file.index
    inner: ast.AST = call
    for outer in index.ancestors(call):
        if isinstance(outer, (ast.If, ast.While, ast.IfExp)) and inner is not outer.test:
            yield from _parts(outer.test)
        elif isinstance(outer, ast.BoolOp):
            yield from _parts(outer.values[0])
        body = getattr(outer, "body", None)
        if isinstance(body, list):
            for statement in body[: body.index(inner)] if inner in body else ():
                if isinstance(statement, ast.If) and isinstance(
                    statement.body[-1], (ast.Return, ast.Continue, ast.Break)
                ):
                    yield from _parts(statement.test)
        if outer is function.node:
            return
        inner = outer


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _parts(part)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand)
    else:
        yield test


def _by_value(side: Side, function: FunctionModel, test: ast.expr, data: set[tuple[FunctionModel, str]]) -> str | None:
    """Return what decides, where it differs between ranks."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        return None
    made = origin(side, function, test)
    for around, file, node in made.nodes:
        if around is not None and around.file is not file:
            continue
        name = (file.qualified(node.func) or "") if isinstance(node, ast.Call) else ""
        if name.startswith(_DRAWING):
            return "a random draw, another one on each rank, decides"
        if name.endswith("distributed.get_rank") or (isinstance(node, ast.Constant) and node.value in _RANKS):
            return "the rank decides"
    if not data & set(made.open):
        return None
    index = function.file.index
    reads = [n for n in index.nodes(ast.Attribute, test) if n.attr in _SIZES]
    sized = any(
        isinstance(c.func, ast.Name) and c.func.id in ("len", "isinstance") for c in index.nodes(ast.Call, test)
    )
    if reads or sized:
        return None
    if any(_first(file, node) for _, file, node in made.nodes):
        return None  # one sample decides for all of them: first-sample-decides says so
    called = {n.func.attr for _, _, n in made.nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    direct = isinstance(test, ast.Compare) and _indexes(side, function, test, data)
    if called & _READING or direct:
        return "values of the micro-batch decide"
    return None


def _first(file: PythonFile, node: ast.AST) -> bool:
    """Whether a node takes one sample out of a batch."""
    if not isinstance(node, ast.Subscript):
        return False
    key = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
    return isinstance(key, ast.Constant) and key.value == 0 and len(file.index.nodes(ast.Tuple, node)) > 0


def _indexes(side: Side, function: FunctionModel, test: ast.expr, data: set[tuple[FunctionModel, str]]) -> bool:
    """Whether an entry of the data itself is compared."""
    subscripts = function.file.index.nodes(ast.Subscript, test)
    keyed = [node for node in subscripts if not isinstance(function.file.value(node.slice), str)]
    return any(data & set(origin(side, function, node.value).open) for node in keyed)


_IF = '        if guidance["cfg_text_scale"] > 1.0:\n'
_LOW = '        low, high = guidance["cfg_interval"]\n'
_INSIDE = "        inside = (timesteps[:, step] > low) & (timesteps[:, step] <= high)\n"
_INNER = '            low, high = guidance["cfg_interval"]\n'


def _asked(test: str, before: str = _LOW + _INSIDE) -> dict[str, list[tuple[str, str]]]:
    """Return the changes that ask something more."""
    asked = f'{before}        if guidance["cfg_text_scale"] > 1.0 and {test}:\n'
    return {"training": [(_IF, asked), (_INNER, "")]}


FAILING = (
    Example("any sample", _asked("«inside.any()»")),
    Example("all samples", _asked("«bool(torch.all(inside))»")),
    Example("as a number", _asked("«timesteps[:, step].max().item() > low»", _LOW), also=("OSC217",)),
    Example("not every time", _asked("«torch.rand(()) < 0.9»", _LOW), also=("OSC310",)),
    Example(
        "left before",
        {
            "training": [
                (
                    _IF,
                    _LOW + _INSIDE + "        if not «inside.any()»:\n            return None\n" + _IF,
                ),
                (_INNER, ""),
            ]
        },
        also=("OSC209",),
    ),
    Example(
        "in a helper",
        {
            "training": [
                (
                    _IF,
                    _LOW
                    + '        if guidance["cfg_text_scale"] > 1.0 and «cls._guided(timesteps[:, step], low, high)»:\n',
                ),
                (_INNER, ""),
                (
                    "    @classmethod\n    def forward_and_sample_previous_step(",
                    "    @staticmethod\n    def _guided(sigma, low, high):\n"
                    "        return ((sigma > low) & (sigma <= high)).any()\n\n"
                    "    @classmethod\n    def forward_and_sample_previous_step(",
                ),
            ]
        },
    ),
)
PASSING = (
    Example("one sample decides, which is another rule's", _asked("timesteps[0, step] > low", _LOW), also=("OSC217",)),
    Example("by the configuration"),
    Example(
        "where there is such a branch",
        {"training": [(_IF, _IF.replace(":\n", " and negative_model_inputs is not None:\n"))]},
    ),
    Example("by the number of samples", _asked("timesteps.shape[0] > 0", _LOW), also=("OSC217",)),
    Example(
        "only what is returned", {"training": [(_IF, "        if latents.shape[1] < 2:\n            step = 0\n" + _IF)]}
    ),
    Example("of diffusers", base="diffusers"),
)
