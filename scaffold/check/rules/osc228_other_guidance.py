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
from scaffold.check.model.dataflow import unpacked_at
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.guidance_differences import differences
from scaffold.check.model.guidance_formula import METHOD, SCALE, Formula
from scaffold.check.model.guidance_gates import (
    ENDS,
    gate_comparisons,
    is_inverted,
    may_mix,
    plain_scale,
    selected_wrongly,
    tests_of_mode,
    tests_turned_round,
)
from scaffold.check.model.guidance_renorm import other_renorms
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.sde import sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.model.worked_guidance import recorded_guidance
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC228"
NAME = "other-guidance"
SEVERITY = "error"
CHECKLIST = ("T5",)
APPLIES = Applies(objective="policy_gradient")
HELP = "guide as the rollout does: without + scale * (with - without), where low < sigma <= high"
_GUIDED = 'guided = unconditional + guidance["cfg_text_scale"] * (velocity - unconditional)'
_WHERE = "velocity = torch.where(((sigma > low) & (sigma <= high)).view(-1, 1, 1), guided, velocity)"
_RENORM = (
    "\n            target = torch.linalg.vector_norm(velocity, dim=-1, keepdim=True)"
    "\n            norm = torch.linalg.vector_norm(guided, dim=-1, keepdim=True)"
    "\n            guided = guided * {}"
)
_ONE_NORM = _RENORM.format("(target / (norm + 1e-8)).clamp(min=0.0, max=1.0)").replace(
    "torch.linalg.vector_norm(guided, dim=-1, keepdim=True)", "«torch.linalg.vector_norm(guided)»"
)
_RENORMS = 'renorms = ["global"]\nrenorm_type = "cfg_renorm_type"\nepsilon = 1e-08\n'
_SPEC = """[upstream]
version = "0.27.0rc1"

[cfg]
interval_rule = "lo < sigma <= hi"
formula = "u+s(c-u)"
text_scale = "cfg_text_scale"
"""


_FORMULAS = {"u+s(c-u)": (SCALE, 1 - SCALE), "c+s(c-u)": (1 + SCALE, -SCALE)}


def check(package: Package) -> Hits:
    """Look at the weights of the branches, at the gate, and at what decides whether there is guidance."""
    side = side_of(package, "training")
    found = list(_read(package, side))
    yield from found
    facts = recorded_guidance(package) if not found else None
    for adapter in side.adapters if facts is not None else ():
        if adapter.file in package.files and facts is not None:
            for function, node, text, help in differences(package, adapter, facts):
                yield Hit(function.file, node, text, help)


def _read(package: Package, side: Side) -> Hits:
    for adapter in side.adapters:
        method = adapter.method(METHOD)
        if method is None or method.is_abstract:
            continue
        formula = Formula(side, method)
        for function in side.functions if any(True for _ in sampling_calls(side)) else ():
            for node in function.file.index.nodes(ast.BinOp, function.node):
                if function.file in package.files and may_mix(function, node):
                    yield from _weights(package, formula, function, node)
        for test in tests_of_mode(method, formula.negative):
            text = "old and new log-probs are computed in different modes, and only one of them is guided"
            yield Hit(method.file, test, text, "guide in both modes")
        for test in tests_turned_round(method, formula.negative):
            yield Hit(method.file, test, "the branch without the prompt runs where no guidance is asked for")
    if not any(True for _ in sampling_calls(side)):
        return
    for function in side.functions:
        if function.file in package.files:
            yield from _gates(side, function, package)
    yield from (Hit(function.file, node, text) for function, node, text in other_renorms(package, side))


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
                said = ENDS.get(name.id.rstrip("_"))
                if said is not None and said != ends[name.id]:
                    yield Hit(function.file, name, f"{name.id} is the {ends[name.id]} end of the interval")
    if not ends:
        return
    rule = (recorded(package, "cfg", "interval_rule") or "").replace(" ", "")
    strict = {"low": "lo<sigma" in rule, "high": "sigma<hi" in rule} if rule else None
    open_ends: list[ast.AST] = []
    for node in index.nodes(ast.Compare, function.node):
        for end, op, where in gate_comparisons(node, ends):
            wrong_way = isinstance(op, (ast.Lt, ast.LtE)) if end == "low" else isinstance(op, (ast.Gt, ast.GtE))
            if wrong_way and not is_inverted(function, node):
                yield Hit(function.file, where, f"the noise level is compared with the {end} end the wrong way round")
            elif strict is not None and isinstance(op, (ast.Lt, ast.Gt)) != strict[end] and not wrong_way:
                open_ends.append(where)
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
    if open_ends:
        above = index.parent(open_ends[0])
        joint = len(open_ends) > 1 and above is not None and index.contains(above, open_ends[1])
        text = f"the rollout's pipeline guides where {recorded(package, 'cfg', 'interval_rule')}"
        yield Hit(function.file, above if joint and above is not None else open_ends[0], text)
    if not any(name.id in ends and isinstance(name.ctx, ast.Load) for name in index.nodes(ast.Name, function.node)):
        first = next(name for name in index.nodes(ast.Name, function.node) if name.id in ends)
        yield Hit(function.file, first, "the interval is read, and no noise level is compared with it")
    for call in function.calls:
        if function.file.qualified(call.func) == "torch.where" and len(call.args) == 3:
            yield from (Hit(function.file, call, text) for text in selected_wrongly(side, function, call, ends))


FAILING = (
    Example(
        "in training mode alone",
        {
            "training": [
                (
                    'if guidance["cfg_text_scale"] > 1.0:',
                    'if «guidance["cfg_text_scale"] > 1.0 and module.training»:',
                )
            ]
        },
    ),
    Example("one norm for the batch", {"spec": _SPEC + _RENORMS, "training": [(_GUIDED, _GUIDED + _ONE_NORM)]}),
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
            "training": [("((sigma > low) & (sigma <= high)).view", "(«(sigma >= low) & (sigma < high)»).view")],
            "spec": _SPEC,
        },
    ),
    Example(
        "a factor above one",
        {
            "training": [(_GUIDED, _GUIDED + _RENORM.format("«(target / (norm + 1e-8)).clamp(min=0.0)»"))],
            "spec": _SPEC + _RENORMS,
        },
    ),
    Example(
        "another number against division by zero",
        {
            "training": [(_GUIDED, _GUIDED + _RENORM.format("(target / (norm + «1e-3»)).clamp(0.0, 1.0)"))],
            "spec": _SPEC + _RENORMS,
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
    Example(
        "a factor as the pipeline's",
        {
            "training": [(_GUIDED, _GUIDED + _RENORM.format("torch.clamp(target / (norm + 1e-8), min=0.0, max=1.0)"))],
            "spec": _SPEC + _RENORMS,
        },
    ),
    Example(
        "limited in two steps",
        {
            "training": [
                (_GUIDED, _GUIDED + _RENORM.format("(target / (norm + 1e-8)).clamp_min(0.0).clamp_max(1.0)")),
            ],
            "spec": _SPEC + _RENORMS,
        },
    ),
    Example("as the pipeline does"),
    Example("with the facts recorded", {"spec": _SPEC}),
    Example(
        "limited in a statement of its own",
        {
            "training": [
                (
                    _GUIDED,
                    _GUIDED
                    + _RENORM.format("factor.clamp(max=1.0)").replace(
                        "            guided = guided *",
                        "            factor = (target / (norm + 1e-8)).clamp(min=0.0)\n            guided = guided *",
                    ),
                )
            ],
            "spec": _SPEC + _RENORMS,
        },
    ),
    Example(
        "limited by minimum",
        {
            "training": [
                (
                    _GUIDED,
                    _GUIDED
                    + _RENORM.format("torch.minimum((target / (norm + 1e-8)).clamp_min(0.0), torch.ones_like(norm))"),
                )
            ],
            "spec": _SPEC + _RENORMS,
        },
    ),
    Example(
        "a renormalisation of another kind",
        {
            "training": [(_GUIDED, _GUIDED + _RENORM.format("(target / (norm + 1e-8)).clamp(min=0.0)"))],
            "spec": _SPEC + _RENORMS.replace('"global"', '"rescale"').replace("1e-08", '"unknown"'),
        },
    ),
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
