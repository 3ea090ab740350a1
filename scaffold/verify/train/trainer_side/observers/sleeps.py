"""What an engine that sleeps still holds of the card beside its pool: workspaces, and what left the pool."""

from __future__ import annotations

from typing import Any

from scaffold.verify.train.trainer_side.observers import say


def observe(module: Any) -> None:
    """Look at torch's own allocations after each ``sleep`` of the worker."""
    worker = module.DiffusionWorker
    original = worker.sleep

    def sleep(self: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        result = original(self, *args, **kwargs)
        if torch.cuda.is_available():
            say("sleep", allocated=torch.cuda.memory_allocated(), rank=int(getattr(self, "local_rank", 0)))
        return result

    worker.sleep = sleep


HOOKS = {"vllm_omni.diffusion.worker.diffusion_worker": observe}
