"""Weights behind a cache: of layers that run in only some calls of the denoiser, or before them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaffold.verify.rollout.check import Measurement, NotApplicable, control, control_measurement

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 85
DTYPE = "float32"
CHECK = control("cached-weights", "training that reads what the rollout's weights left in a cache")
CHECKS = (CHECK,)
SCALE = 0.5  # of a weight's own size


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Change the weights alone of layers that a later step does not run, and recompute that step.

    A replay that recomputes their results sees the change; one that reads the rollout's cache does not.
    """
    facts = bench.task.facts.get("ported")
    if not facts:
        raise NotApplicable("training is given no recorded calls")
    module = _denoiser(bench.engine.pipeline, facts)
    recipe = bench.recipe
    with Ran(module, facts["method"]) as ran:
        count = len(bench.roll_out(recipe, bench.texts[:1])[0].timesteps)
    behind = plain_names(ran.behind(), facts["fused"])
    training = bench.training.copy()
    changed = change(training.module, behind, facts["lora"])
    if not changed:
        yield Measurement(CHECK.id, None, "every trained layer that runs, runs in later calls too", skipped=True)
        return
    late = replace(recipe, sde_window_size=1, sde_window_range=(count // 2, count // 2 + 1))
    samples = bench.roll_out(late, bench.texts[:1])
    found = control_measurement(CHECK, bench.compare(samples, late, training=training).log_prob)
    yield replace(found, reason=f"{changed[0]} and {len(changed) - 1} more changed, {found.reason}")


class Ran:
    """Which layers of a module run while it is entered, call by call of the module's method.

    Args:
        module: the denoiser.
        method: by which it is called.
    """

    def __init__(self, module: Any, method: str) -> None:
        self._module, self._method = module, method
        self._inside = False
        self.outside: set[str] = set()
        self.calls: list[set[str]] = []

    def __enter__(self) -> Ran:
        own = getattr(self._module, self._method)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(set())
            self._inside = True
            try:
                return own(*args, **kwargs)
            finally:
                self._inside = False

        self._before = vars(self._module).get(self._method)
        setattr(self._module, self._method, counted)
        self._hooks = [
            layer.register_forward_pre_hook(lambda *_, name=name: self._note(name))
            for name, layer in self._module.named_modules()
            if name and layer._parameters
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        if self._before is None:
            delattr(self._module, self._method)
        else:
            setattr(self._module, self._method, self._before)

    def _note(self, name: str) -> None:
        (self.calls[-1] if self._inside else self.outside).add(name)

    def behind(self) -> set[str]:
        """Names of layers that ran, and in none of the calls of the second half."""
        half = len(self.calls) // 2
        early = self.outside.union(*self.calls[:half])
        return early - set().union(*self.calls[half:])


def plain_names(names: set[str], fused: Sequence[Mapping[str, Any]]) -> set[str]:
    """Names of the ported module's layers, where one of the engine's stands for several."""
    found = set()
    for name in names:
        around, _, last = name.rpartition(".")
        parts = next((entry["parts"] for entry in fused if entry["name"] == last), [last])
        found |= {f"{around}.{part}" if around else part for part in parts}
    return found


def change(module: Any, layers: set[str], targets: Sequence[str]) -> list[str]:
    """Change parameters of layers, where LoRA is to be put on them; return their names."""
    from scaffold.verify.rollout.engine_side import training

    chosen = {}
    for name, parameter in module.named_parameters():
        layer = name.rpartition(".")[0]
        trained = not targets or any(layer == target or layer.endswith(f".{target}") for target in targets)
        if layer in layers and trained:
            chosen[name] = parameter
    training.change(chosen.values(), SCALE, seed=3)
    return list(chosen)


def _denoiser(pipeline: Any, facts: Mapping[str, Any]) -> Any:
    found = [module for module in pipeline.modules() if type(module).__name__ == facts["class"]]
    if len(found) != 1:
        raise NotApplicable(f"the pipeline holds {len(found)} modules {facts['class']}")
    return found[0]
