"""Stand-in for the class that rollout workers of vllm-omni are extended with."""

from __future__ import annotations

from typing import Any


class vLLMOmniColocateWorkerExtension:
    """Base of worker extensions.

    The engine puts it before its own worker class, whose ``add_lora`` a subclass reaches through ``super()`` and whose
    ``model_runner`` holds the ``pipeline``.
    """

    model_runner: Any

    def add_lora(self, lora_request: Any) -> bool:
        """Give a LoRA adapter to the worker class behind this one."""
        return bool(super().add_lora(lora_request))  # type: ignore[misc]
