"""The engine's output thread copies on a side stream of the accelerator, and there is none."""

from __future__ import annotations

from typing import Any

PLACES = {
    "vllm_omni/diffusion/worker/diffusion_worker.py:WorkerProc._async_output_loop": ("8b49bc78beeb", "1443613b4361")
}


class _Stream:
    """A stream on which nothing is ever under way."""

    def __init__(self, **_: Any) -> None:
        """It has no device."""

    def wait_event(self, event: Any) -> None:
        """There is nothing to wait for."""

    def synchronize(self) -> None:
        """Nor here."""


class _Accelerator:
    """``torch.accelerator``, and the CPU as the current one."""

    def current_accelerator(self) -> Any:
        import torch

        return torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch.accelerator, name)


def patch(module: Any) -> None:
    """Give the worker's module a stream that does nothing, and pack without it."""
    from scaffold.verify.rollout.engine_side.precision import TorchWith

    module.torch = TorchWith(accelerator=_Accelerator(), Stream=_Stream)
    pack = module.pack_diffusion_output_shm
    module.pack_diffusion_output_shm = lambda output, **_: pack(output)


HOOKS = {"vllm_omni.diffusion.worker.diffusion_worker": patch}
