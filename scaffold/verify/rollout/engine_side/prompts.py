"""Token ids of one prompt: as the data set stores them for training, and as the agent loop sends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Prompts of different lengths, for a ragged batch.
TEXTS = (
    "a red fox jumps over a frozen river at dawn",
    "portrait of an old sailor, oil on canvas, three glass bottles on a wooden table behind him",
    "two cats",
)
# The same for a package whose tiny checkpoint may fill every prompt to one short length.
SHORT_TEXTS = ("a red fox at dawn", "an old sailor and three bottles", "two cats")
NEGATIVE = "blurred, a photograph of nothing"  # of every request that is to have one


@dataclass(frozen=True)
class PromptForm:
    """How a pipeline tokenizes a text.

    Attributes:
        tokenizer: the checkpoint's.
        begin: text of the token before the prompt, or None.
        end: text of the token behind it, or None.
        add_special_tokens: whether the tokenizer adds its own.
        chat_template: whether the ids of a chat are taken as they are.
        around: texts that are encoded as one with the prompt between them, in place of single tokens.
        rows: what the package's own data script writes of a text; it goes before all else.
        negatives: whether requests are to have a negative prompt where no data script says any.
    """

    tokenizer: Any
    begin: str | None
    end: str | None
    add_special_tokens: bool
    chat_template: bool
    around: tuple[str, str] | None = None
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    negatives: bool = False

    def negative(self, text: str) -> list[int] | None:
        """Ids of the negative prompt, one for each text; None where requests have none."""
        found = self.rows.get(text, {}).get("negative_prompt")
        if found is None:
            return self.chat(NEGATIVE) if self.negatives else None
        turns = [dict(turn) for turn in found]
        words = "blurred " * list(self.rows).index(text)  # requests of one batch may have others
        return self._rendered([*turns[:-1], {**turns[-1], "content": f"{words}{turns[-1]['content']}"}])

    def _rendered(self, turns: list[dict[str, Any]]) -> list[int]:
        if not getattr(self.tokenizer, "chat_template", None):
            return list(self.tokenizer.encode(turns[-1]["content"], add_special_tokens=self.add_special_tokens))
        text = self.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def native(self, text: str) -> list[int]:
        """Ids that the preprocessor stores."""
        if text in self.rows:
            stored = self.rows[text].get("prompt_token_ids")
            return self.chat(text) if stored is None else [int(item) for item in stored]
        if self.chat_template and getattr(self.tokenizer, "chat_template", None):
            return self.chat(text)
        whole = text.strip() if self.around is None else f"{self.around[0]}{text.strip()}{self.around[1]}"
        body = list(self.tokenizer.encode(whole, add_special_tokens=self.add_special_tokens))
        return [*self._one(self.begin), *body, *self._one(self.end)]

    def chat(self, text: str) -> list[int]:
        """Ids that the agent loop sends; the native ones where the tokenizer has no chat template."""
        if text in self.rows:
            return self._rendered([dict(turn) for turn in self.rows[text]["prompt"]])
        if not getattr(self.tokenizer, "chat_template", None):
            return self.native(text)
        turns = [{"role": "user", "content": text}]
        rendered = self.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer.encode(rendered, add_special_tokens=False))

    @property
    def has_end(self) -> bool:
        """Whether a token follows every prompt."""
        return self.end is not None or self.around is not None

    def without_end(self, ids: Sequence[int]) -> list[int]:
        """The ids with a deliberate mistake: without the end token."""
        return list(ids[:-1])

    def reversed(self, ids: Sequence[int]) -> list[int]:
        """The ids with a deliberate mistake: the text reversed between the surrounding tokens."""
        first, behind = (1 if self.begin else 0), (1 if self.end else 0)
        if self.around is not None:
            before, after = (len(self.tokenizer.encode(text, add_special_tokens=False)) for text in self.around)
            first, behind = first + before, behind + after
        last = len(ids) - behind
        return [*ids[:first], *reversed(ids[first:last]), *ids[last:]]

    def _one(self, token: str | None) -> list[int]:
        if token is None:
            return []
        found = self.tokenizer.convert_tokens_to_ids(token)
        if not isinstance(found, int):
            raise LookupError(f"the checkpoint's tokenizer has no token {token!r}")
        return [found]
