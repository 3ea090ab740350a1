"""Every push of weights, from inside the engine that receives it: does it hold other numbers afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from scaffold.verify.train.trainer_side.observers import say

LARGE = 1_000_000


def observe(module: Any) -> None:
    """Compare the engine's weights before and after ``update_weights_from_ipc``."""
    extension = module.vLLMOmniColocateWorkerExtension
    original = extension.update_weights_from_ipc

    def update_weights_from_ipc(self: Any, *args: Any, **kwargs: Any) -> Any:
        before, places = fingerprint(self), storages(self)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            say("push", changed=0, moved=0, error=f"{type(error).__name__}: {error}"[:400], **_place(self))
            raise
        after, now = fingerprint(self), storages(self)
        moved = [name for name, place in now.items() if places.get(name, place) != place]
        changed = [name for name, value in after.items() if before.get(name) != value]
        say("push", changed=len(changed), moved=len(moved), error=None, names=changed[:5], **_place(self))
        return result

    extension.update_weights_from_ipc = update_weights_from_ipc


def _place(worker: Any) -> dict[str, Any]:
    return {"replica": os.environ.get("VERL_REPLICA_RANK", "0"), "rank": getattr(worker, "local_rank", 0)}


def fingerprint(worker: Any) -> dict[str, float]:
    """A number for each parameter, and for each tensor of a LoRA layer, of the worker's pipeline."""
    import torch

    pipeline = worker.model_runner.pipeline
    found = {}
    for name, value in (*pipeline.named_parameters(), *_adapters(pipeline)):
        flat = value.detach().reshape(-1)
        found[name] = float(flat.sum(dtype=torch.float64))
        if len(flat) <= LARGE:  # a sum alone does not see two numbers that change places
            found[name] += float(
                flat.double() @ torch.arange(len(flat), dtype=torch.float64, device=flat.device)
            ) / max(len(flat), 1)
    return found


def storages(worker: Any) -> dict[str, int]:
    """Where each parameter of the worker's pipeline lies in memory."""
    return {name: value.data_ptr() for name, value in worker.model_runner.pipeline.named_parameters()}


def _adapters(pipeline: Any) -> Iterator[tuple[str, Any]]:
    for path, module in pipeline.named_modules():
        for attribute in ("lora_a_stacked", "lora_b_stacked"):
            for index, value in enumerate(getattr(module, attribute, None) or ()):
                yield f"{path}.{attribute}.{index}", value


HOOKS = {"verl_omni.workers.rollout.vllm_rollout.utils": observe}
