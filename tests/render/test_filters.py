import ast
import subprocess
from typing import Any

import pytest
import tomli
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scaffold.errors import ScaffoldError
from scaffold.render import filters, render

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NASTY = [
    "{{ x }}",
    "{% if a %}",
    '"""',
    "'''",
    'a"',
    '""',
    "\\",
    '\\"',
    "a\nb",
    "#}",
    "\x00",
    "\x85",
    "\u2028",
    "it's",
    "$(id)",
    "`id`",
]


@given(VALUES)
@settings(max_examples=200, deadline=None)
def test_py_is_the_value(value: Any) -> None:
    assert ast.literal_eval(filters.py(value)) == value


def test_py_keeps_order_and_kind() -> None:
    assert filters.py({"b": 1, "a": (1,)}) == "{'b': 1, 'a': (1,)}"
    assert filters.py(True) == "True"
    assert eval(filters.py(float("inf"))) == float("inf")
    with pytest.raises(ValueError, match="object"):
        filters.py(object())


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_yaml_is_the_value(value: Any) -> None:
    assert yaml.safe_load("key: " + filters.yaml(value)) == {"key": value}


def test_text_that_no_file_can_hold_is_refused() -> None:
    for write in (filters.yaml, filters.toml):
        with pytest.raises(ValueError, match="surrogate"):
            write("\ud800")


def test_yaml_quotes_only_where_another_reading_exists() -> None:
    assert filters.yaml("examples/run.sh") == "examples/run.sh"
    for word in ("yes", "No", "null", "1e5", "0x1", "~", "a: b", "- a", "", "a #b"):
        assert filters.yaml(word).startswith('"')
    assert yaml.safe_load(filters.yaml(1e-5)) == 1e-5


@given(
    st.recursive(
        st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | TEXT,
        lambda i: st.lists(i, max_size=3),
    )
)
@settings(max_examples=100, deadline=None)
def test_toml_is_the_value(value: Any) -> None:
    assert tomli.loads("key = " + filters.toml(value)) == {"key": value}


def test_toml_writes_tables_and_refuses_none() -> None:
    assert tomli.loads("key = " + filters.toml({"a b": 1, "c": {"d": "e"}}))["key"] == {"a b": 1, "c": {"d": "e"}}
    with pytest.raises(ValueError, match="NoneType"):
        filters.toml(None)


@given(TEXT)
@settings(max_examples=300, deadline=None)
def test_docstring_stays_between_its_quotes(text: str) -> None:
    source = f'def f():\n    """{filters.docstring(text)}"""\n'
    tree = ast.parse(source)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    assert ast.literal_eval(function.body[0].value) == text  # type: ignore[attr-defined]


@given(TEXT)
@settings(max_examples=300, deadline=None)
def test_comment_ends_at_its_line(text: str) -> None:
    source = f"# {filters.comment(text)}\nx = 1\n"
    assert len(ast.parse(source).body) == 1
    assert len(source.splitlines()) == 2


@pytest.mark.parametrize("text", [*NASTY[:-6], "it's", "$(id)", "`id`", "a b"])
def test_sh_is_one_word(text: str) -> None:
    if "\0" in text:
        with pytest.raises(ValueError, match="NUL"):
            filters.sh(text)
        return
    done = subprocess.run(["bash", "-c", f"printf %s {filters.sh(text)}"], capture_output=True, check=True)
    assert done.stdout == text.encode()


@pytest.mark.parametrize("bad", ["a b", "class", "1a", "é", "", None, 3, "a.b", "__import__('os')"])
def test_identifier_refuses(bad: object) -> None:
    with pytest.raises(ValueError, match="identifier"):
        filters.identifier(bad)


def test_dotted_checks_every_part() -> None:
    assert filters.dotted("vllm_omni.diffusion.data") == "vllm_omni.diffusion.data"
    for bad in ("a..b", "a.class", "a.b; import os", ".a"):
        with pytest.raises(ValueError, match="identifier"):
            filters.dotted(bad)


def test_wrap_keeps_paragraphs_and_width() -> None:
    text = filters.wrap("one two three four\n\nfive", 12, "# ")
    assert text == "# one two\n# three four\n#\n# five"


@pytest.mark.parametrize("name", ["py", "sh", "yaml", "toml", "comment", "docstring", "identifier", "dotted", "wrap"])
def test_undefined_values_are_named(tmp_path: Any, name: str) -> None:
    (tmp_path / "a.txt.jinja").write_text("first\n{{ lora.rankk | " + name + " }}\n")
    with pytest.raises(ScaffoldError, match=r"a\.txt\.jinja, line 2: .*rankk"):
        render({"names": {"model": "m", "package": "m_flow_grpo"}, "lora": {}}, tmp_path)
