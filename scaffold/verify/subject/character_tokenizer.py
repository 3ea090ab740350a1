"""A tokenizer with one id for each character and one for each special token."""

from __future__ import annotations

import re
from typing import Any

from scaffold.verify.measured import NotDrivableError

FIRST_SPECIAL = 1_200_000  # beyond every code point


class CharacterTokenizer:
    """The part of a Hugging Face tokenizer that adapters and preprocessors use.

    Args:
        special: texts of the special tokens.
    """

    chat_template = None

    def __init__(self, special: list[str]) -> None:
        self.special = list(special)
        self.all_special_tokens = self.special
        self.all_special_ids = [FIRST_SPECIAL + i for i in range(len(special))]

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """Id of a special token, None for another."""
        return FIRST_SPECIAL + self.special.index(token) if token in self.special else None

    def convert_ids_to_tokens(self, token_id: int) -> str:
        """Text of one id."""
        return self.special[token_id - FIRST_SPECIAL] if token_id >= FIRST_SPECIAL else chr(token_id)

    def encode(self, text: str, add_special_tokens: bool = True, **_: Any) -> list[int]:
        """Ids of a text; special tokens that it spells out become themselves."""
        pieces = re.findall("|".join([*map(re.escape, self.special), "."]), text, re.DOTALL)
        return [ord(piece) if (found := self.convert_tokens_to_ids(piece)) is None else found for piece in pieces]

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        """Text of ids."""
        ids = token_ids.tolist() if hasattr(token_ids, "tolist") else list(token_ids)
        return "".join(self.convert_ids_to_tokens(i) for i in ids if not (skip_special_tokens and i >= FIRST_SPECIAL))


def tokenizer_of(subject: Any) -> tuple[CharacterTokenizer, list[int], list[int], str]:
    """The tokenizer, the ids upstream puts before and after a prompt, and the request's key of its text.

    Raises:
        NotDrivableError: how upstream encodes a prompt is not known.
    """
    known = subject.job["upstream"].get("prompt")
    if known is None:
        raise NotDrivableError("how upstream encodes a prompt is not known")
    tokenizer = CharacterTokenizer(known["markers"])
    ends = [tokenizer.encode(known[side]) if known[side] else [] for side in ("begin", "end")]
    return tokenizer, *ends, known["key"]
