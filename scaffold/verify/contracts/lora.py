"""LoRA sits on the declared layers, starts at the base weights, learns and can be switched off."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.lora import adapted, layers, limit_for, noise_floor
from scaffold.verify.subject.subject import PROMPTS


class Targets:
    """LoRA binds to the declared targets and to nothing else."""

    ID = "lora-targets"
    TITLE = "LoRA is injected on exactly the declared targets"
    PITFALLS = (18, 34)
    LIMIT = 0.0  # a target without adapter trains nothing and says nothing

    @staticmethod
    def run(subject: Any) -> Measured:
        """Each declared target must bind in every layer that has it; only LoRA may be trainable afterwards."""
        targets = subject.declared("target_modules")
        linear = {name for name, child in subject.new_module().named_modules() if isinstance(child, nn.Linear)}
        expected = {name for name in linear for target in targets if name == target or name.endswith(f".{target}")}
        idle = [target for target in targets if not any(n == target or n.endswith(f".{target}") for n in linear)]
        elsewhere = [target for target in idle if subject.may_lack(target)]
        idle = [target for target in idle if target not in elsewhere]
        problems = [f"no linear layer is called {target!r}" for target in idle]
        if idle and len(idle) == len(targets):
            return Measured("", problems, float(len(idle)), Targets.LIMIT, "modules")
        module = adapted(subject)
        bound = layers(module).keys()
        problems += [f"{name} is declared and has no adapter" for name in sorted(expected - bound)]
        problems += [f"{name} has an adapter and is not declared" for name in sorted(bound - expected)]
        stray = sorted(n for n, p in module.named_parameters() if p.requires_grad and ".lora_" not in n)
        problems += [f"{name} trains beside LoRA" for name in stray[:1]]
        other = f"; layers of another configuration: {', '.join(elsewhere)}" if elsewhere else ""
        return Measured(
            f"{len(bound)} modules from {len(targets)} targets{other}",
            problems,
            float(len(expected ^ bound) + len(idle)),
            Targets.LIMIT,
            "modules",
        )


class LayerPrefixes:
    """The layer-by-layer weight sync finds every parameter it must send."""

    ID = "layer-prefixes"
    TITLE = "the FSDP layer prefixes collect every LoRA parameter, and _no_split_modules every layer below them"
    PITFALLS = (32,)
    LIMIT = 0.0  # what no prefix collects is not sent to the rollout

    @staticmethod
    def run(subject: Any) -> Measured:
        """Walk the declared prefixes as the engine's layered summon does."""
        module = subject.new_module()
        classes = set(module._no_split_modules or ())
        present = {type(child).__name__ for child in module.modules()}
        problems = [f"_no_split_modules names {name}, no module is one" for name in sorted(classes - present)]
        if not classes:
            problems.append("_no_split_modules is empty: FSDP shards nothing by layer")
        wrapped = {name for name, child in module.named_modules() if type(child).__name__ in classes}
        prefixes = subject.declared("fsdp_layer_prefixes")
        for prefix in prefixes:
            below = sorted({_layer(name, prefix) for name, _ in module.named_parameters() if name.startswith(prefix)})
            if not below and not subject.may_lack(prefix.rstrip(".")):
                problems.append(f"no parameter starts with {prefix!r}")
            problems += [f"{layer} is not a module of _no_split_modules" for layer in below if layer not in wrapped][:1]
        try:
            names = [name for name, p in adapted(subject).named_parameters() if ".lora_" in name]
        except NotDrivableError:
            names = []
        missed = sorted(name for name in names if not name.startswith(tuple(prefixes)))
        problems += [f"{len(missed)} LoRA parameters lie outside, such as {missed[0]}"] if missed else []
        return Measured(
            f"{prefixes} collect {len(names)} LoRA parameters",
            problems,
            float(len(missed)),
            LayerPrefixes.LIMIT,
            "parameters",
        )


def _layer(name: str, prefix: str) -> str:
    """``layers.3`` of ``layers.3.mlp.weight``."""
    return prefix + name[len(prefix) :].split(".")[0]


class StartsAtBase:
    """A fresh adapter changes nothing."""

    ID = "lora-starts-at-base"
    TITLE = "with a fresh LoRA adapter the velocity is that of the base weights"
    PITFALLS = (34,)
    LIMIT = 1e-5  # B is zero: adding zero rounds nothing, but may move a tensor, whose sums then run in another order

    @staticmethod
    def run(subject: Any) -> Measured:
        """Compare the velocity before and after injection."""
        plain = subject.new_module()
        inputs, _ = subject.inputs(plain)
        module = adapted(subject)
        with torch.no_grad():
            value = relative(subject.velocity(module, inputs), subject.velocity(plain, inputs))
        return Measured(f"velocity moves by {value:g}", (), value, StartsAtBase.LIMIT, "relative")


class Learns:
    """Every adapter learns."""

    ID = "lora-learns"
    TITLE = "after one optimiser step on the log-prob every LoRA B is non-zero"
    PITFALLS = (10, 18, 19, 34)
    LIMIT = 0.0  # an adapter whose B stays zero never acts

    @staticmethod
    def run(subject: Any) -> Measured:
        """One step of AdamW on the log-prob, with gradient checkpointing and in train mode, as the engine does."""
        module = adapted(subject)
        if module._supports_gradient_checkpointing:
            module.enable_gradient_checkpointing()
        subject.train(module)
        free = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not free:
            return Measured("", ["no parameter is trainable after LoRA was added"])
        optimizer = torch.optim.AdamW(free, lr=1e-3)
        log_prob = subject.log_prob(module, PROMPTS, subject.settings(), step=1)[0]
        if not log_prob.requires_grad:
            return Measured("", ["the log-prob has no gradient"])
        log_prob.sum().backward()
        optimizer.step()
        zero = sorted(
            name for name, layer in layers(module).items() if not all(b.weight.any() for b in layer.lora_B.values())
        )
        unused = subject.unused(module, [f"{name}.lora_B.default.weight" for name in zero])
        zero = [name for name in zero if f"{name}.lora_B.default.weight" not in unused]
        left = f"; {len(unused)} lie where no recorded call leads, such as {min(unused)}" if unused else ""
        problems = (
            [f"B of {len(zero)} of {len(layers(module))} modules stays zero: {', '.join(zero[:3])}"] if zero else []
        )
        moved = len(layers(module)) - len(unused) - len(zero)
        return Measured(
            f"B of {moved if zero else f'all {moved}'} modules moved{left}",
            problems,
            float(len(zero)),
            Learns.LIMIT,
            "modules",
        )


class Switch:
    """Adapters can be switched off and on."""

    ID = "lora-switch"
    TITLE = "disable_adapters gives the base velocity, enable_adapters the adapted one back"
    PITFALLS = (11,)

    @staticmethod
    def run(subject: Any) -> Measured:
        """Compare base, adapted, disabled and enabled; the reference policy of the KL term is the disabled one."""
        plain = subject.new_module()
        inputs, _ = subject.inputs(plain)
        module = adapted(subject, zero=False)
        with torch.no_grad():
            base, changed = subject.velocity(plain, inputs), subject.velocity(module, inputs)
            module.disable_adapters()
            disabled = subject.velocity(module, inputs)
            module.enable_adapters()
            enabled = subject.velocity(module, inputs)
        problems = []
        if not relative(changed, base) > 1e-5:
            problems.append("the adapter changes nothing")
        off, on = relative(disabled, base), relative(enabled, changed)
        floor = noise_floor(subject, plain)
        if off > limit_for(floor):
            problems.append(f"disabled, the velocity is {off:.1e} from the base")
        if on > limit_for(floor):
            problems.append(f"enabled again, the velocity is {on:.1e} from before")
        if not any(p.requires_grad for name, p in module.named_parameters() if ".lora_" in name):
            problems.append("after enable_adapters no adapter is trainable")
        return Measured(
            f"disabled {off:.1e}, enabled {on:.1e} relative",
            problems,
            max(off, on),
            limit_for(floor),
            "relative",
            floor,
        )
