"""A tokenizer of bytes, with the special tokens that a pipeline's source spells out, and a chat template where the
released one can have it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any

_SPECIAL = re.compile(r"<\|\w+\|>|<\w+>|</\w+>|<\w+_\w+>")
_MODEL = re.compile(r"\b[A-Z]\w*(?:Model|ForCausalLM|ForConditionalGeneration)\w*\b")
_ALWAYS = ("<pad>", "<unk>", "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>")
_UNIGRAM = ("<pad>", "</s>", "<unk>")  # the first ids, where classes with a unigram model suppose them
_BYTE_SPACE, _SPACE = "\u0120", "\u2581"  # what a space is in pieces of bytes, and in those of words
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


def chats(sources: Iterable[str]) -> bool:
    """Whether the tokenizer beside the text encoders that a pipeline names can be released with a chat template.

    A checkpoint's tokenizer is that of its text encoder. Encoders such as T5 and CLIP continue no text, so nobody chats
    with them, and their tokenizers have no template. Where no text encoder is named a template is supposed.

    Args:
        sources: texts of the pipeline's modules.
    """
    transformers = importlib.import_module("transformers")
    auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    speaking = {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    reading = {*auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES}
    found = []
    for name in {name for source in sources for name in _MODEL.findall(source)}:
        config: Any = getattr(getattr(transformers, name, None), "config_class", None)
        kind = getattr(config, "model_type", None)
        if str(kind).removesuffix("_text") in speaking:
            found.append(not config().is_encoder_decoder)
        elif kind in reading or str(kind).removesuffix("_text_model") in reading:
            found.append(False)
    return not found or any(found)


def tokenizer(special: Iterable[str], chat: bool = True, cls: Any = None) -> Any:
    """A fast tokenizer: one id for each special token and each byte, so that no text is unknown to it.

    Args:
        special: texts of special tokens.
        chat: whether it has a chat template; one without ends what it encodes, as those of encoders do.
        cls: class that will load it. One that builds a unigram model takes no other vocabulary: it gets the same
            number of ids, for printable characters and the space.
    """
    library: Any = importlib.import_module("tokenizers")
    transformers: Any = importlib.import_module("transformers")
    names = list(special)
    alphabet = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    of_words = getattr(cls, "model", None) is library.models.Unigram
    if of_words:
        names.sort(key=lambda name: _UNIGRAM.index(name) if name in _UNIGRAM else len(_UNIGRAM))
        pieces = [*names, *(_SPACE if piece == _BYTE_SPACE else piece for piece in alphabet)]
        inner = library.Tokenizer(library.models.Unigram([(piece, 0.0) for piece in pieces], _UNIGRAM.index("<unk>")))
        inner.pre_tokenizer = library.pre_tokenizers.Metaspace(_SPACE)
        inner.decoder = library.decoders.Metaspace(_SPACE)
    else:
        pieces = [*names, *alphabet]
        inner = library.Tokenizer(library.models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
        inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = library.decoders.ByteLevel()
    inner.add_special_tokens([library.AddedToken(name, special=True, normalized=False) for name in names])
    pad, end = ("<|endoftext|>", "<|im_end|>") if chat else ("<pad>", "</s>")
    if not chat:
        inner.post_processor = library.processors.TemplateProcessing(
            single=f"$A {end}", special_tokens=[(end, names.index(end))]
        )
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=pad,
        eos_token=end,
        unk_token="<unk>",
        model_max_length=1024,
        additional_special_tokens=names,
    )
    if chat:
        made.chat_template = _CHAT.replace("IMAGE", image_text(names))
    return made
