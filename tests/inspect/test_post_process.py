"""What the engine does with a result, which an adapter that returns more than media has to be ready for."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from synthetic import look

FACT = "detail.post_process"
MAKER = """

def get_finish_func(od_config):
    {before}
    def finish(result, sampling_params=None):
        {says}

    return finish
"""


def named(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    monkeypatch.setattr(synthetic, "REGISTRY", f"{synthetic.REGISTRY}\n_DIFFUSION_POST_PROCESS_FUNCS = {table}\n")


@pytest.mark.parametrize(
    "says", ["return scaled(result)", "return sampling_params", "result = None\n        return result"]
)
def test_function_that_changes_the_result_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    named(monkeypatch, '{"MadeUpPipeline": "get_finish_func"}')
    found = look(tmp_path, before=MAKER.format(before="", says=says)).facts[FACT]
    assert found.value == "get_finish_func"
    assert [place.file.rpartition("/")[2] for place in found.evidence] == ["registry.py", "pipeline.py"]


def test_function_that_returns_what_it_gets_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, '{"MadeUpPipeline": "get_finish_func"}')
    assert look(tmp_path, before=MAKER.format(before="", says="return result")).facts[FACT].value == ""
    other = look(tmp_path, before=MAKER.format(before="od_config = str(od_config)", says="return result"))
    assert other.facts[FACT].value == ""


def test_pipeline_without_one_and_one_named_by_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(tmp_path).facts[FACT].value == ""
    named(
        monkeypatch,
        '{"Other": "get_other_func"}\n_DIFFUSION_POST_PROCESS_FUNCS["MadeUpPipeline"] = '
        '_DIFFUSION_POST_PROCESS_FUNCS["Other"]',
    )
    found = look(tmp_path).facts[FACT]
    assert (found.value, len(found.evidence)) == ("get_other_func", 1)


def test_function_that_is_put_in_its_place_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, '{"MadeUpPipeline": "get_finish_func"}')
    text = MAKER.format(before="", says="return result").replace(
        "return finish", "finish = scaled(finish)\n    return finish"
    )
    assert look(tmp_path, before=text).facts[FACT].value == "get_finish_func"
