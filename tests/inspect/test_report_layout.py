"""Names and places stay whole, however narrow the page."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from scaffold.inspect import inspect_pipeline
from scaffold.inspect.facts import Evidence
from scaffold.inspect.report import ANSWERS
from scaffold.inspect.text import places, print_report, short_names
from scaffold.upstream import locate

VERSION = "0.22.0"


def page(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, record=True)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_place_is_never_cut(width: int) -> None:
    report = inspect_pipeline(locate(VERSION), "BagelPipeline")
    console = page(width)
    print_report(report, console=console)
    words = {word.rstrip(",") for word in console.export_text().split()}
    answers = [fact for key, fact in report.facts.items() if key.startswith(ANSWERS) and fact.evidence]
    places_of = {f"{place.file.rpartition('/')[2]}:{place.line}" for fact in answers for place in fact.evidence[:1]}
    assert places_of
    assert places_of <= words


def test_files_are_listed_with_their_whole_path() -> None:
    console = page(80)
    print_report(inspect_pipeline(locate(VERSION), "BagelPipeline"), console=console)
    assert "  vllm_omni/diffusion/models/bagel/pipeline_bagel.py" in console.export_text()


def test_files_of_one_name_are_told_apart() -> None:
    assert short_names(["m/a/transformer.py", "m/b/transformer.py", "m/a/pipeline.py"]) == {
        "m/a/transformer.py": "a/transformer.py",
        "m/b/transformer.py": "b/transformer.py",
        "m/a/pipeline.py": "pipeline.py",
    }


def test_a_path_that_ends_another() -> None:
    assert short_names(["request.py", "m/request.py"]) == {"request.py": "request.py", "m/request.py": "m/request.py"}


def test_lines_of_a_file_stand_together() -> None:
    names = {"m/a.py": "a.py", "m/b.py": "b.py"}
    evidence = [Evidence("m/a.py", 3), Evidence("m/a.py", 9), Evidence("m/b.py", 1)]
    assert places(evidence, names) == ["a.py:3, 9 (+1)"]
    assert places(evidence[1:], names) == ["a.py:9", "b.py:1"]
    assert places([], names) == []
