"""A value is computed by the model and nothing reads it.

The update of a stream that is never added, the guided velocity that is dropped, the result of a checkpointed layer that
goes nowhere: the line that used it is gone or names another value. Everything runs, and the velocity is another one than
the rollout's.

    context_update, latents_update = self.self_attn(…)
    latents = latents + context_update                   # latents_update is used nowhere

Instead: use the value where the upstream model uses it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import resolve
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.ported_code import written_files
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC134"
NAME = "value-never-used"
SEVERITY = "error"
CHECKLIST = ("M5", "M7", "M8", "T5", "pitfall 19")
APPLIES = Applies()
HELP = "use the value, or do not compute it"


_METHODS = ("prepare_model_inputs", "forward_and_sample_previous_step")


def check(package: Package) -> Hits:
    """Look at the names that the forward code and the training step assign, and at results that are dropped."""
    module = package.training_module
    forward = [f for f in package.forward_functions if f.name == "forward"] if module is not None else []
    side = side_of(package, "training")
    steps = [m for adapter in side.adapters for name in _METHODS if (m := adapter.method(name)) is not None]
    helpers = [f for f in side.functions if f.cls is None]
    written = written_files(package)
    for function in dict.fromkeys([*forward, *steps, *helpers]):
        if function.file in written and not function.is_abstract:
            yield from _unread(package, function)
            yield from _dropped(function, function in forward)
    sides = [*side.functions, *side_of(package, "rollout").functions]
    own = [f for f in sides if f.cls is not None and f not in [*forward, *steps]] if package.is_non_diffusers else []
    for function in dict.fromkeys(own):
        if function.file in written and not function.is_abstract:
            yield from _unread(package, function, plain=True)


def _unread(package: Package, function: FunctionModel, plain: bool = False) -> Hits:
    index = function.file.index
    names = index.nodes(ast.Name, function.node)
    read = {node.id for node in names if isinstance(node.ctx, (ast.Load, ast.Del))}
    last: dict[str, tuple[int, int]] = {}
    for node in names:
        if isinstance(node.ctx, ast.Load):
            last[node.id] = max(last.get(node.id, (0, 0)), (node.lineno, node.col_offset))
    outer = {name for node in index.nodes(ast.Global, function.node) for name in node.names}
    outer |= {name for node in index.nodes(ast.Nonlocal, function.node) for name in node.names}
    if any(node.id in ("locals", "vars", "eval", "exec") for node in names):
        return
    for node in names:
        if not isinstance(node.ctx, ast.Store) or node.id in outer or node.id.startswith("_"):
            continue
        if node.id in read and (plain or not _read_before_alone(function, node, last)):
            continue
        value = _value(function, node)
        single = isinstance(index.parent(node), (ast.Assign, ast.AnnAssign)) and not isinstance(value, ast.Constant)
        if value is not None and (_computes(package, function, value) or (plain and single)):
            yield Hit(function.file, node, f"{node.id} is computed in {function.name}() and read nowhere")


def _read_before_alone(function: FunctionModel, node: ast.Name, last: dict[str, tuple[int, int]]) -> bool:
    """Whether a name is assigned once more, outside of loops and branches, and not read from there on.

    Args:
        function: the function.
        node: the name where it is assigned.
        last: where each name is read last.
    """
    index = function.file.index
    statement = next((outer for outer in index.ancestors(node) if isinstance(outer, ast.stmt)), None)
    if not isinstance(statement, ast.Assign) or index.parent(statement) is not function.node:
        return False
    if last.get(node.id, (0, 0)) > (statement.end_lineno or 0, statement.end_col_offset or 0):
        return False
    uses = [n for n in index.nodes(ast.Name, function.node) if n.id == node.id and isinstance(n.ctx, ast.Load)]
    loops = [
        n for kind in (ast.FunctionDef, ast.Lambda) for n in index.nodes(kind, function.node) if n is not function.node
    ]
    nested = any(index.contains(loop, use) for loop in loops for use in uses)
    return not nested


def _value(function: FunctionModel, node: ast.Name) -> ast.expr | None:
    """Return what is assigned to a name by a plain statement, perhaps as one of several."""
    statement = function.file.index.parent(node)
    if isinstance(statement, (ast.Tuple, ast.List)):
        statement = function.file.index.parent(statement)
        whole = statement.value if isinstance(statement, ast.Assign) else None
        return whole if isinstance(whole, ast.Call) else None
    if isinstance(statement, ast.Assign):
        return statement.value
    return statement.value if isinstance(statement, ast.AnnAssign) else None


def _computes(package: Package, function: FunctionModel, value: ast.expr) -> bool:
    """Whether a value comes out of the module, a function of the package, or a comparison of tensors."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.BitAnd, ast.BitOr)):
        return any(isinstance(node, ast.Compare) for node in function.file.index.walk(value))
    for call in function.file.index.nodes(ast.Call, value):
        if _of_self(function, call) or (isinstance(call.func, ast.Name) and call.func.id == "module"):
            return True
        found = resolve(function.file, call, function.cls)
        if isinstance(found, FunctionModel) and found.file in package.files:
            return True
    return False


def _of_self(function: FunctionModel, call: ast.Call) -> bool:
    target = call.func
    return (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self" == function.bound
    )


def _dropped(function: FunctionModel, forward: bool) -> Hits:
    """Look for statements that are nothing but a call whose result matters."""
    for statement, call in _statements(function):
        target = call.func
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        found = resolve(function.file, call, function.cls)
        pure = isinstance(found, FunctionModel) and found.cls is None and _answers(found) and not _changes(found)
        if (forward and "checkpointed_call" in name) or pure:
            yield Hit(function.file, statement.value, f"the result of {name}() is dropped")


def _statements(function: FunctionModel) -> Iterator[tuple[ast.Expr, ast.Call]]:
    for statement in function.file.index.nodes(ast.Expr, function.node):
        if isinstance(statement.value, ast.Call):
            yield statement, statement.value


def _answers(function: FunctionModel) -> bool:
    return bool(function.returns) and all(item.value is not None for item in function.returns)


def _changes(function: FunctionModel) -> bool:
    """Whether a function may do something else than answer: it raises, assigns to something or only calls."""
    index = function.file.index
    stores = [n for n in index.nodes(ast.Attribute, function.node) if isinstance(n.ctx, ast.Store)]
    items = [n for n in index.nodes(ast.Subscript, function.node) if isinstance(n.ctx, ast.Store)]
    calls = [statement for statement, _ in _statements(function)]
    return bool(
        stores or items or calls or index.nodes(ast.Raise, function.node) or index.nodes(ast.Yield, function.node)
    )


FAILING = (
    Example(
        "in the rollout",
        {
            "rollout": [
                (
                    "            noise_level=noise_level,\n",
                    '            noise_level=float(extra_args.get("noise_level", 0.0)),\n',
                ),
                (
                    "        params = req.sampling_params\n",
                    "        params = req.sampling_params\n        «scaling» = params.num_inference_steps / 2\n",
                ),
            ]
        },
    ),
    Example(
        "an update",
        {
            "model": [
                (
                    "context, latents = context + context_update, latents + latents_update",
                    "context, latents = context + context_update, latents + context_update",
                ),
                ("        context_update, latents_update = self", "        context_update, «latents_update» = self"),
            ]
        },
    ),
    Example(
        "the result of a layer",
        {
            "model": [
                (
                    "context, latents = self._checkpointed_call(layer, context, latents, key_mask)",
                    "«self._checkpointed_call(layer, context, latents, key_mask)»",
                )
            ]
        },
    ),
    Example(
        "the guided velocity",
        {
            "training": [
                (
                    "velocity = torch.where(((sigma > low) & (sigma <= high)).view(-1, 1, 1), guided, velocity)",
                    "«active» = (sigma > low) & (sigma <= high)\n            velocity = guided",
                )
            ]
        },
    ),
    Example(
        "what a helper answers",
        {
            "training": [
                (
                    "            low, high = guidance",
                    "            «_mix(velocity, unconditional)»\n            low, high = guidance",
                ),
                (
                    "\n\n@DiffusionModelBase.register(",
                    "\n\ndef _mix(one, other):\n    return one + other\n\n\n@DiffusionModelBase.register(",
                ),
            ]
        },
        also=("OSC228",),
    ),
)
PASSING = (
    Example("all is used"),
    Example(
        "named as not used",
        {
            "training": [
                (
                    "            low, high = guidance",
                    "            _ignored = module(**model_inputs)\n            low, high = guidance",
                )
            ]
        },
    ),
    Example(
        "sizes",
        {
            "model": [
                (
                    "batch, device = hidden_states.shape[0], hidden_states.device",
                    "batch, device = hidden_states.shape[0], hidden_states.device\n        rows, columns = hidden_states.shape[1:]",
                )
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
