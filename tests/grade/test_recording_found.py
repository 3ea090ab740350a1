"""How the rollout gets at the steps of real pipelines: by hand, from where their loops stand and what steps in them."""

from __future__ import annotations

from typing import Any

import pytest

from scaffold.grade.decide import port_of
from scaffold.grade.established import Established
from scaffold.grade.recording import Recording, find_recording
from scaffold.inspect import inspect_pipeline
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream


def recording(version: str, pipeline: str) -> Recording:
    source = locate(version)
    report = inspect_pipeline(source, pipeline)
    port, _ = port_of(source, report)
    return find_recording(Established(report, port), source)


@pytest.mark.parametrize(
    ("version", "pipeline", "holder", "calls"),
    [
        # The loop is a function of another module, which the pipeline imports by name.
        ("0.30.0", "AuKPipeline", {"holder": "function", "function": "sample_latents"}, True),
        # It is a method of the pipeline; the step is told the time of each token.
        ("0.30.0", "SanaWmPipeline", {"holder": "pipeline", "method": "_run_native_backend"}, True),
        # It is a method of the module inside, which predicts, too.
        ("0.30.0", "Pi0Pipeline", {"holder": "module", "class": "Pi0ForActionPrediction"}, True),
        # Two methods predict by turns, or several modules: which calls to record is not known.
        ("0.30.0", "InternVLAA1Pipeline", {"holder": "module", "class": "InternVLAA1"}, False),
        ("0.27.0rc1", "Gr00tN1d7Pipeline", {"holder": "module", "class": "Gr00tN1d7ActionHead"}, False),
    ],
)
def test_an_update_is_replaced(version: str, pipeline: str, holder: dict[str, Any], calls: bool) -> None:
    found = recording(version, pipeline)
    assert (found.kind, found.calls) == ("update", calls)
    assert found.ported is not None
    assert holder.items() <= found.ported.items()
    assert "sde_scheduler.update(own_update, " in found.ported["text"]


@pytest.mark.parametrize(
    ("version", "pipeline", "expected"),
    [
        # The pipeline's attribute is empty, and handed on to the loop of a module with the latents of one sample.
        ("0.30.0", "LancePipeline", ("attribute", "scheduler", True, True, False)),
        # The attribute is set where the scheduler is made; the pipeline inside gets what the attribute gives.
        ("0.30.0", "HunyuanImage3ForCausalMM", ("attribute", "scheduler", False, False, True)),
        ("0.30.0", "OmniGen2Pipeline", ("attribute", "scheduler", False, False, True)),
        ("0.22.0", "WanS2VPipeline", ("attribute", "scheduler", False, False, True)),
    ],
)
def test_an_attribute_answers(version: str, pipeline: str, expected: tuple[Any, ...]) -> None:
    found = recording(version, pipeline)
    assert (found.kind, found.attribute, found.differences, found.single, found.calls) == expected


def test_a_loop_without_a_step_is_not_recorded() -> None:
    found = recording("0.22.0", "AudioXPipeline")
    assert found == Recording(why=found.why)
    assert "no run of plain statements" in found.why
