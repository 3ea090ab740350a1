"""[prompt]: how the pipeline makes tokens of a prompt."""

from scaffold.spec.section import Section

ORDER = 22


def fill(section: Section) -> None:
    """Put keys, surrounding tokens and the chat form in which the agent loop sends a prompt."""
    section.fact("key", "detail.prompt.key")
    section.fact("negative_key", "detail.negative.keys", _negative_key)
    section.fact("begin", "detail.prompt.begin_token")
    section.fact("end", "detail.prompt.end_token")
    section.fact("add_special_tokens", "detail.prompt.add_special_tokens")
    section.fact("negative", "detail.negative.kind")
    section.fact("chat_template", "detail.prompt.chat_template")
    section.preset("column", "prompt_token_ids")
    section.preset("strip", True)
    section.preset("chat_user")
    section.preset("chat_end")


def _negative_key(keys: list[str]) -> str | None:
    """Return the last part of the place where the negative prompt is read, the same in request and arguments."""
    names = {key.rpartition(".")[2] for key in keys}
    return names.pop() if len(names) == 1 else None
