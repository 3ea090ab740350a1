"""verl-omni pins a verl before 0.9; later releases read settings that its configurations do not have.

A setting of the rollout gets the value that the release itself has as its default. A diffusion model has no
configuration of a language model, which is asked for a quantisation. The agent loop lost the method by which
verl-omni's turns a prompt into ids; here it serves prompts of text. Whoever ends requests says since 0.9 whether later
ones are refused, which verl-omni's server does not take: it lets its requests end, and none come meanwhile.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import MISSING, fields
from types import SimpleNamespace
from typing import Any

from scaffold.verify.train.trainer_side.hooks import after, at_start


@at_start
def moved_module() -> None:
    """verl 0.9 moved ``verl.utils.chat_template``: answer the old name, where nothing else does."""
    from scaffold.verify.rollout.engine_side.real_library import MOVED
    from scaffold.verify.rollout.engine_side.sources import MovedModule

    sys.meta_path.extend(MovedModule(old, new) for old, new in MOVED.items())


@after("verl_omni.workers.config.diffusion.rollout")
def fill_in(module: Any) -> None:
    """Fill in, as attributes of the class, what the release's own configuration has and verl-omni's lacks."""
    known: Any = importlib.import_module("verl.workers.config.rollout").RolloutConfig
    for field in fields(known):
        if field.default is not MISSING and not hasattr(module.DiffusionRolloutConfig, field.name):
            setattr(module.DiffusionRolloutConfig, field.name, field.default)


@after("verl.workers.rollout.vllm_rollout.vllm_async_server")
def no_quantisation(module: Any) -> None:
    """Give the server's model an empty configuration where it has none; only the server's process sees it."""
    server = module.vLLMHttpServer
    original = getattr(server, "_apply_quantization", None)
    if original is None:
        return

    def _apply_quantization(self: Any) -> Any:
        if not hasattr(self.model_config, "hf_config"):
            object.__setattr__(self.model_config, "hf_config", SimpleNamespace())
        return original(self)

    server._apply_quantization = _apply_quantization


@after("verl.experimental.agent_loop.agent_loop")
def template(module: Any) -> None:
    """Give the agent loop its method back."""
    if hasattr(module.AgentLoopBase, "apply_chat_template"):
        return

    async def apply_chat_template(
        self: Any, messages: list[dict[str, Any]], images: Any = None, videos: Any = None, **_: Any
    ) -> list[int]:
        if images or videos:
            raise NotImplementedError(
                "prompts with media need the verl that verl-omni pins; set VERL_SRC to a checkout"
            )
        ids = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False, **self.apply_chat_template_kwargs
        )
        return list(ids[: self.rollout_config.prompt_length])

    module.AgentLoopBase.apply_chat_template = apply_chat_template


@after("verl_omni.workers.rollout.vllm_rollout.vllm_omni_async_server")
def ended_requests(module: Any) -> None:
    """Let the server end its requests whatever else it is told."""
    server = module.vLLMOmniHttpServer
    original = server.abort_all_requests
    if "reject_request" in inspect.signature(original).parameters:
        return

    async def abort_all_requests(self: Any, reset_prefix_cache: bool = True, reject_request: bool = False) -> Any:
        return await original(self, reset_prefix_cache)

    server.abort_all_requests = abort_all_requests


@after(
    "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer",
    places={
        "verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py:BucketedWeightReceiver.receive_weights": (
            "62877255bd1f",
            "0854e471e11f",
        )
    },
)
def received_weights(module: Any) -> None:
    """verl's receiver takes ``.to(device)`` for a copy; on a CPU it is a view of memory that is unmapped next.

    From 0.9 it also says which bucket is the last, which verl-omni's callback does not take.
    """
    original = module.BucketedWeightReceiver.receive_weights

    def receive_weights(self: Any, on_bucket_received: Any) -> Any:
        def received(weights: Any, *_: Any) -> None:
            on_bucket_received([(name, value.clone()) for name, value in weights])

        return original(self, received)

    module.BucketedWeightReceiver.receive_weights = receive_weights
