"""Every registered class ends with answers or unknowns and a verdict, never with a traceback."""

from __future__ import annotations

import json

import pytest

from scaffold.inspect import inspect_pipeline
from scaffold.inspect.engine import questions
from scaffold.inspect.table import registered_classes
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream
VERSIONS = ("0.22.0", "0.24.0", "0.27.0rc1", "0.28.0", "0.30.0", "0.32.0rc1")
FURTHER = ("0.22.0", "0.24.0", "0.28.0", "0.32.0rc1")  # as in test_snapshots.py
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


@pytest.mark.slow
@pytest.mark.parametrize(
    # In one worker with what else looks at all of a version (test_snapshots.py).
    "version",
    [
        pytest.param(
            version,
            marks=[pytest.mark.xdist_group(f"table {version}"), *([pytest.mark.table] if version in FURTHER else [])],
        )
        for version in VERSIONS
    ],
)
def test_each_class_answers(version: str) -> None:
    source = locate(version)
    for key in registered_classes(source):
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


def test_each_question_declares_its_keys() -> None:
    names: list[str] = []
    for question in questions():
        names += question.KEYS
    assert len(names) == len(set(names))
    assert {n.split(".")[1] for n in names if n.startswith("answers.")} == {*SHAPE, "tokens"}
