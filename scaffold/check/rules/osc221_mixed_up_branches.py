"""Guidance is computed with the two branches exchanged.

Guidance goes from the branch without the prompt towards the one with it, and beyond. Exchanged, it goes away from the
prompt: the recomputed velocity is another one than the rollout's by 2 (s - 1) times the difference of the branches,
and the policy is pushed away from what was asked for.

    velocity = conditional + scale * (unconditional - conditional)

Instead: ``unconditional + scale * (conditional - unconditional)``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.guidance_formula import METHOD, Formula
from scaffold.check.model.keys import Keys
from scaffold.check.model.package import Package
from scaffold.check.model.sde import sampling_argument, sampling_calls
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC221"
NAME = "mixed-up-branches"
SEVERITY = "error"
CHECKLIST = ("T5",)
APPLIES = Applies(objective="policy_gradient")
HELP = "compute without + scale * (with - without), where 'with' is the branch that has the prompt"


def check(package: Package) -> Hits:
    """Work out with which signs the branches go into the velocity; only where they certainly are the wrong ones."""
    side = side_of(package, "training")
    for adapter in side.adapters:
        method = adapter.method(METHOD)
        if method is None or method.is_abstract:
            continue
        formula = Formula(side, method)
        for function, call in sampling_calls(side):
            velocity = sampling_argument(call, "model_output")
            for binding in reaching(function, velocity) if isinstance(velocity, ast.Name) else ():
                alone = formula.mix(function, binding.value) if binding.value is not None else None
                if alone is not None and binding.value is not None and alone.negative and not alone.positive:
                    text = "the velocity comes from the branch without the prompt alone"
                    yield Hit(function.file, binding.value, text)
            mix = formula.mix(function, velocity) if velocity is not None else None
            if velocity is None or mix is None:
                continue
            if mix.both and mix.positive < 0 < mix.negative and mix.function is not None and mix.node is not None:
                yield Hit(
                    mix.function.file, mix.node, "this guides away from the prompt: the two branches are exchanged"
                )
            elif not mix.positive and mix.negative and not isinstance(velocity, ast.Name):
                yield Hit(function.file, velocity, "the velocity comes from the branch without the prompt alone")
        inputs = package.model_inputs(adapter)
        yield from _same(adapter)
        if inputs is not None and inputs[0] is not None and inputs[1] is not None:
            yield from _exchanged(inputs[0], inputs[1])


def _same(adapter: ClassModel) -> Hits:
    """Look for one dictionary in both places, or two with the same values."""
    method = adapter.method("prepare_model_inputs")
    for statement in method.returns if method is not None else ():
        value = statement.value
        if method is None or not isinstance(value, ast.Tuple) or len(value.elts) != 2:
            continue
        objects = [follow(method.file, item) for item in value.elts]
        if objects[0] is objects[1] and isinstance(objects[0], (ast.Dict, ast.Call)):
            text = "both branches are one dictionary: what is written into one, the other has too"
            yield Hit(method.file, value.elts[1], text)
            continue
        first, second = (_written(method, item) for item in value.elts)
        if first is not None and first == second:
            yield Hit(method.file, value.elts[1], "both branches get the same inputs, so that there is no guidance")


def _written(method: FunctionModel, value: ast.expr) -> str | None:
    """Return what a dictionary is made of, copies taken for the original; None for one that is changed later."""
    for _ in range(6):
        if isinstance(value, ast.Name) and _changed(method, value.id):
            return None
        value = follow(method.file, value, 1)
        copied = _copied(method, value)
        if copied is None and not isinstance(value, ast.Name):
            break
        if copied is None and follow(method.file, value, 1) is value:
            break
        value = copied or value
    return ast.dump(value) if isinstance(value, (ast.Dict, ast.Name, ast.Call)) else None


def _copied(method: FunctionModel, value: ast.expr) -> ast.expr | None:
    """Return what ``dict(x)``, ``x.copy()``, ``copy.copy(x)`` or ``{**x}`` copies."""
    if isinstance(value, ast.Dict):
        return value.values[0] if value.keys == [None] else None
    if not isinstance(value, ast.Call):
        return None
    if method.file.qualified(value.func) in ("dict", "copy.copy", "copy.deepcopy"):
        return value.args[0] if len(value.args) == 1 and not value.keywords else None
    plain = isinstance(value.func, ast.Attribute) and value.func.attr == "copy" and not value.args
    return value.func.value if plain and isinstance(value.func, ast.Attribute) else None


def _changed(method: FunctionModel, name: str) -> bool:
    """Whether keys of a dictionary are set or taken out after it was made."""
    index = method.file.index
    for target in index.nodes(ast.Subscript, method.node):
        if isinstance(target.value, ast.Name) and target.value.id == name and not isinstance(target.ctx, ast.Load):
            return True
    owners = [call.func for call in method.calls if isinstance(call.func, ast.Attribute)]
    changing = ("update", "pop", "popitem", "setdefault", "clear")
    return any(isinstance(o.value, ast.Name) and o.value.id == name and o.attr in changing for o in owners) or any(
        isinstance(item.target, ast.Name) and item.target.id == name for item in index.nodes(ast.AugAssign, method.node)
    )


def _exchanged(positive: Keys, negative: Keys) -> Hits:
    """Look for prompts that only the second of the two dictionaries has."""
    empty = [key for key, value in positive.values.items() if _is_none(value)]
    for key in empty:
        value = negative.values.get(key)
        if value is not None and not _is_none(value) and "text" + key != key and _is_text(key):
            file, node = positive.nodes[key]
            yield Hit(
                file, node, f"{key!r} is None in the first dictionary and given in the second: they are exchanged"
            )


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_text(key: str) -> bool:
    return any(word in key for word in ("text", "prompt", "encoder", "caption", "token"))


_GUIDED = 'guided = unconditional + guidance["cfg_text_scale"] * (velocity - unconditional)'
_RETURN = 'return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}'
_HELPER = "\n\ndef guide(conditional, unconditional, scale):\n    return {}\n"
_BEFORE = "\n\n@DiffusionModelBase.register("
_PAIR = (
    '        conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}\n'
    '        return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}\n'
)
_BRANCHES = """        branches = {{
            "{}": {{**shared, "text_token_ids": ids, "text_attention_mask": mask}},
            "{}": {{**shared, «"text_token_ids"»: None, «"text_attention_mask"»: None}},
        }}
        return tuple(branches[name] for name in sorted(branches))
"""
_ALIASED = """        conditional = unconditional = shared
        conditional.update(text_token_ids=ids, text_attention_mask=mask)
        unconditional.update(text_token_ids=None, text_attention_mask=None)
        return conditional, «unconditional»
"""
FAILING = (
    Example(
        "sorted by name",
        {"training": [(_PAIR, _BRANCHES.format("with_text", "empty"))]},
    ),
    Example("one dictionary under two names", {"training": [(_PAIR, _ALIASED)]}),
    Example("the same inputs twice", {"training": [(_RETURN, "return conditional, «conditional»")]}),
    Example("a copy", {"training": [(_RETURN, "return conditional, «dict(conditional)»")]}),
    Example(
        "a copy with a name",
        {"training": [(_RETURN, "negative = {**conditional}\n        return conditional, «negative»")]},
    ),
    Example(
        "the branch without the prompt for all",
        {
            "training": [
                (_GUIDED, "guided = unconditional"),
                (
                    "velocity = torch.where(((sigma > low) & (sigma <= high)).view(-1, 1, 1), guided, velocity)",
                    "velocity = «unconditional»",
                ),
            ]
        },
        also=("OSC228",),
    ),
    Example(
        "exchanged",
        {"training": [(_GUIDED, 'guided = «velocity + guidance["cfg_text_scale"] * (unconditional - velocity)»')]},
    ),
    Example(
        "the difference the wrong way round",
        {"training": [(_GUIDED, 'guided = «unconditional - guidance["cfg_text_scale"] * (velocity - unconditional)»')]},
    ),
    Example(
        "in a helper, called with exchanged arguments",
        {
            "training": [
                (_BEFORE, _HELPER.format("«unconditional + scale * (conditional - unconditional)»") + _BEFORE),
                (_GUIDED, 'guided = guide(unconditional, velocity, guidance["cfg_text_scale"])'),
            ]
        },
    ),
    Example(
        "lerp", {"training": [(_GUIDED, 'guided = «torch.lerp(velocity, unconditional, guidance["cfg_text_scale"])»')]}
    ),
    Example(
        "the dictionaries exchanged",
        {
            "training": [
                (_RETURN, 'return {**shared, «"text_token_ids"»: None, «"text_attention_mask"»: None}, conditional')
            ]
        },
    ),
    Example(
        "of diffusers",
        {
            "verl_omni/pipelines/wheel_flow_grpo/diffusers_training_adapter.py": [
                (
                    "velocity = negative + model_config.pipeline.true_cfg_scale * (positive - negative)",
                    "velocity = «positive + model_config.pipeline.true_cfg_scale * (negative - positive)»",
                )
            ]
        },
        base="diffusers",
    ),
)
PASSING = (
    Example(
        "the branches in the order of their names",
        {"training": [(_PAIR, _BRANCHES.format("conditional", "unconditional").replace("«", "").replace("»", ""))]},
    ),
    Example(
        "a copy that is changed",
        {
            "training": [
                (
                    _RETURN,
                    'negative = conditional.copy()\n        negative["text_token_ids"] = None\n'
                    '        negative["text_attention_mask"] = None\n        return conditional, negative',
                )
            ]
        },
    ),
    Example("towards the prompt"),
    Example(
        "another form",
        {
            "training": [
                (
                    _GUIDED,
                    'scale = guidance["cfg_text_scale"]\n'
                    "            guided = velocity + (scale - 1.0) * (velocity - unconditional)",
                )
            ]
        },
    ),
    Example(
        "in a helper",
        {
            "training": [
                (_BEFORE, _HELPER.format("unconditional + scale * (conditional - unconditional)") + _BEFORE),
                (_GUIDED, 'guided = guide(velocity, unconditional, guidance["cfg_text_scale"])'),
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
