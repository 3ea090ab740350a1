"""The training step cuts its own gradient off.

The loss is made of the log-prob that this step returns. A ``no_grad`` around the module, or a detached velocity or
log-prob, leaves the loss finite and the gradient zero or missing: weights never move, or only the guidance's half of the
gradient arrives.

    with torch.no_grad():
        unconditional = module(**negative_model_inputs)[0]

Instead: run both branches with gradients, and return the log-prob as the scheduler gives it.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.guidance_formula import METHOD
from scaffold.check.model.package import Package
from scaffold.check.model.sde import sampling_argument, sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC229"
NAME = "step-without-gradient"
SEVERITY = "error"
CHECKLIST = ("T5", "pitfall 19")
APPLIES = Applies(objective="policy_gradient")
HELP = "remove it; the engine turns gradients off where it needs none"


_OFF = ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.set_grad_enabled")


def check(package: Package) -> Hits:
    """Look at decorators, contexts and detached values of the step."""
    side = side_of(package, "training")
    for adapter in side.adapters:
        method = adapter.method(METHOD)
        if method is None or method.is_abstract or method.file not in package.files:
            continue
        for decorator in method.node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if method.file.qualified(target) in _OFF:
                yield Hit(method.file, decorator, "the whole training step runs without gradients")
        for block in method.file.index.nodes(ast.With, method.node):
            yield from _block(method, block)
        yield from _detached(side, method)


def _block(method: FunctionModel, block: ast.With) -> Hits:
    for item in block.items:
        entered = item.context_expr
        target = entered.func if isinstance(entered, ast.Call) else entered
        on = isinstance(entered, ast.Call) and entered.args and method.file.value(entered.args[0]) is not False
        if method.file.qualified(target) not in _OFF or on:
            continue
        names = {
            getattr(call.func, "id", getattr(call.func, "attr", ""))
            for call in method.file.index.nodes(ast.Call, block)
        }
        if names & {method.positional[0] if method.positional else "module", "forward", "sample_previous_step"}:
            yield Hit(
                method.file, entered, "the module runs without gradients here, and the loss is made of its velocity"
            )


def _by_helper(side: Side, method: FunctionModel, value: ast.expr | None) -> Hits:
    """Look for results that a function detaches before they are returned."""
    given = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
    helper = side.called(method, given) if isinstance(given, ast.Call) else None
    if helper is None or not isinstance(given, ast.Call) or not given.args:
        return
    for item in helper.returns:
        cut = _cut_off(_first(item.value)) if item.value is not None else None
        if cut is not None:
            yield Hit(helper.file, cut, f"{method.name}() returns the log-prob through this, without its gradient")
            return


def _first(value: ast.expr) -> ast.expr:
    """Return what the first of several results is: ``a`` of ``a, b``, of ``[a] + rest``, of ``tuple(a for … in …)``."""
    for _ in range(20):
        if isinstance(value, (ast.Tuple, ast.List)) and value.elts:
            value = value.elts[0]
        elif isinstance(value, ast.Starred):
            value = value.value
        elif isinstance(value, (ast.GeneratorExp, ast.ListComp)):
            value = value.elt
        elif isinstance(value, ast.BinOp) and isinstance(value.left, (ast.Tuple, ast.List)):
            value = value.left
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("tuple", "list"):
            value = value.args[0] if value.args else ast.Constant(None)
        else:
            break
    return value


def _cut_off(value: ast.expr) -> ast.Call | None:
    """Return ``x.detach()`` of ``x.detach().float()``."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in ("detach", "item"):
            return value
        value = value.func.value
    return None


def _detached(side: Side, method: FunctionModel) -> Hits:
    """Look for ``detach`` on the way from the module to the log-prob, and of the log-prob."""
    seen: set[ast.AST] = set()
    for function, call in sampling_calls(side):
        value = sampling_argument(call, "model_output")
        for _, file, node in origin(side, function, value).nodes if value is not None else ():
            inner = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach"
            if inner and node not in seen and _of_module(method, node):
                seen.add(node)
                yield Hit(file, node, "the velocity is cut off from the module that computed it")
    for statement in method.returns:
        yield from _by_helper(side, method, statement.value)
        first = statement.value.elts[0] if isinstance(statement.value, ast.Tuple) and statement.value.elts else None
        cut = _cut_off(first) if first is not None else None
        if cut is not None:
            yield Hit(method.file, cut, "the log-prob is returned without its gradient")


def _of_module(method: FunctionModel, node: ast.AST) -> bool:
    """Whether what is detached is a call of the module or a value of the step, not a scale or a norm."""
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    calls = method.file.index.nodes(ast.Call, node.func.value) if method.file.index.contains(method.node, node) else []
    return any(isinstance(call.func, ast.Name) and call.func.id == method.positional[0] for call in calls)


_RESULT = "        return log_prob, prev_sample_mean, std_dev_t, sqrt_dt\n"
_HELPED = [
    (_RESULT, "        return _wide(log_prob, prev_sample_mean, std_dev_t, sqrt_dt)\n"),
    (
        "@DiffusionModelBase.register(",
        "def _wide(*tensors):\n    return tuple({}.float() for tensor in tensors)\n\n\n@DiffusionModelBase.register(",
    ),
]
FAILING: tuple[Example, ...] = (
    Example(
        "detached by a helper", {"training": [_HELPED[0], (_HELPED[1][0], _HELPED[1][1].format("«tensor.detach()»"))]}
    ),
    Example(
        "one branch",
        {
            "training": [
                (
                    "            unconditional = module(**negative_model_inputs)[0].float()\n",
                    "            with «torch.no_grad()»:\n                unconditional = module(**negative_model_inputs)[0].float()\n",
                )
            ]
        },
    ),
    Example(
        "the whole step",
        {
            "training": [
                (
                    "    @classmethod\n    def forward_and_sample",
                    "    @classmethod\n    @«torch.no_grad()»\n    def forward_and_sample",
                )
            ]
        },
    ),
    Example(
        "the velocity",
        {
            "training": [
                (
                    "velocity = module(**model_inputs)[0].float()",
                    "velocity = «module(**model_inputs)[0].detach()».float()",
                )
            ]
        },
    ),
    Example("the log-prob", {"training": [("return log_prob, prev", "return «log_prob.detach()», prev")]}),
)
_RESULT_OF = "def _result({0}):\n    return {1}\n\n\n@DiffusionModelBase.register("
_GIVEN_BACK = (_RESULT, "        return _result(log_prob, prev_sample_mean, std_dev_t, sqrt_dt)\n")
FAILING += (
    Example(
        "the first of a helper's results",
        {
            "training": [
                _GIVEN_BACK,
                (_HELPED[1][0], _RESULT_OF.format("log_prob, *others", "«log_prob.detach()».float(), *others")),
            ]
        },
    ),
)
PASSING = (
    Example(
        "the others of a helper's results",
        {
            "training": [
                _GIVEN_BACK,
                (
                    _HELPED[1][0],
                    _RESULT_OF.format(
                        "log_prob, mean, *others", "log_prob, mean, *(tensor.detach() for tensor in others)"
                    ),
                ),
            ]
        },
    ),
    Example(
        "a helper that weighs it",
        {
            "training": [
                _GIVEN_BACK,
                (
                    _HELPED[1][0],
                    _RESULT_OF.format(
                        "log_prob, mean, std, dt", "log_prob * torch.ones_like(dt.detach()), mean, std, dt"
                    ),
                ),
            ]
        },
    ),
    Example("converted by a helper", {"training": [_HELPED[0], (_HELPED[1][0], _HELPED[1][1].format("tensor"))]}),
    Example("with gradients"),
    Example(
        "a norm",
        {
            "training": [
                (
                    "            low, high = guidance",
                    "            _norm = velocity.detach().norm()\n            low, high = guidance",
                )
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
