"""The layer-by-layer weight sync finds every parameter it must send."""

from __future__ import annotations

from typing import Any

from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.lora import adapted

ID = "layer-prefixes"
TITLE = "the FSDP layer prefixes collect every LoRA parameter, and _no_split_modules every layer below them"
PITFALLS = (32,)
LIMIT = 0.0  # what no prefix collects is not sent to the rollout


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
        f"{prefixes} collect {len(names)} LoRA parameters", problems, float(len(missed)), LIMIT, "parameters"
    )


def _layer(name: str, prefix: str) -> str:
    """``layers.3`` of ``layers.3.mlp.weight``."""
    return prefix + name[len(prefix) :].split(".")[0]
