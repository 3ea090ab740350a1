"""Requests bring token ids; a pipeline that encodes text by itself is given the text."""

from __future__ import annotations

from typing import Any

import torch


def ensure_prompt_text(
    pipeline: Any, req: Any, *, tokenizer: str, text_only: bool | tuple[str, ...], takes_ids: bool = False
) -> None:
    """Give the pipeline the text it wants in place of the token ids that the agent loop sends.

    Args:
        pipeline: of the engine; it has a tokenizer.
        req: the request; its prompt is changed.
        tokenizer: path of the tokenizer in the pipeline; empty where it has the usual name.
        text_only: the engine's warm-up brings what upstream could take, and what is trained is made of text: entries
            of a request that stay then, or True for all but media.
        takes_ids: it reads ``prompt_token_ids`` itself, and no text.

    Raises:
        ValueError: the ids cannot be turned back into the user's text.
    """
    prompt = req.prompts[0] if req.prompts else None
    if not isinstance(prompt, dict):
        return
    if text_only is not False and str(getattr(req, "request_id", "")).startswith("dummy_req_id"):
        stay = ("prompt", "negative_prompt", *text_only) if isinstance(text_only, tuple) else ()
        for name in [name for name in prompt if (name not in stay if stay else name == "multi_modal_data")]:
            del prompt[name]
    ids = prompt.get("prompt_token_ids") if prompt.get("prompt_ids") is None else prompt["prompt_ids"]
    if takes_ids:
        if ids is not None:
            prompt["prompt_token_ids"] = ids
        return
    if not prompt.get("prompt") and ids is not None:
        prompt["prompt"] = text_of(tokenizer_of(pipeline, tokenizer), ids)
    if not prompt.get("negative_prompt") and prompt.get("negative_prompt_ids") is not None:
        prompt["negative_prompt"] = text_of(tokenizer_of(pipeline, tokenizer), prompt["negative_prompt_ids"])


def tokenizer_of(pipeline: Any, path: str = "") -> Any:
    """The pipeline's tokenizer.

    Raises:
        ValueError: it has none.
    """
    if path:
        for name in path.split("."):
            pipeline = getattr(pipeline, name)
        return pipeline
    tokenizer = getattr(pipeline, "tokenizer", None) or getattr(getattr(pipeline, "processor", None), "tokenizer", None)
    if tokenizer is None or isinstance(tokenizer, str):
        raise ValueError(
            f"the request brings token ids, and {type(pipeline).__name__} has no tokenizer to read them with"
        )
    # A processor of texts and images is kept under that name, too.
    return tokenizer if hasattr(tokenizer, "encode") else getattr(tokenizer, "tokenizer", tokenizer)


def text_of(tokenizer: Any, token_ids: Any) -> str:
    """The user's text in a chat of one turn, which the tokenizer's chat template makes the same ids of.

    A tokenizer that is released without a template has the text alone, which the agent loop sends as it is.

    Raises:
        ValueError: the ids are nothing of that kind.
    """
    ids = token_ids.tolist() if isinstance(token_ids, torch.Tensor) else list(token_ids)
    ids = ids[0] if ids and isinstance(ids[0], list) else ids
    decoded = str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
    if tokenizer.encode(decoded, add_special_tokens=False) != ids:
        raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")
    if not getattr(tokenizer, "chat_template", None):
        return decoded
    mark = "MARK-OF-THE-PROMPT"
    for generation in (True, False):
        turn = [{"role": "user", "content": mark}]
        rendered = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=generation)
        before, marker, behind = rendered.partition(mark)
        if marker and len(decoded) >= len(before) + len(behind):
            if decoded.startswith(before) and decoded.endswith(behind):
                return decoded[len(before) : len(decoded) - len(behind)]
    raise ValueError(f"the request's prompt {decoded!r} is no single user turn of the tokenizer's chat template")
