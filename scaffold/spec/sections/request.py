"""What a request brings: [tokens], [prompt], [media]."""

from __future__ import annotations

from typing import Any

from scaffold.spec.section import Section

# Name of the token whose embedding is that of the time; the source gives it no name, only an id.
TIMESTEP_TOKEN = "timestep_token"


def fill_tokens(section: Section) -> None:
    """Put text and id of each token; ids that only a tokenizer knows come from the preset."""
    texts, origin = section.known("detail.tokens.text")
    answers, _ = section.known("answers.tokens")
    for name, answer in (answers or {}).items():
        released: dict[str, Any] = section.sources.preset.value("tokens", name) or {}
        text = (texts or {}).get(name)
        same = text is None or text == released.get("text")  # another text is another token, with another id
        token = {
            "text": text if text or answer["id"] is not None else released.get("text"),
            "id": answer["id"] if answer["id"] is not None else released.get("id") if same else None,
            "config_key": released.get("config_key"),
        }
        section.put(name, token, f"{origin}; preset {section.sources.preset.name}" if released else origin)
    token, origin = section.known("detail.timestep_token.id")
    if token is not None:
        suffix, _ = section.known("detail.chat.suffix")
        text = suffix[-1] if suffix else None
        section.put(TIMESTEP_TOKEN, {"text": text, "id": token, "config_key": None}, origin)


def fill_prompt(section: Section) -> None:
    """Put keys, surrounding tokens and the chat form in which the agent loop sends a prompt."""
    section.fact("key", "detail.prompt.key")
    section.fact("negative_key", "detail.negative.keys", _negative_key)
    section.fact("begin", "detail.prompt.begin_token")
    section.fact("end", "detail.prompt.end_token")
    section.fact("add_special_tokens", "detail.prompt.add_special_tokens")
    section.fact("negative", "detail.negative.kind")
    section.fact("chat_template", "detail.prompt.chat_template")
    section.known_fact("chat_tokenizer", "detail.prompt.chat_tokenizer")
    section.known_fact("prefix", "detail.prompt.prefix")
    section.known_fact("suffix", "detail.prompt.suffix")
    if section.values.get("suffix") is not None and section.values["add_special_tokens"] is None:
        section.put("add_special_tokens", True, "default of tokenizers: the call does not say")
    _put_request(section)
    if section.known_fact("negative_text", "detail.negative.text") is not None:
        section.put("negative", "text", section.provenance["prompt.negative_text"])
    _put_chat(section)
    section.preset("column", "prompt_token_ids")
    section.preset("strip", True)
    section.preset("chat_user")
    section.preset("chat_end")


def _put_request(section: Section) -> None:
    """Put the texts between which a request has to bring the prompt; the pipeline puts only tokens around it all."""
    prefix, suffix = (section.sources.preset.value(section.name, f"request_{side}") for side in ("prefix", "suffix"))
    if prefix is None or suffix is None or section.values.get("suffix") is not None:
        return
    origin = f"preset {section.sources.preset.name}"
    section.put("prefix", prefix, origin)
    section.put("suffix", suffix, origin)
    section.put("requested", True, origin)


def _negative_key(keys: list[str]) -> str | None:
    """Return the last part of the place where the negative prompt is read, the same in request and arguments."""
    names = {key.rpartition(".")[2] for key in keys}
    return names.pop() if len(names) == 1 else None


def _put_chat(section: Section) -> None:
    """Put the texts around a prompt that goes through the checkpoint's chat template with something behind it.

    The template is the checkpoint's, so the preset says what it makes of one turn of a user.
    """
    suffix, origin = section.known("detail.chat.suffix")
    before, behind = (section.sources.preset.value(section.name, key) for key in ("chat_user", "chat_reply"))
    if suffix is None or before is None or behind is None:
        return
    origin = f"{origin}; preset {section.sources.preset.name}"
    markers = [token["text"] for token in section.before["tokens"].values()]
    texts = [text for text in suffix if text not in markers]
    section.put("prefix", before, origin)
    section.put("suffix", behind + "".join(texts), origin)
    section.put("chat_template", False, "the pipeline puts more behind the template than the agent loop")
    section.put("behind", "".join(texts), origin)
    section.known_fact("template_holder", "detail.chat.holder")
    section.fact("add_special_tokens", "detail.chat.special_tokens")
    if section.values["negative_key"] is None:
        section.put("negative_key", "negative_prompt", "the agent loop's own name; the pipeline reads none")
    negative, place = section.known("detail.chat.negative_text")
    if negative is not None:
        section.put("negative", "text", place)
        section.put("negative_text", f"{before}{negative}{section.values['suffix']}", f"{place}; {origin}")


def fill_media(section: Section) -> None:
    """Put the kinds of files, as a package with a ported denoiser has them."""
    task = section.sources.report.task
    if task is None:
        return
    origin = "flag --task"
    for key, value in {
        "kind": "image",
        "inputs": ["image"],
        "sends": ["image"],
        "required": ["image"],
        "lacks": [],
        "ocr": False,
        "structured": False,
    }.items():
        section.put(key, value, origin)
