"""How a request's ids become the text that a pipeline is given, and back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flow_grpo_runtime.prompt_form import PromptForm, ensure_text


class Letters:
    """A tokenizer with one id for each character, and one for each marker."""

    markers = ("<begin>", "<end>")

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(letter) for letter in text]

    def convert_tokens_to_ids(self, marker: str) -> int:
        return -1 - self.markers.index(marker)

    def decode(self, ids: list[int], **options: Any) -> str:
        return "".join(self.markers[-1 - found] if found < 0 else chr(found) for found in ids)


PIPELINE = SimpleNamespace(tokenizer=Letters())
FORMS = {
    "markers": PromptForm(begin="<begin>", end="<end>"),
    "texts around it": PromptForm(prefix="draw: ", suffix="!"),
    "texts that come along": PromptForm(prefix="draw: ", suffix="!", requested=True, negative_key="negative_prompt"),
}


def request(**prompt: Any) -> Any:
    return SimpleNamespace(prompts=[prompt], sampling_params=SimpleNamespace(extra_args=None))


@pytest.mark.parametrize("name", FORMS)
def test_ids_of_a_text_give_the_text(name: str) -> None:
    form, text = FORMS[name], "draw: a dog!" if name == "texts that come along" else "a dog"
    asked = request(prompt_ids=form.ids(PIPELINE.tokenizer, text))
    ensure_text(form, PIPELINE, asked, "Toy")
    assert asked.prompts[0]["prompt"] == text


def test_a_turn_of_a_chat_gets_the_texts_that_come_along() -> None:
    chat = PromptForm(prefix="draw: ", suffix="!", requested=True, user_turn="<user>", end_of_turn="<stop>")
    asked = request(prompt_token_ids=[[ord(letter) for letter in "<user>a cat<stop><user> a dog <stop>"]])
    ensure_text(chat, PIPELINE, asked, "Toy")
    assert asked.prompts[0]["prompt"] == "draw: a dog!"


@pytest.mark.parametrize(("text", "refused"), [("", False), ("a cat", True)])
def test_an_empty_negative_prompt_may_come_as_a_chat(text: str, refused: bool) -> None:
    """The agent loop sends one; between its texts it is not empty any more."""
    form = FORMS["texts that come along"]
    asked = request(prompt="a dog", negative_prompt_ids=[ord(letter) for letter in f"draw: {text}!"])
    if refused:
        with pytest.raises(ValueError, match="unconditional branch has no text"):
            ensure_text(form, PIPELINE, asked, "Toy")
    else:
        ensure_text(form, PIPELINE, asked, "Toy")
        assert asked.prompts[0]["negative_prompt"] == ""
