"""A data script, or the dummy data of a smoke test, writes rows without chat messages under ``prompt``.

The agent loop reads ``prompt`` as a list of messages, applies the chat template and pads the result; its
``prompts`` and ``attention_mask`` are what every batch carries. A row with plain text there fails in the first batch,
or is taken apart into letters; where the loop is stubbed, a smoke test passes where real data would fail.

    {"data_source": …, "prompt": text, …}

Instead: ``"prompt": [{"role": "user", "content": text}]``.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.data_rows import chatless
from scaffold.check.model.package import RECIPES, Package
from scaffold.check.rule import Hit, Hits

ID = "OSC601"
NAME = "missing-chat-prompt"
SEVERITY = "error"
CHECKLIST = ("D1", "S1")
HELP = 'write "prompt": [{"role": "user", "content": …}]'


def check(package: Package) -> Hits:
    """Look at the rows of the scripts that make data."""
    for file in package.preprocessors:
        kind = "training" if file.path.startswith(RECIPES) else "dummy"
        for node, has_key in chatless(file):
            message = "'prompt' is not a list of chat messages" if has_key else f"rows of {kind} data have no 'prompt'"
            yield Hit(file, node, message)


FAILING = (
    Example(
        "no message of the user",
        data=('[{"role": "user", "content": text.strip()}]', '«[{"role": "system", "content": text.strip()}]»'),
    ),
    Example("plain text", data=('[{"role": "user", "content": text.strip()}]', "«text.strip()»")),
    Example("a parameter that is text", data=('[{"role": "user", "content": text.strip()}]', "«text»")),
    Example("no prompt", dummy=('build_row("a sign", [1, 5, 2])', '«{"data_source": "x", "extra_info": {}}»')),
    Example(
        "another key, by keyword",
        dummy=('build_row("a sign", [1, 5, 2]', '«dict(data_source="x", caption=text)» for text in "a b".split('),
    ),
)
PASSING = (
    Example(
        "built before",
        data=[
            (") -> dict:\n", ') -> dict:\n    messages = [{"role": "user", "content": text}]\n'),
            ('[{"role": "user", "content": text.strip()}]', "messages"),
        ],
    ),
    Example("built elsewhere", data=('[{"role": "user", "content": text.strip()}]', "as_chat(text)")),
)
