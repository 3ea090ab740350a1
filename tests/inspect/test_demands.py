"""What a request is refused without, structured captions, and tokenizers that nobody chats with."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import EULER, look

MEDIA = 'media = prompt.get("multi_modal_data") or {}\n'
REFUSED = 'if media.get("{kind}") is None:\n    raise ValueError("no {kind}")\n'


def required(folder: Path, text: str) -> list[str]:
    found = look(folder, text + EULER).facts["detail.media.required"]
    assert found.value == [] or found.evidence
    return list(found.value)


def test_what_a_refusal_asks_for_is_required(tmp_path: Path) -> None:
    assert required(tmp_path / "none", MEDIA) == []
    assert required(tmp_path / "read", MEDIA + 'picture = media.get("image")\n') == []
    one = REFUSED.format(kind="image")
    assert required(tmp_path / "one", MEDIA + one) == ["image"]
    assert required(tmp_path / "two", MEDIA + one + REFUSED.format(kind="audio")) == ["image", "audio"]


HELPER = """

def paths_of(given):
{body}
    return {{"first": str(given)}}
"""
FIELD = 'found = paths_of(media.get("audio"))\n'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    if given is None:\n        return {}", ["audio"]),
        ("    if not given:\n        return []", ["audio"]),
        ("    if given is not None:\n        return [given]\n    return []", ["audio"]),
        ('    if given is None:\n        return {"first": "silence"}', []),
        ("    if given == 3:\n        return {}", []),
    ],
)
def test_what_a_helper_makes_of_it_is_asked_for(tmp_path: Path, body: str, expected: list[str]) -> None:
    text = MEDIA + FIELD + 'if not found:\n    raise ValueError("no sound")\n'
    found = look(tmp_path, text + EULER, before=HELPER.format(body=body)).facts["detail.media.required"]
    assert found.value == expected


def test_of_alternatives_one_is_required(tmp_path: Path) -> None:
    text = 'camera, action = prompt.get("camera"), prompt.get("action")\n'
    text += 'if camera is None and action is None:\n    raise ValueError("no way")\n'
    assert set(required(tmp_path, text)[0].split(" or ")) == {"camera", "action"}


def test_a_refusal_under_a_condition_demands_nothing(tmp_path: Path) -> None:
    text = (
        MEDIA
        + 'if sampling.guidance_scale > 3.0:\n    if media.get("image") is None:\n        raise ValueError("no")\n'
    )
    assert required(tmp_path / "scale", text.replace("sampling.", "req.sampling_params.")) == []
    refused = 'if media.get("image") is not None:\n    raise ValueError("takes none")\n'
    assert required(tmp_path / "refused", MEDIA + refused) == []


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        ('NEGATIVE_PROMPT = \'{"quality": ["low", "blurry"]}\'', True),
        ("NEGATIVE_PROMPT = 'low quality, blurry'", None),
        ("NEGATIVE_PROMPT = '[1, 2]'", None),
        ("SETTINGS = '{\"quality\": 1}'", None),
    ],
)
def test_a_prompt_in_fields_is_a_structured_one(tmp_path: Path, constant: str, expected: bool | None) -> None:
    assert look(tmp_path, before=f"\n{constant}\n").value("detail.prompt.structured") is expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("UMT5EncoderModel.from_pretrained(od_config.model)", False),
        ("CLIPTextModel.from_pretrained(od_config.model)", False),
        ("Qwen3Model.from_pretrained(od_config.model).to('cpu')", True),
        ("AutoModel.from_pretrained(od_config.model)", None),
        ("loaded(UMT5EncoderModel.from_pretrained, od_config.model)", False),
    ],
)
def test_whose_tokenizer_has_no_chat_template(tmp_path: Path, made: str, expected: bool | None) -> None:
    above = f"\n\nclass Above:\n    def load(self, od_config):\n        self.text_encoder = {made}\n"
    assert look(tmp_path, before=above, bases="nn.Module, Above").value("detail.prompt.chat_tokenizer") is expected
