"""verl-omni hands the engine every setting that vllm's command line has; vllm-omni 0.30.0 refuses those of others.

Up to 0.28.0 they were passed over, and so they are here: settings of the engine, and of the stages of a pipeline that
has a deploy configuration.
"""

from __future__ import annotations

from typing import Any

from scaffold.verify.train.trainer_side.hooks import after

_REFUSING = ("validate_omni_diffusion_kwargs", "_validate_global_stage_cli_ownership")


@after(
    "vllm_omni.diffusion.data",
    places={"vllm_omni/diffusion/data.py:validate_omni_diffusion_kwargs": ("", "dac5432aeb61")},
)
def foreign_settings(module: Any) -> None:
    """Refuse nothing; the caller keeps what it knows."""
    for name in _REFUSING:
        if hasattr(module, name):
            setattr(module, name, lambda *_, **__: None)


@after(
    "vllm_omni.config.omni_config",
    places={
        "vllm_omni/config/omni_config.py:_validate_global_stage_cli_ownership": ("", "e617da6b3c0d"),
        "vllm_omni/config/omni_config.py:_stage_cli_overrides": ("b464307efbb3", "b6502881985c"),
    },
)
def foreign_settings_of_stages(module: Any) -> None:
    """Leave out the compilation that verl-omni's ``asdict`` made a table of, with fields that take no value."""
    foreign_settings(module)
    of_stage = module._stage_cli_overrides

    def overrides(*arguments: Any, **named: Any) -> dict[str, Any]:
        found: dict[str, Any] = of_stage(*arguments, **named)
        return {
            key: value for key, value in found.items() if key != "compilation_config" or not isinstance(value, dict)
        }

    module._stage_cli_overrides = overrides
