"""[prompt]: how the pipeline makes tokens of a prompt."""

from scaffold.spec.section import Section

ORDER = 22


def fill(section: Section) -> None:
    """Put keys, surrounding tokens and the chat form in which the agent loop sends a prompt."""
    keys, origin = section.known("answers.prompt.prompt_keys")
    key = "prompt" if "prompt" in (keys or []) else None
    section.put("key", key, origin)
    section.put("negative_key", "negative_prompt", origin)
    section.fact("begin", "detail.prompt.begin_token")
    section.fact("end", "detail.prompt.end_token")
    section.fact("add_special_tokens", "detail.prompt.add_special_tokens")
    section.fact("negative", "detail.negative.kind")
    section.preset("chat_template", False)
    section.preset("column", "prompt_token_ids")
    section.preset("strip", True)
    section.preset("chat_user")
    section.preset("chat_end")
