"""Every registered class ends with answers or unknowns and a verdict, never with a traceback."""

from __future__ import annotations

import json

import pytest

from scaffold.inspect import inspect_pipeline
from scaffold.inspect.engine import questions
from scaffold.inspect.table import registered_classes
from scaffold.upstream import UpstreamSource, locate, read_registry

pytestmark = pytest.mark.upstream
VERSION = "0.30.0"
OTHERS = ("0.22.0", "0.24.0", "0.27.0rc1", "0.28.0")
SHAPE = {
    "prompt": {"kind", "prompt_keys", "extra_args", "sampling_params"},
    "denoiser": {"class", "method", "params"},
    "cfg": {"branches", "scales", "interval", "renorm", "execution"},
    "scheduler": {"class", "call", "arguments", "inline", "steps", "direction", "shift", "negated"},
    "trajectory": {"recorded", "fields"},
    "checkpoint": {"files", "renames", "stacked", "ignored"},
    "layers": {"classes"},
    "vae": {"class", "downsample", "channels"},
    "latents": {"layout"},
}


@pytest.fixture(scope="module")
def source() -> UpstreamSource:
    return locate(VERSION)


def _classes(source: UpstreamSource) -> list[str]:
    """One registry key for each registered class."""
    return list(registered_classes(source))


def test_registry_size(source: UpstreamSource) -> None:
    assert len(read_registry(source)) == 73
    assert len(_classes(source)) == 67


@pytest.mark.parametrize("part", range(3))
def test_each_class_answers(source: UpstreamSource, part: int) -> None:
    _check_all(source, _classes(source)[part::3])


@pytest.mark.slow
@pytest.mark.parametrize("version", OTHERS)
def test_each_class_of_another_version_answers(version: str) -> None:
    source = locate(version)
    _check_all(source, _classes(source))


def _check_all(source: UpstreamSource, keys: list[str]) -> None:
    for key in keys:
        report = inspect_pipeline(source, key)
        assert not report.failures, key
        shown = json.loads(json.dumps(report.to_json()))
        assert list(shown) == ["schema", "upstream", "verdict", "answers", "details", "evidence", "confidence"], key
        assert set(shown["answers"]) == {*SHAPE, "tokens"}, key
        for question, names in SHAPE.items():
            assert set(shown["answers"][question]) == names, (key, question)
        assert shown["verdict"]["path"] in ("non_diffusers", "diffusers", "refused"), key
        assert shown["verdict"]["reason"], key
        assert shown["evidence"]["verdict.path"], key
        for name, sure in shown["confidence"].items():
            if sure == "unknown":
                part, _, rest = name.partition(".") if name.startswith("details.") else ("answers", "", name)
                question, _, leaf = rest.removeprefix("answers.").partition(".")
                value = shown[part].get(question)
                assert (value if not leaf else value[leaf]) is None, (key, name)


def test_pipelines_of_diffusers_layout_are_told_apart(source: UpstreamSource) -> None:
    assert inspect_pipeline(source, "StableDiffusion3Pipeline").verdict["path"] == "diffusers"
    assert inspect_pipeline(source, "QwenImagePipeline").verdict["path"] == "diffusers"
    assert inspect_pipeline(source, "BagelPipeline").verdict["path"] == "non_diffusers"


def test_inline_ascending_pipeline() -> None:
    report = inspect_pipeline(locate("0.27.0rc1"), "SenseNovaU1Pipeline")
    assert report.value("scheduler.inline") is True
    assert report.value("scheduler.direction") == "ascending"
    assert report.value("scheduler.steps") == "n"
    assert report.value("scheduler.shift") == 3.0
    assert report.value("cfg.branches") == 2
    assert report.value("cfg.execution") == "sequential"


def test_each_question_declares_its_keys() -> None:
    names: list[str] = []
    for question in questions():
        names += question.KEYS
    assert len(names) == len(set(names))
    assert {n.split(".")[1] for n in names if n.startswith("answers.")} == {*SHAPE, "tokens"}
