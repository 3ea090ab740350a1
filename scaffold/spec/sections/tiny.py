"""[tiny]: the parts of the tiny checkpoint that the smoke test builds offline."""

from __future__ import annotations

from typing import Any

from scaffold.spec.configuration import ROOT
from scaffold.spec.section import Section

PROMPT_LENGTH = 128  # tokens of a prompt of the smoke test; the template of its scripts has it, too


def fill(section: Section) -> None:
    """Take the preset's section; a token that the source writes as a number stands for itself."""
    fixed = {f"${name}": token["id"] for name, token in section.before["tokens"].items() if not token["text"]}
    for key, value in section.sources.preset.sections.get(section.name, {}).items():
        section.put(key, _replaced(value, fixed), f"preset {section.sources.preset.name}")
    _put_noise(section)
    _put_prompt_length(section)


def _put_prompt_length(section: Section) -> None:
    """Make room for the texts around a prompt: the tiny tokenizer may take a token for each of their bytes."""
    prompt = section.before["prompt"]
    around = "".join(prompt.get(side) or "" for side in ("prefix", "suffix")).encode()
    if section.values and around and "max_prompt_length" not in section.values:
        section.put("max_prompt_length", PROMPT_LENGTH + len(around), "bytes of prompt.prefix and prompt.suffix")


def _put_noise(section: Section) -> None:
    """Give the tiny configuration the noise of the checkpoint: its blocks are those that the module has."""
    rule = section.sources.preset.value("architecture", "noise_rule")
    root = (section.values.get("configs") or {}).get(ROOT)
    if rule is None or root is None:
        return
    chosen = section.before["architecture"].get("noise_rule")
    root[rule["embedding"]] = bool(chosen and chosen["embedder"])
    for name, path in rule["paths"].items():
        root[path] = chosen["fields"][name] if chosen else rule["neutral"][name]


def _replaced(value: Any, fixed: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(entry, fixed) for key, entry in value.items()}
    if isinstance(value, list):
        return [_replaced(entry, fixed) for entry in value]
    return fixed.get(value, value) if isinstance(value, str) else value
