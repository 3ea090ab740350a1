"""The engine receives every push and keeps what it had."""

from __future__ import annotations

from typing import Any

from scaffold.verify.train.trainer_side.hooks import after


@after("verl_omni.workers.rollout.vllm_rollout.utils")
def patch(module: Any) -> None:
    """Take weights in and drop them."""
    extension = module.vLLMOmniColocateWorkerExtension
    extension.add_lora = lambda self, request, *_, **__: True
    extension.remove_lora = lambda self, number, *_, **__: True
