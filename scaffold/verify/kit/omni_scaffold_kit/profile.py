"""Which verl-omni release the kit imitates, and what that release and its vllm-omni lack."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT_VARIABLE = "OMNI_SCAFFOLD_KIT_PROFILE"
DEFAULT_PROFILE = "main"
_PROFILES = Path(__file__).resolve().parent / "profiles"


@dataclass(frozen=True)
class KitProfile:
    """One release of verl-omni with the vllm-omni it pairs with.

    Attributes:
        name: verl-omni tag, or ``main``.
        vllm_omni: version of vllm-omni that the release pins.
        absent_modules: dotted names of kit modules that the release does not have.
        absent_model_hooks: methods of ``DiffusionModelBase`` that the release does not have.
        marks_request_batch: whether ``VllmOmniPipelineBase.register`` sets ``supports_request_batch``.
        custom_output: whether ``DiffusionOutput`` has the ``custom_output`` mapping.
        prompts_per_request: ``"many"`` where a request holds ``prompts``, ``"one"`` where it holds ``prompt``.
        guidance_scale: default of ``OmniDiffusionSamplingParams.guidance_scale``, which means "not given".
    """

    name: str
    vllm_omni: str
    absent_modules: tuple[str, ...]
    absent_model_hooks: tuple[str, ...]
    marks_request_batch: bool
    custom_output: bool
    prompts_per_request: str
    guidance_scale: float | None


def profile_names() -> list[str]:
    """Return the names that :func:`load_profile` takes, sorted."""
    return sorted(path.stem for path in _PROFILES.glob("*.json"))


def load_profile(name: str) -> KitProfile:
    """Read one profile.

    Raises:
        ValueError: there is no profile of that name.
    """
    if name not in profile_names():
        raise ValueError(f"unknown contract kit profile {name!r}; {ENVIRONMENT_VARIABLE} takes {profile_names()}")
    data = json.loads((_PROFILES / f"{name}.json").read_text(encoding="utf-8"))
    data["absent_modules"] = tuple(data["absent_modules"])
    data["absent_model_hooks"] = tuple(data["absent_model_hooks"])
    return KitProfile(name=name, **data)


def require_module(name: str) -> None:
    """Refuse to import module ``name`` where the active profile does not have it.

    Raises:
        ModuleNotFoundError: as Python itself would for a missing module, with ``name`` set.
    """
    if name in ACTIVE.absent_modules:
        raise ModuleNotFoundError(
            f"No module named {name!r} in verl-omni {ACTIVE.name} with vllm-omni {ACTIVE.vllm_omni}", name=name
        )


ACTIVE = load_profile(os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_PROFILE)
