# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""How a text becomes the ids that a pipeline encodes, and how a request's ids become the text that it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class PromptForm:
    """What a pipeline makes of a request's text by itself.

    Attributes:
        key: of the text in the prompt of a request.
        negative_key: of the negative text; empty where the pipeline reads none.
        begin, end: special tokens around the ids: their text, or their id where the text is not known.
        prefix, suffix: texts around the prompt.
        requested: the texts around it come with the request's text.
        special_tokens: whether the tokenizer adds special tokens.
        user_turn, end_of_turn: what stands around the user's turn of a chat; empty where chats are not known.
        images: most images that a request may bring.
    """

    key: str = "prompt"
    negative_key: str = ""
    begin: str | int | None = None
    end: str | int | None = None
    prefix: str = ""
    suffix: str = ""
    requested: bool = False
    special_tokens: bool = False
    user_turn: str = ""
    end_of_turn: str = ""
    images: int = 0

    def check_media(self, media: dict[str, Any], name: str) -> None:
        """Refuse media that training would not see."""
        if media and not self.images:
            raise ValueError(f"{name} is trained on text alone; the request brings multi_modal_data")
        if media.keys() - {"image"}:
            raise ValueError(f"{name} is trained on images; the request brings {sorted(media)}")
        images = media.get("image")
        if isinstance(images, list) and len(images) > self.images:
            raise ValueError(f"{name} sees one reference image, and the request brings {len(images)}")

    def ids(self, tokenizer: Any, prompt: Any) -> list[int]:
        """Ids that the pipeline has to make of a request's text for training to see the same."""
        text = prompt if isinstance(prompt, str) else prompt[self.key]
        ids = tokenizer.encode(self._around(text), add_special_tokens=self.special_tokens)
        return [*self._marker(tokenizer, self.begin), *ids, *self._marker(tokenizer, self.end)]

    def text(self, tokenizer: Any, token_ids: Any) -> str:
        """Text of one prompt: the last user turn of a chat, or the whole without what the pipeline puts around it.

        A turn of a chat gets the texts around it where they come with requests: the ids of training have them.

        Raises:
            ValueError: ids outside a chat, which training takes as they are, would not be encoded to themselves again.
        """
        ids = token_ids.tolist() if isinstance(token_ids, torch.Tensor) else list(token_ids)
        ids = ids[0] if ids and isinstance(ids[0], list) else ids
        decoded = str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        if self.user_turn and self.user_turn in decoded:
            turn = decoded.rpartition(self.user_turn)[2].partition(self.end_of_turn)[0].strip()
            return f"{self.prefix}{turn}{self.suffix}" if self.requested else turn
        text, markers = decoded, [mark if isinstance(mark, str) else "" for mark in (self.begin, self.end)]
        if not self.requested:
            text = text.removeprefix(self.prefix).removesuffix(self.suffix)
        text = text.removeprefix(markers[0]).removesuffix(markers[1]).strip()
        encoded = tokenizer.encode(self._around(text), add_special_tokens=self.special_tokens)
        if encoded != ids[bool(markers[0]) : len(ids) - bool(markers[1])]:
            raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")
        return text

    def _around(self, text: str) -> str:
        return text if self.requested else f"{self.prefix}{text}{self.suffix}"

    @staticmethod
    def _marker(tokenizer: Any, mark: str | int | None) -> list[int]:
        if mark is None:
            return []
        return [tokenizer.convert_tokens_to_ids(mark) if isinstance(mark, str) else mark]


def ensure_text(form: PromptForm, pipeline: Any, req: Any, name: str) -> None:
    """Give the pipeline the text it wants in place of the token ids that the agent loop sends.

    Args:
        form: what the pipeline makes of a text.
        pipeline: has the tokenizer.
        req: the request; its prompt is changed.
        name: of the pipeline's class, for messages.

    Raises:
        ValueError: the request brings something that training would not see.
    """
    prompt = req.prompts[0] if req.prompts else None
    if not isinstance(prompt, dict):
        return
    if str(getattr(req, "request_id", "")).startswith("dummy_req_id"):
        # The engine's warm-up brings an image wherever upstream could take one.
        prompt.pop("multi_modal_data", None)
    # VeRL-Omni puts media beside the prompt, among its extra arguments, or at both places.
    media = prompt.get("multi_modal_data") or (prompt.get("extra_args") or {}).get("multi_modal_data") or {}
    form.check_media(media, name)
    if media:
        prompt["multi_modal_data"] = media
    # Under which name the ids come depends on the release of VeRL-Omni.
    ids = prompt.get("prompt_token_ids") if prompt.get("prompt_ids") is None else prompt["prompt_ids"]
    if not prompt.get(form.key) and ids is not None:
        prompt[form.key] = form.text(pipeline.tokenizer, ids)
    if not form.negative_key:
        return
    negative = prompt.get(form.negative_key)
    if not negative and prompt.get("negative_prompt_ids") is not None:
        negative = form.text(pipeline.tokenizer, prompt["negative_prompt_ids"])
    negative = negative or (req.sampling_params.extra_args or {}).get(form.negative_key)
    if negative and negative.strip() and not (form.requested and negative == form.prefix + form.suffix):
        raise ValueError(f"training's unconditional branch has no text, the request's has {negative!r}")
    prompt[form.negative_key] = ""
