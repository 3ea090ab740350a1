"""The dummy data of a smoke test have no chat messages under ``prompt``.

The smoke test goes through the same agent loop as a real run, which reads ``prompt`` as chat messages and makes
``prompts`` and ``attention_mask`` of them. Rows that lack it make the smoke test fail for a reason of its own, or, if
the loop is stubbed, let it pass where real data would fail.

Instead: give the rows ``"prompt": [{"role": "user", "content": …}]``, or make them with the real data script.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.data_rows import chatless
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC704"
NAME = "dummy-data-without-prompt"
SEVERITY = "error"
CHECKLIST = ("S1", "D1")
APPLIES = Applies()
HELP = 'write "prompt": [{"role": "user", "content": …}]'


def check(package: Package) -> Hits:
    """Look at the rows of the scripts below ``tests/``."""
    for file in package.preprocessors:
        if file.path.startswith("tests/"):
            for node, has_key in chatless(file):
                message = "'prompt' is no list of chat messages" if has_key else "rows of dummy data have no 'prompt'"
                yield Hit(file, node, message)


FAILING = (
    Example("no prompt", dummy=('build_row("a sign", [1, 5, 2])', '«{"data_source": "x", "extra_info": {}}»')),
    Example(
        "another key, by keyword",
        dummy=('build_row("a sign", [1, 5, 2]', '«dict(data_source="x", caption=text)» for text in "a b".split('),
    ),
    Example("plain text", dummy=('build_row("a sign", [1, 5, 2])', '{"data_source": "x", "prompt": «"a sign"»}')),
)
PASSING = (
    Example(
        "chat messages",
        dummy=('build_row("a sign", [1, 5, 2])', '{"data_source": "x", "prompt": [{"role": "user", "content": "a"}]}'),
    ),
)
