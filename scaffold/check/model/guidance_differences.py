"""Where a guided velocity that was worked out differs from that of the pipeline."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.guidance_gates import may_mix
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.worked_guidance import PER_TOKEN, SIGMAS, Guidance, guided_at, quotients, velocity

Difference = tuple[FunctionModel, ast.AST, str, str | None]


def differences(package: Package, adapter: ClassModel, facts: Guidance) -> Iterator[Difference]:
    """Work the velocity out under each renormalisation; yield place, message and help where it is another one."""
    results = {name: velocity(adapter, facts, name) for name in facts.renorms or (None,)}
    wrong = {name: result for name, result in results.items() if result is not None and result.wrong}
    if not wrong:
        return
    name, result = next(iter(wrong.items()))
    samples = sorted({at for other in wrong.values() for at in other.wrong})
    functions = [function for function in result.work.entered if function.file in package.files]
    active = [at for at in samples if guided_at(facts, at)]
    if name is None or len(active) < len(samples) or not any(guided_at(facts, at) for at in range(len(SIGMAS))):
        at = next(((f, node) for f in reversed(functions) for node in _selecting(f)), None)
        text = f"at noise level {SIGMAS[samples[0]]:g} the velocity is not the one of the rollout's pipeline"
        if active != samples:
            text += f", which guides where {recorded(package, 'cfg', 'interval_rule')}"
        if at is not None:
            yield (*at, text, None)
        return
    named = [one for one in wrong if one is not None]
    place = next(((f, node) for f in reversed(functions) for node in _of_renorm(f, named)), None)
    divided = [found for one in results.values() if one is not None for found in quotients(one, package)]
    if divided and (place is None or len(wrong) == len(results)):
        place = divided[0]
    place = place or next(((f, node) for f in reversed(functions) for node in _selecting(f)), None)
    if place is not None:
        text = f"the velocity under renormalisation {named[0]!r} is not the one of the rollout's pipeline"
        yield (*place, text, f"{_MEANT[named[0]]}, divided by that of the guided velocity")


_MEANT = dict.fromkeys(
    PER_TOKEN, "scale each token by the norm of its conditional velocity, over the last dimension"
) | {"global": "scale each sample by the norm of its conditional velocity, over tokens and channels"}


def _selecting(function: FunctionModel) -> list[ast.AST]:
    """Return where a function chooses between two velocities, else where it scales one."""
    calls = [call for call in function.calls if function.file.qualified(call.func) == "torch.where"]
    sums = [node for node in function.file.index.nodes(ast.BinOp, function.node) if may_mix(function, node)]
    return [*calls, *sums]


def _of_renorm(function: FunctionModel, names: list[str]) -> list[ast.AST]:
    """Return what a function does where it is asked for one of the renormalisations."""
    index = function.file.index
    found: list[ast.AST] = []
    for node in index.nodes(ast.Compare, function.node):
        texts = [function.file.value(part) for part in (node.left, *node.comparators)]
        above = index.parent(node)
        if any(isinstance(text, str) and text in names for text in texts):
            found.append(above.body[0] if isinstance(above, ast.If) and above.test is node else node)
    return found
