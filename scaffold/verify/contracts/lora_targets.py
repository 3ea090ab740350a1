"""LoRA binds to the declared targets and to nothing else."""

from __future__ import annotations

from typing import Any

from torch import nn

from scaffold.verify.measured import Measured
from scaffold.verify.subject.lora import adapted, layers

ID = "lora-targets"
TITLE = "LoRA is injected on exactly the declared targets"
PITFALLS = (18, 34)
LIMIT = 0.0  # a target without adapter trains nothing and says nothing


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
        return Measured("", problems, float(len(idle)), LIMIT, "modules")
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
        LIMIT,
        "modules",
    )
