"""No string of a spec becomes code: each is replaced by hostile ones, and what is rendered is parsed."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import hostile
import pytest

from scaffold.errors import ScaffoldError
from scaffold.grade import specify
from scaffold.inspect import inspect_pipeline
from scaffold.new import render_package
from scaffold.new.recipe_options import RecipeOptions, with_options
from scaffold.render import derive_names, environment, filters, formats, render, tree
from scaffold.spec import LOCK_NAME, SPEC_NAME, IntegrationSpec, SpecRequest
from scaffold.target import default_profile
from scaffold.upstream import locate

RECORDS = (SPEC_NAME, LOCK_NAME)
PORTED = {"anima": "AnimaPipeline", "auk": "AuKPipeline"}
FIRST, SECOND = PORTED
OTHERS = {"hidream_o1_image": "HiDreamO1ImagePipeline", "sensenova_u1": "SenseNovaU1Pipeline"}


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find and compile templates once, and leave the formatting out: it is the text before it that is looked at."""
    monkeypatch.setattr(tree, "_template_names", functools.cache(tree._template_names))
    compiled = functools.cache(lambda root, make=environment.environment: make(environment.Sources(root)))
    monkeypatch.setattr(environment, "environment", lambda sources: compiled(sources.packaged))
    monkeypatch.setattr(formats, "finish", lambda files, notes: dict(files))


@functools.cache
def package(name: str) -> tuple[IntegrationSpec, Any]:
    source = locate("0.30.0")
    report = inspect_pipeline(source, (PORTED | OTHERS)[name])
    graded = specify(SpecRequest(report, derive_names(name), default_profile()), source)
    return graded.spec, graded.port


def rendered(sections: dict[str, Any], port: Any) -> dict[str, str] | None:
    """Return the files; None where the spec is refused with one line."""
    try:
        files, spec = render_package(IntegrationSpec(sections), [], None, port)
    except ScaffoldError:
        return None
    (text, lock) = (file.content for name in RECORDS for path, file in files.items() if path.endswith(f"/{name}"))
    assert IntegrationSpec.from_toml(text, lock=lock) == spec
    return {path: file.content or str(file.link_to) for path, file in files.items()}


def escapes(files: dict[str, str], plain: Callable[[], dict[str, str] | None]) -> Iterator[str]:
    for path, content in files.items():
        if hostile.MARK not in content or path.endswith(RECORDS):
            continue
        read = hostile.READERS.get(PurePosixPath(path).suffix)
        assert read is not None, path
        try:
            problem = read(content)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is None and path.endswith(".md") and (usual := plain()) is not None:
            same = hostile.blocks(content) == hostile.blocks(usual[path])
            problem = None if same else "other blocks than with a plain word"
        if problem is not None:
            yield f"{path}: {problem}"


def attack(sections: dict[str, Any], port: Any, known: Any = ()) -> tuple[list[str], int]:
    """Return what went through, and in how many cases the string was rendered rather than refused.

    Each string meets every eighth kind, which ones goes round; all of them where a longer fuzz is asked for. Strings
    at the places of ``known`` sections are left out: another attack has them.
    """
    problems, count, share = [], 0, 1 if "OMNI_SCAFFOLD_FUZZ_SECONDS" in os.environ else 8
    leaves = [leaf for leaf in hostile.distinct_leaves(sections) if leaf not in set(hostile.distinct_leaves(known))]
    assert leaves
    for place, leaf in enumerate(leaves):
        plain = functools.cache(lambda leaf=leaf: rendered(hostile.with_leaf(sections, leaf, "zqplain"), port))
        for kind, text in list(hostile.HOSTILE.items())[place % share :: share]:
            files = rendered(hostile.with_leaf(sections, leaf, text), port)
            if files is not None:
                count += any(hostile.MARK in content for path, content in files.items() if not path.endswith(RECORDS))
                problems += [f"{'.'.join(map(str, leaf))}, {kind}: {one}" for one in escapes(files, plain)]
    return problems, count


@pytest.mark.slow
def test_complete_package(fast: None, reference_spec: IntegrationSpec) -> None:
    problems, count = attack(dict(reference_spec.sections), None)
    assert not problems, "\n".join(problems)
    assert count > 40


@pytest.mark.slow
@pytest.mark.upstream
@pytest.mark.parametrize(
    ("name", "known", "least"), [(FIRST, None, 40), pytest.param(SECOND, FIRST, 4, marks=pytest.mark.table)]
)
def test_ported_package(fast: None, name: str, known: str | None, least: int) -> None:
    spec, port = package(name)
    problems, count = attack(dict(spec.sections), port, dict(package(known)[0].sections) if known else ())
    assert not problems, "\n".join(problems)
    assert count > least


@pytest.mark.slow
@pytest.mark.upstream
@pytest.mark.parametrize("name", [pytest.param("hidream_o1_image", marks=pytest.mark.table), "sensenova_u1"])
def test_what_the_other_blocks_take(fast: None, reference_spec: IntegrationSpec, name: str) -> None:
    spec, port = package(name)
    problems, _ = attack(dict(spec.sections), port, dict(reference_spec.sections))
    assert not problems, "\n".join(problems)


@pytest.mark.slow
def test_what_options_put_into_the_recipe(fast: None, reference_spec: IntegrationSpec) -> None:
    spec = with_options(reference_spec, RecipeOptions(reward="rewards/mine.py:compute_score"))
    problems, count = attack(dict(spec.sections), None, dict(reference_spec.sections))
    assert not problems, "\n".join(problems)
    assert count > 4


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ x }}", 'a" + b + "'),
        ("{{ x ~ y }}", "a b"),
        ('{{ ["a", x] | join(", ") }}', "a b"),
        ('{{ x | replace("a", "b") }}', "a b"),
        ("{% set z = x %}{{ z }}", "a\nb"),
        ("{% macro m(z) %}{{ z }}{% endmacro %}{{ m(x) }}", "a-b"),
        ("{{ x }}", ["a"]),
        ("{{ x | expression }}", "a; b"),
        ("{{ x | expression }}", "1) + (2"),
        ("{{ x | expression }}", "(a := 1)"),
        ("{{ x | import_line }}", "import os; os.system('id')"),
        ("{{ x | function }}", "def f(): pass\nf()"),
        ("{{ x | path }}", "-rf"),
        ("{{ x | path }}", "a b"),
        ("{{ x | words }}", "$(id)"),
    ],
)
def test_a_value_without_its_filter_is_refused(tmp_path: Path, template: str, value: Any) -> None:
    (tmp_path / "a.txt.jinja").write_text(template)
    names = {"model": "toy", "package": "toy_flow_grpo"}
    with pytest.raises(ScaffoldError, match=r"template a\.txt\.jinja, line 1: .* (stands where|is not) "):
        render({"names": names, "x": value, "y": "c"}, tmp_path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("tiny", "modules", 0, "class"), "builtins.print"),
        (("tiny", "modules", 0, "class"), "transformers.testing_utils.execute_subprocess_async"),
        (("tiny", "modules", 0, "class"), "transformers.models.auto.auto_factory.get_class_from_dynamic_module"),
        (("tiny", "modules", 0, "config"), "os.system"),
        (("upstream", "config_module"), "os"),
        (("upstream", "output_module"), "tests.evil"),
        (("upstream", "module"), "vllm_omni._evil"),
    ],
)
def test_a_value_chooses_among_few_packages(
    reference_spec: IntegrationSpec, place: tuple[Any, ...], value: str
) -> None:
    sections = hostile.with_leaf(dict(reference_spec.sections), place, value)
    with pytest.raises(ScaffoldError, match=r"\.py\.jinja, line \d+: '.*' is not a (class|public name) of "):
        render_package(IntegrationSpec(sections), [])


def test_no_value_becomes_an_import_of_another_package(fast: None, reference_spec: IntegrationSpec) -> None:
    sections = dict(reference_spec.sections)
    tried = 0
    for leaf in hostile.leaves(sections):
        value = functools.reduce(lambda nest, key: nest[key], leaf, sections)
        if re.fullmatch(r"\w+(\.\w+)+", value):
            tried += 1
            files = rendered(hostile.with_leaf(sections, leaf, f"{hostile.MARK}.{hostile.MARK}"), None) or {}
            found = {name: text for name, text in files.items() if name.endswith(".py") and hostile.MARK in text}
            if leaf != ("upstream", "module"):  # the one value that may name a pipeline's own package
                assert not [name for name, text in found.items() if re.search(r"(?m)^\s*(from|import) zq_", text)], leaf
    assert tried > 10


@pytest.mark.parametrize("value", ["os.path", "torch.hub", "pip.main", "lantern", "lantern._pipe", "vllm_omni._x"])
def test_a_pipeline_of_its_own_lies_in_a_package_of_its_own(value: str) -> None:
    with pytest.raises(ValueError, match="public"):
        filters.own_import(value)


def test_only_the_pipeline_names_that_package() -> None:
    assert filters.own_import("lantern.pipe") == "lantern.pipe"
    assert filters.own_import("lantern.transformer", "lantern.pipe") == "lantern.transformer"
    for pipeline in ("vllm_omni.diffusion.models.x", "candle.pipe"):
        with pytest.raises(ValueError, match="not a public name"):
            filters.own_import("lantern.transformer", pipeline)


@pytest.mark.parametrize("text", ["def f():\n    import os\n", "import subprocess", "from os import system"])
def test_code_of_a_spec_imports_few_packages(text: str) -> None:
    made = filters.function if text.startswith("def") else filters.import_line
    with pytest.raises(ValueError, match="that may import (os|subprocess)"):
        made(text)


def test_text_of_templates_and_filters_passes(tmp_path: Path) -> None:
    (tmp_path / "a.txt.jinja").write_text(
        '{% macro m(z) %}<{{ z }}>{% endmacro %}{{ m(x | py) }}{{ "a-b" if x }}{{ {"k": "c d"}["k"] }}'
        '{{ ("(" ~ (x | py) ~ ")") | indent(2) }}{{ [x | py, "e f"] | join("; ") }}{{ n }}{{ d }}'
    )
    names = {"model": "toy", "package": "toy_flow_grpo"}
    files = render({"names": names, "x": "it's", "n": -1.5, "d": "a.b"}, tmp_path)
    assert files["a.txt"].content == """<"it's">a-bc d("it's")"it's"; e f-1.5a.b\n"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words, a_name and 1.5", "plain words, a_name and 1.5"),
        ("see `verify --level rollout`", "see `verify --level rollout`"),
        ("one ` alone", r"one \` alone"),
        ("a - b", r"a \- b"),
        ("1. b", r"1\. b"),
        ("# b <i> [c](d) | *e*", r"\# b \<i\> \[c\](d) \| \*e\*"),
        ("a\n\n# b", r"a \# b"),
    ],
)
def test_prose_is_itself_in_markdown(text: str, shown: str) -> None:
    assert filters.prose(text) == shown
    html = hostile.READER.render(filters.prose(text))
    assert html.startswith("<p>")
    assert html.count("<") == 2 + 2 * html.count("<code>")
