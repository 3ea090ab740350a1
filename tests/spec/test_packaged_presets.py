"""A pipeline has its own packaged preset, whatever its package is called."""

from __future__ import annotations

import pytest

from scaffold.render.names import model_name
from scaffold.spec.preset import find_preset, presets

PIPELINES = {pipeline: preset for preset in presets() for pipeline in preset.pipelines}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_pipeline_has_its_own_preset_under_every_name(pipeline: str) -> None:
    names = {"another", model_name(pipeline), *(preset.name for preset in presets())}
    assert {find_preset(name, pipeline).name for name in names} == {PIPELINES[pipeline].name}


def test_a_pipeline_without_one_takes_that_of_its_model() -> None:
    for preset in presets():
        assert find_preset(preset.name, "RenamedPipeline") == find_preset(preset.name, None) == preset
    assert find_preset("no_such_model", "RenamedPipeline").pipelines == ()
