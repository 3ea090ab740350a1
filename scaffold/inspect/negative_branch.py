"""Whether an unconditional prediction is combined with the other one when the user gives no negative prompt."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence
from scaffold.inspect.guidance import as_guidance, region_parts
from scaffold.inspect.negative_text import Forms
from scaffold.inspect.program import Program
from scaffold.inspect.program.values import Choice
from scaffold.inspect.spoken_text import Spoken
from scaffold.source.values import Value


def needs_words(program: Program, forms: Forms) -> list[Evidence | None]:
    """Where the predictions are combined, if that is only done with a negative prompt; else nothing."""
    loop = program.denoising
    if loop is None or loop.model_output is None:
        return []
    if any(_combinations(loop.model_output, silent) for silent in forms.silent):
        return []
    return [node.at for node in _combinations(loop.model_output, forms.loud)]


def _combinations(output: Value, spoken: Spoken) -> list[Value]:
    """The combinations that are left when the conditions that a form of the request decides are decided."""
    found: list[Value] = []
    stack, seen = [output], set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if as_guidance(node) is not None:
            found.append(node)
        truth = spoken.holds(node.cond) if isinstance(node, Choice) and node.cond is not None else None
        if isinstance(node, Choice) and truth is not None and len(node.options) == 2:
            stack.append(node.options[0 if truth else 1])
        else:
            stack.extend(region_parts(node))
    return found
