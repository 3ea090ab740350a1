"""Token ids of one prompt: as the data set stores them for training, and as the agent loop sends them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Lengths differ, so a batch of them is ragged.
TEXTS = (
    "a red fox jumps over a frozen river at dawn",
    "portrait of an old sailor, oil on canvas, three glass bottles on a wooden table behind him",
    "two cats",
)


@dataclass(frozen=True)
class PromptForm:
    """How a pipeline makes tokens of a text; ``begin`` and ``end`` are token texts or None."""

    tokenizer: Any
    begin: str | None
    end: str | None
    add_special_tokens: bool
    chat_template: bool

    def native(self, text: str) -> list[int]:
        """Ids that the preprocessor stores."""
        if self.chat_template:
            return self.chat(text)
        body = list(self.tokenizer.encode(text.strip(), add_special_tokens=self.add_special_tokens))
        return [*self._one(self.begin), *body, *self._one(self.end)]

    def chat(self, text: str) -> list[int]:
        """Ids that the agent loop sends; the native ones where the tokenizer has no chat template."""
        if not getattr(self.tokenizer, "chat_template", None):
            return self.native(text)
        turns = [{"role": "user", "content": text}]
        rendered = self.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer.encode(rendered, add_special_tokens=False))

    def without_end(self, ids: Sequence[int]) -> list[int]:
        """The mistake of leaving the end token out."""
        return list(ids[:-1])

    def reversed(self, ids: Sequence[int]) -> list[int]:
        """The mistake of turning the text around, surrounding tokens left in place."""
        first, last = (1 if self.begin else 0), len(ids) - (1 if self.end else 0)
        return [*ids[:first], *reversed(ids[first:last]), *ids[last:]]

    def _one(self, token: str | None) -> list[int]:
        if token is None:
            return []
        found = self.tokenizer.convert_tokens_to_ids(token)
        if not isinstance(found, int):
            raise LookupError(f"the checkpoint's tokenizer has no token {token!r}")
        return [found]
