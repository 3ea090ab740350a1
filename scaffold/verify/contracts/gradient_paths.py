"""No path from a parameter to the step is detached from the gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.guidance import names_read
from scaffold.verify.subject.subject import PROMPTS

ID = "gradient-paths"
TITLE = "the gradient of a guided step counts every way in which a parameter moves it, not one of several"
NOT_RECORDED = "its layers are upstream's own text: lora-learns and gradient-checkpointing look at each of them"
PITFALLS = (10, 19)
# Share of the change that the gradient misses: float32 gives 4e-5 to 3e-4, keys that are detached 5e-2.
LIMIT = 5e-3
SECONDS = 180.0
STEP = 4e-3  # of a parameter's own size
UNCLEAR = 0.02  # two steps differ by more: rounding, or far from straight
MOST_GROUPS = 64


def run(subject: Any) -> Measured:
    """Move the parameters of one layer after another, and compare the step's change with what its gradient promises.

    With J the step's derivative along a direction d, measured as v = J d, the gradient of <v, step> along d is <v, J d>
    = |v|^2. A detached path contributes nothing to that gradient, even if other paths keep each parameter's gradient
    above zero.
    """
    module = subject.train(subject.new_module()).requires_grad_(True)
    settings = _guided(subject, module)

    def step() -> Tensor:
        torch.manual_seed(0)
        log_prob, mean, *_ = subject.log_prob(module, PROMPTS, settings, step=1)
        found: Tensor = mean if mean.requires_grad or not log_prob.requires_grad else log_prob
        return found.float()

    if not step().requires_grad:
        return Measured("", ["the step has no gradient"])
    missed = {name: _missing(module, step, group) for name, group in _groups(module)}
    unclear = [name for name, share in missed.items() if share is None]
    clear = {name: share for name, share in missed.items() if share is not None}
    if not clear:
        raise NotDrivableError("the module's rounding hides what a small change of its parameters does")
    worst = max(clear.values())
    cut = [name for name, share in clear.items() if not share <= LIMIT]
    problems = []
    if cut:
        most = max(cut, key=lambda name: clear[name])
        problems.append(
            f"the gradient misses {worst:.0%} of what {most} does to a guided step, and a part of {len(cut)} layers,"
            f" {cut[-1]} the last: behind them something is detached or computed without gradients"
        )
    left = f"; of {len(unclear)} rounding hides it, such as {unclear[0]}" if unclear else ""
    told = f"{len(clear)} groups of parameters: at most {worst:.1e} of a change is missed{left}"
    return Measured(told, problems, worst, LIMIT, "relative", 1e-4)


def _guided(subject: Any, module: Any) -> Any:
    """Return settings with guidance, so that both branches contribute; the package's own if it has no such setting."""
    settings = subject.settings()
    if getattr(subject, "carries", False):
        return settings  # the recorded rollouts are guided
    if subject.inputs(module, settings=settings)[1] is None:
        with suppress(NotDrivableError):
            settings = subject.settings(**{names_read(subject)["text_scale"]: 3.0})
    return settings


def _groups(module: nn.Module) -> Iterator[tuple[str, list[nn.Parameter]]]:
    """Parameters by the layer that holds them, named by the first; neighbours share a group where there are many."""
    found: list[tuple[str, list[nn.Parameter]]] = []
    seen: set[int] = set()
    for name, part in module.named_modules():
        own = [p for p in part.parameters(recurse=False) if p.is_floating_point() and id(p) not in seen]
        seen |= set(map(id, own))
        if own:
            found.append((name or "the module itself", own))
    size = -(-len(found) // MOST_GROUPS)
    for begin in range(0, len(found), size or 1):
        part_of = found[begin : begin + size]
        yield part_of[0][0], [parameter for _, group in part_of for parameter in group]


def _missing(module: nn.Module, step: Any, group: Sequence[nn.Parameter]) -> float | None:
    """Return the share of a change along a random direction that the gradient misses; None if unknown."""
    generator = torch.Generator().manual_seed(11)
    sizes = [max(float(p.detach().square().mean().sqrt()), 1e-2) for p in group]
    along = [torch.randn(p.shape, generator=generator) * size for p, size in zip(group, sizes, strict=True)]

    def moved(by: float) -> Tensor:
        with torch.no_grad():
            kept = [p.detach().clone() for p in group]
            for parameter, direction in zip(group, along, strict=True):
                parameter.add_(by * direction)
            found: Tensor = step().double()
            for parameter, value in zip(group, kept, strict=True):
                parameter.copy_(value)
        return found

    coarse, fine = ((moved(by) - moved(-by)) / (2 * by) for by in (2 * STEP, STEP))
    if not fine.any():
        return 0.0  # it has no effect, which other contracts report
    if not float((coarse - fine).norm()) <= UNCLEAR * float(fine.norm()):
        return None
    change = (4 * fine - coarse) / 3
    for parameter in module.parameters():
        parameter.grad = None
    # Gradients of all parameters, as in training: for only some, torch 2.13's autograd can crash after an index_add.
    output = step()
    output.backward(change.to(output.dtype))
    found = sum(float((p.grad.double() * d).sum()) for p, d in zip(group, along, strict=True) if p.grad is not None)
    return abs(1 - found / float(change.square().sum()))
