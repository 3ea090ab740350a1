"""Without LoRA, what trains is chosen, in float32, and learns."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.measured import Measured, NotDrivableError

ID = "trainable-parameters"
TITLE = "configure_trainable_params frees parameters in float32, of layers too, each of which gets a gradient"
PITFALLS = (19, 22)


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
        problems.append(f"nothing of the {len(layers)} layers trains, such as {layers[0]}; what does: {min(free)}, …")
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
