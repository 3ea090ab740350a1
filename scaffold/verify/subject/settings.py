"""The part of ``DiffusionModelConfig`` that adapters read, recording the names they read."""

from __future__ import annotations

from typing import Any


class Settings:
    """Attributes and items, undeclared ones missing as they are in the engine's own configuration.

    Args:
        values: what is set.
        asked: names that were read, set or not, are added here.
    """

    def __init__(self, values: dict[str, Any], asked: set[str] | None = None) -> None:
        self.__dict__.update(values)
        self.__dict__["_asked"] = asked if asked is not None else set()

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name != "get":
            object.__getattribute__(self, "__dict__")["_asked"].add(name)
        return object.__getattribute__(self, name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.__dict__

    def get(self, name: str, default: Any = None) -> Any:
        """The setting, or ``default``."""
        return getattr(self, name, default)


def engine_settings(
    values: dict[str, Any], size: dict[str, int], changes: dict[str, Any], asked: set[str] | None
) -> Settings:
    """What the engine hands adapters as ``model_config``.

    Args:
        values: of the package.
        size: of an image, and the number of steps.
        changes: ``sde_type``, ``noise_level``, ``lora_rank``, ``local_path``; anything else goes to ``pipeline``.
        asked: names read from ``pipeline`` are added here.
    """
    algo = {"noise_level": 0.7, "sde_type": "sde", "sde_window_size": None, "sde_window_range": None}
    top = {"external_lib": None, "path": "", "lora_rank": 0, "lora_alpha": 64, **values}
    pipeline = {**size, "num_frames": 1, "max_sequence_length": 512, "true_cfg_scale": 1.0, "guidance_scale": None}
    for name, value in changes.items():
        of = algo if name in algo else top if name in ("lora_rank", "local_path") else pipeline
        of[name] = value
    return Settings({**top, "pipeline": Settings(pipeline, asked), "algo": Settings(algo)})
