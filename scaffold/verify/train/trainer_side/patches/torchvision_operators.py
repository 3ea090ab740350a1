"""torchvision's binary is linked to CUDA; two operators that its import registers shapes for are then unknown."""

from __future__ import annotations

from typing import Any

PLACES = {"torchvision/_meta_registrations.py": ("136d83924845",)}


def declare(module: Any) -> None:
    """Declare them where the binary could not be loaded."""
    if not module._has_ops():
        from scaffold.verify.rollout.engine_side.settings import define_torchvision_operators

        define_torchvision_operators()


HOOKS = {"torchvision.extension": declare}
