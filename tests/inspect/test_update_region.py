"""Which statements of a loop are its update: where they begin and end, what they read, when they do more."""

from __future__ import annotations

import ast
import textwrap

import pytest

from scaffold.inspect import inspect_pipeline
from scaffold.inspect.questions.update_region import Region, find_region
from scaffold.upstream import locate

PACKED = """
def loop(model, x, times, mask, scheduler):
    for t in times:
        given = {"x": x, "t": t}
        each = t.expand(x.shape[0])
        v = model(**given)
        stepped = scheduler.step(-pack(v), t, pack(x), each)[0]
        stepped = unpack(stepped)
        x = torch.where(mask, stepped, x)
        report(t)
    return x
"""
WRITTEN = """
def loop(model, x, times):
    for i in range(len(times) - 1):
        c, u = model(x, times[i]).chunk(2)
        v = c + 2 * (c - u)
        x = x + (times[i + 1] - times[i]) * v
    return x
"""


def region(text: str, marked: str) -> Region | None:
    """Region of the statement that holds a text; lines are counted from the function's."""
    text = textwrap.dedent(text).strip()
    line = next(i for i, row in enumerate(text.splitlines(), 1) if marked in row)
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    loop = next(node for node in ast.walk(function) if isinstance(node, ast.For | ast.While))
    return find_region(function, loop, line, "x")


def test_an_update_that_is_written_out_is_one_statement() -> None:
    assert region(WRITTEN, "times[i + 1]") == Region("x", "v", ("i",), 5, 5)


def test_what_is_done_to_a_step_belongs_to_it() -> None:
    found = region(PACKED, "scheduler.step")
    assert found == Region("x", "v", ("each", "t"), 6, 8)


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        pytest.param(PACKED.replace("report(t)", "x = x.clamp(-1, 1)\n        x = x"), "x = x.clamp", id="no step"),
        pytest.param(PACKED.replace("report(t)", "report(stepped)"), "scheduler.step", id="read behind it"),
        pytest.param(PACKED.replace("stepped = unpack(stepped)", "log(t)"), "scheduler.step", id="a call in between"),
        pytest.param(
            PACKED.replace("each = t", "x = x.to(t)\n        each = t"), "scheduler.step", id="changed before"
        ),
        pytest.param(WRITTEN.replace("* v", "* (c - u)"), "times[i + 1]", id="two predictions"),
        pytest.param(WRITTEN.replace("x = x +", "self.x = x +"), "times[i + 1]", id="an attribute"),
        pytest.param(
            WRITTEN.replace("model(x, times[i])", "model(times[i])"), "times[i + 1]", id="no prediction of it"
        ),
    ],
)
def test_more_than_an_update_is_none(text: str, marked: str) -> None:
    assert region(text, marked) is None


@pytest.mark.upstream
@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        ("AuKPipeline", (None, "sample_latents", "x", "v", 672)),
        ("Pi0Pipeline", ("Pi0ForActionPrediction", "sample_actions", "x_t", "v_t", 814)),
        ("SanaWmPipeline", ("SanaWmPipeline", "_run_native_backend", "latents", "noise_pred", 871)),
    ],
)
def test_regions_of_real_pipelines(pipeline: str, expected: tuple[str | None, str, str, str, int]) -> None:
    """By hand, from the lines of vllm-omni 0.30.0."""
    found = inspect_pipeline(locate("0.30.0"), pipeline).fact("detail.region.parts")
    parts = found.value
    assert (parts["class"], parts["function"], parts["sample"], parts["output"], found.evidence[0].line) == expected
