"""The tokenizer of a tiny checkpoint is of the released kind: one that nobody chats with has no chat template."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import torch

from scaffold.verify.rollout.engine_side.prompts import PromptForm
from scaffold.verify.rollout.engine_side.tiny import text
from scaffold.verify.rollout.engine_side.tiny.components import Components


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from transformers import AutoTokenizer, UMT5EncoderModel", False),
        ("from transformers import CLIPTextModelWithProjection, T5EncoderModel", False),
        ("self.text_encoder = Qwen2_5_VLForConditionalGeneration.from_pretrained(model)", True),
        ("from transformers import T5EncoderModel, Qwen3Model", True),
        ("from transformers import T5EncoderModel, Qwen2_5_VLTextModel", True),
        ("from transformers import AutoModel", True),
    ],
)
def test_encoders_that_continue_no_text_have_no_template(source: str, expected: bool) -> None:
    assert text.chats([source]) is expected


def test_without_a_template_the_text_travels_as_it_is() -> None:
    made = text.tokenizer(text.special_tokens([]), chat=False)
    assert made.chat_template is None
    assert made("two cats")["input_ids"][-1] == made.convert_tokens_to_ids("</s>")  # ended, as encoders' are
    form = PromptForm(made, None, None, add_special_tokens=False, chat_template=True)
    ids = form.chat("two cats")
    assert ids == form.native("two cats")
    assert made.decode(ids) == "two cats"


def test_with_one_it_is_in_a_chat() -> None:
    made = text.tokenizer(text.special_tokens([]))
    form = PromptForm(made, None, None, add_special_tokens=False, chat_template=True)
    assert "<|im_start|>user\ntwo cats<|im_end|>" in made.decode(form.chat("two cats"))


@pytest.mark.parametrize("name", ["T5TokenizerFast", "Qwen2TokenizerFast", "AutoTokenizer"])
def test_the_class_that_a_pipeline_names_loads_it(name: str, tmp_path: Path) -> None:
    cls = getattr(pytest.importorskip("transformers"), name)
    text.tokenizer(text.special_tokens([]), chat=False, cls=cls).save_pretrained(tmp_path)
    loaded = cls.from_pretrained(tmp_path)
    ids = loaded("two cats")["input_ids"]
    assert loaded.unk_token_id not in ids
    assert loaded.decode(ids, skip_special_tokens=True) == "two cats"
    assert len(loaded) == len(text.tokenizer(text.special_tokens([])))  # an encoder has a row for each


def test_an_encoder_that_a_base_class_names_counts(tmp_path: Path) -> None:
    made = Components(tmp_path, ["class Refined(Plain): pass"], {}, torch.float32)
    assert made.tokenizer().chat_template is not None
    made.inherited = ["self.text_encoder = UMT5EncoderModel.from_pretrained(path)"]
    assert made.tokenizer().chat_template is None
