"""Gradients reach what trains, and recomputing layers changes none."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import checkpoint as torch_checkpoint
from torch.utils.checkpoint import checkpoint

from scaffold.attributes import with_attribute
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.guidance import names_read
from scaffold.verify.subject.subject import PROMPTS

STEP = 4e-3  # of a parameter's own size
UNCLEAR = 0.02  # two steps differ by more: rounding, or far from straight
MOST_GROUPS = 64


class Paths:
    """No path from a parameter to the step is detached from the gradient."""

    ID = "gradient-paths"
    TITLE = "the gradient of a guided step counts every way in which a parameter moves it, not one of several"
    NOT_RECORDED = "its layers are upstream's own text: lora-learns and gradient-checkpointing look at each of them"
    PITFALLS = (10, 19)
    # Share of the change that the gradient misses: float32 gives 4e-5 to 3e-4, keys that are detached 5e-2.
    LIMIT = 5e-3
    SECONDS = 180.0

    @staticmethod
    def run(subject: Any) -> Measured:
        """Move the parameters of one layer after another; compare the step's change with what its gradient promises.

        With J the step's derivative along a direction d, measured as v = J d, the gradient of <v, step> along d is
        <v, J d> = |v|^2. A detached path contributes nothing to that gradient, even if other paths keep each
        parameter's gradient above zero.
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
        cut = [name for name, share in clear.items() if not share <= Paths.LIMIT]
        problems = []
        if cut:
            most = max(cut, key=lambda name: clear[name])
            problems.append(
                f"the gradient misses {worst:.0%} of what {most} does to a guided step, and a part of {len(cut)} "
                f"layers, {cut[-1]} the last: behind them something is detached or computed without gradients"
            )
        left = f"; of {len(unclear)} rounding hides it, such as {unclear[0]}" if unclear else ""
        told = f"{len(clear)} groups of parameters: at most {worst:.1e} of a change is missed{left}"
        return Measured(told, problems, worst, Paths.LIMIT, "relative", 1e-4)


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


class TrainableParameters:
    """Without LoRA, what trains is chosen, in float32, and learns."""

    ID = "trainable-parameters"
    TITLE = "configure_trainable_params frees parameters in float32, of layers too, each of which gets a gradient"
    PITFALLS = (19, 22)

    @staticmethod
    def run(subject: Any) -> Measured:
        """Configure a bf16 module as the engine does, then train one step in float32.

        Where the package leaves the choice to the engine, everything trains, in the float32 that the engine builds.
        """
        configure = getattr(subject.training, "configure_trainable_params", None)
        if configure is None:
            raise NotDrivableError("this release of verl-omni has no configure_trainable_params")
        chosen = configure.__module__ != "verl_omni.pipelines.model_base"
        module = subject.new_module().to(torch.bfloat16 if chosen else torch.float32)
        configure(module, subject.settings())
        free = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
        problems = []
        if not free:
            problems.append("nothing is trainable")
        classes = getattr(module, "_no_split_modules", None) or ()
        layers = [name for name, part in module.named_modules() if type(part).__name__ in classes]
        if free and layers and not any(name.startswith(f"{layer}.") for name in free for layer in layers):
            problems.append(
                f"nothing of the {len(layers)} layers trains, such as {layers[0]}; what does: {min(free)}, …"
            )
        low = sorted(name for name, p in module.named_parameters() if name in free and p.dtype != torch.float32)
        if low:
            problems.append(f"{len(low)} trainable parameters are {_dtype(module, low[0])}, not float32: {low[0]}, …")
        wanted = subject.spec.get("lora", {}).get("trainable")
        if wanted:
            expected = {name for name, _ in module.named_parameters() if any(part in name for part in wanted)}
            if free != expected:
                odd = sorted(free ^ expected)
                problems.append(f"{len(odd)} parameters are not as {wanted} of scaffold.toml says: {odd[0]}, …")
        module = module.float()
        inputs, negative = subject.inputs(module)
        loss = subject.velocity(module, inputs).square().mean()
        if negative is not None:
            loss = loss + subject.velocity(module, negative).square().mean()
        if loss.requires_grad:
            loss.backward()
        idle = sorted(n for n, p in module.named_parameters() if n in free and (p.grad is None or not p.grad.any()))
        unused = subject.unused(module, idle)
        idle = [name for name in idle if name not in unused]
        left = f"; {len(unused)} lie where no recorded call leads, such as {min(unused)}" if unused else ""
        if idle and free:
            problems.append(f"{len(idle)} trainable parameters get no gradient: {', '.join(idle[:3])}")
        total = sum(1 for _ in module.parameters())
        learning = f"{len(free) - len(unused)} get a gradient{left}" if unused else "all get a gradient"
        return Measured(f"{len(free)} of {total} parameters train, {learning}", problems)


def _dtype(module: Any, name: str) -> str:
    return str(dict(module.named_parameters())[name].dtype).removeprefix("torch.")


class Checkpointing:
    """Recomputing layers changes no gradient."""

    ID = "gradient-checkpointing"
    TITLE = "gradient checkpointing happens, without reentry, and changes neither velocity nor gradients"
    PITFALLS = (10,)
    LIMIT = 1e-6  # the same operations again; only sums of gradients may be added in another order

    @staticmethod
    def run(subject: Any) -> Measured:
        """Compare gradients with checkpointing on and off, in train mode as the engine has it."""
        plain = subject.new_module()
        if not plain._supports_gradient_checkpointing:
            return Measured("", [f"{type(plain).__name__}._supports_gradient_checkpointing is False"])
        recomputing = copy.deepcopy(plain)
        reentrant: list[Any] = []

        def counting(function: Any, *args: Any, **kwargs: Any) -> Any:
            reentrant.append(kwargs.get("use_reentrant"))
            return checkpoint(function, *args, **kwargs)

        # diffusers' own way to call its layers says itself how they are to be called.
        recomputing.enable_gradient_checkpointing(*(() if subject.loaded else (counting,)))
        for module in (plain, recomputing):
            inputs, _ = subject.inputs(subject.train(module))
            with with_attribute(torch.utils.checkpoint, "checkpoint", counting) if subject.loaded else nullcontext():
                subject.velocity(module, inputs).square().mean().backward()
        problems = []
        if not reentrant:
            problems.append("forward does not call its layers through _checkpointed_call: nothing is recomputed")
        if any(flag is not False for flag in reentrant):
            problems.append("use_reentrant is not False")
        worst = 0.0
        for (name, one), other in zip(plain.named_parameters(), recomputing.parameters(), strict=True):
            if (one.grad is None) != (other.grad is None):
                problems.append(f"{name} has a gradient in one of the two only")
            elif one.grad is not None and one.grad.any():
                worst = max(worst, relative(other.grad, one.grad))
        return Measured(
            f"{len(reentrant)} calls recomputed, gradients differ by {worst:.1e} relative",
            problems,
            worst,
            Checkpointing.LIMIT,
            "relative",
        )


class UnderNoGrad:
    """No activation is checkpointed under no_grad."""

    ID = "checkpointing-under-no-grad"
    TITLE = "nothing is checkpointed under no_grad"
    PITFALLS = (10,)
    LIMIT = 0.0  # each call would cost a second forward's bookkeeping and warn

    @staticmethod
    def run(subject: Any) -> Measured:
        """Count calls of the checkpoint function, the package's own way and torch's, under no_grad."""
        module = subject.new_module()
        calls: list[str] = []
        original = torch_checkpoint.checkpoint

        def counting(function: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(getattr(function, "__name__", type(function).__name__))
            kwargs.setdefault("use_reentrant", False)
            return original(function, *args, **kwargs)

        torch_checkpoint.checkpoint = counting
        if module._supports_gradient_checkpointing:
            module.enable_gradient_checkpointing(counting)
        module.train()
        inputs, _ = subject.inputs(module)
        with torch.no_grad():
            subject.velocity(module, inputs)
        return Measured(f"{len(calls)} calls under no_grad", (), float(len(calls)), UnderNoGrad.LIMIT, "calls")
