"""Values of overrides as Hydra reads them: lists of names, whole numbers, truth."""

from __future__ import annotations

from typing import Any

from scaffold.check.model.shell import ShellScript

MODEL = "actor_rollout_ref.model."
ROLLOUT = "actor_rollout_ref.rollout."
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def names(value: Any) -> list[str] | None:
    """Return the entries of ``["a", "b"]`` or ``[a,b]``; None for anything else, a single pattern too."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    if not (text.startswith("[") and text.endswith("]")) or "{" in text or "[" in text[1:]:
        return None
    entries = [entry.strip().strip("\"'") for entry in text[1:-1].split(",")]
    return [entry for entry in entries if entry]


def integers(value: Any) -> list[int] | None:
    """Return the whole numbers of ``[0, 7]``; None for anything else."""
    entries = names(value)
    try:
        return None if entries is None else [int(entry) for entry in entries]
    except ValueError:
        return None


def integer(value: Any) -> int | None:
    """Return a whole number; None for anything else."""
    try:
        return int(value) if isinstance(value, str) and len(value) < 20 else None
    except ValueError:
        return None


def truth(value: Any) -> bool | None:
    """Return a truth value as YAML spells it; None for anything else."""
    text = value.strip().lower() if isinstance(value, str) else ""
    return True if text in _TRUE else False if text in _FALSE else None


def lora_rank(script: ShellScript) -> int | None:
    """Return the LoRA rank that a script asks for: 0 (the trainer's default) where it says nothing, None if unknown."""
    override = script.override(f"{MODEL}lora_rank")
    return 0 if override is None else integer(override.value)
