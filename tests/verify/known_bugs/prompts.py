"""Prompts: containers, lengths, token ids."""

from __future__ import annotations

from known_bugs.bug import DATA, ROLLOUT, TRAINING, Bug

BUGS = (
    Bug(
        31,
        "prompt stripped of its quotes in the rollout",
        ((ROLLOUT, "        return text\n", '        return text.replace(\'"\', "")\n'),),
        ("prompt-ids",),
    ),
    Bug(
        43,
        "ids cut at the maximum length",
        (
            (
                DATA,
                "    if len(ids) > max_length:\n        raise",
                "    ids = ids[:max_length]\n    if len(ids) > max_length:\n        raise",
            ),
        ),
        ("prompt-preprocessor",),
    ),
    Bug(
        None,
        "the mask of the prompts left out where a batch is wider than its longest prompt",
        (
            (TRAINING, "return ids[:, :longest].long(), None if", "return ids.long(), None if"),
            (TRAINING, "else mask[:, :longest].bool()", "else mask.bool()"),
        ),
        ("prompt-containers",),
    ),
)
