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
        "one container of prompt ids forgotten",
        (
            (
                TRAINING,
                "return column.unbind() if column.is_nested or column.ndim == 2 else [column]",
                "return column.unbind()",
            ),
        ),
        ("prompt-containers",),
    ),
)
