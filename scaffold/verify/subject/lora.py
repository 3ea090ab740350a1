"""LoRA as the engine adds it, and how far rounding alone moves a velocity: bf16 inside a model is no failure."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scaffold.verify.formulas import relative

RANK, ALPHA = 2, 4


def adapted(subject: Any, *, zero: bool = True, dtype: Any = None) -> Any:
    """A module with LoRA on the declared targets.

    Args:
        subject: the package.
        zero: B starts at zero, as in training; else at random, so that the adapter does something.
        dtype: of the base weights, given as the engine gives it; LoRA is float32.
    """
    import torch
    from peft import LoraConfig

    module = subject.new_module()
    if dtype is not None:
        module.to(dtype)
    torch.manual_seed(1)
    targets = subject.declared("target_modules")
    module.add_adapter(LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets, init_lora_weights=zero))
    return module


def layers(module: Any) -> dict[str, Any]:
    """The layers that carry LoRA, by name."""
    return {name: child for name, child in module.named_modules() if hasattr(child, "lora_A")}


# Float32 on a CPU gives 1e-6 relative; ten times that leaves room for other orders of summation.
FLOAT32_LIMIT = 1e-5
# Whatever the floor: beyond this no rounding explains a difference (bf16 throughout gives 1.9e-2).
LARGEST_LIMIT = 4e-2


class _Precision(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
    """Keeps the coarsest floating dtype that an operator returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.eps = torch.finfo(torch.float32).eps

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                self.eps = max(self.eps, torch.finfo(tensor.dtype).eps)
        return result


def noise_floor(subject: Any, module: Any) -> float:
    """Relative change of the velocity that sums in another order can cause.

    Every latent is moved by eight float32 rounding errors, eight times over; the worst answer counts. Where the module
    computes in bf16 inside, a value that crosses a rounding boundary jumps by 2**-8 however small the cause, and an
    eighth of finfo.eps = 2**-7 is the least floor; eight trials may miss such a jump.
    """
    if hasattr(subject, "rounding"):
        return float(subject.rounding(module))
    inputs, _ = subject.inputs(module)
    with torch.no_grad():
        with _Precision() as precision:
            base = subject.velocity(module, inputs)
        worst = 0.0 if precision.eps <= torch.finfo(torch.float32).eps else precision.eps / 8
        for seed in range(8):
            generator = torch.Generator().manual_seed(seed)
            moved = {name: _moved(value, subject.geometry.shape, generator) for name, value in inputs.items()}
            worst = max(worst, relative(subject.velocity(module, moved), base))
    return worst


def _moved(value: Any, shape: tuple[int, ...], generator: torch.Generator) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.shape[1:] != shape:
        return value
    signs = torch.randint(0, 2, value.shape, generator=generator) * 2 - 1
    return value * (1 + 8 * signs * torch.finfo(torch.float32).eps)


def limit_for(floor: float) -> float:
    """Limit of a difference that should be rounding: four times the floor, at least float32's, never a real one."""
    return min(max(FLOAT32_LIMIT, 4 * floor), LARGEST_LIMIT)
