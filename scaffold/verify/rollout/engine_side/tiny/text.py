"""A tokenizer of bytes, with the special tokens that a pipeline's source spells out and a chat template."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any

_SPECIAL = re.compile(r"<\|\w+\|>|<\w+>|</\w+>|<\w+_\w+>")
_ALWAYS = ("<pad>", "<unk>", "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}IMAGE{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def special_tokens(sources: Iterable[str]) -> list[str]:
    """Texts in ``sources`` that look like special tokens, after those that every tokenizer has."""
    found = dict.fromkeys(_ALWAYS)
    for source in sources:
        found |= dict.fromkeys(_SPECIAL.findall(source))
    return list(found)


def image_text(names: Iterable[str]) -> str:
    """What stands for an image in a chat: the image's token, between a begin and an end where tokens are named so."""
    known = list(names)
    image = next((name for name in known if "image" in name and not re.search(r"start|end|^</", name)), "")
    for name in known:
        end = name.replace("start", "end")
        if image and "start" in name and name != "<|im_start|>" and end in known:
            return f"{name}{image}{end}"
    return image


def tokenizer(special: Iterable[str]) -> Any:
    """A fast tokenizer: one id for each special token and each byte, so that no text is unknown to it."""
    library: Any = importlib.import_module("tokenizers")
    transformers: Any = importlib.import_module("transformers")
    names = list(special)
    pieces = [*names, *sorted(library.pre_tokenizers.ByteLevel.alphabet())]
    inner = library.Tokenizer(library.models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = library.decoders.ByteLevel()
    inner.add_special_tokens([library.AddedToken(name, special=True, normalized=False) for name in names])
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        unk_token="<unk>",
        model_max_length=1024,
        additional_special_tokens=names,
    )
    made.chat_template = _CHAT.replace("IMAGE", image_text(names))
    return made
