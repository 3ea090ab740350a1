"""On which side the text's mask is extended over the tokens that follow the text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.calls import argument
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.held_masks import HeldMasks, is_count
from scaffold.check.model.placed import Placed
from scaffold.check.model.streams import reads

_HELP = "extend the mask behind the text, where the other tokens stand"


def extended_in_front(
    functions: list[FunctionModel], forward: FunctionModel, held: HeldMasks
) -> Iterator[tuple[FunctionModel, ast.expr, str, str]]:
    """Yield places where the mask is extended only in front, although tokens follow the text.

    That tokens follow is seen in ``forward``, where the text's ids stand first in what is joined.
    """
    words = {name.partition("_")[0] for name in held.names.get(forward, set()) if name in forward.parameters}
    texts = {
        name for name in forward.parameters if name.partition("_")[0] in words and name.endswith(("ids", "embeds"))
    }
    if len(texts) != 1 or not _leads(forward, texts):
        return
    for function in functions:
        names = held.of(function)
        for call in function.calls if names else ():
            name = function.file.qualified(call.func)
            if name == "torch.nn.functional.pad" and call.args and _is_mask(call.args[0], names):
                sides = argument(call, "pad", 1)
                values = sides.elts if isinstance(sides, (ast.Tuple, ast.List)) else []
                if len(values) == 2 and _is_zero(function, values[1]) and not _is_zero(function, values[0]):
                    yield (
                        function,
                        call,
                        "the mask is extended in front, and the other tokens stand behind the text",
                        _HELP,
                    )
            elif (
                name in ("torch.cat", "torch.concat") and call.args and isinstance(call.args[0], (ast.Tuple, ast.List))
            ):
                parts = call.args[0].elts
                masks = [_is_mask(part, names) for part in parts]
                if len(parts) > 1 and masks[-1] and not any(masks[:-1]) and all(_ones(function, p) for p in parts[:-1]):
                    yield (
                        function,
                        call,
                        "the mask is extended in front, and the other tokens stand behind the text",
                        _HELP,
                    )


def _leads(forward: FunctionModel, texts: set[str]) -> bool:
    """Whether the text's ids stand first wherever they are joined with others, and are joined with others."""
    found = False
    placed = Placed(forward, [])
    for call in forward.calls:
        if forward.file.qualified(call.func) not in ("torch.cat", "torch.concat") or not call.args:
            continue
        first = call.args[0]
        listed = list(first.elts) if isinstance(first, (ast.Tuple, ast.List)) else list(placed.members(first))
        places = [at for at, item in enumerate(listed) if isinstance(item, ast.Name) and item.id in texts]
        if places:
            if places != [0] or len(listed) < 2 or _grows(forward, first):
                return False
            found = True
    return found


def _grows(forward: FunctionModel, listed: ast.expr) -> bool:
    """Whether a list is added to otherwise than by ``append``."""
    if not isinstance(listed, ast.Name):
        return False
    changed = {"insert", "extend", "reverse", "sort"}
    for call in forward.calls:
        target = call.func
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == listed.id:
            if target.attr in changed:
                return True
    return any(binding.value is None for binding in forward.file.scopes.lookup(listed.id, listed))


def _is_mask(value: ast.expr, names: set[str]) -> bool:
    return "mask" in ast.unparse(value) and reads(value, names, is_count)


def _is_zero(function: FunctionModel, value: ast.expr) -> bool:
    return function.file.value(value) == 0 and isinstance(value, ast.Constant)


def _ones(function: FunctionModel, value: ast.expr) -> bool:
    """Whether a part is made of ones."""
    if isinstance(value, ast.Name):
        bindings = reaching(function, value)
        made = bindings[0].value if len(bindings) == 1 else None
        return made is not None and not isinstance(made, ast.Name) and _ones(function, made)
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("ones", "new_ones")
    )
