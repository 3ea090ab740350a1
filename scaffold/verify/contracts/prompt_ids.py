"""The rollout sees the prompt that training sees."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.measured import Measured
from scaffold.verify.subject.character_tokenizer import tokenizer_of
from scaffold.verify.subject.driving import drive, require_inherited_loop

ID = "prompt-ids"
TITLE = "the text that the rollout makes of prompt ids is encoded to the same ids again"
NOT_RECORDED = "training takes recorded calls and no token ids; level rollout sends ids to the pipeline"
PITFALLS = (31,)
LIMIT = 0.0  # another prompt is another distribution
TEXTS = ("a red sign", 'a "sign" that says: OPEN', "Straße, café, 紅", "one\nline and another")


def run(subject: Any) -> Measured:
    """Send ids only, as the agent loop does; encode what upstream gets as upstream does."""
    require_inherited_loop(subject)
    tokenizer, begin, end, key = tokenizer_of(subject)
    around = subject.job["upstream"]["prompt"].get("around_request")
    before, behind = (begin, end) if around is None else map(tokenizer.encode, around)
    driver = drive(subject)
    driver.pipeline.tokenizer = tokenizer
    problems, changed = [], 0
    for text in TEXTS:
        ids = [*begin, *tokenizer.encode(text), *end]
        for form in (ids, torch.tensor(ids)):
            prompt = driver.roll_out(prompt={"prompt_token_ids": form}).prompt
            found = prompt.get(key) if isinstance(prompt, dict) else prompt
            if not isinstance(found, str):
                return Measured("", [f"upstream gets no text under {key!r} for a prompt of ids"])
            if [*before, *tokenizer.encode(found), *behind] != ids:
                changed += 1
                problems.append(f"{text!r} reaches upstream as {found!r}")
    return Measured(f"{len(TEXTS)} prompts come back to their ids", problems, float(changed), LIMIT, "prompts")
