"""verl-omni hands the engine every setting that vllm's command line has; vllm-omni 0.30.0 refuses those of others.

Up to 0.28.0 they were passed over, and so they are here.
"""

from __future__ import annotations

from typing import Any

PLACES = {"vllm_omni/diffusion/data.py:validate_omni_diffusion_kwargs": ("", "dac5432aeb61")}


def patch(module: Any) -> None:
    """Refuse nothing; the caller keeps what it knows."""
    if hasattr(module, "validate_omni_diffusion_kwargs"):
        module.validate_omni_diffusion_kwargs = lambda *_, **__: None


HOOKS = {"vllm_omni.diffusion.data": patch}
