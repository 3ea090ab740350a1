"""Image tokens take the padded length of the text as their position.

In a micro-batch every prompt is padded to the longest one. Placed behind the padding, the image of a short prompt is
rotated otherwise than in the rollout, where it stands behind its own text: the velocity is off by 0.13. Any way of
getting it wrong, `verify` measures (``padding-invariance``).

    image_positions = ids.new_full((length,), text_embeds.shape[1])

Instead: take each sample's own length, ``mask.sum(dim=1, keepdim=True)``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import dotted, ending
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC119"
NAME = "padded-length-position"
SEVERITY = "error"
CHECKLIST = ("pitfall 1",)
APPLIES = Applies(non_diffusers=True)
HELP = "take each sample's own text length: mask.sum(dim=1, keepdim=True)"
_TEXT = re.compile(r"text|token|prompt|ids|context|ctx", re.IGNORECASE)
_LATENT = re.compile(r"latent|hidden|image|img|pos", re.IGNORECASE)
_POSITION = re.compile(r"pos|rope|rotary", re.IGNORECASE)
_INDEX = re.compile(r"pos|rope|rotary|index", re.IGNORECASE)
_FILLING = ("full", "new_full", "full_like", "arange")


def check(package: Package) -> Hits:
    """Follow the padded length to positions, where the forward code has a mask that knows the real lengths.

    Of a module that a library loads, the training adapter makes the inputs, and the rollout hands a mask on.
    """
    for function in _functions(package):
        if function.file not in package.files:
            continue
        given = [*function.assignments, *_entries(function)]
        lengths = {name for name, value in given if _is_padded_length(value, set())}
        positions = " ".join(ast.unparse(value) + f" {name}" for name, value in given if _POSITION.search(name))
        named = {*re.findall(r"\w+", positions), *re.findall(r"\.\w+", positions)}
        for name, value in function.assignments:
            at = _filled(value, lengths) if name in named else None
            if at is not None and not _counts(function, name, value):
                yield Hit(function.file, at, "positions of image tokens come from the padded length of the text")


def _functions(package: Package) -> list[FunctionModel]:
    """The code that places tokens, where lengths of prompts differ."""
    module = package.training_module
    forward = module.method("forward") if module is not None else None
    if forward is not None:
        masked = forward.file in package.files and "mask" in ast.unparse(forward.node)
        return package.forward_functions if masked else []
    if not package.loads_module:
        return []
    rollout = side_of(package, "rollout").functions
    masked = any("prompt_embeds_mask" in ast.unparse(function.node) for function in rollout)
    return side_of(package, "training").functions if masked else []


def _entries(function: FunctionModel) -> Iterator[tuple[str, ast.expr]]:
    """Yield entries of dictionaries under names of positions; the inputs of a module are such."""
    for node in function.nodes(ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and _INDEX.search(key.value):
                yield f"{key.value}_positions", value


def _is_padded_length(value: ast.expr, names: set[str]) -> bool:
    """Whether a value is ``text.shape[1]`` or ``text.size(1)``, or a name for it."""
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, ast.IfExp):
        return _is_padded_length(value.body, names)
    if isinstance(value, ast.Call) and dotted(value.func) in ("int", "float") and value.args:
        return _is_padded_length(value.args[0], names)
    of: ast.expr | None = None
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Attribute) and value.value.attr == "shape":
        of = value.value.value if _is_one(value.slice) else None
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "size":
        of = value.func.value if [_is_one(item) for item in value.args] == [True] else None
    text = ast.unparse(of) if of is not None else ""
    return bool(_TEXT.search(text)) and not _LATENT.search(text)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 1


def _filled(value: ast.expr, lengths: set[str]) -> ast.expr | None:
    """Return where the padded length becomes a row of positions."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and ending(node.func) in _FILLING:
            given = [*node.args[:2], *(item.value for item in node.keywords if item.arg == "fill_value")]
            start = given[-1:] if not ending(node.func).endswith("arange") else given[:1] * (len(node.args) > 1)
            if any(_is_padded_length(item, lengths) for item in start):
                return node
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            sides = (node.left, node.right)
            if any(_is_padded_length(side, lengths) for side in sides):
                if any("arange(" in ast.unparse(side) or _POSITION.search(ast.unparse(side)) for side in sides):
                    return node
    return None


def _counts(function: FunctionModel, name: str, value: ast.expr) -> bool:
    """Whether a value, or a name in it, takes lengths of samples from a mask."""
    own = [other for one, other in function.assignments if one == name]
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    parts = [value, *(other for one, other in function.assignments if one in names)]
    if any(re.search(r"mask(?!\.shape|\.size)\b", ast.unparse(part)) for part in own):
        return True
    return any(re.search(r"mask.*\.sum\(|(lens|lengths)\b", ast.unparse(part)) for part in parts)


FAILING = (
    Example(
        "a row of the padded length",
        model=(
            "latent_pos_ids)\n",
            "latent_pos_ids)\n        length = text_token_ids.shape[1] if text_token_ids is not None else 0\n        image_positions = «torch.full((batch, latents.shape[1]), length, device=device)»\n        latents = latents + image_positions[..., None]\n",
        ),
    ),
    Example(
        "counted on from the padded length",
        model=(
            "latent_pos_ids)\n",
            "latent_pos_ids)\n        start = text_token_ids.size(1)\n        position_ids = «torch.arange(latents.shape[1], device=device) + start»\n        latents = latents + position_ids[None, :, None]\n",
        ),
    ),
)
PASSING = (
    Example(
        "each sample's own length",
        model=(
            "latent_pos_ids)\n",
            "latent_pos_ids)\n        own = text_attention_mask.sum(dim=1, keepdim=True)\n        position_ids = own.expand(batch, latents.shape[1])\n        latents = latents + position_ids[..., None]\n",
        ),
    ),
)
