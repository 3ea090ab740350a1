"""Training guides in another way than the rollout.

The rollout's pipeline computes ``u + s * (c - u)`` inside of an interval of noise levels and leaves the other steps
alone. A sum where a difference belongs, a gate turned round, bounds that are exchanged: the recomputed velocity is
another one at some steps or at all, and log-probs are off by many times the clip range, while everything runs.

    active = (sigma > low) | (sigma <= high)                 # always true
    return torch.where(active, conditional, guided)          # and the wrong way round

Instead: combine the branches with weights that add up to one, and select the guided velocity where the gate holds.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.dataflow import origin, unpacked_at
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.guidance_formula import METHOD, SCALE, Formula
from scaffold.check.model.guidance_gates import gate_comparisons, is_inverted, is_made_of, may_mix, plain_scale
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.sde import sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC228"
NAME = "other-guidance"
SEVERITY = "error"
CHECKLIST = ("T5",)
APPLIES = Applies(objective="policy_gradient")
HELP = "guide as the rollout does: without + scale * (with - without), where low < sigma <= high"
_GUIDED = 'guided = unconditional + guidance["cfg_text_scale"] * (velocity - unconditional)'
_WHERE = "velocity = torch.where(((sigma > low) & (sigma <= high)).view(-1, 1, 1), guided, velocity)"
_SPEC = """[upstream]
version = "0.27.0rc1"

[cfg]
interval_rule = "lo < sigma <= hi"
formula = "u+s(c-u)"
text_scale = "cfg_text_scale"
"""


_ENDS = {
    "low": "low",
    "lo": "low",
    "lower": "low",
    "start": "low",
    "min": "low",
    "high": "high",
    "hi": "high",
    "upper": "high",
    "end": "high",
    "max": "high",
}
_FORMULAS = {"u+s(c-u)": (SCALE, 1 - SCALE), "c+s(c-u)": (1 + SCALE, -SCALE)}


def check(package: Package) -> Hits:
    """Look at the weights of the branches, at the gate, and at what decides whether there is guidance."""
    side = side_of(package, "training")
    for adapter in side.adapters:
        method = adapter.method(METHOD)
        if method is None or method.is_abstract:
            continue
        formula = Formula(side, method)
        for function in side.functions if any(True for _ in sampling_calls(side)) else ():
            for node in function.file.index.nodes(ast.BinOp, function.node):
                if function.file in package.files and may_mix(function, node):
                    yield from _weights(package, formula, function, node)
        yield from _switched(method, formula)
    if not any(True for _ in sampling_calls(side)):
        return
    for function in side.functions:
        if function.file in package.files:
            yield from _gates(side, function, package)


def _switched(method: FunctionModel, formula: Formula) -> Hits:
    """Look for a branch without the prompt that only runs where the scale asks for no guidance."""
    for node in method.file.index.nodes(ast.If, method.node):
        test = node.test
        if not (
            isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Lt, ast.LtE, ast.Eq))
        ):
            continue
        scaled = "scale" in ast.unparse(test.left) and method.file.value(test.comparators[0]) in (1, 1.0)
        runs = [
            item.value
            for statement in node.body
            for call in method.file.index.nodes(ast.Call, statement)
            for item in call.keywords
            if item.arg is None
        ]
        if scaled and any(isinstance(value, ast.Name) and value.id == formula.negative for value in runs):
            yield Hit(method.file, test, "the branch without the prompt runs where no guidance is asked for")


def _weights(package: Package, formula: Formula, function: FunctionModel, node: ast.BinOp) -> Hits:
    """Look at a sum of the two branches as they come out of the module."""
    mix = formula.mix(function, node)
    above = function.file.index.parent(node)
    if mix is None or not mix.both or isinstance(above, ast.BinOp) or not plain_scale(function, node):
        return
    for name in function.file.index.nodes(ast.Name, node):
        part = formula.mix(function, name)
        if part is not None and abs(part.positive) + abs(part.negative) != 1.0:
            return
    if mix.positive < 0 < mix.negative:
        return  # the branches are exchanged: mixed-up-branches says so
    if abs(mix.positive + mix.negative - 1.0) > 1e-6:
        yield Hit(function.file, node, "the weights of the two branches do not add up to one")
        return
    wanted = _FORMULAS.get((recorded(package, "cfg", "formula") or "").replace(" ", ""))
    if wanted is not None and abs(mix.positive - wanted[0]) > 1e-6:
        yield Hit(function.file, node, f"the rollout's pipeline computes {recorded(package, 'cfg', 'formula')}")
    scale = recorded(package, "cfg", "text_scale")
    read = {n.value for n in function.file.index.nodes(ast.Constant, node) if isinstance(n.value, str)}
    read = {name for name in read if name.startswith("cfg")}
    if scale and read and scale not in read:
        yield Hit(function.file, node, f"the text's branch is scaled by {', '.join(sorted(read))}, not by {scale}")


def _gates(side: Side, function: FunctionModel, package: Package) -> Hits:
    """Look at comparisons with the ends of the interval, and at what they select."""
    index = function.file.index
    ends: dict[str, str] = {}
    for name in index.nodes(ast.Name, function.node):
        if isinstance(name.ctx, ast.Store):
            place = unpacked_at(function.file, name)
            if place is not None and place[1] < 2 and "interval" in ast.unparse(place[0]):
                ends[name.id] = ("low", "high")[place[1]]
                said = _ENDS.get(name.id.rstrip("_"))
                if said is not None and said != ends[name.id]:
                    yield Hit(function.file, name, f"{name.id} is the {ends[name.id]} end of the interval")
    if not ends:
        return
    rule = (recorded(package, "cfg", "interval_rule") or "").replace(" ", "")
    strict = {"low": "lo<sigma" in rule, "high": "sigma<hi" in rule} if rule else None
    for node in index.nodes(ast.Compare, function.node):
        for end, op, where in gate_comparisons(node, ends):
            wrong_way = isinstance(op, (ast.Lt, ast.LtE)) if end == "low" else isinstance(op, (ast.Gt, ast.GtE))
            if wrong_way and not is_inverted(function, node):
                yield Hit(function.file, where, f"the noise level is compared with the {end} end the wrong way round")
            elif strict is not None and isinstance(op, (ast.Lt, ast.Gt)) != strict[end] and not wrong_way:
                yield Hit(
                    function.file,
                    where,
                    f"the rollout's pipeline guides where {recorded(package, 'cfg', 'interval_rule')}",
                )
        joined = index.parent(node)
        if (
            any(True for _ in gate_comparisons(node, ends))
            and isinstance(joined, ast.BinOp)
            and isinstance(joined.op, ast.BitOr)
        ):
            both = [
                item
                for part in (joined.left, joined.right)
                if isinstance(part, ast.Compare)
                for item in gate_comparisons(part, ends)
            ]
            right = [isinstance(op, (ast.Gt, ast.GtE)) == (end == "low") for end, op, _ in both]
            if joined.left is node and len(right) == 2 and all(right):
                yield Hit(function.file, joined, "this holds at every noise level: both ends have to be kept to")
    if not any(name.id in ends and isinstance(name.ctx, ast.Load) for name in index.nodes(ast.Name, function.node)):
        first = next(name for name in index.nodes(ast.Name, function.node) if name.id in ends)
        yield Hit(function.file, first, "the interval is read, and no noise level is compared with it")
    for call in function.calls:
        if function.file.qualified(call.func) == "torch.where" and len(call.args) == 3:
            yield from _selected(side, function, call, ends)


def _selected(side: Side, function: FunctionModel, call: ast.Call, ends: dict[str, str]) -> Hits:
    """Look which of the two velocities ``torch.where`` takes inside of the interval."""
    gate = origin(side, function, call.args[0])
    compared = [
        n
        for around, _, n in gate.nodes
        if isinstance(n, ast.Compare) and around == function and any(True for _ in gate_comparisons(n, ends))
    ]
    turned = any(isinstance(n, ast.UnaryOp) and isinstance(n.op, (ast.Invert, ast.Not)) for _, _, n in gate.nodes)
    turned = turned or any(is_inverted(function, node) for node in compared)
    if not compared or turned:
        return
    inside, outside = call.args[1], call.args[2]
    if isinstance(inside, ast.Name) and isinstance(outside, ast.Name) and inside.id != outside.id:
        if is_made_of(function, outside, inside.id) and not is_made_of(function, inside, outside.id):
            yield Hit(function.file, call, f"{inside.id} is taken inside of the interval, {outside.id} outside")


FAILING = (
    Example(
        "a sum",
        {
            "training": [
                (
                    _GUIDED,
                    _GUIDED.replace("guided = ", "guided = «").replace(
                        "(velocity - unconditional)", "(velocity + unconditional)»"
                    ),
                )
            ]
        },
    ),
    Example(
        "another formula than the recorded one",
        {"training": [(_GUIDED, _GUIDED.replace("guided = unconditional", "guided = «velocity") + "»")], "spec": _SPEC},
    ),
    Example(
        "scaled by another parameter",
        {
            "training": [
                (_GUIDED, _GUIDED.replace("guided = ", "guided = «").replace("cfg_text_scale", "cfg_img_scale") + "»")
            ],
            "spec": _SPEC,
        },
    ),
    Example(
        "either end",
        {"training": [("((sigma > low) & (sigma <= high)).view", "(«(sigma > low) | (sigma <= high)»).view")]},
    ),
    Example(
        "ends exchanged",
        {
            "training": [
                ("            low, high = guidance", "            «high», «low» = guidance"),
                ("((sigma > low) & (sigma <= high)).view", "((«sigma > low») & («sigma <= high»)).view"),
            ]
        },
    ),
    Example("the wrong way round", {"training": [("(sigma > low)", "(«sigma < low»)")]}),
    Example(
        "closed at the other end",
        {
            "training": [("((sigma > low) & (sigma <= high)).view", "((«sigma >= low») & («sigma < high»)).view")],
            "spec": _SPEC,
        },
    ),
    Example(
        "where it is switched off",
        {"training": [('if guidance["cfg_text_scale"] > 1.0:', 'if «guidance["cfg_text_scale"] <= 1.0»:')]},
    ),
    Example(
        "not looked at",
        {
            "training": [
                (_WHERE, "velocity = guided"),
                ("            low, high = guidance", "            «low», high = guidance"),
            ]
        },
    ),
    Example(
        "selected the wrong way round",
        {
            "training": [
                (_WHERE, "velocity = «torch.where(((sigma > low) & (sigma <= high)).view(-1, 1, 1), velocity, guided)»")
            ]
        },
    ),
)
PASSING = (
    Example("as the pipeline does"),
    Example("with the facts recorded", {"spec": _SPEC}),
    Example(
        "asked for the outside",
        {
            "training": [
                (_WHERE, "velocity = torch.where(((sigma <= low) | (sigma > high)).view(-1, 1, 1), velocity, guided)")
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
