"""``forward_and_sample_previous_step`` does not return what the engine unpacks.

The engine takes ``log_prob, prev_sample_mean, std_dev_t, sqrt_dt`` from it, in this order. The scheduler's own result
begins with the previous sample and holds ``sqrt_dt`` only if asked. In another order nothing need fail: a mean taken
for a log-prob has a shape that broadcasts, and the loss is finite.

    return prev_sample_mean, log_prob, std_dev_t, sqrt_dt

Instead: unpack all five of ``sample_previous_step(…, return_sqrt_dt=True)``, and return the last four in their order.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import has_unpacking, keyword
from scaffold.check.model.contract import step_results
from scaffold.check.model.dataflow import reaching, unpacked_at
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sde import sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC209"
NAME = "misordered-step-result"
SEVERITY = "error"
CHECKLIST = ("T5",)
APPLIES = Applies(objective="policy_gradient")
HELP = "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt, from sample_previous_step(…, return_sqrt_dt=True)"
METHOD = "forward_and_sample_previous_step"
_WORDS = {3: "three", 4: "four", 5: "five"}
_RESULT = ("prev_sample", "log_prob", "prev_sample_mean", "std_dev_t", "sqrt_dt")


def check(package: Package) -> Hits:
    """Follow what is returned back to the scheduler's result."""
    side = side_of(package, "training")
    for adapter in side.adapters:
        method = adapter.method(METHOD)
        if method is None or method.is_abstract or method.file.path == "verl_omni/pipelines/model_base.py":
            continue
        if not method.returns and not any(isinstance(n, ast.Raise) for n in method.node.body):
            yield Hit(method.file, method.node, f"{adapter.name}.{METHOD}() returns nothing")
        for statement in method.returns:
            if statement.value is None:
                yield Hit(method.file, statement, f"{adapter.name}.{METHOD}() returns nothing here")
            else:
                yield from _returned(side, method, statement.value, 0)
    for function, call in sampling_calls(side):
        yield from _asked(function, call)


def _asked(function: FunctionModel, call: ast.Call) -> Hits:
    """Look at what the scheduler is asked for."""
    log_probs = keyword(call, "return_logprobs")
    if log_probs is not None and function.file.value(log_probs) is False:
        yield Hit(function.file, log_probs, "the scheduler is told to return no log-prob")
    target = _unpacking(function, call)
    asked = keyword(call, "return_sqrt_dt")
    if target is not None and not has_unpacking(call):
        wanted = asked is not None and function.file.value(asked) is not False
        if len(target.elts) == 5 and not wanted:
            yield Hit(function.file, asked or call.func, "sqrt_dt is unpacked, but return_sqrt_dt is not True")
        elif len(target.elts) == 4 and asked is not None and function.file.value(asked) is True:
            yield Hit(function.file, target, "the scheduler returns five values here, and four are unpacked")


def _unpacking(function: FunctionModel, call: ast.Call) -> ast.Tuple | None:
    statement = function.file.index.parent(call)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Tuple) and not any(isinstance(item, ast.Starred) for item in target.elts):
            return target
    return None


def _returned(side: Side, function: FunctionModel, value: ast.expr, depth: int) -> Hits:
    if isinstance(value, ast.Name):
        for known in (b.value for b in reaching(function, value)) if depth < 5 else ():
            if known is not None:
                yield from _returned(side, function, known, depth + 1)
        return
    if isinstance(value, ast.IfExp):
        for arm in (value.body, value.orelse):
            yield from _returned(side, function, arm, depth + 1)
        return
    if isinstance(value, ast.Call):
        if any(call is value for _, call in sampling_calls(side)):
            yield Hit(
                function.file, value, "the scheduler's whole result is returned, which begins with the previous sample"
            )
        return
    if (
        isinstance(value, ast.Subscript)
        and isinstance(value.slice, ast.Slice)
        and _is_result(side, function, value.value, depth)
    ):
        lower = function.file.value(value.slice.lower) if value.slice.lower is not None else 0
        if value.slice.upper is not None or lower != 1:
            yield Hit(function.file, value, "this part of the scheduler's result is not log_prob to sqrt_dt")
        return
    if isinstance(value, ast.Tuple) and not any(isinstance(item, ast.Starred) for item in value.elts):
        count = step_results(function.file.project) or len(_RESULT) - 1
        if len(value.elts) != count:
            text = f"{len(value.elts)} values are returned where the engine unpacks {_WORDS.get(count, count)}"
            yield Hit(function.file, value, text)
            return
        yield from _changed(side, function, value.elts[0])
        for at, item in enumerate(value.elts, start=1):
            place = _place(side, function, item, 0)
            if place is not None and place != at:
                yield Hit(
                    function.file, item, f"the scheduler's {_RESULT[place]} is returned in the place of {_RESULT[at]}"
                )
    elif isinstance(value, ast.Constant):
        yield Hit(function.file, value, f"{value.value!r} is returned where the engine unpacks four values")
    elif isinstance(value, (ast.Dict, ast.Set, ast.DictComp, ast.SetComp)):
        yield Hit(function.file, value, "a dictionary or set is returned where the engine unpacks four values")


def _changed(side: Side, function: FunctionModel, item: ast.expr) -> Hits:
    """Look at what is made of the log-prob: it has to be the scheduler's own, one a sample."""
    inner = item
    while isinstance(inner, (ast.UnaryOp, ast.Call)):
        if isinstance(inner, ast.UnaryOp):
            inner = inner.operand
        elif isinstance(inner.func, ast.Attribute):
            inner = inner.func.value
        else:
            return
    if _place(side, function, inner, 0) != 1:
        return
    if isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.USub):
        yield Hit(function.file, item, "the log-prob is returned with its sign turned")
    elif isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute):
        if item.func.attr in ("mean", "sum") and not item.args and not item.keywords:
            yield Hit(function.file, item, "the log-probs of all samples become one number")


def _is_result(side: Side, function: FunctionModel, value: ast.expr, depth: int) -> bool:
    if isinstance(value, ast.Name) and depth < 5:
        bindings = reaching(function, value)
        return (
            len(bindings) == 1
            and bindings[0].value is not None
            and _is_result(side, function, bindings[0].value, depth + 1)
        )
    return any(call is value for _, call in sampling_calls(side))


def _place(side: Side, function: FunctionModel, item: ast.expr, depth: int) -> int | None:
    """Return which value of the scheduler's result something is."""
    if depth > 5:
        return None
    if (
        isinstance(item, ast.Subscript)
        and isinstance(item.slice, ast.Constant)
        and _is_result(side, function, item.value, depth)
    ):
        at = item.slice.value
        return at % 5 if isinstance(at, int) and -5 <= at < 5 else None
    if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and not item.args:
        return _place(side, function, item.func.value, depth + 1)
    if not isinstance(item, ast.Name):
        return None
    places: set[int | None] = set()
    for binding in reaching(function, item):
        if binding.value is not None:
            places.add(_place(side, function, binding.value, depth + 1))
            continue
        part = unpacked_at(function.file, binding.node)
        places.add(part[1] if part is not None and _is_result(side, function, part[0], depth) else None)
    return places.pop() if len(places) == 1 else None


_RETURN = "        return log_prob, prev_sample_mean, std_dev_t, sqrt_dt\n"
_ASKED = "            return_sqrt_dt=True,\n"
_CALL = "_, log_prob, prev_sample_mean, std_dev_t, sqrt_dt = scheduler.sample_previous_step("
FAILING = (
    Example(
        "another order in one arm",
        {
            "training": [
                (
                    _RETURN,
                    "        result = log_prob, prev_sample_mean, std_dev_t, sqrt_dt\n"
                    "        return result if step else (log_prob, prev_sample_mean, «sqrt_dt», «std_dev_t»)\n",
                )
            ]
        },
    ),
    Example("the sign turned", {"training": [("return log_prob, prev", "return «-log_prob», prev")]}),
    Example("one for the batch", {"training": [("return log_prob, prev", "return «log_prob.mean()», prev")]}),
    Example(
        "another order",
        {"training": [(_RETURN, "        return «prev_sample_mean», «log_prob», std_dev_t, sqrt_dt\n")]},
    ),
    Example("three values", {"training": [(_RETURN, "        return «log_prob, prev_sample_mean, std_dev_t»\n")]}),
    Example(
        "sqrt_dt is not asked for",
        {
            "training": [
                (_ASKED, ""),
                (_CALL, _CALL.replace("scheduler.sample_previous_step", "«scheduler.sample_previous_step»")),
            ]
        },
    ),
    Example(
        "the whole result",
        {
            "training": [
                (_CALL, "return «scheduler.sample_previous_step("),
                ("LOGPROB_NORMALIZER,\n        )\n" + _RETURN, "LOGPROB_NORMALIZER,\n        )»\n"),
            ]
        },
    ),
    Example(
        "a wrong part of the result",
        {"training": [(_CALL, "result = scheduler.sample_previous_step("), (_RETURN, "        return «result[:4]»\n")]},
    ),
    Example(
        "unpacked in another order",
        {
            "training": [
                (_CALL, _CALL.replace("log_prob, prev_sample_mean", "prev_sample_mean, log_prob")),
                (_RETURN, "        return «log_prob», «prev_sample_mean», std_dev_t, sqrt_dt\n"),
            ]
        },
    ),
    Example(
        "a dictionary",
        {
            "training": [
                (
                    _RETURN,
                    '        result = «{"log_prob": log_prob, "mean": prev_sample_mean}»\n        return result\n',
                )
            ]
        },
    ),
    Example("no log-prob", {"training": [("return_logprobs=True", "return_logprobs=«False»")]}),
)
PASSING = (
    Example("the four, in order"),
    Example(
        "by way of a dictionary",
        {
            "training": [
                (
                    _RETURN,
                    '        kept = {"log_prob": log_prob}\n'
                    '        return kept["log_prob"], prev_sample_mean, std_dev_t, sqrt_dt\n',
                )
            ]
        },
    ),
    Example(
        "the tail of the result",
        {"training": [(_CALL, "result = scheduler.sample_previous_step("), (_RETURN, "        return result[1:]\n")]},
    ),
    Example(
        "by index",
        {
            "training": [
                (_CALL, "result = scheduler.sample_previous_step("),
                (_RETURN, "        return result[1], result[2], result[3], result[-1]\n"),
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
