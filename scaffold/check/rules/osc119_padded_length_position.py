"""Image tokens take the padded length of the text as their position.

In a padded micro-batch that is the length of the longest prompt. The rollout runs every prompt by itself and puts the
image at the prompt's own length: for shorter prompts the training velocity was off by 0.13 and the log-prob by 1.6e-2,
in float32, with nothing to see in the loss.

    position = torch.full((n,), text_ids.shape[1])

Instead: the sample's own length, ``mask.sum(dim=1, keepdim=True)``, one position for each row of the batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import argument
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.padded_lengths import is_longest, is_padded_length, is_text, padded_lengths
from scaffold.check.model.streams import ABOUT
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC119"
NAME = "padded-length-position"
SEVERITY = "error"
CHECKLIST = ("pitfall 1",)
APPLIES = Applies(non_diffusers=True)
HELP = "take each sample's own text length: mask.sum(dim=1, keepdim=True)"
_POSITION = ("pos", "rope", "rotary")


def check(package: Package) -> Hits:
    """Follow the padded length to positions, where the forward code has a mask that knows the real lengths."""
    module = package.training_module
    forward = module.method("forward") if module is not None else None
    if forward is None or forward.file not in package.files or not _has_mask(forward):
        return
    functions = [f for f in package.forward_functions if f.file in package.files]
    lengths = padded_lengths(functions)
    for function in functions:
        pairs = list(function.assignments)
        for name, node in _filled(function, lengths[function]):
            if name is None or _reaches_position(name, pairs):
                closure = _closure(name, pairs, lengths[function]) if name is not None else [node]
                if not any(_counts_mask(value) for value in closure) and not _from_mask(name, pairs):
                    # Where the longest is asked for, that is the mistake; the padded length beside it is for no mask.
                    longest = next((call for call in function.calls if is_longest(call)), None)
                    if longest is not None:
                        text = "positions of image tokens come from the longest text of the batch"
                        yield Hit(function.file, longest, text)
                        break
                    yield Hit(function.file, node, "positions of image tokens come from the padded length of the text")


def _has_mask(forward: FunctionModel) -> bool:
    if any("mask" in name for name in forward.parameters):
        return True
    texts = (n.value for n in forward.nodes(ast.Constant) if isinstance(n, ast.Constant))
    return forward.kwarg is not None and any(isinstance(text, str) and text.endswith("mask") for text in texts)


def _filled(function: FunctionModel, lengths: set[str]) -> Iterator[tuple[str | None, ast.expr]]:
    """Yield where the padded length becomes a value, with the name that is assigned."""
    for name, value in function.assignments:
        for node in ast.walk(value):
            if isinstance(node, ast.Call):
                kind = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                start = None
                if kind in ("full", "new_full", "full_like"):
                    start = argument(node, "fill_value", 1)
                elif kind == "arange" and len(node.args) > 1:
                    start = node.args[0]
                if start is not None and is_padded_length(start, lengths):
                    yield name, node
            elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
                sides = (node.left, node.right)
                if any(is_padded_length(side, lengths) for side in sides) and any(_is_range(side) for side in sides):
                    yield name, node
    for node in function.nodes(ast.Assign):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Subscript)
            and is_padded_length(node.value, lengths)
        ):
            base = node.targets[0].value
            if isinstance(base, ast.Name):
                yield base.id, node.value


def _is_range(node: ast.expr) -> bool:
    """Whether an expression is a row of positions: ``arange``, ``zeros``, or something named after positions."""
    text = ast.unparse(node)
    return any(word in text for word in ("arange(", "zeros(", "ones(")) or any(
        word in text.lower() for word in _POSITION
    )


def _reaches_position(name: str, pairs: list[tuple[str, ast.expr]]) -> bool:
    """Whether a name, or something made of it, is called a position or given to a rotary table."""
    names = {name}
    for _ in range(6):
        for target, value in pairs:
            if any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(value)):
                names.add(target)
    return any(word in one.lower() for one in names for word in _POSITION)


def _closure(name: str, pairs: list[tuple[str, ast.expr]], lengths: set[str]) -> list[ast.expr]:
    """Return every value that may be in what a name goes into, and in the name itself, with what those are made of."""
    names = {name}
    for _ in range(6):
        for target, value in pairs:
            if any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(value)):
                names.add(target)
    found = [value for target, value in pairs if target in names]
    for _ in range(2):
        # The text itself may have been cut to the longest prompt: that says nothing of each sample.
        inside = {n.id for value in found for n in ast.walk(value) if isinstance(n, ast.Name) and not is_text(n)}
        found += [value for target, value in pairs if target in inside - lengths and value not in found]
    return found


def _from_mask(name: str | None, pairs: list[tuple[str, ast.expr]]) -> bool:
    """Whether the same name is also made of the mask's values, in whatever way."""
    for target, value in pairs:
        if target == name and not any(is_longest(node) for node in ast.walk(value)):
            sizes = {
                id(node.value) for node in ast.walk(value) if isinstance(node, ast.Attribute) and node.attr in ABOUT
            }
            for node in ast.walk(value):
                word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
                if "mask" in word.lower() and id(node) not in sizes:
                    return True
    return False


def _counts_mask(value: ast.expr) -> bool:
    """Whether a value takes lengths of samples from a mask."""
    longest = {id(inner) for node in ast.walk(value) if is_longest(node) for inner in ast.walk(node)}
    for node in ast.walk(value):
        if (
            isinstance(node, ast.Call)
            and id(node) not in longest
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("sum", "cumsum", "argmin", "argmax")
        ):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)):
            text = (node.id if isinstance(node, ast.Name) else node.attr).lower()
            if text.endswith(("lengths", "lens")):
                return True
    return False


FAILING = (
    Example(
        "a row of the padded length",
        model=(
            "latent_pos_ids)\n",
            (
                "latent_pos_ids)\n        length = text_token_ids.shape[1] if text_token_ids is not None else 0\n        image_positions = «torch.full((batch, latents.shape[1]), length, device=device)»\n        latents = latents + image_positions[..., None]\n"
            ),
        ),
    ),
    Example(
        "counted on from the padded length",
        model=(
            "latent_pos_ids)\n",
            (
                "latent_pos_ids)\n        start = text_token_ids.size(1)\n        position_ids = «torch.arange(latents.shape[1], device=device) + start»\n        latents = latents + position_ids[None, :, None]\n"
            ),
        ),
    ),
    Example(
        "the batch's longest text",
        model=(
            "latent_pos_ids)\n",
            (
                "latent_pos_ids)\n        longest = «text_attention_mask.sum(dim=1).max()»\n        position_ids = torch.arange(latents.shape[1], device=device) + longest\n        latents = latents + position_ids[None, :, None]\n"
            ),
        ),
    ),
)
PASSING = (
    Example(
        "each sample's own length, found in another way",
        model=(
            "latent_pos_ids)\n",
            (
                "latent_pos_ids)\n        first = torch.full((1, 1), text_token_ids.shape[1], device=device)\n        if text_attention_mask is not None:\n            first = torch.stack([row.nonzero()[-1] + 1 for row in text_attention_mask])\n        position_ids = first.expand(batch, latents.shape[1])\n        latents = latents + position_ids[..., None]\n"
            ),
        ),
        also="OSC116",
    ),
    Example(
        "each sample's own length",
        model=(
            "latent_pos_ids)\n",
            (
                "latent_pos_ids)\n        own = text_attention_mask.sum(dim=1, keepdim=True)\n        position_ids = own.expand(batch, latents.shape[1])\n        latents = latents + position_ids[..., None]\n"
            ),
        ),
    ),
    Example(
        "the padded length only where nothing is padded",
        model=(
            "latent_pos_ids)\n",
            (
                "latent_pos_ids)\n        first = torch.full((1, 1), text_token_ids.shape[1], device=device)\n        if text_attention_mask is not None:\n            first = text_attention_mask.sum(dim=1, keepdim=True)\n        position_ids = first.expand(batch, latents.shape[1])\n        latents = latents + position_ids[..., None]\n"
            ),
        ),
    ),
)
