"""Attention over the text is not causal where the model's is, or is causal where the model's is not.

The rollout encodes the text as the language model does, each token seeing those before it; image tokens see everything.
Without ``is_causal`` a token also sees what comes behind it, and padding; with it everywhere, latents see only those in
front of them. Both train, with another velocity than the rollout's.

    text = F.scaled_dot_product_attention(q_text, k_text, v_text)          # scaffold.toml: text_attention = "causal"

Instead: ``is_causal=True`` for text among text, and for nothing else.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import argument, bind, resolve
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded, recorded_list
from scaffold.check.model.values import UNKNOWN
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC145"
NAME = "text-sees-ahead"
SEVERITY = "error"
CHECKLIST = ("M8", "pitfall 8")
APPLIES = Applies(non_diffusers=True)
HELP = "give is_causal=True to the attention of text among text, and to no other"
SDPA = "torch.nn.functional.scaled_dot_product_attention"
# What makes masks in which a token sees only those before it.
_TRIANGLES = (
    "tril",
    "triu",
    "tril_",
    "triu_",
    "tril_indices",
    "triu_indices",
    "create_block_mask",
    "causal_lower_right",
)
# A call of attention with what it says about causality: a value, or `UNKNOWN`.
Given = tuple[FunctionModel, ast.Call, object]


def check(package: Package) -> Hits:
    """Collect what every attention call is given as ``is_causal``, through the helpers that hand it on."""
    kind = recorded(package, "architecture", "text_attention")
    functions = [f for f in package.forward_functions if f.file in package.files]
    ends = [(f, call) for f in functions for call in f.calls if f.file.qualified(call.func) == SDPA]
    if kind is None or not ends or any(_makes_triangles(function) for function in functions):
        return
    given = [one for function, call in ends for one in _given(functions, function, call, 0)]
    if not given or any(value is UNKNOWN for _, _, value in given):
        return
    causal = [(function, call) for function, call, value in given if value]
    if kind == "causal" and not causal:
        function, call = _of_text(given) or (given[0][0], given[0][1])
        yield Hit(function.file, call, "no attention here is causal, and the model's text attends causally")
    elif kind == "full" and causal:
        for function, call in causal:
            yield Hit(function.file, call, "this attention is causal, and the model's text attends to all of it")
    elif kind == "causal" and len(given) > 1 and _latents_apart(package):
        # Queries that are cut out of a stream while keys are not, or that are the latents, see everything.
        full = [one for one in causal if _sees_all(*one)]
        for function, call in causal if len(causal) == len(given) else full:
            if _sees_all(function, call) or (len(causal) == len(given) and call is not causal[0][1]):
                text = "this attention is causal too, and image tokens attend to everything"
                yield Hit(function.file, call, text)


def _makes_triangles(function: FunctionModel) -> bool:
    """Whether a function makes a mask of its own, in which case nothing is judged."""
    for call in function.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in _TRIANGLES:
            return True
    index = function.file.index
    return any(
        isinstance(op, (ast.LtE, ast.GtE, ast.Lt, ast.Gt)) and "None" in ast.unparse(node)
        for node in index.nodes(ast.Compare, function.node)
        for op in node.ops
    )


def _given(functions: list[FunctionModel], function: FunctionModel, call: ast.Call, depth: int) -> list[Given]:
    """Return the calls at which it is settled whether attention is causal."""
    value = argument(call, "is_causal", 5)
    if any(item.arg is None for item in call.keywords) or any(isinstance(item, ast.Starred) for item in call.args):
        return [(function, call, UNKNOWN)]
    return _settled(functions, function, call, value, depth)


def _settled(
    functions: list[FunctionModel], function: FunctionModel, call: ast.Call, value: ast.expr | None, depth: int
) -> list[Given]:
    known = False if value is None else function.file.value(value)
    if known is not UNKNOWN or depth > 3:
        # Beside calls that are asked, one with a mask is another branch of the same.
        return [] if value is None and depth == 0 and _masked(function, call) else [(function, call, known)]
    if isinstance(value, ast.Name) and value.id in function.parameters:
        found: list[Given] = []
        for caller in functions:
            for use in caller.calls:
                if resolve(caller.file, use, caller.cls) != function:
                    continue
                handed = bind(use, function).get(value.id) or function.default(value.id)
                own = handed is function.default(value.id)
                if own and handed is not None:
                    found.append((caller, use, function.file.value(handed)))
                else:
                    found += _settled(functions, caller, use, handed, depth + 1)
        return found
    return [(function, call, UNKNOWN)]


def _masked(function: FunctionModel, call: ast.Call) -> bool:
    mask = argument(call, "attn_mask", 3)
    return mask is not None and function.file.value(mask) is not None


def _of_text(given: list[Given]) -> tuple[FunctionModel, ast.Call] | None:
    """Return the call whose queries are called after the text."""
    for function, call, _ in given:
        if call.args and "text" in ast.unparse(call.args[0]):
            return function, call
    return None


def _latents_apart(package: Package) -> bool:
    return "latents" in (recorded_list(package, "architecture", "sequence") or [])


def _sees_all(function: FunctionModel, call: ast.Call) -> bool:
    """Whether the queries are certainly others than the keys: a part of a stream, against whole keys."""
    if len(call.args) < 2:
        return False
    query, key = call.args[:2]
    cut = isinstance(query, ast.Subscript) and isinstance(key, ast.Name)
    latents = isinstance(query, ast.Name) and ("latent" in query.id or "image" in query.id)
    return cut or (latents and isinstance(key, ast.Name) and query.id.partition("_")[2] != key.id.partition("_")[2])  # type: ignore[attr-defined]


_SPEC = """[architecture]
text_attention = "{}"
sequence = ["text", "start_of_image", "latents", "end_of_image"]
"""
_ATTEND = (
    "        mask = None if key_mask is None else key_mask[:, None, None, :]\n"
    "        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)\n"
    "        length = context.shape[1]\n"
)
_OWN = (
    "        length = context.shape[1]\n"
    "        mask = None if key_mask is None else key_mask[:, None, None, :]\n"
    "        text = {}.transpose(1, 2).flatten(2)\n"
    "        image = {}.transpose(1, 2).flatten(2)\n"
    "        out = torch.cat((text, image), dim=1)\n"
)
_TEXT = "attend(q[:, :, :length], k[:, :, :length], v[:, :, :length]{})"
_IMAGE = "attend(q[:, :, length:], k, v{})"
_HELPER = """def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class ToyAttention("""


def _example(title: str, text: str, image: str, kind: str = "causal", also: tuple[str, ...] = ()) -> Example:
    changes = [(_ATTEND, _OWN.format(text, image)), ("class ToyAttention(", _HELPER)]
    return Example(title, {"model": changes, "spec": _SPEC.format(kind)}, also=also)


FAILING = (
    _example("not said", f"«{_TEXT.format('')}»", _IMAGE.format(", mask"), also=("OSC117",)),
    _example("said to be full", f"«{_TEXT.format(', None, False)')[:-1]}»", _IMAGE.format(", mask"), also=("OSC117",)),
    _example("hidden padding, and not causal", f"«{_TEXT.format(', mask[..., :length]')}»", _IMAGE.format(", mask")),
    _example("causal everywhere", _TEXT.format(", causal=True"), f"«{_IMAGE.format(', mask, causal=True')}»"),
    _example("full text made causal", f"«{_TEXT.format(', causal=True')}»", _IMAGE.format(", mask"), kind="full"),
)
PASSING = (
    _example("causal among text", _TEXT.format(", causal=True"), _IMAGE.format(", mask")),
    _example("full where the model's is", _TEXT.format(", mask[..., :length]"), _IMAGE.format(", mask"), kind="full"),
    Example("nothing is recorded"),
    Example(
        "with a mask of its own",
        {
            "model": [
                (
                    _ATTEND,
                    _ATTEND.replace(
                        "        out =",
                        "        ones = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()\n"
                        "        mask = ones if mask is None else mask & ones\n        out =",
                    ),
                )
            ],
            "spec": _SPEC.format("causal"),
        },
    ),
)
