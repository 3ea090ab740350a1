"""The branch without the prompt gets a text.

The pipeline runs its unconditional branch on no text at all. Ids of padding, of a blank or of the prompt itself are
text to the module: they get embeddings and positions, the unconditional velocity is another one, and guidance moves the
velocity away from something that the rollout never computed.

    negative = {**shared, "text_token_ids": torch.zeros_like(ids), "text_attention_mask": mask}

Instead: hand ``None`` to the module in that branch, as its ``forward`` takes it for no text.
"""

from __future__ import annotations

import ast
from typing import Any

from scaffold.check.example import Example
from scaffold.check.model.arrays import Array
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.worked_inputs import PROMPTS, WorkedInputs, worked_inputs
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC232"
NAME = "text-without-prompt"
SEVERITY = "error"
CHECKLIST = ("T4",)
APPLIES = Applies(non_diffusers=True, objective="policy_gradient")
HELP = "give the module None for the text of that branch, as the rollout's pipeline runs it without one"


def check(package: Package) -> Hits:
    """Work the inputs of both branches out, and look for a text in the one without."""
    if recorded(package, "prompt", "negative") != "empty":
        return
    for adapter in package.training_adapters:
        inputs = worked_inputs(package, adapter) if adapter.file in package.files else None
        if inputs is None or inputs.negative is None:
            continue
        keys = [key for key, value in inputs.positive.items() if _is_text(value)]
        if len(keys) != 1:
            continue
        given = inputs.negative.get(keys[0])
        if isinstance(given, Array) and given.ndim == 2 and given.shape[1] and not _hidden(inputs.negative, given):
            function, place = _place(package, inputs, keys[0])
            what = "the prompt" if _is_text(given) else f"{given.shape[1]} tokens of text"
            yield Hit(function.file, place, f"the branch without the prompt gets {what}, in the rollout no text")


def _is_text(value: Any) -> bool:
    """Whether a value is the prompts, one row each."""
    if not isinstance(value, Array) or value.ndim != 2 or value.shape[0] != len(PROMPTS):
        return False
    rows = [[item for item in row.values if item in PROMPTS[at]] for at, row in enumerate(value.rows())]
    return rows == [list(prompt) for prompt in PROMPTS]


def _hidden(inputs: dict[str, Any], given: Array) -> bool:
    """Whether a mask beside the text hides all of it, or may."""
    masks = [value for key, value in inputs.items() if "mask" in key]
    plain = [mask for mask in masks if isinstance(mask, Array) and mask.shape == given.shape]
    unsure = [mask for mask in masks if mask is not None and mask not in plain]
    return bool(unsure) or any(not any(mask.values) for mask in plain)


def _place(package: Package, inputs: WorkedInputs, key: str) -> tuple[FunctionModel, ast.AST]:
    """Return where the key is given its value for the second time, else where the inputs are returned."""
    for function in [f for f in inputs.entered if f.file in package.files]:
        index, found = function.file.index, []
        for table in index.nodes(ast.Dict, function.node):
            pairs = zip(table.keys, table.values, strict=True)
            found += [value for name, value in pairs if isinstance(name, ast.Constant) and name.value == key]
        found += [item.value for call in function.calls for item in call.keywords if item.arg == key]
        for statement in index.nodes(ast.Assign, function.node):
            for target in statement.targets:
                if isinstance(target, ast.Subscript) and function.file.value(target.slice) == key:
                    found.append(statement.value)
        if len(found) > 1:
            return function, max(found, key=lambda node: (node.lineno, node.col_offset))
    returned = inputs.method.returns[-1] if inputs.method.returns else None
    if returned is not None and isinstance(returned.value, ast.Tuple) and len(returned.value.elts) == 2:
        return inputs.method, returned.value.elts[1]
    return inputs.method, returned or inputs.method.node


_SPEC = """[upstream]
version = "0.27.0rc1"

[latents]
downsample = 8
patch = 2

[prompt]
column = "prompt_token_ids"
negative = "empty"
"""
_NEGATIVE = 'return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}'


def _given(new: str) -> dict[str, list[tuple[str, str]] | str]:
    """Return the changes that give the branch something else."""
    return {"training": [(_NEGATIVE, new)], "spec": _SPEC}


FAILING = (
    Example(
        "padding",
        _given(
            'return conditional, {**shared, "text_token_ids": «torch.zeros_like(ids)», "text_attention_mask": mask}'
        ),
    ),
    Example(
        "one token",
        _given('return conditional, {**shared, "text_token_ids": «ids[:, :1]», "text_attention_mask": None}'),
    ),
    Example(
        "the prompt without its mask",
        _given('return conditional, {**shared, "text_token_ids": «ids», "text_attention_mask": None}'),
        also=("OSC221", "OSC117"),
    ),
    Example("the prompt itself", _given("return conditional, «dict(conditional)»"), also=("OSC221",)),
    Example(
        "begin and end",
        _given(
            "negative = dict(conditional)\n"
            "        negative['text_token_ids'] = «torch.full((ids.shape[0], 2), 7)»\n"
            "        negative['text_attention_mask'] = None\n"
            "        return conditional, negative"
        ),
    ),
)
PASSING = (
    Example("no text", {"spec": _SPEC}),
    Example("nothing is recorded", {"training": [(_NEGATIVE, _NEGATIVE.replace("None", "ids", 1))]}, also=("OSC221",)),
    Example(
        "all of it hidden",
        _given('return conditional, {**shared, "text_token_ids": ids, "text_attention_mask": torch.zeros_like(mask)}'),
        also=("OSC221",),
    ),
    Example(
        "nothing left of it",
        _given('return conditional, {**shared, "text_token_ids": ids[:, :0], "text_attention_mask": None}'),
    ),
    Example("a text is recorded", {"spec": _SPEC.replace('"empty"', '"text"')}),
    Example("of diffusers", base="diffusers"),
)
