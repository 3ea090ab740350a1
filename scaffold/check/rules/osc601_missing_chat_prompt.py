"""The data script writes rows without chat messages under ``prompt``.

The agent loop reads ``prompt`` as a list of messages, applies the chat template and pads the result; its
``prompts`` and ``attention_mask`` are what every batch carries. A row with plain text there fails in the first batch,
or is taken apart into letters.

    {"data_source": …, "prompt": text, …}

Instead: ``"prompt": [{"role": "user", "content": text}]``.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.data_rows import chatless
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC601"
NAME = "missing-chat-prompt"
SEVERITY = "error"
CHECKLIST = ("D1",)
APPLIES = Applies()
HELP = 'write "prompt": [{"role": "user", "content": …}]'


def check(package: Package) -> Hits:
    """Look at the rows of the scripts below ``examples/``."""
    for file in package.preprocessors:
        if file.path.startswith("examples/"):
            for node, has_key in chatless(file):
                message = (
                    "'prompt' is no list of chat messages" if has_key else "rows of training data have no 'prompt'"
                )
                yield Hit(file, node, message)


_PROMPT = '        "prompt": [{"role": "user", "content": text.strip()}],\n'
FAILING = (
    Example(
        "no message of the user",
        {"data": [(_PROMPT, '        "prompt": «[{"role": "system", "content": text.strip()}]»,\n')]},
    ),
    Example("plain text", {"data": [(_PROMPT, '        "prompt": «text.strip()»,\n')]}),
    Example("a parameter that is text", {"data": [(_PROMPT, '        "prompt": «text»,\n')]}),
    Example("a message without a role", {"data": [(_PROMPT, '        "prompt": «[{"content": text}]»,\n')]}),
    Example("a message as a pair", {"data": [(_PROMPT, '        "prompt": «[("user", text)]»,\n')]}),
    Example("a single message", {"data": [(_PROMPT, '        "prompt": «{"role": "user", "content": text}»,\n')]}),
    Example(
        "messages as JSON",
        {
            "data": [
                ("import argparse\n", "import argparse\nimport json\n"),
                (_PROMPT, '        "prompt": «json.dumps([{"role": "user", "content": text}])»,\n'),
            ]
        },
    ),
    Example(
        "no prompt at all",
        {
            "data": [
                (_PROMPT, ""),
                ("    return {\n", "    return «{\n"),
                ('"ground_truth": text},\n    }\n', '"ground_truth": text},\n    }»\n'),
            ]
        },
    ),
)
PASSING = (
    Example("chat messages"),
    Example(
        "built before",
        {
            "data": [
                (_PROMPT, '        "prompt": messages,\n'),
                ("    return {\n", '    messages = [{"role": "user", "content": text}]\n    return {\n'),
            ]
        },
    ),
    Example("built elsewhere", {"data": [(_PROMPT, '        "prompt": as_chat(text),\n')]}),
)
