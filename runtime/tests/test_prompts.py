"""Prompts that come as token ids become the text again that a chat template made them of, or are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flow_grpo_runtime.prompts import ensure_prompt_text, tokenizer_of


class Characters:
    """A tokenizer whose ids are characters."""

    chat_template: str | None = "template"

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(map(chr, ids)).replace("\ufffd", "?")

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(map(ord, text))

    def apply_chat_template(self, turn: Any, *, add_generation_prompt: bool, **_: Any) -> str:
        return f"<user>{turn[0]['content']}<end>" + ("<assistant>" if add_generation_prompt else "")


def asked(prompt: Any, name: str = "one") -> Any:
    return SimpleNamespace(prompts=[prompt], request_id=name)


def filled(prompt: Any, *, name: str = "one", tokenizer: str = "", pipeline: Any = None, **options: Any) -> Any:
    request = asked(prompt, name)
    pipeline = pipeline or SimpleNamespace(tokenizer=Characters())
    ensure_prompt_text(pipeline, request, tokenizer=tokenizer, **{"text_only": False, **options})
    return request.prompts[0]


def ids(text: str) -> list[int]:
    return list(map(ord, text))


@pytest.mark.parametrize("behind", ["<assistant>", ""])
@pytest.mark.parametrize("kind", [list, torch.tensor, lambda text: [text]])
def test_the_users_text_comes_back(behind: str, kind: Any) -> None:
    given = kind(ids(f"<user>a red cat<end>{behind}"))
    found = filled({"prompt_token_ids": given, "negative_prompt_ids": kind(ids("<user>blurry<end>"))})
    assert found["prompt"] == "a red cat"
    assert found["negative_prompt"] == "blurry"


def test_text_stays_and_so_do_ids_where_the_pipeline_reads_them() -> None:
    assert filled({"prompt": "a dog", "prompt_token_ids": [1]})["prompt"] == "a dog"
    found = filled({"prompt_token_ids": [1], "prompt_ids": [2]}, takes_ids=True)
    assert found["prompt_token_ids"] == [2]
    assert "prompt" not in found
    assert filled("a text") == "a text"


def test_a_tokenizer_without_a_template_has_the_text_alone() -> None:
    tokenizer = Characters()
    tokenizer.chat_template = None
    pipeline = SimpleNamespace(parts=SimpleNamespace(reader=tokenizer))
    assert filled({"prompt_ids": ids("as it is")}, pipeline=pipeline, tokenizer="parts.reader")["prompt"] == "as it is"


def test_the_engines_warm_up_is_made_of_text_alone() -> None:
    warm_up = {"prompt": "dummy", "multi_modal_data": {"image": 1}, "task": "edit"}
    assert filled(dict(warm_up), name="dummy_req_id_1", text_only=True) == {"prompt": "dummy", "task": "edit"}
    assert filled(dict(warm_up), name="dummy_req_id_1", text_only=("seed",)) == {"prompt": "dummy"}
    assert filled(dict(warm_up), text_only=True) == warm_up


def test_ids_that_are_no_single_turn_are_refused() -> None:
    with pytest.raises(ValueError, match="no single user turn of the tokenizer's chat template"):
        filled({"prompt_ids": ids("a red cat")})
    with pytest.raises(ValueError, match="is not encoded to the ids it was decoded from"):
        filled({"prompt_ids": [0xFFFD]})
    with pytest.raises(ValueError, match="Nothing has no tokenizer to read them with"):
        tokenizer_of(type("Nothing", (), {"tokenizer": "a name"})())
    reader = Characters()
    processor = SimpleNamespace(tokenizer=reader)
    assert tokenizer_of(SimpleNamespace(processor=processor)) is reader
    assert tokenizer_of(SimpleNamespace(tokenizer=processor)) is reader
