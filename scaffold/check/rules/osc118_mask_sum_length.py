"""A table or padding is as long as a mask has ones.

``mask.sum()`` counts the real tokens of the whole batch, its maximum those of the longest sample. The sequence itself
is as long as the padding made it. A RoPE table or an ``arange`` of the other length is too short, or shifts positions,
as soon as tokens are masked anywhere but at the end.

    positions = torch.arange(int(mask.sum()))

Instead: sizes come from ``ids.shape[1]``; positions of a sample from its own ``mask.sum(dim=1)`` or ``cumsum``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import argument, bind, resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.mask_counts import counted_together, is_count, is_sum, is_total
from scaffold.check.model.package import Package
from scaffold.check.model.streams import derived
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC118"
NAME = "mask-sum-length"
SEVERITY = "error"
CHECKLIST = ("pitfall 14",)
APPLIES = Applies(non_diffusers=True)
HELP = "take sizes from the padded tensor: ids.shape[1]"
_SIZED = {"arange", "zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full", "pad"}
_TABLES = ("rope", "rotary", "freqs")


def check(package: Package) -> Hits:
    """Follow sums of masks in the forward code to what they give a size to."""
    for function in package.forward_functions:
        if function.file not in package.files:
            continue
        for call in function.calls:
            first = argument(call, "dim", 0)
            if is_sum(call, True) and first is not None and function.file.value(first) == 0:
                text = "this counts the samples at each place of the text, not the tokens of each sample"
                yield Hit(function.file, call, text, "sum over the last dimension")
        for total in counted_together(function):
            text = "this counts the tokens of all samples together, and positions are moved by it"
            yield Hit(function.file, total, text, "sum over the last dimension")
        counts = derived(function, (), lambda value, names: is_count(value, names))
        yield from _handed(package, function, counts)
        for name, part in _sizes(function):
            if is_count(part, counts):
                yield Hit(function.file, part, f"the size given to {name}() counts the ones of a mask")
    yield from _cut(package)


def _sizes(function: FunctionModel) -> Iterator[tuple[str, ast.expr]]:
    """Yield what gives a tensor or a table its size, with the name of what is called."""
    for call in function.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in _SIZED and not any(word in name.lower() for word in _TABLES):
            continue
        sizes = [*call.args, *(item.value for item in call.keywords if item.arg in ("size", "end", "pad", "length"))]
        if name in ("full", "new_full", "pad"):
            sizes = sizes[:1] if name != "pad" else sizes[1:2]
        for size in sizes:
            for part in size.elts if isinstance(size, (ast.Tuple, ast.List)) else [size]:
                yield name, part


def _handed(package: Package, function: FunctionModel, counts: set[str]) -> Hits:
    """Look for counts that are given to a function of the package which makes a size of them."""
    for call in function.calls:
        if not any(is_count(value, counts) for value in (*call.args, *(item.value for item in call.keywords))):
            continue
        called = resolve(function.file, call, function.cls)
        target = called.method("__init__") if isinstance(called, ClassModel) else called
        if not isinstance(target, FunctionModel) or target.file not in package.files:
            continue
        sized = {part.id for _, part in _sizes(target) if isinstance(part, ast.Name)}
        for parameter, given in bind(call, target).items():
            if parameter in sized and is_count(given, counts):
                text = f"{parameter}, a size in {ast.unparse(call.func)}(), counts the ones of a mask"
                yield Hit(function.file, given, text)


def _cut(package: Package) -> Hits:
    """Look for sequences that are cut to the ones of the whole batch; cutting to the longest sample is right."""
    adapters = [cls for cls in package.training_adapters if cls.file in package.files]
    functions = [*package.forward_functions, *(m for cls in adapters for m in cls.methods.values())]
    for function in dict.fromkeys(functions):
        if function.file not in package.files:
            continue
        totals = derived(function, (), is_total)
        for node in function.nodes(ast.Slice):
            upper = node.upper if isinstance(node, ast.Slice) else None
            if upper is not None and is_total(upper, totals) and not _of_one_sample(function, upper):
                text = "a sequence is cut to the number of ones in the masks of all samples"
                yield Hit(function.file, upper, text)


def _of_one_sample(function: FunctionModel, value: ast.expr) -> bool:
    """Whether a name in an expression is given by a loop, over the samples perhaps."""
    names = [node for node in ast.walk(value) if isinstance(node, ast.Name)]
    return any(
        binding.kind == "variable" and binding.value is None
        for node in names
        for binding in function.file.scopes.lookup(node.id, node)
    )


_POS = "latents = latents + self.latent_pos_embed(latent_pos_ids)"
_LINE = "            key_mask = F.pad(text_attention_mask, (0, 2 + latents.shape[1]), value=True)\n"
_MOVED = (
    _LINE + "            first = {}.float().reshape(-1, 1)\n"
    "            positions = torch.arange(latents.shape[1], device=device)\n"
    "            latents = latents + (positions - first)[:, :, None]\n"
)
FAILING = (
    Example(
        "all samples together, in positions",
        {"model": [(_LINE, _MOVED.format("«torch.count_nonzero(text_attention_mask)»"))]},
    ),
    Example("the sum of all, in positions", {"model": [(_LINE, _MOVED.format("«text_attention_mask.sum()»"))]}),
    Example(
        "the first sample's, given to a helper",
        {
            "model": [
                (
                    _LINE,
                    _LINE
                    + "            count = text_attention_mask.sum(-1)[0]\n"
                    + "            key_mask = key_mask & places(«count», device)\n",
                ),
                (
                    "class ToyForTraining(",
                    "def places(length, device):\n    return torch.arange(length, device=device)\n\n\nclass ToyForTraining(",
                ),
            ]
        },
    ),
    Example(
        "over the batch",
        {
            "model": [
                (
                    _LINE,
                    _LINE
                    + "            first = «text_attention_mask.sum(dim=0)»\n            latents = latents + first.sum() * 0\n",
                )
            ]
        },
    ),
    Example(
        "an arange over all samples",
        {
            "model": [
                (
                    _LINE,
                    _LINE
                    + "            latents = latents + torch.arange(«text_attention_mask.sum()», device=device)\n",
                )
            ]
        },
    ),
    Example(
        "through a name",
        {
            "model": [
                (
                    _LINE,
                    _LINE
                    + "            count = text_attention_mask.sum(dim=1).max()\n"
                    + "            key_mask = key_mask & torch.arange(«count»)\n",
                )
            ]
        },
    ),
    Example(
        "only where there is a mask",
        {
            "model": [
                (
                    _LINE,
                    _LINE + "        count = 0 if text_attention_mask is None else int(text_attention_mask.sum())\n"
                    "        latents = latents + torch.arange(«count», device=device)\n",
                )
            ]
        },
        also=("OSC116",),
    ),
    Example(
        "text cut in the forward",
        {"model": [(_LINE, _LINE + "            context = context[:, : «text_attention_mask.sum() + 2»]\n")]},
    ),
    Example(
        "ids cut in the adapter",
        {
            "training": [
                (
                    "        return ids, torch.arange(ids.shape[1], device=device) < lengths[:, None]",
                    "        mask = torch.arange(ids.shape[1], device=device) < lengths[:, None]\n"
                    "        return ids[:, : «int(mask.sum())»], mask",
                )
            ]
        },
    ),
    Example(
        "a table",
        {
            "model": [
                (_LINE, _LINE + "            latents = latents + self.rope_table(«text_attention_mask.sum() + 2»)\n")
            ]
        },
        also=("OSC154",),
    ),
)
PASSING = (
    Example(
        "each sample's own, in positions",
        {"model": [(_LINE, _MOVED.format("torch.count_nonzero(text_attention_mask, dim=1)"))]},
    ),
    Example(
        "cut to the longest sample",
        {"model": [(_LINE, _LINE + "            context = context[:, : text_attention_mask.sum(dim=1).max()]\n")]},
    ),
    Example(
        "sample by sample",
        {
            "training": [
                (
                    "        lengths = torch.tensor([len(row) for row in rows], device=device)\n",
                    "        lengths = torch.tensor([len(row) for row in rows], device=device)\n"
                    '        kept = [row[: mask.sum()] for row, mask in zip(rows, micro_batch["attention_mask"])]\n',
                )
            ]
        },
        also=("OSC134",),
    ),
    Example(
        "from the tensor",
        {
            "model": [
                (_LINE, _LINE + "            key_mask = key_mask & torch.arange(key_mask.shape[1], device=device)\n")
            ]
        },
    ),
    Example(
        "positions of each sample",
        {
            "model": [
                (
                    _LINE,
                    _LINE
                    + "            lengths = text_attention_mask.sum(dim=1, keepdim=True)\n"
                    + "            latents = latents + lengths[:, None]\n",
                )
            ]
        },
    ),
)
