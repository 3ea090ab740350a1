"""verl-omni hands the engine every setting that vllm's command line has; vllm-omni 0.30.0 refuses those of others.

Up to 0.28.0 they were passed over, and so they are here: settings of the engine, and of the stages of a pipeline that
has a deploy configuration.
"""

from __future__ import annotations

from typing import Any

PLACES = {
    "vllm_omni/diffusion/data.py:validate_omni_diffusion_kwargs": ("", "dac5432aeb61"),
    "vllm_omni/config/omni_config.py:_validate_global_stage_cli_ownership": ("", "e617da6b3c0d"),
}
_REFUSING = ("validate_omni_diffusion_kwargs", "_validate_global_stage_cli_ownership")


def patch(module: Any) -> None:
    """Refuse nothing; the caller keeps what it knows."""
    for name in _REFUSING:
        if hasattr(module, name):
            setattr(module, name, lambda *_, **__: None)


HOOKS = {"vllm_omni.diffusion.data": patch, "vllm_omni.config.omni_config": patch}
