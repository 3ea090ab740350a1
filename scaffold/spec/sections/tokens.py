"""[tokens]: special tokens by the name that the source gives them."""

from __future__ import annotations

from typing import Any

from scaffold.spec.section import Section

# Name of the token whose embedding is that of the time; the source gives it no name, only an id.
TIMESTEP_TOKEN = "timestep_token"


def fill(section: Section) -> None:
    """Put text and id of each token; ids that only a tokenizer knows come from the preset."""
    texts, origin = section.known("detail.tokens.text")
    answers, _ = section.known("answers.tokens")
    for name, answer in (answers or {}).items():
        released: dict[str, Any] = section.sources.preset.value("tokens", name) or {}
        text = (texts or {}).get(name)
        same = text is None or text == released.get("text")  # another text is another token, with another id
        token = {
            "text": text if text or answer["id"] is not None else released.get("text"),
            "id": answer["id"] if answer["id"] is not None else released.get("id") if same else None,
            "config_key": released.get("config_key"),
        }
        section.put(name, token, f"{origin}; preset {section.sources.preset.name}" if released else origin)
    token, origin = section.known("detail.timestep_token.id")
    if token is not None:
        suffix, _ = section.known("detail.chat.suffix")
        text = suffix[-1] if suffix else None
        section.put(TIMESTEP_TOKEN, {"text": text, "id": token, "config_key": None}, origin)
