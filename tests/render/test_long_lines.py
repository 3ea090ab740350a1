"""Lines that a long name made too long: broken where that changes nothing."""

from __future__ import annotations

import ast

import pytest

from scaffold.render.long_lines import break_long_lines

WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"


def longest(text: str) -> int:
    return max(map(len, text.split("\n")))


@pytest.mark.parametrize(
    "text",
    [
        f'raise NotImplementedError(\n    "{WORDS}"\n)\n',
        f'PAIRS = [\n    (\n        "file.py",\n        "{WORDS}",\n    ),\n]\n',
        f"# {WORDS}\nVALUE = 1\n",
        f'def f(values):\n    """Summary.\n\n    Args:\n        values: {WORDS}.\n    """\n',
        f'"""{WORDS}."""\n',
    ],
)
def test_a_broken_module_means_the_same(text: str) -> None:
    broken = break_long_lines(text, 60)
    assert longest(text) > 60 >= longest(broken)
    assert [ast.dump(node) for node in ast.parse(broken).body if not isinstance(node, ast.FunctionDef | ast.Expr)] == [
        ast.dump(node) for node in ast.parse(text).body if not isinstance(node, ast.FunctionDef | ast.Expr)
    ]
    assert break_long_lines(broken, 60) == broken


def test_the_entry_of_an_argument_is_continued_with_an_indent() -> None:
    text = f'def f(values):\n    """Summary.\n\n    Args:\n        values: {WORDS}.\n    """\n'
    rows = break_long_lines(text, 60).split("\n")
    assert rows[4].startswith("        values: one")
    assert rows[5].startswith("            ")


def test_an_f_string_is_not_cut_inside_its_braces() -> None:
    text = f'raise ValueError(\n    f"{WORDS[:40]} {{len(names or other or names or other)}} {WORDS[:30]}"\n)\n'
    broken = break_long_lines(text, 60)
    assert "{len(names or other or names or other)}" in broken
    assert eval(broken.removeprefix("raise "), {"names": [1], "other": []}).args == (f"{WORDS[:40]} 1 {WORDS[:30]}",)


PRAGMA = f"# ruff: noqa: {', '.join(f'E{number}' for number in range(701, 740))}\n"


@pytest.mark.parametrize("text", [f'TEXT = """\n{WORDS}\n"""\n', f'TEXT = "{WORDS}" + other\n', "x = 1\n", PRAGMA])
def test_what_cannot_be_broken_stays(text: str) -> None:
    assert break_long_lines(text, 60) == text
